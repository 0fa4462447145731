"""Whatever was done to a session's records, or to an export of them, is seen; and nothing where nothing was done."""

from __future__ import annotations

import base64
import json
from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dalsegno.errors import NotFound
from dalsegno.model.amending import intend
from dalsegno.model.history import gather
from dalsegno.model.records import SKIPPED, Event, Unreadable
from dalsegno.readers.export import export_lines
from dalsegno.readers.proof import AdminAudit, Anchor, Proof, prove
from dalsegno.readers.proving import prove_export, section_of
from dalsegno.testing.builder import SessionBuilder, Written, shipped_schemas
from dalsegno.testing.strategies import History
from dalsegno.testing.strategies import histories as whole_partitions
from examples import examples
from history_lab import NO_AUDIT, SESSION, chain, judged, raws, requests
from reader_lab import House


@cache
def exported() -> tuple[bytes, ...]:
    """An export with a takeover, a superseded rival and no amendment, which only an audit could vouch for."""
    builder = chain(8)
    rival = builder.branch(6, writer="rival/1/b")
    rival.append("MessageReceived", message_id="r", role="USER")
    builder.recover()
    builder.append("MessageReceived", message_id="m", role="USER")
    with TemporaryDirectory() as folder, House(Path(folder)) as house:
        house.shard([*builder.records, rival.records[-1]])
        reader = house.reader()
        return tuple(line.encode() for line in export_lines(reader, reader.of_session(SESSION), SESSION))


def verdict(lines: list[bytes]) -> Proof | None:
    """None: the file holds nothing of the session any more, which the command says too."""
    try:
        return prove_export(section_of(lines, SESSION), SESSION, NO_AUDIT, None)
    except NotFound:
        return None


def is_found(lines: list[bytes]) -> bool:
    proof = verdict(lines)
    return proof is None or bool(proof.doubts)


def signed(lines: list[bytes]) -> list[bytes]:
    body = lines[:-1]
    return [*body, f'{{"sha256": "{sha256(b"".join(body)).hexdigest()}"}}\n'.encode()]


def test_the_export_itself_is_proven() -> None:
    proof = verdict(list(exported()))
    assert proof is not None
    assert (proof.doubts, proof.unproven, proof.path.head.seq) == ((), (), 10)


@settings(max_examples=examples(300))
@given(st.data())
def test_any_single_byte_that_was_changed_in_an_export_is_found(data: st.DataObject) -> None:
    raw = bytearray(b"".join(exported()))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    assert is_found(list(BytesIO(bytes(raw))))


@settings(max_examples=examples(100))
@given(st.data())
def test_any_line_that_was_dropped_from_an_export_is_found(data: st.DataObject) -> None:
    lines = list(exported())
    del lines[data.draw(st.integers(0, len(lines) - 1))]
    assert is_found(lines)


@settings(max_examples=examples(100))
@given(st.data())
def test_any_two_lines_that_were_swapped_in_an_export_are_found(data: st.DataObject) -> None:
    lines = list(exported())
    one, other = data.draw(st.lists(st.integers(0, len(lines) - 1), min_size=2, max_size=2, unique=True))
    lines[one], lines[other] = lines[other], lines[one]
    assert is_found(lines)


def records_of(lines: list[bytes]) -> list[int]:
    return [number for number, line in enumerate(lines) if line.startswith(b'{"key"')]


@settings(max_examples=examples(150))
@given(st.data())
def test_who_makes_a_new_sum_is_found_by_the_hashes(data: st.DataObject) -> None:
    """A byte of a record or its key changed, a record dropped, two exchanged, a hash taken away; then signed anew."""
    lines = list(exported())
    numbers = records_of(lines)
    at = data.draw(st.sampled_from(numbers))
    row: dict[str, Any] = json.loads(lines[at])
    kind = data.draw(st.sampled_from(["byte", "key", "drop", "exchange", "strip"]))
    if kind == "byte":
        value = bytearray(base64.b64decode(row["value_base64"]))
        value[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))
        row["value_base64"] = base64.b64encode(bytes(value)).decode()
    elif kind == "key":
        place = data.draw(st.integers(len("s-1:"), len(row["key"]) - 1))
        letter = data.draw(st.sampled_from([c for c in "0123456789abcdefx:" if c != row["key"][place]]))
        row["key"] = row["key"][:place] + letter + row["key"][place + 1 :]
    elif kind == "exchange":
        to = data.draw(st.sampled_from([number for number in numbers if number != at]))
        other = json.loads(lines[to])
        row["value_base64"], other["value_base64"] = other["value_base64"], row["value_base64"]
        lines[to] = json.dumps(other).encode() + b"\n"
    elif kind == "strip":
        row["key"] = data.draw(st.sampled_from([None, row["key"][:-64], row["key"][:-65], row["key"][:-1]]))
    lines[at] = json.dumps(row).encode() + b"\n"
    if kind == "drop":
        del lines[at]
    proof = verdict(signed(lines))
    assert proof is None or proof.doubts or proof.unproven, kind


@st.composite
def histories(draw: st.DrawFn) -> tuple[SessionBuilder, list[Written]]:
    """A session with takeovers and rivals, its records in any order that keeps each writer's."""
    builder = chain(draw(st.integers(1, 10)))
    records = list(builder.records)
    for number in range(draw(st.integers(0, 3))):
        rival = builder.branch(draw(st.integers(1, len(builder.records))), writer=f"rival/{number}/b")
        rival.append("MessageReceived", message_id="r", role="USER")
        records.append(rival.records[-1])
        if draw(st.booleans()):
            records.append(builder.recover())
        records.append(builder.append("MessageReceived", message_id=f"x{number}", role="USER"))
    if draw(st.booleans()):
        Random(draw(st.integers(0, 99))).shuffle(records)
    return builder, records


@settings(max_examples=examples(200))
@given(histories())
def test_an_untouched_history_has_no_doubt_in_any_order(history: tuple[SessionBuilder, list[Written]]) -> None:
    _, records = history
    assert judged(raws([*records, *records[:3]])).doubts == ()


@settings(max_examples=examples(40))
@given(whole_partitions(unreadable=False), st.randoms(use_true_random=False))
def test_sessions_of_all_profiles_with_forks_amendments_and_tombstones_have_no_doubt(
    partition: History, rnd: Random
) -> None:
    """Unless a record of theirs was lost without a word."""
    audit = AdminAudit(requests(partition.records))
    arrived = raws(partition.arrivals(rnd))
    present = {record.key for record in partition.records}

    def is_whole(session_id: str) -> bool:
        own = (builder for builder in partition.sessions if builder.session_id == session_id)
        wrote = {record.key for builder in own for record in builder.records}
        return wrote <= present and not _lost_an_amendment(partition, session_id)

    for session_id in filter(is_whole, {builder.session_id for builder in partition.sessions}):
        proof = prove(session_id, arrived, partitions=1, schemas=shipped_schemas(), audit=audit)
        assert proof.doubts == (), session_id
        while (origin := proof.goes_on_from) is not None and origin[1] is not None and is_whole(origin[0]):
            end = Anchor("its fork", *origin[1])
            proof = prove(origin[0], arrived, partitions=1, schemas=shipped_schemas(), audit=audit, up_to=end)
            assert proof.doubts == (), (session_id, origin)


def _lost_an_amendment(partition: History, session_id: str) -> bool:
    """Whether an amendment went that explained a tombstone."""
    stones = {stone.key for stone in partition.tombstones}
    named = {
        target["hash"]
        for record in partition.records
        if record.event is not None and record.event.type == "HistoryAmended"
        for target in record.event.body["targets"]
    }
    erased = {
        r.event.session_id for r in partition.records if r.event is not None and r.event.body.get("whole_session")
    }
    return session_id not in erased and any(
        key.startswith(f"{session_id}:".encode()) and bytes.fromhex(key.decode().rpartition(":")[2]) not in named
        for key in stones
    )


@settings(max_examples=examples(200))
@given(histories(), st.data())
def test_a_record_below_another_that_was_dropped_is_found(
    history: tuple[SessionBuilder, list[Written]], data: st.DataObject
) -> None:
    """Except at the end, and except a branch of a rival, which nobody follows."""
    builder, records = history
    dropped = data.draw(st.sampled_from(builder.records))
    left = raws([record for record in records if record.key != dropped.key])
    highest = max(record.event.seq for record in records if record.event is not None)
    proof = judged(left)
    assert dropped.event is not None
    if dropped.event.seq == highest or dropped is builder.records[-1]:
        return
    assert proof.doubts


@settings(max_examples=examples(200))
@given(histories(), st.data())
def test_what_is_skipped_stands_on_the_path_as_a_stub_and_frees_a_held_session(
    history: tuple[SessionBuilder, list[Written]], data: st.DataObject
) -> None:
    builder, records = history
    seq = data.draw(st.integers(1, len(builder.records)))
    key = builder.records[seq - 1].event.key  # type: ignore[union-attr]
    dark: list[Event | Unreadable] = [
        Unreadable(key, "UNDECODABLE") if record.event.key == key else record.event  # type: ignore[union-attr]
        for record in records
    ]
    before = gather(dark).known.choose()
    intended = intend(SESSION, dark, seq, seq, SKIPPED) if before.held is not None and before.held.seq == seq else None
    if intended is None:  # a rival stands there, and the session goes another way
        return
    assert intended.targets[0].link.seq == seq
    assert len(intended.after.hashes) > len(before.hashes)
    assert intended.after.hashes[seq - 1] == intended.targets[0].link.hash


def test_only_the_last_record_under_a_key_counts() -> None:
    records = raws(chain(5).records)
    damaged = records[2]._replace(value=b"x", offset=9)
    assert judged([damaged._replace(offset=0), *records]).doubts == ()
    found = prove(SESSION, [*records, damaged], partitions=1, schemas=shipped_schemas(), audit=NO_AUDIT, anchors=())
    assert [doubt.seq for doubt in found.doubts] == [3]
