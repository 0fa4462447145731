"""The writing half of a session: appends, what is under way, and the end of the ``with`` block.

``append`` refuses by itself, before anything leaves the process, what must not be in a log for ever: wrong types,
numbers out of range, floats, half surrogates, times without a zone, oversize, and (by default) what breaks a lifecycle
rule. A refusal does no harm: the chain is as before, and the next append goes on. What was sent and then not
acknowledged is another matter: its outcome is unknown, so the session is broken until it is resumed.
"""

from __future__ import annotations

import asyncio
import copy
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from dalsegno.errors import Conflict, DalsegnoError, InvalidEvent, SessionBroken, WaitTimeout
from dalsegno.log.drafting import Chain, Draft, Drafter, Overlay
from dalsegno.log.history import SessionSource, inherit_from_parent
from dalsegno.log.receipts import CLOSE_TIMEOUT_SECONDS, Pending, close_behind, unsent
from dalsegno.log.redaction import Redactor
from dalsegno.log.sender import Sender
from dalsegno.model.events import NewEvent, Origin, Redaction
from dalsegno.model.ids import FORK_MARK, EventKey, check_session_id
from dalsegno.model.lifecycle import MemoryOps, OpState, SessionState
from dalsegno.model.payloads import SubSessionOutcome
from dalsegno.model.records import Actor, Event


def now_micros() -> int:
    """The writer's clock: microseconds since 1970 UTC."""
    return time.time_ns() // 1000


class SessionWriter:
    """Appends to one session. See ``Session``, which also takes sessions over, for what the arguments mean."""

    def __init__(
        self,
        publisher: Sender,
        session_id: str,
        *,
        check_rules: bool = True,
        actor: Actor | tuple[str, str] = ("HARNESS", "harness"),
        clock: Callable[[], int] = now_micros,
        source: SessionSource | None = None,
        traceparent: str | Callable[[], str | None] | None = None,
        redact: Redactor | None = None,
        close_timeout: float = CLOSE_TIMEOUT_SECONDS,
    ) -> None:
        self.session_id = check_session_id(session_id, fork=isinstance(session_id, str) and FORK_MARK in session_id)
        self.publisher = publisher
        self._source = source
        self._drafter = Drafter(
            publisher, session_id, check_rules, Actor(*actor), clock, traceparent, redact or publisher.redact
        )
        self._lock = threading.RLock()
        self._chain = Chain()
        self._state, self._ops = SessionState(), MemoryOps()
        self._under_way: dict[bytes, Pending] = {}
        self._numbers: dict[str, int] = {}
        self._lost: dict[EventKey, Pending] = {}
        self._broken: str | None = None
        self._closed = False
        self._close_timeout = close_timeout
        self.outcome: SubSessionOutcome | None = None
        """How the session ended, if this writer appended its end."""
        self.calls_of_children: dict[str, str] = {}
        """Session id of each sub-session that was started here -> its call."""
        # The first event of this writer's epoch: a rival of the same epoch has another one.
        self._first: bytes | None = None

    @property
    def seq(self) -> int:
        """The seq of the last event that was sent; 0 before the first."""
        return self._chain.seq

    @property
    def head_hash(self) -> bytes | None:
        """The hash of the last event that was sent: what the next one names as its predecessor."""
        return self._chain.hash

    @property
    def epoch(self) -> int:
        return self._chain.epoch

    @property
    def broken(self) -> str | None:
        """Why the session must be resumed before it appends again; None if it need not."""
        return self._broken

    @property
    def status(self) -> str:
        """NEW, CREATED, RUNNING, PAUSED, COMPLETED, FAILED or CANCELLED, by the events that were appended."""
        return self._state.status

    def operation(self, kind: str, id: str) -> OpState | None:
        """What the lifecycle knows of an operation (kinds as in ``SessionRecovered.in_flight``); None if nothing."""
        return self._ops.get(kind, id)

    @property
    def now(self) -> int:
        """The session's clock: microseconds since 1970 UTC."""
        return self._drafter.clock()

    def another(self, session_id: str, **options: Any) -> Self:
        """A new session of the same publisher; actor, rules, clock, trace and redaction are this one's where
        ``options`` do not say others. Raises as ``Publisher.session``."""
        drafter = self._drafter
        inherited = {
            "actor": drafter.actor, "check_rules": drafter.check_rules, "clock": drafter.clock,
            "traceparent": drafter.traceparent, "redact": drafter.redact,
        }  # fmt: skip
        made = type(self)(self.publisher, session_id, **{**inherited, **options})
        self.publisher.opened(session_id, made)
        return made

    # --- append ------------------------------------------------------------------------------------------------------

    def append(
        self,
        event: NewEvent,
        *,
        occurred_at: datetime | int | None = None,
        causation_id: str | None = None,
        turn_id: str | None = None,
        stage_id: str | None = None,
        actor: Actor | tuple[str, str] | None = None,
        origin: Origin | None = None,
        redactions: Sequence[Redaction] = (),
        event_id: str | None = None,
        traceparent: str | None = None,
        cause: Pending | None = None,
    ) -> Pending:
        """Number, link and send one event; returns at once (but for the first, which waits for the schemas).

        ``cause``: the append of the event that directly caused this one; its ``causation_id`` follows from it.
        ``traceparent`` stands beside the record, in a header: neither hashed nor read by any fold.
        Raises InvalidEvent (``data['field']``, ``data['rule']``), EventTooLarge, SessionBroken, and what sending does.
        """
        how = {
            "occurred_at": occurred_at, "causation_id": causation_id, "turn_id": turn_id, "stage_id": stage_id,
            "actor": actor, "origin": origin, "redactions": redactions, "event_id": event_id,
            "traceparent": traceparent, "cause": cause,
        }  # fmt: skip
        with self._lock:
            self._must_be_whole()
            return self._send(self._drafter.draft(event, self._chain, self._state, self._ops, how, self._inherit))

    def check(self, event: NewEvent, **how: Any) -> None:
        """Raise what ``append`` would raise for this event; nothing is sent."""
        with self._lock:
            self._must_be_whole()
            state, ops = copy.deepcopy(self._state), Overlay(self._ops)
            self._drafter.draft(event, self._chain, state, ops, how, self._inherit)

    def append_opening(
        self, kind: str, prefix: str, make: Callable[[str], NewEvent], **how: Any
    ) -> tuple[str, Pending]:
        """Append an event that opens an operation under an id that the session has not: ``prefix`` and a number."""
        with self._lock:
            number = self._numbers.get(prefix, 0)
            while self._ops.get(kind, f"{prefix}{number}") is not None:
                number += 1
            pending = self.append(make(f"{prefix}{number}"), **how)
            self._numbers[prefix] = number + 1
            return f"{prefix}{number}", pending

    def append_batch(self, events: Iterable[NewEvent | tuple[NewEvent, Mapping[str, Any]]]) -> list[Pending]:
        """Append several events, each alone or with the keyword arguments of ``append``: all are sent, or, if one of
        them is refused, none. Raises as ``append``; ``data['index']`` says which event was refused."""
        with self._lock:
            self._must_be_whole()
            chain, state, ops = self._chain, copy.deepcopy(self._state), Overlay(self._ops)
            drafts: list[Draft] = []
            for index, item in enumerate(events):
                event, how = item if isinstance(item, tuple) else (item, {})
                try:
                    draft = self._drafter.draft(event, chain, state, ops, how, self._inherit)
                except InvalidEvent as error:
                    error.data["index"] = index
                    raise
                chain = draft.chain
                drafts.append(draft)
            self._state = state
            self._ops.rows.update(ops.rows)
            return [self._send(draft) for draft in drafts]

    def _check_open(self) -> None:
        if self._closed:
            raise Conflict(
                f"session {self.session_id} is closed",
                wanted="an open session",
                todo="append before its block ends, or take it over by publisher.resume(...)",
                session_id=self.session_id,
            )

    def _must_be_whole(self) -> None:
        self._check_open()
        # First: after a fatal error every report is in, so that a session that it broke knows it.
        self.publisher.transport.ready()
        if self._broken is not None:
            raise SessionBroken(
                f"session {self.session_id} is broken: {self._broken}",
                wanted="a session whose every event is known to be stored or under way",
                todo="resume it",
                session_id=self.session_id,
            )

    def _send(self, draft: Draft) -> Pending:
        pending = draft.pending
        self._under_way[pending.hash] = pending
        pending.on_settled = self._settled
        try:
            self.publisher.send_checked(pending, draft.headers)
        except BaseException as error:
            self._under_way.pop(pending.hash, None)
            self._broken = f"seq {pending.seq} was not sent: {error}"
            raise
        if draft.chain.epoch != self._chain.epoch or self._chain.seq == 0:
            self._first = draft.chain.hash
        self._chain = draft.chain
        self.outcome = draft.outcome or self.outcome
        return pending

    def _settled(self, pending: Pending, error: DalsegnoError | None) -> None:
        """Told by the client's thread: takes no lock, an append may hold it and wait for room in the queue."""
        self._under_way.pop(pending.hash, None)
        if error is not None:
            self._lost[pending.key] = pending
            if self._broken is None:
                self._broken = f"seq {pending.seq} was not acknowledged: {error.found}"

    # --- close -------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Take no more events, and wait until all have their report. The session in the log stays as it is.

        Raises Unsent, naming what was not acknowledged within ``timeout`` seconds (default: the session's), or at all.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.publisher.let_go(self.session_id, self)
        limit = self._close_timeout if timeout is None else timeout
        error = unsent([*self._flush(time.monotonic() + limit), *self._lost.values()])
        if error is not None:
            raise error

    def _flush(self, deadline: float) -> list[Pending]:
        """Wait for the end of what is under way; what has none at the limit."""
        late = []
        for pending in list(self._under_way.values()):
            try:
                pending.result(max(0.0, deadline - time.monotonic()))
            except WaitTimeout:
                if not pending.done():
                    late.append(pending)
            except DalsegnoError:
                continue  # it broke the session: `_settled` has it
        return late

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        close_behind(self.close, error)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.publisher.prepare)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        await asyncio.to_thread(close_behind, self.close, error)

    # --- what the log has ---------------------------------------------------------------------------------------------

    def _records_from(self) -> SessionSource:
        return self._source or self.publisher.log_source()

    def _inherit(self, event: Event, child: SessionState) -> None:
        inherit_from_parent(event, child, self._records_from(), self.publisher.high(self.session_id))
