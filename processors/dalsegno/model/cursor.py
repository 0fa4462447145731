"""Where a shard goes on reading, and the proof that it is still the same log. Pure.

A cursor is the next offset to read, with what it takes to check it: cluster, topic id, number of partitions, leader
epoch, and offset and key of the last applied record (the key holds the event's hash). An offset alone is a number that
another log, a restored backup or a topic made again would accept without a word.

The metadata of a commit in the worker group says which building of a shard (generation) it belongs to, where that
building began (base), and which copy of the shard has emitted up to here (emitter). ``read_commit``, ``parse_metadata``
and ``format_metadata`` are the only places that know its form.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from dalsegno.errors import LogHole, OtherHistory

ZERO_BASE = "-"
"""Base of a generation that began with an empty shard."""

_GENERATION = re.compile(r"[0-9A-Za-z_-]{1,64}\Z")
_BASE = re.compile(r"([0-9A-Za-z_-]{1,128})(?:@(0|[1-9][0-9]{0,18}))?\Z")
_EMITTER = re.compile(r"[0-9a-f]{1,64}\Z")
_MARK = "ds1"


class Cursor(msgspec.Struct, frozen=True):
    """The next offset to read of one partition, and what it is checked against.

    ``topic_id`` is in hex. ``last_offset`` and ``last_key`` belong to the last applied record; both are None before the
    first one, and ``last_key`` alone is None when that record had no key. ``leader_epoch`` is the last record's, -1
    when the client did not tell it.
    """

    next_offset: int
    cluster_id: str
    topic_id: str
    partition: int
    partitions: int
    leader_epoch: int = -1
    last_offset: int | None = None
    last_key: bytes | None = None


class FoundRecord(NamedTuple):
    """What the log holds today at a cursor's ``last_offset``."""

    key: bytes | None
    leader_epoch: int = -1


class LogFacts(NamedTuple):
    """One partition as the broker describes it today.

    ``low`` is the first offset that is still there, ``high`` the high watermark (read uncommitted). ``last`` is the
    record at the cursor's ``last_offset``; None when it is merely missing (compaction) or was not looked up.
    """

    cluster_id: str
    topic_id: str
    partition: int
    partitions: int
    low: int
    high: int
    last: FoundRecord | None = None


def check(cursor: Cursor, facts: LogFacts) -> None:
    """Refuse to read on in another history.

    Raises OtherHistory when cluster, topic id, partition, number of partitions, end or last record differ, and LogHole
    when records between the cursor and the start of the log are gone. ``data`` of both names the difference. A last
    record that is missing is no difference: compaction may have removed it.
    """
    for name, mine, theirs in (
        ("cluster_id", cursor.cluster_id, facts.cluster_id),
        ("topic_id", cursor.topic_id, facts.topic_id),
        ("partition", cursor.partition, facts.partition),
        ("partitions", cursor.partitions, facts.partitions),
    ):
        if mine != theirs:
            raise _other(cursor, name, mine, theirs)
    if cursor.next_offset > facts.high:
        raise _other(cursor, "end", cursor.next_offset, facts.high)
    if cursor.next_offset < facts.low:
        raise LogHole(
            f"partition {cursor.partition}: the state goes on at offset {cursor.next_offset}, but the log starts at "
            f"{facts.low}: a hole of {facts.low - cursor.next_offset} offsets",
            wanted="a log that still holds every offset from the cursor on",
            todo="replay from a newer snapshot, or accept the loss with "
            f"'replay run --accept-hole {cursor.partition}={cursor.next_offset}..{facts.low}'",
            partition=cursor.partition,
            cursor=cursor.next_offset,
            log_start=facts.low,
            hole=facts.low - cursor.next_offset,
        )
    if cursor.last_offset is None or facts.last is None:
        return
    if facts.last.key != cursor.last_key:
        raise _other(cursor, "last_key", _text(cursor.last_key), _text(facts.last.key))
    if cursor.leader_epoch >= 0 and 0 <= facts.last.leader_epoch != cursor.leader_epoch:
        raise _other(cursor, "leader_epoch", cursor.leader_epoch, facts.last.leader_epoch)


def _other(cursor: Cursor, name: str, mine: object, theirs: object) -> OtherHistory:
    what = {
        "end": "the state is ahead of the log's end",
        "last_key": f"the log holds another record at offset {cursor.last_offset}",
        "leader_epoch": f"the record at offset {cursor.last_offset} was written again by a later leader",
        "partitions": "the topic's number of partitions changed, which is fixed for life",
    }.get(name, f"the {name} differs")
    return OtherHistory(
        f"partition {cursor.partition}: {what}: the state has {mine}, the log {theirs}",
        wanted="the log that this state was folded from",
        todo="check which cluster and topic this worker is configured for; to rebuild from this log, "
        "run 'dalsegno replay run --from earliest'",
        difference=name,
        partition=cursor.partition,
        state=mine,
        log=theirs,
    )


def _text(key: bytes | None) -> str | None:
    return None if key is None else key.decode("utf-8", "backslashreplace")


class Commit(NamedTuple):
    """A group's committed offset for one partition. ``generation`` is None when the metadata is not ours, ``emitter``
    when nothing has been emitted since a reset."""

    offset: int
    generation: str | None = None
    base: str = ZERO_BASE
    emitter: str | None = None


class Base(NamedTuple):
    """Where a generation began: ``snapshot`` None = an empty shard; ``hole_to`` = the offset up to which an operator
    accepted that records are missing (None: no hole was accepted)."""

    snapshot: str | None
    hole_to: int | None


def format_metadata(generation: str, base: str, emitter: str | None = None) -> str:
    """The commit metadata of a generation and its base. Raises ValueError for a name that could not be read back."""
    if not _GENERATION.match(generation) or not _BASE.match(base) or not _EMITTER.match(emitter or "0"):
        raise ValueError(f"not a generation, a base and an emitter: {generation!r}, {base!r}, {emitter!r}")
    return f"{_MARK}:{generation}:{base}" + ("" if emitter is None else f":{emitter}")


def parse_metadata(metadata: str | None) -> tuple[str, str] | None:
    """(generation, base) of a commit's metadata; None when it is not ours, as Kafka's own tools leave it."""
    parts = (metadata or "").split(":")
    if len(parts) not in (3, 4) or parts[0] != _MARK or not _GENERATION.match(parts[1]) or not _BASE.match(parts[2]):
        return None
    if len(parts) == 4 and not _EMITTER.match(parts[3]):
        return None
    return parts[1], parts[2]


def read_commit(offset: int, metadata: str | None) -> Commit | None:
    """The commit that a client reported; None when there is none (clients say so with a negative offset)."""
    if offset < 0:
        return None
    ours = parse_metadata(metadata)
    if ours is None or metadata is None:
        return Commit(offset)
    parts = metadata.split(":")
    return Commit(offset, *ours, parts[3] if len(parts) == 4 else None)


def format_base(snapshot: str | None, hole_to: int | None = None) -> str:
    """The text of a base, as commits, shards and manifests carry it."""
    return (snapshot or ZERO_BASE) + ("" if hole_to is None else f"@{hole_to}")


def parse_base(base: str) -> Base:
    """The parts of a base's text. Raises ValueError when it is not one."""
    match = _BASE.match(base)
    if match is None:
        raise ValueError(f"not a base: {base!r}")
    name, hole_to = match.groups()
    return Base(None if name == ZERO_BASE else name, None if hole_to is None else int(hole_to))
