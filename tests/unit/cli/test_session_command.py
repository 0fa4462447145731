"""`dalsegno session`: every event type, hostile text, every form of output, held, erased and forked sessions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dalsegno.cli.frame import run
from dalsegno.cli.times import moment
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.readers import local
from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import find_session, steps
from dalsegno.snapshots.catalog import TopicIdentity
from dalsegno.testing.builder import SessionBuilder, Written, blob, tombstone, write
from log_samples import toy, writer_of
from reader_lab import PREFIX, TOPIC_ID, House

Say = Callable[..., tuple[str, str]]


def message(builder: SessionBuilder, text: str, **fields: Any) -> Written:
    part = {"kind": "TEXT", "text": text}
    return builder.append("MessageReceived", message_id=f"m{len(builder.records)}", role="USER", parts=[part], **fields)


# --- show -------------------------------------------------------------------------------------------------------------


def test_every_type_of_the_catalogue_is_shown(house: House, say: Say) -> None:
    """Whatever the rules say of such a session: each event is on the path."""
    builder = SessionBuilder("s-1", profile="OBSERVED").begin()
    for name in CATALOGUE:
        if name not in ("HistoryAmended", "SessionForked"):
            builder.append(name)
    fork = builder.fork(3, "f")
    control = builder.amend([], request_id="r")
    house.shard([*builder.records, *fork.records, control])
    text, _ = say("session", "show", "s-1", "--detailed")
    shown = json.loads(say("-o", "json", "session", "show", "s-1")[0])["events"]
    forked = json.loads(say("-o", "json", "session", "show", "s-1~f")[0])["events"]
    types = {event["type"] for event in [*shown, *forked]}
    assert types == set(CATALOGUE) - {"HistoryAmended"}
    assert all(name in text for name in set(CATALOGUE) - {"HistoryAmended", "SessionForked"})
    assert [event["seq"] for event in shown] == list(range(1, len(builder.records) + 1))
    for name, info in CATALOGUE.items():
        event = next((event for event in [*shown, *forked] if event["type"] == name), None)
        if event is not None:
            assert set(info.fields) <= set(event["event"]), name


HOSTILE = "\x1b[31mred\x1b]0;title\x07 \x00 \u202eevil\u2066 \u200bzero \x9b31m \U000e0041tag\u2028line"
HARMLESS = r"\u001b[31mred\u001b]0;title\u0007 \u0000 \u202eevil\u2066 \u200bzero \u009b31m \U000e0041tag\u2028line"
ACTING = ["\x1b", "\x07", "\x00", "\u202e", "\u2066", "\u200b", "\x9b", "\U000e0041", "\u2028"]


def test_hostile_text_is_made_visible(house: House, say: Say) -> None:
    # case C65: odd text is shown, listed and passed on, and breaks nothing
    hostile_id = "s-\u202e-1"
    builder = SessionBuilder(hostile_id, profile="OBSERVED")
    builder.append("SessionCreated", profile="OBSERVED", workflow_name=HOSTILE)
    message(builder, HOSTILE)
    builder.append("NoteRecorded", kind=HOSTILE[:40])
    house.shard(builder.records)
    for arguments in (["list"], ["show", hostile_id], ["show", hostile_id, "--detailed"], ["show", HOSTILE]):
        for form in ("text", "json", "jsonl"):
            out, err = say("-o", form, "session", *arguments, code=4 if HOSTILE in arguments else 0)
            assert [mark for mark in ACTING if mark in out + err] == [], (form, arguments)
    assert HARMLESS in say("session", "show", hostile_id)[0]
    shown = json.loads(say("-o", "json", "session", "show", hostile_id)[0])
    assert shown["session"]["workflow_name"] == HOSTILE
    assert shown["events"][1]["event"]["parts"][0]["text"] == HOSTILE


def test_notes_show_how_their_text_begins(house: House, say: Say) -> None:
    builder = SessionBuilder("s-1").begin()
    first = len(builder.records)
    contents = [b"read the plan", "übrig:\n  zwei".encode(), HOSTILE[:8].encode(), b"x" * 500, b"\xff\xfe"]
    for content in contents:
        builder.append("NoteRecorded", kind="step", data=blob(content))
    builder.append("NoteRecorded", kind="step", data={**blob(b"elsewhere"), "uri": "blob:1", "inline": None})
    builder.append("NoteRecorded", kind="step")
    house.shard(builder.records)
    lines = say("session", "show", "s-1")[0].partition("\n\n")[2].splitlines()[first:]
    assert [line.partition("NoteRecorded")[2].strip() for line in lines] == [
        "step  data=read the plan",
        "step  data=übrig: zwei",
        r"step  data=\u001b[31mred",
        f"step  data={'x' * 84}…",
        *["step"] * 3,
    ]


def test_each_thing_stands_once_in_a_line(house: House, say: Say) -> None:
    builder = SessionBuilder("s-1").begin()
    reason = "because it was asked for, and because of all that was asked before"
    first = len(builder.records)
    builder.append("NoteRecorded", kind="step")
    builder.append("TurnStarted", turn_id="t" * 40)
    builder.append("SessionPaused", reason=reason)
    builder.append("SessionResumed", by_limit=False)
    builder.append("TurnCompleted", turn_id="t" * 40)
    builder.append("SessionCompleted", outcome="SUCCESS")
    house.shard(builder.records)
    lines = say("session", "show", "s-1")[0].partition("\n\n")[2].splitlines()[first:]
    assert [line[33:].split(maxsplit=1)[1:] for line in lines] == [
        ["step"],
        ["t" * 29 + "…"],
        [f"{reason}  by_limit=False"],
        ["by_limit=False"],
        ["t" * 29 + "…"],
        ["SUCCESS"],
    ]


def test_every_form_of_output_says_the_same(house: House, say: Say) -> None:
    builder = SessionBuilder("s-1").begin()
    house.shard(builder.records)
    document = json.loads(say("-o", "json", "session", "show", "s-1")[0])
    lines = [json.loads(line) for line in say("-o", "jsonl", "session", "show", "s-1")[0].splitlines()]
    assert lines == [{"session": document["session"], "amendments": [], "superseded": []}, *document["events"]]
    assert say("-o", "none", "session", "show", "s-1")[0] == ""
    text, err = say("session", "show", "s-1")
    assert len(text.partition("\n\n")[2].splitlines()) == len(builder.records)
    assert f"true at p.events:0@{len(builder.records)} (slot 0)" in err
    assert document["session"]["position"] == f"0@{len(builder.records)}"
    backwards = json.loads(say("-o", "json", "session", "show", "s-1", "--reverse")[0])
    assert backwards["events"] == document["events"][::-1]
    listed = json.loads(say("-o", "json", "session", "list")[0])
    assert [json.loads(line) for line in say("-o", "jsonl", "session", "list")[0].splitlines()] == listed
    assert [row["session"] for row in listed] == ["s-1"]
    assert say("-o", "none", "session", "list")[0] == ""


def test_sessions_are_listed_by_workflow_and_labels(house: House, say: Say) -> None:
    def label(key: str, value: str) -> dict[str, str]:
        return {"key": key, "value": value}

    records, forks = list[Written](), list[Written]()
    for name, workflow, labels in (
        ("a", "triage", [label("team", "support"), label("shift", "day")]),
        ("b", "triage", [label("team", "sales")]),
        ("c", "coding", [label("team", "support")]),
    ):
        builder = SessionBuilder(name, profile="OBSERVED")
        builder.append("SessionCreated", profile="OBSERVED", workflow_name=workflow, labels=labels)
        records += builder.records
        forks += builder.fork(1, "f").records
    house.shard([*records, *forks])

    def listed(*options: str) -> set[str]:
        return {row["session"] for row in json.loads(say("-o", "json", "session", "list", *options)[0])}

    assert listed("--workflow", "triage") == {"a", "b"}
    assert listed("--label", "team=support") == {"a", "c"}
    assert listed("--label", "team=support", "--label", "shift=day") == {"a"}
    assert listed("--label", "team=support", "--workflow", "coding", "--limit", "1") == {"c"}
    assert listed("--label", "team=support", "--has", "held") == set()
    assert listed("--forks-of", "a", "--workflow", "demo") == {"a~f"}
    assert listed("--forks-of", "a", "--workflow", "triage") == set()
    say("session", "list", "--label", "team", code=2)


def test_a_session_is_found_by_a_beginning_and_as_the_last(house: House, say: Say) -> None:
    early, late = SessionBuilder("abc-1").begin(), SessionBuilder("abd-2").begin()
    message(late, "later")
    house.shard([*early.records, *late.records])
    assert "abc-1" in say("session", "show", "abc")[0]
    assert "abd-2" in say("session", "show", "last")[0]
    _, err = say("session", "show", "ab", code=2)
    assert "abc-1, abd-2" in err
    _, err = say("session", "show", "zz", code=4)
    assert "no session 'zz'" in err
    assert "dalsegno session list" in err
    say("session", "show", "", code=4)
    say("session", "show", "\udcff", code=4)


def test_an_id_that_begins_another_is_found_itself(house: House, say: Say) -> None:
    # case C64
    ids = ["a", "a:1", "a:1:2", ":", "a:"]
    builders = [SessionBuilder(name).begin() for name in ids]
    for builder in builders:
        for _ in range(12 - len(builder.records)):
            message(builder, f"of {builder.session_id}")
    victim = builders[0].records[11]
    gone = builders[0].amend(whole_session=True, request_id="r")
    records = [record for builder in builders for record in builder.records]
    house.shard([*records, gone, *(tombstone(record) for record in builders[0].records)])
    assert victim.event is not None
    for name in ids[1:]:
        shown = json.loads(say("-o", "json", "session", "show", name)[0])
        assert shown["session"]["session"] == name
        assert [event["seq"] for event in shown["events"]] == list(range(1, 13))
    erased = json.loads(say("-o", "json", "session", "show", "a")[0])
    assert erased["events"] == []
    assert erased["session"]["held_reason"] == "ERASED"
    assert len(json.loads(say("-o", "json", "session", "list")[0])) == 5


def test_held_sessions_say_why_and_where(house: House, say: Say) -> None:
    builder = SessionBuilder("s-gap").begin()
    message(builder, "one")
    message(builder, "two")
    house.shard([*builder.records[:-2], builder.records[-1]])
    gap = len(builder.records) - 1
    text, _ = say("session", "show", "s-gap")
    assert text.splitlines()[-1] == f"HELD at seq {gap}: GAP"
    (row,) = json.loads(say("-o", "json", "session", "list", "--has", "held")[0])
    assert row["held"] == f"GAP at {gap}"
    assert json.loads(say("-o", "json", "session", "list", "--has", "fork")[0]) == []


def test_stubs_violations_and_findings_are_marked(house: House, say: Say) -> None:
    builder = SessionBuilder("s-1").begin()
    victim = message(builder, "secret words")
    builder.append("TurnCompleted", turn_id="never-begun")
    message(builder, "after")
    loose = SessionBuilder("s-2", profile="OBSERVED").begin()
    loose.append("TurnCompleted", turn_id="never-begun")
    house.shard([*builder.records, builder.amend([victim]), tombstone(victim), *loose.records])
    text, err = say("session", "show", "s-1")
    assert "P2: what goes on with an operation, or ends it, finds it open" in err.splitlines()
    lines = {int(line.split()[0]): line for line in text.partition("\n\n")[2].splitlines()}
    assert victim.event is not None
    assert lines[victim.event.seq].endswith("[erased]")
    assert "MessageReceived" in lines[victim.event.seq]
    assert "secret words" not in say("session", "show", "s-1", "--detailed")[0]
    # Behind a stub a broken rule cannot be judged: it is a finding.
    assert "finding" in lines[victim.event.seq + 1]
    shown = json.loads(say("-o", "json", "session", "show", "s-2")[0])["events"]
    broken = next(event for event in shown if event["type"] == "TurnCompleted")
    assert broken["findings"] or broken["violations"]
    untouched = SessionBuilder("s-3").begin()
    untouched.append("TurnCompleted", turn_id="never-begun")
    house.shard(untouched.records, slot=1)


def at(hour: int, record: Written) -> Written:
    """The same event at another time."""
    assert record.event is not None
    micros = hour * 3_600_000_000
    fields = {name: value for name, value in record.event.body.items() if name != "meta"}
    return write(record.event.type, {**record.event.meta, "recorded_at": micros, "occurred_at": micros}, fields)


def test_the_time_of_a_line_is_the_one_by_which_a_time_finds_the_event(house: House, say: Say) -> None:
    """A producer says of late things when they happened: in the column times would run backwards."""
    hour = 3_600_000_000
    builder = SessionBuilder("s-1", profile="OBSERVED")
    builder.append("SessionCreated", profile="OBSERVED", meta={"recorded_at": 2 * hour, "occurred_at": 2 * hour})
    builder.append("NoteRecorded", kind="late", meta={"recorded_at": 3 * hour, "occurred_at": hour})
    builder.append("NoteRecorded", kind="none", meta={"recorded_at": 4 * hour, "occurred_at": None})
    house.shard(builder.records)
    lines = say("session", "show", "s-1")[0].partition("\n\n")[2].splitlines()
    times = [line.split()[1] for line in lines]
    assert times == [f"1970-01-01T0{each}:00:00.000" for each in (2, 3, 4)]
    for seq, shown in enumerate(times, 1):
        _, err = say("session", "show", "s-1", "--at", f"{shown}Z")
        assert f"seq {seq}, the last event before" in err
    assert f'"occurred_at": {hour}' in say("session", "show", "s-1", "--detailed")[0]


def test_amendments_say_what_was_amended_by_whom_when_and_why(house: House, say: Say) -> None:
    builder = SessionBuilder("s-1").begin()
    victims = [message(builder, f"secret {number}") for number in range(12)]
    first = at(1, builder.amend(victims[:1], action="SKIPPED"))
    second = at(2, builder.amend(victims, request_id="request-2"))
    whole = SessionBuilder("s-2").begin()
    gone = whole.amend(whole_session=True)
    untouched = SessionBuilder("s-3").begin()
    removed = [tombstone(victim) for victim in victims]
    house.shard([*builder.records, second, first, *removed, *whole.records, gone, *untouched.records])
    assert victims[0].event is not None
    seq = victims[0].event.seq
    some = ", ".join(str(seq + number) for number in range(8))
    text, _ = say("session", "show", "s-1")
    assert text.partition("\n\n")[2].splitlines()[:2] == [
        f"     0  1970-01-01T01:00:00.000  HistoryAmended          SKIPPED seq {seq}  asked  "
        "by HARNESS builder, request request-1",
        f"     0  1970-01-01T02:00:00.000  HistoryAmended          ERASED seq {some} and 4 more  asked  "
        "by HARNESS builder, request request-2",
    ]
    assert second.key < first.key, "the order of time is not that of the keys"
    assert "secret" not in say("session", "show", "s-1", "--detailed")[0]
    shown = json.loads(say("-o", "json", "session", "show", "s-1")[0])["amendments"]
    assert [event["event"]["request_id"] for event in shown] == ["request-1", "request-2"]
    assert [target["seq"] for target in shown[0]["event"]["targets"]] == [seq]
    assert "ERASED the whole session" in say("session", "show", "s-2")[0]
    assert json.loads(say("-o", "json", "session", "show", "s-3")[0])["amendments"] == []


def test_violations_are_words_and_red_only_where_wanted(
    house: House, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = SessionBuilder("s-1").begin()
    builder.append("TurnCompleted", turn_id="never-begun")
    assert builder.verdicts[-1].violations
    house.shard(builder.records)
    rule = builder.verdicts[-1].violations[0]
    for options, red in (([], False), (["--color", "never"], False), (["--color", "always"], True)):
        text, _ = say(*options, "session", "show", "s-1")
        assert f"VIOLATION {rule}" in text
        assert ("\x1b[31m" in text) == red, options
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" in say("--color", "always", "session", "show", "s-1")[0]
    assert "\x1b[" not in say("session", "show", "s-1")[0]


def test_records_that_lost_their_place_are_named(house: House, say: Say) -> None:
    # case C1: what a rival writer claimed to have done stays to be seen
    builder = SessionBuilder("s-1").begin()
    message(builder, "by the first writer")
    rival = builder.branch(len(builder.records) - 1, writer="rival/1/b")
    rival.recover()
    lost = builder.records[-1].event
    assert lost is not None
    house.shard([*builder.records, rival.records[-1]])
    (found,) = json.loads(say("-o", "json", "session", "show", "s-1")[0])["superseded"]
    assert (found["seq"], found["hash"], found["type"]) == (lost.seq, lost.hash.hex(), "MessageReceived")
    assert found["on_path"] == rival.records[-1].event.hash.hex()  # type: ignore[union-attr]
    text, _ = say("session", "show", "s-1", "--detailed")
    assert f"SUPERSEDED MessageReceived {lost.hash.hex()[:12]}" in text
    assert "by the first writer" in text


def test_a_fork_shows_where_it_comes_from_and_inherits(house: House, say: Say) -> None:
    builder = SessionBuilder("s-1").begin()
    fork = builder.fork(len(builder.records), "f")
    message(fork, "what if")
    assert not any(verdict.violations for verdict in fork.verdicts)
    house.shard([*builder.records, *fork.records])
    shown = json.loads(say("-o", "json", "session", "show", "s-1~f")[0])
    assert shown["session"]["forked_from"] == "s-1"
    assert [event["violations"] for event in shown["events"]] == [[], [], []]
    assert [row["session"] for row in json.loads(say("-o", "json", "session", "list", "--has", "fork")[0])] == ["s-1~f"]


def test_events_of_a_schema_that_only_the_log_has_are_read_with_it(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = writer_of(toy(1, {"name": "x", "type": "string"}, name="FromElsewhere"))
    knowing = SchemaSet.load()
    knowing.add(foreign.json)
    builder = SessionBuilder("s-1").begin()
    tip = builder.tip
    assert tip is not None
    strange = write(foreign, builder.envelope(tip.seq + 1, tip.hash, "FromElsewhere") | {"ignorable": True}, {})
    house.shard([*builder.records, strange], schemas=knowing)
    asked = []

    def learn(reader: LocalReader) -> int:
        asked.append(reader)
        reader._schemas.add(foreign.json)
        return 1

    monkeypatch.setattr(LocalReader, "learn_schemas", learn)
    reader = house.reader()
    seen = [step.event for step in steps(reader, find_session(reader, "s-1"))]
    assert [event.seq for event in seen] == list(range(1, tip.seq + 2))
    assert (seen[-1].type, seen[-1].known, len(asked)) == ("FromElsewhere", False, 1)


def test_what_does_not_fit_into_a_date_is_shown_as_a_number() -> None:
    assert moment(None) is None
    assert moment(0) == "1970-01-01T00:00:00.000000Z"
    assert moment(-1) == "1969-12-31T23:59:59.999999Z"
    assert moment(1 << 62) == f"{1 << 62} µs"


def test_an_answer_says_which_partitions_are_from_snapshots_or_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LocalReader, "_identity", lambda _: TopicIdentity("c", TOPIC_ID, 3))
    monkeypatch.setenv("DALSEGNO_KAFKA__BOOTSTRAP_SERVERS", "nowhere:1")
    with House(tmp_path, partitions=3) as house:
        monkeypatch.setattr(local, "read_catalog", lambda *_: house.catalog)
        house.shard(partition=0)
        with House(tmp_path / "elsewhere", partitions=3) as other:
            house.snapshot(other.shard(partition=2))
        command = ["--data", str(house.data), "--prefix", PREFIX, "session", "list"]
        monkeypatch.setenv("DALSEGNO_STORE", str(house.store_folder))
        assert run(command) == 0
        err = capsys.readouterr().err
    assert "true at p.events:0@0,2@0" in err
    assert "partitions 2 are not here: answered from their newest snapshots" in err
    assert "partitions 1 are neither here nor in a snapshot" in err


# --- much of it -------------------------------------------------------------------------------------------------------


def test_a_long_session_is_streamed(house: House) -> None:
    builder = SessionBuilder("s-long", profile="OBSERVED").begin()
    text = "x" * 2_000
    for _ in range(3_000):
        message(builder, text)
    house.shard(builder.records)
    reader = house.reader()
    found = find_session(reader, "s-long")
    tracemalloc.start()
    try:
        count = sum(1 for _ in steps(reader, found))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == len(builder.records)
    assert peak < 3_000 * 2_000 / 2, "the texts are not kept"


@pytest.mark.parametrize("form", ["text", "json", "jsonl"])
def test_a_reader_that_has_seen_enough_is_no_failure(house: House, form: str) -> None:
    builder = SessionBuilder("s-long", profile="OBSERVED").begin()
    for _ in range(1_500):
        message(builder, "x" * 200)
    house.shard(builder.records)
    command = [sys.executable, "-c", "from dalsegno.cli import main; main()", "--data", str(house.data),
               "--prefix", PREFIX, "-o", form, "session", "show", "s-long", "--detailed"]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DALSEGNO_")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    err = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(60) == 0, err
    assert "Traceback" not in err
    assert "Broken" not in err
