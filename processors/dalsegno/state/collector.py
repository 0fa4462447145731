"""Python's cycle collector, in a process that folds.

Decoded events, rows and cells hold no reference cycles, so counting frees all of them; but they are many, and every
round of the collector visits all that are alive. With the usual thresholds that is a fifth of the time of a fold.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG: Final = 100_000
"""New objects until a round over the youngest; with 700, as usual, there were a hundred rounds in every batch."""
_ROUNDS: Final = (20, 100)


def collect_rarely() -> None:
    """For the entry points of processes that apply batches: what is there stays, what comes is looked at seldom.

    Cycles, which libraries and exceptions make now and then, are still found.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, *_ROUNDS)
