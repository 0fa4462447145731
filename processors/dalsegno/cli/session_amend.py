"""``dalsegno session amend``: take events out of a session's history without breaking its chain."""

from __future__ import annotations

import re

import click

from dalsegno.cli.common import confirm, shard_source, some, who
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import emit, note
from dalsegno.errors import Usage
from dalsegno.log.amend import Amended, Amending
from dalsegno.log.amend import amend as amend_session
from dalsegno.log.publisher import Publisher
from dalsegno.model.amending import Intended
from dalsegno.model.path import Path
from dalsegno.streams.faults import fault_from_environment

NAME_ABOVE_EVENTS = 20
"""Above this the confirmation asks for the session's id instead of a letter."""
_SEQS_NAMED = 8


def parse_seqs(text: str) -> tuple[int, int]:
    """``N`` or ``N-M``. Raises Usage."""
    match = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", text)
    if match is None:
        raise Usage(f"--seq {text}", wanted="a seq, or the first and the last of a stretch: 12-15", todo="correct it")
    first = int(match.group(1))
    return first, int(match.group(2) or first)


@click.command(epilog="Example: dalsegno session amend s-1 --seq 12 --action skipped --reason 'written by a bug'")
@click.argument("session", shell_complete=complete_session)
@click.option("--seq", required=True, metavar="N|N-M", help="The event, or the first and the last of a stretch.")
@click.option(
    "--action",
    required=True,
    type=click.Choice(["skipped", "lost"]),
    help="skipped: step over an event that is there; lost: accept that one is gone.",
)
@click.option("--reason", required=True, help="Why; it stands in the audit and in the session's history.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_context
def amend(ctx: Context, session: str, seq: str, action: str, reason: str, yes: bool) -> None:
    """Put stubs in the place of events of SESSION (its whole id). It cannot be taken back.

    The request is written to the admin audit first, then the amendment to the session. After a crash between the two
    the same command finishes the same request.
    """
    first, last = parse_seqs(seq)
    if not reason.strip():
        raise Usage("an empty --reason", wanted="why the history is amended", todo="say it in a few words")

    def agree(intended: Intended) -> None:
        note(effect(intended, action))
        count = len(intended.targets)
        question = f"Amend {count} event{'' if count == 1 else 's'} of session {session}?"
        confirm(question, name=session, records=count, yes=yes, above=NAME_ABOVE_EVENTS)

    asked = Amending(session, first, last, action.upper(), reason, who())
    with Publisher(ctx.kafka, prefix=ctx.prefix) as publisher:
        done = amend_session(publisher, asked, source=shard_source(ctx), agree=agree, fault=fault_from_environment())
    emit(ctx, _report(session, done))
    if done.resumed:
        note("this request was in the audit already, without its amendment: it is finished now, with its own reason")


def effect(intended: Intended, action: str) -> str:
    """What readers will see afterwards."""
    named = some([f"{target.link.seq} {target.type}" for target in intended.targets], _SEQS_NAMED)
    counts = "its content counts no more, a stub stands there" if action == "skipped" else "a stub stands there"
    return f"seq {named}: {counts}\nthe session: {_state(intended.before)} -> {_state(intended.after)}"


def _state(path: Path) -> str:
    held = "not held" if path.held is None else f"held at seq {path.held.seq} ({path.held.reason})"
    return f"{len(path.hashes)} events, {held}"


def _report(session: str, done: Amended) -> dict[str, object]:
    intended, receipt = done.intended, done.receipt
    return {
        "session": session,
        "request_id": done.request_id,
        "resumed": done.resumed,
        "targets": [target.as_record() for target in intended.targets],
        "before": _state(intended.before),
        "after": _state(intended.after),
        "partition": receipt.partition,
        "offset": receipt.offset,
        "hash": receipt.hash,
    }
