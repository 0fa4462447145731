"""For the tests of a harness: a log in memory under the producer's own classes, and the rows that follow from it.

    from dalsegno.testing import memory_publisher

    with memory_publisher() as publisher:
        run_my_agent(publisher)
    assert publisher.events("s-1")[-1].type == "SessionCompleted"
    assert publisher.rows("sessions", "s-1")[()].tool_calls == 3

Names are loaded when they are first used; writing and reading events needs nothing of the extra ``[service]``, which
``simulate`` does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dalsegno.testing.in_memory import MemoryPublisher, memory_publisher
    from dalsegno.testing.memory_log import MemoryLog
    from dalsegno.testing.simulation import Simulation, simulate

_PUBLIC = {
    "MemoryLog": "dalsegno.testing.memory_log",
    "MemoryPublisher": "dalsegno.testing.in_memory",
    "Simulation": "dalsegno.testing.simulation",
    "memory_publisher": "dalsegno.testing.in_memory",
    "simulate": "dalsegno.testing.simulation",
}

__all__ = ["MemoryLog", "MemoryPublisher", "Simulation", "memory_publisher", "simulate"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'dalsegno.testing' has no attribute {name!r}")
    found = getattr(import_module(_PUBLIC[name]), name)
    globals()[name] = found
    return found
