"""Which split a session is in: by a seeded hash of its root, so that a fork is where its parent is. Pure."""

from __future__ import annotations

from hashlib import sha256
from typing import Final, NamedTuple

from dalsegno.errors import Usage
from dalsegno.model.ids import root_of

NAMES: Final = ("train", "validation", "test")
_HUNDRED: Final = 100


class Splits(NamedTuple):
    """``shares`` in per cent, of ``NAMES`` in order."""

    shares: tuple[int, int, int] = (80, 10, 10)
    seed: int = 0

    def of(self, session_id: str) -> str:
        digest = sha256(f"{self.seed}:{root_of(session_id)}".encode()).digest()
        place = int.from_bytes(digest[:8], "big") % _HUNDRED
        train, validation, _ = self.shares
        return NAMES[0] if place < train else NAMES[1] if place < train + validation else NAMES[2]


def parse_shares(text: str) -> tuple[int, int, int]:
    """``80/10/10``. Raises Usage."""
    parts = text.split("/")
    if len(parts) != len(NAMES) or not all(part.isascii() and part.isdigit() and len(part) <= 3 for part in parts):
        raise _wrong(text)
    train, validation, test = map(int, parts)
    if train + validation + test != _HUNDRED:
        raise _wrong(text)
    return train, validation, test


def _wrong(text: str) -> Usage:
    return Usage(
        f"--split {text}", wanted="the per cents of train/validation/test, 100 together", todo="write, say, 80/10/10"
    )
