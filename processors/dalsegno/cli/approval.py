"""``dalsegno approval``: who waits for leave, and giving or refusing it."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

import click

from dalsegno.cli.common import content_of, who
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
from dalsegno.cli.output import dumps
from dalsegno.cli.times import moment
from dalsegno.errors import Usage
from dalsegno.log.json_values import strict_json
from dalsegno.model.events import ApprovalDenied, ApprovalGranted
from dalsegno.model.records import Actor, Event
from dalsegno.projections.rows import ApprovalRow
from dalsegno.readers.sessions import Found

_APPROVALS = "approvals"
_COLUMNS = (
    "session", "approval", "seq", "state", "tool", "arguments", "why", "requested_at", "ttl_ms", "addressed_to",
    "answered_by",
)  # fmt: skip
_VIEW_CHARACTERS: Final = 500
_VIEW: Final = frozenset({"tool", "arguments", "why"})
"""What the approver of a session that dalsegno decides is shown."""

_session = click.argument("session", shell_complete=complete_session)
_approval = click.argument("approval", required=False)
_as = click.option("--as", "name", help="Who answers, as the session names people (default: your user and host).")
_reason = click.option("--reason", help="Why; it stands in the session's history.")


@click.group(epilog="Example: dalsegno approval list")
def command() -> None:
    """Who waits for leave, and giving or refusing it: the answer goes through the session's inbox."""


@command.command("list", epilog="Example: dalsegno approval list -o json")
@click.option("--session", shell_complete=complete_session, help="Only of this session (its whole id).")
@click.option("--all", "everything", is_flag=True, help="Also those that were answered, expired or withdrawn.")
@pass_context
def list_(ctx: Context, session: str | None, everything: bool) -> None:
    """List the approvals that sessions wait for, by this machine's shards, else by snapshots.

    Of those that are open: the tool and the arguments that leave is asked for (how they begin; 'dalsegno event show
    SESSION SEQ' shows all), and why leave is needed, as the policy's rule says it.
    """
    listed(
        ctx,
        partial(rows_by_id, projection=_APPROVALS),
        session,
        lambda row: row.approvals_open > 0,
        _shown,
        _COLUMNS,
        everything=everything,
    )


@command.command(epilog="Example: dalsegno approval grant s-1 plan.1/t2/c0/a1 --reason 'looked at it'")
@_session
@_approval
@click.option(
    "--scope",
    type=click.Choice(["once", "session", "rule"]),
    default="once",
    show_default=True,
    help="For this call, for all of the session, or for all that the rule asks about.",
)
@click.option("--arguments", metavar="FILE|-", help="JSON to run the call with instead; it is judged again.")
@_reason
@_as
@wait_option
@pass_context
def grant(
    ctx: Context,
    session: str,
    approval: str | None,
    scope: str,
    arguments: str | None,
    reason: str | None,
    name: str | None,
    wait_seconds: float | None,
) -> None:
    """Give leave to APPROVAL of SESSION (its whole id), for exactly the arguments that it was asked for.

    Without APPROVAL: the one that the session waits for, if it waits for one alone.
    """
    modified = (
        None
        if arguments is None
        else json_blob(
            content_of(arguments), f"--arguments {arguments}", wanted="the arguments as JSON", todo="correct it"
        )
    )
    approval, row, actor = _question(ctx, session, approval, name)
    event = ApprovalGranted(
        approval_id=approval,
        scope=scope.upper(),  # type: ignore[arg-type]
        arguments_digest=row.arguments_digest,
        explanation=reason,
        modified_arguments=modified,
    )
    send_and_wait(ctx, session, event, actor, {"approval": approval, "answer": "grant"}, wait_seconds)


@command.command(epilog="Example: dalsegno approval deny s-1 plan.1/t2/c0/a1 --reason 'not today'")
@_session
@_approval
@_reason
@_as
@wait_option
@pass_context
def deny(
    ctx: Context,
    session: str,
    approval: str | None,
    reason: str | None,
    name: str | None,
    wait_seconds: float | None,
) -> None:
    """Refuse leave to APPROVAL of SESSION (its whole id).

    Without APPROVAL: the one that the session waits for, if it waits for one alone.
    """
    approval, _, actor = _question(ctx, session, approval, name)
    event = ApprovalDenied(approval_id=approval, rejection_source="USER", explanation=reason)
    send_and_wait(ctx, session, event, actor, {"approval": approval, "answer": "deny"}, wait_seconds)


def _question(ctx: Context, session: str, approval: str | None, name: str | None) -> tuple[str, ApprovalRow, Actor]:
    """The open approval that is meant, and who answers. Raises Usage where that one was not asked, Conflict where it is
    too late."""
    actor = Actor("USER", name or who())
    approval, row = question_in_time(ctx, session, approval, _APPROVALS, "approval")
    if row.addressed_to and not row.addressed_to_more and actor.id not in row.addressed_to:
        raise Usage(
            f"approval {approval} is addressed to {', '.join(row.addressed_to)}; you are {actor.id}",
            wanted="one of those who were asked",
            todo="say who you are with --as, if you are one of them",
        )
    return approval, row, actor


class _Seen(NamedTuple):
    """What an approver is shown: texts, cut."""

    tool: str | None = None
    arguments: str | None = None
    why: str | None = None


def _seen(found: Found, row: ApprovalRow, asked: Event | None) -> _Seen:
    call = found.view.reads.row("tools", found.session_id, (row.subject_id,)) if row.subject_id else None
    tool = None if call is None else call.name or None
    content = None if asked is None else (asked.body.get("view") or {}).get("inline")
    if content is None:
        return _Seen(tool)
    try:
        view = strict_json(content)
    except ValueError:
        return _Seen(tool, _cut(content.decode("utf-8", "replace")))
    if not isinstance(view, dict) or view.keys() != _VIEW:
        return _Seen(tool, _cut(dumps(view)))
    return _Seen(str(view["tool"]), _cut(dumps(view["arguments"])), _cut(str(view["why"])) if view["why"] else None)


def _cut(text: str) -> str:
    return text[:_VIEW_CHARACTERS]


def _shown(found: Found, approval_id: str, row: ApprovalRow, state: str | None) -> dict[str, Any]:
    asked = asked_in(found, row.requested_seq) if row.status == "OPEN" else None
    seen = _seen(found, row, asked)
    return {
        "session": found.session_id,
        "approval": approval_id,
        "seq": row.requested_seq or None,
        "state": state or known_state(row, asked),
        **seen._asdict(),
        "subject": row.subject,
        "subject_id": row.subject_id,
        "requested_at": moment(row.requested_at),
        "ttl_ms": row.ttl_ms,
        "addressed_to": row.addressed_to,
        "addressed_to_more": row.addressed_to_more,
        "arguments_digest": row.arguments_digest,
        "answered_by": row.ended_by,
        "explanation": row.explanation,
    }
