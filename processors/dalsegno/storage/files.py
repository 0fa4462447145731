"""Files that are there whole or not at all, and names that survive a crash of the machine."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomically(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file so that it is never seen half written. ``durable``: it also survives a crash of the machine.

    One process at a time may write a file.
    """
    part = path.with_name(path.name + ".tmp")
    part.write_bytes(content)
    if durable:
        sync_file(part)
    os.replace(part, path)
    if durable:
        sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Bring a file's content onto the disk."""
    _sync(path, os.O_RDWR)


def sync_folder(path: Path) -> None:
    """Bring the names in a folder (creations, renames) onto the disk."""
    _sync(path, os.O_RDONLY)


def sync_tree(folder: Path) -> None:
    """Bring all files and names below a folder onto the disk."""
    for path in folder.rglob("*"):
        _sync(path, os.O_RDONLY)
    sync_folder(folder)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
