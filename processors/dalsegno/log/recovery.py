"""What a recovery says of the operations that were under way when the writer before ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from dalsegno.errors import SessionMissing, Usage
from dalsegno.log.history import History, SessionRecords
from dalsegno.model.events import InFlight, Ref, SessionRecovered
from dalsegno.model.lifecycle import MemoryOps, OpState
from dalsegno.model.lifecycle.state import APPROVAL, INPUT, OPEN_PHASES, OPERATIONS, RUNNING_PHASES, TOOL

KEEP_WAITING = "KEEP_WAITING"
RETRY = "RETRY"
UNKNOWN_OUTCOME = "UNKNOWN_OUTCOME"


class OpenOperation(NamedTuple):
    """An operation without an end: its kind (as in ``SessionRecovered.in_flight``), its id, and where it stands."""

    kind: str
    id: str
    op: OpState


Resolve: TypeAlias = Callable[[OpenOperation], str] | Mapping[tuple[str, str], str]
"""The resolution of open operations: a function, or a mapping by (kind, id) for some, with defaults for the rest."""


def open_operations(ops: MemoryOps) -> list[OpenOperation]:
    """Every open operation, sorted by kind and id."""
    return [
        OpenOperation(kind, id, op)
        for (kind, id), op in sorted(ops.rows.items())
        if kind in OPERATIONS and op.phase in OPEN_PHASES
    ]


def default_resolution(operation: OpenOperation) -> str:
    """The cautious one: people go on being waited for; what had not run, or may run twice, is due again; a tool that
    had started and may have had an effect has an unknown outcome."""
    if operation.kind in (APPROVAL, INPUT):
        return KEEP_WAITING
    if operation.kind == TOOL and operation.op.phase in RUNNING_PHASES and not operation.op.safe:
        return UNKNOWN_OUTCOME
    return RETRY


def in_flight(ops: MemoryOps, resolve: Resolve | None) -> list[InFlight]:
    """The ``in_flight`` of a ``SessionRecovered``. Raises Usage if ``resolve`` names what is not open."""
    operations = open_operations(ops)
    if isinstance(resolve, Mapping):
        given = resolve
        unknown = sorted(set(given) - {(o.kind, o.id) for o in operations})
        if unknown:
            raise Usage(
                f"not open: {', '.join(f'{kind} {id}' for kind, id in unknown)}",
                wanted=f"some of {', '.join(f'{o.kind} {o.id}' for o in operations) or 'nothing: none is open'}",
            )
        how = {(o.kind, o.id): given.get((o.kind, o.id)) or default_resolution(o) for o in operations}
    else:
        how = {(o.kind, o.id): (resolve or default_resolution)(o) for o in operations}
    return [InFlight(kind=kind, id=id, resolution=resolution) for (kind, id), resolution in how.items()]  # type: ignore[arg-type]


def recovery_of(
    session_id: str, history: History, records: SessionRecords, resolve: Resolve | None
) -> SessionRecovered:
    """The event by which a writer takes over what was read. Raises SessionMissing if that is nothing."""
    if history.tip is None:
        raise SessionMissing(
            f"the log holds no session {session_id}",
            wanted="a session with a history",
            todo="begin it with publisher.session(...)",
            session_id=session_id,
        )
    tip = history.tip
    return SessionRecovered(
        last_good=Ref(seq=tip.seq, hash=tip.hash, event_id=tip.meta.get("event_id")),
        crashed_instance=tip.meta.get("writer"),
        snapshot_id=records.snapshot_id,
        in_flight=in_flight(history.ops, resolve),
    )
