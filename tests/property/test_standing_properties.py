"""A writer that goes on from a shard's standing knows what one knows that read every record."""

from __future__ import annotations

from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dalsegno.log.history import SessionRecords, place_family, understand
from dalsegno.model.history import counting, events_along, gather
from dalsegno.model.ids import Offset, parse_key
from dalsegno.readers.standing import standing, stood_before
from dalsegno.state.session import state_of
from dalsegno.testing.strategies import History, histories
from examples import examples
from shard_lab import Lab, apply_in_batches, reads

RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=examples(60))


class NoParents:
    def read(self, session_id: str, up_to: Offset) -> SessionRecords:
        raise AssertionError(f"{session_id} was read for a session that is no fork, up to {up_to}")


@RELAXED
@given(histories(max_sessions=3), st.randoms(use_true_random=False), st.floats(0, 1))
def test_a_standing_and_the_tail_are_all_records(history: History, rnd: Random, part: float) -> None:
    arrivals = history.arrivals(rnd)
    cut = round(part * len(arrivals))
    lab = Lab()
    shard = apply_in_batches(lab, lab.open(), arrivals[:cut], rnd)
    reader, schemas = reads(shard), shard._work.schemas
    everything = {record.key: record.value for record in arrivals}
    tail = {record.key: record.value for record in arrivals[cut:]}
    for session_id in sorted({key.session_id for key in map(parse_key, everything) if key is not None}):
        later = place_family(tail, session_id, 0, 1, schemas)
        found = stood_before(reader, session_id, tail, later)
        if found is None:
            continue
        all_records = place_family(everything, session_id, 0, 1, schemas)
        whole = understand(session_id, SessionRecords(all_records, Offset(0), 0), NoParents(), Offset(0))
        tip_seq = found.standing.tip.seq
        short = SessionRecords(later, Offset(0), 0, standing=found.standing)
        behind = understand(session_id, short, NoParents(), Offset(0))
        assert behind._replace(keys=whole.keys, ops=whole.ops, counted=()) == whole
        gathered = gather(all_records.values())
        path = list(counting(events_along(session_id, gathered, gathered.known.choose().hashes)))
        assert list(behind.counted) == [each for each in path if each.seq > tip_seq]
        assert behind.ops.rows == whole.ops.rows
        offset, key = found.newest
        # A repeat that comes later may be known by its first copy: the log has it there, or a later one.
        first: dict[bytes, int] = {}
        for at, record in enumerate(arrivals[:cut]):
            first.setdefault(record.key, at)
        assert arrivals[offset].key == key
        assert offset >= max(first[each.encode()] for each in all_records if each.encode() in first)


@RELAXED
@given(histories(max_sessions=2), st.randoms(use_true_random=False))
def test_nobody_stands_where_there_is_more_than_one_line(history: History, rnd: Random) -> None:
    lab = Lab()
    shard = apply_in_batches(lab, lab.open(), history.arrivals(rnd), rnd)
    reader = reads(shard)
    for session_id, head in reader.sessions():
        fork = state_of(session_id, head).relation == "FORK"  # also one whose SessionForked has not come yet
        plain = not (head.superseded or head.amended or head.erased or head.held_reason or fork)
        records = sum(1 for _ in reader.index(session_id))
        assert (standing(reader, session_id) is not None) == (plain and records == head.seq > 0)
