"""The events that a producer writes: one class per type of the catalogue (``schemas/README.md``), and their parts.

from dalsegno.events import ToolCallStarted
session.append(ToolCallStarted(tool_call_id="plan.1/t2/c0", executor="local"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from dalsegno.model import events as _events
from dalsegno.model.events import *  # noqa: F403
from dalsegno.model.naming import likely as _likely

__all__ = _events.__all__


if not TYPE_CHECKING:  # a type checker knows the names, and would take any for one

    def __getattr__(name: str) -> NoReturn:
        wanted = _likely(name, __all__, "one of 'dalsegno schema list'")
        raise AttributeError(f"{__name__} has no {name}; wanted: {wanted}")
