"""What ``dalsegno run`` says while a session runs: its events, what it waits for, the command that goes on with it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

from dalsegno.cli.context import Context
from dalsegno.cli.output import cell
from dalsegno.harness.conductor import Conductor
from dalsegno.harness.opening import Options
from dalsegno.model.records import Event
from dalsegno.projections.decider.rows import APPROVAL, CALL, REQUEST

_TOLD: Final[dict[str, tuple[str, ...]]] = {
    "SessionStarted": (),
    "SessionRecovered": ("in_flight",),
    "StageStarted": ("stage_id",),
    "StageCompleted": ("stage_id",),
    "StageFailed": ("stage_id", "error"),
    "TurnStarted": ("turn_id",),
    "TurnAborted": ("turn_id", "reason"),
    "InferenceFailed": ("inference_id", "error"),
    "ToolCallRequested": ("tool_call_id", "name"),
    "PolicyEvaluated": ("explanation",),
    "ToolCallRejected": ("tool_call_id", "message"),
    "ToolCallStarted": ("tool_call_id", "attempt", "child_session"),
    "ToolReceiptRecorded": ("tool_call_id", "status"),
    "SubSessionEnded": ("tool_call_id", "child_session", "outcome"),
    "ToolCallFailed": ("tool_call_id", "reason", "error"),
    "ApprovalRequested": ("approval_id",),
    "ApprovalGranted": ("approval_id",),
    "ApprovalDenied": ("approval_id",),
    "ApprovalExpired": ("approval_id",),
    "InputRequested": ("request_id",),
    "InputProvided": ("request_id", "outcome"),
    "CompressionCompleted": ("compression_id",),
    "ValidationDecided": ("validation_id", "verdict"),
    "LimitReached": ("limit",),
    "CancelRequested": ("reason",),
    "NoteRecorded": ("kind",),
    "SessionCompleted": ("outcome",),
    "SessionFailed": ("error",),
    "SessionCancelled": ("reason",),
}
"""The events that are told, and what of them."""
_WORDS_CHARACTERS: Final = 200


def told(event: Event) -> str | None:
    """The line that tells an event; None for one that is not told."""
    fields = _TOLD.get(event.type)
    # A policy's word on a call shows by what becomes of the call; of a guard only what could not be evaluated is said.
    if fields is None or (event.type == "PolicyEvaluated" and event.body["subject"] != "TRANSITION"):
        return None
    said = " ".join(cell(_short(event.body[name]), _WORDS_CHARACTERS) for name in fields if event.body[name])
    return f"{event.seq} {event.type} {said}".rstrip()


def answers(conductor: Conductor, ids: Sequence[str]) -> Iterator[str]:
    """What the session waits for, and what answers it."""
    session_id, rows = conductor.writer.session_id, conductor.rows
    for id in ids:
        named = shlex.join([session_id, id])
        if (leave := rows.get((APPROVAL, id))) is not None:
            who = f" --as {shlex.quote(leave.addressed_to[0])}" if leave.addressed_to else ""
            yield f"waits for leave: dalsegno approval grant {named}{who} (or deny)"
        elif (asked := rows.get((REQUEST, id))) is not None and asked.kind == "INPUT":
            yield f"waits for an answer: dalsegno input answer {named}"
        elif (call := rows.get((CALL, id))) is not None and call.phase in ("UNRESOLVED", "ATTEMPT_FAILED"):
            yield (
                f"waits for the receipt of {id} ({call.name}): its outcome is unknown, and it is not run again; look "
                f"it up, then: dalsegno tool receipt {named} --text 'what came of it' (or --did-not-run)"
            )


def _short(value: Any) -> Any:
    """An error by what it says; an operation by its id and what becomes of it."""
    if isinstance(value, list):
        return [f"{each['id']} {each['resolution']}" if isinstance(each, dict) else each for each in value]
    if isinstance(value, dict):
        return f"{value['error_class']}: {value['message']}"
    return value


def resume_line(ctx: Context, session_id: str, options: Options, *, act_in_fork: bool = False) -> list[str]:
    """The command that goes on with a session."""
    given = {"--data": ctx.flags.get("data"), "--prefix": ctx.flags.get("prefix")}
    given["--bootstrap-servers"] = ctx.flags.get("kafka", {}).get("bootstrap_servers")
    line = ["dalsegno"]
    for option, value in given.items():
        line += [] if value is None else [option, str(value)]
    line += ["session", "resume", session_id]
    several = {
        "--tools": options.tools, "--provider": options.providers, "--reporter": options.reporters,
        "--files": [] if options.files is None else [str(options.files)], "--workflow": options.workflows,
    }  # fmt: skip
    for option, values in several.items():
        for each in values:
            line += [option, each]
    return line + ["--act-in-fork"] * act_in_fork
