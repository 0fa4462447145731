"""A divergence in a few lines for people: which event, which fields with both values, and what led to it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from dalsegno.cli.output import visible
from dalsegno.replay.divergence import ABSENT, Ancestor, Divergence, FieldDifference, is_blob, plain, text_of

FIELDS_SHOWN: Final = 6
_VALUE_CHARACTERS: Final = 100
_SAME_BEFORE_CHARACTERS: Final = 24
_HASH_CHARACTERS: Final = 12


def divergence_lines(found: Divergence) -> Iterator[str]:
    """The first line names the event, one a field follows."""
    subject = f"  {visible(found.subject)}" if found.subject else ""
    yield f"seq {found.seq}  {visible(found.type)} ({found.event_class})  {found.kind}{subject}"
    if found.because:
        yield f"  because  {visible(found.because)}"
    yield from field_lines(found.fields)
    yield from ancestor_lines(found.causes)


def field_lines(fields: Sequence[FieldDifference], most: int = FIELDS_SHOWN) -> Iterator[str]:
    """``/pointer  - expected`` and below it ``+ actual``, a side that is absent left out; then how many more."""
    for each in fields[:most]:
        expected, actual = _shown(each.expected, each.actual)
        pointer = visible(each.pointer) or "/"
        sides = [f"- {expected}"] if each.expected is not ABSENT else []
        sides += [f"+ {actual}"] if each.actual is not ABSENT else []
        yield f"  {pointer}  {sides[0]}"
        for side in sides[1:]:
            yield f"  {'':<{len(pointer)}}  {side}"
    if len(fields) > most:
        yield f"  and {len(fields) - most} more fields"


def ancestor_lines(causes: Sequence[Ancestor]) -> Iterator[str]:
    for each in causes:
        subject = f"  {visible(each.subject)}" if each.subject else ""
        yield f"  led to by  seq {each.seq}  {visible(each.type)}{subject}"


def _shown(expected: Any, actual: Any) -> tuple[str, str]:
    """Both values, short; of long texts the part where they begin to differ."""
    texts = _text(expected), _text(actual)
    same = (
        sum(1 for _ in takewhile(lambda each: each[0] == each[1], zip(*texts, strict=False)))
        if ABSENT not in (expected, actual)
        else 0
    )
    skipped = max(0, same - _SAME_BEFORE_CHARACTERS) if max(map(len, texts)) > _VALUE_CHARACTERS else 0
    cut = [("…" if skipped else "") + text[skipped:] for text in texts]
    short = [text if len(text) <= _VALUE_CHARACTERS else text[: _VALUE_CHARACTERS - 1] + "…" for text in cut]
    return visible(_named(expected, short[0])), visible(_named(actual, short[1]))


def _text(value: Any) -> str:
    if isinstance(value, Mapping) and is_blob(value):
        text = text_of(value)
        return "" if text is None else text
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping | list | tuple):
        # As JSON of one line; a record's empty fields say nothing.
        inner = plain(value)
        if isinstance(inner, dict):
            inner = {name: each for name, each in inner.items() if each not in (None, [], "")}
        return json.dumps(inner, ensure_ascii=False)
    return value.hex() if isinstance(value, bytes) else str(value)


def _named(value: Any, text: str) -> str:
    """A content's text has its digest in front."""
    if isinstance(value, Mapping) and is_blob(value):
        return f"{value['digest'].hex()[:_HASH_CHARACTERS]} ({value['size']} bytes) {text}".rstrip()
    return text
