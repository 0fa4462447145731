"""``dalsegno session fork``: begin a session that goes on from a prefix of another one."""

from __future__ import annotations

from typing import get_args

import click

from dalsegno.cli.common import shard_source, who, whole_id
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.numbers import seq_in
from dalsegno.cli.output import emit, note
from dalsegno.errors import Usage
from dalsegno.events import Label
from dalsegno.log.publisher import Publisher
from dalsegno.model.forking import Boundary
from dalsegno.model.payloads import ForkPurpose
from dalsegno.readers.sessions import LAST

_PURPOSES: dict[str, ForkPurpose] = {
    purpose.lower().replace("_", "-"): purpose for purpose in get_args(ForkPurpose) if purpose != "UNKNOWN"
}


def parse_at(text: str) -> int | None:
    """A seq, or None for ``last``. Raises Usage."""
    if text == LAST:
        return None
    seq = seq_in(text)
    if seq is None:
        raise Usage(f"--at {text}", wanted=f"a seq of the session, from 1 on, or '{LAST}'", todo="correct it")
    return seq


def parse_label(text: str) -> Label:
    """``key=value``. Raises Usage."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise Usage(f"--label {text}", wanted="key=value", todo="correct it")
    return Label(key=key, value=value)


@click.command(epilog="Example: dalsegno session fork s-1 --at 42 --purpose what-if --label why=cheaper-model")
@click.argument("session", shell_complete=complete_session)
@click.option("--at", default=LAST, show_default=True, metavar="SEQ|last", help="Where: an event of the session.")
@click.option("--purpose", required=True, type=click.Choice(list(_PURPOSES)), help="What for; it is recorded.")
@click.option("--suffix", help="The fork's id is ROOT~SUFFIX; without it, one that is new.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="A label of the fork; repeatable.")
@pass_context
def fork(ctx: Context, session: str, at: str, purpose: str, suffix: str | None, labels: tuple[str, ...]) -> None:
    """Fork SESSION (its whole id): begin a session that goes on from a prefix of it. The prefix is not copied, and
    SESSION is never written to.

    A fork begins directly before a turn, where nothing is open: at the last such place at or below --at. What was
    recorded behind it is not part of the fork.
    """
    whole_id(session)
    asked, named = parse_at(at), [parse_label(each) for each in labels]
    with (
        Publisher(ctx.kafka, prefix=ctx.prefix) as publisher,
        publisher.fork(
            session, asked, purpose=_PURPOSES[purpose], suffix=suffix, labels=named, source=shard_source(ctx),
            actor=("OPERATOR", who()),
        ) as begun,
    ):  # fmt: skip
        point = begun.forked_at
        assert point is not None, "Publisher.fork says where"
    emit(
        ctx,
        {
            "session": begun.session_id,
            "parent": point.session_id,
            "parent_seq": point.at.seq,
            "parent_hash": point.at.hash,
            "turn": point.turn_id,
            "snapped_back": point.snapped_back,
        },
    )
    note(_told(session, at, point))


def _told(session: str, at: str, point: Boundary) -> str:
    """Where it begins, and why there."""
    where = f"behind seq {point.at.seq}" + ("" if point.session_id == session else f" of {point.session_id}")
    begins = f"the fork begins {where}, directly before turn {point.turn_id}"
    if not point.snapped_back:
        return begins
    events = "1 event" if point.snapped_back == 1 else f"{point.snapped_back} events"
    asked = "the last event" if at == LAST else f"seq {at}"
    return f"{begins}: {asked} is {events} further on, in what is not part of it"
