"""A step shows the same whichever way one came to it."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dalsegno.projections.base import RowId
from dalsegno.readers.stepping import Stepper
from dalsegno.testing.strategies import History, histories
from examples import examples
from shard_lab import folded, reads

RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=examples(25))


@RELAXED
@given(histories(), st.sampled_from([2, 3, 5, 256]), st.data())
def test_any_walk_shows_at_a_seq_what_is_shown_when_it_is_opened_there(
    history: History, window_events: int, data: st.DataObject
) -> None:
    reading = reads(folded(history.records, window_events=window_events))
    for session_id, head in reading.sessions():
        if head.seq == 0:
            continue
        seqs = st.integers(1, head.seq)
        stepping = Stepper(reading.walk(session_id), data.draw(seqs))
        for move in data.draw(st.lists(st.sampled_from(["forward", "back", "to"]), max_size=8)):
            before = stepping.folded
            if move == "to":
                stepping.to(data.draw(seqs))
            elif move == "forward":
                stepping.forward()
            else:
                stepping.back()
            assert stepping.folded - before <= window_events
            there = stepping.step
            assert there == Stepper(reading.walk(session_id), there.seq).step
            at = reading.at(session_id, there.seq)
            assert (there.event, there.verdict, there.state) == (at.event, at.verdict, at.row("sessions"))
            assert list(there.open) == at.open()
            below = reading.at(session_id, there.seq - 1) if there.seq > 1 else None
            changed: dict[str, list[RowId]] = {}
            for name, ids in at.changed.items():
                for row_id in ids:
                    before = None if below is None else below.row(name, row_id)
                    if before != at.row(name, row_id):
                        changed.setdefault(name, []).append(row_id)
                        (change,) = [each for each in there.changes if (each.projection, each.id) == (name, row_id)]
                        assert change.after == at.row(name, row_id)
                        assert change.before == before
            assert sum(map(len, changed.values())) == len(there.changes)
