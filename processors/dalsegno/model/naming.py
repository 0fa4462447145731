"""What is said to a producer who calls an event, or a field of one, by a name that there is not. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import msgspec

from dalsegno.errors import InvalidEvent

_CLOSEST = 3
_LIKENESS = 0.5


def likely(found: str, names: Iterable[str], otherwise: str = "") -> str:
    """Of the names, those that may have been meant, likeliest first; where none is like it, ``otherwise``, or all."""
    by_case = {name.lower(): name for name in sorted(names)}
    close = [by_case[each] for each in get_close_matches(found.lower(), by_case, _CLOSEST, _LIKENESS)]
    return ", ".join(close) or otherwise or ", ".join(by_case.values())


class ByName(msgspec.StructMeta):
    """The classes of events and their parts: called with wrong fields they name themselves and the right ones, which
    msgspec does not."""

    if not TYPE_CHECKING:  # the fields of each class are its signature

        def __call__(cls, *args: Any, **fields: Any) -> Any:
            try:
                return super().__call__(*args, **fields)
            except TypeError as error:
                raise _refused(cls, args, fields) or error from None


def _refused(cls: Any, args: tuple[Any, ...], fields: dict[str, Any]) -> InvalidEvent | None:
    todo = "correct the event; nothing was written"
    known = cls.__struct_fields__
    if args and known:
        found = f"{cls.__name__} was given {len(args)} values without a name"
        return InvalidEvent(found, wanted=f"{known[0]}=... and so on", todo=todo, field=known[0])
    unknown = sorted(set(fields) - set(known))
    if unknown:
        found = f"{cls.__name__} has no field {unknown[0]}"
        # One that is given already was not meant.
        return InvalidEvent(found, wanted=likely(unknown[0], set(known) - set(fields)), todo=todo, field=unknown[0])
    missing = [each.name for each in msgspec.structs.fields(cls) if each.required and each.name not in fields]
    if missing:
        found = f"{cls.__name__} lacks {' and '.join(missing)}"
        return InvalidEvent(found, wanted="a value: the field has no default", todo=todo, field=missing[0])
    return None
