"""Plans and runs in the compacted topic ``<prefix>.replays``.

Keys are ``<replay id>:plan:0`` and ``<replay id>:run:<n>``, so that compaction keeps every step of a run. The plan's
canonical JSON goes with it; its SHA-256 is in every record of its runs.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import rfc8785

from dalsegno.errors import BlobDamaged, BlobMissing, RecordDamaged
from dalsegno.log.codec import decode_record, encode_record
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.reader import read_compacted
from dalsegno.log.service_records import write_records
from dalsegno.log.topics import topic_name
from dalsegno.model.events import Blob
from dalsegno.replay.plan import ReplayPlan
from dalsegno.replay.target import Hole
from dalsegno.storage.blobs import Blobs
from dalsegno.storage.object_store import Store

READ_TIMEOUT_SECONDS = 30.0
_JSON = "application/json"

PROJECTION_ONLY = "PROJECTION_ONLY"
PLANNED = "PLANNED"
STARTED, RUNNING, COMPLETED, FAILED, CANCELLED = "STARTED", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"


class RunPart(NamedTuple):
    """How far a partition of a run has come. ``switched``: readers see the new generation."""

    partition: int
    generation: str
    next_offset: int
    end_offset: int
    switched: bool


class Run(NamedTuple):
    """One step of a replay's life. ``updated_at`` in microseconds since 1970; ``records`` were read again so far."""

    replay_id: str
    state: str
    plan_digest: str
    updated_at: int
    by: str
    records: int = 0
    parts: tuple[RunPart, ...] = ()
    accepted_holes: tuple[Hole, ...] = ()
    error: str | None = None


class StoredReplay(NamedTuple):
    """A plan and the steps of its runs, oldest first. ``created_at`` in microseconds since 1970."""

    plan: ReplayPlan
    created_at: int
    created_by: str
    reason: str
    runs: tuple[Run, ...]

    @property
    def state(self) -> str:
        return self.runs[-1].state if self.runs else PLANNED


def document(plan: ReplayPlan) -> bytes:
    """The plan's canonical JSON."""
    return rfc8785.dumps(msgspec.to_builtins(plan))


def digest(plan: ReplayPlan) -> str:
    """SHA-256 of the plan's canonical JSON, in hex."""
    return hashlib.sha256(document(plan)).hexdigest()


def replays_topic(prefix: str) -> str:
    return topic_name(prefix, "replays")


def save_plan(
    cfg: KafkaConfig, prefix: str, store: Store, plan: ReplayPlan, *, created_at: int, by: str, reason: str
) -> StoredReplay:
    """Keep a plan; it is acknowledged when this returns."""
    blob = Blobs(store).put(document(plan), _JSON)
    write_records(cfg, replays_topic(prefix), [plan_record(plan, blob, created_at, by, reason)])
    return StoredReplay(plan, created_at, by, reason, ())


def plan_record(plan: ReplayPlan, blob: Blob, created_at: int, by: str, reason: str) -> tuple[str, bytes]:
    """Key and value of a plan's record. ``blob`` is its canonical JSON."""
    record = {
        "replay_id": plan.id,
        "plan_digest": blob.digest,
        "mode": PROJECTION_ONLY,
        "group": plan.group,
        "cluster_id": plan.cluster_id,
        "topic": plan.topic,
        "topic_id": plan.topic_id,
        "start": plan.start,
        "end": "latest",
        "created_at": created_at,
        "created_by": by,
        "reason": reason,
        "projections": [f"{name}@{version}" for name, version in plan.projections.items()],
        "parts": [
            {
                "partition": part.partition,
                "committed_offset": part.committed_offset,
                "committed_metadata": part.committed_metadata,
                "start_offset": part.start_offset,
                "end_offset": part.end_offset,
                "generation": plan.id,
                "base": part.base,
                "records": part.records,
            }
            for part in plan.parts
        ],
        "accepted_holes": _holes(plan.holes),
        "document": msgspec.structs.asdict(blob),
    }
    return f"{plan.id}:plan:0", encode_record("ReplayPlan", record)


def save_run(cfg: KafkaConfig, prefix: str, stored: StoredReplay, run: Run) -> StoredReplay:
    """Add a step to a replay's life; it is acknowledged when this returns."""
    write_records(cfg, replays_topic(prefix), [run_record(run, len(stored.runs))])
    return stored._replace(runs=(*stored.runs, run))


def run_record(run: Run, number: int) -> tuple[str, bytes]:
    """Key and value of the record of one step of a run."""
    record = {
        "replay_id": run.replay_id,
        "state": run.state,
        "plan_digest": bytes.fromhex(run.plan_digest),
        "updated_at": run.updated_at,
        "by": run.by,
        "records": run.records,
        "parts": [part._asdict() for part in run.parts],
        "accepted_holes": _holes(run.accepted_holes),
        "error": run.error,
    }
    return f"{run.replay_id}:run:{number}", encode_record("ReplayRun", record)


def read_replays(
    cfg: KafkaConfig, prefix: str, store: Store, *, timeout_seconds: float = READ_TIMEOUT_SECONDS
) -> dict[str, StoredReplay]:
    """All replays by id, oldest first. Raises TopicMissing, BrokerUnavailable, WaitTimeout."""
    return parse_replays(read_compacted(cfg, replays_topic(prefix), timeout_seconds), store)


def parse_replays(table: Mapping[bytes, bytes], store: Store) -> dict[str, StoredReplay]:
    """The replays in a table of raw records. What this build cannot read is left out."""
    plans: dict[str, StoredReplay] = {}
    runs: dict[str, dict[int, Run]] = defaultdict(dict)
    for key, value in table.items():
        try:
            kind, record = decode_record(value)
            if kind == "ReplayPlan" and record["mode"] == PROJECTION_ONLY:
                plans[record["replay_id"]] = _to_plan(record, store)
            elif kind == "ReplayRun":
                runs[record["replay_id"]][int(key.rpartition(b":")[2])] = _to_run(record)
        except (RecordDamaged, BlobMissing, BlobDamaged, ValueError, msgspec.MsgspecError):
            continue
    return {
        name: stored._replace(runs=tuple(run for _, run in sorted(runs[name].items())))
        for name, stored in plans.items()
    }


def _to_plan(record: Mapping[str, Any], store: Store) -> StoredReplay:
    content = Blobs(store).get(record["document"])
    if hashlib.sha256(content).digest() != record["plan_digest"]:
        raise RecordDamaged(f"the plan of replay {record['replay_id']} is not what its digest says")
    plan = msgspec.json.decode(content, type=ReplayPlan)
    return StoredReplay(plan, record["created_at"], record["created_by"], record["reason"], ())


def _to_run(record: Mapping[str, Any]) -> Run:
    return Run(
        record["replay_id"],
        record["state"],
        record["plan_digest"].hex(),
        record["updated_at"],
        record["by"],
        record["records"],
        tuple(RunPart(**part) for part in record["parts"]),
        tuple(Hole(hole["partition"], hole["first"], hole["last"] + 1) for hole in record["accepted_holes"]),
        record["error"],
    )


def _holes(holes: list[Hole] | tuple[Hole, ...]) -> list[dict[str, int]]:
    """In records the last lost offset is named, not the one behind it."""
    return [{"partition": hole.partition, "first": hole.first, "last": hole.end - 1} for hole in holes]
