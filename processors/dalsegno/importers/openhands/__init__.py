"""OpenHands' recordings: one conversation a file, as its old server (v0) or its SDK (v1) wrote it.

Which of the two a file is follows from its records: those of v0 are actions and observations, those of v1 name their
``kind``. Both may be a JSON list, or JSON lines. ``v0`` and ``v1`` say what becomes what; ``conversation``, ``leave``
and ``completions`` hold what they share.

A conversation of OpenHands has no end: one that finished goes on with the next message. So no event ends the session;
one that finished is paused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dalsegno.importers.base import ImportedSession, Importer, ImportReport
from dalsegno.importers.json_file import foreign, objects_at, parse_json, read_bytes, unreadable
from dalsegno.importers.json_lines import read_lines
from dalsegno.importers.openhands.records import Record
from dalsegno.importers.openhands.v0 import is_v0, map_v0
from dalsegno.importers.openhands.v1 import is_v1, map_v1
from dalsegno.importers.payload import digest_json

WANTED = "a recording of OpenHands: its events as a JSON list, or one on each line"
_BLANKS = b"\xef\xbb\xbf \t\r\n"
_PEEK_BYTES = 4096


class OpenHandsImporter(Importer):
    """``Importer`` of OpenHands' conversations."""

    name = "openhands"
    about = "OpenHands' conversations, v0 and the v1 SDK (a JSON list of events, or JSON lines)"

    def sessions(self, path: Path, report: ImportReport) -> Iterator[ImportedSession]:
        records = _read(path, report, may_grow=not self.ended)
        if _are_v1(path, records):
            may_grow = records[0].is_line and not self.ended
            yield map_v1(self.id, records, report, may_grow=may_grow)
        else:
            yield map_v0(self.id, records, report)


def _read(path: Path, report: ImportReport, *, may_grow: bool) -> list[Record]:
    try:
        with path.open("rb") as stream:
            head = stream.read(_PEEK_BYTES).lstrip(_BLANKS)
    except OSError as error:
        raise unreadable(path, error, WANTED) from error
    if not head.startswith(b"["):
        lines = read_lines(path, WANTED, report, may_grow=may_grow)
        return [Record(line.ref, line.data, line.digest) for line in lines]
    items = objects_at(path, "", parse_json(path, "", read_bytes(path, WANTED), WANTED), WANTED)
    if not items:
        raise foreign(path, "", "the list is empty", WANTED)
    return [Record(f"/{index}", item, digest_json(item)) for index, item in enumerate(items)]


def _are_v1(path: Path, records: list[Record]) -> bool:
    """By the first record; all others must be of the same kind."""
    first = records[0]
    v1 = is_v1(first.data)
    for record in records:
        if not (is_v1 if v1 else is_v0)(record.data):
            found = "neither an action nor an observation, nor of a /kind"
            if record is not first:
                found = "no such event as those before it"
            raise foreign(path, f"line {record.place[1:]}" if record.is_line else record.place, found, WANTED)
    return v1
