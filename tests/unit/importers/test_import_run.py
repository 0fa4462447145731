"""Importing into a log: again, after a kill, a file that grew, another prefix, an erased session."""

from __future__ import annotations

import json
import weakref
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import BadInputFile, ImportConflict, KafkaRefused, Unsent
from dalsegno.importers import inspect_ai
from dalsegno.importers.base import ImportedSession, ImportReport
from dalsegno.importers.builder import SessionBuilder as Events
from dalsegno.importers.builder import Source
from dalsegno.importers.chain import chained
from dalsegno.importers.inspect_ai import InspectImporter, file
from dalsegno.importers.run import ImportOutcome, import_file, import_files
from dalsegno.log.codec import place
from dalsegno.log.publisher import Publisher
from dalsegno.model.events import TimerFired
from dalsegno.model.ids import partition_of
from dalsegno.model.records import Actor
from dalsegno.storage.blobs import blob_key
from dalsegno.storage.object_store import FolderStore
from dalsegno.testing.builder import SessionBuilder, Written
from dalsegno.testing.memory_log import MemoryLog
from inspect_logs import HEADER, clock, model_event, sample, sessions_of, write_eval, write_json


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(partitions=4)


@pytest.fixture
def publisher(log: MemoryLog) -> Iterator[Publisher]:
    with Publisher(log.connect(), prefix="t") as publisher:
        yield publisher


def run(publisher: Publisher, path: Path, **options: Any) -> ImportOutcome:
    return import_file(publisher, InspectImporter(), path, **options)


def stored(log: MemoryLog) -> list[bytes]:
    return [record.key for partition in range(4) for record in log.records("t.events", partition) if record.key]


def info(at: float, data: Any = 0) -> dict[str, Any]:
    return {"event": "info", "data": data, "timestamp": clock(at)}


def test_an_import_cut_off_in_the_middle_is_completed_by_the_next(publisher: Publisher, tmp_path: Path) -> None:
    # What a killed process leaves is a part of each partition's records, in order, acknowledged or not.
    path = write_json(tmp_path / "log.json", *({**sample([info(1), info(2)]), "id": number} for number in range(9)))
    records = [record for session in sessions_of(path) for record in chained(session, publisher.schemas)]
    keys = [record.key.encode() for record in records]
    for sent in (1, len(records) // 2 + 1, len(records) - 1):
        partly = MemoryLog(partitions=4)
        for record in records[:sent]:
            partly.put("t.events", partition_of(record.key.session_id, 4), record.key.encode(), record.value)
        with Publisher(partly.connect(), prefix="t") as publisher_again:
            assert run(publisher_again, path).appended == len(records) - sent
            assert sorted(stored(partly)) == sorted(keys)
            assert run(publisher_again, path).appended == 0


def test_a_file_that_grew_gets_what_is_new(publisher: Publisher, tmp_path: Path) -> None:
    score = {"event": "score", "score": {"value": "C"}, "timestamp": clock(2)}
    edit = {"event": "score_edit", "score_name": "unknown", "edit": {"value": "I"}, "timestamp": clock(9)}
    path = tmp_path / "log.json"
    assert run(publisher, write_json(path, sample([score]))).as_data()["new"] == 1
    grown = run(publisher, write_json(path, sample([score, edit]))).as_data()
    assert (grown["grew"], grown["appended"]) == (1, 1)
    older = run(publisher, write_json(path, sample([score]))).as_data()
    assert (older["ahead"], older["appended"]) == (1, 0)


def test_another_prefix_is_refused_with_the_first_difference_and_nothing_is_appended(
    log: MemoryLog, publisher: Publisher, tmp_path: Path
) -> None:
    path = tmp_path / "log.json"
    run(publisher, write_json(path, {**sample([info(1, "a"), info(2, "b")]), "id": 2}))
    before = stored(log)
    new, changed = sample([info(1)]), {**sample([info(1, "a"), info(2, "X")]), "id": 2}
    with pytest.raises(ImportConflict) as caught:
        run(publisher, write_json(path, new, changed))
    assert caught.value.exit_code == 5
    assert caught.value.data["native_ref"] == "/events/1"
    assert caught.value.data["session_id"] == "inspect/1:E1:2:1"
    assert f"seq {caught.value.data['seq']} of session inspect/1:E1:2:1" in str(caught.value)
    assert stored(log) == before


def test_of_several_files_none_is_imported_unless_all_can_be(
    log: MemoryLog, publisher: Publisher, tmp_path: Path
) -> None:
    run(publisher, write_json(tmp_path / "log.json", {**sample([info(1, "a")]), "id": 2}))
    before = stored(log)
    good = write_json(tmp_path / "good.json", sample([info(1)]))
    torn = tmp_path / "torn.json"
    torn.write_text(good.read_text()[:-4])
    differs = write_json(tmp_path / "differs.json", {**sample([info(1, "X")]), "id": 2})
    for bad, error in ((torn, BadInputFile), (differs, ImportConflict)):
        with pytest.raises(error, match=bad.name):
            list(import_files(publisher, InspectImporter(), [good, bad]))
        assert stored(log) == before


def test_several_files_of_one_session_are_compared_with_each_other(
    log: MemoryLog, publisher: Publisher, tmp_path: Path
) -> None:
    shorter = write_json(tmp_path / "shorter.json", sample([info(1, "a"), info(2, "b")]))
    other = write_json(tmp_path / "other.json", sample([info(1, "a"), info(2, "X")]))
    with pytest.raises(
        ImportConflict, match=r"shorter.json holds another event at seq \d+ of session inspect/1:E1:1:1"
    ):
        list(import_files(publisher, InspectImporter(), [shorter, other]))
    assert stored(log) == []
    outcomes = [outcome.as_data() for outcome in import_files(publisher, InspectImporter(), [shorter, shorter])]
    assert [(told["new"], told["same"]) for told in outcomes] == [(1, 0), (0, 1)]
    assert len(stored(log)) == outcomes[0]["appended"] == outcomes[0]["events"]


def test_a_dry_run_says_what_it_would_do_and_does_nothing(log: MemoryLog, publisher: Publisher, tmp_path: Path) -> None:
    path = write_json(tmp_path / "log.json", sample([info(1)]))
    told = run(publisher, path, dry_run=True).as_data()
    assert (told["new"], told["appended"], told["dry_run"]) == (1, 0, True)
    assert told["missing"] == told["events"] > 0
    assert stored(log) == []
    assert run(publisher, path).appended == told["missing"]


def test_a_damaged_file_appends_nothing(log: MemoryLog, publisher: Publisher, tmp_path: Path) -> None:
    # case C46
    path = write_json(tmp_path / "log.json", sample([info(1)]), {**sample([info(1)]), "id": 2})
    path.write_text(path.read_text()[:-30])
    with pytest.raises(BadInputFile):
        run(publisher, path)
    assert stored(log) == []


def test_a_zip_with_a_torn_last_member_appends_nothing(log: MemoryLog, publisher: Publisher, tmp_path: Path) -> None:
    path = write_eval(tmp_path / "log.eval", *({**sample([info(1)]), "id": n} for n in range(5)), header=HEADER)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("summaries.json", "[" + "1," * 1000 + "1]")
        last = archive.infolist()[-1]
    data = bytearray(path.read_bytes())
    data[last.header_offset + 30 + len(last.filename) + 100] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(BadInputFile, match=r"summaries\.json"):
        run(publisher, path)
    assert stored(log) == []


@pytest.mark.parametrize("write", [write_eval, write_json])
def test_one_session_is_held_at_a_time_and_of_a_zip_one_sample(
    write: Any, log: MemoryLog, publisher: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Sample(dict[str, Any]):
        """One that can be referred to weakly."""

    def alive(refs: list[weakref.ref[Any]]) -> int:
        return sum(ref() is not None for ref in refs)

    def parsed(path: Path, place: str, data: bytes) -> Any:
        found = parse(path, place, data)
        if place.startswith("samples/"):
            found = Sample(found)
            samples.append(weakref.ref(found))
            held.append(("sample", alive(samples)))
        return found

    def mapped(*words: Any) -> Any:
        session = map_sample(*words)
        sessions.append(weakref.ref(session))
        held.append(("session", alive(sessions)))
        return session

    samples: list[weakref.ref[Any]] = []
    sessions: list[weakref.ref[Any]] = []
    held: list[tuple[str, int]] = []
    parse, map_sample = file._parse, inspect_ai.map_sample
    monkeypatch.setattr(file, "_parse", parsed)
    monkeypatch.setattr(inspect_ai, "map_sample", mapped)
    path = write(tmp_path / "log", *({**sample([info(1)]), "id": n} for n in range(20)), header=HEADER)
    outcome = run(publisher, path)
    assert (len(outcome.sessions), outcome.appended) == (20, len(stored(log)))
    one = [("sample", 1), ("session", 1)] if write is write_eval else [("session", 1)]
    assert held == one * 40, "read twice: to check, and to append"


def test_a_file_that_changes_between_the_two_readings_is_refused_and_can_be_imported_again(
    publisher: Publisher, tmp_path: Path
) -> None:
    class Changing(InspectImporter):
        def read(self, path: Path, report: ImportReport) -> Iterator[ImportedSession]:
            assert path == whole
            return super().read(paths.pop(0), report)

    first, second = sample([info(1, "a")]), {**sample([info(1, "b")]), "id": 2}
    whole = write_json(tmp_path / "whole.json", first, second)
    other = write_json(tmp_path / "other.json", first, {**sample([info(1, "X")]), "id": 2})
    shorter = write_json(tmp_path / "shorter.json", first)
    for later in (other, shorter):
        paths = [whole, later]
        with pytest.raises(BadInputFile, match="changed while it was imported: session inspect/1:E1:2:1"):
            import_file(publisher, Changing(), whole)
    told = run(publisher, whole).as_data()
    assert (told["new"], told["same"]) == (1, 1)


def test_a_file_that_lost_what_it_differs_in_when_it_is_looked_for_changed(
    publisher: Publisher, tmp_path: Path
) -> None:
    class Changing(InspectImporter):
        def read(self, path: Path, report: ImportReport) -> Iterator[ImportedSession]:
            assert path == differs
            return super().read(paths.pop(0), report)

    def written_to(name: str, *events: dict[str, Any]) -> Path:
        return write_json(tmp_path / name, sample(list(events)))

    run(publisher, written_to("log.json", info(1, "a"), info(2, "b"), info(3, "c")))
    differs = written_to("differs.json", info(1, "a"), info(2, "b"), info(3, "X"))
    gone = write_json(tmp_path / "gone.json", {**sample([info(1)]), "id": 2})
    shorter = written_to("shorter.json", info(1, "a"))
    other = written_to("other.json", info(1, "a"), info(2, "b"), info(3, "Y"))
    for later in (gone, shorter, other):
        paths = [differs, later]
        with pytest.raises(BadInputFile, match="changed while it was imported: session inspect/1:E1:1:1"):
            import_file(publisher, Changing(), differs)
        assert paths == [], "it was looked for again"
    with pytest.raises(ImportConflict):
        run(publisher, differs)


def test_an_erased_session_does_not_come_back(log: MemoryLog, publisher: Publisher, tmp_path: Path) -> None:
    path = write_json(tmp_path / "log.json", sample([info(1)]))
    run(publisher, path)
    amendment = SessionBuilder("inspect/1:E1:1:1").amend(action="ERASED", whole_session=True)
    partition = publisher.partition_of("inspect/1:E1:1:1")
    for key in stored(log):
        log.put("t.events", partition, key, None)
    log.put("t.events", partition, amendment.key, amendment.value)
    before = stored(log)
    told = run(publisher, path).as_data()
    assert (told["erased"], told["appended"]) == (1, 0)
    assert stored(log) == before


def test_a_single_erased_event_stays_erased(log: MemoryLog, publisher: Publisher, tmp_path: Path) -> None:
    path = write_json(tmp_path / "log.json", sample([info(1)]))
    run(publisher, path)
    builder = SessionBuilder("inspect/1:E1:1:1")
    session_id, (target, *_) = "inspect/1:E1:1:1", chained_of(path, publisher)[3:4]
    record = next(w for w in written(log, publisher, session_id) if w.key == target.key.encode())
    amendment = builder.amend([record], action="ERASED")
    partition = publisher.partition_of(session_id)
    log.put("t.events", partition, target.key.encode(), None)
    log.put("t.events", partition, amendment.key, amendment.value)
    assert run(publisher, path).as_data()["same"] == 1


def chained_of(path: Path, publisher: Publisher) -> list[Any]:
    (session,) = sessions_of(path)
    return chained(session, publisher.schemas)


def written(log: MemoryLog, publisher: Publisher, session_id: str) -> list[Any]:
    partition = publisher.partition_of(session_id)
    records = log.records("t.events", partition)
    return [Written(r.key, r.value, place(publisher.schemas, r.key, r.value, partition, 4)) for r in records]  # type: ignore[arg-type]


def test_large_contents_are_in_the_store_before_the_event_that_names_them(publisher: Publisher, tmp_path: Path) -> None:
    big = {"id": "m", "role": "user", "content": "z" * 200_000}
    path = write_json(tmp_path / "log.json", sample([model_event(0, input=[big])]))
    store = FolderStore(tmp_path / "store")
    run(publisher, path, store=store)
    (named,) = [obj.key for obj in store.list("blobs/")]
    assert store.read(named) == b"z" * 200_000
    (session,) = sessions_of(path)
    assert [blob_key(uri.rpartition(":")[2]) for uri in session.blobs] == [named]


def test_what_the_log_refuses_is_an_error_and_the_next_import_completes_it(
    log: MemoryLog, publisher: Publisher, tmp_path: Path
) -> None:
    path = write_json(tmp_path / "log.json", sample([info(1)]))
    connection = log.connect()
    connection.fail_next()
    refused = Publisher(connection, prefix="t")
    with pytest.raises(KafkaRefused):
        run(refused, path)
    with pytest.raises(Unsent):
        refused.close()
    outcome = run(publisher, path)
    assert outcome.appended >= 1
    keys = stored(log)
    assert len(set(keys)) == outcome.as_data()["events"]
    assert json.dumps(outcome.as_data())


def test_an_event_that_cannot_be_encoded_names_the_file_and_its_place(
    log: MemoryLog, publisher: Publisher, tmp_path: Path
) -> None:
    class Careless(InspectImporter):
        def sessions(self, path: Path, report: ImportReport) -> Iterator[ImportedSession]:
            del path, report
            builder = Events(session_id="s", importer=self.id, started=0)
            builder.add(TimerFired(timer=3), Source("/events/7", None), Actor("HARNESS", "x"))  # type: ignore[arg-type]
            yield builder.session()

    path = tmp_path / "log.json"
    with pytest.raises(BadInputFile, match=r"seq 1 \(TimerFired from /events/7\)") as refused:
        import_file(publisher, Careless(), path)
    assert str(path) in str(refused.value)
    assert stored(log) == []
