"""One session as its decider sees it, kept along with what is appended to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from dalsegno.log.contents import move_out
from dalsegno.model.events import NewEvent, to_record
from dalsegno.model.records import Event
from dalsegno.orchestration.decider import Contents, World, configuration_in_force, next_decision
from dalsegno.projections.decider.fold import fold_event
from dalsegno.projections.decider.table import MemoryRows

MAX_DECISIONS = 100_000
"""Between two facts. No document leads to as many: a decider that gives more does not come to rest."""


class Writer(Protocol):
    """Where events go: a session of the log, or a recorder in memory."""

    session_id: str

    def append(self, event: NewEvent, **how: Any) -> Event:
        """The event as every reader will find it, once it is in the log's hands. Raises as ``Session.append``."""
        ...

    def stored(self) -> None:
        """Wait until the log has stored what was appended, and look whether another writer took the session over: what
        is begun behind this is begun by its one writer. Raises SessionSuperseded, and what the log says instead."""
        ...


class Store(Contents, Protocol):
    """Contents that also take what a fold tells of them."""

    def keep(self, digest: bytes, content: bytes) -> None: ...


class Conductor:
    """Appends and folds. ``after``: is told of every event that was appended."""

    def __init__(
        self,
        writer: Writer,
        contents: Store,
        rows: MemoryRows | None = None,
        after: Callable[[Event], None] | None = None,
    ) -> None:
        self.writer = writer
        self.contents = contents
        self.rows = MemoryRows() if rows is None else rows
        self._after = after

    @property
    def world(self) -> World:
        return World(self.rows, configuration_in_force(self.rows, self.contents), self.contents)

    @property
    def running(self) -> bool:
        head = self.rows.head_row
        return head is not None and head.status in ("RUNNING", "PAUSED")

    def take_in(self, events: Iterable[Event]) -> None:
        """Events that are in the log already."""
        for event in events:
            if event.stub is None:
                fold_event(self.rows, event, self.contents.keep)

    def append(self, event: NewEvent, **how: Any) -> Event:
        """One event, with the turn and the stage that it belongs to."""
        head = self.rows.head_row
        if head is not None:
            how = {"turn_id": head.turn or None, "stage_id": head.stage or None, **how}
        # What is too large for an event is named there by its digest alone.
        large: list[dict[str, Any]] = []
        move_out(to_record(event), large)
        for blob in large:
            self.contents.keep(blob["digest"], blob["inline"])
        appended = self.writer.append(event, **how)
        fold_event(self.rows, appended, self.contents.keep)
        if self._after is not None:
            self._after(appended)
        return appended

    def drain(self) -> int:
        """Append what is due until nothing is; how many decisions that were."""
        for count in range(MAX_DECISIONS):
            if not self.running:
                return count
            decision = next_decision(self.world)
            if decision is None:
                return count
            self.append(decision)
        raise RuntimeError(f"{MAX_DECISIONS} decisions were due one after the other in {self.writer.session_id}")
