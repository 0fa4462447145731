"""What of an event is compared when two sessions are: which event it is, and what it says. Pure.

Two runs of the same decisions differ in times, uuids, hashes, seqs and places of files all the same; none of those is
looked at. Nor are the ordinals in ids: ``plan.1/t2/c0`` stands for "the call of ``search`` in stage ``plan``", so what
comes behind an inserted turn is what it was. Ids that are no paths, as foreign harnesses have them, are named by what
the event that introduced them says, in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import IntEnum
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from dalsegno.model.records import Event
from dalsegno.replay.divergence import frozen, is_blob


class Cause(IntEnum):
    """What a difference is about; what comes first brings about what comes later."""

    CONFIGURATION = 0
    INPUT = 1
    OUTPUT = 2
    STATUS = 3


class Identity(NamedTuple):
    """Which event it is, with ordinals left out."""

    type: str
    stage: str
    name: str
    """What it is about: of a call the tool's name, of a message its role, of a pin its kind and name."""


class Comparable(NamedTuple):
    """An event as it is compared."""

    identity: Identity
    body: Mapping[str, Any]
    """The payload without what is never compared, and with names in the place of ids."""

    @property
    def digest(self) -> bytes:
        """Equal where the bodies do not differ."""
        return blake2b(frozen(self.body), digest_size=_DIGEST_BYTES).digest()


class Comparer:
    """Takes the events of one history in order; what earlier ones introduced gives later ones their names."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def take(self, event: Event) -> Comparable:
        if event.stub is not None:
            # Nothing is known of what was here; only the same record is known to say the same.
            return Comparable(Identity(event.type, "", ""), {"amended": event.stub, "record": event.hash})
        for call in event.body["tool_calls"] if event.type == _COMPLETED else ():
            self._names[call["tool_call_id"]] = call["name"]
        id_field, name_fields = _INTRODUCED.get(event.type, ("", ()))
        stage = self._name(event.meta.get("stage_id") or "")
        if name_fields:
            name = ":".join(str(self._named(field, event.body.get(field)) or "") for field in name_fields)
            id_ = event.body.get(id_field)
            if isinstance(id_, str):
                self._names[id_] = name
        else:
            name = next((self._name(value) for field, value in event.body.items() if _is_one_id(field, value)), "")
        left_out = _INCIDENTAL.get(event.type, frozenset()) | {"meta"}
        body = {field: self._named(field, value) for field, value in event.body.items() if field not in left_out}
        if event.type == _COMPLETED and body["output"]:
            del body["output_digest"]  # over ids too
        return Comparable(Identity(event.type, stage, name), body)

    def _named(self, field: str, value: Any) -> Any:
        """The value with names in the place of ids, however deep."""
        if _is_one_id(field, value):
            return self._name(value)
        if isinstance(value, Mapping):
            return value if is_blob(value) else {name: self._named(name, each) for name, each in value.items()}
        if isinstance(value, list):
            inner = "id" if field in _LISTS_OF_IDS else ""
            return [self._named(inner, each) for each in value]
        return value

    def _name(self, id_: str) -> str:
        return self._names.get(id_) or shape(id_)


def shape(id_: str) -> str:
    """A path without its ordinals: ``plan.1/t2/c0`` is ``plan/t/c``. Of an id that is none, nothing."""
    first, *rest = id_.split("/")
    if not rest and not _STAGE_ATTEMPT.search(first):
        return ""
    return "/".join([_STAGE_ATTEMPT.sub("", first), *(_ORDINAL.sub(r"\1", segment) for segment in rest)])


def cause_of(type_: str, field: str = "") -> Cause:
    """What it is about that an event, or one of its fields, differs."""
    if type_ in _CONFIGURATION_TYPES or field in _CONFIGURATION_FIELDS or (type_, field) == _ASKED_MODEL:
        return Cause.CONFIGURATION
    if field in _STATUS_FIELDS:
        return Cause.STATUS
    return Cause.INPUT if type_ in _INPUT_TYPES else Cause.OUTPUT if type_ in _OUTPUT_TYPES else Cause.STATUS


def _is_one_id(field: str, value: Any) -> bool:
    is_id = field in ("id", "cites") or (field.endswith("_id") and field not in _NAMES_NOT_IDS)
    return is_id and isinstance(value, str)


_DIGEST_BYTES: Final = 16
_COMPLETED: Final = "InferenceCompleted"
_STAGE_ATTEMPT: Final = re.compile(r"\.[0-9]+$")
_ORDINAL: Final = re.compile(r"^([a-z]{0,2})[0-9]+$")

_INTRODUCED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "ApprovalRequested": ("approval_id", ("subject_id",)),
    "ArtifactRecorded": ("artifact_id", ("path",)),
    "CheckpointMarked": ("", ("kind",)),
    "CompressionCompleted": ("compression_id", ("rule_id",)),
    "CompressionStarted": ("compression_id", ("rule_id",)),
    "ConfigPinned": ("", ("kind", "name")),
    "FeedbackRecorded": ("", ("kind",)),
    "InferenceRequested": ("inference_id", ("purpose",)),
    "LimitReached": ("", ("limit",)),
    "MessageReceived": ("message_id", ("role",)),
    "NondeterminismRecorded": ("", ("kind", "key")),
    "NoteRecorded": ("", ("kind",)),
    "PolicyEvaluated": ("decision_id", ("subject_id",)),
    "StageScheduled": ("stage_id", ("stage_name",)),
    "StatePatched": ("", ("namespace",)),
    "TimerFired": ("", ("timer",)),
    "ToolCallRequested": ("tool_call_id", ("name",)),
    "TransitionTaken": ("", ("from_stage",)),
    "TurnStarted": ("turn_id", ("agent",)),
    "ValidationRequested": ("validation_id", ("validator",)),
}
"""Type -> the field with the id that it introduces, and those that name what it is about. All other types are named by
the first id in them."""

_INCIDENTAL: Final[Mapping[str, frozenset[str]]] = {
    "ArtifactRecorded": frozenset({"produced_by"}),
    "CheckpointMarked": frozenset({"checkpoint_id", "state_digests"}),
    "FeedbackRecorded": frozenset({"target"}),
    "InferenceCompleted": frozenset({"response_id", "latency_ms", "ttft_ms", "cache", "raw"}),
    "InferenceFailed": frozenset({"retry_after_ms"}),
    "SessionCreated": frozenset({"relation", "parent_session", "parent_at"}),
    "SessionRecovered": frozenset({"last_good", "crashed_instance", "snapshot_id"}),
    "SessionStarted": frozenset({"clock_start"}),
    "StageStarted": frozenset({"worker"}),
    "SubSessionEnded": frozenset({"child_session", "child_final_hash"}),
    "ToolCallRequested": frozenset({"native_call_id"}),
    "ToolCallStarted": frozenset({"executor", "idempotency_key", "child_session"}),
    "ToolReceiptRecorded": frozenset({"receipt_id", "started_at", "ended_at"}),
    "ValidationAmended": frozenset({"replaces"}),
    "ValidationRequested": frozenset({"target"}),
}
"""Type -> fields that are never compared: wall time, uuids, hashes and seqs of records, who did it, bytes around them
(``raw`` holds a provider's ids; what it says stands in ``output``)."""

_NAMES_NOT_IDS: Final = frozenset({"rule_id", "guard_id", "transition_id"})
"""They come from documents, and are the same in every run."""
_LISTS_OF_IDS: Final = frozenset({"forgotten", "scope", "removed", "open_ops"})

_CONFIGURATION_TYPES: Final = frozenset({"ConfigPinned", "SessionStarted"})
_ASKED_MODEL: Final = ("InferenceRequested", "model")
_CONFIGURATION_FIELDS: Final = frozenset(
    {
        "workflow_name", "profile", "labels", "agent", "provider", "params", "tools_digest", "tool_version",
        "policy_digest", "engine", "template_digest", "builder_version", "tokenizer", "token_budget", "rule_digest",
        "validator_version", "validator_digest", "criteria_digest",
    }
)  # fmt: skip
_STATUS_FIELDS: Final = frozenset(
    {"usage", "cost_usd_micros", "status", "exit_code", "outcome", "open_ops", "http_status", "attempt", "delay_ms"}
)
_INPUT_TYPES: Final = frozenset(
    {
        "CompressionCompleted", "CompressionFailed", "CompressionStarted", "ContextItemRetrieved", "ContextPackBuilt",
        "InferenceRequested", "InputProvided", "InputRequested", "MessageReceived", "NondeterminismRecorded",
        "RetrievalRequested", "SessionCreated", "StatePatched", "TimerFired",
    }
)  # fmt: skip
_OUTPUT_TYPES: Final = frozenset(
    {
        "ApprovalDenied", "ApprovalExpired", "ApprovalGranted", "ApprovalRequested", "ApprovalWithdrawn",
        "ArtifactRecorded", "InferenceCompleted", "InferenceFailed", "PolicyAnswered", "PolicyEvaluated",
        "SessionCompleted", "StageCompleted", "SubSessionEnded", "ToolCallAuthorized", "ToolCallFailed",
        "ToolCallRejected", "ToolCallRequested", "ToolReceiptRecorded", "ToolRetryDecided", "TransitionTaken",
        "ValidationAmended", "ValidationDecided", "ValidationRequested", "VerdictReported",
    }
)  # fmt: skip
