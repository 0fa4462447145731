"""Writes ``vectors.json``, the examples with which a producer in another language checks itself.

Without an argument: says what would change and changes nothing (exit code 1 if anything would). ``--accept`` writes.
The file is a promise: before a release it may change for a reason, after one only by addition.
"""

from __future__ import annotations

import argparse
import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from dalsegno.log.codec import check, encode, event_hash, frame
from dalsegno.log.schema_set import SchemaSet, WriterSchema
from dalsegno.model.ids import EventKey, Seq, partition_of

FILE = Path(__file__).resolve().parent / "vectors.json"
SCHEMAS = SchemaSet.load()
PARTITIONS = 16
SESSION_IDS = [
    "s-1",
    "s-1~0198c7a2",
    "s-1~a~b",
    "run:2026:7",
    "0198c7a2-7f7a-7f0e-8f5b-4b0b7b9a0a11",
    "größe/日本",
    "a",
]


def blob(content: bytes, media_type: str) -> dict[str, Any]:
    return {"digest": sha256(content).digest(), "size": len(content), "media_type": media_type, "inline": content}


def envelope(session_id: str, seq: int, prev_hash: bytes | None, **other: Any) -> dict[str, Any]:
    return {
        "session_id": session_id,
        "seq": seq,
        "epoch": 0,
        "prev_hash": prev_hash,
        "recorded_at": 1_767_225_600_000_000 + seq,
        "event_id": f"0198c7a2-7f7a-7f0e-8f5b-{seq:012d}",
        "actor_kind": "HARNESS",
        "actor_id": "example",
        "writer": "example/1.0/host-1",
        **other,
    }


SESSION: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "SessionCreated",
        {"occurred_at": 1_767_225_600_000_000},
        {
            "profile": "OBSERVED",
            "workflow_name": "review",
            "labels": [{"key": "team", "value": "größe"}],
            "goal": blob(b"Say hello.", "text/plain"),
        },
    ),
    ("SessionStarted", {}, {"seed": -7, "clock_start": 1_767_225_600_000_000}),
    ("TurnStarted", {"stage_id": "main.1", "turn_id": "main.1/t1"}, {"turn_id": "main.1/t1", "agent": "writer"}),
    (
        "ToolCallRequested",
        {"causation_id": "0198c7a2-7f7a-7f0e-8f5b-000000000003"},
        {
            "tool_call_id": "main.1/t1/c0",
            "name": "shell",
            "effect": "WRITE",
            "arguments": blob(b'{"cmd":"ls"}', "application/json"),
            "arguments_digest": sha256(b'{"cmd":"ls"}').digest(),
        },
    ),
    (
        "ToolReceiptRecorded",
        {"actor_kind": "TOOL", "redactions": [{"pointer": "/result/inline", "reason": "secret"}]},
        {
            "tool_call_id": "main.1/t1/c0",
            "status": "ERROR",
            "receipt_id": "r-1",
            "exit_code": -1,
            "side_effects": [{"kind": "file", "resource": "/tmp/a", "after": sha256(b"a").digest()}],
        },
    ),
]


def packed(writer: WriterSchema, record: dict[str, Any]) -> dict[str, Any]:
    checked = check(writer, record)
    body = encode(writer, checked)
    place = checked["meta"]
    key = EventKey(place["session_id"], Seq(place["seq"]), event_hash(writer, body))
    return {
        "type": writer.name,
        "record": readable(checked),
        "body": body.hex(),
        "hash": key.hash.hex(),
        "key": key.encode().decode(),
        "partition_of_16": partition_of(place["session_id"], PARTITIONS),
        "value": frame(writer, body).hex(),
    }


def readable(value: Any) -> Any:
    """Bytes as hex; everything else as JSON has it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: readable(item) for key, item in value.items()}
    return [readable(item) for item in value] if isinstance(value, list) else value


def events() -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    prev: bytes | None = None
    for seq, (type_, meta, fields) in enumerate(SESSION, 1):
        out.append(packed(SCHEMAS.event(type_), {"meta": {**envelope("s-1", seq, prev), **meta}, **fields}))
        prev = bytes.fromhex(out[-1]["hash"])
    last = out[-1]
    target = {
        "seq": 5,
        "epoch": 0,
        "hash": prev,
        "prev_hash": bytes.fromhex(out[-2]["hash"]),
        "type": "ToolReceiptRecorded",
    }
    amendment = {"request_id": "erase-1", "action": "ERASED", "reason": "asked for", "targets": [target]}
    operator = {"actor_kind": "OPERATOR", "actor_id": "op"}
    out.append(packed(SCHEMAS.event("HistoryAmended"), {"meta": {**envelope("s-1", 0, None), **operator}, **amendment}))
    out.append({"type": None, "key": last["key"], "partition_of_16": last["partition_of_16"], "value": None})
    return out


def refused(good: dict[str, Any]) -> list[dict[str, Any]]:
    """Records that readers set aside, and why."""
    key, value, home = good["key"], good["value"], good["partition_of_16"]
    cases = [
        ("NO_KEY", None, value, home),
        ("BAD_KEY", "s-1", value, home),
        ("WRONG_PARTITION", key, value, (home + 1) % PARTITIONS),
        ("NO_FRAME", key, "00" + value[2:], home),
        ("WRONG_HASH", key, value + "00", home),
        ("WRONG_PLACE", key.replace(":2:", ":3:"), value, home),
    ]
    names = ("reason", "key", "value", "partition_of_16")
    return [dict(zip(names, case, strict=True)) for case in cases]


def vectors() -> dict[str, Any]:
    made = events()
    used = sorted({event["type"] for event in made if event["type"]})
    return {
        "read_me": "schemas/README.md, section 'Test vectors'. Bytes are hex; times are microseconds.",
        "partitions": [
            {"session_id": session_id, "partitions": n, "partition": partition_of(session_id, n)}
            for session_id in SESSION_IDS
            for n in (1, 4, 16, 64)
        ],
        "schemas": [
            {
                "name": name,
                "canonical_form": SCHEMAS.named(name).canonical.decode(),
                "frame_id": SCHEMAS.named(name).frame_id.hex(),
                "schema_hash": SCHEMAS.named(name).schema_hash.hex(),
            }
            for name in used
        ],
        "events": made,
        "set_aside": refused(made[1]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--accept", action="store_true", help="write the file; look at the difference first")
    accept: bool = parser.parse_args().accept
    found = json.loads(FILE.read_text("utf-8")) if FILE.exists() else {}
    made = vectors()
    changed = [part for part, value in made.items() if found.get(part) != value]
    for part in changed:
        print(f"{part}: {'written' if accept else 'would change'}", file=sys.stderr)
    if accept:
        FILE.write_text(json.dumps(made, ensure_ascii=False, indent=1) + "\n", "utf-8")
    return 1 if changed and not accept else 0


if __name__ == "__main__":
    sys.exit(main())
