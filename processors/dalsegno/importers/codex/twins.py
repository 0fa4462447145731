"""What a rollout tells twice: as an item of the model's history, and as an event for whoever watches. Pure.

The item counts, the event is its repeat; either may come first. An event that waits for its item waits until another
item of its kind comes instead, or the turn or the session ends: then it told something of its own.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from dalsegno.importers.codex.records import Native

USER = "user"
ASSISTANT = "assistant"
REASONING = "reasoning"


class Waiting(NamedTuple):
    role: str
    text: str
    native: Native


class Twins:
    def __init__(self) -> None:
        self._items: Counter[tuple[str, str]] = Counter()
        self.waiting: list[Waiting] = []

    def item(self, role: str, texts: list[str]) -> tuple[list[Native], list[Native]]:
        """An item came: the events that it repeats, and those that waited in vain for one like it."""
        repeated, given_up = [], []
        for one in [waiting for waiting in self.waiting if waiting.role == role]:
            self.waiting.remove(one)
            if one.text in texts:
                texts = list(texts)
                texts.remove(one.text)
                repeated.append(one.native)
            else:
                given_up.append(one.native)
        self._items.update((role, text) for text in texts)
        return repeated, given_up

    def event(self, role: str, text: str, native: Native) -> bool:
        """An event came: True if it repeats an item; else it waits."""
        if self._items[role, text] > 0:
            self._items[role, text] -= 1
            return True
        self.waiting.append(Waiting(role, text, native))
        return False

    def end(self) -> list[Native]:
        """The turn or the session ends: the events that waited in vain."""
        given_up = [waiting.native for waiting in self.waiting]
        self.waiting.clear()
        self._items.clear()
        return given_up
