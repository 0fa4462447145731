"""Progress of a long reading on stderr: a bar per partition on a terminal, else a line every ten seconds; with
``--progress jsonl`` a JSON object a second, for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from dalsegno.cli.context import Context
from dalsegno.cli.output import dumps, note
from dalsegno.replay.execute import Progress

AUTO, JSONL, NONE = "auto", "jsonl", "none"
LINE_EVERY_SECONDS = 10.0
OBJECT_EVERY_SECONDS = 1.0
# More bars than fit on a screen tell less than one.
MAX_BARS = 16

ALL = -1
"""In the place of a partition: what is counted is not in partitions, or all of them are shown as one."""

Show = Callable[[list[Progress]], None]


@contextmanager
def bars(title: str) -> Iterator[Show]:
    """Call what this gives with the state of every partition, as often as you like."""
    form = _form()
    if form == NONE:
        yield _show_nothing
    elif form == JSONL:
        yield _Objects(title).show
    elif sys.stderr.isatty():
        with _bars(title) as show:
            yield show
    else:
        yield _Lines(title).show


class Watch:
    """Keeps what the bars show, for readers that tell of one partition at a time."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._parts: dict[int, Progress] = {}

    def progress(self, partition: int, position: int, end: int) -> None:
        start = self._parts[partition].start if partition in self._parts else position
        self._parts[partition] = Progress(partition, start, position, end, position >= end)
        self._show(list(self._parts.values()))


def _form() -> str:
    context = click.get_current_context(silent=True)
    asked = None if context is None else context.find_object(Context)
    return AUTO if asked is None else asked.progress


def _show_nothing(_: list[Progress]) -> None:
    """Nobody looks."""


class _Objects:
    """``{"progress": title, "partitions": [...]}``; the last one, in which all are done, whenever it comes."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._last = float("-inf")
        self._done = False

    def show(self, parts: list[Progress]) -> None:
        now = time.monotonic()
        done = bool(parts) and all(part.done for part in parts)
        if not parts or (now - self._last < OBJECT_EVERY_SECONDS and (not done or self._done)):
            return
        self._last, self._done = now, done
        note(dumps({"progress": self._title, "partitions": [part._asdict() for part in parts]}))


class _Lines:
    def __init__(self, title: str) -> None:
        self._title = title
        self._last = time.monotonic()
        self._records = 0

    def show(self, parts: list[Progress]) -> None:
        now = time.monotonic()
        if not parts or now - self._last < LINE_EVERY_SECONDS:
            return
        records = sum(part.position - part.start for part in parts)
        rate = max(0, records - self._records) / (now - self._last)
        left = sum(max(0, part.bound - part.position) for part in parts)
        done = sum(part.done for part in parts)
        text = f"{self._title}: {records} records, {rate:.0f}/s, {left} left"
        note(text if parts[0].partition == ALL else f"{text}, {done} of {len(parts)} partitions done")
        self._last, self._records = now, records


@contextmanager
def _bars(title: str) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    progress = RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    tasks: dict[int, TaskID] = {}

    def show(parts: list[Progress]) -> None:
        rows = parts if len(parts) <= MAX_BARS else _together(parts)
        for part in rows:
            if part.partition not in tasks:
                name = title if part.partition == ALL else f"partition {part.partition}"
                tasks[part.partition] = progress.add_task(name, total=part.bound - part.start, rate="")
            task = tasks[part.partition]
            speed = progress.tasks[progress.task_ids.index(task)].speed
            rate = f"{speed:.0f}/s" if speed else ("done" if part.done else "")
            progress.update(task, completed=min(part.position, part.bound) - part.start, rate=rate)

    with progress:
        yield show


def _together(parts: list[Progress]) -> list[Progress]:
    """All partitions as one bar."""
    start = sum(part.start for part in parts)
    position = sum(min(part.position, part.bound) for part in parts)
    return [Progress(ALL, start, position, sum(part.bound for part in parts), all(part.done for part in parts))]
