"""An event in one line, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from dalsegno.cli.output import cell, visible
from dalsegno.cli.times import TIME_FIELDS, in_column
from dalsegno.model.records import Event
from dalsegno.readers.sessions import Step, is_id, subject_of, summary_of

WORDS_CHARACTERS = 90
_ID_CHARACTERS = 30


def beginning(event: Event) -> tuple[str, str, str]:
    """Seq, time and type, in their columns. The time is its writer's, which never falls and by which
    ``--at TIME`` goes."""
    return f"{event.seq:>6}", in_column(event.meta.get("recorded_at")), f"{visible(event.type):<22}"


def event_line(event: Event, marks: Iterable[str] = ()) -> str:
    """What an event is about; ``marks`` in red behind it."""
    name, subject = subject_of(event)
    # The line has its time in front; a second one would push out what was said.
    words = " ".join(f"{field}={value}" for field, value in summary_of(event).items() if field not in TIME_FIELDS)
    parts = (
        *beginning(event),
        cell(subject, _ID_CHARACTERS if is_id(name) else WORDS_CHARACTERS),
        cell(words, WORDS_CHARACTERS) if words else "",
        *map(mark, marks),
    )
    return "  ".join(part for part in parts if part).rstrip()


def step_line(step: Step) -> str:
    """An event, and what the rules say of it."""
    marks = [f"[{step.event.stub.lower()}]"] if step.event.stub else []
    marks += [f"VIOLATION {rule}" for rule in step.verdict.violations]
    marks += [f"finding {rule}" for rule in step.verdict.findings]
    return event_line(step.event, marks)


def mark(text: str) -> str:
    """Red where colours are wanted; the words alone say it too."""
    return click.style(text, fg="red", bold=True)


def json_step(step: Step) -> dict[str, Any]:
    return {
        **json_event(step.event),
        "stub": step.event.stub,
        "violations": list(step.verdict.violations),
        "findings": list(step.verdict.findings),
    }


def json_event(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "type": event.type,
        "hash": event.hash,
        "prev_hash": event.prev_hash,
        "epoch": event.epoch,
        "event": event.body,
    }
