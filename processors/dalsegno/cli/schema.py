"""``dalsegno schema``: the schemas of this build."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dalsegno.cli.context import Context, pass_context
from dalsegno.cli.output import emit, note
from dalsegno.errors import SchemaIncompatible
from dalsegno.log.schema_set import SchemaSet, schema_folder
from dalsegno.model.catalogue import CATALOGUE


@click.group("schema", epilog="Example: dalsegno schema list -o json")
def command() -> None:
    """List, check and export the Avro schemas of events, topics and projections."""


@command.command("list", epilog="Example: dalsegno schema list")
@pass_context
def list_(ctx: Context) -> None:
    """Every schema of this build with its fingerprints."""
    rows = [
        {
            "name": writer.name,
            "class": CATALOGUE[writer.type].cls if writer.type in CATALOGUE else None,
            "version": writer.version,
            "frame_id": writer.frame_id.hex(),
            "schema_hash": writer.schema_hash.hex(),
        }
        for writer in sorted(SchemaSet.load(), key=lambda writer: writer.name)
    ]
    emit(ctx, rows, ("name", "class", "version", "frame_id"))


@command.command("check", epilog="Example: dalsegno schema check --folder schemas")
@click.option(
    "--folder", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Another folder than this build's."
)
@pass_context
def check(ctx: Context, folder: Path | None) -> None:
    """Check that versions go together in both directions and that released files are unchanged."""
    from dalsegno.log.release import check_folder

    report = check_folder(folder or schema_folder())
    problems = [str(problem) for problem in report.problems]
    emit(
        ctx,
        {"files": report.files, "schemas": report.schemas, "released": report.released, "problems": problems},
        ("files", "schemas", "released"),
    )
    if not report.released:
        note("no schema is released yet: every one of them may still change")
    for problem in problems:
        note(problem)
    if problems:
        raise SchemaIncompatible(
            f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in {report.files} schema files",
            wanted="schemas that every version can read",
            todo="undo the change, or make a new event type",
            problems=problems,
        )


@command.command("export", epilog="Example: dalsegno schema export --to avro/")
@click.argument("name", required=False)
@click.option(
    "--to", "folder", type=click.Path(path_type=Path, file_okay=False), help="Write <full name>.avsc files here."
)
def export(name: str | None, folder: Path | None) -> None:
    """Print or write closed schemas, which need no other file: one by NAME, or all of them."""
    schemas = SchemaSet.load()
    chosen = [schemas.named(name)] if name else sorted(schemas, key=lambda writer: writer.name)
    for writer in chosen:
        if folder is None:
            click.echo(writer.json)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(writer.schema, ensure_ascii=False, indent=2) + "\n"
            (folder / f"{writer.name}.avsc").write_text(text, "utf-8")
    if folder is not None:
        note(f"{len(chosen)} schemas written to {folder}")
