"""``dalsegno tool``: which calls run or have an unknown outcome, and handing in what came of one."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, Final, NamedTuple

import click

from dalsegno.cli.common import content_of, open_reader, who
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.inbox_sending import (
    asked_in,
    listed,
    now,
    open_question,
    rows_by_id,
    send_and_wait,
    session_here,
    wait_option,
)
from dalsegno.cli.times import moment
from dalsegno.errors import Usage
from dalsegno.model.events import Blob, ToolReceiptRecorded
from dalsegno.model.lifecycle.state import ATTEMPT_FAILED, ENDED, STARTED, TOOL, UNRESOLVED, OpState
from dalsegno.model.records import Actor
from dalsegno.projections.rows import ToolCallRow
from dalsegno.readers.sessions import Found
from dalsegno.storage.blobs import blob

_TOOLS: Final = "tools"
_COLUMNS = ("session", "call", "state", "name", "arguments", "attempt", "started_at", "child_session")
_ARGUMENTS_CHARACTERS: Final = 500
DID_NOT_RUN: Final = "the call did not run: nothing of it was done"

_session = click.argument("session", shell_complete=complete_session)


class Call(NamedTuple):
    """A tool call: its row, and where the session's writer takes it to stand, which is what a receipt must fit."""

    row: ToolCallRow
    op: OpState
    ended_by: str | None = None

    @property
    def state(self) -> str:
        if self.op.phase == STARTED:
            return "running"
        if self.op.phase == UNRESOLVED or (self.op.phase == ATTEMPT_FAILED and not self.op.safe):
            return "outcome unknown"
        return self.row.status.lower()

    @property
    def status(self) -> str:
        """OPEN while a receipt is waited for."""
        return "OPEN" if self.state in ("running", "outcome unknown") else self.row.status


def _calls(found: Found) -> dict[str, Call]:
    rows = rows_by_id(found, _TOOLS)
    operations = found.view.reads.operations(found.session_id)
    return {id: Call(rows[id], op) for kind, id, op in operations if kind == TOOL and id in rows}


@click.group(epilog="Example: dalsegno tool list")
def command() -> None:
    """Which tool calls run or have an unknown outcome, and handing in what came of one through the session's inbox."""


@command.command("list", epilog="Example: dalsegno tool list -o json")
@click.option("--session", shell_complete=complete_session, help="Only of this session (its whole id).")
@click.option("--all", "everything", is_flag=True, help="Also those that have ended, or did not begin.")
@pass_context
def list_(ctx: Context, session: str | None, everything: bool) -> None:
    """List the tool calls that have begun and have no receipt, by this machine's shards, else by snapshots.

    'running': as far as the log says; its harness may have ended. 'outcome unknown': it is not run again, and the
    session waits for its receipt. Calls that a session left open when it ended are listed with --session or --all.
    """
    listed(
        ctx, _calls, session, lambda row: row.tool_calls > 0 and row.status not in ENDED, _shown, _COLUMNS,
        everything=everything,
    )  # fmt: skip


@command.command(epilog="Example: dalsegno tool receipt s-1 pay.1/t1/c0 --text 'sent 900 to ACME' --wait 30")
@_session
@click.argument("call", required=False)
@click.option("--text", help="What the tool gave, as text.")
@click.option("--file", metavar="FILE|-", help="What the tool gave, from a file or stdin.")
@click.option("--did-not-run", is_flag=True, help="It is certain that the call had no effect: the model is told so.")
@click.option("--status", type=click.Choice(["ok", "error"]), help="Whether it went well (default: ok).")
@click.option("--receipt-id", help="What the outside knows it by, such as the number of a booking.")
@click.option("--as", "name", help="Who hands it in (default: your user and host).")
@wait_option
@pass_context
def receipt(
    ctx: Context,
    session: str,
    call: str | None,
    text: str | None,
    file: str | None,
    did_not_run: bool,
    status: str | None,
    receipt_id: str | None,
    name: str | None,
    wait_seconds: float | None,
) -> None:
    """Hand in what came of CALL of SESSION (its whole id), which began and of which its harness does not know it.

    The session goes on with it as with the tool's own answer, and the call is not run again. With --did-not-run the
    model reads that, and may ask for the call once more, as a new one.

    Without CALL: the one that has no receipt, if that is one alone.
    """
    if sum((text is not None, file is not None, did_not_run)) != 1:
        raise Usage(
            "no outcome, or more than one", wanted="exactly one of --text, --file and --did-not-run", todo="give one"
        )
    if did_not_run and status == "ok":
        raise Usage("--did-not-run with --status ok", wanted="one of them", todo="leave one out")
    result = _result(content_of(file)) if file is not None else blob(DID_NOT_RUN if did_not_run else text)
    with open_reader(ctx) as reader:
        calls = _calls(session_here(reader, session))
    call, found = open_question(calls, call, session, "tool call", "tool")
    ended_at = now()
    event = ToolReceiptRecorded(
        tool_call_id=call,
        attempt=found.op.attempt,
        status="ERROR" if did_not_run or status == "error" else "OK",
        receipt_id=receipt_id or f"{call}/r{found.op.attempt}",
        started_at=found.row.started_at or ended_at,
        ended_at=ended_at,
        result_digest=result.digest,
        result=result,
    )
    shown = {"call": call, "answer": event.status.lower()}
    send_and_wait(ctx, session, event, Actor("USER", name or who()), shown, wait_seconds)


def _result(content: bytes) -> Blob:
    try:
        return blob(content.decode())
    except UnicodeDecodeError:
        return blob(content)


def _shown(found: Found, call_id: str, call: Call, state: str | None) -> dict[str, Any]:
    row = call.row
    return {
        "session": found.session_id,
        "call": call_id,
        "state": state or call.state,
        "name": row.name,
        "arguments": _arguments(found, row),
        "arguments_digest": row.effective_arguments_digest or row.arguments_digest,
        "effect": row.effect,
        "risk": row.risk,
        "attempt": call.op.attempt,
        "started_at": moment(row.started_at),
        "child_session": row.child_session,
        "stage_id": row.stage_id,
        "turn_id": row.turn_id,
    }


def _arguments(found: Found, row: ToolCallRow) -> str | None:
    """How they begin, as the call was asked for; None where it ran with others, or they do not stand in the event."""
    asked = asked_in(found, row.requested_seq)
    if asked is None or asked.type != "ToolCallRequested":
        return None
    content = (asked.body["arguments"] or {}).get("inline")
    wanted = row.effective_arguments_digest or row.arguments_digest
    if content is None or wanted not in (None, sha256(content).digest()):
        return None
    return bytes(content).decode("utf-8", "replace")[:_ARGUMENTS_CHARACTERS]
