"""What a writer that takes a session over asks of the log: does it hold what the state says, and is there a rival?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dalsegno.errors import LogHole, SessionSuperseded, SnapshotAheadOfLog
from dalsegno.log.codec import FRAME_BYTES, place
from dalsegno.log.history import SCHEMA_TIMEOUT_SECONDS, STALL_SECONDS, SessionRecords
from dalsegno.log.record import LogRecord
from dalsegno.log.sender import Sender
from dalsegno.model.ids import EventKey, Offset, parse_key
from dalsegno.model.records import CONTROL_SEQ, FIRST_SEQ, UNKNOWN_SCHEMA, Event, Placed, Unreadable

RECOVERY_TYPE = "SessionRecovered"


class Claim(NamedTuple):
    """A writer's hold on a session: its epoch, and the hash of its first event of that epoch."""

    session_id: str
    epoch: int
    first: bytes | None

    def is_rival(self, event: Event) -> bool:
        """Whether this event was written by somebody with the same or a better claim."""
        if event.epoch != self.epoch:
            return event.epoch > self.epoch
        begins = event.type == RECOVERY_TYPE or event.seq == FIRST_SEQ
        return begins and event.hash != self.first


def check_log_has(publisher: Sender, session_id: str, records: SessionRecords, up_to: Offset) -> None:
    """A state that knows more than the log was made from a log that is lost: numbering may go on from neither.

    Raises SnapshotAheadOfLog.
    """
    partition = publisher.partition_of(session_id)
    if records.read_up_to > up_to:
        # A worker follows the log while the writer reads: only the log's end of now says that the state is ahead of it.
        high = publisher.transport.bounds(publisher.topic, partition).high
        if records.read_up_to > high:
            raise _ahead(session_id, f"the state was read up to offset {records.read_up_to}, the log ends at {high}")
    if records.anchor is None:
        return
    offset, key = records.anchor
    try:
        found = _holds(publisher, partition, offset, key, records.read_up_to)
    except LogHole:
        found = False
    if not found:
        key_text = key.decode("utf-8", "replace")
        raise _ahead(session_id, f"the state knows {key_text} at offset {offset}, the log does not")


def _holds(publisher: Sender, partition: int, offset: Offset, key: bytes, end: Offset) -> bool:
    """Whether the log has the record, or, where compaction took it away, the later copy that it was taken for."""
    for batch in publisher.transport.read(publisher.topic, partition, offset, end, STALL_SECONDS):
        for record in batch.records:
            if record.key == key:
                return True
            if record.offset == offset:
                return False
    return False


def check_no_rival(publisher: Sender, claim: Claim, start: Offset | None, end: Offset, stall_seconds: float) -> None:
    """Read [``start``, ``end``) for a writer with the same or a better claim. Raises SessionSuperseded.

    A record of the session that cannot be read here is a rival's: nobody can say that its epoch is a lower one.
    """
    if start is not None and start >= end:
        return
    partition = publisher.partition_of(claim.session_id)
    for batch in publisher.transport.read(publisher.topic, partition, start, end, stall_seconds):
        for record in batch.records:
            key = parse_key(record.key) if record.key is not None else None
            if key is not None and key.session_id == claim.session_id and record.offset < end:
                _check_is_none(publisher, claim, key, record)


def check_no_rivals(
    publisher: Sender, partition: int, claims: Mapping[str, Claim], start: Offset, end: Offset, stall_seconds: float
) -> None:
    """As ``check_no_rival``, for all sessions of a partition in one reading; ``start`` lies below what each of these
    writers wrote. Looks only at what may begin an epoch, so that it costs little more than the reading."""
    if start >= end:
        return
    for batch in publisher.transport.read(publisher.topic, partition, start, end, stall_seconds):
        for record in batch.records:
            key = parse_key(record.key) if record.key is not None else None
            claim = None if key is None else claims.get(key.session_id)
            if key is not None and claim is not None and _may_begin(publisher, key, record):
                _check_is_none(publisher, claim, key, record)


def _may_begin(publisher: Sender, key: EventKey, record: LogRecord) -> bool:
    writer = publisher.schemas.by_frame((record.value or b"")[2:FRAME_BYTES])
    return key.seq == FIRST_SEQ or writer is None or writer.type == RECOVERY_TYPE


def _check_is_none(publisher: Sender, claim: Claim, key: EventKey, record: LogRecord) -> None:
    """Raises SessionSuperseded for the record of a rival."""
    if key.seq == CONTROL_SEQ:
        return
    found = _placed(publisher, record)
    if isinstance(found, Unreadable):
        raise _superseded(claim, record.offset, f"somebody whose record at seq {key.seq} is {found.reason} here")
    if isinstance(found, Event) and claim.is_rival(found):
        who = f"{found.meta.get('writer')}: {found.type} of epoch {found.epoch} at seq {found.seq}"
        raise _superseded(claim, record.offset, who, epoch=found.epoch)


def _placed(publisher: Sender, record: LogRecord) -> Placed:
    """What the record is, with the schemas that the log knows."""
    found = place(publisher.schemas, record.key, record.value, 0, 1)
    if isinstance(found, Unreadable) and found.reason == UNKNOWN_SCHEMA:
        publisher.transport.refresh_schemas(publisher.prefix, publisher.schemas, SCHEMA_TIMEOUT_SECONDS)
        found = place(publisher.schemas, record.key, record.value, 0, 1)
    return found


def _superseded(claim: Claim, offset: Offset, who: str, **data: int) -> SessionSuperseded:
    return SessionSuperseded(
        f"session {claim.session_id} was taken over by {who}",
        wanted=f"to be the only writer of epoch {claim.epoch}",
        todo="give up, or resume again to take it back",
        session_id=claim.session_id,
        offset=offset,
        **data,
    )


def _ahead(session_id: str, found: str) -> SnapshotAheadOfLog:
    return SnapshotAheadOfLog(
        f"session {session_id}: {found}",
        wanted="a log that holds what the state was made from",
        todo="find out what happened to the log; a session of another name can begin meanwhile",
        session_id=session_id,
    )
