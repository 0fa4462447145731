"""What the lifecycle remembers of a session: one row for the session, one small row per operation. Pure.

Every row is bounded in size, whatever a session does: ids above ``MAX_ID`` characters are kept as a digest, lists have
limits, and what lies above a limit is not judged (a rule that cannot be judged is not broken).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import msgspec

LIFECYCLE_VERSION = 1
"""Rises with every change of a rule or of these rows: the rows of another version are folded again."""

# Kinds of operations, as in ``SessionRecovered.in_flight`` ...
INFERENCE = "INFERENCE"
TOOL = "TOOL"
APPROVAL = "APPROVAL"
INPUT = "INPUT"
COMPRESSION = "COMPRESSION"
VALIDATION = "VALIDATION"
RETRIEVAL = "RETRIEVAL"
SUBSESSION = "SUBSESSION"
"""The child session of a tool call: a second name of that call, never open beside it."""
# ... frames that hold operations ...
TURN = "TURN"
STAGE = "STAGE"
# ... and what is only remembered because later events refer to it.
DECISION = "DECISION"
PACK = "PACK"
ARTIFACT = "ARTIFACT"
MESSAGE = "MESSAGE"

OPERATIONS = (INFERENCE, TOOL, APPROVAL, INPUT, COMPRESSION, VALIDATION, RETRIEVAL)
"""Kinds that a recovery must resolve and that an ending must list."""
COUNTED = (*OPERATIONS, TURN, STAGE)
"""Kinds whose open ones are counted in ``SessionState.open``, in this order."""
PLACE_OF = {kind: place for place, kind in enumerate(COUNTED)}

# Session states.
NEW = "NEW"
CREATED = "CREATED"
RUNNING = "RUNNING"
PAUSED = "PAUSED"
COMPLETED = "COMPLETED"
FAILED = "FAILED"
CANCELLED = "CANCELLED"
ENDED = frozenset({COMPLETED, FAILED, CANCELLED})

# Phases of operations. ABSENT is the phase of one that no event has named yet.
ABSENT = "ABSENT"
OPEN = "OPEN"
REQUESTED = "REQUESTED"
AUTHORIZED = "AUTHORIZED"
STARTED = "STARTED"
UNRESOLVED = "UNRESOLVED"
"""Started, and whether it ran is unknown: a receipt may still come."""
SCHEDULED = "SCHEDULED"
ACTIVE = "ACTIVE"
DONE = "DONE"
REJECTED = "REJECTED"
ATTEMPT_FAILED = "ATTEMPT_FAILED"
GIVEN_UP = "GIVEN_UP"
GRANTED = "GRANTED"
DENIED = "DENIED"
EXPIRED = "EXPIRED"
WITHDRAWN = "WITHDRAWN"
KNOWN = "KNOWN"

OPEN_PHASES = frozenset({OPEN, REQUESTED, AUTHORIZED, STARTED, UNRESOLVED, SCHEDULED, ACTIVE})
RUNNING_PHASES = frozenset({STARTED, UNRESOLVED})
"""Phases of a tool call that has started and has no result."""

MAX_ID = 200
MAX_PINS = 64
"""Pinned documents before SessionStarted. Above it the digest of the set is not compared."""
MAX_LISTED = 64
"""Tool calls of one inference that are remembered by id. Above it, U1 is not judged for that inference."""
MAX_STAGES = 64
"""Open stages remembered by id, so that a fork can go on in them. Above it, a fork's stages are not judged."""


class OpState(msgspec.Struct, array_like=True):
    """One operation. What the fields hold depends on its kind; ``effects.py`` says it, event by event.

    ``phase`` where it stands · ``attempt`` the last one begun · ``digest`` what later events must equal · ``ref`` the
    id it is about · ``mark`` an enum symbol of it · ``safe`` a tool call's unknown outcome may be retried · ``seen`` an
    outside verdict came · ``listed`` the tool calls of an inference · ``unlisted`` there were more of them.
    """

    phase: str = ABSENT
    attempt: int = 0
    digest: bytes | None = None
    ref: str = ""
    mark: str = ""
    safe: bool = False
    seen: bool = False
    listed: tuple[str, ...] = ()
    unlisted: bool = False


class Inherited(msgspec.Struct, array_like=True):
    """What a fork takes over from the prefix of its parent, until its SessionForked is judged."""

    status: str
    operations_open: int
    turn: str
    stage: str
    stages: list[tuple[str, str]]
    more_stages: bool
    pins: list[str]
    more_pins: bool
    pinned: list[str]
    config_set_digest: bytes | None
    stubs: bool


class SessionState(msgspec.Struct, array_like=True):
    """One session's lifecycle. ``open[i]`` counts the open operations of kind ``COUNTED[i]``."""

    status: str = NEW
    profile: str = ""
    relation: str = ""
    parent: str = ""
    forked: bool = False
    stubs: bool = False
    """A stub stands at or below this seq: a rule that seems broken cannot be judged."""
    epoch: int = 0
    turn: str = ""
    """The turn begun last, while it is open."""
    stage: str = ""
    """The stage attempt begun last, while it is open."""
    open: list[int] = msgspec.field(default_factory=lambda: [0] * len(COUNTED))
    running: int = 0
    """Tool calls that have started and have no result."""
    grants: int = 0
    """Grants of scope SESSION or RULE since the start, or since the fork."""
    stages: list[tuple[str, str]] = msgspec.field(default_factory=list)
    """Open stages and their phases, in the order in which they were scheduled."""
    more_stages: bool = False
    pinned: list[str] = msgspec.field(default_factory=list)
    """Kinds of configuration pinned so far, sorted."""
    pins: list[str] = msgspec.field(default_factory=list)
    """``kind:name:digest`` of what is pinned, until SessionStarted."""
    more_pins: bool = False
    config_set_digest: bytes | None = None
    inherited: Inherited | None = None

    def operations_open(self) -> int:
        """How many operations are open that a recovery would have to resolve (turns and stages not counted)."""
        return sum(self.open[: len(OPERATIONS)])

    def open_of(self, kind: str) -> int:
        return self.open[PLACE_OF[kind]]


class Verdict(NamedTuple):
    """What the rules say of one event. An event with a violation has changed nothing.

    ``violations`` and ``findings``: rule ids, sorted; a finding is a broken rule that the profile relaxes, or that a
    stub keeps from being judged. ``opened``, ``closed``: (kind, id) of operations, turns and stages.
    """

    violations: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    opened: tuple[tuple[str, str], ...] = ()
    closed: tuple[tuple[str, str], ...] = ()


class Ops(Protocol):
    """The operations of one session, by kind and id."""

    def get(self, kind: str, id: str, /) -> OpState | None: ...

    def put(self, kind: str, id: str, op: OpState, /) -> None: ...


class MemoryOps:
    """Operations in a dict: for forks' scratch states, producers and tests."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], OpState] = {}

    def get(self, kind: str, id: str, /) -> OpState | None:
        return self.rows.get((kind, id))

    def put(self, kind: str, id: str, op: OpState, /) -> None:
        self.rows[kind, id] = op


# --- reading decoded values ---------------------------------------------------------------------------------------
# Records of other writers' versions may lack a field or hold another type in it: reading never raises.


def bounded(value: str) -> str:
    """An id as it is kept: itself, or ``#`` and its SHA-256 where it is longer than MAX_ID characters."""
    return value if len(value) <= MAX_ID else "#" + sha256(value.encode("utf-8", "surrogatepass")).hexdigest()


def id_in(body: Mapping[str, Any], field: str) -> str:
    value = body.get(field)
    return bounded(value) if type(value) is str else ""


def text_in(body: Mapping[str, Any], field: str) -> str:
    value = body.get(field)
    return value if type(value) is str else ""


def digest_in(body: Mapping[str, Any], field: str) -> bytes | None:
    value = body.get(field)
    return value if type(value) is bytes and len(value) <= MAX_ID else None


def int_in(body: Mapping[str, Any], field: str) -> int:
    value = body.get(field)
    return value if type(value) is int else 0


def items_in(body: Mapping[str, Any], field: str) -> list[Any]:
    value = body.get(field)
    return value if type(value) is list else []


def record_in(body: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = body.get(field)
    return value if isinstance(value, Mapping) else {}
