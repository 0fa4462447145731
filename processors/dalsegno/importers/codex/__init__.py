"""Codex CLI's rollouts (JSONL): one session per ``session_meta``, which begins a file and, in joined files, each part.

``records`` reads a line and says what each type is, ``section`` maps one session, ``settings`` its configuration,
``answers`` its model calls with their tokens and results, ``items`` what the model said, ``compaction`` where the
history was made shorter, ``twins`` finds what is told twice. What a line becomes depends on the lines before it alone,
so that a file that grew adds to its sessions and changes nothing. What is open at the end of the file (an answer that
may go on, a message that may be told again) is left for the import of the longer file, and the report says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dalsegno.importers.base import ImportedSession, Importer, ImportReport
from dalsegno.importers.codex.records import Findings, Native, usable_id
from dalsegno.importers.codex.section import Section
from dalsegno.importers.json_file import foreign
from dalsegno.importers.json_lines import Line, read_lines
from dalsegno.importers.opening import session_id_of

WANTED = "a Codex rollout (JSONL)"


class CodexImporter(Importer):
    """``Importer`` of Codex CLI's rollouts."""

    name = "codex"
    about = "Codex CLI's rollouts (rollout-*.jsonl)"

    def sessions(self, path: Path, report: ImportReport) -> Iterator[ImportedSession]:
        parts = _Parts(self.id, report)
        section: Section | None = None
        for line in read_lines(path, WANTED, report, may_grow=not self.ended):
            native = _native(path, line, first=section is None)
            if native.type == "session_meta" and (section is None or not section.is_about(native)):
                if section is not None:
                    yield section.ended()
                section = parts.next(native)
            else:
                assert section is not None
                section.feed(native)
        assert section is not None  # read_lines raises where there is no line
        yield section.ended() if self.ended else section.cut_off()
        report.warnings += parts.findings.told()


class _Parts:
    """The sessions of one file, by their own ids; one without an id that is none is named by its first record."""

    def __init__(self, importer: str, report: ImportReport) -> None:
        self._importer = importer
        self._report = report
        self._seen: set[str] = set()
        self._unnamed: Counter[str] = Counter()
        self.findings = Findings()

    def next(self, native: Native) -> Section:
        own = usable_id(native.payload.get("id"))
        if own is not None and own not in self._seen:
            self._seen.add(own)
            session_id = session_id_of(self._importer, own)
        else:
            digest = native.line.digest.hex()[:32]
            self._unnamed[digest] += 1
            session_id = session_id_of(self._importer, "record", digest, self._unnamed[digest])
            self._report.warnings.append(
                f"line {native.line.number} begins a session "
                + ("without an id" if own is None else f"with the id of an earlier one ({own})")
                + ": it is named by that line"
            )
        return Section(self._importer, session_id, own, native, self._report, self.findings)


def _native(path: Path, line: Line, *, first: bool) -> Native:
    """A line as a record. Raises BadInputFile for what is none."""
    data: dict[str, Any] = line.data
    place = f"line {line.number}"
    if not isinstance(data.get("type"), str) or not isinstance(data.get("payload"), dict):
        raise foreign(path, place, "no record with a text /type and an object /payload", WANTED)
    if first and data["type"] != "session_meta":
        raise foreign(path, place, f"/type is {data['type']!r}, and no session has begun", WANTED)
    return Native(line)
