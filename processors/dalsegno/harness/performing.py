"""Doing one piece of outstanding work through the ports: what a session asks of the world, in a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from dalsegno.harness import facts
from dalsegno.model.events import (
    ApprovalExpired,
    InputProvided,
    NewEvent,
    NoteRecorded,
    StageStarted,
    SubSessionEnded,
    TimerFired,
    ToolCallStarted,
)
from dalsegno.orchestration.decider import World
from dalsegno.orchestration.decider.packs import request as request_of
from dalsegno.orchestration.ports import (
    Clock,
    InferenceError,
    Provider,
    Reporter,
    Request,
    Retriever,
    ToolFailed,
    ToolRun,
    Tools,
    Verdict,
)
from dalsegno.orchestration.work import Kind, Work
from dalsegno.projections.decider.rows import LISTED
from dalsegno.projections.decider.table import MemoryRows

Act = Callable[[], NewEvent]
"""Does it, and gives the event that says what came of it. Raises nothing that is no bug."""


class Unfinished(BaseException):
    """A sub-session stopped before its end, as who runs it wished: of its call there is nothing to say."""


PROVIDER_DEFAULT: Final = "*"
_LABEL: Final = 200


@dataclass(frozen=True)
class Ports:
    """``providers``: by the name that agents give, ``*`` for any other. What is None was not given: a session that
    asks for it is told so by an event."""

    clock: Clock
    providers: Mapping[str, Provider] = field(default_factory=dict)
    tools: Tools | None = None
    reporters: Mapping[str, Reporter] = field(default_factory=dict)
    retriever: Retriever | None = None
    sleep: Callable[[float], None] = time.sleep
    """Seconds before another attempt; a simulation does not wait."""
    worker: str = "harness"
    sub_session: Callable[[str, str, bytes, str], SubSessionEnded] | None = None
    """(child session, workflow, goal, call id) -> how it ended. Raises Unfinished."""
    cancel_below: Callable[[MemoryRows, str], list[str]] | None = None
    """(rows, session that has ended): asks the sub-sessions of its open calls to end, and gives them, at once."""


def intent_of(work: Work, world: World, ports: Ports, session_id: str) -> NewEvent | None:
    """What is appended before the work is begun, so that a crash shows that it may have begun."""
    if work.kind == Kind.BEGIN_STAGE:
        return StageStarted(stage_id=work.id, worker=ports.worker)
    if work.kind != Kind.RUN_TOOL:
        return None
    call = world.call(work.id)
    spec = world.tool(call.name)
    delegated = spec is not None and spec.workflow is not None and not call.simulate
    child = f"{session_id}/{work.id}".replace("~", "-") if delegated else None
    return ToolCallStarted(
        tool_call_id=work.id,
        attempt=work.attempt,
        executor="sub-session" if child else ports.tools.name if ports.tools is not None else "none",
        # Only who honours a key is given one: its being there says that an unknown outcome may be tried again. A
        # sub-session does: it goes on where it was.
        idempotency_key=_key(session_id, work.id) if child or (spec is not None and spec.idempotent) else None,
        child_session=child,
    )


def _key(session_id: str, call_id: str) -> str:
    """The same for every attempt of a call, and no other's."""
    return sha256(f"{session_id}\0{call_id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def act_of(work: Work, world: World, ports: Ports, session_id: str) -> Act | None:
    """What is done in a thread; None: the intent was all. Everything that it needs of the rows is taken now."""
    make = _ACTS.get(work.kind)
    return None if make is None else make(work, world, ports, session_id)


def _infer(work: Work, world: World, ports: Ports, session_id: str) -> Act:
    state = world.inference(work.id)
    assert state is not None
    asked = request_of(world, work.id)
    request = Request(
        session_id=session_id,
        inference_id=work.id,
        attempt=work.attempt,
        provider=asked.agent.provider,
        model=asked.agent.model,
        params=asked.agent.params,
        messages=asked.messages,
        tools=asked.tools,
        request_digest=state.request_digest or b"",
    )
    provider = ports.providers.get(request.provider) or ports.providers.get(PROVIDER_DEFAULT)
    delay = (state.delay_ms or 0) / 1000

    def act() -> NewEvent:
        if provider is None:
            missing = InferenceError("no-provider", f"no provider {request.provider!r} is open here", retryable=False)
            return facts.inference_failed(work.id, work.attempt, missing)
        ports.sleep(delay)
        began = time.monotonic()
        try:
            answer = provider.complete(request)
            if len(answer.calls) > LISTED:
                asks = f"one answer asks for {len(answer.calls)} calls, more than {LISTED}"
                raise InferenceError("too-many-calls", asks, retryable=False)
        except InferenceError as error:
            return facts.inference_failed(work.id, work.attempt, error)
        except Exception as error:
            broke = InferenceError("provider-error", f"{type(error).__name__}: {error}", retryable=False)
            return facts.inference_failed(work.id, work.attempt, broke)
        return facts.completed(work.id, work.attempt, answer, latency_ms=int((time.monotonic() - began) * 1000))

    return act


def _run_tool(work: Work, world: World, ports: Ports, session_id: str) -> Act:
    call = world.call(work.id)
    spec = world.tool(call.name)
    arguments = world.contents.get(call.effective)
    if call.child:
        return _sub_session(work, ports, call.child, "" if spec is None else spec.workflow or "", arguments)
    run = ToolRun(
        session_id=session_id,
        tool_call_id=work.id,
        attempt=work.attempt,
        name=call.name,
        arguments=arguments,
        idempotency_key=_key(session_id, work.id),
        timeout_seconds=None if spec is None or spec.timeout_seconds is None else float(spec.timeout_seconds),
        simulate=call.simulate,
    )
    tools, clock, delay = ports.tools, ports.clock, (call.delay_ms or 0) / 1000

    def act() -> NewEvent:
        if tools is None:
            return facts.tool_failed(work.id, work.attempt, ToolFailed("INFRA", "no tools here", not_started=True))
        ports.sleep(delay)
        started = clock.now()
        try:
            result = tools.run(run)
        except ToolFailed as error:
            return facts.tool_failed(work.id, work.attempt, error)
        except Exception as error:
            broke = ToolFailed("EXECUTOR_CRASH", f"{type(error).__name__}: {error}")
            return facts.tool_failed(work.id, work.attempt, broke)
        return facts.receipt(work.id, work.attempt, result, started_at=started, ended_at=max(started, clock.now()))

    return act


def _call_off(work: Work, _world: World, _ports: Ports, _session_id: str) -> Act:
    ended = ToolFailed("CANCELLED", "its turn ends early", not_started=True)
    return lambda: facts.tool_failed(work.id, work.attempt, ended)


def _sub_session(work: Work, ports: Ports, child: str, workflow: str, goal: bytes) -> Act:
    begin = ports.sub_session

    def act() -> NewEvent:
        if begin is None:
            missing = ToolFailed("INFRA", "no sub-sessions here", not_started=True)
            return facts.tool_failed(work.id, work.attempt, missing)
        try:
            return begin(child, workflow, goal, work.id)
        except ToolFailed as error:
            return facts.tool_failed(work.id, work.attempt, error)
        except Exception as error:
            broke = ToolFailed("EXECUTOR_CRASH", f"{type(error).__name__}: {error}")
            return facts.tool_failed(work.id, work.attempt, broke)

    return act


def _retrieve(work: Work, world: World, ports: Ports, session_id: str) -> Act:
    wanted = next(each for each in world.stage.retrieve if work.id.endswith(f"/r.{each.id}"))
    retriever = ports.retriever

    def act() -> NewEvent:
        try:
            if retriever is None:
                raise LookupError("no retriever here")
            data, media_type, source = retriever.fetch(session_id, work.id, wanted.kind, wanted.query)
        except Exception as error:  # the session goes on; the model is told what is missing
            said = f"[not retrieved: {type(error).__name__}: {error}]".encode("utf-8", "replace")
            return facts.retrieved(work.id, said, facts.TEXT, None)
        return facts.retrieved(work.id, data, media_type, source)

    return act


def _report(work: Work, world: World, ports: Ports, session_id: str) -> Act:
    name = work.id.rpartition("/v.")[2]
    reporter = ports.reporters.get(world.validator(name).reporter or "")
    answer = world.head.answer
    target = b"" if answer is None else world.contents.get(answer)

    def act() -> NewEvent:
        if reporter is None:
            return facts.reported(work.id, Verdict("ERROR", label="no such reporter here"))
        try:
            verdict = reporter.report(session_id, work.id, name, target)
        except Exception as error:  # a validator that broke rejects nothing
            verdict = Verdict("ERROR", label=f"{type(error).__name__}: {error}"[:_LABEL])
        return facts.reported(work.id, verdict)

    return act


def _expire_approval(work: Work, _world: World, _ports: Ports, _session_id: str) -> Act:
    return lambda: ApprovalExpired(approval_id=work.id)


def _expire_input(work: Work, _world: World, _ports: Ports, _session_id: str) -> Act:
    return lambda: InputProvided(request_id=work.id, outcome="EXPIRED")


def _fire(work: Work, _world: World, _ports: Ports, _session_id: str) -> Act:
    return lambda: TimerFired(timer=work.id)


_ACTS: Final = {
    Kind.INFER: _infer,
    Kind.RUN_TOOL: _run_tool,
    Kind.CALL_OFF: _call_off,
    Kind.RETRIEVE: _retrieve,
    Kind.REPORT: _report,
    Kind.EXPIRE_APPROVAL: _expire_approval,
    Kind.EXPIRE_INPUT: _expire_input,
    Kind.FIRE_TIMER: _fire,
}


def too_late(event: NewEvent, why: str) -> NoteRecorded:
    """What came for something that is closed meanwhile, as a note that says so."""
    return NoteRecorded(kind="too-late", data=facts.content(f"{event.TYPE}: {why}".encode("utf-8", "replace")))


def unrecordable(work: Work, why: str) -> NewEvent:
    """In place of an answer that no event can hold, so that nobody waits for it for ever."""
    if work.kind == Kind.INFER:
        return facts.inference_failed(work.id, work.attempt, InferenceError("unrecordable", why, retryable=False))
    if work.kind == Kind.REPORT:
        return facts.reported(work.id, Verdict("ERROR", label=f"unrecordable: {why}"[:_LABEL]))
    if work.kind == Kind.RETRIEVE:
        said = f"[not retrieved: unrecordable: {why}]".encode("utf-8", "replace")
        return facts.retrieved(work.id, said, facts.TEXT, None)
    return facts.tool_failed(work.id, work.attempt, ToolFailed("UNKNOWN_OUTCOME", f"unrecordable: {why}"))
