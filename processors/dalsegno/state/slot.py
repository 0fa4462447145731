"""A slot: the data folder of one worker, locked while that worker runs.

    <data>/<prefix>/slots/<n>/
        lock                      held (flock) by the worker of this slot
        id                        made once; the worker's static names in Kafka are built from it
        status.json               what the worker last said about itself (replaced whole)
        <topic id>/<partition>/   that partition's shards, see ``dalsegno.state.generations``

Several workers may run on one machine: each takes the first free slot. A slot keeps its shards, so a worker that starts
again finds its state, and Kafka finds the same static member and ends its pending transaction at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dalsegno.errors import NotPermitted, StoreDamaged, StoreLocked
from dalsegno.storage.files import write_atomically

SLOTS = "slots"
MAX_SLOTS = 256
_ASKER_SECONDS = 1.0
STATUS_FILE = "status.json"
_LOCK_FILE = "lock"
_ID_FILE = "id"
_ID = re.compile(r"[0-9a-f]{32}\Z")


class Slot:
    """A slot that this process holds. ``id`` is 32 hex characters, the same for the life of the folder."""

    def __init__(self, folder: Path, number: int, lock: int) -> None:
        self.folder = folder
        self.number = number
        self._lock: int | None = lock
        self.id = _read_or_make_id(folder)

    def write_status(self, status: Mapping[str, Any]) -> None:
        """Replace ``status.json`` in one step: a reader sees the old one or the new one."""
        write_atomically(self.folder / STATUS_FILE, json.dumps(status, sort_keys=True).encode(), durable=False)

    def close(self) -> None:
        """Give the slot free. The lock also ends with the process, however it ends."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def open_slot(data: Path, prefix: str, number: int | None = None) -> Slot:
    """Take the slot ``number``, or the first free one, and create it where it is missing.

    Raises StoreLocked when it (or every one of the ``MAX_SLOTS``) is taken, NotPermitted when the folder is not ours.
    """
    wanted = range(MAX_SLOTS) if number is None else (number,)
    for candidate in wanted:
        folder = data / prefix / SLOTS / str(candidate)
        lock = _try_lock(folder)
        if lock is None:
            continue
        try:
            return Slot(folder, candidate, lock)
        except BaseException:
            os.close(lock)
            raise
    taken = "every slot" if number is None else f"slot {number}"
    raise StoreLocked(
        f"{taken} in {data / prefix / SLOTS} is held by a running worker",
        wanted="a slot that no other process holds",
        todo="stop that worker, or choose another slot or data folder",
        folder=str(data / prefix / SLOTS),
    )


def slot_folders(data: Path, prefix: str) -> list[Path]:
    """All slots of this machine, held or not, by number."""
    root = data / prefix / SLOTS
    if not root.is_dir():
        return []
    return sorted((entry for entry in root.iterdir() if entry.name.isdigit()), key=lambda entry: int(entry.name))


def is_held(folder: Path) -> bool:
    """Whether a running worker holds this slot."""
    path = folder / _LOCK_FILE
    if not path.exists():
        return False
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        # A shared lock: two askers do not take each other for a worker.
        return not _locked(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def read_status(folder: Path) -> dict[str, Any] | None:
    """What the worker of this slot last wrote; None if it never wrote. Raises StoreDamaged if that is no JSON."""
    path = folder / STATUS_FILE
    try:
        status = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StoreDamaged(
            f"{path} is not JSON: {error}", todo="delete it; a running worker writes it again"
        ) from error
    if not isinstance(status, dict):
        raise StoreDamaged(f"{path} holds no object", todo="delete it; a running worker writes it again")
    return status


def _try_lock(folder: Path) -> int | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError as error:
        raise NotPermitted(
            f"cannot write in {folder}: {error.strerror}",
            todo="give the worker's user the data folder",
            folder=str(folder),
        ) from error
    deadline = time.monotonic() + _ASKER_SECONDS
    while not _locked(handle, fcntl.LOCK_EX):
        # Only ``is_held`` takes a shared lock, and for a moment: where one more fits in, no worker holds the slot.
        if not _locked(handle, fcntl.LOCK_SH) or time.monotonic() > deadline:
            os.close(handle)
            return None
        fcntl.flock(handle, fcntl.LOCK_UN)
    return handle


def _locked(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_or_make_id(folder: Path) -> str:
    path = folder / _ID_FILE
    try:
        found = path.read_bytes().decode("ascii", "replace").strip()
    except FileNotFoundError:
        found = uuid.uuid4().hex
        write_atomically(path, found.encode())
    if not _ID.match(found):
        raise StoreDamaged(
            f"{path} holds no slot id", wanted="32 hex characters", todo="delete this file", folder=str(folder)
        )
    return found
