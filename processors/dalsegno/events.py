"""The events that a producer writes: one class per type of the catalogue (``schemas/README.md``), and their parts.

from dalsegno.events import ToolCallStarted
session.append(ToolCallStarted(tool_call_id="plan.1/t2/c0", executor="local"))
"""

from __future__ import annotations

from dalsegno.model import events as _events
from dalsegno.model.events import *  # noqa: F403

__all__ = _events.__all__
