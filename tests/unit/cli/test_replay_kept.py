"""`dalsegno replay list` and `replay show` of recorded replays of sessions."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from dalsegno.cli import replay_topic
from dalsegno.replay.divergence import Divergence, FieldDifference
from dalsegno.replay.modes import MODES
from dalsegno.replay.replayed import Replayed
from dalsegno.replay.session_records import Told, records_of
from dalsegno.replay.strategy import Strategy

Say = Callable[..., tuple[str, str]]


@pytest.fixture(autouse=True)
def topic(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, bytes]:
    """Three replays: one with two differences and an inexact result, one that ended alike, one that only began; and a
    record that nobody can read."""
    fields = (FieldDifference("/decision", "ALLOW", "DENY"),)
    two = [Divergence(seq, "PolicyEvaluated", "D", "CODE", f"c{seq}", fields, None, ()) for seq in (4, 9)]
    result = Replayed(
        "s-1", "full", "", verdict="DIVERGED", events=20, compared=9, equal=7, diverged=2, divergences=two,
        inexact=[(11, "the calls with effects before it are others")],
    )  # fmt: skip
    strategy = Strategy()
    records = [
        *records_of(Told("r-1", strategy, "maria", 1_000_000, 2_000_000, start=3), result),
        *records_of(Told("r-2", strategy, "maria", 3_000_000, 4_000_000), Replayed("s-2", "full", "", verdict="EQUAL")),
        *list(records_of(Told("x-3", strategy, "maria", 2_000_000, 4_000_000), Replayed("s-3", "full", "")))[:1],
        ("damaged:started:0", b"\x00"),
    ]
    table = {key.encode(): value for key, value in records if value is not None}
    monkeypatch.setattr(replay_topic, "read_compacted", lambda *_: table)
    monkeypatch.setenv("DALSEGNO_KAFKA__BOOTSTRAP_SERVERS", "nobody:1")
    return table


@pytest.fixture
def told(say: Say, monkeypatch: pytest.MonkeyPatch) -> Say:
    monkeypatch.setenv("DALSEGNO_KAFKA__BOOTSTRAP_SERVERS", "nobody:1")
    return say


def test_recorded_replays_are_listed_newest_first(told: Say) -> None:
    found = json.loads(told("-o", "json", "replay", "list")[0])
    assert [(each["id"], each["state"], each["from"], each["records"], each["reason"]) for each in found] == [
        ("r-2", "EQUAL", "session:s-2@1", 0, "full"),
        ("x-3", "STARTED", "session:s-3@1", 0, "full"),
        ("r-1", "DIVERGED", "session:s-1@3", 20, "full"),
    ]


def test_what_differed_and_what_was_served_inexactly_is_shown(told: Say) -> None:
    found = json.loads(told("-o", "json", "replay", "show", "r-1")[0])
    assert (found["state"], found["compared"], found["diverged"], found["error"]) == ("DIVERGED", 9, 2, None)
    assert [(each["number"], each["seq"], each["kind"], each["aspect"]) for each in found["differences"]] == [
        (1, 4, "CODE", "/decision"),
        (2, 9, "CODE", "/decision"),
        (3, 11, "ORDER", "served inexactly: the calls with effects before it are others"),
    ]
    assert (found["compression"], found["actions"]["compressions"]) == ("RECORDED", MODES["full"]["compressions"])
    assert "served inexactly" in told("replay", "show", "r-1")[0]
    assert "no replay nothing" in told("replay", "show", "nothing", code=4)[1]
    assert "begins 2 ids" in told("replay", "show", "r-", code=2)[1]
