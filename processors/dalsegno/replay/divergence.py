"""What differs between what was recorded and what came out, as values. Pure.

A ``Divergence`` is one event that is not as it was; its ``fields`` say where, by JSON pointers into the payload. The
envelope (``meta``: ids, times, hashes) is never compared. ``expected`` is the recorded side, or A of two sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from dalsegno.model.records import Event
from dalsegno.replay.align import Element, pair_up

EventClass: TypeAlias = Literal["X", "D", "L"]
DivergenceKind: TypeAlias = Literal["CONFIG", "CODE", "MISSING_RECORD", "PROMPT_DRIFT", "OUTPUT_DRIFT", "ORDER"]
"""Another configuration · another decision of the same inputs · a recorded result that is not there · a model is asked
something else · a model or tool answers otherwise · the same, in another order."""


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
"""One side of a difference that the other has alone: an element of a list, or a whole event."""


class FieldDifference(NamedTuple):
    """Two values of one place, raw as the codec gives them: bytes, blobs and all."""

    pointer: str
    """JSON pointer (RFC 6901) from the event's body. In a list it counts the elements of ``expected``; of an element
    that only ``actual`` has, those of ``actual``."""
    expected: Any
    actual: Any

    def to_json(self) -> dict[str, Any]:
        """``{pointer, expected, actual}``; a side that is absent has no key."""
        sides = {"expected": self.expected, "actual": self.actual}
        return {"pointer": self.pointer, **{name: plain(side) for name, side in sides.items() if side is not ABSENT}}


class Ancestor(NamedTuple):
    """An event that led to another one."""

    seq: int
    type: str
    subject: str


class Divergence(NamedTuple):
    """One event that differs; ``seq`` is its place on the recorded side."""

    seq: int
    type: str
    event_class: EventClass
    kind: DivergenceKind
    subject: str
    """The domain id that the event is about; "" if it has none."""
    fields: tuple[FieldDifference, ...]
    because: str | None
    causes: tuple[Ancestor, ...]
    """Causal ancestors, nearest first."""

    def to_json(self) -> dict[str, Any]:
        """Plain values under the names of the fields."""
        found = self._asdict()
        found["fields"] = [each.to_json() for each in self.fields]
        found["causes"] = [each._asdict() for each in self.causes]
        return found


def causal_ancestors(event: Event, before: Iterable[Event], most: int = 5) -> tuple[Ancestor, ...]:
    """The events that led to this one by ``meta.causation_id``, nearest first; ``before``: those before it, newest
    first. It is read only as far as the last ancestor."""
    found: list[Ancestor] = []
    wanted = event.meta.get("causation_id")
    if wanted is None:
        return ()
    for each in before:
        if each.meta.get("event_id") == wanted:
            found.append(Ancestor(each.seq, each.type, subject_of(each)))
            wanted = each.meta.get("causation_id")
            if wanted is None or len(found) == most:
                break
    return tuple(found)


def subject_of(event: Event) -> str:
    """The domain id that an event is about: its first field that is one."""
    ids = (value for name, value in event.body.items() if name.endswith("_id") and isinstance(value, str))
    return next(ids, "")


# --- comparing --------------------------------------------------------------------------------------------------------


def compare_payloads(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> tuple[FieldDifference, ...]:
    """Where two bodies of one event type differ, without ``meta``; in the order of ``expected``'s fields.

    Contents (blobs) are equal if their digests are. A field that one side lacks is null, as an older schema leaves it.
    Elements of lists are aligned, so what was inserted is one difference.
    """
    found: list[FieldDifference] = []
    _compare_records(
        "",
        {name: value for name, value in expected.items() if name != "meta"},
        {name: value for name, value in actual.items() if name != "meta"},
        found,
    )
    return tuple(found)


def _compare(pointer: str, expected: Any, actual: Any, found: list[FieldDifference]) -> None:
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        if is_blob(expected) and is_blob(actual):
            if expected["digest"] != actual["digest"]:
                found.append(FieldDifference(pointer, expected, actual))
            elif expected["media_type"] != actual["media_type"]:
                at = f"{pointer}/media_type"
                found.append(FieldDifference(at, expected["media_type"], actual["media_type"]))
        else:
            _compare_records(pointer, expected, actual, found)
    elif _is_list(expected) and _is_list(actual):
        _compare_lists(pointer, expected, actual, found)
    elif expected != actual or type(expected) is not type(actual):
        found.append(FieldDifference(pointer, expected, actual))


def _compare_records(
    pointer: str, expected: Mapping[str, Any], actual: Mapping[str, Any], found: list[FieldDifference]
) -> None:
    for name in {**expected, **actual}:
        step = str(name).replace("~", "~0").replace("/", "~1")
        _compare(f"{pointer}/{step}", expected.get(name), actual.get(name), found)


def _compare_lists(pointer: str, expected: Sequence[Any], actual: Sequence[Any], found: list[FieldDifference]) -> None:
    pairs = pair_up(list(map(_element, expected)), list(map(_element, actual)))
    i = j = 0
    for next_i, next_j in [*pairs, (len(expected), len(actual))]:
        found += [FieldDifference(f"{pointer}/{at}", expected[at], ABSENT) for at in range(i, next_i)]
        found += [FieldDifference(f"{pointer}/{at}", ABSENT, actual[at]) for at in range(j, next_j)]
        if next_i < len(expected) and next_j < len(actual):
            _compare(f"{pointer}/{next_i}", expected[next_i], actual[next_j], found)
        i, j = next_i + 1, next_j + 1


def _element(value: Any) -> Element:
    """What makes two elements of a list the same thing: the name that they have, if they have one."""
    names = (value.get(name) for name in _ELEMENT_NAMES) if isinstance(value, Mapping) else ()
    return Element(next((name for name in names if isinstance(name, str)), None), frozen(value))


_ELEMENT_NAMES: Final = ("item_id", "tool_call_id", "id", "key", "projection", "resource", "code")
"""Fields of the records in lists that say which one it is."""


def is_blob(value: Mapping[str, Any]) -> bool:
    """Whether a record is a content with its digest."""
    return value.keys() == _BLOB


def frozen(value: Any) -> bytes:
    """Bytes that are equal exactly where ``compare_payloads`` finds no difference."""
    return msgspec.msgpack.encode(_bare(value), order="sorted")


def _bare(value: Any) -> Any:
    if isinstance(value, Mapping):
        if is_blob(value):
            return [value["digest"], value["media_type"]]
        return {name: _bare(each) for name, each in value.items() if each is not None}
    return [_bare(each) for each in value] if _is_list(value) else value


_BLOB: Final = frozenset({"digest", "size", "media_type", "uri", "inline"})


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


# --- plain values -----------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """JSON values: bytes in hex; a content by its digest, size and type, and how it begins if that is text."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        if is_blob(value):
            short = {"digest": value["digest"].hex(), "size": value["size"], "media_type": value["media_type"]}
            text = text_of(value)
            return short if text is None else {**short, "begins": text[:_BEGINNING_CHARACTERS]}
        return {name: plain(each) for name, each in value.items()}
    if _is_list(value):
        return [plain(each) for each in value]
    return value


_BEGINNING_CHARACTERS: Final = 200


def text_of(blob: Mapping[str, Any]) -> str | None:
    """A content as text; None for one that lies in the store, or is none."""
    inline = blob["inline"]
    try:
        return None if inline is None else bytes(inline).decode()
    except UnicodeDecodeError:
        return None
