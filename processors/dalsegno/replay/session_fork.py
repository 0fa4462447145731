"""Replaying one session as a fork of it, and what that came to beside the recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dalsegno.errors import NotReconstructable
from dalsegno.log.publisher import Publisher
from dalsegno.model.records import Event
from dalsegno.replay.forked import run_in_fork
from dalsegno.replay.replayed import Replayed
from dalsegno.replay.session_replay import Asked, cannot_run


def fork_session(asked: Asked, open_publisher: Callable[[], Publisher]) -> Replayed:
    """The fork pins ``asked.documents``. What cannot be made again leaves no fork, and opens nothing. Raises what
    ``run_in_fork`` does."""
    refused = cannot_run(asked)
    if refused is not None:  # before anything is written
        return refused
    result = Replayed(asked.session_id, asked.strategy.mode, asked.told, events=len(asked.looked_at))
    at = asked.start if asked.start > 1 else _first_turn(asked.looked_at)
    with open_publisher() as publisher:
        forked = run_in_fork(
            publisher, asked.session_id, at, asked.strategy, asked.ports, documents=asked.documents,
            people=asked.people, until=asked.until, step=asked.step,
            purpose="WHAT_IF" if asked.documents else "DATASET",
        )  # fmt: skip
    result.fork, result.snapped_back = forked.session_id, forked.boundary.snapped_back
    result.identity = forked.events[-1].hash.hex()
    return result.of_run(
        forked.recorded, forked.result, config=asked.decides_otherwise, open_end=forked.open_end
    )  # fmt: skip


def _first_turn(history: Sequence[Event]) -> int:
    own = history[-1].session_id  # a fork's seqs are those behind its ancestors'
    found = next((event for event in history if event.type == "TurnStarted" and event.session_id == own), None)
    if found is None:
        raise NotReconstructable("the session never began a turn", wanted="a session with a turn to begin again from")
    return found.seq
