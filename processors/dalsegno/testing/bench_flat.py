"""What an event costs in a very long session, by count: rows touched and bytes written, at both its ends."""

from __future__ import annotations

from typing import NamedTuple

from dalsegno.log.record import LogRecord
from dalsegno.model.ids import Offset, partition_of
from dalsegno.projections.registry import built_in
from dalsegno.state.memory import MemoryStore
from dalsegno.state.shard import Shard, ShardIdentity
from dalsegno.testing.builder import SessionBuilder, Written, shipped_schemas

COUNTED = 1_200
_BEGIN = 6_002
_BATCH = 10_000


class Flat(NamedTuple):
    """Per event, over ``COUNTED`` events each near the beginning and at the end."""

    events: int
    first_rows: float
    last_rows: float
    first_bytes: float
    last_bytes: float


def long_session(events: int) -> list[Written]:
    """An observed session that repeats one small round, with ids of one length."""
    builder = SessionBuilder("long", profile="OBSERVED")
    builder.append("SessionCreated", profile="OBSERVED", relation="NONE", workflow_name="long")
    builder.append("SessionStarted")
    number = 100_000
    while len(builder.records) < events:
        number += 1
        inference, call = f"i{number}", f"i{number}/c0"
        builder.append(
            "InferenceRequested", inference_id=inference, attempt=1, purpose="OTHER", model="m", provider="p"
        )
        calls = [{"tool_call_id": call, "name": "t", "arguments_digest": None}]
        builder.append("InferenceCompleted", inference_id=inference, attempt=1, tool_calls=calls, complete=True)
        builder.append("ToolCallRequested", tool_call_id=call, inference_id=inference, name="t")
        builder.append("ToolCallAuthorized", tool_call_id=call, basis="POLICY_ALLOW")
        builder.append("ToolCallStarted", tool_call_id=call, attempt=1)
        builder.append("ToolReceiptRecorded", tool_call_id=call, attempt=1, status="OK")
    return builder.records[:events]


def measure(events: int) -> Flat:
    """Fold a session of so many events, at both ends of it one event at a time."""
    records = [
        LogRecord(Offset(offset), each.key, each.value, 0, 0) for offset, each in enumerate(long_session(events))
    ]
    identity = ShardIdentity("bench", "bench", "0" * 32, partition_of("long", 1), 1, "bench", "-")
    shard = Shard.open(
        MemoryStore(), identity=identity, schemas=shipped_schemas(), projections=built_in(), cached_rows=1_000
    )
    begin = min(_BEGIN, events // 4)
    _apply(shard, records[:begin], _BATCH)
    first = _apply(shard, records[begin : begin + COUNTED], 1)
    _apply(shard, records[begin + COUNTED : events - COUNTED], _BATCH)
    last = _apply(shard, records[events - COUNTED :], 1)
    shard.close()
    return Flat(events, first[0] / COUNTED, last[0] / COUNTED, first[1] / COUNTED, last[1] / COUNTED)


def _apply(shard: Shard, records: list[LogRecord], size: int) -> tuple[int, int]:
    rows = written = 0
    for at in range(0, len(records), size):
        batch = records[at : at + size]
        applied = shard.apply(shard.generation, shard.cursor.next_offset, batch[-1].offset + 1, batch)
        rows, written = rows + applied.rows_touched, written + applied.bytes_written
    return rows, written
