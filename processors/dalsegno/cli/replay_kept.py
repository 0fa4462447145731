"""Recorded replays of sessions as people and programs see them."""

from __future__ import annotations

from typing import Any

import click

from dalsegno.cli.context import Context
from dalsegno.cli.output import emit
from dalsegno.cli.times import iso
from dalsegno.replay.session_records import Kept

_ASKED = ("inference", "tools", "compression", "on_miss", "to_seq", "code_version")
_COLUMNS = ("number", "seq", "domain_id", "kind", "aspect")


def kept_row(id: str, kept: Kept) -> dict[str, Any]:
    """Its line in a list of replays."""
    started = kept.started
    return {
        "id": id,
        "state": kept.state,
        "from": f"session:{started['session_id']}@{started['from_seq'] or 1}",
        "records": 0 if kept.completed is None else kept.completed["events"],
        "created": iso(started["started_at"]),
        "by": started["started_by"],
        "reason": started["mode"].lower().replace("_", "-"),
    }


def show_kept(ctx: Context, id: str, kept: Kept) -> None:
    """All that was recorded of it."""
    completed = kept.completed or {}
    found = {
        **kept_row(id, kept),
        **{name: kept.started[name] for name in _ASKED},
        **{name: completed.get(name) for name in ("compared", "diverged", "error")},
    }
    differences = [{name: each[name] for name in _COLUMNS} for each in kept.differences]
    actions = {each["what"]: each["action"] for each in kept.started["actions"]}
    if ctx.output != "text":
        emit(ctx, {**found, "actions": actions, "differences": differences})
        return
    emit(ctx, {**found, **actions})
    if differences:
        click.echo()
        emit(ctx, differences, _COLUMNS)
