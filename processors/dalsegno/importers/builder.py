"""Collects the events of one imported session and gives each the envelope that follows from the recording. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from dalsegno.importers.base import ImportedEvent, ImportedSession
from dalsegno.importers.payload import BlobMaker
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.events import NewEvent, Ref
from dalsegno.model.records import Actor

NAMESPACE = UUID("6ba0e6a5-52c5-5b4e-9d21-5d6a3f5f2f0e")
"""Name space of the ids of imported events."""

FIRST_EPOCH = 0
"""An importer is a session's first and only writer."""


PERSON = Actor("USER", "user")
"""Somebody whom the recording does not name."""


def model_actor(model: str | None) -> Actor:
    return Actor("MODEL", model or "unknown")


class Added(NamedTuple):
    """An event that was added: what later events need to name it."""

    event_id: str
    seq: int

    def ref(self) -> Ref:
        return Ref(seq=self.seq, event_id=self.event_id)


class Source(NamedTuple):
    """The native record that an event comes from."""

    ref: str
    """Where it stands: a JSON pointer (in a file of several sessions, below its session's), ``#`` and the number of a
    line, or a name for what stands in the file's header."""
    time: int | None
    """Microseconds since 1970 UTC, None where the recording has no time."""
    digest: bytes | None = None


class SessionBuilder:
    """The session's events so far. ``add`` numbers them and derives ids and times from the recording alone.

    ``recorded_at`` is the native time, raised to that of the event before where the recorded clock went back or is
    missing, and 0 where it has no time at all; ``occurred_at`` is the native time as it is. ``before``: the session
    that this is a fork of, whose numbers it goes on with.
    """

    def __init__(
        self, *, session_id: str, importer: str, started: int | None, before: SessionBuilder | None = None
    ) -> None:
        self.session_id = session_id
        self.blobs = BlobMaker()
        self._importer = importer
        self._recorded_at = started or 0
        self._events: list[ImportedEvent] = []
        self._uses: Counter[str] = Counter()
        self._numbers: Counter[str] = Counter() if before is None else before._numbers.copy()

    def add(
        self,
        event: NewEvent,
        source: Source,
        actor: Actor,
        *,
        cause: Added | None = None,
        turn_id: str | None = None,
        stage_id: str | None = None,
        synthesized: bool = False,
    ) -> Added:
        """Append one event. ``synthesized``: the recording does not hold it, it was concluded from the record."""
        if source.time is not None:
            self._recorded_at = max(self._recorded_at, source.time)
        event_id = self._event_id(source.ref, event.TYPE)
        origin: dict[str, Any] = {
            "importer": self._importer,
            "native_ref": source.ref,
            "native_digest": source.digest,
            "synthesized": synthesized,
        }
        meta: dict[str, Any] = {
            "epoch": FIRST_EPOCH,
            "ignorable": CATALOGUE[event.TYPE].ignorable,
            "recorded_at": self._recorded_at,
            "occurred_at": source.time,
            "event_id": event_id,
            "actor_kind": actor.kind,
            "actor_id": actor.id,
            "writer": f"dalsegno-import/{self._importer}",
            "causation_id": None if cause is None else cause.event_id,
            "turn_id": turn_id,
            "stage_id": stage_id,
            "origin": origin,
            "redactions": [],
        }
        self._events.append(ImportedEvent(event, meta, source.ref))
        self.blobs.next_event()
        return Added(event_id, len(self._events))

    def number(self, prefix: str) -> str:
        """``<prefix>1``, ``<prefix>2`` ...: the id of what has none in the recording."""
        self._numbers[prefix] += 1
        return f"{prefix}{self._numbers[prefix]}"

    def last(self) -> Added:
        """The newest event; there must be one."""
        return Added(self._events[-1].meta["event_id"], len(self._events))

    def session(self) -> ImportedSession:
        return ImportedSession(self.session_id, tuple(self._events), dict(self.blobs.outside))

    def _event_id(self, ref: str, type_name: str) -> str:
        record = f"{ref}/{type_name}"
        use = self._uses[record]
        self._uses[record] += 1
        return str(uuid5(NAMESPACE, f"{self._importer}\n{self.session_id}\n{record}\n{use}"))
