"""One native record while it is being mapped: what of it was carried over, and so what was not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Fields:
    """The fields of a record. ``take`` reads one and notes that it has been carried over; ``left`` names the rest."""

    __slots__ = ("_dropped", "_taken", "data")

    def __init__(self, data: dict[str, Any], carried: Iterable[str] = ()) -> None:
        self.data = data
        self._taken = set(carried)
        self._dropped: list[str] = []

    def take(self, name: str, default: Any = None) -> Any:
        self._taken.add(name)
        value = self.data.get(name)
        return default if value is None else value

    def take_each(self, *names: str) -> None:
        """Note that these fields are carried by what the event is."""
        self._taken.update(names)

    def take_text(self, name: str) -> str | None:
        value = self.take(name)
        return value if isinstance(value, str) else None

    def take_object(self, name: str) -> dict[str, Any]:
        value = self.take(name)
        return value if isinstance(value, dict) else {}

    def take_objects(self, name: str) -> list[dict[str, Any]]:
        """Those items of a list that are objects."""
        value = self.take(name)
        return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []

    def take_inside(self, name: str, carried: Iterable[str]) -> dict[str, Any]:
        """An object of which these fields are carried over; its others are reported as ``<name>.<field>``."""
        inner = Fields(self.take_object(name), carried)
        self._dropped += [f"{name}.{left}" for left in inner.left()]
        return inner.data

    def take_all(self) -> dict[str, Any]:
        self._taken.update(self.data)
        return self.data

    def drop(self, name: str) -> None:
        """Report a part of a field that was taken otherwise."""
        self._dropped.append(name)

    def left(self) -> list[str]:
        """Names of fields that hold something and were not taken."""
        return self._dropped + [
            name for name, value in self.data.items() if name not in self._taken and value not in (None, "", [], {})
        ]
