"""All of a session decided again in memory, by this build, from its recorded facts; nothing outside is asked. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from dalsegno.errors import NotReconstructable
from dalsegno.harness.conductor import Conductor, Store
from dalsegno.harness.performing import Ports
from dalsegno.harness.writers import Recorder
from dalsegno.model.forking import Boundary
from dalsegno.model.history import is_fork
from dalsegno.model.records import Event
from dalsegno.orchestration.decider import MemoryContents
from dalsegno.replay.check import Override
from dalsegno.replay.rerun import People, Rerun, Runner
from dalsegno.replay.serving import Recording
from dalsegno.replay.strategy import Strategy

STRATEGY: Final = Strategy(mode="simulation", compression="recompute", on_miss="stop")


def decide_again(history: Sequence[Event], contents: Store | None = None) -> tuple[list[Event], Rerun]:
    """``history``: of the session, with what it, as a fork, takes over. What stands before the first decision of its
    own is taken as it is: of a fork all that it takes over, else all up to its start. All events, and what the run came
    to. Raises NotReconstructable where a session never started, or a content is missing."""
    begun = own_start(history)
    before, behind = list(history[:begun]), history[begun:]
    result = runner_from(before, Recording.of(behind, before), STRATEGY, contents=contents).run()
    return [*before, *result.events], result


def own_start(history: Sequence[Event]) -> int:
    """The place in a history behind which its last session decides for itself. Raises NotReconstructable."""
    starts = [place for place, event in enumerate(history, 1) if event.type == "SessionStarted" or is_fork(event)]
    if not starts:
        raise NotReconstructable("the session never started", wanted="a session that decided something")
    return starts[-1]


def up_to(history: Sequence[Event], last: int | None) -> list[Event]:
    """A history up to a seq of the session itself; None: all of it."""
    return [
        event for event in history if last is None or event.session_id != history[-1].session_id or event.seq <= last
    ]


def place_behind(history: Sequence[Event], boundary: Boundary) -> int:
    """The place in a history behind the event that a fork of it goes on from. Raises NotReconstructable."""
    for place, event in enumerate(history, 1):
        if (event.session_id, event.seq) == (boundary.session_id, boundary.at.seq):
            return place
    raise NotReconstructable(
        f"seq {boundary.at.seq} of {boundary.session_id} is not in the history of its fork",
        wanted="the event that the fork goes on from",
        seq=boundary.at.seq,
    )


def runner_from(
    before: Sequence[Event],
    recording: Recording,
    strategy: Strategy,
    ports: Ports | None = None,
    *,
    contents: Store | None = None,
    override: Override | None = None,
    step: Callable[[Event], None] | None = None,
    people: People | None = None,
) -> Runner:
    """A run in memory that goes on behind these events, which are taken as they are."""
    conductor = Conductor(
        Recorder(before[-1].session_id, lambda: 0, after=_as_one(before)),
        MemoryContents() if contents is None else contents,
    )
    conductor.take_in(before)
    return Runner(
        conductor, recording, strategy, ports,
        override=override, effects=recording.effects, step=step, people=people,
    )  # fmt: skip


def _as_one(events: Sequence[Event]) -> list[Event]:
    """As one session's: to the lifecycle's rules a second creation would be one too many."""
    return [
        event
        for place, event in enumerate(events)
        if not is_fork(event) and (place == 0 or event.type != "SessionCreated")
    ]
