"""How many examples a property gets that is dearer or cheaper than most."""

from __future__ import annotations

from hypothesis import settings

USUAL = 300
"""Of the profile ``ci``; the profile ``long`` has a hundred times as many."""


def examples(number: int) -> int:
    """``number`` in CI, and as many times more as the profile gives every other property."""
    return max(1, number * settings.default.max_examples // USUAL)  # type: ignore[union-attr]
