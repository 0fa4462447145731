"""Publishing exported records again, byte for byte: the same keys, the same hashes, in the same order.

(1) a section of the file is read whole and every record of it is checked; (2) where the log has the session already,
both must be one history; (3) its schemas are acknowledged in the log; (4) its records are sent, each into the partition
that its session has here; (5) their reports are waited for. A section that is damaged is refused as a whole. After a
crash the same file is published again: what is there already has the same bytes under the same keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from dalsegno.errors import DalsegnoError, ImportConflict, InvalidEvent
from dalsegno.log.codec import BAD_KEY, NO_KEY, WRONG_PARTITION, place
from dalsegno.log.history import SessionSource
from dalsegno.log.line_events import Acknowledged, KnownSessions, Nearest
from dalsegno.log.publisher import Publisher
from dalsegno.log.receipts import Pending
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.stored import VALUE_MAX_BYTES, too_large
from dalsegno.model.history import gather
from dalsegno.model.ids import EventKey, Seq, parse_key
from dalsegno.model.records import CONTROL_SEQ, UNKNOWN_SCHEMA, Event, SetAside, Tombstone, Unreadable
from dalsegno.readers.export import Facts, Line, Section, read_sections

_FIELDS = {NO_KEY: "key", BAD_KEY: "key", WRONG_PARTITION: "partition"}


@dataclass(frozen=True)
class TakenBack:
    """One session whose records were acknowledged, all of them."""

    session_id: str
    records: int
    schemas: int
    partition: int
    amendments: int
    """Control events among the records: the admin audit of this log does not know their requests."""


def take_back(
    publisher: Publisher,
    lines: Iterable[bytes],
    name: str,
    *,
    source: SessionSource | None = None,
    nearest: Callable[[str], Nearest | None] = lambda _: None,
) -> list[TakenBack]:
    """Publish every section of an export; ``name`` is what an error calls the file. ``source`` and ``nearest`` as for
    ``publish_lines``: what the log holds of a session already.

    Raises BadLine at the first line that is not what was exported, ImportConflict where the log would go another way
    than the export or lose events that readers follow, SchemaIncompatible, and what sending and waiting raise; each
    says what was acknowledged.
    """
    taking = _TakingBack(publisher, source or publisher.log_source(), KnownSessions(publisher, nearest))
    try:
        taken = [taking.section(section) for section in read_sections(lines)]
        if not taken:
            _refuse("", "it is missing: the file is empty")
        return taken
    except DalsegnoError as error:
        raise taking.acknowledged.explain(error, name, taking.at) from error


class _TakingBack:
    def __init__(self, publisher: Publisher, source: SessionSource, known: KnownSessions) -> None:
        self._publisher, self._source, self._known = publisher, source, known
        self.acknowledged = Acknowledged()
        self.at = 0
        """The line that is looked at."""

    def section(self, section: Section) -> TakenBack:
        # (1)
        facts = self._whole(section)
        schemas = SchemaSet.load()
        for writer in section.schemas:
            schemas.add(writer.json)
        placed = [self._checked(line, facts, schemas) for line in section.records]
        keys = [each.key if isinstance(each, Unreadable) else _key_of(each) for each in placed]
        # (2)
        if self._known.has(facts.session):
            self._check_one_history(facts.session, placed)
        # (3)
        publisher = self._publisher
        publisher.transport.ready()
        writers = [publisher.schemas.add(writer.json) for writer in section.schemas]
        publisher.acknowledge_schemas(writers)
        # (4)
        partition = publisher.partition_of(facts.session)
        for line, key in zip(section.records, keys, strict=True):
            self.at = line.number
            self.acknowledged.sent(publisher.send_checked(Pending(key, line.raw.value, partition)))
            self.acknowledged.wait_for_some()
        # (5)
        self.acknowledged.wait_for_all()
        control = sum(key.seq == CONTROL_SEQ for key in keys)
        return TakenBack(facts.session, len(keys), len(writers), partition, control)

    def _whole(self, section: Section) -> Facts:
        """Raises InvalidEvent where the file is not what was written."""
        self.at = section.last
        if section.faults:
            fault = min(section.faults, key=lambda fault: fault.line)
            self.at = fault.line
            _refuse(fault.field, fault.text)
        assert section.facts is not None, "a section without its end has a fault"
        return section.facts

    def _check_one_history(self, session_id: str, placed: Sequence[Event | Unreadable]) -> None:
        """Of two histories under one id readers follow one, and the other is gone for them. Raises ImportConflict."""
        here = list(self._source.read(session_id, self._publisher.high(session_id)).placed.values())
        both = gather([*here, *placed]).known.choose().superseded
        for records, others in ((here, placed), (placed, here)):
            known = {each.hash for each in others if isinstance(each, Event)}
            lost = [hash_ for hash_ in gather(records).known.choose().hashes if hash_ in both and hash_ not in known]
            if lost:
                event = next(each for each in records if isinstance(each, Event) and each.hash == lost[0])
                raise ImportConflict(
                    f"the log and the export hold two histories of session {session_id}, from seq {event.seq} on",
                    wanted="one history, of which either may be longer",
                    todo="find out who wrote the other one; publish the export under another prefix",
                    session_id=session_id,
                    seq=event.seq,
                )

    def _checked(self, line: Line, facts: Facts, schemas: SchemaSet) -> Event | Unreadable:
        """The record, whose key follows from its bytes. Raises InvalidEvent."""
        self.at = line.number
        raw = line.raw
        placed = place(schemas, raw.key, raw.value, raw.partition, facts.partitions)
        if isinstance(placed, SetAside):
            _refuse(_FIELDS.get(placed.reason, "value_base64"), f"it does not follow from its bytes: {placed.reason}")
        if isinstance(placed, Unreadable) and placed.reason == UNKNOWN_SCHEMA:
            _refuse("value_base64", "the file does not hold the schema that it was written with")
        if len(raw.value or b"") > VALUE_MAX_BYTES:
            raise too_large("value_base64", len(raw.value or b""))
        key = parse_key(raw.key or b"")
        assert key is not None, "what is not set aside has a key"
        if key.session_id != facts.session:
            _refuse("key", f"it is of session {key.session_id!r}, its section of {facts.session!r}")
        assert not isinstance(placed, SetAside | Tombstone), "a line holds bytes"
        return placed


def _key_of(event: Event) -> EventKey:
    return EventKey(event.session_id, Seq(event.seq), event.hash)


def _refuse(field: str, text: str) -> NoReturn:
    raise InvalidEvent(
        f"{field or 'the line'}: {text}",
        wanted="an export as 'dalsegno session export --format records' wrote it",
        todo="export the session again",
        field=field,
    )
