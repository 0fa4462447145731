"""`dalsegno session fork`, and how lineage is shown and listed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dalsegno import events
from dalsegno.cli import session_fork
from dalsegno.testing import MemoryLog, MemoryPublisher, memory_publisher
from dalsegno.testing.builder import SessionBuilder
from reader_lab import PREFIX, House

Say = Callable[..., tuple[str, str]]


@pytest.fixture
def log(say: Say, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryPublisher]:
    """A log in memory, in place of the broker's, with a session of two turns."""
    del say  # clears the environment first
    memory = MemoryLog(partitions=1)
    monkeypatch.setenv("DALSEGNO_KAFKA__BOOTSTRAP_SERVERS", "nowhere:1")
    monkeypatch.setattr(session_fork, "Publisher", lambda _, prefix: memory_publisher(memory, prefix=prefix))
    monkeypatch.setattr(session_fork, "shard_source", lambda _: None)
    with memory_publisher(memory, prefix=PREFIX) as publisher:
        with publisher.session("s-1") as session:
            session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
            session.append(events.SessionStarted())
            for name in ("t1", "t2"):
                session.append(events.TurnStarted(turn_id=name))
                session.append(events.NoteRecorded(kind="step"))
                session.append(events.TurnCompleted(turn_id=name))
        yield publisher


@pytest.mark.parametrize(
    ("at", "seq", "turn", "back", "text"),
    [
        ("last", 5, "t2", 2, "behind seq 5, directly before turn t2: the last event is 2 events further on"),
        ("6", 5, "t2", 0, "behind seq 5, directly before turn t2"),
        ("4", 2, "t1", 1, "behind seq 2, directly before turn t1: seq 4 is 1 event further on"),
    ],
)
def test_it_says_where_the_fork_begins(
    log: MemoryPublisher, say: Say, at: str, seq: int, turn: str, back: int, text: str
) -> None:
    options = ["--at", at, "--purpose", "what-if", "--suffix", "f", "--label", "why=a=b", "--label", "empty="]
    out, err = say("-o", "json", "session", "fork", "s-1", *options)
    assert json.loads(out) == {
        "session": "s-1~f", "parent": "s-1", "parent_seq": seq,
        "parent_hash": log.events("s-1")[seq - 1].hash.hex(), "turn": turn, "snapped_back": back,
    }  # fmt: skip
    assert text in err
    created, forked = log.events("s-1~f")
    assert created.body["labels"] == [{"key": "why", "value": "a=b"}, {"key": "empty", "value": ""}]
    assert (created.meta["actor_kind"], forked.body["purpose"]) == ("OPERATOR", "WHAT_IF")


def test_a_turn_of_an_ancestor_names_the_ancestor(log: MemoryPublisher, say: Say) -> None:
    say("session", "fork", "s-1", "--purpose", "debug", "--suffix", "f")
    out, err = say("session", "fork", "s-1~f", "--purpose", "dataset", "--suffix", "g")
    assert "behind seq 2 of s-1, directly before turn t1: the last event is 4 events further on" in err
    assert "s-1~g" in out
    assert log.history("s-1~g")[1].session_id == "s-1"


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["s-1", "--at", "2"], 5, "no turn begins at or below seq 2"),
        (["s-1", "--at", "99"], 4, "no event at seq 99"),
        (["s-1", "--at", "0"], 2, "a seq of the session, from 1 on, or 'last'"),
        (["s-1", "--at", "-1"], 2, "--at -1"),
        (["s-1", "--at", "٣"], 2, "--at"),
        (["s-1", "--at", "9" * 40], 2, "--at 999"),
        (["s-1", "--label", "x"], 2, "wanted: key=value"),
        (["s-1", "--label", "=x"], 2, "wanted: key=value"),
        (["s-1", "--suffix", "a~b"], 1, "the suffix of a fork is 'a~b'"),
        (["s-9"], 4, "no session s-9"),
        (["s-1\udcff"], 2, "an id in UTF-8"),
        ([""], 1, "an empty id"),
    ],
)
def test_what_cannot_be_forked_is_refused(
    log: MemoryPublisher, say: Say, options: list[str], code: int, text: str
) -> None:
    _, err = say("session", "fork", *options, "--purpose", "debug", code=code)
    assert text in err
    assert len(log.log.records(log.topic)) == 8, "nothing was written"


def test_an_id_that_is_there_is_refused_and_a_purpose_is_wanted(log: MemoryPublisher, say: Say) -> None:
    say("session", "fork", "s-1", "--purpose", "retry", "--suffix", "f")
    _, err = say("session", "fork", "s-1", "--purpose", "retry", "--suffix", "f", code=5)
    assert "s-1~f is in the log already" in err
    assert "--purpose" in say("session", "fork", "s-1", code=2)[1]
    assert len(log.events("s-1~f")) == 2


def test_lineage_is_shown_and_listed_both_ways(house: House, say: Say) -> None:
    root = SessionBuilder("s-1", profile="OBSERVED").begin()
    at = len(root.records)
    child = root.fork(at, "a")
    child.append("TurnStarted", turn_id="t")
    grandchild = child.fork(3, "b")
    alone = SessionBuilder("s-2", profile="OBSERVED").begin()
    house.shard([record for each in (root, child, grandchild, alone) for record in each.records])

    def shown(session_id: str) -> tuple[Any, Any]:
        row = json.loads(say("-o", "json", "session", "show", session_id)[0])["session"]
        return row["ancestors"], row["forks"]

    of_root, of_child = {"session": "s-1", "seq": at}, {"session": "s-1~a", "seq": 3}
    assert shown("s-1") == ([], [{"session": "s-1~a", "seq": at}, {"session": "s-1~b", "seq": at}])
    assert shown("s-1~a") == ([of_root], [{"session": "s-1~b", "seq": 3}])
    assert shown("s-1~b") == ([of_child, of_root], [])
    text = say("session", "show", "s-1~b")[0]
    assert f"s-1~a@3, s-1@{at}\n" in text
    assert "forks" not in text.partition("\n\n")[0]
    assert f"s-1~a@{at}, s-1~b@{at}\n" in say("session", "show", "s-1")[0]

    def listed(*options: str) -> list[tuple[str, str, int]]:
        rows = json.loads(say("-o", "json", "session", "list", *options)[0])
        return sorted((row["session"], row["forked_from"], row["forked_at_seq"]) for row in rows)

    assert listed("--forks-of", "s-1") == [("s-1~a", "s-1", at), ("s-1~b", "s-1~a", 3)]
    assert listed("--forks-of", "s-1~a") == [("s-1~b", "s-1~a", 3)]
    assert listed("--forks-of", "s-2") == listed("--forks-of", "s-1", "--status", "FAILED") == []
    assert len(listed("--forks-of", "s-1", "--limit", "1")) == 1
    assert "FORKED-FROM" in say("session", "list", "--forks-of", "s-1")[0]
    assert "no session 's-9'" in say("session", "list", "--forks-of", "s-9", code=4)[1]
