"""What every answer from shards has in common: rows with their times as times, and the position it is true at."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from dalsegno.cli.output import note
from dalsegno.cli.times import moment
from dalsegno.projections.base import values_of
from dalsegno.readers.local import SNAPSHOT, LocalReader
from dalsegno.readers.sessions import Found


def row_values(row: Struct) -> dict[str, Any]:
    """The fields of a row, and of the rows in it, times as times."""
    return _timed(values_of(row))


def _timed(values: dict[str, Any]) -> dict[str, Any]:
    for name, value in values.items():
        if (name == "at" or name.endswith("_at")) and (value is None or isinstance(value, int)):
            values[name] = moment(value)
        elif isinstance(value, list):
            values[name] = [_timed(each) if isinstance(each, dict) else each for each in value]
    return values


def say_position(reader: LocalReader, *found: Found) -> None:
    """Say on stderr what an answer about these sessions is true at: of those of one partition, once."""
    for position, source in dict.fromkeys((each.view.position, each.view.source) for each in found):
        note(f"true at {reader.prefix}.events:{position} ({source})")


def say_positions(reader: LocalReader) -> None:
    """Say on stderr what an answer about all sessions is true at, and what it does not cover."""
    views = reader.views()
    note(f"true at {reader.prefix}.events:{','.join(view.position for view in views.values())}")
    restored = [str(view.partition) for view in views.values() if view.source.startswith(SNAPSHOT)]
    if restored:
        note(f"partitions {', '.join(restored)} are not here: answered from their newest snapshots")
    missing = reader.missing()
    if missing:
        note(
            f"partitions {', '.join(map(str, missing))} are neither here nor in a snapshot; their sessions are missing"
        )
