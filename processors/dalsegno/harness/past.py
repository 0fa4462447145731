"""What the log has of a session that dalsegno orchestrates, as whoever goes on with it needs it: rows and contents.

A source over local state gives those of a session's end, and only the events behind it are folded. Where it has none,
and for a fork, every event of the session's history is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from dalsegno.errors import BlobMissing
from dalsegno.log.history import History, SessionRecords, SessionSource, StandingSource, understand
from dalsegno.log.sender import Sender
from dalsegno.model.events import Label
from dalsegno.model.history import counting, events_along, gather, is_fork, whole_history
from dalsegno.model.lifecycle.state import ENDED
from dalsegno.model.lifecycle.tables import STATUS_AFTER
from dalsegno.model.records import Event
from dalsegno.orchestration.configuration import configuration_of
from dalsegno.orchestration.decider import MemoryContents
from dalsegno.orchestration.documents import KINDS, Configuration
from dalsegno.projections.decider.fold import fold_event
from dalsegno.projections.decider.rows import PENDING, PIN, Pin
from dalsegno.projections.decider.table import MemoryRows, learn
from dalsegno.storage.blobs import SCHEME, Blobs


class Decided(NamedTuple):
    """What decisions depend on at one event of a session. ``contents``: by digest, those that the rows name and events
    hold; ``folded``: how many events were folded to give it."""

    rows: MemoryRows
    contents: Mapping[bytes, bytes]
    folded: int


@runtime_checkable
class DecidedSource(StandingSource, Protocol):
    """A source that knows what decisions depend on where a session stands."""

    def decided(self, session_id: str, tip: Event) -> Decided | None:
        """Where ``tip``, of a ``Standing``, has been folded; None where it is not known."""
        ...


class StoredContents(MemoryContents):
    """Contents in memory, and behind them a session's store for those that are too large for an event."""

    def __init__(self, blobs: Blobs | None, found: Mapping[bytes, bytes] | None = None) -> None:
        super().__init__(found)
        self._blobs = blobs

    def get(self, digest: bytes) -> bytes:
        if digest not in self.found and self._blobs is not None:
            try:
                content = self._blobs.get({"digest": digest, "uri": SCHEME + digest.hex(), "inline": None})
            except BlobMissing:
                return super().get(digest)  # it says what is missing
            self.keep(digest, content)
        return super().get(digest)


@dataclass
class Past:
    """A session up to where its history ends. ``known``: the log holds anything of it; ``folded``: how many events were
    folded to know it."""

    session_id: str
    known: bool
    rows: MemoryRows
    contents: StoredContents
    folded: int
    last: Event | None = None
    """The last event that counts."""
    end: Event | None = None
    """The event by which it ended."""
    purpose: str | None = None
    """What it was forked for; None of a session that is no fork."""

    @property
    def started(self) -> bool:
        return self.rows.head_row is not None and self.rows.head_row.status != "CREATED"

    @property
    def labels(self) -> list[Label]:
        head = self.rows.head_row
        return [] if head is None else [Label(key=key, value=value) for key, value in head.labels]

    @property
    def pinned(self) -> dict[str, Pin]:
        """What was pinned last, by kind of document, also if it is not in force yet."""
        return {**self.rows.family(PIN), **self.rows.family(PENDING)}

    @property
    def configuration(self) -> Configuration | None:
        """Of what is pinned; None where a kind is missing. Raises InvalidDocument, and NotReconstructable where a
        content is missing."""
        pinned = {kind: pin.digest for kind, pin in self.pinned.items() if pin.digest is not None}
        if not pinned.keys() >= KINDS.keys():
            return None
        return configuration_of({kind: self.contents.get(pinned[kind]) for kind in KINDS})


def read_past(publisher: Sender, session_id: str, source: SessionSource | None = None) -> Past:
    """As the log has it now. Raises SessionHeld, and what reading does."""
    records_from = publisher.log_source() if source is None else source
    up_to = publisher.high(session_id)
    if not isinstance(records_from, DecidedSource):
        return past_of(session_id, records_from.read(session_id, up_to), None, records_from, publisher.blobs)
    records = records_from.stand(session_id, up_to)
    found = None if records.standing is None else understand(session_id, records, records_from, up_to)
    return past_of(session_id, records, found, records_from, publisher.blobs)


def past_of(
    session_id: str, records: SessionRecords, found: History | None, source: SessionSource, blobs: Blobs | None
) -> Past:
    """Of what was read. ``found``: what that is to the session's next writer; needed where it stands somewhere."""
    if records.standing is not None:
        assert found is not None
        going_on = _going_on(session_id, records, found.counted, source, blobs)
        if going_on is not None:
            return going_on
        # The state may have moved on since: what another writer appended meanwhile is behind where this one goes on.
        again = source.read(session_id, records.read_up_to)
        known = {key: placed for key, placed in again.placed.items() if key.seq <= found.head.seq}
        records = again._replace(placed=known)
    history = events_of(session_id, records, source)
    last = history[-1] if history else None
    past = Past(session_id, last is not None, MemoryRows(), StoredContents(blobs), 0, last, end_of(history))
    own = (event for event in history if event.session_id == session_id and is_fork(event))
    past.purpose = next((event.body["purpose"] for event in own), None)
    _fold(past, history)
    return past


def _going_on(
    session_id: str, records: SessionRecords, behind: Sequence[Event], source: SessionSource, blobs: Blobs | None
) -> Past | None:
    """From where it stands; None where that is not known, or where it has ended: its end may be any event below."""
    assert records.standing is not None
    if not isinstance(source, DecidedSource):
        return None
    found = source.decided(session_id, records.standing.tip)
    if found is None:
        return None
    last = behind[-1] if behind else records.standing.tip
    past = Past(session_id, True, found.rows, StoredContents(blobs, found.contents), found.folded, last)
    _fold(past, behind)
    head = past.rows.head_row
    return None if head is None or head.status == "ENDED" else past


def _fold(past: Past, events: Sequence[Event]) -> None:
    for event in events:
        if event.stub is None:
            past.folded += 1
            fold_event(past.rows, event, past.contents.keep)


# --- all of a history -------------------------------------------------------------------------------------------------


def history(publisher: Sender, session_id: str, source: SessionSource | None = None) -> list[Event]:
    """What the log has of a session now, in order, with the prefix that a fork takes over; [] if nothing."""
    records = publisher.log_source() if source is None else source
    return events_of(session_id, records.read(session_id, publisher.high(session_id)), records)


def events_of(session_id: str, records: SessionRecords, source: SessionSource) -> list[Event]:
    """The events that count, of all the records of a session: ``records`` may not stand anywhere."""
    own = gather(records.placed.values())
    path = events_along(session_id, own, own.known.choose().hashes)
    up_to = records.read_up_to
    return list(counting(whole_history(path, lambda name: gather(source.read(name, up_to).placed.values()))))


def end_of(events: Sequence[Event]) -> Event | None:
    """The event by which a session ended; None while it goes on."""
    return next((event for event in reversed(events) if STATUS_AFTER.get(event.type) in ENDED), None)


def outcome_of(end: Event) -> str:
    """Of the event by which a session ended."""
    return {"SessionFailed": "FAILED", "SessionCancelled": "CANCELLED"}.get(end.type) or str(end.body["outcome"])


def configuration_in_log(events: Sequence[Event], blobs: Blobs | None) -> Configuration | None:
    """What a session pinned last of each kind; None where a kind is missing. Raises InvalidDocument, and
    NotReconstructable where a content is missing."""
    contents = StoredContents(blobs)
    pinned = {event.body["kind"]: event.body for event in events if event.type == "ConfigPinned" and event.stub is None}
    if not pinned.keys() >= KINDS.keys():
        return None
    for body in pinned.values():
        learn(body["content"], contents.keep)
    return configuration_of({kind: contents.get(pinned[kind]["digest"]) for kind in KINDS})
