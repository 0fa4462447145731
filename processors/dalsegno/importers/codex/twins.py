"""What a rollout tells twice: as an item of the model's history, and as an event for whoever watches. Pure.

The item counts, the event is its repeat; either may come first. An event that waits for its item does so until the turn
or the session ends: then it told something of its own.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from dalsegno.importers.codex.records import Native

USER = "user"
ASSISTANT = "assistant"
REASONING = "reasoning"

_EVENTS = {
    "event_msg.user_message": (USER, "message"),
    "event_msg.agent_message": (ASSISTANT, "message"),
    "event_msg.agent_reasoning": (REASONING, "text"),
}
_ITEM_COMPLETED = "event_msg.item_completed"
_COMPLETED = {"UserMessage": USER, "AgentMessage": ASSISTANT, "Reasoning": REASONING}
TOLD_AGAIN = (*_EVENTS, _ITEM_COMPLETED)
"""Kinds of events that can repeat an item."""


class Told(NamedTuple):
    """What such an event tells, by whom, and in which of its fields."""

    role: str
    text: str
    field: str


def told_by(native: Native) -> Told | None:
    """None where it tells no text."""
    if native.kind != _ITEM_COMPLETED:
        role, name = _EVENTS[native.kind]
        text = native.payload.get(name)
        return Told(role, text, name) if isinstance(text, str) else None
    item = native.payload.get("item")
    role = _COMPLETED.get(str(item.get("type")), "") if isinstance(item, dict) else ""
    if not isinstance(item, dict) or not role:
        return None
    content = item.get("summary_text") if role == REASONING else item.get("content")
    each = content if isinstance(content, list) else []
    texts = [one if isinstance(one, str) else one.get("text", "") for one in each if isinstance(one, str | dict)]
    text = "".join(text for text in texts if isinstance(text, str))
    return Told(role, text, "item") if text else None


class _Waiting(NamedTuple):
    role: str
    text: str
    native: Native


class Twins:
    """The items and events of one turn that have not met their like."""

    def __init__(self) -> None:
        self._items: Counter[tuple[str, str]] = Counter()
        self._waiting: list[_Waiting] = []

    def item(self, role: str, texts: list[str]) -> list[Native]:
        """An item came: the events before it that it repeats."""
        repeated = []
        for text in texts:
            found = next((one for one in self._waiting if (one.role, one.text) == (role, text)), None)
            if found is None:
                self._items[role, text] += 1
            else:
                self._waiting.remove(found)
                repeated.append(found.native)
        return repeated

    def event(self, role: str, text: str, native: Native) -> bool:
        """An event came: True if it repeats an item; else it waits."""
        if self._items[role, text] > 0:
            self._items[role, text] -= 1
            return True
        self._waiting.append(_Waiting(role, text, native))
        return False

    def end(self, *roles: str) -> list[Native]:
        """What these roles say from now on is something else: the events of theirs that waited in vain."""
        in_vain = [one for one in self._waiting if one.role in roles]
        self._waiting = [one for one in self._waiting if one.role not in roles]
        self._items = Counter({key: left for key, left in self._items.items() if key[0] not in roles})
        return [one.native for one in in_vain]

    def waiting(self) -> list[Native]:
        return [one.native for one in self._waiting]
