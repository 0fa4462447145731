"""The decider's rows of a session at any of its events are the fold of its whole history up to there."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dalsegno.model.history import counting
from dalsegno.model.records import FIRST_SEQ
from dalsegno.projections.decider.fold import fold_event
from dalsegno.projections.decider.projection import Decider
from dalsegno.projections.decider.table import MemoryRows
from dalsegno.readers.decided import decider_rows
from dalsegno.readers.taking_over import Told, _named, decided_at
from dalsegno.state.layout import SessionHead
from dalsegno.state.reads import ShardReads
from dalsegno.testing.strategies import History, histories
from examples import examples
from shard_lab import Lab, apply_in_batches, reads

RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=examples(30))


def plain(reader: ShardReads, session_id: str, head: SessionHead) -> Iterator[tuple[int, dict[Any, Any]]]:
    """The rows behind each event of the session's own path. Before its second event no session is a fork."""
    rows = MemoryRows()
    counted = {(event.session_id, event.seq) for event in counting(reader.history(session_id))}
    for event in reader.history(session_id):
        if (event.session_id, event.seq) in counted and event.stub is None:
            fold_event(rows, event)
        if event.session_id == session_id:
            alone = head.parent is not None and event.seq == FIRST_SEQ
            yield event.seq, {} if alone else deepcopy(dict(rows.all()))


@RELAXED
@given(histories(max_sessions=3), st.randoms(use_true_random=False), st.sampled_from([2, 3, 5]))
def test_rows_at_any_seq_are_the_fold_of_the_history_up_to_there(
    history: History, rnd: Random, window_events: int
) -> None:
    lab = Lab()
    shard = lab.open(window_events=window_events)
    reader = reads(apply_in_batches(lab, shard, history.arrivals(rnd), rnd, window_events=window_events))
    for session_id, head in reader.sessions():
        if head.seq:
            found = {seq: dict(decider_rows(reader, session_id, seq).all()) for seq in range(1, head.seq + 1)}
            assert found == dict(plain(reader, session_id, head))
            assert dict(decider_rows(reader, session_id).all()) == found[head.seq]


@RELAXED
@given(histories(max_sessions=3), st.randoms(use_true_random=False), st.sampled_from([2, 3, 5]))
def test_who_takes_over_has_the_rows_and_the_contents_of_all_events_also_where_the_shard_moved_on(
    history: History, rnd: Random, window_events: int
) -> None:
    lab = Lab()
    shard = lab.open(window_events=window_events)
    shard = apply_in_batches(lab, shard, history.arrivals(rnd), rnd, window_events=window_events)
    for session_id, _ in reads(shard).sessions():
        path = list(reads(shard).path(session_id))
        rows, contents = MemoryRows(), dict[bytes, bytes]()
        counted = {event.seq for event in counting(reads(shard).history(session_id)) if event.session_id == session_id}
        for tip in path:
            if tip.seq in counted and tip.stub is None:
                fold_event(rows, tip, contents.__setitem__)
            told = Told()
            reader = ShardReads(shard.kv, shard._work.schemas, [Decider(told.keep)], window_events=window_events)
            found = decided_at(reader, session_id, tip, told)
            if found is not None:
                assert dict(found.rows.all()) == dict(rows.all())
                assert dict(found.contents).items() <= contents.items()
                assert found.contents.keys() == set(_named(rows)) & contents.keys()
