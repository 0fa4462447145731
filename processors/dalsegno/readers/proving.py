"""The records of one session, from the log or from an export, and what is known of its end, for ``proof`` to judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dalsegno.errors import NotFound
from dalsegno.log.history import SCHEMA_TIMEOUT_SECONDS, STALL_SECONDS
from dalsegno.log.schema_set import SchemaSet
from dalsegno.log.topics import EVENTS, topic_name
from dalsegno.log.transport import Transport
from dalsegno.model.ids import parse_key, partition_of, root_of
from dalsegno.model.records import CONTROL_SEQ, FIRST_SEQ
from dalsegno.readers.export import CHANGED, Fault, Section, read_sections
from dalsegno.readers.local import View
from dalsegno.readers.proof import AdminAudit, Anchor, Proof, prove
from dalsegno.readers.proof_records import Doubt, Raw, claimed
from dalsegno.readers.refold import Progress


def prove_log(
    transport: Transport,
    prefix: str,
    session_id: str,
    audit: AdminAudit,
    view: View | None,
    progress: Progress = lambda *_: None,
    up_to: Anchor | None = None,
) -> Proof:
    """Judge a session by its partition of the log, read from its start: a record with a changed key shows only to who
    reads all of them. ``view``: what knows the session's end; it must have been opened before. ``progress`` is told
    partition, position and end, now and then. ``up_to``: as of ``prove``. Raises NotFound, WaitTimeout,
    BrokerUnavailable."""
    topic = topic_name(prefix, EVENTS)
    partitions = transport.partitions(topic)
    partition = partition_of(session_id, partitions)
    schemas = SchemaSet.load()
    transport.refresh_schemas(prefix, schemas, SCHEMA_TIMEOUT_SECONDS)
    anchors = [] if view is None else _known(view, session_id, None)
    bounds = transport.bounds(topic, partition)
    progress(partition, bounds.low, bounds.high)

    def records() -> Iterator[Raw]:
        for batch in transport.read(topic, partition, bounds.low, bounds.high, STALL_SECONDS):
            for record in batch.records:
                yield Raw(record.key, record.value, partition, record.offset)
            progress(partition, batch.next_offset, bounds.high)

    proof = prove(
        session_id, records(), partitions=partitions, schemas=schemas, audit=audit, anchors=anchors, up_to=up_to
    )
    if not proof.records and not anchors and up_to is None:
        raise NotFound(
            f"the log holds no record of session {session_id}",
            wanted=f"a session of {topic}",
            todo="see 'dalsegno session list'",
            session_id=session_id,
        )
    return proof


def prove_line(
    transport: Transport,
    prefix: str,
    session_id: str,
    audit: AdminAudit,
    view: View | None,
    progress: Progress = lambda *_: None,
) -> list[Proof]:
    """As ``prove_log``; of a fork also what it takes over, behind its own proof: its parent up to the record that the
    fork names, and so on. Each reads the partition once."""
    proofs = [prove_log(transport, prefix, session_id, audit, view, progress)]
    while (origin := proofs[-1].goes_on_from) is not None:
        (parent, at), fork = origin, proofs[-1]
        known = {proof.session_id for proof in proofs}
        if at is None or parent in known or root_of(parent) != root_of(session_id):
            why = f"it names no place in a session of its root, but {parent!r}: what it goes on from is not looked into"
            proofs[-1] = fork._replace(unproven=(*fork.unproven, why))
            break
        end = Anchor(f"fork {fork.session_id}", at.seq, at.hash)
        proofs.append(prove_log(transport, prefix, parent, audit, view, progress, end))
    return proofs


def needs_audit(section: Section) -> bool:
    """Whether an export holds amendments, which only the admin audit can vouch for."""
    keys = (parse_key(line.raw.key or b"") for line in section.records)
    return any(key is not None and key.seq == CONTROL_SEQ for key in keys)


def section_of(lines: Iterable[bytes], session_id: str) -> Section:
    """The session's section of an export: the one that says so, else (that may have been changed) the first one with a
    key of it. That any other one has records of it is a fault: what is proven of one is not proven of the other.
    Raises NotFound.
    """
    own: list[Section] = []
    others: list[Section] = []
    start = f"{session_id}:".encode()
    for section in read_sections(lines):
        if section.facts is not None and section.facts.session == session_id:
            own.append(section)
        elif any((line.raw.key or b"").startswith(start) for line in section.records):
            others.append(section)
    if not own and not others:
        raise _no_records("the file", session_id)
    chosen, *rest = (*own, *others)
    chosen.faults += [
        Fault(CHANGED, each.first, "", f"records of session {session_id} begin here once more")
        for each in rest
        if _has_records(each, session_id)
    ]
    return chosen


def _has_records(section: Section, session_id: str) -> bool:
    keys = (parse_key(line.raw.key or b"") for line in section.records)
    return any(key is not None and key.session_id == session_id for key in keys)


def _no_records(what: str, session_id: str) -> NotFound:
    return NotFound(
        f"{what} holds no records of session {session_id}",
        wanted="an export of this session",
        todo=f"'dalsegno session export {session_id} --format records' writes one",
        session_id=session_id,
    )


def is_of_log(section: Section, view: View) -> bool:
    """Whether what the view knows says anything about an export: both are of one log."""
    return section.facts is None or section.facts.topic_id == view.reads.identity().topic_id


def prove_export(section: Section, session_id: str, audit: AdminAudit, view: View | None) -> Proof:
    """Judge an export by itself, and by what a shard or snapshot knew when it was made."""
    facts = section.facts
    schemas = SchemaSet.load()
    for writer in section.schemas:
        schemas.add(writer.json)
    partitions = facts.partitions if facts is not None else view.reads.identity().partitions if view is not None else 0
    anchors: list[Anchor] = [] if facts is None else facts.anchors
    if view is not None and is_of_log(section, view):
        anchors += _known(view, session_id, None if facts is None else facts.next_offset)
    # Where nobody knows how many partitions there are, that a record is in the right one cannot be asked.
    raws = (line.raw if partitions else line.raw._replace(partition=0) for line in section.records)
    # A request may be younger than the export: only what is in it is asked for.
    known = audit._replace(all_here=False)
    proof = prove(session_id, raws, partitions=partitions or 1, schemas=schemas, audit=known, anchors=anchors)
    if not section.records and not section.faults and not anchors:
        raise _no_records("the part of the file", session_id)
    doubts = [Doubt(fault.kind, None, _told(fault.line, fault.field, fault.text)) for fault in section.faults]
    if facts is not None and facts.session != session_id:
        doubts.append(Doubt(CHANGED, None, f"it says that it is of session {facts.session}"))
    for line in section.records:
        if (claimed(schemas, line.raw) or ("",))[0] != session_id:
            doubts.append(Doubt(CHANGED, None, _told(line.number, "key", f"it is no record of session {session_id}")))
    return proof._replace(doubts=(*doubts, *proof.doubts))


def _told(line: int, field: str, text: str) -> str:
    return f"line {line}: {f'{field}: ' if field else ''}{text}"


def _known(view: View, session_id: str, below: int | None) -> list[Anchor]:
    """Every record that the view has of the session, below an offset if one is given, and the end of its path."""
    reads = view.reads
    found = [
        Anchor(view.source, seq, hash_)
        for seq, hash_, entry in reads.index(session_id)
        if seq >= FIRST_SEQ and (below is None or entry.offset < below)
    ]
    head = reads.head(session_id)
    if below is None and head is not None and head.hash is not None:
        found.append(Anchor(view.source, head.seq, head.hash))
    return found
