"""Numbers, links and encodes what scripts yield: the fast path from a writer event to a record's bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

from dalsegno.log.codec import encode, event_hash, frame
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.events import NewEvent, to_record
from dalsegno.testing.script import Child, Script

_ACTORS = {
    "InferenceCompleted": ("MODEL", "model"),
    "InferenceFailed": ("MODEL", "model"),
    "ToolReceiptRecorded": ("TOOL", "sandbox-1"),
    "ToolCallFailed": ("TOOL", "sandbox-1"),
    "PolicyEvaluated": ("POLICY", "rules/1"),
    "ApprovalGranted": ("USER", "maria"),
    "ApprovalDenied": ("USER", "maria"),
    "ApprovalExpired": ("SCHEDULER", "clock"),
    "MessageReceived": ("USER", "maria"),
    "InputProvided": ("USER", "maria"),
    "FeedbackRecorded": ("USER", "maria"),
    "VerdictReported": ("VALIDATOR", "ci"),
    "ValidationDecided": ("VALIDATOR", "tests"),
    "CancelRequested": ("OPERATOR", "ops"),
}
_HARNESS = ("HARNESS", "workload")


class WorkloadRecord(NamedTuple):
    """One record to publish. ``meta`` and ``event`` are what its value was encoded from."""

    session_id: str
    seq: int
    type: str
    key: bytes
    value: bytes
    event: NewEvent
    meta: dict[str, Any]


class ScriptWriter:
    """Writes the events of any number of scripts. Nothing is checked here; tests show that scripts are valid."""

    def __init__(self, schemas: SchemaSet) -> None:
        self._writers = {
            name: (schemas.event(name), info.ignorable, _ACTORS.get(name, _HARNESS)) for name, info in CATALOGUE.items()
        }

    def write(self, script: Script, event: NewEvent) -> WorkloadRecord:
        """Encode the script's next event; its place, tip, clock and tally move on."""
        type_ = event.TYPE
        writer, ignorable, actor = self._writers[type_]
        actor_kind, actor_id = script.actors.get(type_, actor)
        script.now += 1_000 + int(script.chance() * 400_000)
        now, seq = script.now, script.seq + 1
        ms = now // 1000
        meta = {
            "session_id": script.session_id,
            "seq": seq,
            "epoch": script.epoch,
            "prev_hash": script.tip,
            "ignorable": ignorable,
            "recorded_at": now,
            "occurred_at": now - 500,
            "event_id": f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7{seq & 0xFFF:03x}-8{script.number & 0xFFF:03x}-{seq:012x}",
            "actor_kind": actor_kind,
            "actor_id": actor_id,
            "writer": f"workload/1/run-{script.epoch}",
            "causation_id": None,
            "turn_id": script.turn_id,
            "stage_id": script.stage_id,
            "origin": None,
            "redactions": [],
        }
        record = to_record(event)
        record["meta"] = meta
        body = encode(writer, record)
        hash_ = event_hash(writer, body)
        script.tip, script.seq = hash_, seq
        value = frame(writer, body)
        tally = script.tally
        tally.events += 1
        tally.value_bytes += len(value)
        tally.by_type[type_] += 1
        key = f"{script.session_id}:{seq}:{hash_.hex()}".encode()
        return WorkloadRecord(script.session_id, seq, type_, key, value, event, meta)

    def write_all(self, script: Script) -> list[WorkloadRecord]:
        """A whole session that has no children."""
        records = []
        for step in script.steps():
            assert not isinstance(step, Child)
            records.append(self.write(script, step))
        return records
