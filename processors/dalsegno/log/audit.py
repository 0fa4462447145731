"""The topic ``<prefix>.admin-audit``: what operators asked for, each as an ``AdminAction``; kept for ever.

Its rights are others than the log's: who can write events cannot also say that an operator asked for them.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from dalsegno.errors import DalsegnoError, RecordDamaged, TopicMissing, WaitTimeout
from dalsegno.log.codec import decode_record, encode_record
from dalsegno.log.history import STALL_SECONDS
from dalsegno.log.receipts import Pending
from dalsegno.log.record import Batch
from dalsegno.log.topics import topic_name
from dalsegno.log.transport import Transport
from dalsegno.model.ids import EventKey, Offset, Seq

log = logging.getLogger("dalsegno.log")

AUDIT = "admin-audit"
WRITE_TIMEOUT_SECONDS = 30.0
_JSON = "application/json"


class AdminAction(NamedTuple):
    """Something an operator did. ``request_id`` is equal in the events that belong to it; ``at`` in microseconds since
    1970 UTC; ``details`` is what exactly was asked, in plain values."""

    action_id: str
    request_id: str
    kind: str
    subject: str
    actor_id: str
    at: int
    reason: str
    details: Mapping[str, Any]


def audit_topic(prefix: str) -> str:
    return topic_name(prefix, AUDIT)


def write_action(
    transport: Transport, prefix: str, action: AdminAction, *, timeout: float = WRITE_TIMEOUT_SECONDS
) -> None:
    """Record an action; it is acknowledged when this returns. Raises WaitTimeout (the outcome is then unknown),
    TopicMissing, BrokerUnavailable, EventTooLarge."""
    topic = audit_topic(prefix)
    key, value = action.action_id.encode(), encode_action(action)
    # The report of a record is waited for in the same way as that of an event.
    pending = Pending(EventKey(action.action_id, Seq(0), sha256(value).digest()), value, 0)

    def done(offset: Offset | None, error: DalsegnoError | None) -> None:
        pending.settle(offset, error)

    transport.ready()
    transport.send(topic, 0, key, value, [], done)
    try:
        pending.result(timeout)
    except WaitTimeout as error:
        raise WaitTimeout(
            f"no report on a record of {topic} within {timeout:g} s; it may or may not be stored",
            wanted="an acknowledgement before anything is done",
            todo="check the broker, then repeat the command: what was recorded is found and not recorded twice",
            topic=topic,
        ) from error


def encode_action(action: AdminAction) -> bytes:
    details = canonical(action.details)
    digest = sha256(details).digest()
    blob = {"digest": digest, "size": len(details), "media_type": _JSON, "uri": None, "inline": details}
    return encode_record(
        "AdminAction",
        {
            "action_id": action.action_id, "request_id": action.request_id, "kind": action.kind,
            "subject": action.subject, "actor_kind": "OPERATOR", "actor_id": action.actor_id, "at": action.at,
            "reason": action.reason, "details_digest": digest, "details": blob,
        },
    )  # fmt: skip


def canonical(details: Mapping[str, Any]) -> bytes:
    """Details as bytes: equal details give equal bytes."""
    return json.dumps(details, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode("utf-8")


def read_actions(transport: Transport, prefix: str) -> list[AdminAction]:
    """Every action of the audit, oldest first; none where the topic is missing, so that nothing counts as audited."""
    topic = audit_topic(prefix)
    try:
        bounds = transport.bounds(topic, 0)
        return list(actions_in(transport.read(topic, 0, bounds.low, bounds.high, STALL_SECONDS)))
    except TopicMissing:
        log.warning("audit_topic_missing", extra={"topic": topic})
        return []


def actions_in(batches: Iterable[Batch]) -> Iterator[AdminAction]:
    """The actions among these records; what is none, or is damaged, is passed over with a warning."""
    for batch in batches:
        for record in batch.records:
            if record.value is None:
                continue
            try:
                kind, found = decode_record(record.value)
            except RecordDamaged as error:
                log.warning("audit_record_ignored", extra={"offset": record.offset, "reason": error.found})
                continue
            if kind == "AdminAction":
                yield _to_action(found)


def _to_action(found: Mapping[str, Any]) -> AdminAction:
    return AdminAction(
        found["action_id"], found["request_id"], found["kind"], found["subject"], found["actor_id"], found["at"],
        found["reason"], _details(found["details"], found["details_digest"]),
    )  # fmt: skip


def _details(blob: Mapping[str, Any] | None, digest: bytes | None) -> Mapping[str, Any]:
    """What was asked; empty where the record does not hold it, or holds another content than its digest says."""
    inline = None if blob is None else blob["inline"]
    if inline is None or sha256(inline).digest() != digest:
        return {}
    try:
        found = json.loads(inline)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
