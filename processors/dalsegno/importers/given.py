"""What models were given, in recordings that tell it anew with every request. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from dalsegno.importers.payload import JSON_TYPE, BlobMaker, digest_of, json_bytes
from dalsegno.model.events import ContextItemRetrieved

_Item = TypeVar("_Item")


class Seen:
    """Which items of a conversation events hold. A request repeats all of it so far; since a person may well say the
    same twice, an item is new where a request holds it more often than it was seen."""

    def __init__(self) -> None:
        self._seen: Counter[Hashable] = Counter()

    def saw(self, *keys: Hashable) -> None:
        self._seen.update(keys)

    def new(self, items: Iterable[_Item], key: Callable[[_Item], Hashable]) -> list[_Item]:
        """Those of a request that no event holds yet, from now on seen."""
        here: Counter[Hashable] = Counter()
        found = []
        for item in items:
            name = key(item)
            here[name] += 1
            if here[name] > self._seen[name]:
                self._seen[name] = here[name]
                found.append(item)
        return found


class ToolSets:
    """The sets of tools that models were offered: each stands once, when a model is first given it."""

    def __init__(self, blobs: BlobMaker) -> None:
        self._blobs = blobs
        self._known: set[bytes] = set()

    def offered(self, tools: Any) -> tuple[bytes, ContextItemRetrieved | None]:
        """The digest of a set, and its event where there is none yet."""
        data = json_bytes(tools)
        digest = digest_of(data)
        if digest in self._known:
            return digest, None
        self._known.add(digest)
        content = self._blobs.of_bytes(data, JSON_TYPE)
        return digest, ContextItemRetrieved(item_id=f"tools/{digest.hex()[:16]}", content=content)
