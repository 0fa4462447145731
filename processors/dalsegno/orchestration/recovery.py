"""What becomes of the operations that were open when a writer ended: ``SessionRecovered.in_flight``. Pure."""

from __future__ import annotations

from typing import Final

from dalsegno.projections.decider.rows import (
    APPROVAL,
    CALL,
    COMPRESSION,
    INFERENCE,
    REQUEST,
    VALIDATION,
    CallState,
)
from dalsegno.projections.decider.table import MemoryRows

_OPEN: Final = (("INFERENCE", INFERENCE), ("VALIDATION", VALIDATION), ("COMPRESSION", COMPRESSION))
_OPEN_CALLS: Final = frozenset({"REQUESTED", "AUTHORIZED", "STARTED", "UNRESOLVED"})


def resolutions(rows: MemoryRows) -> dict[tuple[str, str], str]:
    """By (kind, id), for every open operation: people go on being waited for, with the same ids; what had not run, or
    may run twice, is due again; a tool that had begun and may have had an effect has an unknown outcome."""
    found = {
        (kind, id): "RETRY" for kind, family in _OPEN for id, row in rows.family(family).items() if row.phase == "OPEN"
    }
    found |= {("APPROVAL", id): "KEEP_WAITING" for id, row in rows.family(APPROVAL).items() if row.phase == "OPEN"}
    for id, row in rows.family(REQUEST).items():
        if row.phase == "OPEN":
            found[row.kind, id] = "KEEP_WAITING" if row.kind == "INPUT" else "RETRY"
    for id, call in rows.family(CALL).items():
        if call.phase in _OPEN_CALLS:
            found["TOOL", id] = _of_call(call)
    return found


def _of_call(call: CallState) -> str:
    """An unknown outcome that was recorded before stays one: whether it is tried again is decided, within its limit."""
    unknown = call.phase == "UNRESOLVED" or (call.phase == "STARTED" and not call.safe)
    return "UNKNOWN_OUTCOME" if unknown else "RETRY"
