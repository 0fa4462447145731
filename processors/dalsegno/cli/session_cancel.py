"""``dalsegno session cancel``: ask a session's writer to cancel it."""

from __future__ import annotations

import click

from dalsegno.cli.common import open_reader, who
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.inbox_sending import send_and_wait, session_here, wait_option
from dalsegno.errors import Conflict, Usage
from dalsegno.model.events import CancelRequested
from dalsegno.model.lifecycle.state import ENDED
from dalsegno.model.records import Actor


@click.command(epilog="Example: dalsegno session cancel s-1 --reason 'no longer needed'")
@click.argument("session", shell_complete=complete_session)
@click.option("--reason", required=True, help="Why; it stands in the session's history.")
@wait_option
@pass_context
def cancel(ctx: Context, session: str, reason: str, wait_seconds: float | None) -> None:
    """Ask the writer of SESSION (its whole id) to cancel it: it ends when its writer has settled what is open."""
    if not reason.strip():
        raise Usage("an empty --reason", wanted="why the session is cancelled", todo="say it in a few words")
    with open_reader(ctx) as reader:
        status = session_here(reader, session).row.status
    if status in ENDED:
        raise Conflict(f"session {session} is {status} already", wanted="a session that runs", todo="nothing was sent")
    event = CancelRequested(requested_by=who(), reason=reason)
    send_and_wait(ctx, session, event, Actor("OPERATOR", who()), {"answer": "cancel"}, wait_seconds)
