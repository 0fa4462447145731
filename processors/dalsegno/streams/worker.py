"""The parts of one worker and what each of its threads does. ``app`` runs it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TypeVar

from dalsegno.errors import DalsegnoError, WaitTimeout
from dalsegno.log import topics
from dalsegno.log.admin import topic_facts
from dalsegno.projections.registry import chosen
from dalsegno.state.rocks import raise_file_limit
from dalsegno.state.slot import Slot, open_slot
from dalsegno.streams.assignment import Assignment
from dalsegno.streams.bounds import Bounds
from dalsegno.streams.config import WorkerConfig
from dalsegno.streams.control import ControlListener
from dalsegno.streams.emitter import HANG_SECONDS, Emitter
from dalsegno.streams.house import House
from dalsegno.streams.opening import Opener
from dalsegno.streams.partition import FINAL_ERRORS, Fetched, Partition
from dalsegno.streams.reader import LogConsumer
from dalsegno.streams.schemas import KnownSchemas
from dalsegno.streams.seen import Facts, Seen
from dalsegno.streams.snapshotter import Snapshotter
from dalsegno.streams.switch import Switch

log = logging.getLogger("dalsegno.streams")

STATUS_EVERY_SECONDS = 0.2
LAST_EMIT_ROUNDS = 100
LAST_EMIT_SECONDS = 60.0
"""After that no further transaction is begun at a stop."""
# With an end bound nobody watches the status: a partition that failed so often in a row ends the worker.
FAILURES_WITH_BOUND = 5
READER = "reader"
_T = TypeVar("_T")


class Worker:
    """One worker process. The methods are grouped by the thread that calls them."""

    slot: Slot

    def __init__(self, config: WorkerConfig, until: Mapping[int, int] | None) -> None:
        self.config = config
        self.table: dict[int, Partition] = {}
        self._bounds = None if until is None else Bounds(config, self.table, until)
        self.fault = config.fault
        self.error: Exception | None = None
        self.stop_reason = ""
        self.on_stop: Callable[[], None] = lambda: None
        self._ready = False
        self._started_at = time.time()
        self._state = "STARTING"
        self._status_at = 0.0
        self._slot: Slot | None = None
        self._house = House()
        self._left = False
        self._at_work: set[str] = set()
        """Which threads are doing something."""

    # --- life ------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Take a slot and make everything that the services use. Raises what makes a start pointless."""
        config = self.config
        self._slot = self.slot = open_slot(config.data, config.prefix, config.slot)
        self._seen.write_status()
        projections = tuple(config.projections) if config.projections is not None else tuple(chosen())
        public = {each.name: each.version for each in projections if each.public}
        topics.check(config.kafka, config.prefix, projections=public.items())
        raise_file_limit(topic_facts(config.kafka, config.names.events).partitions)
        self._schemas = KnownSchemas(config.kafka, config.prefix)
        self._schemas.open(projections)
        transactions = threading.Lock()
        self._snapshotter = Snapshotter(config, self.slot, self.table, self._house, self._schemas)
        self._switch = Switch(config, self._house, projections, lambda: self._reader)
        opener = Opener(config, self._schemas, projections, self._snapshotter, self._switch, lambda: self._reader)
        self._assignment = Assignment(config, self.slot, self._house, self._snapshotter, opener)
        static_name = f"{config.names.group}.{self.slot.id}"
        self._reader = LogConsumer(config, static_name, self.table, transactions, self._assignment)
        self._emitter = Emitter(
            config, static_name, self.slot.id, self.table, transactions, lambda: self._reader.group_metadata,
            lambda name: topics.projection_topic(config.prefix, name, public[name]),
        )  # fmt: skip
        self._emitter.open()
        self._control = ControlListener(config, self.slot.id, self.table, self._snapshotter, self.stop)
        self._ready = True
        log.info("worker_started", extra={"slot": str(self.slot.folder), "group": config.names.group})

    def stop(self, reason: str) -> None:
        """Ask the worker to end at the next edge. Any thread."""
        self.stop_reason = self.stop_reason or reason
        self._state = "DRAINING"
        self.on_stop()

    def fail(self, error: Exception) -> None:
        """End the worker with this error. Any thread."""
        if self.error is None:
            self.error = error
            log.error("worker_failed", extra={"error": str(error)}, exc_info=not isinstance(error, DalsegnoError))
        self.stop("error")

    def at_work(self, name: str, function: Callable[[], _T]) -> _T:
        """What thread ``name`` does, noted as long as it lasts: a stop must know what does not come back."""
        self._at_work.add(name)
        try:
            return function()
        finally:
            self._at_work.discard(name)

    def close(self) -> None:
        """Close what is still open, and give the slot free. Not the consumer, while its own thread is in it."""
        if self._ready and not self._left and READER not in self._at_work:
            try:
                self.leave()
            except Exception as error:  # the slot must be given free, and its status must say how this ended
                self.fail(error)
        try:
            self._house.close()
        except WaitTimeout as error:
            self.fail(error)
        if self._slot is not None:
            self._state = "STOPPED" if self.error is None else "FAILED"
            self._seen.write_status()
            self._slot.close()
            self._slot = None
            if self._ready:
                self._seen.announce()

    # --- the reader's thread ---------------------------------------------------------------------------------------

    def join(self) -> None:
        self._reader.open()
        self._state = "RUNNING" if not self.stop_reason else self._state

    def read(self) -> list[Fetched]:
        return self._reader.step()

    def leave(self) -> None:
        """Leave the group; every partition is given up. Waits for the shards to be closed."""
        self._left = True
        self._reader.close()
        self._house.wait()
        self._emitter.close()
        self._control.close()

    # --- the agent's thread ----------------------------------------------------------------------------------------

    def apply(self, batch: Fetched) -> None:
        """Apply one batch. Never raises: a failing partition turns red, stands still and is tried again later."""
        partition = self.table.get(batch.partition)
        if partition is None or self.stop_reason:
            return
        try:
            applied = partition.apply(batch)
        except Exception as error:
            self._reader.hold(partition)
            partition.stop(error, offset=batch.start, next_offset=batch.end)
            return
        if applied is None:
            return
        log.debug(
            "batch_applied",
            extra={
                "partition": batch.partition,
                "offset": batch.start,
                "next_offset": batch.end,
                "records": len(batch.records),
            },
        )
        self._switch.try_at(partition)

    # --- the emitter's thread --------------------------------------------------------------------------------------

    def emit(self) -> bool:
        return self._emitter.tick()

    def last_emit(self) -> bool:
        """Send what is left at a clean stop, waiting for batches that are being applied. What cannot be sent now stays
        in the outbox for the next start."""
        until = time.monotonic() + LAST_EMIT_SECONDS
        return any(
            (left := until - time.monotonic()) <= 0 or not self._emitter.tick(left) for _ in range(LAST_EMIT_ROUNDS)
        )

    # --- the control listener's thread -----------------------------------------------------------------------------

    def listen(self) -> bool:
        return self._control.step()

    # --- the announcer's thread ------------------------------------------------------------------------------------

    def announce(self) -> bool:
        self._seen.announce()
        return False

    # --- the supervisor's thread -----------------------------------------------------------------------------------

    def supervise(self) -> bool:
        """Retry what failed, snapshot what is due, end at the bounds, tell the status."""
        now = time.monotonic()
        self._end_if_hanging(now)
        for partition in list(self.table.values()):
            if partition.retry_at is not None and partition.retry_at <= now:
                self._retry(partition)
            self._end_if_hopeless(partition)
        self._schemas.look_for_missing(self.table, self._house.give)
        self._snapshotter.take_what_is_due()
        if self._bounds is not None and not self.stop_reason and self._bounds.are_reached():
            self.stop("bounds reached")
        if now - self._status_at >= STATUS_EVERY_SECONDS:
            self._status_at = now
            self._seen.write_status()
        return False

    def _retry(self, partition: Partition) -> None:
        partition.try_again()
        opened = partition.shard is not None
        log.info("partition_retried", extra={"partition": partition.number, "failures": partition.failures})
        if opened:
            self._reader.release(partition)
            self._switch.try_at(partition)
        else:
            self._reader.assign_again(partition)

    def _end_if_hanging(self, now: float) -> None:
        """A call of the client that never comes back cannot be ended but with the process; it would look alive for
        ever, and send nothing. What this leaves is what a crash leaves."""
        since = self._emitter.sending_since
        if since is None or now - since < HANG_SECONDS:
            return
        self.fail(
            WaitTimeout(
                f"a transaction has not come to an end within {HANG_SECONDS:g} s, though each of its calls has a limit",
                wanted="a client that keeps its limits",
                todo="start the worker again: it goes on from its shards and the group's commits",
            )
        )
        self._state = "FAILED"
        self._seen.write_status()
        self.end_process()

    def end_process(self) -> None:
        """End without waiting for threads that never end."""
        logging.shutdown()
        os._exit(1 if self.error is None else getattr(self.error, "exit_code", 1))

    @property
    def hangs(self) -> bool:
        """After a stop: whether a thread is still at work, by a call that does not come back, or was when its consumer
        was to be closed."""
        return self._house.is_working or bool(self._at_work) or (self._ready and not self._left)

    def _end_if_hopeless(self, partition: Partition) -> None:
        """Somebody waits for the bounds: tell them why they will not be reached."""
        error = partition.error
        if self._bounds is None or error is None:
            return
        if isinstance(error, FINAL_ERRORS) or partition.failures >= FAILURES_WITH_BOUND:
            self.fail(error)

    # --- being seen ------------------------------------------------------------------------------------------------

    @cached_property
    def _seen(self) -> Seen:
        return Seen(self.config, self.slot, self.table, self._started_at, self._facts)

    def _facts(self) -> Facts:
        emitter = getattr(self, "_emitter", None)  # there is none before it has its slot
        return Facts(
            self._state,
            None if self.error is None else str(self.error),
            None if emitter is None else emitter.failing,
            None if emitter is None else emitter.failing_since,
        )
