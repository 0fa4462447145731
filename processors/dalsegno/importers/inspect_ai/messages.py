"""Messages of an Inspect log as parts, and which of those that a model was given no other event holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dalsegno.importers.given import Seen
from dalsegno.importers.inspect_ai.order import calls_of
from dalsegno.importers.inspect_ai.record import Resolver
from dalsegno.importers.payload import BlobMaker, clean_text, digest_json, digest_of, json_bytes
from dalsegno.model.events import Part

ROLES = {"system": "SYSTEM", "developer": "DEVELOPER", "user": "USER"}


class PartMaker:
    """Messages and model outputs as parts."""

    def __init__(self, blobs: BlobMaker, resolver: Resolver) -> None:
        self._blobs = blobs
        self._resolver = resolver

    def of_message(self, message: dict[str, Any]) -> list[Part]:
        content = message.get("content")
        items = content if isinstance(content, list) else [content]
        parts = [part for item in items if (part := self._of_item(item)) is not None]
        parts += [self._of_call(call) for call in calls_of(message)]
        if message.get("error"):
            parts.append(
                Part(kind="OTHER", name="error", blob=self._blobs.of_json(self._resolver.value(message["error"])))
            )
        return parts

    def _of_item(self, item: Any) -> Part | None:
        if item is None or item == "":
            return None
        if isinstance(item, str):
            return self._blobs.part(self._resolver.value(item))
        if not isinstance(item, dict):
            return Part(kind="OTHER", blob=self._blobs.of_json(item))
        kind = item.get("type")
        whole = self._resolver.value(item)
        if kind == "text" and set(whole) <= {"type", "text"} and isinstance(whole.get("text"), str):
            return self._blobs.part(whole["text"])
        if kind == "reasoning" and set(whole) <= {"type", "reasoning"} and isinstance(whole.get("reasoning"), str):
            return self._blobs.part(whole["reasoning"], "REASONING")
        kinds = {
            "text": "TEXT",
            "reasoning": "REASONING",
            "image": "MEDIA",
            "audio": "MEDIA",
            "video": "MEDIA",
            "document": "MEDIA",
        }
        return Part(kind=kinds.get(str(kind), "OTHER"), name=clean_text(str(kind)), blob=self._blobs.of_json(whole))  # type: ignore[arg-type]

    def _of_call(self, call: dict[str, Any]) -> Part:
        arguments = self._resolver.value(call.get("arguments"))
        return Part(
            kind="TOOL_CALL",
            call_id=clean_text(str(call.get("id"))),
            name=clean_text(str(call.get("function"))),
            blob=self._blobs.of_bytes(json_bytes(arguments), "application/json"),
        )


class Conversation:
    """Which messages the session's events already hold.

    A message is known by its id, or, where a log gives messages no ids, by role and content.
    """

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._seen = Seen()
        self._digests: dict[int, bytes] = {}

    def saw(self, message: dict[str, Any]) -> None:
        self._seen.saw(self._key(message))

    def saw_result(self, native_call_id: str) -> None:
        self._seen.saw(f"tool:{native_call_id}")

    def unseen(self, messages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Those that no event holds yet, now counted as seen."""
        return self._seen.new(messages, self._key)

    def digest(self, message: dict[str, Any]) -> bytes:
        """SHA-256 of a message with its references resolved; messages of a pool are digested once."""
        known = self._digests.get(id(message))
        if known is None:
            known = self._digests[id(message)] = digest_json(self._resolver.value(message))
        return known

    def request_digest(self, messages: list[dict[str, Any]], rest: Any) -> bytes:
        """What identifies a request as it is recorded: its messages in order, and everything else that was sent."""
        return digest_of(b"".join(self.digest(message) for message in messages) + digest_json(rest))

    def _key(self, message: dict[str, Any]) -> str:
        role = message.get("role")
        if role == "tool" and message.get("tool_call_id"):
            return f"tool:{message['tool_call_id']}"
        if message.get("id"):
            return f"id:{message['id']}"
        calls = [[call.get("id"), call.get("function"), call.get("arguments")] for call in calls_of(message)]
        return f"{role}:{digest_json([self._resolver.value(message.get('content')), calls]).hex()}"
