"""Made recordings of one JSON object per line: written, imported, judged by a shard, and grown line by line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dalsegno.importers.base import ImportedSession, ImportReport
from dalsegno.importers.chain import chained
from dalsegno.importers.registry import IMPORTERS
from dalsegno.log.codec import place
from dalsegno.model.ids import partition_of
from dalsegno.model.records import Event
from dalsegno.testing.builder import shipped_schemas
from recordings import written_of
from shard_lab import folded, reads

NativeLine = dict[str, Any]


class Imported(NamedTuple):
    sessions: list[ImportedSession]
    report: ImportReport

    def events(self, session: int = 0) -> list[Event]:
        """As a reader of the log decodes them."""
        made, events = self.sessions[session], []
        for record in chained(made, shipped_schemas()):
            event = place(shipped_schemas(), record.key.encode(), record.value, partition_of(made.session_id, 4), 4)
            assert isinstance(event, Event)
            events.append(event)
        return events

    def of(self, type_: str, session: int = 0) -> list[dict[str, Any]]:
        return [dict(event.body) for event in self.events(session) if event.type == type_]

    def types(self, session: int = 0) -> list[str]:
        return [event.type for event in self.events(session)]

    def hashes(self) -> dict[str, list[bytes]]:
        return {s.session_id: [r.key.hash for r in chained(s, shipped_schemas())] for s in self.sessions}


def imported(format_: str, lines: Sequence[NativeLine], folder: Path, *, ended: bool = False) -> Imported:
    """The lines imported; every record is accounted for, and no session breaks a rule or is held."""
    result = _read(format_, lines, folder, ended=ended)
    shard = reads(folded(list(written_of(result.sessions))))
    for session in result.sessions:
        row = shard.row("sessions", session.session_id)
        assert (row.violations, row.held_reason, row.last_seq) == (0, None, len(session.events)), session.session_id
    return result


def grows(format_: str, lines: Sequence[NativeLine], folder: Path) -> Imported:
    """The lines imported, after every shorter file was, too: each gave a prefix of what the next one gives, and the
    last a prefix of what it gives as one that has ended, which breaks no rule."""
    before: dict[str, list[bytes]] = {}
    for count in range(1, len(lines) + 1):
        whole = _read(format_, lines[:count], folder)
        now = whole.hashes()
        for session_id, hashes in before.items():
            assert now[session_id][: len(hashes)] == hashes, f"line {count} changed {session_id}"
        before = now
    ended = imported(format_, lines, folder, ended=True)
    assert ended.report.waiting == {} or not ended.sessions
    for session_id, hashes in before.items():
        assert ended.hashes()[session_id][: len(hashes)] == hashes, f"the end changed {session_id}"
    return whole


def _read(format_: str, lines: Sequence[NativeLine], folder: Path, *, ended: bool = False) -> Imported:
    path = folder / "made.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    importer = IMPORTERS[format_](ended=ended)
    report = importer.report()
    result = Imported(list(importer.read(path, report)), report)
    settled = (report.mapped, report.notes, report.repeats, report.skipped, report.waiting)
    assert report.records.total() == len(lines) == sum(counter.total() for counter in settled)
    return result
