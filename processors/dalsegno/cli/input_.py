"""``dalsegno input``: which sessions wait for an answer of a person, and giving it."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from dalsegno.cli.common import who
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.inbox_sending import (
    asked_in,
    json_blob,
    known_state,
    listed,
    question_in_time,
    rows_by_id,
    send_and_wait,
    wait_option,
)
from dalsegno.cli.times import moment
from dalsegno.errors import Usage
from dalsegno.model.events import InputProvided
from dalsegno.model.records import Actor
from dalsegno.projections.rows import InputRow
from dalsegno.readers.sessions import Found
from dalsegno.storage.blobs import blob

_INPUTS = "inputs"
_COLUMNS = ("session", "request", "state", "prompt", "requested_at", "ttl_ms", "answered_by")


@click.group(epilog="Example: dalsegno input list")
def command() -> None:
    """Which sessions wait for an answer of a person, and giving it through the session's inbox."""


@command.command("list", epilog="Example: dalsegno input list -o json")
@click.option("--session", shell_complete=complete_session, help="Only of this session (its whole id).")
@click.option("--all", "everything", is_flag=True, help="Also those that were answered, expired or given up.")
@pass_context
def list_(ctx: Context, session: str | None, everything: bool) -> None:
    """List the questions that sessions wait to have answered, by this machine's shards, else by snapshots."""
    listed(
        ctx,
        partial(rows_by_id, projection=_INPUTS),
        session,
        lambda row: row.inputs_open > 0,
        _shown,
        _COLUMNS,
        everything=everything,
    )


@command.command(epilog="Example: dalsegno input answer s-1 plan.1/q.file --text src/main.py")
@click.argument("session", shell_complete=complete_session)
@click.argument("request", required=False)
@click.option("--text", help="The answer, as text.")
@click.option("--json", "json_", metavar="JSON", help="The answer, as JSON: for a question that says what it must be.")
@click.option("--decline", is_flag=True, help="Answer that there will be no answer.")
@click.option("--as", "name", help="Who answers (default: your user and host).")
@wait_option
@pass_context
def answer(
    ctx: Context,
    session: str,
    request: str | None,
    text: str | None,
    json_: str | None,
    decline: bool,
    name: str | None,
    wait_seconds: float | None,
) -> None:
    """Answer REQUEST of SESSION (its whole id). The session's writer checks whether the answer fits the question.

    Without REQUEST: the one that the session waits for, if it waits for one alone.
    """
    if sum((text is not None, json_ is not None, decline)) != 1:
        raise Usage(
            "no answer, or more than one", wanted="exactly one of --text, --json and --decline", todo="give one"
        )
    content = None
    if text is not None:
        content = blob(text)
    elif json_ is not None:
        content = json_blob(json_, "--json", wanted="a JSON value", todo="correct it, or use --text")
    request, _ = question_in_time(ctx, session, request, _INPUTS, "input")
    event = InputProvided(request_id=request, outcome="DECLINED" if decline else "ACCEPTED", content=content)
    shown = {"request": request, "answer": event.outcome.lower()}
    send_and_wait(ctx, session, event, Actor("USER", name or who()), shown, wait_seconds)


def _shown(found: Found, request_id: str, row: InputRow, state: str | None) -> dict[str, Any]:
    waits = row.status == "OPEN" and row.ttl_ms is not None
    asked = asked_in(found, row.requested_seq) if waits else None
    return {
        "session": found.session_id,
        "request": request_id,
        "state": state or known_state(row, asked),
        "prompt": row.prompt,
        "requested_at": moment(row.requested_at),
        "ttl_ms": row.ttl_ms,
        "schema_digest": row.schema_digest,
        "stage_id": row.stage_id,
        "answered_by": row.ended_by,
    }
