"""`dalsegno session export|verify|amend|tail` and `event publish|show`: what they print, ask and end with."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from hashlib import sha256
from io import BytesIO, TextIOWrapper
from pathlib import Path
from types import SimpleNamespace

import pytest

from dalsegno.cli import common, event, session_amend, session_tail, session_verify
from dalsegno.cli.frame import run
from dalsegno.cli.session_amend import parse_seqs
from dalsegno.cli.session_tail import parse_from
from dalsegno.errors import HistoryRefuted, NotFound, Usage
from dalsegno.log.admin import TopicFacts
from dalsegno.log.publisher import Publisher
from dalsegno.log.record import LogRecord
from dalsegno.readers.proof_records import CUT_MIDDLE, CUT_TAIL, FORGED, STRIPPED, SWAPPED
from dalsegno.readers.tail import From
from dalsegno.testing.builder import SessionBuilder, Written, tombstone
from dalsegno.testing.memory_log import MemoryLog
from history_lab import SESSION, chain
from reader_lab import PREFIX, TOPIC_ID, House
from shard_lab import apply

Say = Callable[..., tuple[str, str]]
TOPIC = f"{PREFIX}.events"


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(partitions=1)


@pytest.fixture
def say(house: House, log: MemoryLog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs a command on the house's shards and on the log in memory; in JSON unless told otherwise."""
    for name in [name for name in os.environ if name.startswith("DALSEGNO_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(house.data.parent)
    for module in (common, session_tail, session_verify):
        monkeypatch.setattr(module, "KafkaTransport", lambda _: log.connect())
    monkeypatch.setattr(session_amend, "Publisher", lambda *_, **__: Publisher(log.connect(), prefix=PREFIX))
    monkeypatch.setattr(event, "_publisher", lambda _: Publisher(log.connect(), prefix=PREFIX))
    for module in (session_amend, event):
        monkeypatch.setattr(module, "shard_source", lambda _: None)
    monkeypatch.setattr(event, "_nearest", lambda *_: None)
    monkeypatch.setattr(common.admin, "topic_facts", lambda *_: TopicFacts(TOPIC_ID, 1, 1))

    def command(*arguments: str, code: int = 0, form: str = "json") -> tuple[str, str]:
        capsys.readouterr()
        at = ["--data", str(house.data), "--prefix", PREFIX, "--bootstrap-servers", "nobody:1", "-o", form]
        found = run([*at, *arguments])
        said = capsys.readouterr()
        assert found == code, said.err
        return said.out, said.err

    return command


def build(house: House, log: MemoryLog, records: list[Written]) -> None:
    """The same records in a shard and in the log."""
    house.shard(records)
    fill(log, records)


def fill(log: MemoryLog, records: list[Written]) -> None:
    for record in records:
        log.put(TOPIC, 0, record.key, record.value)


def replaced(log: MemoryLog, change: Callable[[list[LogRecord]], list[LogRecord]]) -> None:
    part = log.part(TOPIC, 0)
    part.records = change(list(part.records))


# --- export -----------------------------------------------------------------------------------------------------------


def test_records_go_out_to_a_file_that_appears_when_it_is_whole(house: House, say: Say, tmp_path: Path) -> None:
    house.shard(chain().records)
    target = tmp_path / "s-1.jsonl"
    out, err = say("session", "export", "s-", "--output", str(target))
    assert out == ""
    assert "true at p.events:0@12 (slot 0)" in err
    assert target.read_text() == say("session", "export", "last")[0]
    assert not list(tmp_path.glob("*.part"))
    say("session", "export", "last", "--output", "/dev/null")
    say("session", "export", "last", "--output", str(tmp_path / "no" / "folder"), code=1)
    say("session", "export", "another", code=4)


def test_json_lines_are_what_event_publish_reads(house: House, log: MemoryLog, say: Say, tmp_path: Path) -> None:
    builder = SessionBuilder("s-1").begin()
    builder.append("MessageReceived", message_id="m1", role="USER")
    builder.recover()
    builder.append("TurnStarted", turn_id="t")
    gone = builder.append("NoteRecorded", kind="secret")
    house.shard([*builder.records, builder.amend([gone]), tombstone(gone)])
    out, err = say("session", "export", "s-1", "--format", "json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert "left out: 1 SessionRecovered, 1 amended (ERASED)" in err
    assert {frozenset(line) for line in lines} == {frozenset({"type", "session_id", "fields"})}
    file = tmp_path / "again.jsonl"
    file.write_text(out.replace('"s-1"', '"s-2"'))
    (done,) = json.loads(say("event", "publish", str(file))[0])
    assert (done["session_id"], done["events"], done["last_seq"]) == ("s-2", len(lines), len(lines))
    with House(tmp_path / "other") as other:
        other.shard([Written(r.key or b"", r.value, None) for r in log.records(TOPIC)])
        house.data = other.data
        again = say("session", "export", "s-2", "--format", "json")[0]
    assert [json.loads(line)["fields"] for line in again.splitlines()] == [line["fields"] for line in lines]


# --- publish ----------------------------------------------------------------------------------------------------------


def test_a_bad_line_ends_publish_with_its_place(say: Say, tmp_path: Path) -> None:
    file = tmp_path / "e.jsonl"
    created = {"type": "SessionCreated", "session_id": "a", "fields": {"workflow_name": "w", "profile": "OBSERVED"}}
    bad = {"type": "NoteRecorded", "session_id": "a", "fields": {"kind": 7}}
    file.write_text(f"{json.dumps(created)}\n{json.dumps(bad)}\n")
    _, err = say("event", "publish", str(file), code=1)
    assert f"{file}, line 2: NoteRecorded: kind is 7 (int)" in err
    assert "acknowledged: 1 events of a, seq 1 to 1" in err
    say("event", "publish", str(tmp_path / "missing"), code=4)
    say("event", "publish", str(tmp_path), code=1)


def test_a_file_that_cannot_be_read_to_its_end_says_what_was_acknowledged(
    say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = {"type": "SessionCreated", "session_id": "a", "fields": {"workflow_name": "w", "profile": "OBSERVED"}}

    class Torn(BytesIO):
        def __next__(self) -> bytes:
            return self.readline() or self.fail()

        def fail(self) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Torn(json.dumps(created).encode() + b"\n")))
    _, err = say("event", "publish", "-", code=1)
    assert "could not read stdin: Input/output error; acknowledged: 1 events of a, seq 1 to 1" in err
    monkeypatch.setattr(sys, "stdin", None)
    _, err = say("event", "publish", "-", code=2)
    assert "stdin is closed" in err


def test_an_empty_file_is_told(say: Say, tmp_path: Path) -> None:
    file = tmp_path / "e.jsonl"
    file.write_text("\n")
    assert "nothing was published" in say("event", "publish", str(file))[1]
    file.write_text("")
    assert "the file is empty" in say("event", "publish", "--records", str(file), code=1)[1]


def test_lines_come_from_stdin_too(say: Say, log: MemoryLog, monkeypatch: pytest.MonkeyPatch) -> None:
    created = {"type": "SessionCreated", "session_id": "a", "fields": {"workflow_name": "w", "profile": "OBSERVED"}}
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(json.dumps(created).encode())))
    say("event", "publish", "-")
    assert len(log.records(TOPIC)) == 1


def test_records_are_taken_back_and_a_damaged_export_is_not(
    house: House, log: MemoryLog, say: Say, tmp_path: Path
) -> None:
    builder = chain()
    house.shard([*builder.records, builder.amend([builder.records[4]], action="SKIPPED")])
    file = tmp_path / "s-1.jsonl"
    say("session", "export", "s-1", "--output", str(file))
    out, err = say("event", "publish", "--records", str(file))
    assert json.loads(out) == [{"session_id": "s-1", "records": 13, "schemas": 3, "partition": 0, "amendments": 1}]
    assert "1 of the records are amendments" in err
    file.write_bytes(file.read_bytes()[:-10])
    _, err = say("event", "publish", "--records", str(file), code=1)
    assert "line 18" in err
    assert "acknowledged: nothing" in err
    assert len(log.records(TOPIC)) == 13


# --- event show -------------------------------------------------------------------------------------------------------


def test_one_event_is_shown_whole(house: House, say: Say) -> None:
    builder = chain(6)
    rival = builder.branch(5, writer="rival/1/b")
    lost = rival.append("MessageReceived", message_id="r", role="USER")
    builder.append("MessageReceived", message_id="m", role="USER")
    gone = builder.append("NoteRecorded", kind="secret")
    amended = builder.amend([gone])
    house.shard([*builder.records, lost, amended])
    hashes = {name: record.key.decode().rpartition(":")[2] for name, record in
              {"third": builder.records[2], "lost": lost, "amended": amended, "gone": gone}.items()}  # fmt: skip
    shown = json.loads(say("event", "show", "s-", "3")[0])
    assert (shown["hash"], shown["place"], shown["partition"], shown["offset"]) == (hashes["third"], "path", 0, 2)
    assert shown["schema"] == "dalsegno.event.v1.MessageReceived"
    assert shown["event"]["message_id"] == "m2"
    assert len(shown["schema_hash"]) == 64
    for name in (hashes["third"], hashes["third"][:8].upper()):
        assert json.loads(say("event", "show", "s-1", name)[0]) == shown
    assert json.loads(say("event", "show", "s-1", hashes["lost"])[0])["place"] == "superseded"
    control = json.loads(say("event", "show", "s-1", "0")[0])
    assert (control["place"], control["type"], control["hash"]) == ("control", "HistoryAmended", hashes["amended"])
    stub = json.loads(say("event", "show", "s-1", "8")[0])
    assert (stub["stub"], stub["type"], stub["hash"], stub["event"]) == ("ERASED", "NoteRecorded", hashes["gone"], {})
    text, err = say("event", "show", "s-1", "3", form="text")
    assert hashes["third"] in text
    assert "meta.writer" in text
    assert "true at p.events:0@10 (slot 0)" in err
    say("event", "show", "s-1", "9", code=4)
    say("event", "show", "s-1", "f" * 64, code=4)
    say("event", "show", "s-1", "nonsense", code=2)
    say("event", "show", "s-9", "1", code=4)


# --- verify -----------------------------------------------------------------------------------------------------------


def test_a_whole_history_is_proven(house: House, log: MemoryLog, say: Say, tmp_path: Path) -> None:
    build(house, log, chain().records)
    out, err = say("session", "verify", "s-1")
    report = json.loads(out)
    assert (report["verdict"], report["path"], report["doubts"]) == ("proven", 12, [])
    assert report["end_known_by"] == "slot 0, 0@12"
    assert "proven up to seq 12" in err
    say("session", "export", "s-1", "--output", str(tmp_path / "x"))
    assert json.loads(say("session", "verify", "s-1", "--records", str(tmp_path / "x"))[0])["verdict"] == "proven"
    say("session", "verify", "s-9", code=4)
    say("session", "verify", "s-9", "--records", str(tmp_path / "x"), code=4)
    say("session", "verify", "s-1", "--records", str(tmp_path / "y"), code=4)


ATTACKS: dict[str, Callable[[list[LogRecord]], list[LogRecord]]] = {
    CUT_MIDDLE: lambda records: records[:4] + records[6:],
    CUT_TAIL: lambda records: records[:-2],
    SWAPPED: lambda records: [
        *records[:4],
        records[4]._replace(value=records[6].value),
        records[5],
        records[6]._replace(value=records[4].value),
        *records[7:],
    ],
    FORGED: lambda records: [*records[:4], records[4]._replace(value=records[3].value), *records[5:]],
    STRIPPED: lambda records: [record._replace(key=(record.key or b"")[:-64]) for record in records],
}


@pytest.mark.parametrize("kind", list(ATTACKS))
def test_each_attack_is_named_with_exit_code_3(house: House, log: MemoryLog, say: Say, kind: str) -> None:
    build(house, log, chain().records)
    replaced(log, ATTACKS[kind])
    out, err = say("session", "verify", "s-1", code=HistoryRefuted.exit_code)
    report = json.loads(out)
    assert report["verdict"] == "refuted"
    assert kind in {doubt["kind"] for doubt in report["doubts"]}
    assert f"error: session s-1: {kind}" in err
    assert f"{kind}: seq " in err


def test_a_fork_is_proven_with_what_it_takes_over(house: House, log: MemoryLog, say: Say, tmp_path: Path) -> None:
    root = chain()
    build(house, log, [*root.records, *root.fork(6, "f").records])
    out, err = say("session", "verify", "s-1~f")
    assert (json.loads(out)["verdict"], json.loads(out)["goes_on_from"]) == ("proven", ["s-1"])
    assert "proven up to seq 2, with what it takes over from s-1; slot 0 knows no later end" in err
    say("session", "export", "s-1~f", "--output", str(tmp_path / "x"))
    out, err = say("session", "verify", "s-1~f", "--records", str(tmp_path / "x"))
    assert json.loads(out)["goes_on_from"] == []
    assert "what it takes over from s-1 is not in the file: prove that by its own id" in err
    replaced(log, lambda records: [*records[:4], *records[5:]])
    out, err = say("session", "verify", "s-1~f", code=HistoryRefuted.exit_code)
    assert json.loads(out)["doubts"][0]["session"] == "s-1"
    assert f"{CUT_MIDDLE}: s-1: seq 5: seq 5 missing, seq 6 is there" in err
    assert f"error: session s-1~f: {CUT_MIDDLE}" in err


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_an_end_that_was_cut_off_is_seen_however_much_it_was(house: House, log: MemoryLog, say: Say, cut: int) -> None:
    """Also the event that closed the session, and all of it."""
    builder = chain(29)
    builder.append("SessionCompleted", outcome="SUCCESS")
    build(house, log, builder.records)
    replaced(log, lambda records: records[:-cut])
    _, err = say("session", "verify", "s-1", code=3)
    assert f"cut-tail: seq 30: slot 0 knows seq 30, {builder.events[-1].hash.hex()[:12]}" in err
    assert f"the records end at seq {30 - cut}" in err


def test_many_doubts_are_counted_for_people_and_listed_for_programs(house: House, log: MemoryLog, say: Say) -> None:
    build(house, log, chain(50).records)
    replaced(log, ATTACKS[STRIPPED])
    out, err = say("session", "verify", "s-1", code=3, form="text")
    assert "doubts" in out
    assert "... and 30 more" in err
    assert err.count("stripped-hash: seq ") == 20
    assert len(json.loads(say("session", "verify", "s-1", code=3)[0])["doubts"]) == 50


def test_a_change_in_an_export_is_named_with_exit_code_3(house: House, say: Say, tmp_path: Path) -> None:
    house.shard(chain().records)
    file = tmp_path / "x"
    say("session", "export", "s-1", "--output", str(file))
    file.write_bytes(file.read_bytes().replace(b'"offset": 7', b'"offset": 8'))
    _, err = say("session", "verify", "s-1", "--records", str(file), code=HistoryRefuted.exit_code)
    assert "changed-file" in err


def test_what_is_here_says_of_an_export_only_what_it_can_know(house: House, say: Say, tmp_path: Path) -> None:
    shard = house.shard(chain(20).records[:12])
    file = tmp_path / "x"
    say("session", "export", "s-1", "--output", str(file))
    apply(shard, chain(20).records[12:])
    out, err = say("session", "verify", "s-1", "--records", str(file))
    assert "proven up to seq 12; slot 0 knows no other end below offset 12" in err
    *lines, end, _ = file.read_text().splitlines(keepends=True)
    elsewhere = "".join([*lines, end.replace(TOPIC_ID, "cd" * 16)])
    file.write_text(elsewhere + f'{{"sha256": "{sha256(elsewhere.encode()).hexdigest()}"}}\n')
    out, err = say("session", "verify", "s-1", "--records", str(file))
    assert "slot 0 is of another log than the export" in err
    assert err.endswith("proven up to seq 12\n")
    assert json.loads(out)["end_known_by"] is None


def test_without_a_shard_the_end_is_not_known_and_that_is_said(log: MemoryLog, say: Say) -> None:
    fill(log, chain().records[:-2])
    out, err = say("session", "verify", "s-1")
    assert json.loads(out)["end_known_by"] is None
    assert "a cut tail cannot be seen" in err


@pytest.mark.parametrize("command", [("session", "verify"), ("session", "tail")])
def test_an_id_that_is_no_utf_8_is_refused(say: Say, command: tuple[str, ...]) -> None:
    _, err = say(*command, "a\udcff", code=2)
    assert "wanted: an id in UTF-8" in err


# --- amend ------------------------------------------------------------------------------------------------------------


def test_amend_says_the_effect_and_needs_a_terminal_or_yes(
    house: House, log: MemoryLog, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(house, log, chain().records)
    ask = ("session", "amend", "s-1", "--seq", "5-6", "--action", "skipped", "--reason", "written by a bug")
    _, err = say(*ask, code=2)
    assert "seq 5 MessageReceived, 6 MessageReceived" in err
    assert "12 events, not held -> 12 events, not held" in err
    assert "there is no terminal to ask on" in err
    assert len(log.records(TOPIC)) == 12
    asked: list[str] = []
    monkeypatch.setattr(common.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(common.click, "confirm", lambda text, **_: not asked.append(text) and False)
    say(*ask, code=1)
    assert asked == ["Amend 2 events of session s-1?"]
    out, _ = say(*ask, "--yes")
    done = json.loads(out)
    assert [target["seq"] for target in done["targets"]] == [5, 6]
    assert json.loads(say("session", "verify", "s-1")[0])["amendments"] == 1
    _, err = say(*ask, "--yes", code=5)
    assert "is amended there already" in err


def test_a_long_stretch_asks_for_the_sessions_id(
    house: House, log: MemoryLog, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(house, log, chain(40).records)
    asked: list[str] = []
    answers = ["s-2", SESSION]
    monkeypatch.setattr(common.sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(common.click, "prompt", lambda text, **_: asked.append(text) or answers.pop(0))
    ask = ("session", "amend", "s-1", "--seq", "5-30", "--action", "skipped", "--reason", "r")
    say(*ask, code=1)
    say(*ask)
    assert asked == ["Amend 26 events of session s-1? Type s-1 to go on"] * 2


def test_what_cannot_be_amended_says_why(house: House, log: MemoryLog, say: Say) -> None:
    build(house, log, chain().records)
    for seq, action, code in (("13", "skipped", 4), ("5", "lost", 5), ("x", "lost", 2), ("5", "erased", 2)):
        say("session", "amend", "s-1", "--seq", seq, "--action", action, "--reason", "r", "--yes", code=code)
    say("session", "amend", "s-1", "--seq", "5", "--action", "skipped", "--reason", " ", "--yes", code=2)
    say(
        "session",
        "amend",
        "s-9",
        "--seq",
        "5",
        "--action",
        "skipped",
        "--reason",
        "r",
        "--yes",
        code=NotFound.exit_code,
    )
    assert len(log.records(TOPIC)) == 12


def test_seqs_are_one_or_a_stretch() -> None:
    assert (parse_seqs("7"), parse_seqs("7-9")) == ((7, 7), (7, 9))
    for text in ("", "-7", "7-", "7-8-9", "seven"):
        with pytest.raises(Usage):
            parse_seqs(text)


# --- tail -------------------------------------------------------------------------------------------------------------


def seqs(out: str) -> list[int]:
    return [json.loads(line)["seq"] for line in out.splitlines()]


@pytest.mark.parametrize("with_shard", [True, False])
def test_tail_begins_where_it_is_told(house: House, log: MemoryLog, say: Say, with_shard: bool) -> None:
    records = [record for pair in zip(chain(15).records, chain(15, "s-2").records, strict=True) for record in pair]
    if with_shard:
        house.shard(records[:20])
    fill(log, records)
    places = {"beginning": 1, "-3": 13, "-99": 1, "9": 9, "14": 14, "end": 16}
    for place, first in places.items():
        assert seqs(say("session", "tail", "s-1", "--from", place)[0]) == list(range(first, 16)), place
    assert seqs(say("session", "tail", "s-1")[0]) == list(range(6, 16)), "the last ten"
    assert seqs(say("session", "tail", "s-1", "--from", "4", "-c", "2", "-e")[0]) == [4, 5]
    assert len(seqs(say("session", "tail", "--from", "beginning")[0])) == 30
    assert seqs(say("session", "tail", "--from", "-4")[0]) == [14, 14, 15, 15]


def test_tail_shows_what_stands_in_the_log_in_a_line_each(log: MemoryLog, say: Say) -> None:
    records = chain(3).records
    fill(log, [*records, tombstone(records[1]), Written(b"rubbish", b"x", None), records[2]._replace(value=b"x")])
    text, _ = say("session", "tail", "--from", "beginning", form="text")
    lines = text.splitlines()
    assert len(lines) == 6
    assert [line.split()[0] for line in lines] == ["s-1"] * 4 + ["-", "s-1"]
    assert "TOMBSTONE of" in lines[3]
    assert "SET ASIDE BAD_KEY (0@4)" in lines[4]
    assert "SET ASIDE NO_FRAME" in lines[5]
    shown = [json.loads(line) for line in say("session", "tail", "s-1", "--from", "beginning")[0].splitlines()]
    assert [row["seq"] for row in shown] == [1, 2, 3, 2, 3]
    assert shown[0]["event"]["workflow_name"] == "w"
    assert (shown[3]["type"], shown[3]["what"][:9]) == (None, "TOMBSTONE")
    assert say("session", "tail", form="none")[0] == ""


def test_tail_refuses_what_makes_no_sense(log: MemoryLog, say: Say) -> None:
    fill(log, chain(3).records)
    say("session", "tail", "--from", "7", code=2)
    say("session", "tail", "s-1", "--from", "0", code=2)
    say("session", "tail", "s-1", "--from", "s@yesterday", code=2)
    say("session", "tail", "s-1", "-f", "-e", code=2)
    say("session", "tail", "s-9", code=4)
    _, err = say("session", "tail", "s-1", "--from", "4", code=4)
    assert "no record of session s-1 from seq 4 on" in err
    assert say("session", "tail", "s-9", "--from", "end")[0] == ""


def test_places_to_begin_at() -> None:
    assert parse_from("-7") == From("last", 7)
    assert parse_from("7") == From("seq", 7)
    assert parse_from("s@2026-01-01T00:00:00Z") == From("time", 1_767_225_600_000)
    assert parse_from("end") == From("end")


def test_following_goes_on_with_what_comes(log: MemoryLog, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    records = chain(6).records
    fill(log, records[:3])

    class Follower:
        """What Kafka's does, on the log in memory."""

        def __init__(self, _: object, __: str, starts: dict[int, int]) -> None:
            self.at = dict(starts)
            self.left = list(records[3:])

        def __enter__(self) -> Follower:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def poll(self, _: float) -> list[tuple[int, LogRecord]]:
            if not self.left:
                raise KeyboardInterrupt
            fill(log, [self.left.pop(0)])
            (record,) = [record for record in log.records(TOPIC) if record.offset >= self.at[0]]
            self.at[0] = record.offset + 1
            return [(0, record)]

    monkeypatch.setattr(session_tail, "Follower", Follower)
    out, err = say("session", "tail", "s-1", "--from", "-1", "--follow", code=130)
    assert seqs(out) == [3, 4, 5, 6]
    assert "interrupted" in err
