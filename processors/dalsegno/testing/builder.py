"""``SessionBuilder``: sessions as real records (key and value bytes), deterministic, without a broker or a clock.

    builder = SessionBuilder("s-1").begin()
    builder.append("MessageReceived", message_id="m1", role="USER")
    builder.append("SessionCompleted", outcome="SUCCESS")
    builder.records      # [Written(key, value, event), ...], a chain from seq 1

``append`` fills in what it is not given, from the type's schema, and judges the event as a reader would: ``session``
and ``ops`` hold the lifecycle's state, ``verdicts`` what the rules say of each record. Equal calls give equal bytes.
``branch`` gives a rival writer of the same session, ``fork`` a child session, ``amend`` a ``HistoryAmended``;
``dalsegno.testing.moves`` plays random valid sessions, ``dalsegno.testing.strategies`` draws them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from dalsegno.log.codec import encode, event_hash, frame, place
from dalsegno.log.encode import check
from dalsegno.log.schema_set import SchemaSet, WriterSchema
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.ids import FORK_MARK, EventKey, Seq, root_of
from dalsegno.model.lifecycle import MemoryOps, SessionState, Verdict, config_set_digest, inherit, judge
from dalsegno.model.lifecycle.tables import PINNED_AT_START, REQUIRED_IN_STRICT
from dalsegno.model.records import CONTROL_SEQ, Event, Link

START_MICROS = 1_767_225_600_000_000
"""2026-01-01 UTC: where the builder's clock begins."""
STEP_MICROS = 1_000_000


class Written(NamedTuple):
    """One record of the log. ``event`` is what ``place`` makes of it; None for tombstones and damaged records."""

    key: bytes
    value: bytes | None
    event: Event | None


@cache
def shipped_schemas() -> SchemaSet:
    """The catalogue of this build; do not add to it."""
    return SchemaSet.load()


def digest_of(*parts: str) -> bytes:
    """A digest that depends on the parts alone."""
    return sha256("\x1f".join(parts).encode()).digest()


def blob(content: bytes, media_type: str = "text/plain") -> dict[str, Any]:
    """A Blob that holds its content inline."""
    return {
        "digest": sha256(content).digest(), "size": len(content), "media_type": media_type, "uri": None,
        "inline": content,
    }  # fmt: skip


class SessionBuilder:
    """One writer of one session; see the module's text. ``writer`` enters the bytes, so rivals' hashes differ."""

    def __init__(self, session_id: str, *, profile: str = "STRICT", writer: str = "builder/1/a") -> None:
        self.session_id = session_id
        self.profile = profile
        self.writer = writer
        self.epoch = 0
        self.records: list[Written] = []
        self.verdicts: list[Verdict] = []
        self.session = SessionState()
        self.ops = MemoryOps()
        self.parent: SessionBuilder | None = None

    # --- single events ---------------------------------------------------------------------------------------------

    @property
    def events(self) -> list[Event]:
        return [record.event for record in self.records if record.event is not None]

    @property
    def tip(self) -> Link | None:
        """The link of the last event written."""
        last = self.records[-1].event if self.records else None
        return last.link if last is not None else None

    def append(self, type_: str, *, meta: Mapping[str, Any] | None = None, **fields: Any) -> Written:
        """Write one event behind the last. Fields not given get their default, or a small value of their type."""
        tip = self.tip
        seq = tip.seq + 1 if tip else 1
        if self.profile == "STRICT":
            fields = self._required(type_, seq) | fields
        envelope = self.envelope(seq, tip.hash if tip else None, type_) | dict(meta or {})
        record = write(type_, envelope, fields)
        event = record.event
        assert event is not None
        self.records.append(record)
        self.verdicts.append(judge(self.session, self.ops, event))
        return record

    def envelope(self, seq: int, prev_hash: bytes | None, type_: str) -> dict[str, Any]:
        now = START_MICROS + seq * STEP_MICROS
        info = CATALOGUE.get(type_)
        return {
            "session_id": self.session_id, "seq": seq, "epoch": self.epoch, "prev_hash": prev_hash,
            "ignorable": info is not None and info.ignorable, "recorded_at": now, "occurred_at": now,
            "event_id": str(uuid5(NAMESPACE_URL, f"{self.session_id}/{seq}/{self.writer}/{self.epoch}")),
            "actor_kind": "HARNESS", "actor_id": "builder", "writer": self.writer,
            "turn_id": self.session.turn or None, "stage_id": self.session.stage or None,
        }  # fmt: skip

    def _required(self, type_: str, seq: int) -> dict[str, Any]:
        """What a STRICT session may not leave out, where the caller does not care what it is."""
        filled: dict[str, Any] = {}
        for field in REQUIRED_IN_STRICT.get(type_, ()):
            if field.endswith("_digest") or field in ("digest", "child_final_hash"):
                filled[field] = digest_of(type_, field)
            elif field.endswith("_at") or field == "clock_start":
                filled[field] = START_MICROS + seq * STEP_MICROS
            else:
                filled[field] = f"some {field}"
        return filled

    # --- what most sessions begin with -----------------------------------------------------------------------------

    def begin(self, workflow: str = "demo", goal: str = "do it") -> SessionBuilder:
        """SessionCreated, a ConfigPinned of every kind that a start needs, SessionStarted."""
        self.append(
            "SessionCreated", profile=self.profile, relation="NONE", workflow_name=workflow, goal=blob(goal.encode())
        )
        return self.start()

    def start(self) -> SessionBuilder:
        pins = []
        for kind in sorted(PINNED_AT_START):
            digest = digest_of("pin", kind)
            self.append("ConfigPinned", kind=kind, name="main", version="1", effective="NOW", digest=digest)
            pins.append(f"{kind}:main:{digest.hex()}")
        self.append("SessionStarted", config_set_digest=config_set_digest(pins))
        return self

    def recover(self, resolution: str | None = None) -> Written:
        """Another run of the writer takes over: the epoch rises, every open operation is resolved."""
        tip = self.tip
        assert tip is not None
        self.epoch += 1
        in_flight = [
            {"kind": kind, "id": id, "resolution": resolution or DEFAULT_RESOLUTION[kind]}
            for (kind, id), op in sorted(self.ops.rows.items())
            if kind in DEFAULT_RESOLUTION and op.phase in _OPEN
        ]
        last_good = {"seq": tip.seq, "hash": tip.hash, "event_id": None}
        return self.append("SessionRecovered", last_good=last_good, in_flight=in_flight)

    def open_ids(self) -> list[str]:
        """Ids of the operations that are open, as the end of a session must list them."""
        return sorted(
            {id for (kind, id), op in self.ops.rows.items() if kind in DEFAULT_RESOLUTION and op.phase in _OPEN}
        )

    # --- other writers and other sessions --------------------------------------------------------------------------

    def branch(self, seq: int, *, writer: str) -> SessionBuilder:
        """Another writer of this session that has read it up to ``seq``. It holds those records too."""
        other = SessionBuilder(self.session_id, profile=self.profile, writer=writer)
        other.parent = self.parent
        if other.parent is not None:
            inherit(self._parent_state(), other.session)
        for record in self.records[:seq]:
            assert record.event is not None
            other.records.append(record)
            other.epoch = record.event.epoch
            other.verdicts.append(judge(other.session, other.ops, record.event))
        return other

    def fork(self, seq: int, suffix: str, *, profile: str | None = None, purpose: str = "WHAT_IF") -> SessionBuilder:
        """A child session that goes on behind ``seq`` of this one; its first two events are written."""
        child = SessionBuilder(
            f"{root_of(self.session_id)}{FORK_MARK}{suffix}", profile=profile or self.profile, writer=self.writer
        )
        child.parent = self.branch(seq, writer=self.writer)
        inherit(child._parent_state(), child.session)
        link = child.parent.tip
        assert link is not None
        parent_at = {"seq": link.seq, "hash": link.hash, "event_id": None}
        named: dict[str, Any] = {"parent_session": self.session_id, "parent_at": parent_at}
        child.append("SessionCreated", profile=child.profile, relation="FORK", workflow_name="demo", **named)
        child.append("SessionForked", purpose=purpose, **named)
        return child

    def _parent_state(self) -> SessionState:
        assert self.parent is not None
        return self.parent.session

    def amend(
        self,
        targets: Iterable[Written] = (),
        *,
        action: str = "ERASED",
        whole_session: bool = False,
        request_id: str = "request-1",
    ) -> Written:
        """A HistoryAmended of this session that names the targets; it is not added to ``records``."""
        named = [
            {
                "seq": event.seq, "hash": event.hash, "prev_hash": event.prev_hash, "epoch": event.epoch,
                "type": event.type,
            }
            for event in (target.event for target in targets)
            if event is not None
        ]  # fmt: skip
        envelope = self.envelope(CONTROL_SEQ, None, "HistoryAmended") | {"epoch": 0, "turn_id": None, "stage_id": None}
        fields = {"request_id": request_id, "action": action, "whole_session": whole_session, "reason": "asked"}
        return write("HistoryAmended", envelope, fields | {"targets": named})


def tombstone(record: Written) -> Written:
    """The record that frees another one's bytes."""
    return Written(record.key, None, None)


def write(type_: str | WriterSchema, meta: Mapping[str, Any], fields: Mapping[str, Any]) -> Written:
    """One event as a record. ``type_``: a type of the catalogue, or a writer schema of your own."""
    writer = type_ if isinstance(type_, WriterSchema) else shipped_schemas().event(type_)
    body = encode(writer, check(writer, {**_small_values(writer), **fields, "meta": dict(meta)}))
    key = EventKey(meta["session_id"], Seq(meta["seq"]), event_hash(writer, body)).encode()
    value = frame(writer, body)
    placed = place(shipped_schemas(), key, value, 0, 1)
    return Written(key, value, placed if isinstance(placed, Event) else None)


def _small_values(writer: WriterSchema) -> dict[str, Any]:
    """A value for every field that has no default."""
    named: dict[str, Any] = {}
    return {
        field["name"]: _small(field["type"], field["name"], named)
        for field in writer.schema["fields"][1:]
        if "default" not in field
    }


def _small(schema: Any, name: str, named: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return None if "null" in schema else _small(schema[0], name, named)
    if isinstance(schema, str):
        simple: dict[str, Any] = {"string": f"some {name}", "boolean": False, "int": 1, "long": 1, "bytes": b""}
        return simple[schema] if schema in simple else _small(named[schema], name, named)
    kind = schema["type"]
    if "name" in schema:
        named[schema["name"]] = schema
    if kind == "record":
        if schema["name"].endswith(".Blob"):
            return blob(b"")
        return {f["name"]: _small(f["type"], f["name"], named) for f in schema["fields"] if "default" not in f}
    if kind == "enum":
        return schema["symbols"][1]
    if kind == "fixed":
        return bytes(schema["size"])
    return [] if kind == "array" else _small(kind, name, named)


DEFAULT_RESOLUTION = {
    "INFERENCE": "RETRY", "TOOL": "UNKNOWN_OUTCOME", "APPROVAL": "KEEP_WAITING", "INPUT": "KEEP_WAITING",
    "COMPRESSION": "ABANDONED", "VALIDATION": "RETRY", "RETRIEVAL": "RETRY",
}  # fmt: skip
"""How ``recover`` resolves what is open, by kind."""

_OPEN = frozenset({"OPEN", "REQUESTED", "AUTHORIZED", "STARTED", "UNRESOLVED"})
