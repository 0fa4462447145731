"""The hand-written sessions of ``tests/golden`` as real records, and the rows that were written by hand for them."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from dalsegno.model.lifecycle import config_set_digest
from dalsegno.projections.base import RowId
from dalsegno.testing.builder import SessionBuilder, blob, digest_of

GOLDEN = Path(__file__).parent / "golden" / "session_40.json"
CONTEXT = GOLDEN.with_name("session_context.json")


def golden_story(golden: Path = GOLDEN) -> dict[str, Any]:
    story: dict[str, Any] = json.loads(golden.read_text(encoding="utf-8"))
    return story


def golden_session(golden: Path = GOLDEN) -> SessionBuilder:
    """A builder that has written the story's events: ``records``, ``events``, ``verdicts``, ``session``, ``ops``."""
    story = golden_story(golden)
    builder = SessionBuilder(story["session_id"])
    for entry in story["events"]:
        builder.append(entry["type"], **_read(entry["fields"]))
    return builder


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$digest" in value:
        return digest_of(value["$digest"])
    if "$text" in value:
        return blob(value["$text"].encode())
    if "$pins" in value:
        return config_set_digest([f"{kind}:{name}:{digest_of(digest).hex()}" for kind, name, digest in value["$pins"]])
    return {name: _read(item) for name, item in value.items()}


def golden_rows(golden: Path, projection: str, version: int) -> list[tuple[RowId, dict[str, Any]]]:
    """(id, fields) of ``<golden>/<projection>.v<version>.json``; a fold of another version gets a file of its own."""
    path = golden.with_suffix("") / f"{projection}.v{version}.json"
    builder = golden_session(golden)
    return [
        (tuple(entry["id"]), _row_value(entry["row"], builder))
        for entry in json.loads(path.read_text(encoding="utf-8"))["rows"]
    ]


def _row_value(value: Any, builder: SessionBuilder) -> Any:
    if isinstance(value, list):
        return [_row_value(item, builder) for item in value]
    if not isinstance(value, dict):
        return value
    if "$digest" in value:
        return digest_of(value["$digest"])
    if "$sha256" in value:
        return sha256(value["$sha256"].encode()).digest()
    if "$hash_of_seq" in value:
        return builder.events[value["$hash_of_seq"] - 1].hash
    if "$event_id_of_seq" in value:
        return builder.events[value["$event_id_of_seq"] - 1].meta["event_id"]
    return {name: _row_value(item, builder) for name, item in value.items()}
