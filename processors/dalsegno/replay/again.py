"""All of a session decided again in memory, by this build, from its recorded facts; nothing outside is asked. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dalsegno.errors import NotReconstructable
from dalsegno.harness.conductor import Conductor, Store
from dalsegno.harness.writers import Recorder
from dalsegno.model.history import is_fork
from dalsegno.model.records import Event
from dalsegno.orchestration.decider import MemoryContents
from dalsegno.replay.rerun import Rerun, Runner, Strategy
from dalsegno.replay.serving import Recording

STRATEGY: Final = Strategy(mode="simulation", inference="recorded", tools="receipts", on_miss="stop")


def decide_again(history: Sequence[Event], contents: Store | None = None) -> tuple[list[Event], Rerun]:
    """``history``: of the session, with what it, as a fork, takes over. What stands before the first decision of its
    own is taken as it is: of a fork all that it takes over, else all up to its start. All events, and what the run came
    to. Raises NotReconstructable where a session never started, or a content is missing."""
    begun = _begun(history)
    before, behind = list(history[:begun]), history[begun:]
    conductor = Conductor(
        Recorder(history[-1].session_id, lambda: 0, after=_without_forks(before)),
        MemoryContents() if contents is None else contents,
    )
    conductor.take_in(before)
    recording = Recording.of(behind, before)
    result = Runner(conductor, recording, STRATEGY, effects=recording.effects).run()
    return [*before, *result.events], result


def _begun(history: Sequence[Event]) -> int:
    forks = [place for place, event in enumerate(history, 1) if is_fork(event)]
    starts = [place for place, event in enumerate(history, 1) if event.type == "SessionStarted"]
    if not starts:
        raise NotReconstructable("the session never started", wanted="a session that decided something")
    return forks[-1] if forks else starts[0]


def _without_forks(events: Sequence[Event]) -> list[Event]:
    """As one session's: to the lifecycle's rules a second creation would be one too many."""
    return [
        event
        for place, event in enumerate(events)
        if not is_fork(event) and (place == 0 or event.type != "SessionCreated")
    ]
