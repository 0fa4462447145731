"""One event of a conversation as the file holds it, and what it tells of a model's answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dalsegno.importers.builder import Added
from dalsegno.importers.json_file import json_in
from dalsegno.importers.payload import short_text
from dalsegno.importers.wanted import Wanted
from dalsegno.model.events import Part, Usage


class Record(NamedTuple):
    """One native event. ``place`` is its line or its place in the list, ``digest`` that of its content."""

    place: str
    data: dict[str, Any]
    digest: bytes

    @property
    def id(self) -> int | str | None:
        """The conversation's own number or name of the event; others refer to it."""
        return native_id(self.data.get("id"))

    @property
    def is_line(self) -> bool:
        return self.place.startswith("#")

    @property
    def ref(self) -> str:
        return self.place if self.id is None else f"{self.place} (id {short_text(self.id, 64)})"


def native_id(value: Any) -> int | str | None:
    return value if isinstance(value, int | str) and not isinstance(value, bool) else None


def given_to(call: Wanted) -> dict[str, Any]:
    """The arguments of a call as data; empty where they are no object."""
    given = json_in(call.given)
    return given if isinstance(given, dict) else {}


@dataclass
class Answer:
    """What is recorded of one answer of a model. ``parts`` leave the calls out."""

    parts: Sequence[Part]
    calls: Sequence[Wanted]
    output: Any
    """All of it as it was recorded."""
    model: str | None = None
    finish_reasons: Sequence[str] = ()
    usage: Usage = field(default_factory=Usage)
    raw: Any = None


@dataclass
class Inference:
    """An answer that has its event. ``open`` are the calls of it that no record has used yet."""

    id: str
    completed: Added
    open: list[tuple[str, Wanted]]

    def wanted(self, native_call: str | None) -> Wanted | None:
        """The first unused call with this native id."""
        return next((call for _, call in self.open if call.native_id == native_call), None)

    def take(self, native_call: str | None) -> tuple[str, Wanted] | None:
        """The same, with our id of it, and used from now on."""
        found = next((each for each in self.open if each[1].native_id == native_call), None)
        if found is not None:
            self.open.remove(found)
        return found
