"""Importing files: (1) read, map and encode all of them, (2) look up what the log holds of their sessions, (3) compare,
(4) go through each again and append.

Nothing is appended before (3) has passed for every session of every file, and no more than one session is held: from
(1) only the hashes stay. What is appended has the same bytes in every import of the same content, so a second import,
and one that was cut off in the middle and started again, add only what is missing; two at the same time do no harm
either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dalsegno.errors import BadInputFile, DalsegnoError, ImportConflict, InvalidEvent, WaitTimeout
from dalsegno.importers.base import ImportedSession, Importer, ImportReport
from dalsegno.importers.chain import chained
from dalsegno.importers.json_file import bad_file
from dalsegno.importers.recorded import Recorded, read_recorded
from dalsegno.log.history import held
from dalsegno.log.publisher import Publisher
from dalsegno.model.ids import EventKey, Seq
from dalsegno.model.records import UNREADABLE_REASONS
from dalsegno.storage.blobs import blob_key
from dalsegno.storage.object_store import Store

APPEND_TIMEOUT_SECONDS = 120.0

NEW = "new"
GREW = "grew"
SAME = "same"
AHEAD = "ahead"
ERASED = "erased"
"""What an import finds: the log has nothing of the session; a part of it; all of it; all of it and more; or an
amendment erased it, and then it is not imported again."""


class Mapped(NamedTuple):
    """A session of the file, as far as it is kept: the hash of each of its events."""

    session_id: str
    hashes: tuple[bytes, ...]


@dataclass(frozen=True)
class SessionImport:
    """One session of the file: what the log holds of it, and the seqs that it lacks, in order."""

    session_id: str
    found: str
    events: int
    missing: tuple[int, ...] = ()


@dataclass(frozen=True)
class ImportOutcome:
    """What an import did, or, with ``dry_run``, would do."""

    path: Path
    dry_run: bool
    report: ImportReport
    sessions: tuple[SessionImport, ...]
    appended: int = field(default=0)

    @property
    def written(self) -> list[str]:
        """The sessions that got events, or, with ``dry_run``, would get some."""
        return [session.session_id for session in self.sessions if session.missing]

    def as_data(self) -> dict[str, Any]:
        found = Counter(session.found for session in self.sessions)
        return {
            "file": str(self.path),
            "sessions": len(self.sessions),
            **{state: found[state] for state in (NEW, GREW, SAME, AHEAD, ERASED)},
            "events": sum(session.events for session in self.sessions),
            "missing": sum(len(session.missing) for session in self.sessions),
            "appended": self.appended,
            "dry_run": self.dry_run,
            "report": self.report.as_data(),
            "session_ids": [session.session_id for session in self.sessions],
            "written": self.written,
        }


def import_file(
    publisher: Publisher, importer: Importer, path: Path, *, store: Store | None = None, dry_run: bool = False
) -> ImportOutcome:
    """Import one file, as ``import_files`` does."""
    (outcome,) = import_files(publisher, importer, [path], store=store, dry_run=dry_run)
    return outcome


def import_files(
    publisher: Publisher,
    importer: Importer,
    paths: Sequence[Path],
    *,
    store: Store | None = None,
    dry_run: bool = False,
) -> Iterator[ImportOutcome]:
    """Import files together, and tell of each as soon as it is appended. ``store`` takes contents that are too large
    for an event.

    Raises BadInputFile for a damaged or foreign file and ImportConflict where the log, or a file before it, holds
    another prefix of one of its sessions; nothing of any file was appended then. Any other error may leave a part: run
    the import again.
    """
    files = [_File(publisher, importer, path, store) for path in paths]
    for file in files:
        file.read()
    importer.check_reports()
    known = _Known(read_recorded(publisher, {mine.session_id for file in files for mine in file.mapped}))
    for file in files:
        file.compare(known)
    for file in files:
        appended = 0 if dry_run else file.append()
        yield ImportOutcome(file.path, dry_run, file.report, tuple(file.sessions), appended)


class _Known:
    """What is there of the sessions: in the log, and in the files before."""

    def __init__(self, recorded: dict[str, Recorded]) -> None:
        self.recorded = recorded
        self._holders: dict[str, Path] = {}

    def holder(self, session_id: str) -> str:
        return str(self._holders.get(session_id, "the log"))

    def add(self, mine: Mapped, path: Path) -> None:
        """A file before the next ones holds this, which equals what is there as far as both go."""
        there = self.recorded.get(mine.session_id, Recorded((), frozenset(), False, None))
        if len(there.path) < len(mine.hashes):
            self.recorded[mine.session_id] = there._replace(path=mine.hashes)
            self._holders[mine.session_id] = path


class _File:
    """One file on its way into one log."""

    def __init__(self, publisher: Publisher, importer: Importer, path: Path, store: Store | None) -> None:
        self._publisher, self._importer, self._store = publisher, importer, store
        self.path = path
        self.report = importer.report()
        self.mapped: list[Mapped] = []
        self.sessions: list[SessionImport] = []

    # --- (1) ---------------------------------------------------------------------------------------------------------

    def read(self) -> None:
        # No loop variable, here or in (4): it would hold one session while the next one is read.
        self.mapped = list(map(self._mapped, self._importer.read(self.path, self.report)))

    def _mapped(self, session: ImportedSession) -> Mapped:
        try:
            records = chained(session, self._publisher.schemas)
        except InvalidEvent as error:
            todo = "check that the file is a real recording; nothing of it was imported"
            raise bad_file(self.path, "", error.found, error.wanted, todo) from error
        return Mapped(session.session_id, tuple(record.key.hash for record in records))

    # --- (3) ---------------------------------------------------------------------------------------------------------

    def compare(self, known: _Known) -> None:
        for mine in self.mapped:
            self.sessions.append(self._compared(mine, known))
            known.add(mine, self.path)

    def _compared(self, mine: Mapped, there: _Known) -> SessionImport:
        """What is missing. Raises ImportConflict at the first record that differs (BadInputFile if the file no longer
        has that one), SessionHeld where nobody can say."""
        session_id, hashes = mine
        events, recorded = len(hashes), there.recorded.get(session_id)
        if recorded is None:
            return SessionImport(session_id, NEW, events, tuple(range(1, events + 1)))
        if recorded.erased:
            return SessionImport(session_id, ERASED, events)
        for seq, (hash_, theirs) in enumerate(zip(hashes, recorded.path, strict=False), start=1):
            if hash_ != theirs:
                raise self._conflict(session_id, seq, hash_, theirs, there.holder(session_id))
        known = len(recorded.path)
        if recorded.held is not None and recorded.held.reason in UNREADABLE_REASONS and known < events:
            raise held(session_id, recorded.held.reason, recorded.held.seq)
        missing = tuple(
            seq
            for seq, hash_ in enumerate(hashes[known:], start=known + 1)
            if EventKey(session_id, Seq(seq), hash_) not in recorded.keys
        )
        if not missing:
            return SessionImport(session_id, AHEAD if known > events else SAME, events)
        return SessionImport(session_id, GREW if known else NEW, events, missing)

    def _conflict(self, session_id: str, seq: int, hash_: bytes, theirs: bytes, holder: str) -> DalsegnoError:
        """Only now it is of interest which event of the file that is: it is looked for again. A file that no longer
        has it changed meanwhile."""
        again = self._importer.read(self.path, self._importer.report())
        session = next((session for session in again if session.session_id == session_id), None)
        records = [] if session is None else chained(session, self._publisher.schemas)
        mine = next((record for record in records if record.key == EventKey(session_id, Seq(seq), hash_)), None)
        if mine is None:
            return self._changed(session_id)
        return ImportConflict(
            f"{holder} holds another event at seq {seq} of session {session_id} than {self.path}",
            wanted=f"{mine.type} with hash {mine.key.hash.hex()} (from {mine.native_ref or 'the file'})",
            todo="find out who wrote the session: another state of the file, or another program",
            session_id=session_id,
            seq=mine.key.seq,
            recorded_hash=theirs.hex(),
            native_ref=mine.native_ref,
            file=str(self.path),
        )

    # --- (4) ---------------------------------------------------------------------------------------------------------

    def append(self) -> int:
        """Send what is missing. Raises BadInputFile if the file is no longer what was compared."""
        pairs = zip(self.mapped, self.sessions, strict=True)
        left = {each.session_id: (mine, each.missing) for mine, each in pairs if each.missing}
        if not left:
            return 0
        sent = sum(map(partial(self._append_session, left), self._importer.read(self.path, self._importer.report())))
        if left:
            raise self._changed(next(iter(left)))
        return sent

    def _append_session(self, left: dict[str, tuple[Mapped, tuple[int, ...]]], session: ImportedSession) -> int:
        """Store the large contents, then send what is missing and wait for every report."""
        if session.session_id not in left:
            return 0
        mine, missing = left.pop(session.session_id)
        records = chained(session, self._publisher.schemas)
        if tuple(record.key.hash for record in records) != mine.hashes:
            raise self._changed(session.session_id)
        self._store_blobs(session)
        sent = [self._publisher.send(records[seq - 1].key, records[seq - 1].value) for seq in missing]
        unreported = self._publisher.flush(APPEND_TIMEOUT_SECONDS)
        if unreported:
            raise WaitTimeout(
                f"{unreported} of {len(sent)} events of session {session.session_id} have no report after "
                f"{APPEND_TIMEOUT_SECONDS:g} s",
                wanted="an acknowledgement for every event",
                todo="run the import again: it adds only what is missing",
            )
        for pending in sent:
            pending.result(APPEND_TIMEOUT_SECONDS)
        return len(sent)

    def _store_blobs(self, session: ImportedSession) -> None:
        if not session.blobs:
            return
        if self._store is None:
            raise ValueError(f"{session.session_id} has contents for the blob store, and no store was given")
        for uri, content in session.blobs.items():
            self._store.put_if_absent(blob_key(uri.rpartition(":")[2]), content)

    def _changed(self, session_id: str) -> BadInputFile:
        return BadInputFile(
            f"{self.path} changed while it was imported: session {session_id} is no longer what it was",
            wanted="a file that stays as it is",
            todo="run the import again: it adds only what is missing",
            file=str(self.path),
        )
