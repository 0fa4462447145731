"""dalsegno keeps the history of AI-agent sessions in Kafka, and replays it.

    from dalsegno import KafkaConfig, Publisher, events

    with Publisher(KafkaConfig("localhost:9092")) as publisher, publisher.session("s-1") as session:
        session.append(events.SessionCreated(workflow_name="review", profile="OBSERVED"))

Names are loaded when they are first used: importing this package costs nothing, and a producer never loads what only
workers need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dalsegno import errors, events
    from dalsegno.log.kafka import KafkaConfig
    from dalsegno.log.publisher import Publisher
    from dalsegno.log.receipts import Pending, Receipt
    from dalsegno.log.redaction import RedactionRule, Redactor
    from dalsegno.log.rows import RowDecoder
    from dalsegno.log.session import Session
    from dalsegno.log.tracing import current_traceparent
    from dalsegno.model.lifecycle import Verdict
    from dalsegno.model.records import Actor, Event
    from dalsegno.projections.base import Projection, Rollup, Rows
    from dalsegno.readers.source import ShardSource
    from dalsegno.storage.blobs import Blobs, blob, inline_blob
    from dalsegno.storage.object_store import FolderStore

    __version__: str

_PUBLIC = {
    "Actor": "dalsegno.model.records",
    "Blobs": "dalsegno.storage.blobs",
    "Event": "dalsegno.model.records",
    "FolderStore": "dalsegno.storage.object_store",
    "KafkaConfig": "dalsegno.log.kafka",
    "Pending": "dalsegno.log.receipts",
    "Projection": "dalsegno.projections.base",
    "Publisher": "dalsegno.log.publisher",
    "Receipt": "dalsegno.log.receipts",
    "RedactionRule": "dalsegno.log.redaction",
    "Redactor": "dalsegno.log.redaction",
    "Rollup": "dalsegno.projections.base",
    "RowDecoder": "dalsegno.log.rows",
    "Rows": "dalsegno.projections.base",
    "Session": "dalsegno.log.session",
    "ShardSource": "dalsegno.readers.source",
    "Verdict": "dalsegno.model.lifecycle",
    "blob": "dalsegno.storage.blobs",
    "current_traceparent": "dalsegno.log.tracing",
    "inline_blob": "dalsegno.storage.blobs",
}
_MODULES = ("errors", "events")

__all__ = [
    "Actor",
    "Blobs",
    "Event",
    "FolderStore",
    "KafkaConfig",
    "Pending",
    "Projection",
    "Publisher",
    "Receipt",
    "RedactionRule",
    "Redactor",
    "Rollup",
    "RowDecoder",
    "Rows",
    "Session",
    "ShardSource",
    "Verdict",
    "blob",
    "current_traceparent",
    "errors",
    "events",
    "inline_blob",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("dalsegno")
        except PackageNotFoundError:  # run from a folder that was never installed
            return "0+unknown"
    if name in _MODULES:
        return import_module(f"dalsegno.{name}")
    if name in _PUBLIC:
        found = getattr(import_module(_PUBLIC[name]), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'dalsegno' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
