"""A run that is written as a fork: from the turn boundary at or below an event on, with recorded facts where they fit.

(1) the fork is begun in the log (``Publisher.fork``); (2) other documents, if any, are pinned from the next turn on;
(3) the run appends to it: decisions, served facts, each naming by ``meta.origin`` the event that it repeats, and new
ones. The parent is never written to. A crash leaves a fork that ends early; another fork of the same place is as good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dalsegno.errors import NotReconstructable
from dalsegno.harness.conductor import Conductor
from dalsegno.harness.past import StoredContents, history
from dalsegno.harness.performing import Ports
from dalsegno.harness.writers import LogWriter
from dalsegno.log.history import SessionSource
from dalsegno.log.publisher import Publisher
from dalsegno.model.forking import Boundary
from dalsegno.model.payloads import ForkPurpose
from dalsegno.model.records import Event
from dalsegno.orchestration.configuration import PinnedDocument, pins
from dalsegno.replay.again import place_behind, up_to
from dalsegno.replay.rerun import People, Rerun, Runner
from dalsegno.replay.serving import Recording
from dalsegno.replay.strategy import Strategy

WITHOUT: Final = frozenset({"SessionRecovered"})
"""Not served into a fork: its writer did not crash there."""


@dataclass(frozen=True)
class Forked:
    """``boundary``: where it left its parent; ``recorded``: what was looked at of the parent behind that; ``open_end``:
    the parent had not ended there; ``result``: what the run came to; ``events``: the fork's own, its first two and its
    documents among them."""

    session_id: str
    boundary: Boundary
    recorded: Sequence[Event]
    open_end: bool
    result: Rerun
    events: Sequence[Event]


def run_in_fork(
    publisher: Publisher,
    parent_id: str,
    at: int | None,
    strategy: Strategy,
    ports: Ports | None = None,
    *,
    purpose: ForkPurpose = "WHAT_IF",
    documents: Sequence[PinnedDocument] = (),
    until: int | None = None,
    suffix: str | None = None,
    source: SessionSource | None = None,
    people: People | None = None,
    step: Callable[[Event], None] | None = None,
    **options: Any,
) -> Forked:
    """``at``: a seq of the parent (None: its last event). ``documents``: pinned in the fork, by kind, from its first
    turn on. ``until``: a seq of the parent, behind which nothing is looked at. Raises NoForkPoint,
    NotReconstructable, and what appending does."""
    parent = history(publisher, parent_id, source)
    with publisher.fork(parent_id, at, purpose=purpose, suffix=suffix, **options) as session:
        boundary = session.forked_at
        assert boundary is not None
        place = place_behind(parent, boundary)
        before, behind = parent[:place], up_to(parent, until)[place:]
        conductor = Conductor(LogWriter(session), StoredContents(publisher.blobs))
        conductor.take_in(before)
        own = history(publisher, session.session_id, source)[len(before) :]
        conductor.take_in(own)
        for pin in pins(documents, "NEXT_TURN"):
            own.append(conductor.append(pin))
        recording = Recording.of(behind, before)
        recording.hold(WITHOUT)
        runner = Runner(conductor, recording, strategy, ports, effects=recording.effects, people=people, step=step)
        try:
            result = runner.run()
        except NotReconstructable as error:
            error.data["fork"] = session.session_id
            error.todo += f"; what was decided up to there stands in {session.session_id}"
            raise
    return Forked(session.session_id, boundary, behind, recording.unended, result, [*own, *result.events])
