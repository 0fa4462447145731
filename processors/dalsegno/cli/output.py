"""Data on stdout: a table for people, or JSON for programs. Text of sessions is made harmless for a terminal."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from dalsegno.cli.context import Context
from dalsegno.cli.times import Moment, shown

_MAX_CELL_CHARACTERS = 60
# Controls and escapes, formats that reorder or hide text (bidirectional overrides, zero-width marks), line separators.
_HIDDEN_CATEGORIES = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"}


def visible(text: str) -> str:
    """The text with control, escape and bidirectional characters written out, so that it cannot act on a terminal."""
    if text.isprintable():
        return text
    return "".join(_written_out(c) if unicodedata.category(c) in _HIDDEN_CATEGORIES else c for c in text)


def _written_out(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def cell(value: Any, limit: int = _MAX_CELL_CHARACTERS) -> str:
    """One value as it stands in a table."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, bytes):
        return value.hex()[:16]
    if isinstance(value, list | tuple):
        text = ", ".join(cell(item) for item in value) or "-"
    elif isinstance(value, dict):
        text = dumps(value)
    elif isinstance(value, Moment):
        text = shown(value)
    else:
        text = str(value)
    text = visible(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def emit(
    ctx: Context, data: Mapping[str, Any] | Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None
) -> None:
    """Print one record or a list of records in the form that was asked for.

    ``columns`` chooses and orders what a text table shows; JSON always holds everything.
    """
    if ctx.output == "none":
        return
    if isinstance(data, Mapping):
        if ctx.output == "text":
            _print_record(data, columns)
        else:
            click.echo(dumps(data))
        return
    rows = list(data)
    if ctx.output == "json":
        click.echo("[\n" + ",\n".join(f"  {dumps(row)}" for row in rows) + "\n]" if rows else "[]")
    elif ctx.output == "jsonl":
        for row in rows:
            click.echo(dumps(row))
    else:
        _print_table(rows, columns)


def emit_with(ctx: Context, record: Mapping[str, Any], name: str, items: Iterable[Mapping[str, Any]]) -> None:
    """Print, as JSON, one record that has a long list under ``name``; as jsonl the record, then a line per item.

    Items are printed one by one as they come; none is kept.
    """
    if ctx.output == "none":
        return
    if ctx.output == "jsonl":
        click.echo(dumps(record))
        for item in items:
            click.echo(dumps(item))
        return
    click.echo(f"{dumps(record)[:-1]}, {dumps(name)}: [", nl=False)
    before = "\n"
    for item in items:
        click.echo(f"{before}  {dumps(item)}", nl=False)
        before = ",\n"
    click.echo("\n]}")


def note(text: str) -> None:
    """A hint or a step for people, on stderr."""
    click.echo(visible_lines(text), err=True)


def visible_lines(text: str) -> str:
    """As ``visible``, with line ends left as they are."""
    return "\n".join(visible(line) for line in text.split("\n"))


def dumps(data: Any) -> str:
    """JSON of a record in one line; bytes become hex, and what could act on a terminal is escaped."""
    text = json.dumps(data, default=_json_default, ensure_ascii=False)
    if text.isprintable():
        return text
    # Such characters can only stand inside strings.
    return "".join(json.dumps(c)[1:-1] if unicodedata.category(c) in _HIDDEN_CATEGORIES else c for c in text)


def _json_default(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, set | frozenset | tuple):
        return sorted(value)
    if hasattr(value, "__struct_fields__"):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _print_record(record: Mapping[str, Any], columns: Sequence[str] | None) -> None:
    names = list(columns or record)
    width = max((len(name) for name in names), default=0)
    for name in names:
        click.echo(f"{name:<{width}}  {cell(record.get(name), 400)}")


def _print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None) -> None:
    if not rows:
        if sys.stderr.isatty():
            note("(nothing)")
        return
    names = list(columns or rows[0])
    lines = [[name.upper().replace("_", "-") for name in names]]
    lines += [[cell(row.get(name)) for name in names] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    for line in lines:
        click.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
