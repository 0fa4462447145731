"""Importing a file: (1) read and map it whole, (2) look up what the log holds of its sessions, (3) compare, (4) append.

Nothing is appended before (3) has passed for every session of the file. What is appended has the same bytes in every
import of the same content, so a second import, and one that was cut off in the middle and started again, add only what
is missing; two at the same time do no harm either.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dalsegno.errors import ImportConflict, WaitTimeout
from dalsegno.importers.base import Importer, ImportReport
from dalsegno.importers.chain import ChainedRecord, chained
from dalsegno.importers.recorded import Recorded, read_recorded
from dalsegno.log.history import held
from dalsegno.log.publisher import Publisher
from dalsegno.log.receipts import Pending
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


@dataclass(frozen=True)
class SessionImport:
    """One session of the file: what the log holds of it, and the records that it lacks, in order."""

    session_id: str
    found: str
    events: int
    missing: tuple[ChainedRecord, ...]
    blobs: dict[str, bytes]


@dataclass(frozen=True)
class ImportOutcome:
    """What an import did, or, with ``dry_run``, would do."""

    path: Path
    dry_run: bool
    report: ImportReport
    sessions: tuple[SessionImport, ...]
    appended: int = field(default=0)

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
        }


def import_file(
    publisher: Publisher, importer: Importer, path: Path, *, store: Store | None = None, dry_run: bool = False
) -> ImportOutcome:
    """Import one file. ``store`` takes contents that are too large for an event.

    Raises BadInputFile for a damaged or foreign file and ImportConflict where the log holds another prefix of one of
    its sessions; nothing was appended then. Any other error may leave a part: run the import again.
    """
    result = importer.read(path)
    prepared = [(session, chained(session, publisher.schemas)) for session in result.sessions]
    recorded = read_recorded(publisher, [session.session_id for session in result.sessions])
    sessions = tuple(
        _compared(session.session_id, records, recorded.get(session.session_id), dict(session.blobs), path)
        for session, records in prepared
    )
    appended = 0 if dry_run else _append(publisher, sessions, store)
    return ImportOutcome(path, dry_run, result.report, sessions, appended)


def _compared(
    session_id: str, records: list[ChainedRecord], recorded: Recorded | None, blobs: dict[str, bytes], path: Path
) -> SessionImport:
    """What is missing. Raises ImportConflict at the first record that differs, SessionHeld where nobody can say."""
    if recorded is None:
        return SessionImport(session_id, NEW, len(records), tuple(records), blobs)
    if recorded.erased:
        return SessionImport(session_id, ERASED, len(records), (), {})
    for mine, theirs in zip(records, recorded.path, strict=False):
        if mine.key.hash != theirs:
            raise ImportConflict(
                f"the log holds another event at seq {mine.key.seq} of session {session_id} than {path}",
                wanted=f"{mine.type} with hash {mine.key.hash.hex()} (from {mine.native_ref or 'the sample'})",
                todo="find out who wrote the session: another state of the file, or another program",
                session_id=session_id,
                seq=mine.key.seq,
                recorded_hash=theirs.hex(),
                native_ref=mine.native_ref,
                file=str(path),
            )
    known = len(recorded.path)
    if recorded.held is not None and recorded.held.reason in UNREADABLE_REASONS and known < len(records):
        raise held(session_id, recorded.held.reason, recorded.held.seq)
    missing = tuple(record for record in records[known:] if record.key not in recorded.keys)
    if not missing:
        return SessionImport(session_id, AHEAD if known > len(records) else SAME, len(records), (), {})
    return SessionImport(session_id, GREW if known else NEW, len(records), missing, blobs)


def _append(publisher: Publisher, sessions: tuple[SessionImport, ...], store: Store | None) -> int:
    """Store the large contents, then send what is missing and wait for every report."""
    sent: list[Pending] = []
    for session in sessions:
        _store_blobs(session, store)
        sent += [publisher.send(record.key, record.value) for record in session.missing]
    left = publisher.flush(APPEND_TIMEOUT_SECONDS)
    if left:
        raise WaitTimeout(
            f"{left} of {len(sent)} events have no report after {APPEND_TIMEOUT_SECONDS:g} s",
            wanted="an acknowledgement for every event",
            todo="run the import again: it adds only what is missing",
        )
    for pending in sent:
        pending.result(APPEND_TIMEOUT_SECONDS)
    return len(sent)


def _store_blobs(session: SessionImport, store: Store | None) -> None:
    if not session.missing or not session.blobs:
        return
    if store is None:
        raise ValueError(f"{session.session_id} has contents for the blob store, and no store was given")
    for uri, content in session.blobs.items():
        store.put_if_absent(blob_key(uri.rpartition(":")[2]), content)
