"""The fold of the projection ``decider``: what an event changes in what decisions depend on. Pure, total.

A session has rows only if its ``SessionCreated`` stands on its own path: a shard folds no decider of a fork, whose
decisions depend on its parent's rows as well (``fold_event`` along the whole history gives them).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from dalsegno.model.ids import root_of
from dalsegno.model.lifecycle.state import bounded
from dalsegno.model.records import Event
from dalsegno.projections.decider import approvals, calls, context, rendering, work
from dalsegno.projections.decider.rows import HEAD, PENDING, PIN, Head, Pin, Stop
from dalsegno.projections.decider.table import DeciderRows, Keep, content_of, forget, learn, put_item

Fold: TypeAlias = Callable[[DeciderRows, Head, Event, Keep], None]

COMMANDS: Final = 64
"""Inbox commands that are remembered; a command is tombstoned as soon as its fact is stored."""
TIMERS: Final = 16


def fold_event(rows: DeciderRows, event: Event, keep: Keep = forget) -> None:
    """Take one event, which broke no rule, into the rows."""
    head: Head | None = rows.get(HEAD)
    if head is None:
        if event.type == "SessionCreated" and event.body["relation"] != "FORK":
            _created(rows, event, keep)
        return
    fold = FOLDS.get(event.type)
    if fold is not None:
        fold(rows, head, event, keep)
    origin = event.meta.get("origin")
    if origin is not None and origin["importer"] == "inbox":
        head.commands = [*head.commands[1 - COMMANDS :], bounded(origin["native_ref"])]
    elif fold is None:
        return
    rows.put(HEAD, head)


# --- session ----------------------------------------------------------------------------------------------------------


def _created(rows: DeciderRows, event: Event, keep: Keep) -> None:
    body = event.body
    head = Head(
        session=root_of(event.session_id),
        profile=body["profile"],
        workflow=bounded(body["workflow_name"]),
        labels=[(bounded(label["key"]), bounded(label["value"])) for label in body["labels"][:64]],
    )
    if body["goal"] is not None:
        head.goal = learn(body["goal"], keep)
        content = rendering.goal(content_of(body["goal"]))
        put_item(rows, head, keep, id="goal", seq=event.seq, kind="MESSAGE", content=content, turn=0, phase=0)
    rows.put(HEAD, head)


def _forked(_rows: DeciderRows, head: Head, _event: Event, _keep: Keep) -> None:
    head.forks += 1


def _pinned(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
    body = event.body
    digest = learn(body["content"], keep) or body["digest"]
    version = None if body["version"] is None else bounded(body["version"])
    pin = Pin(name=bounded(body["name"]), version=version, digest=digest, effective=body["effective"])
    rows.put((PIN if head.status == "CREATED" else PENDING, body["kind"]), pin)


def _started(_rows: DeciderRows, head: Head, event: Event, _keep: Keep) -> None:
    head.status, head.moved = "RUNNING", False
    head.clock_start, head.seed = event.body["clock_start"], event.body["seed"]
    head.started_at = event.meta.get("recorded_at") or 0


def _status(status: str) -> Fold:
    def fold(_rows: DeciderRows, head: Head, _event: Event, _keep: Keep) -> None:
        head.status = status

    return fold


def _cancel(_rows: DeciderRows, head: Head, event: Event, _keep: Keep) -> None:
    by, reason = event.body["requested_by"], event.body["reason"]
    head.stop = Stop("CANCEL", None if by is None else by[:200], None if reason is None else reason[:500])


def _timer(_rows: DeciderRows, head: Head, event: Event, _keep: Keep) -> None:
    head.timers = [*head.timers, bounded(event.body["timer"])][-TIMERS:]


def _limit(_rows: DeciderRows, head: Head, event: Event, _keep: Keep) -> None:
    limit, action = event.body["limit"], event.body["action"]
    head.timers = [timer for timer in head.timers if timer.upper() != limit]
    if action == "STOP" and head.stop is None:
        head.stop = Stop("LIMIT", reason=limit)
    elif action == "WARN" and limit not in head.warned:
        head.warned = [*head.warned, limit]


def _recovered(rows: DeciderRows, head: Head, event: Event, keep: Keep) -> None:
    for entry in event.body["in_flight"]:
        resolve: Callable[[DeciderRows, Head, Event, Keep, str, str], None] | None = _RESOLVE.get(entry["kind"])
        if resolve is not None:
            resolve(rows, head, event, keep, bounded(entry["id"]), entry["resolution"])


_RESOLVE: Final[Mapping[str, Any]] = {
    "INFERENCE": context.inference_recovered,
    "TOOL": calls.call_recovered,
    "APPROVAL": approvals.approval_recovered,
    "INPUT": work.request_recovered,
    "RETRIEVAL": work.request_recovered,
    "COMPRESSION": context.compression_recovered,
    "VALIDATION": work.validation_recovered,
}

FOLDS: Final[Mapping[str, Fold]] = {
    "SessionForked": _forked,
    "ConfigPinned": _pinned,
    "SessionStarted": _started,
    "SessionPaused": _status("PAUSED"),
    "SessionResumed": _status("RUNNING"),
    "SessionCompleted": _status("ENDED"),
    "SessionFailed": _status("ENDED"),
    "SessionCancelled": _status("ENDED"),
    "SessionRecovered": _recovered,
    "CancelRequested": _cancel,
    "TimerFired": _timer,
    "LimitReached": _limit,
    **work.FOLDS,
    **context.FOLDS,
    **calls.FOLDS,
    **approvals.FOLDS,
}
"""By event type. ``SessionCreated`` makes the rows; events of other types change nothing that a decision depends on."""
