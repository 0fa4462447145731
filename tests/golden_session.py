"""The hand-written session of ``tests/golden/session_40.json`` as real records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dalsegno.model.lifecycle import config_set_digest
from dalsegno.testing.builder import SessionBuilder, blob, digest_of

GOLDEN = Path(__file__).parent / "golden" / "session_40.json"


def golden_story() -> dict[str, Any]:
    story: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return story


def golden_session() -> SessionBuilder:
    """A builder that has written the story's events: ``records``, ``events``, ``verdicts``, ``session``, ``ops``."""
    story = golden_story()
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
