"""One native record while it is being mapped: which fields were taken, texts resolved from the sample's attachments."""

from __future__ import annotations

import re
from typing import Any

from dalsegno.errors import BadInputFile
from dalsegno.importers.fields import Fields
from dalsegno.importers.payload import digest_json, parse_time

_ATTACHMENT = re.compile(r"attachment://([0-9a-f]{32})\Z")
RESOLVED_MAX_BYTES = 512 * 1024 * 1024
"""What the references of one sample may unpack to together: a small file must not fill the memory."""


class Resolver:
    """Puts texts in the place of ``attachment://`` references and messages in the place of references to pools."""

    def __init__(self, sample: dict[str, Any], place: str) -> None:
        attachments = sample.get("attachments")
        pools = sample.get("events_data")
        self._attachments: dict[str, Any] = attachments if isinstance(attachments, dict) else {}
        self._pools: dict[str, Any] = pools if isinstance(pools, dict) else {}
        self._place = place
        self._left = RESOLVED_MAX_BYTES
        self.missing = 0

    def value(self, value: Any) -> Any:
        """A copy of the value with every reference resolved; what is missing stays a reference and is counted."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {key: self.value(item) for key, item in value.items()}
        return value

    def messages(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """The unresolved input messages of a model event, also where they stand in the sample's pool."""
        given = event.get("input")
        messages = given if isinstance(given, list) else []
        refs = event.get("input_refs")
        if refs and not messages:
            messages = self._from_pool("messages", refs)
        return [message for message in messages if isinstance(message, dict)]

    def _from_pool(self, name: str, refs: Any) -> list[Any]:
        pool = self._pools.get(name)
        try:
            ranges = [(int(start), int(end)) for start, end in refs]
        except (TypeError, ValueError):
            ranges = [(0, -1)]
        if not isinstance(pool, list) or any(not 0 <= start <= end <= len(pool) for start, end in ranges):
            raise BadInputFile(
                f"{self._place}: a model event refers to messages that the pool /events_data/{name} does not hold",
                wanted="references within the pool",
                todo="get an undamaged copy of the file; nothing of it was imported",
                place=self._place,
            )
        return [message for start, end in ranges for message in pool[start:end]]

    def _text(self, text: str) -> str:
        match = _ATTACHMENT.match(text)
        if match is None:
            return text
        content = self._attachments.get(match.group(1))
        if not isinstance(content, str):
            self.missing += 1
            return text
        self._left -= len(content)
        if self._left < 0:
            raise BadInputFile(
                f"{self._place}: its attachments unpack to more than {RESOLVED_MAX_BYTES} characters",
                wanted="a sample whose texts fit into memory",
                todo="check that the file is a real log",
                place=self._place,
            )
        return content


class Native(Fields):
    """A native event."""

    __slots__ = ("completed", "digest", "kind", "naive", "ref", "time")

    # Fields of every event that place it; they are carried by the envelope, or (working_start) derived from its time.
    _FRAME = frozenset({"event", "timestamp", "completed", "span_id", "uuid", "pending", "parent_id"})

    def __init__(self, data: dict[str, Any], ref: str) -> None:
        super().__init__(data, self._FRAME)
        self.ref = ref
        kind = data.get("event")
        self.kind: str = kind if isinstance(kind, str) else "unknown"
        self.time, self.naive = parse_time(data.get("timestamp"))
        self.completed, _ = parse_time(data.get("completed"))
        self.digest = digest_json(data)
