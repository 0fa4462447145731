"""Amending a session: an operator takes events out of its history, without breaking its chain.

(1) read the session up to the high watermark and choose the targets; (2) look into the admin audit for the same
request, not finished; (3) ask; ``amend.1`` the request is acknowledged in the audit; ``amend.2`` the amendment, one
record, is acknowledged in the log. A crash between the two leaves a request without an amendment: nothing has changed
for readers, ``session verify`` names it, and the same command finds it and goes on with its id and reason.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import uuid_utils

from dalsegno.errors import SessionMissing
from dalsegno.log.amend_requests import KIND, details_of
from dalsegno.log.audit import AdminAction, read_actions, write_action
from dalsegno.log.history import SessionRecords, SessionSource
from dalsegno.log.publisher import Publisher
from dalsegno.log.receipts import Receipt
from dalsegno.log.session import Session
from dalsegno.model.amending import Intended, intend
from dalsegno.model.amendments import read_amendment
from dalsegno.model.events import AmendmentTarget, HistoryAmended
from dalsegno.model.ids import FORK_MARK, check_session_id
from dalsegno.model.records import AMENDMENT_TYPE, Event

log = logging.getLogger("dalsegno.log")


class Amending(NamedTuple):
    """What is asked for."""

    session_id: str
    first: int
    last: int
    action: str
    """SKIPPED or LOST."""
    reason: str
    by: str


class Amended(NamedTuple):
    request_id: str
    resumed: bool
    """The request was in the audit already: this finished it."""
    intended: Intended
    receipt: Receipt


def amend(
    publisher: Publisher,
    asked: Amending,
    *,
    source: SessionSource | None = None,
    agree: Callable[[Intended], None] = lambda _: None,
    fault: Callable[[str], None] = lambda _: None,
) -> Amended:
    """Amend a session. ``agree`` is shown what would happen, and raises to stop it.

    Raises SessionMissing, NotFound, Conflict (nothing was written), what ``agree`` raises, Unavailable.
    """
    session_id = check_session_id(asked.session_id, fork=FORK_MARK in asked.session_id)
    # (1)
    records = _read(publisher, session_id, source)
    intended = intend(session_id, records.placed.values(), asked.first, asked.last, asked.action)
    # (2)
    details = details_of(asked.action, intended.targets)
    unfinished = _unfinished(publisher, asked, details, records)
    # (3)
    agree(intended)
    request = unfinished or _request(asked, details)
    if unfinished is None:
        write_action(publisher.transport, publisher.prefix, request)
    fault("amend.1")
    session = Session(publisher, session_id, actor=("OPERATOR", asked.by))
    receipt = session.append(_event(request, asked.action, intended)).result()
    fault("amend.2")
    facts = {"session_id": session_id, "request_id": request.request_id, "targets": len(intended.targets)}
    log.info("session_amended", extra=facts)
    return Amended(request.request_id, unfinished is not None, intended, receipt)


def _read(publisher: Publisher, session_id: str, source: SessionSource | None) -> SessionRecords:
    records = (source or publisher.log_source()).read(session_id, publisher.high(session_id))
    if not records.placed:
        raise SessionMissing(
            f"the log holds no session {session_id}",
            wanted="a session with a history",
            todo="see 'dalsegno session list'",
            session_id=session_id,
        )
    return records


def _request(asked: Amending, details: dict[str, Any]) -> AdminAction:
    request_id, now = str(uuid_utils.uuid7()), time.time_ns() // 1000
    return AdminAction(request_id, request_id, KIND, asked.session_id, asked.by, now, asked.reason, details)


def _unfinished(
    publisher: Publisher, asked: Amending, details: dict[str, Any], records: SessionRecords
) -> AdminAction | None:
    """The same request, if it is in the audit and its amendment is not in the log: the newest one."""
    done = {
        read_amendment(event.body).request_id
        for event in records.placed.values()
        if isinstance(event, Event) and event.type == AMENDMENT_TYPE
    }
    found = [
        action
        for action in read_actions(publisher.transport, publisher.prefix)
        if (action.kind, action.subject, action.details) == (KIND, asked.session_id, details)
        and action.request_id not in done
    ]
    return found[-1] if found else None


def _event(request: AdminAction, action: str, intended: Intended) -> HistoryAmended:
    return HistoryAmended(
        request_id=request.request_id,
        action=action,  # type: ignore[arg-type]
        reason=request.reason,
        targets=[AmendmentTarget(**target.as_record()) for target in intended.targets],
    )
