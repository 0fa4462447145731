"""``dalsegno dataset``: rows for training and evaluation from recorded sessions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from dalsegno.cli.answers import say_positions
from dalsegno.cli.choosing import choosing
from dalsegno.cli.common import open_reader
from dalsegno.cli.completion import complete_session
from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import emit, note, visible_lines
from dalsegno.errors import NotFound, Usage
from dalsegno.log.redaction import Redactor
from dalsegno.readers.datasets.build import INFERENCE, PAIRS, SESSION, Form, build
from dalsegno.readers.datasets.card import as_text
from dalsegno.readers.datasets.choosing import Wanted
from dalsegno.readers.datasets.folder import JSONL, PARQUET, read_folder
from dalsegno.readers.datasets.splits import Splits, parse_shares
from dalsegno.storage.blobs import Blobs
from dalsegno.storage.object_store import os_errors

_TELL_EVERY = 1_000


@click.group(epilog="Example: dalsegno dataset build --verdict PASS --output accepted")
def command() -> None:
    """Make data sets of recorded sessions, and look at them."""


@command.command("build", epilog="Example: dalsegno dataset build --verdict PASS --redact rules.json --output accepted")
@click.argument("sessions", nargs=-1, shell_complete=complete_session)
@click.option(
    "--output", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder to make; new or empty."
)
@choosing
@click.option(
    "--unit",
    type=click.Choice([INFERENCE, SESSION]),
    default=INFERENCE,
    show_default=True,
    help="A row for each answer of an agent's model, or for the last one of each session.",
)
@click.option(
    "--pairs",
    type=click.Choice(PAIRS),
    help="Preference pairs: accepted against rejected answers, or recorded ones against those of forks.",
)
@click.option("--split", default="80/10/10", show_default=True, help="Per cents of sessions: train/validation/test.")
@click.option("--seed", type=int, default=0, show_default=True, help="Which sessions come into which split.")
@click.option("--dedupe", is_flag=True, help="Of rows with the same context, only the first.")
@click.option("--redact", type=click.Path(path_type=Path), metavar="FILE", help="Redaction rules for what is written.")
@click.option("--allow-tainted", is_flag=True, help="Also from forks in which results were served that do not fit.")
@click.option(
    "--format", "format_", type=click.Choice([JSONL, PARQUET]), default=JSONL, show_default=True, help="Of the rows."
)
@pass_context
def build_(
    ctx: Context,
    wanted: Wanted,
    output: Path,
    unit: str,
    pairs: str | None,
    split: str,
    seed: int,
    dedupe: bool,
    redact: Path | None,
    allow_tainted: bool,
    format_: str,
) -> None:
    """Build a data set in the form of OpenAI's chat API from SESSIONS, or from all that the options choose.

    The folder holds a file per split, card.md and card.json. The same sessions and options give the same bytes.
    """
    if pairs is not None and unit == SESSION:
        raise Usage("--pairs and --unit session", wanted="one of them", todo="pairs are made of single answers")
    splits = Splits(parse_shares(split), seed)
    form = Form(unit, pairs, splits, dedupe, allow_tainted, None if redact is None else _rules(redact), format_)

    def tell(done: int) -> None:
        if done % _TELL_EVERY == 0:
            note(f"{done} sessions")

    with open_reader(ctx) as reader:
        card = build(reader, Blobs(ctx.store), wanted, form, output, tell)
        say_positions(reader)
    _print(ctx, card)


@command.command("show", epilog="Example: dalsegno dataset show accepted")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@pass_context
def show(ctx: Context, folder: Path) -> None:
    """Print the card of the data set in DIR. Exit code 3 if a file is not what the card says."""
    _print(ctx, read_folder(folder))


def _print(ctx: Context, card: Mapping[str, Any]) -> None:
    if ctx.output == "text":
        click.echo(visible_lines(as_text(card)), nl=False)
    else:
        emit(ctx, card)


def _rules(file: Path) -> Redactor:
    if not file.is_file():
        raise NotFound(f"there is no file {file}", wanted="redaction rules", todo="see docs/producers.md, Redaction")
    with os_errors(f"read {file}"):
        return Redactor.load(file.read_bytes())
