"""Which workers there are, on whatever machine: each tells ``<prefix>.workers`` about itself, under its own id.

A worker that ends says so; one that dies says nothing any more, and its record grows stale. Nothing is decided by these
records: who holds which partition is the group's to say.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from dalsegno.errors import RecordDamaged
from dalsegno.log.codec import decode_record, encode_record
from dalsegno.log.kafka import KafkaConfig
from dalsegno.log.reader import read_compacted
from dalsegno.log.service_records import write_records
from dalsegno.log.topics import topic_name

LOOK_SECONDS = 1.0
"""How often a worker looks whether there is something new to tell."""
EVERY_SECONDS = 10.0
STALE_AFTER_SECONDS = 35
"""Three records in a row did not come."""
TELL_LIMIT_SECONDS = 3.0
"""A worker that stops waits so long for the last one."""
READ_LIMIT_SECONDS = 30.0
ENDED = frozenset({"STOPPED", "FAILED"})
_MICROS = 1_000_000
DEAD = "DEAD"
RESTARTED = "RESTARTED"
"""Ended, and started again in the same slot, which keeps its id, before anybody saw the end."""


class Listed(NamedTuple):
    """A worker as it last told. ``state`` is DEAD where it should have told again long ago."""

    state: str
    record: Mapping[str, Any]

    @property
    def worker_id(self) -> str:
        return str(self.record["worker_id"])


def tell(cfg: KafkaConfig, prefix: str, status: Mapping[str, Any]) -> None:
    """Write what a worker's status file says. Raises WaitTimeout, TopicMissing, BrokerUnavailable."""
    from dalsegno import __version__

    record = {
        "worker_id": status["worker_id"],
        "state": status["state"],
        "group": status["group"],
        "host": status["host"],
        "pid": status["pid"],
        "slot": str(status["slot"]),
        "version": __version__,
        "started_at": int(status["started_at"] * _MICROS),
        "seen_at": int(status["updated_at"] * _MICROS),
        "stale_after_seconds": STALE_AFTER_SECONDS,
        "parts": [_part(int(number), part) for number, part in status["partitions"].items()],
    }
    pair = (record["worker_id"], encode_record("Worker", record))
    write_records(cfg, topic_name(prefix, "workers"), [pair], timeout_seconds=TELL_LIMIT_SECONDS)


def _part(number: int, part: Mapping[str, Any]) -> dict[str, Any]:
    """A partition that is held by a long piece of work since its assignment has not said anything yet."""
    return {
        "partition": number,
        "state": part.get("state", "UNKNOWN"),
        "generation": part.get("generation") or "",
        "next_offset": part.get("cursor") or 0,
        "end_offset": part.get("end"),
        "held_sessions": part.get("held_sessions") or 0,
        "error": part.get("reason"),
    }


def read_roster(cfg: KafkaConfig, prefix: str) -> list[Listed]:
    """Every worker that ever told, the newest first. Raises TopicMissing, BrokerUnavailable, WaitTimeout."""
    table = read_compacted(cfg, topic_name(prefix, "workers"), READ_LIMIT_SECONDS)
    return parse_roster(table.values(), int(time.time() * _MICROS))


def parse_roster(values: Iterable[bytes], now: int) -> list[Listed]:
    """``now``: microseconds since 1970. Records that are no worker's are left out."""
    found = []
    for value in values:
        try:
            kind, record = decode_record(value)
        except RecordDamaged:
            continue
        if kind == "Worker":
            stale = now - record["seen_at"] > record["stale_after_seconds"] * _MICROS
            state = DEAD if stale and record["state"] not in ENDED else record["state"]
            found.append(Listed(state, record))
    return sorted(found, key=lambda listed: (-listed.record["seen_at"], listed.worker_id))


def ends(before: Iterable[Listed], now: Iterable[Listed]) -> dict[str, str]:
    """Worker id -> how those have ended by now that ran before; those that have not are left out."""
    latest = {each.worker_id: each for each in now}
    found: dict[str, str] = {}
    for each in before:
        last = latest.get(each.worker_id, each)
        if last.state in ENDED:
            found[each.worker_id] = last.state
        elif last.record["started_at"] != each.record["started_at"]:
            found[each.worker_id] = RESTARTED
    return found
