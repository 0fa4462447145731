"""What an importer is: it reads a file of another harness and gives sessions of ours, and nothing else.

An importer does no I/O beyond its file and knows no log. What it gives depends on the file's content and on its mapping
version alone, so that two imports of one file make the same bytes, hence the same keys. What the recording does not say
is left out, never invented; what has no place among our events is kept as ``NoteRecorded`` or counted in the report.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from dalsegno.errors import BadInputFile
from dalsegno.importers.fidelity import TIME, lacks_of, replay_modes
from dalsegno.model.events import NewEvent

NO_ZONE = "time zone (taken as UTC)"


class ImportedEvent(NamedTuple):
    """One event of ours with the parts of its ``meta`` that an importer knows.

    ``meta`` holds every field of the envelope except ``session_id``, ``seq`` and ``prev_hash``, which follow from the
    event's place. Times are microseconds since 1970 UTC. ``native_ref`` is where it came from.
    """

    event: NewEvent
    meta: Mapping[str, Any]
    native_ref: str


@dataclass(frozen=True)
class ImportedSession:
    """One session to append, in order. ``blobs`` holds the contents that are too large to stand in an event, by URI.

    ``parent``: the session of the same file that this one goes out from; the references to its events get their hashes
    when the sessions are encoded.
    """

    session_id: str
    events: tuple[ImportedEvent, ...]
    blobs: Mapping[str, bytes]
    parent: ImportedSession | None = None


@dataclass
class ImportReport:
    """How faithful an import is. Counts of native records, by their native type.

    Each record is one of five: ``mapped`` became events of their own kind, ``notes`` are kept whole as notes,
    ``repeats`` were the same record again, ``skipped`` are known to say nothing of this session, ``waiting`` are left
    out until the file has grown, since what they are depends on what follows; ``unknown`` counts those among the notes
    whose type is not known. ``not_carried`` counts fields or parts of the file that no event
    holds (an empty one is not counted). ``concluded`` counts, of the ``events`` made, those that the recording does not
    hold but that follow from it; ``lacks`` counts what no event can say since the recording does not. ``warnings`` are
    sentences.
    """

    format: str
    mapping_version: int
    records: Counter[str] = field(default_factory=Counter)
    mapped: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    repeats: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    waiting: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    not_carried: Counter[str] = field(default_factory=Counter)
    lacks: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    concluded: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)

    def left(self, kind: str, fields: Iterable[str]) -> None:
        """Count fields of a record (or a part of the file) of this kind that no event holds."""
        self.not_carried.update(f"{kind}.{name}" for name in fields)

    def zoneless(self, times: int) -> None:
        """So many times of the file are without a zone."""
        if times:
            self.not_carried[NO_ZONE] += times

    def account(self, session: ImportedSession) -> None:
        """Count a whole session: the events it is, and what they cannot say."""
        for event, meta, _ in session.events:
            self.events[event.TYPE] += 1
            self.concluded[event.TYPE] += bool(meta["origin"]["synthesized"])
            self.lacks[TIME] += meta["occurred_at"] is None
        self.lacks.update(lacks_of(each.event for each in session.events))

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
            "records_skipped": self.skipped.total(),
            "records_waiting": self.waiting.total(),
            "records": _sorted(self.records),
            "events": _sorted(self.events),
            "events_concluded": _sorted(self.concluded),
            "notes": _sorted(self.notes),
            "skipped": _sorted(self.skipped),
            "waiting": _sorted(self.waiting),
            "unknown_types": _sorted(self.unknown),
            "not_carried": _sorted(self.not_carried),
            "lacks": _sorted(self.lacks),
            "warnings": self.warnings,
            "replay_modes": replay_modes(self.events, self.lacks),
        }


class Importer(ABC):
    """One format. ``name`` is what the command line calls it, ``about`` what its help says of it.

    A change of the mapping raises ``mapping_version``. A format with ``takes_reports`` takes the verdicts of its
    sessions from further files, which are given with ``--report``. ``ended``: the files will not grow any more, so that
    nothing waits at their end for what may follow.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    mapping_version: ClassVar[int] = 1
    takes_reports: ClassVar[bool] = False

    def __init__(self, reports: Sequence[Path] = (), *, ended: bool = False) -> None:
        self.reports = tuple(reports)
        self.reports_used: set[Path] = set()
        self.ended = ended

    @property
    def id(self) -> str:
        """The name with the mapping version, as it stands in events and in front of session ids."""
        return f"{self.name}/{self.mapping_version}"

    def report(self) -> ImportReport:
        """An empty report of this format."""
        return ImportReport(self.name, self.mapping_version)

    def check_reports(self) -> None:
        """After all files were read: raises BadInputFile for a report that belongs to none of their sessions."""
        for path in self.reports:
            if path not in self.reports_used:
                raise BadInputFile(
                    f"{path} belongs to no session of these files",
                    wanted="the verdict on a session of a file that is given",
                    todo="name its recording too, or leave the report out; nothing was imported",
                    file=str(path),
                )

    def read(self, path: Path, report: ImportReport) -> Iterator[ImportedSession]:
        """Map the file, session by session in its order, and hold no more than one of them.

        Only who comes to the end knows that the file is whole, and has the whole report. Raises BadInputFile, naming
        file and place, at any session. Reading it again gives the same.
        """
        return iter(partial(_next, path, report, self.sessions(path, report)), None)

    @abstractmethod
    def sessions(self, path: Path, report: ImportReport) -> Iterator[ImportedSession]:
        """What ``read`` gives. Records are counted in the report here, events by ``read``."""


def _next(path: Path, report: ImportReport, sessions: Iterator[ImportedSession]) -> ImportedSession | None:
    try:
        session = next(sessions, None)
    except RecursionError as error:
        raise BadInputFile(
            f"{path}: a record is nested too deeply",
            wanted=f"a recording of {report.format}",
            todo="check that the file is a real recording; nothing of it was imported",
            file=str(path),
        ) from error
    if session is not None:
        report.account(session)
    elif zoneless := report.not_carried[NO_ZONE]:
        report.warnings.append(f"{zoneless} times are without a zone; they are taken as UTC")
    return session


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return {name: count for name, count in sorted(counts.items()) if count}
