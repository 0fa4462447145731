"""What holds of every format: the same suite over every shared recording whose importer is there."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from random import Random
from typing import TypeAlias

import pytest

from dalsegno.errors import BadInputFile, DalsegnoError, ImportConflict
from dalsegno.importers.registry import IMPORTERS
from dalsegno.importers.run import ImportOutcome, import_file
from dalsegno.log.publisher import Publisher
from dalsegno.model.lifecycle import MemoryOps, SessionState, judge
from dalsegno.projections.registry import installed
from dalsegno.state.rocks import RocksStore
from dalsegno.storage.object_store import FolderStore
from dalsegno.testing.memory_log import MemoryLog
from recordings import (
    GROWING,
    TEXT,
    Recording,
    each_recording,
    events_of,
    importer_of,
    read,
    recordings,
    records_of,
    report_of,
    sessions_of,
    written_of,
)
from shard_lab import Lab, apply, apply_in_batches, folded

every_recording = pytest.mark.parametrize("recording", each_recording())
every_text = pytest.mark.parametrize("recording", each_recording(*TEXT))
every_growing_recording = pytest.mark.parametrize("recording", each_recording(GROWING))
tenths = pytest.mark.parametrize("tenth", range(10))
_ZONE = re.compile(r'("(?:timestamp|eventTime)": ?"[0-9T:.-]+)(?:Z|[+-][0-9]{2}:[0-9]{2})(?=")')
Refusals: TypeAlias = tuple[type[DalsegnoError], ...]


class Imports:
    """A log in memory and what is imported into it."""

    def __init__(self, folder: Path) -> None:
        self.log = MemoryLog(partitions=4)
        self.store = FolderStore(folder / "store")

    def run(self, recording: Recording, path: Path | None = None, *, dry_run: bool = False) -> ImportOutcome:
        importer = importer_of(recording)
        with Publisher(self.log.connect(), prefix="t") as publisher:
            return import_file(publisher, importer, path or recording.path, store=self.store, dry_run=dry_run)

    def refused(self, recording: Recording, path: Path, errors: Refusals = (BadInputFile,)) -> ImportOutcome | None:
        """None where the file is refused, which names it and leaves the log as it was."""
        before = self.keys()
        try:
            return self.run(recording, path)
        except errors as error:
            told = error
        assert str(path) in str(told)
        assert told.todo
        assert self.keys() == before
        return None

    def keys(self) -> list[bytes]:
        return [record.key for record in self.log.records("t.events") if record.key]


@pytest.fixture
def imports(tmp_path: Path) -> Imports:
    return Imports(tmp_path)


@every_recording
def test_the_same_file_twice_gives_the_same_bytes(recording: Recording, tmp_path: Path) -> None:
    copy = tmp_path / recording.path.name
    copy.write_bytes(recording.path.read_bytes())
    first, second = records_of(sessions_of(recording)), records_of(read(recording, copy)[0])
    assert first
    assert first == second
    ids = [session.session_id for session in sessions_of(recording)]
    assert len(set(ids)) == len(ids)
    assert all(id_.startswith(f"{IMPORTERS[recording.format]().id}:") for id_ in ids)


@every_recording
def test_no_event_breaks_a_rule_of_its_profile(recording: Recording) -> None:
    for events in events_of(recording):
        assert events[0].body["profile"] == "IMPORTED"
        session, ops = SessionState(), MemoryOps()
        verdicts = [judge(session, ops, event) for event in events]
        broken = [(event.seq, event.type, v.violations) for event, v in zip(events, verdicts, strict=True)]
        assert [each for each in broken if each[2]] == []


@every_recording
def test_causes_stand_before_what_they_caused(recording: Recording) -> None:
    for events in events_of(recording):
        seen: set[str] = set()
        for event in events:
            assert event.meta["causation_id"] is None or event.meta["causation_id"] in seen
            assert event.meta["event_id"] not in seen
            seen.add(event.meta["event_id"])
        times = [event.meta["recorded_at"] for event in events]
        assert times == sorted(times)


@every_recording
def test_a_call_that_an_answer_asks_for_is_recorded_and_not_concluded(recording: Recording) -> None:
    for events in events_of(recording):
        answers = [event.body for event in events if event.type == "InferenceCompleted"]
        asked = {call["tool_call_id"]: body["inference_id"] for body in answers for call in body["tool_calls"]}
        for event in events:
            if event.type == "ToolCallRequested":
                assert event.body["inference_id"] == asked.get(event.body["tool_call_id"])
                assert not (event.body["inference_id"] and event.meta["origin"]["synthesized"])


@every_recording
def test_every_record_is_accounted_for(recording: Recording) -> None:
    report = report_of(recording)
    parts = ("records_mapped", "records_kept_as_notes", "records_repeated", "records_skipped", "records_waiting")
    assert report["records_read"] == sum(report[part] for part in parts) > 0
    made = Counter(event.type for events in events_of(recording) for event in events)
    assert report["events"] == dict(sorted(made.items()))
    assert report["replay_modes"]["projection-only"] == "yes"


@every_recording
def test_all_projections_agree_live_from_zero_and_from_a_snapshot(recording: Recording, tmp_path: Path) -> None:
    projections = list(installed().values())
    records = list(written_of(sessions_of(recording)))
    zero = folded(records, projections=projections).digests()
    assert set(zero) >= {projection.name for projection in projections}
    lab = Lab()
    live = apply_in_batches(lab, lab.open(projections), records, Random(recording.name), reopen=False)
    assert live.digests() == zero
    disk = Lab(tmp_path / "shard")
    shard = disk.open(projections)
    apply(shard, records[: len(records) // 2])
    shard.kv.checkpoint(tmp_path / "snapshot")
    shard.close()
    restored = Lab(tmp_path / "snapshot").open(projections)
    apply(restored, records[len(records) // 2 :])
    assert restored.digests() == zero
    assert isinstance(restored.kv, RocksStore)
    restored.close()


@every_recording
def test_a_second_import_adds_nothing_and_a_dry_run_says_what_the_first_would(
    recording: Recording, imports: Imports
) -> None:
    planned = imports.run(recording, dry_run=True).as_data()
    assert imports.keys() == []
    first = imports.run(recording)
    assert first.appended == planned["missing"] == len(records_of(sessions_of(recording)))
    before = imports.keys()
    second = imports.run(recording).as_data()
    assert (second["same"], second["appended"]) == (second["sessions"], 0)
    assert imports.keys() == before


@every_recording
@tenths
def test_a_file_cut_at_ten_places(recording: Recording, tenth: int, imports: Imports, tmp_path: Path) -> None:
    # case C46
    data = recording.path.read_bytes()
    cut = len(data) * tenth // 10 + (3 if tenth else 0)
    path = tmp_path / f"cut{recording.path.suffix}"
    path.write_bytes(data[:cut])
    lines = data[:cut].split(b"\n")
    if recording.path.suffix == GROWING and len(lines) > 1:
        outcome = imports.run(recording, path)
        start = cut - len(lines[-1])
        assert any(f"line {len(lines)} " in w and f"from byte {start} " in w for w in outcome.report.warnings)
        ended = IMPORTERS[recording.format](ended=True)
        with pytest.raises(BadInputFile, match=f"line {len(lines)}"):
            list(ended.read(path, ended.report()))
        assert imports.run(recording).appended > 0, "the rest of the file that grew"
        assert sorted(imports.keys()) == sorted(r.key.encode() for r in records_of(sessions_of(recording)))
        return
    assert imports.refused(recording, path) is None


@every_growing_recording
def test_a_file_that_grows_line_by_line(recording: Recording, tmp_path: Path) -> None:
    """At every line end: what the shorter file gives is a prefix of what the longer one gives, session by session."""
    whole = {session.session_id: records_of([session]) for session in sessions_of(recording)}
    lines = recording.path.read_bytes().splitlines(keepends=True)
    path = tmp_path / recording.path.name
    known: dict[str, int] = {}
    for count in range(1, len(lines) + 1):
        path.write_bytes(b"".join(lines[:count]))
        try:
            sessions = read(recording, path)[0]
        except BadInputFile:
            assert not known, "a longer file is refused where a shorter one was taken"
            continue
        found = {session.session_id: records_of([session]) for session in sessions}
        assert all(records == whole[session_id][: len(records)] for session_id, records in found.items())
        grown = {session_id: len(records) for session_id, records in found.items()}
        assert all(grown[session_id] >= length for session_id, length in known.items())
        known = grown
    assert known == {session_id: len(records) for session_id, records in whole.items()}


@pytest.mark.parametrize(
    "recording",
    [each for each in each_recording(*TEXT) if each.marks or _ZONE.search(each.values[0].path.read_text("utf-8"))],
)
def test_times_without_a_zone_are_counted_and_said(recording: Recording, tmp_path: Path) -> None:
    text = recording.path.read_text("utf-8")
    path = tmp_path / recording.path.name
    path.write_text(_ZONE.sub(r"\1", text), "utf-8")
    report = read(recording, path)[1]
    assert report.not_carried["time zone (taken as UTC)"] > 0
    assert any("times are without a zone; they are taken as UTC" in warning for warning in report.warnings)
    assert not report_of(recording)["not_carried"].get("time zone (taken as UTC)")


@every_text
@tenths
def test_one_byte_that_is_no_text(recording: Recording, tenth: int, imports: Imports, tmp_path: Path) -> None:
    # case C46
    data = bytearray(recording.path.read_bytes())
    at = len(data) * tenth // 10 + 1
    data[at] = 0xFF
    path = tmp_path / f"changed{recording.path.suffix}"
    path.write_bytes(data)
    last_line_torn = recording.path.suffix == GROWING and b"\n" not in data[at:]
    if last_line_torn:
        assert imports.run(recording, path).report.warnings
        return
    with pytest.raises(BadInputFile) as refused:
        imports.run(recording, path)
    assert str(path) in str(refused.value)
    assert f"line {data[:at].count(10) + 1}" in str(refused.value)
    assert imports.keys() == []


@every_text
@tenths
def test_one_byte_that_is_another_letter(recording: Recording, tenth: int, imports: Imports, tmp_path: Path) -> None:
    """Nobody can see that a text is another one; but the log that holds the original is never changed by it."""
    imports.run(recording)
    before = imports.keys()
    data = bytearray(recording.path.read_bytes())
    at = len(data) * tenth // 10 + 1
    data[at] = ord("Q") if data[at] != ord("Q") else ord("J")
    path = tmp_path / f"changed{recording.path.suffix}"
    path.write_bytes(data)
    outcome = imports.refused(recording, path, (BadInputFile, ImportConflict))
    if outcome is None:
        return
    assert set(before) <= set(imports.keys())
    if outcome.appended:
        assert outcome.as_data()["new"] > 0, "other ids: another session"
    else:
        assert outcome.report.not_carried or outcome.report.repeats or outcome.report.skipped


@every_recording
def test_zeros_in_the_middle(recording: Recording, imports: Imports, tmp_path: Path) -> None:
    # case C46
    data = bytearray(recording.path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 300] = bytes(300)
    path = tmp_path / f"zeros{recording.path.suffix}"
    path.write_bytes(data)
    assert imports.refused(recording, path) is None


@every_recording
def test_an_empty_file_and_no_file(recording: Recording, imports: Imports, tmp_path: Path) -> None:
    path = tmp_path / f"empty{recording.path.suffix}"
    path.write_bytes(b"")
    for missing in (path, tmp_path / "nowhere", tmp_path):
        assert imports.refused(recording, missing) is None


@pytest.mark.parametrize("name", sorted(IMPORTERS))
def test_files_of_other_formats(name: str, imports: Imports, tmp_path: Path) -> None:
    others = [recording for recording in recordings() if recording.format != name]
    if not others:
        pytest.skip("the shared recordings are missing")
    foreign = [recording.path for recording in others]
    foreign += [report for recording in recordings() for report in recording.reports]
    for number, text in enumerate(("[]", "{}", '"text"', "1", "null", "<html>", "[" * 100_000)):
        foreign.append(tmp_path / f"{number}.json")
        foreign[-1].write_text(text)
    for path in foreign:
        assert imports.refused(Recording(name, path), path) is None
    assert imports.keys() == []
