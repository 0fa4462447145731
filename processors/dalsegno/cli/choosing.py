"""Options by which sessions are chosen, for every command that reads many."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, get_args

import click

from dalsegno.errors import Usage
from dalsegno.projections.rows import SessionStatus
from dalsegno.readers.datasets.choosing import Wanted

_OPTIONS = (
    click.option("--status", type=click.Choice(get_args(SessionStatus)), help="Only sessions in this state."),
    click.option("--verdict", type=click.Choice(["PASS", "REJECT"]), help="Only sessions with this verdict."),
    click.option("--workflow", metavar="NAME", help="Only sessions of this workflow."),
    click.option(
        "--label", "labels", metavar="KEY=VALUE", multiple=True, help="Only sessions with this label; repeatable."
    ),
    click.option("--limit", type=click.IntRange(1, 100_000), help="The newest sessions, so many at most."),
)


def choosing(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options; the command, which must have the argument SESSIONS, is given one ``wanted`` for all of them."""

    @wraps(command)
    def with_wanted(
        *arguments: Any,
        sessions: tuple[str, ...],
        status: str | None,
        verdict: str | None,
        workflow: str | None,
        labels: tuple[str, ...],
        limit: int | None,
        **others: Any,
    ) -> Any:
        wanted = Wanted(sessions, status, verdict, workflow, tuple(map(_label, labels)), limit)
        return command(*arguments, wanted=wanted, **others)

    made: Callable[..., Any] = with_wanted
    for option in reversed(_OPTIONS):
        made = option(made)
    return made


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise Usage(f"--label {text!r}", wanted="KEY=VALUE", todo="write both, with '=' between them")
    return key, value
