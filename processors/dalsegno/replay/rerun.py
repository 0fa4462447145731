"""A run of a session's decisions again: the live loop with recorded facts in the place of the world.

(1) append what is due until nothing is; (2) serve the first recorded fact that fits what is open now; (3) where none
does, do what the strategy says of what is outstanding: ask a model again, simulate or execute a tool, or stop. State
comes from the run's own decisions, so a changed decision has its consequences; runs are compared by domain id.

The world is only what the caller hands in: without a provider no model can be asked, without tools none can run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from dalsegno.errors import InvalidEvent, NotReconstructable
from dalsegno.harness.conductor import Conductor
from dalsegno.harness.people import ScriptedPeople
from dalsegno.harness.performing import Ports, act_of, intent_of
from dalsegno.model.events import NewEvent, Origin
from dalsegno.model.lifecycle.state import bounded
from dalsegno.model.records import Event
from dalsegno.orchestration.decider import World, configuration_in_force, next_decision
from dalsegno.orchestration.work import Kind, Work, outstanding
from dalsegno.projections.decider.rows import APPROVAL, CALL, REQUEST, CallState
from dalsegno.replay.check import Override
from dalsegno.replay.served import fact, new_event, recovered
from dalsegno.replay.serving import EXACT, INEXACT, RESULTS, CallKey, Counts, Effects, Recording, Served
from dalsegno.replay.strategy import Strategy
from dalsegno.replay.subjects import BEGINNINGS

People: TypeAlias = Callable[[World], NewEvent | None]
"""Who is asked what persons are asked: the answer to something that is open, or None where nobody gives one."""
MAX_STEPS: Final = 1_000_000
_TODO: Final = "use --on-miss stop, or another source for it"


@dataclass
class Rerun:
    """What a run came to. ``stopped``: why it did not reach the session's end; ``left_over``: recorded results that
    nothing asked for; ``inexact``: (seq of the recorded event, why) of those served without being exact."""

    events: list[Event] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    inexact: list[tuple[int, str]] = field(default_factory=list)
    left_over: Sequence[Event] = ()
    stopped: str | None = None
    ended: bool = False


class Runner:
    """One run. ``conductor``: over a writer that may be written to, with the rows of where the run begins. ``people``:
    answers what is asked of persons, where no recorded answer fits; None: nobody does."""

    def __init__(
        self,
        conductor: Conductor,
        recording: Recording,
        strategy: Strategy,
        ports: Ports | None = None,
        *,
        override: Override | None = None,
        keys: Mapping[str, CallKey] | None = None,
        effects: Effects | None = None,
        step: Callable[[Event], None] | None = None,
        people: People | None = None,
    ) -> None:
        self.conductor = conductor
        self._recording = recording
        self._strategy = strategy
        self._ports = ports
        self._override = override
        self._keys: dict[str, CallKey] = dict(keys or {})
        self._effects = Effects() if effects is None else effects
        self._step = step
        self._people = people
        self.result = Rerun()
        self._reuse = strategy.compression == "recorded"
        recording.hold(strategy.held, reuse=self._reuse)
        if isinstance(people, ScriptedPeople):
            session = conductor.rows.head_row.session if conductor.rows.head_row is not None else ""
            recording.put_aside(
                lambda event: (
                    event.type == "InputProvided"
                    and people.answers_question(bounded(event.body["request_id"]), session)
                )
            )

    @property
    def world(self) -> World:
        rows, contents = self.conductor.rows, self.conductor.contents
        pinned = configuration_in_force(rows, contents)
        return World(rows, pinned if self._override is None else self._override(pinned), contents)

    def run(self) -> Rerun:
        result = self.result
        for _ in range(self._recording.forks_pins):
            self._serve()  # a fork's first turn is begun by them
        for _ in range(MAX_STEPS):
            self._drain()
            if not self.conductor.running:
                result.ended = True
                break
            if self._serve() or self._do_outstanding():
                continue
            if result.stopped is None:
                if self._serve(wherever=True):
                    continue
                self._unanswered()
            break
        result.left_over = self._recording.left_over
        return result

    # --- (1) ----------------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        while self.conductor.running:
            decision = next_decision(self.world)
            if decision is None:
                return
            self._append(self._reused(decision))

    def _reused(self, decision: NewEvent) -> NewEvent:
        recorded = self._recording.compressions.reused(decision, self.conductor.contents) if self._reuse else None
        self.result.counts.reused += recorded is not None
        return decision if recorded is None else recorded

    def _append(self, event: NewEvent, **how: Any) -> Event:
        appended = self.conductor.append(event, **how)
        self.result.events.append(appended)
        self._recording.places.passed(appended)
        if appended.type == "ToolCallAuthorized":
            id = appended.body["tool_call_id"]
            call: CallState = self.conductor.rows.get((CALL, id))
            arguments = appended.body["effective_arguments_digest"] or b""
            self._keys[id] = CallKey(id.rpartition("/")[0], call.name, arguments, self._effects.digest)
            if call.effect != "READ":
                self._effects.add(call.name, arguments)
        if self._step is not None:
            self._step(appended)
        return appended

    # --- (2) ----------------------------------------------------------------------------------------------------------

    def _serve(self, *, wherever: bool = False) -> bool:
        served = self._recording.next(self.conductor.rows, self._keys, reuse=self._reuse, wherever=wherever)
        if served is None:
            return False
        if not served.exact and self._strategy.inference == "recorded-else-rerun" and not _is_result(served):
            # Our code asks something else now: the recorded answer is no answer to it.
            return True
        event = served.event
        if event.type == "SessionRecovered":
            last = self.conductor.writer.last  # type: ignore[attr-defined]
            self._append(recovered(event, self.conductor.rows, last), epoch=last.epoch + 1)
            return True
        how: dict[str, Any] = {"actor": (event.meta.get("actor_kind", "UNKNOWN"), event.meta.get("actor_id", ""))}
        if event.type not in BEGINNINGS:
            kind = EXACT if served.exact else INEXACT
            how["origin"] = Origin(importer=kind, native_ref=f"{event.session_id}:{event.seq}", synthesized=False)
            self._count(served)
        try:
            self._append(fact(served, self.conductor.rows), **how)
        except InvalidEvent as error:
            self.result.inexact.append((event.seq, error.found))
            self.result.counts.missed += 1
        return True

    def _count(self, served: Served) -> None:
        if served.exact:
            self.result.counts.exact += 1
        else:
            self.result.counts.inexact += 1
            self.result.inexact.append((served.event.seq, served.why))

    # --- (3) ----------------------------------------------------------------------------------------------------------

    def _do_outstanding(self) -> bool:
        world = self.world
        for work in outstanding(world):
            if work.kind in (Kind.EXPIRE_APPROVAL, Kind.EXPIRE_INPUT, Kind.FIRE_TIMER):
                continue  # no clock runs in a replay
            return self._do(work, world)
        started = sorted(id for id, call in world.rows.family(CALL).items() if call.phase == "STARTED")
        if started:  # as it was recorded, but what came of it was not
            return self._after_start(Work(Kind.RUN_TOOL, started[0], world.call(started[0]).attempt))
        answer = None if self._people is None else self._people(world)
        if answer is not None:
            self._append(answer, actor=("USER", "script"))
            return True
        return self._deny(world) if self._strategy.denies else False

    def _do(self, work: Work, world: World) -> bool:
        ports = self._ports
        if work.kind in (Kind.BEGIN_STAGE, Kind.RUN_TOOL):
            intent = intent_of(work, world, ports or _NOTHING, self.conductor.writer.session_id)
            assert intent is not None
            self._append(intent)
            if work.kind == Kind.BEGIN_STAGE:
                return True
            return self._after_start(work)
        if work.kind == Kind.CALL_OFF:  # nobody outside is asked
            call_off = act_of(work, world, ports or _NOTHING, self.conductor.writer.session_id)
            assert call_off is not None
            self._append(call_off())
            return True
        if work.kind == Kind.INFER:
            may = self._strategy.inference != "recorded" and ports is not None
            if not may:
                return self._missed(work, "the recording has no answer for it")
            done = self._act(work, world)
            self.result.counts.rerun += done
            return done
        if self._may_ask(work.kind):
            return self._act(work, world)
        return self._missed(work, "the recording has no fact for it")

    def _may_ask(self, kind: Kind) -> bool:
        """Reporters and retrievers that are handed in are asked where tools are."""
        ports = self._ports
        if ports is None or self._strategy.tools == "receipts":
            return False
        return bool(ports.reporters) if kind == Kind.REPORT else kind == Kind.RETRIEVE and ports.retriever is not None

    def _after_start(self, work: Work) -> bool:
        """A call was begun; what comes of it is served, or made."""
        if "ToolReceiptRecorded" not in self._recording.held_types:
            if self._recording.has_result(self.conductor.rows, self._keys):
                return True
            if self._strategy.on_miss != "simulate":
                return self._missed(work, "the recording has no result of such a call")
        done = self._act(work, self.world)
        if done and self._strategy.tools == "execute":
            self.result.counts.rerun += 1
        elif done:
            self.result.counts.simulated += 1
        return done

    def _act(self, work: Work, world: World) -> bool:
        if self._ports is None:
            return self._missed(work, "nothing was given that could do it")
        ports = self._ports
        if work.kind == Kind.RUN_TOOL and self._strategy.tools != "execute":
            call = world.call(work.id)
            call.simulate = True
        act = act_of(work, world, ports, self.conductor.writer.session_id)
        if act is None:
            return False
        self._append(act())
        return True

    def _deny(self, world: World) -> bool:
        for id, approval in sorted(world.rows.family(APPROVAL).items()):
            if approval.phase == "OPEN":
                self._append(
                    new_event(
                        "ApprovalDenied",
                        {"approval_id": id, "effect": "CONTINUE", "rejection_source": "POLICY",
                         "explanation": "a replay gives no leave"},
                    ),
                    actor=("OPERATOR", "replay"),
                )  # fmt: skip
                return True
        return False

    def _unanswered(self) -> None:
        """Nothing is left to do but to wait, and nobody comes."""
        rows = self.conductor.rows
        asked = {**rows.family(APPROVAL), **rows.family(REQUEST)}
        waits_for = next((id for id, each in sorted(asked.items()) if each.phase == "OPEN"), None)
        if waits_for is not None:
            self._miss(f"nobody answers {waits_for}", waits_for, f"{_TODO}: --approvals deny, or script")
        else:
            self.result.stopped = "nothing that was recorded fits what the session waits for"

    def _missed(self, work: Work, why: str) -> bool:
        self._miss(f"{work.kind.value} of {work.id}: {why}", work.id)
        return False

    def _miss(self, said: str, about: str, todo: str = _TODO) -> None:
        if self._recording.is_over:
            self.result.stopped = "the recording ends here"
            return
        self.result.counts.missed += 1
        self.result.stopped = said
        if self._strategy.on_miss == "fail":
            raise NotReconstructable(
                said,
                wanted="a recorded fact, or a strategy that makes one",
                todo=todo,
                subject=about,
                missed=1,
            )


def _is_result(served: Served) -> bool:
    return served.event.type in RESULTS


class _NoClock:
    def now(self) -> int:
        return 0


_NOTHING: Final = Ports(clock=_NoClock())
