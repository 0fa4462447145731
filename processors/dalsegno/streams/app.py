"""The worker as a Faust application: everything runs from here.

    reader (service, own thread) -> channel of two batches -> agent ``project`` -> shard.apply on a thread
    emitter, control listener, supervisor, announcer: services beside it, each on a thread of its own

Faust's own consumer stays out: it commits past messages that are in flight, and knows neither pause with a later seek
nor offsets with metadata. What is used of it is the application, its services, the channel and the agent. Faust
restarts an agent that fails, but not its batch; so no exception leaves ``project``.

Protocol *stop* (SIGTERM, SIGINT, or the bounds reached):

1. the reader fetches no more; batches in the channel are dropped, the one being applied is finished;
2. the emitter sends what is in the outboxes;
3. the consumer leaves (a static member stays known until its session time-out), the shards are closed;
4. the slot is given free.

A crash at any of these is like any other: each shard has its cursor, the group its commit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import faust
from faust.app.base import BootStrategy
from faust.contrib.asgi import faust_app_running

from dalsegno.errors import WaitTimeout
from dalsegno.state.collector import collect_rarely
from dalsegno.streams.config import WorkerConfig
from dalsegno.streams.roster import LOOK_SECONDS
from dalsegno.streams.worker import READER, Worker

log = logging.getLogger("dalsegno.streams")

CHANNEL_BATCHES = 2
SUPERVISE_SECONDS = 0.1
SERVICE_STOP_SECONDS = 60.0
STOP_STEP_SECONDS = 240.0
"""Longer than the last transactions or leaving the group take by their own limits."""
EXIT_ABORTED = 130
_T = TypeVar("_T")


def run_worker(config: WorkerConfig, until: Mapping[int, int] | None = None) -> None:
    """Run one worker until SIGTERM or SIGINT, or until every partition has reached its bound.

    ``until``: partition -> end bound (an offset). The worker ends when every partition's cursor is at its bound, its
    outbox is empty and that position is committed in its generation; partitions that other workers of the group hold
    count by their committed offset. A second signal ends the process at once, without flushing.

    Raises what ends the worker: StoreLocked, NotPermitted, TopicMissing, TopicDrift, BrokerUnavailable, Conflict
    (another process has taken over this slot's names); with ``until`` also what stops a partition for good.
    """
    collect_rarely()
    worker = Worker(config, until)
    try:
        asyncio.run(_run(worker))
    except Exception as error:
        worker.fail(error)
    finally:
        worker.close()
    if worker.hangs:
        worker.end_process()
    if worker.error is not None:
        raise worker.error


async def _run(worker: Worker) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(stop.set)

    worker.on_stop = wake
    remove_signals = _install_signals(loop, worker)
    try:
        await asyncio.to_thread(worker.prepare)
        await _serve(worker, stop)
    finally:
        remove_signals()
        worker.on_stop = _nothing


def _nothing() -> None:
    """What a stop wakes when nothing runs, and what the agent's thread does when it has nothing else to do."""


async def _serve(worker: Worker, stop: asyncio.Event) -> None:
    app = _App(
        worker.config.names.group,
        broker="kafka://none:1",
        store="memory://",
        topic_disable_leader=True,
        web_enabled=False,
        datadir=str(worker.slot.folder / "faust"),
    )
    loop = asyncio.get_running_loop()
    batches = app.channel(maxsize=CHANNEL_BATCHES)
    apply_thread = ThreadPoolExecutor(1, "dalsegno-apply")

    @app.agent(batches, name="project")
    async def project(stream: Any) -> None:
        """Apply batches in the order of their arrival. Whatever happens to one, its partition alone stops."""
        async for batch in stream:
            await loop.run_in_executor(apply_thread, worker.at_work, "agent", partial(worker.apply, batch))

    reader = _Reader(worker, batches)
    emitter = _Repeated("emitter", worker.config.emit_interval_seconds, worker.emit, worker)
    others = [
        _Repeated("control", 0.0, worker.listen, worker),
        _Repeated("supervisor", SUPERVISE_SECONDS, worker.supervise, worker),
        _Repeated("announcer", LOOK_SECONDS, worker.announce, worker),
    ]
    try:
        async with faust_app_running(app, stop_timeout=SERVICE_STOP_SECONDS):
            app.flow_control.resume()  # its own consumer would do this at the first assignment
            for service in (emitter, *others, reader):
                await app.add_runtime_dependency(service)
            await stop.wait()
            log.info("worker_stopping", extra={"reason": worker.stop_reason})
            for service in (reader, *others, emitter):
                await service.finish()
            worker.fault("stop.1")
            await _within(STOP_STEP_SECONDS, "last transaction", reader.call(worker.last_emit))
            worker.fault("stop.2")
            await _within(STOP_STEP_SECONDS, "leaving of its group", reader.call(worker.leave))
            worker.fault("stop.3")
        await _within(SERVICE_STOP_SECONDS, "agent", loop.run_in_executor(apply_thread, _nothing))
    finally:
        # Without waiting: a batch that never ends would keep this thread from seeing another signal.
        apply_thread.shutdown(wait=False, cancel_futures=True)


async def _within(seconds: float, what: str, work: Awaitable[Any]) -> None:
    """Wait for a part of the stop. Raises WaitTimeout; the thread that does it goes on, and ends with the process."""
    try:
        await asyncio.wait_for(work, seconds)
    except TimeoutError as error:
        raise WaitTimeout(
            f"the worker's {what} did not come to an end within {seconds:g} s",
            wanted="an orderly stop",
            todo="start the worker again: it goes on from its shards and the group's commits",
        ) from error


class _NoKafka(BootStrategy):
    """Faust without its own Kafka client."""

    enable_kafka = False


class _App(faust.App):
    BootStrategy = _NoKafka


class _Threaded(faust.Service):
    """A service whose work is done on one thread of its own, until ``finish``."""

    def __init__(self, name: str, worker: Worker) -> None:
        super().__init__()
        self._name = name
        self._worker = worker
        self._thread = ThreadPoolExecutor(1, f"dalsegno-{name}")
        self._finished = asyncio.Event()
        self._wake = asyncio.Event()
        self.finishing = False

    @property
    def label(self) -> str:
        return self._name

    async def call(self, function: Callable[[], _T]) -> _T:
        """Run on this service's thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._worker.at_work, self._name, function)

    async def finish(self) -> None:
        """End the work at the edge of a round and wait for that."""
        self.finishing = True
        self._wake.set()
        await _within(SERVICE_STOP_SECONDS, self._name, self._finished.wait())

    @faust.Service.task
    async def _work(self) -> None:
        try:
            while not self.finishing:
                await self.round()
        except Exception as error:
            # What ends one service ends the worker: half of it running would look healthy.
            self._worker.fail(error)
        finally:
            self._finished.set()

    async def round(self) -> None:
        raise NotImplementedError

    async def on_stop(self) -> None:
        self.finishing = True
        self._thread.shutdown(wait=False)


class _Reader(_Threaded):
    def __init__(self, worker: Worker, batches: Any) -> None:
        super().__init__(READER, worker)
        self._batches = batches
        self._joined = False

    async def round(self) -> None:
        if not self._joined:
            await self.call(self._worker.join)
            self._joined = True
        for batch in await self.call(self._worker.read):
            await self._batches.send(value=batch)


class _Repeated(_Threaded):
    """Calls a function again and again: at once while it returns True, else after the interval."""

    def __init__(self, name: str, interval_seconds: float, function: Callable[[], bool], worker: Worker) -> None:
        super().__init__(name, worker)
        self._interval = interval_seconds
        self._function = function

    async def round(self) -> None:
        if await self.call(self._function) or self._interval == 0:
            return
        try:
            await asyncio.wait_for(self._wake.wait(), self._interval)
        except TimeoutError:
            return


def _install_signals(loop: asyncio.AbstractEventLoop, worker: Worker) -> Callable[[], None]:
    """SIGTERM and SIGINT stop the worker at a batch's edge; the second one ends the process as it is."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None
    seen = 0

    def stop(name: str) -> None:
        nonlocal seen
        seen += 1
        if seen > 1:
            os._exit(EXIT_ABORTED)
        worker.stop(name)

    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop, number.name)

    def remove() -> None:
        for number in signals:
            loop.remove_signal_handler(number)

    return remove
