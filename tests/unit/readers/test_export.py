"""An export: written from a shard, read back, damaged, judged, and published again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dalsegno import events
from dalsegno.errors import BadLine, ImportConflict, NotFound, StoreDamaged
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.publisher import Publisher
from dalsegno.log.schema_set import SchemaSet
from dalsegno.readers import local
from dalsegno.readers.export import CHANGED, export_lines, read_sections
from dalsegno.readers.local import LocalReader
from dalsegno.readers.proof import Proof
from dalsegno.readers.proof_records import CUT_MIDDLE, CUT_TAIL, FORGED, STRIPPED, SWAPPED
from dalsegno.readers.proving import needs_audit, prove_export, section_of
from dalsegno.readers.take_back import take_back
from dalsegno.snapshots.catalog import TopicIdentity
from dalsegno.state.keys import journal_key
from dalsegno.state.kv import JOURNAL
from dalsegno.testing.builder import SessionBuilder, Written, tombstone, write
from dalsegno.testing.memory_log import MemoryLog
from history_lab import NO_AUDIT, SESSION, chain, kinds
from log_samples import toy, writer_of
from reader_lab import TOPIC_ID, House, put
from shard_lab import apply


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path) as found:
        yield found


def exported(house: House, session_id: str = SESSION, **options: Any) -> list[bytes]:
    reader = house.reader(**options)
    return [line.encode() for line in export_lines(reader, reader.of_session(session_id), session_id)]


def records_of(lines: list[bytes]) -> list[dict[str, Any]]:
    return [found for line in lines if "key" in (found := json.loads(line))]


def signed(lines: list[bytes]) -> list[bytes]:
    """The lines with a sum that fits, as whoever changed them would write it."""
    body = lines[:-1]
    return [*body, f'{{"sha256": "{sha256(b"".join(body)).hexdigest()}"}}\n'.encode()]


def judged(lines: list[bytes], house: House | None = None) -> Proof:
    view = None if house is None else house.reader().of_session(SESSION)
    return prove_export(section_of(lines, SESSION), SESSION, NO_AUDIT, view)


def history() -> tuple[SessionBuilder, list[Written]]:
    """A session with everything: a takeover, a superseded rival, an amendment, a tombstone."""
    builder = chain(6)
    rival = builder.branch(5, writer="rival/1/b")
    rival.append("MessageReceived", message_id="r", role="USER")
    builder.recover()
    builder.append("MessageReceived", message_id="m", role="USER")
    amended = builder.amend([builder.records[3]])
    return builder, [*builder.records, rival.records[-1], amended, tombstone(builder.records[3])]


# --- the form ---------------------------------------------------------------------------------------------------------


def test_the_schemas_come_first_then_every_record_in_the_order_of_the_log(house: House) -> None:
    builder, records = history()
    house.shard(records)
    lines = [json.loads(line) for line in exported(house)]
    kinds_ = ["".join(sorted(line)) for line in lines]
    schemas = [line["schema"] for line in lines if "schema" in line]
    assert kinds_ == sorted(kinds_, key=["schema", *kinds_[len(schemas) :]].index), "schemas, records, end, sum"
    assert {schema["name"].rpartition(".")[2] for schema in schemas} == {
        "SessionCreated", "MessageReceived", "SessionRecovered", "HistoryAmended",
    }  # fmt: skip
    wanted = [record for record in records if record.value is not None and record is not builder.records[3]]
    found = records_of(exported(house))
    assert [each["key"].encode() for each in found] == [record.key for record in wanted]
    assert {"headers", "partition", "offset", "timestamp"} < set(found[0])
    assert [each["offset"] for each in found] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert {(each["headers"], each["timestamp"], each["partition"]) for each in found} == {(None, None, 0)}
    (section,) = read_sections(exported(house))
    assert [line.raw.value for line in section.records] == [record.value for record in wanted]
    assert section.faults == []
    assert section.facts is not None
    assert (section.facts.head_seq, section.facts.records, section.facts.next_offset) == (8, 9, 11)


def test_a_shard_that_lacks_a_record_is_not_exported(house: House) -> None:
    shard = house.shard(chain(4).records)
    put(shard.kv, {(JOURNAL, journal_key(1)): None})
    with pytest.raises(StoreDamaged, match=f"seq 2 of session {SESSION}"):
        exported(house)


def test_records_that_cannot_be_read_are_exported_as_they_are(house: House) -> None:
    builder = chain(3)
    foreign = writer_of(toy(1, name="Foreign"))
    assert builder.tip is not None
    record = write(foreign, builder.envelope(4, builder.tip.hash, "Foreign"), {})
    house.shard([*builder.records, record])
    reader = house.reader()
    reader.learn_schemas = lambda: 0  # type: ignore[method-assign]
    lines = [line.encode() for line in export_lines(reader, reader.of_session(SESSION), SESSION)]
    (section,) = read_sections(lines)
    assert section.records[-1].raw.value == record.value
    proof = prove_export(section, SESSION, NO_AUDIT, None)
    assert proof.doubts == ()
    assert proof.unproven
    with pytest.raises(BadLine, match="does not hold the schema"), Publisher(MemoryLog(1).connect()) as publisher:
        take_back(publisher, lines, "x")


def test_a_machine_without_shards_exports_and_judges_by_the_newest_snapshot(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = house.shard(chain().records)
    house.snapshot(shard)
    here = exported(house)
    monkeypatch.setattr(LocalReader, "_identity", lambda _: TopicIdentity("c", TOPIC_ID, 1))
    monkeypatch.setattr(local, "read_catalog", lambda *_: house.catalog)
    reader = house.reader(data=tmp_path / "empty", kafka=lambda: KafkaConfig("nobody:1"))
    view = reader.of_session(SESSION)
    assert view.source.startswith("snapshot ")
    assert [line.encode() for line in export_lines(reader, view, SESSION)] == here
    cut = prove_export(section_of(here[:-4], SESSION), SESSION, NO_AUDIT, view)
    assert kinds(cut) == {CUT_TAIL}
    assert f"{view.source} knows seq 12" in " ".join(doubt.text for doubt in cut.doubts)


# --- judging ----------------------------------------------------------------------------------------------------------


def test_an_untouched_export_has_no_doubt_alone_and_beside_the_shard(house: House) -> None:
    builder = chain()
    house.shard(builder.records)
    lines = exported(house)
    assert judged(lines).doubts == ()
    assert judged(lines, house).doubts == ()
    assert not needs_audit(section_of(lines, SESSION))
    with pytest.raises(NotFound):
        section_of(lines, "another")


def test_an_export_that_is_older_than_the_shard_is_no_cut_tail(house: House) -> None:
    builder = chain(20)
    shard = house.shard(builder.records[:12])
    lines = exported(house)
    apply(shard, builder.records[12:])
    assert judged(lines, house).doubts == ()


def test_a_tail_cut_off_an_export_is_found_alone_and_beside_the_shard(house: House) -> None:
    house.shard(chain().records)
    lines = exported(house)
    torn = judged(lines[:-4])
    assert kinds(torn) == {CUT_TAIL}
    beside = judged(lines[:-4], house)
    assert "slot 0 knows seq 12" in " ".join(doubt.text for doubt in beside.doubts)
    only_records = [*lines[:-4], *lines[-2:]]
    assert CUT_TAIL in kinds(judged(only_records))
    assert CUT_TAIL in kinds(judged(signed(only_records)))
    # Who also changes what the end says is found by the shard alone.
    end = json.loads(lines[-2])
    last = records_of(only_records)[-1]["key"].rpartition(":")[2]
    end |= {"records": end["records"] - 2, "head_seq": 10, "head_hash": last}
    forged = signed([*lines[:-4], json.dumps(end).encode() + b"\n", b""])
    assert judged(forged).doubts == ()
    assert kinds(judged(forged, house)) == {CUT_TAIL}


def test_attacks_on_an_export_whose_sum_was_made_anew_are_named(house: House) -> None:
    house.shard(chain().records)
    lines = exported(house)
    first = next(n for n, line in enumerate(lines) if line.startswith(b'{"key"'))
    rows = [json.loads(line) for line in lines]

    def put(changed: dict[int, dict[str, Any]]) -> Proof:
        made = [json.dumps(changed.get(n, row)).encode() + b"\n" for n, row in enumerate(rows)]
        return judged(signed(made))

    one, other = rows[first + 4], rows[first + 6]
    assert put({}).doubts == ()
    swapped = {
        first + 4: one | {"value_base64": other["value_base64"]},
        first + 6: other | {"value_base64": one["value_base64"]},
    }
    assert kinds(put(swapped)) == {SWAPPED}
    assert kinds(put({first + 4: other, first + 6: one})) == {SWAPPED}, "lines in another order"
    assert kinds(put({first + 4: one | {"key": None}})) == {STRIPPED}
    assert kinds(put({first + 4: one | {"key": one["key"].rpartition(":")[0]}})) == {STRIPPED}
    assert kinds(put({first + 4: one | {"value_base64": other["value_base64"]}})) == {FORGED}


@pytest.mark.parametrize("key", ["s-2:5:" + "ab" * 32, "x", "s-1:13:zz", None])
def test_what_is_no_record_of_the_session_is_named(house: House, key: str | None) -> None:
    house.shard(chain().records)
    *rows, end, _ = map(json.loads, exported(house))
    rows.append(json.loads(row(key=key, value_base64="AAAA", offset=12)))
    end |= {"records": end["records"] + 1, "next_offset": 13}
    proof = judged(signed([json.dumps(each).encode() + b"\n" for each in (*rows, end, {})]))
    assert [(doubt.kind, "no record of session s-1" in doubt.text) for doubt in proof.doubts] == [(CHANGED, True)]


def test_a_second_part_of_a_session_does_not_hide_behind_the_first(house: House) -> None:
    house.shard(chain().records)
    lines = exported(house)
    end = json.loads(lines[-2])
    cut = signed([*lines[:6], *lines[8:-2], json.dumps(end | {"records": 10}).encode() + b"\n", b""])
    assert kinds(judged(cut)) == {CUT_MIDDLE}
    assert kinds(judged([*lines, *cut])) == {CHANGED}
    assert kinds(judged([*cut, *lines])) == {CHANGED, CUT_MIDDLE}
    torn = lines[:5]
    assert kinds(judged([*lines, *torn])) == {CHANGED}


def test_a_part_without_records_proves_nothing(house: House) -> None:
    house.shard(chain().records)
    end = json.loads(exported(house)[-2]) | {"records": 0, "head_seq": 0, "head_hash": None}
    nothing = signed([json.dumps(end).encode() + b"\n", b""])
    with pytest.raises(NotFound, match="holds no records of session s-1"):
        judged(nothing)
    assert kinds(judged(nothing, house)) == {CUT_TAIL}


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"next_offset": 5}, CHANGED, "next_offset: it is 5, and a record stands at offset 11"),
        ({"head_seq": 3}, FORGED, "there, which is at 12"),
    ],
)
def test_an_end_that_its_records_contradict_is_named(
    house: House, change: dict[str, Any], kind: str, text: str
) -> None:
    house.shard(chain().records)
    lines = exported(house)
    proof = judged(signed([*lines[:-2], json.dumps(json.loads(lines[-2]) | change).encode() + b"\n", b""]))
    assert kinds(proof) == {kind}
    assert text in proof.doubts[0].text


def row(**changes: Any) -> bytes:
    record = {"key": "k", "value_base64": "", "headers": None, "partition": 0, "offset": 99, "timestamp": None}
    return json.dumps(record | changes).encode() + b"\n"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"\n", "no JSON"),
        (b"[1]\n", "no JSON object"),
        (b'{"key": 1}\n', "neither a schema"),
        (row(key=1), "key"),
        (row(value_base64="?"), "base64"),
        (row(offset=True), "offset"),
        (row(partition=-1), "partition"),
        (row(headers={}), "headers"),
        (row(timestamp=5), "timestamp"),
        (b'{"schema": {"type": "string"}}\n', "schema"),
    ],
)  # fmt: skip
def test_lines_that_are_none_are_faults_with_their_place(house: House, line: bytes, text: str) -> None:
    house.shard(chain().records)
    lines = exported(house)
    lines.insert(5, line)
    (section,) = read_sections(signed(lines))
    assert [(fault.kind, fault.line) for fault in section.faults if fault.line == 6] == [(CHANGED, 6)]
    assert text in f"{section.faults[0].field} {section.faults[0].text}"


# --- published again --------------------------------------------------------------------------------------------------


def test_exported_published_and_exported_again_the_records_are_the_same(house: House, tmp_path: Path) -> None:
    _, records = history()
    fork = chain().fork(5, "f")
    house.shard([*records, *fork.records])
    lines = exported(house) + exported(house, "s-1~f")
    log = MemoryLog(partitions=3)
    with Publisher(log.connect(), prefix="other") as publisher:
        taken = take_back(publisher, lines, "x.jsonl")
        assert [(each.session_id, each.records, each.amendments) for each in taken] == [("s-1", 9, 1), ("s-1~f", 2, 0)]
        partition = publisher.partition_of(SESSION)
        assert {each.partition for each in taken} == {partition}
    assert {writer.schema_hash for writer in SchemaSet.load() if writer.type == "HistoryAmended"} <= set(log.schemas)
    again = log.records("other.events", partition)
    with House(tmp_path / "other") as other:
        other.shard([Written(record.key or b"", record.value, None) for record in again])
        back = records_of(exported(other) + exported(other, "s-1~f"))
    same = ["key", "value_base64", "headers", "timestamp"]
    assert [[each[name] for name in same] for each in back] == [
        [each[name] for name in same] for each in records_of(lines)
    ]


def test_a_damaged_section_is_refused_whole_and_the_one_before_is_told(house: House) -> None:
    house.shard([*chain().records, *chain(4, "s-2").records])
    first, second = exported(house), exported(house, "s-2")
    broken = [line.replace(b'"offset": 15', b'"offset": 16') for line in second]
    log = MemoryLog(partitions=3)
    with Publisher(log.connect(), prefix="t") as publisher, pytest.raises(BadLine) as caught:
        take_back(publisher, [*first, *broken], "x.jsonl")
    assert "x.jsonl, line" in caught.value.found
    assert "acknowledged: 12 events of s-1, seq 1 to 12" in caught.value.found
    assert caught.value.data["acknowledged"] == {"s-1": (1, 12)}
    assert len(log.records("t.events")) == 12


def test_an_end_without_its_hash_is_named(house: House) -> None:
    house.shard(chain().records)
    lines = exported(house)
    lines[-2] = json.dumps(json.loads(lines[-2]) | {"head_hash": None}).encode() + b"\n"
    assert kinds(judged(signed(lines))) == {STRIPPED}


def test_of_several_sessions_the_one_that_is_asked_for_is_judged(house: House) -> None:
    house.shard([*chain().records, *chain(4, "s-10").records])
    lines = exported(house, "s-10") + exported(house)
    assert [len(section_of(lines, name).records) for name in ("s-1", "s-10")] == [12, 4]
    renamed = [line.replace(b'{"session": "s-1"', b'{"session": "s-2"') for line in lines]
    found = section_of(renamed, "s-1")
    assert len(found.records) == 12
    assert kinds(prove_export(found, "s-1", NO_AUDIT, None)) == {CHANGED}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"partition": 1}, "partition"),
        ({"key": "s-1:2"}, "key"),
        ({"key": None}, "key"),
        ({"value_base64": "AAAA"}, "value_base64"),
    ],
)
def test_records_that_do_not_follow_from_their_bytes_are_refused(
    house: House, changes: dict[str, Any], field: str
) -> None:
    house.shard(chain().records)
    lines = exported(house)
    first = next(n for n, line in enumerate(lines) if line.startswith(b'{"key"'))
    end = json.loads(lines[-2]) | {"partitions": 2 if "partition" in changes else 1}
    lines[first + 4] = json.dumps(json.loads(lines[first + 4]) | changes).encode() + b"\n"
    lines[-2] = json.dumps(end).encode() + b"\n"
    log = MemoryLog(partitions=1)
    with Publisher(log.connect(), prefix="t") as publisher, pytest.raises(BadLine) as caught:
        take_back(publisher, signed(lines), "x")
    assert caught.value.data["field"] == field
    assert log.records("t.events") == []


def test_another_history_under_the_same_id_is_not_displaced(house: House) -> None:
    house.shard(chain().records)
    lines = exported(house)
    log = MemoryLog(1)
    publisher = Publisher(log.connect(), prefix="t")
    with publisher.session(SESSION) as session:
        session.append(events.SessionCreated(workflow_name="another", profile="OBSERVED"))
    before = log.records("t.events")
    with pytest.raises(ImportConflict, match=r"two histories of session s-1, from seq 1 on; acknowledged: nothing"):
        take_back(publisher, lines, "f")
    assert log.records("t.events") == before


@pytest.mark.parametrize("here", [0, 5, 12, 20])
def test_a_longer_or_shorter_part_of_the_same_history_is_none_of_another(house: House, here: int) -> None:
    house.shard(chain(12).records)
    log = MemoryLog(1)
    for record in chain(20).records[:here]:
        log.put("t.events", 0, record.key, record.value)
    (taken,) = take_back(Publisher(log.connect(), prefix="t"), exported(house), "f")
    assert taken.records == 12
    assert len({record.key for record in log.records("t.events")}) == max(here, 12)


@pytest.mark.parametrize("ours", [3, 9])
def test_a_history_that_went_on_in_two_places_is_refused(house: House, ours: int) -> None:
    """Whichever of the two readers would follow."""
    common = chain(6)
    there = common.branch(6, writer="there/1/b")
    for number in range(6):
        there.append("MessageReceived", message_id=f"t{number}", role="USER")
    house.shard(there.records)
    log = MemoryLog(1)
    here = common.branch(6, writer="here/1/b")
    for number in range(ours):
        here.append("MessageReceived", message_id=f"h{number}", role="USER")
    for record in here.records:
        log.put("t.events", 0, record.key, record.value)
    with pytest.raises(ImportConflict, match="from seq 7 on"):
        take_back(Publisher(log.connect(), prefix="t"), exported(house), "f")


def test_a_foreign_schema_is_published_before_its_records(house: House) -> None:
    foreign = writer_of(toy(1, name="Foreign"))
    schemas = SchemaSet.load()
    schemas.add(foreign.json)
    builder = chain(3)
    assert builder.tip is not None
    envelope = builder.envelope(4, builder.tip.hash, "Foreign") | {"ignorable": True}
    house.shard([*builder.records, write(foreign, envelope, {})], schemas=schemas)
    reader = house.reader()
    reader.learn_schemas = lambda: [reader._schemas.add(foreign.json)] and 1  # type: ignore[assignment, method-assign]
    lines = [line.encode() for line in export_lines(reader, reader.of_session(SESSION), SESSION)]
    log = MemoryLog(partitions=1)
    with Publisher(log.connect(), prefix="t") as publisher:
        take_back(publisher, lines, "x")
    assert foreign.schema_hash in log.schemas
    assert len(log.records("t.events")) == 4
