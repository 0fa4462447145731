"""Which process is ours: a pid file with the process's start, since a pid alone is soon another program's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from dalsegno.storage.files import write_atomically

_PS_LIMIT_SECONDS = 10
_children: dict[int, subprocess.Popen[bytes]] = {}


class Process(NamedTuple):
    pid: int
    began: str
    """Identity of the process: the boot and the start tick (Linux), or the start time as ``ps`` prints it."""


def register_child(child: subprocess.Popen[bytes]) -> None:
    """Keep a child that outlives its caller's frame, so that it is reaped when it ends."""
    _children[child.pid] = child


def identify(pid: int) -> Process | None:
    """The process that has this pid now; None if there is none, or only the remains of one."""
    child = _children.get(pid)
    if child is not None and child.poll() is not None:
        del _children[pid]
        return None
    began = _began_linux(pid) if sys.platform == "linux" else _began_ps(pid)
    return Process(pid, began) if began else None


def is_running(process: Process) -> bool:
    return identify(process.pid) == process


def write_pid_file(path: Path, process: Process) -> None:
    write_atomically(path, json.dumps(process._asdict()).encode())


def read_pid_file(path: Path) -> Process | None:
    """The process named in the file; None where there is no file or only half of one."""
    try:
        told = json.loads(path.read_text("utf-8"))
        return Process(int(told["pid"]), str(told["began"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _began_linux(pid: int) -> str | None:
    try:
        # The name in parentheses may hold spaces and parentheses: what follows the last one is split.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return None
    state, start_tick = fields[0], fields[19]
    return None if state in "ZX" else f"{boot}/{start_tick}"


def _began_ps(pid: int) -> str | None:
    told = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        timeout=_PS_LIMIT_SECONDS,
        env={**os.environ, "LC_ALL": "C", "TZ": "UTC"},
    )
    state, _, began = told.stdout.strip().partition(" ")
    return None if not began or state.startswith("Z") else began.strip()
