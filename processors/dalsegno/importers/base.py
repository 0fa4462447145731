"""What an importer is: it reads a file of another harness and gives sessions of ours, and nothing else.

An importer does no I/O beyond its file and knows no log. What it gives depends on the file's content and on its mapping
version alone, so that two imports of one file make the same bytes, hence the same keys. What the recording does not say
is left out, never invented; what has no place among our events is kept as ``NoteRecorded`` or counted in the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec


class ImportedEvent(NamedTuple):
    """One event of ours with the parts of its ``meta`` that an importer knows.

    ``meta`` holds every field of the envelope except ``session_id``, ``seq`` and ``prev_hash``, which follow from the
    event's place. Times are microseconds since 1970 UTC. ``native_ref`` is where it came from.
    """

    event: msgspec.Struct
    meta: Mapping[str, Any]
    native_ref: str


@dataclass(frozen=True)
class ImportedSession:
    """One session to append, in order. ``blobs`` holds the contents that are too large to stand in an event, by URI."""

    session_id: str
    events: tuple[ImportedEvent, ...]
    blobs: Mapping[str, bytes]


@dataclass
class ImportReport:
    """How faithful an import is. Counts of native records, by their native type.

    ``mapped`` became events of their own kind, ``notes`` are kept whole as notes, ``repeats`` were the same record
    again. ``not_carried`` counts fields or parts of the file that no event holds (an empty one is not counted).
    ``warnings`` are sentences. ``modes`` says for each replay mode whether the sessions allow it, and why not.
    """

    format: str
    mapping_version: int
    records: Counter[str] = field(default_factory=Counter)
    mapped: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    repeats: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    not_carried: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
    modes: dict[str, str] = field(default_factory=dict)

    def as_data(self) -> dict[str, Any]:
        """The report as plain data: sums first, then the counts they come from."""
        return {
            "format": self.format,
            "mapping_version": self.mapping_version,
            "records_read": self.records.total(),
            "events_made": self.events.total(),
            "records_mapped": self.mapped.total(),
            "records_kept_as_notes": self.notes.total(),
            "records_repeated": self.repeats.total(),
            "records": _sorted(self.records),
            "events": _sorted(self.events),
            "notes": _sorted(self.notes),
            "unknown_types": _sorted(self.unknown),
            "not_carried": _sorted(self.not_carried),
            "warnings": self.warnings,
            "replay_modes": self.modes,
        }


class Importer(Protocol):
    """One format. ``name`` is what the command line calls it; a change of the mapping raises ``mapping_version``."""

    name: str
    mapping_version: int

    def report(self) -> ImportReport:
        """An empty report of this format."""
        ...

    def read(self, path: Path, report: ImportReport) -> Iterator[ImportedSession]:
        """Map the file, session by session in its order, and hold no more than one of them.

        Only who comes to the end knows that the file is whole, and has the whole report. Raises BadInputFile, naming
        file and place, at any session. Reading it again gives the same.
        """
        ...


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
