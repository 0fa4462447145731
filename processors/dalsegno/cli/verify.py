"""``dalsegno verify``: does the state that is read follow from the log."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from dalsegno.cli.common import audited_requests, open_reader
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import cell, emit, note
from dalsegno.cli.progress import Watch, bars
from dalsegno.errors import Failed, NotFound, TopicMissing, VerifyDiffers
from dalsegno.projections import registry
from dalsegno.readers.log import KafkaLog
from dalsegno.readers.verify import Report, Verifier
from dalsegno.snapshots.catalog import Catalog, read_catalog
from dalsegno.storage.object_store import os_errors

_COLUMNS = ("partition", "cursor", "source", "folded", "tail", "differing", "remarks")
SCRATCH = "verify"


@click.command(epilog="Example: dalsegno verify --partition 3")
@click.option("--partition", type=click.IntRange(0), multiple=True, help="Only this partition; repeatable.")
@click.option("--no-snapshot", is_flag=True, help="Do not also fold from the newest snapshot.")
@pass_context
def command(ctx: Context, partition: tuple[int, ...], no_snapshot: bool) -> None:
    """Fold the log again, from its start and from the newest snapshot, and compare with the live state.

    Exit code 0: equal; 3: something differs, and is named; other codes: not everything could be compared.
    """
    begun = time.monotonic()
    with open_reader(ctx) as reader, _scratch(ctx) as scratch, bars("verify") as show:
        views = reader.views()
        absent = [number for number in partition if number not in views and number not in reader.unreadable]
        if absent:
            raise NotFound(f"no state of partition {absent[0]} here", wanted=f"one of {sorted(views)}")
        wanted = sorted(set(partition) or views.keys() | reader.unreadable.keys())
        watch = Watch(show)
        verifier = Verifier(
            KafkaLog(ctx.kafka, ctx.prefix),
            ctx.prefix,
            registry.chosen(),
            ctx.store,
            None if no_snapshot else _catalog(ctx),
            audited_requests(ctx),
            scratch,
            watch.progress,
        )
        reports = [verifier.verify(views[number]) for number in wanted if number in views]
        broken = {number: str(reader.unreadable[number]) for number in wanted if number in reader.unreadable}
        unseen = [] if partition else reader.missing()
    emit(ctx, [_row(report) for report in reports], _COLUMNS)
    folded = sum(report.folded + (report.tail or 0) for report in reports)
    note(f"{folded} records folded in {time.monotonic() - begun:.1f} s")
    if unseen:
        note(f"not compared: partitions {', '.join(map(str, unseen))}, which are not on this machine")
    _judge(reports, broken)


@contextmanager
def _scratch(ctx: Context) -> Iterator[Path]:
    """A folder beside the shards: the disk that holds them has room for another one, unlike many a /tmp."""
    folder = ctx.data / ctx.prefix / SCRATCH
    with os_errors(f"make {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        own = tempfile.TemporaryDirectory(prefix=f"{os.getpid()}-", dir=folder)
    with own as name:
        yield Path(name)


def _sweep(folder: Path) -> None:
    """Take away what a killed process left: its folder begins with its process id."""
    for left in folder.iterdir():
        try:
            os.kill(int(left.name.partition("-")[0]), 0)
        except ProcessLookupError:
            shutil.rmtree(left, ignore_errors=True)
        except (ValueError, PermissionError):
            continue


def _catalog(ctx: Context) -> Catalog | None:
    try:
        return read_catalog(ctx.kafka, ctx.prefix)
    except TopicMissing:
        return None


def _row(report: Report) -> dict[str, Any]:
    return {
        "partition": report.partition,
        "cursor": report.cursor,
        "source": report.source,
        "folded": report.folded,
        "snapshot": report.snapshot,
        "tail": report.tail,
        "differing": len(report.differences),
        "digests": report.digests,
        "differences": [each._asdict() for each in report.differences],
        "uncompared": list(report.uncompared),
        "remarks": list(report.remarks),
    }


def _judge(reports: list[Report], broken: dict[int, str]) -> None:
    """Say everything; then raise for the worst of it. ``broken``: partitions whose shard could not even be opened."""
    uncompared = [f"partition {number}: {reason}" for number, reason in sorted(broken.items())]
    uncompared += [f"partition {report.partition}: {reason}" for report in reports for reason in report.uncompared]
    for text in uncompared:
        note(f"not compared: {text}")
    found = [difference for report in reports for difference in report.differences]
    for each in found:
        note(
            f"{each.what}: partition {each.partition}"
            + (f", session {each.session}" if each.session is not None else "")
            + f", {each.place}: {cell(each.live)} here, {cell(each.expected)} by {each.beside}"
        )
    if found:
        # A row says more than a digest.
        first = next((each for each in found if each.session is not None), found[0])
        raise VerifyDiffers(
            f"{len(found)} difference(s), the first in {first.what}: partition {first.partition}, "
            f"session {first.session if first.session is not None else '-'}, {first.place}",
            wanted="the state that follows from the log",
            todo="rebuild the partition: 'dalsegno replay run --from earliest'",
            what=first.what,
            partition=first.partition,
            session=first.session,
            place=first.place,
        )
    if uncompared:
        raise Failed(
            f"not everything could be compared: {uncompared[0]}",
            wanted="a shard of this build, and the log or a snapshot that it follows from",
            todo="see the lines above",
            uncompared=uncompared,
        )
