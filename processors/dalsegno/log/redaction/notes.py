"""What redaction leaves behind: the rules as they are applied, what they found, and ``meta.redactions``. Pure."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias

from dalsegno.log.redaction.json_spans import Path

NOTED_MAX: Final = 100
"""Places that ``meta.redactions`` names one by one; of more, the field or the content that holds them."""
POINTER_MAX_CHARACTERS: Final = 500
DIGEST_MIN_BITS: Final = 96.0
"""Far above what can be tried; a random text of 24 letters and digits has about as much by the estimate."""
Clean: TypeAlias = Callable[[str, Path], str]


class Compiled(NamedTuple):
    """A rule, ready to be applied: it has a pattern or a pointer."""

    name: str
    pattern: re.Pattern[str] | None
    pointer: Path | None
    event: str | None
    digest: bool

    @property
    def marker(self) -> str:
        return f"[redacted:{self.name}]"


class Found(NamedTuple):
    """A text that a rule took out; of an object or a list, an empty one and each text in it."""

    rule: Compiled
    path: Path
    value: str


def notes(found: Sequence[Found], clean: Clean) -> list[dict[str, Any]]:
    """The ``meta.redactions`` of what was found: one entry per place and rule."""
    places: dict[tuple[Path, str], list[Found]] = {}
    for each in found:
        places.setdefault((each.path, each.rule.name), []).append(each)
    made: dict[tuple[str, str], bytes | None] = {}
    for (path, name), those in places.items():
        pointer = _pointer(path, clean)
        if len(places) > NOTED_MAX or len(pointer) > POINTER_MAX_CHARACTERS:
            pointer = _pointer(path[: path.index("inline") + 1] if "inline" in path else path[:1], clean)
        again = (pointer, name) in made
        made[pointer, name] = None if again or len(those) > 1 else _digest(those[0])
    return [{"pointer": pointer, "reason": name, "digest": digest} for (pointer, name), digest in made.items()]


def _pointer(path: Path, clean: Clean) -> str:
    """A JSON pointer whose own parts (keys of foreign JSON) hold nothing that was taken out."""
    return "".join("/" + clean(token, ()).replace("~", "~0").replace("/", "~1") for token in path)


def _digest(found: Found) -> bytes | None:
    if not (found.rule.digest and may_be_random(found.value)):
        return None
    return sha256(found.value.encode("utf-8", "surrogatepass")).digest()


def may_be_random(value: str) -> bool:
    """Whether a text that is said to be random may be: its length times the entropy of its characters."""
    bits = -sum(count * math.log2(count / len(value)) for count in Counter(value).values())
    return bits >= DIGEST_MIN_BITS
