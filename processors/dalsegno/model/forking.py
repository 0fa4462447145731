"""Where a fork may begin: directly before a turn, where nothing is open. Pure.

So no fork begins with a call, an approval or an input that is half done: what was recorded of the turn happens again in
the fork, or something else happens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from dalsegno.model.history import ForkPoint, is_fork
from dalsegno.model.lifecycle import MemoryOps, SessionState, inherit, judge
from dalsegno.model.lifecycle.state import ENDED, id_in
from dalsegno.model.records import FIRST_SEQ, Event

TURN_TYPE = "TurnStarted"
TRIALS: Final = frozenset({"DEBUG", "DATASET", "WHAT_IF"})
"""Purposes of forks in which something is tried: replays write such. Nobody waits for them, and without somebody's word
they do not act on the world."""


class Boundary(NamedTuple):
    """Where a fork begins: it takes over ``at``, a record of ``session_id``, and all that stands before it."""

    session_id: str
    """The parent that the fork must name: the session asked for, or the ancestor that the record belongs to."""
    at: ForkPoint
    event_id: str | None
    turn_id: str
    """The turn that begins behind it in the parent."""
    snapped_back: int
    """How many events the turn's beginning stands before the event that was asked for; 0 if it is that event."""


def fork_point(history: Iterable[Event], session_id: str, at: int | None) -> Boundary | str:
    """The last place directly before a ``TurnStarted`` at or below ``at`` at which nothing is open (rule S6); else the
    reason why there is none.

    ``history``: that of ``session_id`` through forks (``dalsegno.model.history.whole_history``); ``at`` is one of the
    session's own seqs, None its last. It is read no further than that.
    """
    found: tuple[Boundary, int] | None = None
    above, state, ops = SessionState(), SessionState(), MemoryOps()
    before: Event | None = None
    count = turns = 0
    for event in history:
        if at is not None and event.session_id == session_id and event.seq > at:
            break
        if event.seq == FIRST_SEQ:  # an ancestor's part is over
            above, state, ops = state, SessionState(), MemoryOps()
        if is_fork(event):
            inherit(above, state)
        # As rule S6 asks of the state that a fork takes over.
        may_begin = state.operations_open() == 0 and state.status not in ENDED
        good = not judge(state, ops, event).violations
        count += 1
        if event.type == TURN_TYPE and good:
            turns += 1
            if may_begin and before is not None:
                point = ForkPoint(before.seq, before.hash)
                turn_id = id_in(event.body, "turn_id")
                found = Boundary(before.session_id, point, before.meta.get("event_id"), turn_id, 0), count
        before = event
    if found is not None:
        boundary, place = found
        return boundary._replace(snapped_back=count - place)
    where = "in it" if at is None else f"at or below seq {at}"
    return f"something is open before each turn that begins {where}" if turns else f"no turn begins {where}"
