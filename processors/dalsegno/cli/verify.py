"""``dalsegno verify``: does the state that is read follow from the log."""

from __future__ import annotations

import time
from typing import Any

import click

from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import cell, emit, note
from dalsegno.cli.session import open_reader
from dalsegno.errors import NotFound, VerifyDiffers
from dalsegno.projections import registry
from dalsegno.readers.verify import Report, Verifier, audited_requests
from dalsegno.snapshots.catalog import read_catalog
from dalsegno.storage.object_store import FolderStore

_COLUMNS = ("partition", "cursor", "source", "folded", "tail_after_snapshot", "differing", "remarks")


@click.command(epilog="Example: dalsegno verify --partition 3")
@click.option("--partition", type=click.IntRange(0), multiple=True, help="Only this partition; repeatable.")
@click.option("--no-snapshot", is_flag=True, help="Do not also fold from the newest snapshot.")
@pass_context
def command(ctx: Context, partition: tuple[int, ...], no_snapshot: bool) -> None:
    """Fold the log again, from its start and from the newest snapshot, and compare with the live state.

    Exit code 0: equal; 3: something differs, and is named; other codes: it could not be compared.
    """
    begun = time.monotonic()
    with open_reader(ctx) as reader:
        views = reader.views()
        absent = [number for number in partition if number not in views]
        if absent:
            raise NotFound(f"no state of partition {absent[0]} here", wanted=f"one of {sorted(views)}")
        verifier = Verifier(
            ctx.kafka,
            ctx.prefix,
            registry.chosen(),
            FolderStore(ctx.store),
            None if no_snapshot else read_catalog(ctx.kafka, ctx.prefix),
            audited_requests(ctx.kafka, ctx.prefix),
        )
        reports = [verifier.verify(views[number]) for number in sorted(partition or views)]
        unseen = [] if partition else reader.missing()
    emit(ctx, [_row(report) for report in reports], _COLUMNS)
    folded = sum(report.records_folded for report in reports)
    seconds = time.monotonic() - begun
    note(f"{folded} records folded from the start of the log in {seconds:.1f} s")
    if unseen:
        note(f"not compared: partitions {', '.join(map(str, unseen))}, which are not on this machine")
    _judge(reports)


def _row(report: Report) -> dict[str, Any]:
    return {
        "partition": report.partition,
        "cursor": report.cursor,
        "source": report.source,
        "folded": report.records_folded,
        "tail_after_snapshot": report.tail_records,
        "differing": len(report.differences),
        "digests": report.digests,
        "differences": [each._asdict() for each in report.differences],
        "remarks": list(report.remarks),
    }


def _judge(reports: list[Report]) -> None:
    found = [difference for report in reports for difference in report.differences]
    if not found:
        return
    for each in found:
        note(
            f"{each.what}: partition {each.partition}"
            + (f", session {each.session}" if each.session else "")
            + f", {each.place}: {cell(each.live)} here, {cell(each.expected)} by {each.beside}"
        )
    first = next((each for each in found if each.session), found[0])
    raise VerifyDiffers(
        f"{len(found)} difference(s), the first in {first.what}: partition {first.partition}, "
        f"session {first.session or '-'}, {first.place}",
        wanted="the state that follows from the log",
        todo="rebuild the partition: 'dalsegno replay run --from earliest'",
        what=first.what,
        partition=first.partition,
        session=first.session,
        place=first.place,
    )
