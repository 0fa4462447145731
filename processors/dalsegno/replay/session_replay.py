"""Replaying one session's decisions, in any of the modes that look at them. Pure but for the ports it is handed.

There are two ways. *Check* (inference-skipping): state from the record, each decision compared on its own. *Run* (full,
simulation): the decisions made again, facts served from the record or made by the ports. ``modes.py`` has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dalsegno.errors import DalsegnoError, NotReconstructable
from dalsegno.harness.conductor import Store
from dalsegno.harness.performing import Ports
from dalsegno.model.forking import Boundary, fork_point
from dalsegno.model.records import Event
from dalsegno.orchestration.configuration import PinnedDocument
from dalsegno.orchestration.decider import configuration_in_force
from dalsegno.replay.again import own_start, place_behind, runner_from, up_to
from dalsegno.replay.check import Checked, Checker, Override, configuration_digest, other_versions
from dalsegno.replay.observed import check_observed
from dalsegno.replay.replayed import KEPT, POLICY_DIGESTS, Replayed
from dalsegno.replay.rerun import People
from dalsegno.replay.serving import Recording
from dalsegno.replay.strategy import Strategy


@dataclass(frozen=True)
class Asked:
    """One session to replay, and how. ``start``: decisions below it are taken as recorded (a run begins at the turn
    boundary at or below); ``until``: the last seq that is looked at. Both are seqs of the session itself."""

    history: Sequence[Event]
    strategy: Strategy
    contents: Store | None = None
    override: Override | None = None
    documents: Sequence[PinnedDocument] = ()
    """Those that ``override`` decides by, for a fork to pin."""
    ports: Ports | None = None
    people: People | None = None
    start: int = 1
    until: int | None = None
    step: Callable[[Event], None] | None = None
    changed: str = ""
    """Says by which documents ``override`` decides, and ``people``: what a result follows from is in its identity."""

    @property
    def decides_otherwise(self) -> bool:
        """Whether another configuration than the pinned one decides."""
        return self.override is not None

    @property
    def told(self) -> str:
        """The strategy, with all else that was asked for."""
        said = [str(self.strategy)]
        said += [f"from={self.start}"] if self.start > 1 else []
        said += [] if self.until is None else [f"until={self.until}"]
        return " ".join([*said, self.changed] if self.changed else said)

    @property
    def looked_at(self) -> list[Event]:
        """The history up to ``until``. Raises NotReconstructable where that is nothing."""
        found = up_to(self.history, self.until)
        if not found:
            limit = "" if self.until is None else f" up to seq {self.until}"
            raise NotReconstructable(f"the session has no event that counts{limit}", wanted="one that breaks no rule")
        return found

    @property
    def session_id(self) -> str:
        return self.history[-1].session_id

    @property
    def own_start(self) -> int:
        """The place in the history of the first event that is looked at."""
        for place, event in enumerate(self.history):
            if event.session_id == self.session_id and event.seq >= self.start:
                return place
        return len(self.history)


def replay_session(asked: Asked) -> Replayed:
    """Raises NotReconstructable where there is nothing to look at, where a run misses a fact and its strategy says to
    fail, or a content is missing."""
    if asked.strategy.mode == "inference-skipping":
        return nothing_there(asked) or _checked(asked)
    return cannot_run(asked) or _run(asked)


def nothing_there(asked: Asked) -> Replayed | None:
    """The answer where nothing is at the start or behind it. Raises NotReconstructable where nothing is at all."""
    last = asked.looked_at[-1].seq
    if asked.start <= last:
        return None
    result = Replayed(asked.session_id, asked.strategy.mode, asked.told)
    result.not_comparable[f"nothing at seq {asked.start} or behind it; what is looked at ends at {last}"] += 1
    return result


def ended_early(session_id: str, asked: Asked, error: DalsegnoError, ran: Sequence[Event] = ()) -> Replayed:
    """The answer for a session that an error ended: a miss, or what cannot be read or forked. Others go on. ``ran``:
    what the run came to before."""
    result = Replayed(session_id, asked.strategy.mode, asked.told, events=len(asked.history), stopped=error.found)
    result.todo = error.todo or None
    result.fork, result.counts.missed = error.data.get("fork"), error.data.get("missed", 0)
    seq = error.data.get("seq")
    if seq is not None:
        result.unreconstructable = (seq, error.found)
    if result.counts.missed:
        result.of_miss(asked.looked_at, ran, config=asked.decides_otherwise)
    return result


def is_decided(history: Sequence[Event]) -> bool:
    """Whether dalsegno's decider decided it (profile STRICT); other sessions are checked on what they say. One whose
    creation was erased may have been: it is not taken for one of the others."""
    return history[0].stub is not None or history[0].body.get("profile") == "STRICT"


# --- check ------------------------------------------------------------------------------------------------------------


def _checked(asked: Asked) -> Replayed:
    result = Replayed(asked.session_id, asked.strategy.mode, asked.told)
    history = asked.looked_at
    if not is_decided(history):
        return _observed(result, history)
    place = asked.own_start
    checker = Checker(
        asked.contents,
        override=asked.override,
        ignore=POLICY_DIGESTS if asked.decides_otherwise else frozenset(),
        reuse=asked.strategy.compression == "recorded",
        keep=KEPT,
    )
    checker.compare = place == 0
    for number, event in enumerate(history):
        if number == place:
            checker.compare = True
        checker.take(event)
        if asked.step is not None:
            asked.step(event)
    return _from_check(result, checker.result)


def _from_check(result: Replayed, found: Checked) -> Replayed:
    result.events, result.compared, result.equal, result.diverged = (
        found.events, found.compared, found.equal, found.diverged,
    )  # fmt: skip
    result.divergences, result.not_comparable = found.divergences, found.not_comparable
    result.unreconstructable, result.what_if = found.unreconstructable, found.what_if
    result.identity = found.identity(result.strategy)
    return result.settle()


def _observed(result: Replayed, history: Sequence[Event]) -> Replayed:
    found = check_observed(history)
    result.events, result.compared, result.equal = len(history), found.compared, found.equal
    result.diverged, result.derived = found.different, found.derived
    result.divergences, result.not_comparable = found.divergences[:KEPT], found.not_comparable
    plain = Checked(head_hash=history[-1].hash)
    result.identity = plain.identity(result.strategy)
    return result.settle()


# --- run --------------------------------------------------------------------------------------------------------------


def cannot_run(asked: Asked) -> Replayed | None:
    """The answer for a session whose decisions cannot be made again, whatever is given; None: they can be tried. Raises
    as ``nothing_there``."""
    nothing = nothing_there(asked)
    if nothing is not None:
        return nothing
    history = asked.looked_at
    result = Replayed(asked.session_id, asked.strategy.mode, asked.told, events=len(history))
    if not is_decided(history):
        result.not_comparable["the session is not decided by a decider"] += 1
        return result
    result.unreconstructable = _gap(history)
    return None if result.unreconstructable is None else result


def _run(asked: Asked) -> Replayed:
    history = asked.looked_at
    result = Replayed(asked.session_id, asked.strategy.mode, asked.told, events=len(history))
    begun, result.snapped_back = _beginning(asked)
    before, behind = history[:begun], history[begun:]
    recording = Recording.of(behind, before)
    runner = runner_from(
        before, recording, asked.strategy, asked.ports,
        contents=asked.contents, override=asked.override, step=asked.step, people=asked.people,
    )  # fmt: skip
    try:
        configuration_in_force(runner.conductor.rows, runner.conductor.contents)
    except NotReconstructable as error:
        result.unreconstructable = (behind[0].seq if behind else before[-1].seq, error.found)
        return result
    run = runner.run()
    result.of_run(behind, run, config=asked.decides_otherwise, open_end=recording.unended)
    given = runner.world.configuration
    result.what_if = other_versions(given.build)
    if not run.counts.rerun and not run.counts.simulated:  # else it follows from what was answered now, too
        plain = Checked(head_hash=history[-1].hash, configuration=configuration_digest(given.digests))
        result.identity = plain.identity(result.strategy)
    return result


def _gap(history: Sequence[Event]) -> tuple[int, str] | None:
    """From which seq on, and why, the record does not hold what decisions follow from."""
    for event in history:
        if event.stub is not None:
            return event.seq, f"the {event.type} at seq {event.seq} was {event.stub.lower()}"
        if event.type == "CompressionCompleted" and event.body["effect"] == "MARKER_ONLY":
            return event.seq, f"the compression at seq {event.seq} says only that it happened"
    return None


def _beginning(asked: Asked) -> tuple[int, int]:
    """The place in the history at which the run begins, and by how many events that is before what was asked for."""
    history = asked.history
    first = own_start(history)
    found = fork_point(history, asked.session_id, asked.start) if asked.own_start > first else None
    if isinstance(found, Boundary):
        place = place_behind(history, found)
        if place >= first:
            return place, found.snapped_back
    return first, max(0, asked.own_start - first)
