"""Made-up contents of realistic sizes, cut from one long text, so that making them costs next to nothing."""

from __future__ import annotations

import math
from functools import cache
from hashlib import sha256
from random import Random

from dalsegno.model.events import Blob

_TEXT = (
    "the session reads a file and finds that the test expects another result so it changes the parser keeps the "
    "interface runs all checks again and reports which of them passed while the reviewer asks why this branch returns "
    "early when the buffer is empty because an older release depended on it and nobody wrote that down"
)
_POOL_CHARACTERS = 262_144
_POOL_SEED = 20_260_101


@cache
def _pool() -> str:
    rng, words = Random(_POOL_SEED), _TEXT.split()
    parts: list[str] = []
    size = 0
    while size < _POOL_CHARACTERS:
        word = rng.choice(words)
        parts.append(word)
        size += len(word) + 1
    return " ".join(parts)


class Texts:
    """Draws texts and blobs with one source of chance."""

    def __init__(self, rng: Random) -> None:
        self._random = rng.random
        self._pool = _pool()
        self._span = len(self._pool) - 40_000

    def size(self, typical: int, spread: float = 0.9, most: int = 32_000) -> int:
        """A length in characters around ``typical``, log-normal: most are near it, a few are many times as long."""
        # A sum of three draws is near enough to a normal one, and several times faster.
        normal = (self._random() + self._random() + self._random() - 1.5) * 2.0
        return min(most, max(4, int(typical * math.exp(normal * spread))))

    def text(self, typical: int) -> str:
        start = int(self._random() * self._span)
        return self._pool[start : start + self.size(typical)]

    def blob(self, typical: int, media_type: str = "text/plain") -> Blob:
        return blob_of(self.text(typical).encode("ascii"), media_type)

    def digest(self) -> bytes:
        """A digest of something that is not kept."""
        return sha256(repr(self._random()).encode("ascii")).digest()


def blob_of(data: bytes, media_type: str = "text/plain") -> Blob:
    return Blob(digest=sha256(data).digest(), size=len(data), media_type=media_type, inline=data)
