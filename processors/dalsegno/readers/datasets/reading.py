"""A session's events as rows may use them: those that count, with their contents, after redaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dalsegno.errors import BlobDamaged, BlobMissing, InvalidEvent
from dalsegno.log.redaction import Redactor
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.records import Event
from dalsegno.readers.datasets.history import Told
from dalsegno.readers.datasets.own_packs import OwnPacks
from dalsegno.readers.lineage import counting_events
from dalsegno.readers.local import LocalReader
from dalsegno.storage.blobs import Blobs

_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "SessionCreated": ("workflow_name", "labels"),
    "SessionForked": ("parent_session", "parent_at", "purpose"),
    "ConfigPinned": ("kind", "name", "digest", "effective", "content"),
    "TurnStarted": ("turn_id",),
    "StageScheduled": ("stage_id", "stage_name"),
    "MessageReceived": ("message_id", "role", "parts"),
    "InputProvided": ("request_id", "content"),
    "ContextItemRetrieved": ("item_id", "content"),
    "CompressionCompleted": (
        "compression_id", "method", "effect", "forgotten", "summary", "replacement",
    ),
    "ContextPackBuilt": ("pack_id", "base_pack_id", "tools_digest", "removed", "added"),
    "InferenceRequested": ("inference_id", "purpose", "provider", "model", "pack_id", "request_digest", "tools_digest"),
    "InferenceCompleted": ("inference_id", "complete", "model", "output_digest", "tool_calls", "output"),
    "ToolCallRequested": ("tool_call_id", "inference_id", "name", "arguments_digest", "arguments"),
    "ToolReceiptRecorded": ("tool_call_id", "result_digest", "result"),
    "ToolCallFailed": ("tool_call_id", "reason", "error"),
    "ToolCallRejected": ("tool_call_id", "basis", "message"),
    "SubSessionEnded": ("tool_call_id", "result"),
    "ValidationRequested": ("validation_id", "target_id", "target"),
    "ValidationDecided": ("validation_id", "verdict", "intermediate"),
    "ValidationAmended": ("validation_id", "verdict"),
    "FeedbackRecorded": ("kind", "value", "target"),
}  # fmt: skip
"""What is read of which event; all else is neither fetched nor searched for secrets."""
_TEXTS: Final = frozenset({"TEXT", "TOOL_CALL"})
_DOCUMENTS: Final = frozenset({"TOOL_CATALOG", "WORKFLOW", "HARNESS_BUILD"})


class SessionReading:
    """Reads sessions one after another. ``redact``: rules that every event goes through, as when it is published."""

    def __init__(self, reader: LocalReader, blobs: Blobs, redact: Redactor | None = None) -> None:
        self._reader = reader
        self._blobs = blobs
        self._redact = redact
        self._schemas = SchemaSet.load()

    def told(self, session_id: str) -> list[Told]:
        """All events of the session that broke no rule, behind those that it takes over as a fork."""
        digests: dict[bytes, bytes] = {}

        def prepare(event: Event) -> Told:
            return self._whole(event, event.session_id == session_id, digests)

        packs = OwnPacks(prepare, self._blobs, redacting=self._redact is not None)
        found: list[Told] = []
        for event in counting_events(self._reader, session_id):
            shown = packs.take(event)
            if event.type in _NEEDED:
                told = self._told(event, event.session_id == session_id, digests)
                found.append(told if shown is None else told._replace(shown=shown))
        return found

    def _told(self, event: Event, own: bool, digests: dict[bytes, bytes]) -> Told:
        if event.stub is not None:
            return Told(event, own)
        slim: dict[str, Any] = {"meta": event.body["meta"], **{name: event.body[name] for name in _NEEDED[event.type]}}
        _drop_unneeded(event.type, slim)
        try:
            body = self._filled(slim)
        except (BlobMissing, BlobDamaged):
            return Told(_with(event, slim), own, problem="content-missing")
        return self._redacted(_with(event, body), own, digests, otherwise=slim)

    def _whole(self, event: Event, own: bool, digests: dict[bytes, bytes]) -> Told:
        """All of an event, as the decider's fold takes it: of contents in the store a model was told the digest alone,
        which is that of what rules left of it."""
        if self._redact is None:
            return Told(event, own)
        try:
            told = self._redacted(_with(event, self._filled(event.body)), own, digests, otherwise=event.body)
        except (BlobMissing, BlobDamaged):
            return Told(event, own, problem="content-missing")
        if event.type == "ConfigPinned":  # the documents themselves are needed, and no model is shown them
            return told
        return told._replace(event=_with(event, _left_in_store(told.event.body, event.body)))

    def _redacted(self, event: Event, own: bool, digests: dict[bytes, bytes], *, otherwise: Mapping[str, Any]) -> Told:
        """``otherwise``: its body if it cannot be redacted, of which nothing but ids is used."""
        if self._redact is None:
            return Told(event, own)
        schema = self._schemas.event(event.type).schema
        before = len(event.meta["redactions"])
        try:
            clean = self._redact.apply(event.type, schema, dict(event.body), digests)
        except InvalidEvent:
            return Told(_with(event, otherwise), own, redacted=True, problem="not-redactable")
        return Told(_with(event, clean), own, redacted=len(clean["meta"]["redactions"]) > before)

    def _filled(self, value: Any) -> Any:
        """With every content inline, those from the store too. Raises BlobMissing, BlobDamaged, StoreUnavailable."""
        if isinstance(value, dict):
            if value.keys() >= {"inline", "uri", "digest"}:
                return (
                    value if value["inline"] is not None else {**value, "uri": None, "inline": self._blobs.get(value)}
                )
            return {name: each if name == "meta" else self._filled(each) for name, each in value.items()}
        return [self._filled(each) for each in value] if isinstance(value, list) else value


def _with(event: Event, body: Mapping[str, Any]) -> Event:
    return Event(
        event.session_id, event.seq, event.hash, event.prev_hash, event.epoch, event.type, event.known, event.ignorable,
        body["meta"], body,
    )  # fmt: skip


def _left_in_store(filled: Any, before: Any) -> Any:
    """Without the contents that were fetched."""
    if isinstance(filled, Mapping) and isinstance(before, Mapping):
        if before.get("uri") is not None and before.get("inline", b"") is None:
            return {**filled, "inline": None}
        return {name: _left_in_store(each, before.get(name)) for name, each in filled.items()}
    if isinstance(filled, list) and isinstance(before, list):
        return [_left_in_store(each, was) for each, was in zip(filled, before, strict=False)]
    return filled


def _drop_unneeded(type_: str, slim: dict[str, Any]) -> None:
    """Contents that no row holds are not fetched."""
    for name in ("parts", "output"):
        if name in slim:
            slim[name] = [part if part["kind"] in _TEXTS else {**part, "blob": None} for part in slim[name]]
    if type_ == "ConfigPinned" and slim["kind"] not in _DOCUMENTS:
        slim["content"] = None
