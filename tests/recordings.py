"""The shared recordings of other harnesses, each with its format, and what tests of every importer do with them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dalsegno.importers.base import ImportedSession, Importer, ImportReport
from dalsegno.importers.chain import ChainedRecord, chained
from dalsegno.importers.registry import IMPORTERS
from dalsegno.log.codec import place
from dalsegno.model.ids import partition_of
from dalsegno.model.lifecycle import MemoryOps, SessionState, judge
from dalsegno.model.records import Event
from dalsegno.testing.builder import Written, shipped_schemas

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
MISSING = f"the shared recordings are not at {TRACES}"

_FORMATS = {
    "atif": "atif",
    "claude-code": "claude-code",
    "codex-rollout": "codex",
    "inspect-ai": "inspect",
    "mini-swe-agent": "mini-swe-agent",
    "openhands-v0": "openhands",
    "openhands-v1": "openhands",
    "otel": "otel",
    "swe-agent": "swe-agent",
    "temporal": "temporal",
}
"""Folder -> format."""
TEXT = (".json", ".jsonl", ".traj")
GROWING = ".jsonl"


class Recording(NamedTuple):
    """One file to import, with the verdict files that belong to it."""

    format: str
    path: Path
    reports: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.name}"


def recordings() -> list[Recording]:
    """All shared recordings, in order; none where the folder is missing."""
    found = []
    for folder, name in sorted(_FORMATS.items()):
        files = sorted(path for path in (TRACES / folder).glob("*") if path.is_file())
        reports = [path for path in files if path.name.endswith(".report.json")]
        found += [
            Recording(name, path, tuple(r for r in reports if _stem(r) == _stem(path)))
            for path in files
            if path not in reports
        ]
    return found


def _stem(path: Path) -> str:
    return path.name.split(".")[0]


def each_recording(*suffixes: str) -> list[Any]:
    """Parameters for a test that takes a ``recording``, if need be only those whose file name ends with one of these.

    Those of a format that is not there are skipped by name.
    """
    chosen = [recording for recording in recordings() if not suffixes or recording.path.suffix in suffixes]
    if not chosen:
        return [pytest.param(None, id="none", marks=pytest.mark.skip(reason=MISSING))]
    return [
        pytest.param(
            recording,
            id=recording.name,
            marks=[] if recording.format in IMPORTERS else pytest.mark.skip(reason=f"no importer {recording.format}"),
        )
        for recording in chosen
    ]


def recording_of(folder: str, name: str) -> Recording:
    """One of them by folder and file name. Skips the test where the recordings are missing."""
    for recording in recordings():
        if recording.path == TRACES / folder / name:
            return recording
    pytest.skip(MISSING)


def importer_of(recording: Recording) -> Importer:
    """An importer of its format, with the verdict files."""
    return IMPORTERS[recording.format](recording.reports)


def read(recording: Recording, path: Path | None = None) -> tuple[list[ImportedSession], ImportReport]:
    """All that a recording (or a changed copy of it) gives, at once."""
    importer = importer_of(recording)
    report = importer.report()
    return list(importer.read(path or recording.path, report)), report


@cache
def _read_once(recording: Recording) -> tuple[tuple[ImportedSession, ...], dict[str, Any]]:
    sessions, report = read(recording)
    return tuple(sessions), report.as_data()


def sessions_of(recording: Recording) -> tuple[ImportedSession, ...]:
    return _read_once(recording)[0]


def report_of(recording: Recording) -> dict[str, Any]:
    return _read_once(recording)[1]


def records_of(sessions: tuple[ImportedSession, ...] | list[ImportedSession]) -> list[ChainedRecord]:
    return [record for session in sessions for record in chained(session, shipped_schemas())]


def written_of(sessions: tuple[ImportedSession, ...] | list[ImportedSession]) -> Iterator[Written]:
    """The records as a reader of a log of one partition finds them."""
    for record in records_of(sessions):
        yield Written(record.key.encode(), record.value, _event(record, 1))


@cache
def events_of(recording: Recording) -> tuple[tuple[Event, ...], ...]:
    """Per session, the events as a reader of the log decodes them."""
    return tuple(
        tuple(_event(record, 16) for record in chained(session, shipped_schemas()))
        for session in sessions_of(recording)
    )


def of_type(recording: Recording, type_: str) -> list[Event]:
    return [event for events in events_of(recording) for event in events if event.type == type_]


class Mapped:
    """All sessions of a file as a reader of the log sees them; none of their events may break a rule."""

    def __init__(self, importer: Importer, path: Path) -> None:
        self.report = importer.report()
        self.events: list[Event] = []
        states: dict[str, tuple[SessionState, MemoryOps]] = {}
        for written in written_of(list(importer.read(path, self.report))):
            assert isinstance(written.event, Event)
            state, ops = states.setdefault(written.event.session_id, (SessionState(), MemoryOps()))
            assert judge(state, ops, written.event).violations == (), written.event
            self.events.append(written.event)
        self.statuses = {session_id: state.status for session_id, (state, _) in states.items()}

    @property
    def status(self) -> str:
        """That of the only session."""
        (status,) = self.statuses.values()
        return status

    def of(self, type_: str) -> list[Event]:
        return [event for event in self.events if event.type == type_]

    def bodies(self, type_: str) -> list[dict[str, Any]]:
        return [dict(event.body) for event in self.of(type_)]

    def types(self) -> list[str]:
        return [event.type for event in self.events]


def mapped(importer: Importer, path: Path) -> tuple[list[Event], ImportReport]:
    """The events of all sessions of a file, in order, and the report."""
    made = Mapped(importer, path)
    return made.events, made.report


def _event(record: ChainedRecord, partitions: int) -> Event:
    partition = partition_of(record.key.session_id, partitions)
    event = place(shipped_schemas(), record.key.encode(), record.value, partition, partitions)
    assert isinstance(event, Event)
    return event
