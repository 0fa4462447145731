"""Plans of replays of sessions: what would be looked at, and of which log. Kept in ``<prefix>.replays`` as others are.

The key is ``<plan id>:plan:0``. What comes of its sessions stands there as replays of their own, ``<plan id>.<n>``, in
the order of the plan (``session_records``). A plan holds as long as every one of its sessions is what it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from dalsegno.errors import BlobDamaged, BlobMissing, PlanStale, RecordDamaged
from dalsegno.log.codec import decode_record, encode_record
from dalsegno.model.events import Blob
from dalsegno.model.records import Event
from dalsegno.orchestration.canonical import canonical
from dalsegno.replay.session_records import MODES
from dalsegno.storage.blobs import Blobs
from dalsegno.storage.object_store import Store

CHANGES_NAMED = 5


class Cost(msgspec.Struct, frozen=True):
    """What a replay would look at, and what asking the models again would take, by what was recorded."""

    events: int = 0
    inferences: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd_micros: int = 0
    tool_results: int = 0

    def __add__(self, other: Cost) -> Cost:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        return Cost(*(one + another for one, another in pairs))


def cost_of(history: Sequence[Event], start: int = 1, until: int | None = None) -> Cost:
    """Of a replay from there on, up to there."""
    events = [
        event
        for event in history
        if event.stub is None and event.seq >= start and (until is None or event.seq <= until)
    ]  # fmt: skip
    answers = [event.body for event in events if event.type == "InferenceCompleted"]
    usage = [body["usage"] for body in answers]
    return Cost(
        events=len(events),
        inferences=len(answers),
        tokens_in=sum(each["input"] or 0 for each in usage),
        tokens_out=sum(each["output"] or 0 for each in usage),
        cost_usd_micros=sum(body["cost_usd_micros"] or 0 for body in answers),
        tool_results=sum(event.type == "ToolReceiptRecorded" for event in events),
    )


class Head(msgspec.Struct, frozen=True):
    """What a session is: its last event, and how many of its events an amendment took. ``hash``: in hex."""

    seq: int
    hash: str
    amended: int = 0


class PlannedSession(msgspec.Struct, frozen=True):
    session: str
    head: Head
    cost: Cost


class SessionsPlan(msgspec.Struct, frozen=True):
    """``options``: what was asked for, by the names of the options, as plain values."""

    id: str
    mode: str
    start: str | None
    options: dict[str, Any]
    sessions: list[PlannedSession]

    @property
    def cost(self) -> Cost:
        return sum((each.cost for each in self.sessions), Cost())

    def replay_id(self, number: int) -> str:
        """Of the replay of its n-th session, from 1."""
        return f"{self.id}.{number}"


class StoredPlan(NamedTuple):
    """``created_at`` in microseconds since 1970."""

    plan: SessionsPlan
    created_at: int
    created_by: str
    reason: str


def document(plan: SessionsPlan) -> bytes:
    """The plan's canonical JSON."""
    return canonical(msgspec.to_builtins(plan))


def plan_key(id: str) -> str:
    return f"{id}:plan:0"


def plan_record(stored: StoredPlan, blob: Blob, topic: str) -> tuple[str, bytes]:
    """Key and value. ``blob`` is the plan's canonical JSON; ``topic`` that of the events."""
    plan = stored.plan
    record = {
        "replay_id": plan.id,
        "plan_digest": blob.digest,
        "mode": MODES[plan.mode],
        "group": "",
        "cluster_id": "",
        "topic": topic,
        "topic_id": "",
        "start": plan.start or "earliest",
        "end": str(plan.options.get("until") or "latest"),
        "created_at": stored.created_at,
        "created_by": stored.created_by,
        "reason": stored.reason,
        "document": msgspec.structs.asdict(blob),
    }
    return plan_key(plan.id), encode_record("ReplayPlan", record)


def parse_session_plans(table: Mapping[bytes, bytes], store: Store) -> dict[str, StoredPlan]:
    """Those in a table of raw records, by id. What this build cannot read is left out."""
    found: dict[str, StoredPlan] = {}
    for value in table.values():
        with suppress(RecordDamaged, BlobMissing, BlobDamaged, msgspec.MsgspecError):
            kind, record = decode_record(value)
            if kind == "ReplayPlan" and record["mode"] in MODES.values():
                content = Blobs(store).get(record["document"])
                if sha256(content).digest() == record["plan_digest"]:
                    plan = msgspec.json.decode(content, type=SessionsPlan)
                    found[plan.id] = StoredPlan(plan, record["created_at"], record["created_by"], record["reason"])
    return found


def check_heads(plan: SessionsPlan, now: Mapping[str, Head]) -> None:
    """``now``: what its sessions are now; one that is not there is gone. Raises PlanStale naming what changed."""
    moved = list(_changes(plan.sessions, now))
    if moved:
        rest = len(moved) - CHANGES_NAMED
        more = f"; and {rest} more" if rest > 0 else ""
        raise stale(plan, f"{'; '.join(moved[:CHANGES_NAMED])}{more}", changes=moved)


def stale(
    plan: SessionsPlan, found: str, *, wanted: str = "the sessions as they were when it was made", **data: Any
) -> PlanStale:
    """What is raised where a plan does not hold any more."""
    return PlanStale(
        f"plan {plan.id} is stale: {found}",
        wanted=wanted,
        todo=f"make a new plan: 'dalsegno replay plan --mode {plan.mode} ...'",
        replay_id=plan.id,
        **data,
    )


def _changes(sessions: Iterable[PlannedSession], now: Mapping[str, Head]) -> Iterable[str]:
    for each in sessions:
        head = now.get(each.session)
        if head is None:
            yield f"session {each.session} is not there any more"
        elif head.seq != each.head.seq:
            yield f"session {each.session} ended at seq {each.head.seq} and ends at {head.seq}"
        elif head.hash != each.head.hash:
            yield f"session {each.session} has another event at seq {head.seq}"
        elif head.amended != each.head.amended:
            yield f"session {each.session} had {each.head.amended} events amended and has {head.amended}"
