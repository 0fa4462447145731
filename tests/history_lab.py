"""Histories to attack: a real chain as the log has it, and what an attacker may do with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dalsegno.log.amend_requests import KIND, Request, Requests, details_of
from dalsegno.log.audit import AdminAction, encode_action
from dalsegno.log.codec import encode, event_hash, frame
from dalsegno.log.encode import check
from dalsegno.model.amendments import read_amendment
from dalsegno.model.ids import EventKey, Seq
from dalsegno.model.records import AMENDMENT_TYPE
from dalsegno.readers.proof import AdminAudit, Anchor, Proof, prove
from dalsegno.readers.proof_records import Raw
from dalsegno.testing.builder import SessionBuilder, Written, digest_of, shipped_schemas

SESSION = "s-1"
NO_AUDIT = AdminAudit()


def audited(*amendments: Written) -> AdminAudit:
    """The audit of an operator who asked for exactly these."""
    return AdminAudit(requests(amendments))


def requests(records: Iterable[Written]) -> Requests:
    """What was asked for, if every amendment among the records was."""
    events = [each.event for each in records if each.event is not None and each.event.type == AMENDMENT_TYPE]
    read = [(each.session_id, read_amendment(each.body)) for each in events]
    return Requests(
        {
            each.request_id: Request(id_, details_of(each.action, each.stubs, whole_session=each.whole_session))
            for id_, each in read
        }
    )


def audit_records(records: Iterable[Written]) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of what the admin audit holds then."""
    for id_, request in requests(records).by_id.items():
        action = AdminAction(id_, id_, KIND, request.session_id, "operator", 1, "asked", request.details)
        yield id_.encode(), encode_action(action)


def chain(count: int = 12, session_id: str = SESSION, profile: str = "OBSERVED") -> SessionBuilder:
    """A session of ``count`` events, begun and not ended."""
    builder = SessionBuilder(session_id, profile=profile)
    builder.append("SessionCreated", profile=profile, relation="NONE", workflow_name="w")
    while len(builder.records) < count:
        number = len(builder.records)
        builder.append("MessageReceived", message_id=f"m{number}", role="USER", parts=[])
    return builder


def raws(records: Iterable[Written], start: int = 0) -> list[Raw]:
    return [Raw(record.key, record.value, 0, offset) for offset, record in enumerate(records, start)]


def judged(records: Sequence[Raw], *, audit: AdminAudit = NO_AUDIT, anchors: Iterable[Anchor] = ()) -> Proof:
    return prove(SESSION, records, partitions=1, schemas=shipped_schemas(), audit=audit, anchors=anchors)


def kinds(proof: Proof) -> set[str]:
    return {doubt.kind for doubt in proof.doubts}


def again(record: Written, **envelope: object) -> Written:
    """The same event with another envelope, hashed anew: what somebody writes who can compute hashes."""
    assert record.event is not None
    writer = shipped_schemas().event(record.event.type)
    body = encode(writer, check(writer, {**record.event.body, "meta": {**record.event.meta, **envelope}}))
    meta = {**record.event.meta, **envelope}
    key = EventKey(str(meta["session_id"]), Seq(int(meta["seq"])), event_hash(writer, body)).encode()
    return Written(key, frame(writer, body), None)


def raw_again(record: Written, **envelope: object) -> Written:
    """As ``again``, also where the checks of a writer would refuse it."""
    assert record.event is not None
    writer = shipped_schemas().event(record.event.type)
    meta = {**record.event.meta, **envelope}
    body = encode(writer, {**record.event.body, "meta": meta})
    key = EventKey(str(meta["session_id"]), Seq(int(meta["seq"])), event_hash(writer, body)).encode()
    return Written(key, frame(writer, body), None)


def forks_of_each_other() -> dict[str, tuple[SessionBuilder, dict[str, object]]]:
    """By id: two forks, each of which names the other's third event, and the stub that an amendment would put there.

    No record can hold the hash of one that holds its own, but a stub has the hash that its amendment gives it.
    """
    found: dict[str, tuple[SessionBuilder, dict[str, object]]] = {}
    for name, other in (("s~a", "s~b"), ("s~b", "s~a")):
        fork = SessionBuilder(name)
        at = {"seq": 3, "hash": digest_of("stub of", other), "event_id": None}
        fork.append("SessionCreated", relation="FORK", parent_session=other, parent_at=at)
        fork.append("SessionForked", parent_session=other, parent_at=at)
        assert fork.tip is not None
        stub = {"hash": digest_of("stub of", name), "prev_hash": fork.tip.hash, "epoch": 0, "type": "NoteRecorded"}
        found[name] = fork, {"seq": 3, **stub}
    return found
