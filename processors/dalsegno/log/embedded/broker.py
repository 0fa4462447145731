"""Start, stop and look at the embedded broker of one data folder.

Folder ``<data>/broker``: ``jars/``, ``server.properties``, ``broker.json`` (cluster id, ports), ``broker.pid``,
``broker.log``, ``log/`` (Kafka's data), ``lock`` (who starts or stops), ``running`` (held by the broker itself). Start,
under the lock:

1. Running already (pid file, same process, answers)? Then nothing is done.
2. Jars: taken or fetched, each with its locked digest.
3. Format: Kafka's data folder is formatted, then ``broker.json`` is written. A crash between leaves a data folder
   without ``broker.json``: it is formatted again if it holds no topic, taken over if it says itself which cluster it is
   of, else refused.
4. Ports: the remembered ones, unless another program took them; new ones are remembered before the process starts.
5. The process is started with a lock of its own, then its pid file is written. A crash between the two leaves a broker
   that no pid file names; the next start sees its lock and refuses, since two on one folder damage Kafka's metadata.
6. Ready: the broker answers a metadata request with this cluster's id.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from dalsegno.errors import BrokerStartFailed, DiskFull, PortTaken, WaitTimeout
from dalsegno.log.embedded import process
from dalsegno.log.embedded.config import JVM_OPTIONS, LOOPBACK, free_ports, port_is_free, properties
from dalsegno.log.embedded.failures import explain, last_lines
from dalsegno.log.embedded.format import ensure_formatted
from dalsegno.log.embedded.jars import KAFKA_VERSION, class_path, ensure_jars
from dalsegno.log.embedded.java import find_java
from dalsegno.log.embedded.locks import locked, to_hand_over
from dalsegno.log.embedded.probe import answering_cluster
from dalsegno.storage.files import write_atomically
from dalsegno.storage.object_store import os_errors

_log = logging.getLogger("dalsegno.log.embedded")

READY_LIMIT_SECONDS = 60.0
STOP_LIMIT_SECONDS = 30.0
_FETCH_LIMIT_SECONDS = 600.0
_KILL_LIMIT_SECONDS = 10.0
_LOOK_AGAIN_SECONDS = 0.05
_STATUS_LIMIT_SECONDS = 3.0
_PROBE_LIMIT_SECONDS = 2.0
# A killed process looks gone a moment before its last thread is, and its lock with it.
_REMAINS_LIMIT_SECONDS = 5.0
_PORT_TRIES = 3
# Jars, an empty log with its preallocated indexes, and room to work.
_SPACE_NEEDED_BYTES = 256 * 1024 * 1024
_LOG_KEPT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class BrokerStatus:
    state: Literal["running", "not answering", "stopped", "never started"]
    bootstrap: str | None
    """``host:port`` for clients; also of a stopped broker, which will take it again if it is free."""
    pid: int | None
    cluster_id: str | None
    kafka_version: str
    folder: Path
    log_file: Path


class _Remembered(NamedTuple):
    cluster_id: str
    port: int
    controller_port: int


@dataclass(frozen=True)
class _Folder:
    path: Path

    @property
    def jars(self) -> Path:
        return self.path / "jars"

    @property
    def pid_file(self) -> Path:
        return self.path / "broker.pid"

    @property
    def log_file(self) -> Path:
        return self.path / "broker.log"

    @property
    def memory(self) -> Path:
        return self.path / "broker.json"

    @property
    def held_while_running(self) -> Path:
        return self.path / "running"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    def remembered(self) -> _Remembered | None:
        try:
            told = json.loads(self.memory.read_text("utf-8"))
            return _Remembered(str(told["cluster_id"]), int(told["port"]), int(told["controller_port"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def remember(self, what: _Remembered) -> None:
        write_atomically(self.memory, json.dumps({**what._asdict(), "kafka": KAFKA_VERSION}).encode())


def start(
    data: Path,
    *,
    port: int | None = None,
    java: str | None = None,
    overrides: Mapping[str, str] | None = None,
    ready_limit_seconds: float = READY_LIMIT_SECONDS,
    announce: Callable[[str], None] = _log.info,
) -> str:
    """Start the broker of this data folder, or find it running; the bootstrap address for clients.

    ``port``: this one or an error; else the one of the last start, else any free one. ``java``: the setting
    DALSEGNO_JAVA. ``overrides``: broker settings (names of ``server.properties``) for this start; a broker that runs
    already keeps its own. ``announce`` is told what takes long, once.
    Raises JarsUnavailable, JarDamaged, JavaMissing, DiskFull, NotPermitted, PortTaken, BrokerStartFailed, WaitTimeout.
    """
    folder = _Folder(data.absolute() / "broker")
    _check_space(folder.path)
    with (
        os_errors(f"start the broker of {folder.path}"),
        locked(folder.lock, ready_limit_seconds + _FETCH_LIMIT_SECONDS),
    ):
        running = _running(folder)
        if running is not None:
            return _wait_ready(folder, running, ready_limit_seconds, port)
        _refuse_unnamed(folder)
        executable = find_java(java)
        ensure_jars(folder.jars, announce)
        _shorten_log(folder.log_file)
        _format(folder, executable, port)
        for attempt in range(1, _PORT_TRIES + 1):
            memory = _choose_ports(folder, port, announce)
            announce(
                f"starting Apache Kafka {KAFKA_VERSION} on {LOOPBACK}:{memory.port} for the data folder "
                f"{folder.path.parent}; it runs until 'dalsegno broker stop' (log: {folder.log_file})"
            )
            child = _spawn(folder, executable, memory, overrides or {})
            try:
                return _wait_ready(folder, child, ready_limit_seconds, port)
            except PortTaken:  # somebody was quicker between the choice and the start
                if port is not None or attempt == _PORT_TRIES:
                    raise
    raise AssertionError("unreachable")


def stop(data: Path, *, limit_seconds: float = STOP_LIMIT_SECONDS) -> bool:
    """Stop the broker of this data folder; False if none was running. Data stay.

    A broker that has not ended within the limit is killed: its log recovers at the next start.
    Raises WaitTimeout, NotPermitted, and BrokerStartFailed for a broker that runs and that no pid file names.
    """
    folder = _Folder(data.absolute() / "broker")
    if not folder.path.is_dir():
        return False
    with os_errors(f"stop the broker of {folder.path}"), locked(folder.lock, READY_LIMIT_SECONDS):
        running = _running(folder)
        if running is not None:
            _end(running, limit_seconds)
        else:
            _refuse_unnamed(folder)
        folder.pid_file.unlink(missing_ok=True)
        return running is not None


def status(data: Path) -> BrokerStatus:
    """What is known about the broker of this data folder. Starts nothing and changes nothing."""
    folder = _Folder(data.absolute() / "broker")
    with os_errors(f"look at the broker of {folder.path}"):
        memory, running = folder.remembered(), _running(folder)
    bootstrap = f"{LOOPBACK}:{memory.port}" if memory else None
    state: Literal["running", "not answering", "stopped", "never started"]
    if running is None:
        state = "stopped" if memory else "never started"
    else:
        answers = bootstrap and answering_cluster(bootstrap, _STATUS_LIMIT_SECONDS)
        state = "running" if memory and answers == memory.cluster_id else "not answering"
    return BrokerStatus(
        state=state,
        bootstrap=bootstrap,
        pid=running.pid if running else None,
        cluster_id=memory.cluster_id if memory else None,
        kafka_version=KAFKA_VERSION,
        folder=folder.path,
        log_file=folder.log_file,
    )


def _running(folder: _Folder) -> process.Process | None:
    """Our broker's process; None also where the pid file is stale or its pid is another program's by now."""
    named = process.read_pid_file(folder.pid_file)
    return named if named is not None and process.is_running(named) else None


def _format(folder: _Folder, java: Path, port: int | None) -> None:
    memory = folder.remembered()
    known = memory.cluster_id if memory else None
    wanted = (memory.port, memory.controller_port) if memory else (port or 0, 0)
    cluster_id = ensure_formatted(folder.path, java, known)
    if memory is None or cluster_id != memory.cluster_id:
        folder.remember(_Remembered(cluster_id, *wanted))


def _choose_ports(folder: _Folder, port: int | None, announce: Callable[[str], None]) -> _Remembered:
    memory = folder.remembered()
    assert memory is not None  # step 3 wrote it
    if port is not None and not port_is_free(port):
        raise PortTaken(
            f"port {port} on {LOOPBACK} is taken by another program",
            todo="name another port, or none to let one be chosen",
            port=port,
        )
    chosen = port or memory.port
    if not chosen or not port_is_free(chosen):
        (fresh,) = free_ports(1)
        if chosen:
            announce(f"port {chosen} of the last start is taken by another program: using {fresh}")
        chosen = fresh
    controller = memory.controller_port
    if not controller or controller == chosen or not port_is_free(controller):
        controller = next(free for free in free_ports(2) if free != chosen)
    memory = memory._replace(port=chosen, controller_port=controller)
    folder.remember(memory)
    return memory


def _spawn(folder: _Folder, java: Path, memory: _Remembered, overrides: Mapping[str, str]) -> process.Process:
    settings = properties(memory.port, memory.controller_port, overrides)
    write_atomically(folder.path / "server.properties", settings.encode())
    command = [str(java), *JVM_OPTIONS, "-cp", class_path("jars"), "kafka.Kafka", "server.properties"]
    with folder.log_file.open("ab") as log, to_hand_over(folder.held_while_running, _REMAINS_LIMIT_SECONDS) as lock:
        if lock is None:
            raise _unnamed(folder)
        child = subprocess.Popen(
            command,
            pass_fds=[lock],
            cwd=folder.path,
            env={**os.environ, "LC_ALL": "C.UTF-8"},  # else Java cannot open a path with other letters than ASCII
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C in the terminal is for the command, not for the broker
        )
    process.register_child(child)
    started = process.identify(child.pid)
    if started is None:
        raise explain(folder.log_file, memory.port)
    process.write_pid_file(folder.pid_file, started)
    return started


def _refuse_unnamed(folder: _Folder) -> None:
    with to_hand_over(folder.held_while_running, _REMAINS_LIMIT_SECONDS) as free:
        if free is None:
            raise _unnamed(folder)


def _unnamed(folder: _Folder) -> BrokerStartFailed:
    return BrokerStartFailed(
        f"a broker that no pid file names is running on {folder.path}",
        wanted="one broker at most on a data folder",
        todo="end that java process (its command line says kafka.Kafka, its folder is this one), then start again",
        folder=str(folder.path),
    )


def _wait_ready(folder: _Folder, running: process.Process, limit_seconds: float, port: int | None) -> str:
    memory = folder.remembered()
    if memory is None:
        raise BrokerStartFailed(
            f"process {running.pid} is the broker of {folder.path}, but {folder.memory.name} is missing or damaged",
            todo=f"end process {running.pid} and start again",
        )
    if port is not None and port != memory.port:
        raise PortTaken(
            f"the broker of {folder.path} runs on port {memory.port} already",
            wanted=f"port {port}",
            todo="stop it first ('dalsegno broker stop'), or leave the port out",
            port=memory.port,
        )
    bootstrap = f"{LOOPBACK}:{memory.port}"
    deadline = time.monotonic() + limit_seconds
    while time.monotonic() < deadline:
        if not process.is_running(running):
            folder.pid_file.unlink(missing_ok=True)
            raise explain(folder.log_file, memory.port)
        # A client only once somebody listens: an early one would wait out its back-off.
        if not port_is_free(memory.port) and answering_cluster(bootstrap, _PROBE_LIMIT_SECONDS) == memory.cluster_id:
            return bootstrap
        time.sleep(_LOOK_AGAIN_SECONDS)
    raise WaitTimeout(
        f"the broker did not answer on {bootstrap} within {limit_seconds:.0f} s; its log ends with:\n"
        + last_lines(folder.log_file),
        todo=f"see {folder.log_file}; 'dalsegno broker stop' ends it",
        log_file=str(folder.log_file),
    )


def _end(running: process.Process, limit_seconds: float) -> None:
    for sign, limit in ((signal.SIGTERM, limit_seconds), (signal.SIGKILL, _KILL_LIMIT_SECONDS)):
        try:
            os.kill(running.pid, sign)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if not process.is_running(running):
                return
            time.sleep(_LOOK_AGAIN_SECONDS)
        _log.warning("broker did not end on %s within %.0f s", sign.name, limit)
    raise WaitTimeout(f"process {running.pid} does not end, not even on SIGKILL", todo="see what holds it (disk?)")


def _check_space(folder: Path) -> None:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < _SPACE_NEEDED_BYTES:
        raise DiskFull(
            f"{free / 1e6:.0f} MB are free at {existing}",
            wanted=f"{_SPACE_NEEDED_BYTES / 1e6:.0f} MB to start the broker",
            todo="free some space, or set DALSEGNO_DATA to a folder on another disk",
            folder=str(folder),
            needed_bytes=_SPACE_NEEDED_BYTES,
        )


def _shorten_log(log_file: Path) -> None:
    """Keep one older log, so that a data folder that lives for years does not fill its disk with it."""
    if log_file.exists() and log_file.stat().st_size > _LOG_KEPT_BYTES:
        log_file.replace(log_file.with_suffix(".log.1"))
