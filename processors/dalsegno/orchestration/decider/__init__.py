"""The decider: a pure function from a session's rows, its configuration and contents to the next decision, or nothing.

A writer appends what it gives until nothing is due, and only then one fact or intent; so every decision of a log is the
one that was due before it, and nothing was due before any fact. A crash needs no rule of its own: whoever resumes goes
on asking. What is due (``due``) and what it says (``payload``) are two questions, so that recordings of other harnesses
can be checked on the second alone.
"""

from __future__ import annotations

from typing import Final

from dalsegno.model.events import NewEvent
from dalsegno.orchestration.decider.due import due
from dalsegno.orchestration.decider.payload import payload
from dalsegno.orchestration.decider.pinned import configuration_in_force
from dalsegno.orchestration.decider.world import Contents, Due, MemoryContents, World

DECIDER_VERSION: Final = 1
"""Pinned per session (HARNESS_BUILD); rises whenever equal rows would give another decision."""


def next_decision(world: World) -> NewEvent | None:
    """The one decision that is due; None: the session waits for a fact, or is over."""
    found = due(world)
    return None if found is None else payload(world, found)


__all__ = [
    "DECIDER_VERSION",
    "Contents",
    "Due",
    "MemoryContents",
    "World",
    "configuration_in_force",
    "due",
    "next_decision",
    "payload",
]
