"""A session's records as JSON lines: written from a shard or a snapshot, read back with everything that is wrong.

A file holds one section after another, one a session: the writer schemas, the records in the order of the log, what the
shard knew of the session, and the SHA-256 of the section's bytes before it.

    {"schema": {...}}
    {"key": "s-1:1:<hash>", "value_base64": "...", "headers": null, "partition": 3, "offset": 17, "timestamp": null}
    {"session": "s-1", "prefix": "dalsegno", "topic_id": "...", "partitions": 16, "next_offset": 40, ...}
    {"sha256": "..."}

The sum finds a file that was damaged; whoever changes a file on purpose makes a new sum, and is found by the hashes of
the records.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from dalsegno.errors import SchemaIncompatible, SchemaUnknown
from dalsegno.log.codec import MARKER
from dalsegno.log.schema_set import SchemaSet, WriterSchema
from dalsegno.model.ids import HASH_BYTES
from dalsegno.readers.local import LocalReader, View
from dalsegno.readers.proof import Anchor
from dalsegno.readers.proof_records import CUT_TAIL, STRIPPED, SWAPPED, Raw
from dalsegno.state.history import Journal
from dalsegno.state.layout import JournalEntry

CHANGED = "changed-file"
"""The file is not what was written: a line that is none, a sum that does not fit."""

_RECORD = {"key", "value_base64", "headers", "partition", "offset", "timestamp"}


class Facts(NamedTuple):
    """What the shard knew when it was exported. ``next_offset``: every record of the partition below it was seen."""

    session: str
    prefix: str
    topic_id: str
    partitions: int
    next_offset: int
    records: int
    head_seq: int
    head_hash: str | None

    @property
    def anchors(self) -> list[Anchor]:
        return [Anchor("the export's end", self.head_seq, bytes.fromhex(self.head_hash))] if self.head_hash else []


class Fault(NamedTuple):
    """What is wrong with a line, in the words of ``proof``; ``field`` is empty where the whole line is meant."""

    kind: str
    line: int
    field: str
    text: str


class Line(NamedTuple):
    """A record and the line it stands in."""

    number: int
    raw: Raw


@dataclass
class Section:
    """One session of a file, from line ``first`` to line ``last``."""

    first: int
    last: int = 0
    schemas: list[WriterSchema] = field(default_factory=list)
    records: list[Line] = field(default_factory=list)
    facts: Facts | None = None
    faults: list[Fault] = field(default_factory=list)


# --- writing ----------------------------------------------------------------------------------------------------------


def export_lines(reader: LocalReader, view: View, session_id: str) -> Iterator[str]:
    """The lines of one section, with their line ends. A schema that nobody knows is not among them.

    Raises SchemaUnknown where such a one was known when the record came, StoreDamaged where a record is not there.
    """
    sum_ = sha256()
    for line in _lines(reader, view, session_id):
        text = json.dumps(line, separators=(", ", ": ")) + "\n"
        sum_.update(text.encode("ascii"))
        yield text
    yield _sum_line(sum_.hexdigest())


def _lines(reader: LocalReader, view: View, session_id: str) -> Iterator[dict[str, Any]]:
    reads = view.reads
    # In the order of the log, so that who publishes them again writes in the order in which they were written.
    records = sorted((entry.offset, seq) for seq, _, entry in reads.index(session_id))
    journal = Journal(reads.kv, reads.schemas)
    names = {journal.must_have(session_id, seq, offset).schema for offset, seq in records}
    writers = {writer.schema_hash: writer for name in names if (writer := _schema_of(reader, view, name)) is not None}
    for _, writer in sorted(writers.items()):
        yield {"schema": writer.schema}
    identity = reads.identity()
    for offset, seq in records:
        entry = journal.must_have(session_id, seq, offset)
        yield {
            "key": entry.key.decode("utf-8"),
            "value_base64": base64.b64encode(_value(reader, view, entry)).decode("ascii"),
            "headers": None,
            "partition": view.partition,
            "offset": offset,
            "timestamp": None,
        }
    head = reads.head(session_id)
    yield Facts(
        session_id,
        reader.prefix,
        identity.topic_id,
        identity.partitions,
        view.cursor.next_offset,
        len(records),
        0 if head is None else head.seq,
        None if head is None or head.hash is None else head.hash.hex(),
    )._asdict()


def _value(reader: LocalReader, view: View, entry: JournalEntry) -> bytes:
    if entry.is_raw:
        return MARKER + entry.schema + entry.body
    writer = _schema_of(reader, view, entry.schema)
    if writer is None:
        raise SchemaUnknown(
            f"the schema {entry.schema.hex()} of a record is neither in this build nor in the log's schema topic",
            wanted="the schema that the record was read with",
            todo="publish the schema first: the record's bytes begin with its fingerprint",
            schema=entry.schema.hex(),
        )
    return writer.prefix + entry.body


def _schema_of(reader: LocalReader, view: View, schema: bytes) -> WriterSchema | None:
    """By its hash, or, of a record that could not be read when it came, by its frame id; None if nobody knows it."""
    schemas = view.reads.schemas
    look = schemas.by_hash if len(schema) == HASH_BYTES else schemas.by_frame
    found = look(schema)
    if found is None and reader.learn_schemas():
        found = look(schema)
    return found


def _sum_line(digest: str) -> str:
    return f'{{"sha256": "{digest}"}}\n'


# --- reading ----------------------------------------------------------------------------------------------------------


def read_sections(lines: Iterable[bytes]) -> Iterator[Section]:
    """The sections of a file, each held whole. Nothing is raised: what is wrong is in ``faults``, in order."""
    section: Section | None = None
    sum_ = sha256()
    number = 0
    for number, line in enumerate(lines, 1):
        section = section or Section(number)
        section.last = number
        found = _object(line)
        if found is not None and found.keys() == {"sha256"}:
            _end(section, number, line, sum_.hexdigest())
            yield section
            section, sum_ = None, sha256()
            continue
        sum_.update(line)
        fault = Fault(CHANGED, number, "", "it is no JSON object") if found is None else _take(section, number, found)
        if fault is not None:
            section.faults.append(fault)
    if section is not None:
        section.faults.append(Fault(CUT_TAIL, number, "", "the file ends before the sum of its bytes: it was cut"))
        yield section


def _end(section: Section, number: int, line: bytes, digest: str) -> None:
    if line != _sum_line(digest).encode("ascii"):
        section.faults.append(Fault(CHANGED, number, "sha256", f"the lines before it have the sum {digest}"))
    facts, count = section.facts, len(section.records)
    if facts is None:
        section.faults.append(Fault(CUT_TAIL, number, "", "nothing before it says where the session ends"))
    elif facts.records != count:
        kind = CUT_TAIL if count < facts.records else CHANGED
        section.faults.append(
            Fault(kind, number - 1, "records", f"{facts.records} records are named, {count} stand here")
        )
    elif count and section.records[-1].raw.offset >= facts.next_offset:
        text = f"it is {facts.next_offset}, and a record stands at offset {section.records[-1].raw.offset}"
        section.faults.append(Fault(CHANGED, number - 1, "next_offset", text))


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and line.endswith(b"\n") else None


def _take(section: Section, number: int, found: Mapping[str, Any]) -> Fault | None:
    """Put a line where it belongs; what is wrong with it."""
    if section.facts is not None:
        return Fault(CHANGED, number, "", "it stands behind the end of its session")
    if found.keys() == {"schema"}:
        return _take_schema(section, number, found["schema"])
    if found.keys() == _RECORD:
        return _take_record(section, number, found)
    section.facts = _facts(found)
    if section.facts is None:
        return Fault(CHANGED, number, "", "it is neither a schema nor a record nor the end of a session")
    if section.facts.head_seq and section.facts.head_hash is None:
        return Fault(STRIPPED, number, "head_hash", f"it does not name the hash of seq {section.facts.head_seq}")
    return None


def _take_schema(section: Section, number: int, schema: Any) -> Fault | None:
    try:
        section.schemas.append(SchemaSet().add(schema if isinstance(schema, dict) else {}))
    except SchemaIncompatible as error:
        return Fault(CHANGED, number, "schema", error.found)
    return Fault(CHANGED, number, "schema", "schemas stand before the records") if section.records else None


def _take_record(section: Section, number: int, found: Mapping[str, Any]) -> Fault | None:
    key, value, partition, offset = (found[name] for name in ("key", "value_base64", "partition", "offset"))
    for name, value_, kind in (("partition", partition, "a number"), ("offset", offset, "a number")):
        if type(value_) is not int or value_ < 0:
            return Fault(CHANGED, number, name, f"it is {value_!r}, wanted {kind}")
    for name in ("headers", "timestamp"):
        if found[name] is not None:
            return Fault(CHANGED, number, name, "it is not null, as it is in every export")
    raw_key: bytes | None = None
    if isinstance(key, str):
        raw_key = key.encode("utf-8", "surrogatepass")
    elif key is not None:
        return Fault(CHANGED, number, "key", "it is no text")
    try:
        raw = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        raw = None
    if raw is None:
        return Fault(CHANGED, number, "value_base64", "it is no base64")
    before = section.records[-1].raw.offset if section.records else -1
    section.records.append(Line(number, Raw(raw_key, raw, partition, offset)))
    if offset <= before:
        return Fault(SWAPPED, number, "offset", f"offset {offset} stands behind offset {before}")
    return None


def _facts(found: Mapping[str, Any]) -> Facts | None:
    if found.keys() != set(Facts._fields):
        return None
    facts = Facts(**found)
    numbers = (facts.partitions, facts.next_offset, facts.records, facts.head_seq)
    texts = (facts.session, facts.prefix, facts.topic_id)
    if any(type(number) is not int or number < 0 for number in numbers) or not facts.partitions:
        return None
    if not all(isinstance(text, str) for text in texts) or not _is_hash(facts.head_hash):
        return None
    return facts


def _is_hash(text: Any) -> bool:
    try:
        return text is None or len(bytes.fromhex(text)) == HASH_BYTES
    except (TypeError, ValueError):
        return False
