"""Claude Code's sessions (JSONL): one session per conversation, per branch of it, and per agent that it delegated to.

``records`` reads a line and says what each type is, ``branches`` finds the session of a line, ``stream`` maps one
session, ``content`` and ``results`` its messages and what came back of calls, ``compaction`` where it was made shorter.
What a line becomes depends on the lines before it alone, so that a file that grew adds to its sessions and changes
nothing. The last message of a model may go on, unless its line says that it ended: it is left for the import of the
longer file, and the report says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dalsegno.importers.base import ImportedSession, Importer, ImportReport
from dalsegno.importers.claude_code.branches import Branches
from dalsegno.importers.claude_code.records import SPOKEN, WITHOUT_SESSION, Findings, Native
from dalsegno.importers.json_file import foreign
from dalsegno.importers.json_lines import Line, read_lines

WANTED = "a session of Claude Code (JSONL)"


class ClaudeCodeImporter(Importer):
    """``Importer`` of Claude Code's sessions."""

    name = "claude-code"
    about = "Claude Code's sessions (<session id>.jsonl in a project's folder)"

    def sessions(self, path: Path, report: ImportReport) -> Iterator[ImportedSession]:
        seen = Findings()
        branches = Branches(self.id, report, seen)
        for line in read_lines(path, WANTED, report, may_grow=not self.ended):
            branches.feed(_native(path, line))
        yield from branches.end(self.ended)
        report.warnings += seen.told()


def _native(path: Path, line: Line) -> Native:
    """A line as a record. Raises BadInputFile for what is none."""
    data, place = line.data, f"line {line.number}"
    kind = data.get("type")
    if not isinstance(kind, str):
        raise foreign(path, place, "no text /type", WANTED)
    if kind in SPOKEN and not isinstance(data.get("message"), dict):
        raise foreign(path, place, f"a line of the {kind} without an object /message", WANTED)
    needs = WITHOUT_SESSION.get(kind, "sessionId")
    if kind in SPOKEN and not isinstance(data.get("uuid"), str):
        needs = "uuid"
    if needs not in data or (needs in ("uuid", "sessionId") and not isinstance(data[needs], str)):
        raise foreign(path, place, f"a line of type {kind!r} without /{needs}", WANTED)
    return Native(line)
