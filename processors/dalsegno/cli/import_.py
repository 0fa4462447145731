"""``dalsegno import``: recordings of other harnesses as sessions of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dalsegno.cli.common import some
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import emit, note
from dalsegno.errors import Usage
from dalsegno.importers.base import Importer
from dalsegno.importers.registry import IMPORTERS
from dalsegno.importers.run import ImportOutcome, import_files
from dalsegno.log.publisher import Publisher

_COLUMNS = ("file", "sessions", "events", "new", "grew", "same", "ahead", "erased", "missing", "appended")
_MOST_NOT_CARRIED = 12
_MOST_WARNINGS = 12
_MOST_SESSIONS = 3
_WITH_REPORTS = ", ".join(sorted(name for name, kind in IMPORTERS.items() if kind.takes_reports))
_HELP = """Import recordings of another harness. FORMAT is one of:

\b
{formats}

All files are read whole and compared with the log before anything of any of them is appended; importing them again adds
only what is missing. How faithful it was is in the data (-o json) and, in short, on stderr.
""".format(formats="\n".join(f"{name:<16}{kind.about}" for name, kind in sorted(IMPORTERS.items())))


@click.command(help=_HELP, epilog="Example: dalsegno import inspect logs/theory-of-mind.eval")
@click.argument("format_name", metavar="FORMAT", type=click.Choice(sorted(IMPORTERS)))
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@click.option(
    "--report",
    "reports",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help=f"A file with the verdict on one of the sessions ({_WITH_REPORTS}); repeatable.",
)
@click.option(
    "--ended",
    is_flag=True,
    help="The files will not grow any more: what waits at their end for what may follow is imported too, and a torn "
    "last line is an error.",
)
@click.option("--dry-run", is_flag=True, help="Read, map and compare with the log, but append nothing.")
@pass_context
def command(
    ctx: Context, format_name: str, files: tuple[Path, ...], reports: tuple[Path, ...], ended: bool, dry_run: bool
) -> None:
    """See ``_HELP``: which formats there are is told by the importers."""
    importer = _importer(format_name, reports, ended=ended)
    outcomes: list[dict[str, Any]] = []
    with Publisher(ctx.kafka, prefix=ctx.prefix) as publisher:
        for outcome in import_files(publisher, importer, files, store=ctx.store, dry_run=dry_run):
            outcomes.append(outcome.as_data())
            _tell(outcome)
    emit(ctx, outcomes, _COLUMNS)


def _importer(format_name: str, reports: tuple[Path, ...], *, ended: bool) -> Importer:
    kind = IMPORTERS[format_name]
    if reports and not kind.takes_reports:
        raise Usage(
            f"--report with the format {format_name}, whose files hold all there is",
            wanted=f"a format with verdicts in files of their own ({_WITH_REPORTS})",
            todo="leave --report out, or name the other format",
        )
    return kind(reports, ended=ended)


def _tell(outcome: ImportOutcome) -> None:
    """The report in a few lines for people."""
    data = outcome.report.as_data()
    note(
        f"{outcome.path.name}: {data['records_read']} records read, {data['records_mapped']} mapped, "
        f"{data['records_kept_as_notes']} kept as notes, {data['records_repeated']} repeated, "
        f"{data['records_skipped']} left out; {data['events_made']} events made"
    )
    if data["waiting"]:
        note(f"  left out until the file has grown, or --ended is given: {_counted(data['waiting'])}")
    written = outcome.written
    note(
        f"  {'would write' if outcome.dry_run else 'wrote'} {len(written)} of {len(outcome.sessions)} sessions"
        + (f": {some(written, _MOST_SESSIONS)}" if written else "; the log lacks nothing of them")
    )
    if data["unknown_types"]:
        note(f"  unknown types, kept as notes: {_counted(data['unknown_types'])}")
    if data["not_carried"]:
        note(f"  not carried: {_counted(data['not_carried'])}")
    if data["lacks"]:
        note(f"  not in the recording: {_counted(data['lacks'])}")
    for warning in data["warnings"][:_MOST_WARNINGS]:
        note(f"  warning: {warning}")
    if (more := len(data["warnings"]) - _MOST_WARNINGS) > 0:
        note(f"  and {more} more warnings, in the data (-o json)")


def _counted(counts: dict[str, int]) -> str:
    return some([f"{name} ({count})" for name, count in counts.items()], _MOST_NOT_CARRIED)
