"""Lifecycle rules: what may follow what in a session, and what is open. Pure.

``judge`` takes a session's events in order and says of each what rules it breaks. How events move operations is data
(``tables``); rules about an event's content are one function each (``checks``), what it leaves behind another
(``effects``); what is remembered is in ``state``.
"""

from dalsegno.model.lifecycle.checks import config_set_digest
from dalsegno.model.lifecycle.effects import inherit
from dalsegno.model.lifecycle.judging import judge
from dalsegno.model.lifecycle.rules import RULES
from dalsegno.model.lifecycle.state import (
    LIFECYCLE_VERSION,
    MemoryOps,
    Ops,
    OpState,
    SessionState,
    Verdict,
)

__all__ = [
    "LIFECYCLE_VERSION",
    "RULES",
    "MemoryOps",
    "OpState",
    "Ops",
    "SessionState",
    "Verdict",
    "config_set_digest",
    "inherit",
    "judge",
]
