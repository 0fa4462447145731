"""The shards of one partition in one slot: generations beside each other, and a pointer to the one that is read.

    <slot>/<topic id>/<partition>/
        CURRENT                   the name of the folder that readers see (replaced whole)
        <generation>.<n>/         one building of the shard; n tells apart two attempts at the same generation
        <generation>.<n>.tmp/     a restore in progress; worthless after a crash, deleted at the next assignment

A generation is never changed into another: the new one is built beside the one that is read, and the partition switches
by one rename of the pointer. The protocol of the switch stands in ``dalsegno.streams.switch``.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dalsegno.errors import StoreDamaged
from dalsegno.state.slot import slot_folders
from dalsegno.storage.files import sync_folder, write_atomically

POINTER = "CURRENT"
TEMPORARY = ".tmp"
_TOPIC_ID = re.compile(r"[0-9a-f]{32}\Z")
_FOLDER = re.compile(r"([0-9A-Za-z_-]{1,64})\.([0-9]{1,9})\Z")


class PartitionFolder:
    """The folder of one partition in one slot. Only the worker that holds the slot changes it."""

    def __init__(self, slot_folder: Path, topic_id: str, partition: int) -> None:
        self.path = slot_folder / topic_id / str(partition)
        self.partition = partition

    def current(self) -> str | None:
        """Name of the folder that readers see; None before the first one. Raises StoreDamaged if it is not there."""
        try:
            name = (self.path / POINTER).read_bytes().decode("ascii", "replace").strip()
        except FileNotFoundError:
            return None
        if not _FOLDER.match(name) or not (self.path / name).is_dir():
            raise StoreDamaged(
                f"{self.path / POINTER} points to {name!r}, which is not there",
                wanted="the folder of a shard",
                todo="delete the pointer; the worker builds the partition again from a snapshot or the log",
                partition=self.partition,
            )
        return name

    def point_to(self, name: str) -> None:
        """Let readers see this folder from now on: one rename."""
        write_atomically(self.path / POINTER, name.encode("ascii"))

    def folders(self) -> list[str]:
        """Names of all whole shard folders, oldest attempt first."""
        if not self.path.is_dir():
            return []
        names = [entry.name for entry in self.path.iterdir() if entry.is_dir() and _FOLDER.match(entry.name)]
        return sorted(names, key=lambda name: (generation_of(name), int(name.rpartition(".")[2])))

    def next_name(self, generation: str) -> str:
        """A name that no folder of this generation has had among those that are there."""
        taken = [int(name.rpartition(".")[2]) for name in self.folders() if generation_of(name) == generation]
        return f"{generation}.{max(taken, default=0) + 1}"

    def temporary(self, name: str) -> Path:
        """An absent folder to restore into; ``settle`` gives it its name."""
        part = self.path / (name + TEMPORARY)
        shutil.rmtree(part, ignore_errors=True)
        self.path.mkdir(parents=True, exist_ok=True)
        return part

    def settle(self, name: str) -> Path:
        """Give a restored folder its name: from now on it is a shard."""
        whole = self.path / name
        (self.path / (name + TEMPORARY)).rename(whole)
        sync_folder(self.path)
        return whole

    def delete(self, name: str) -> None:
        """Delete a folder that is not the current one. It loses its name first, so that half of it is never a shard."""
        if name == self.current():
            raise StoreDamaged(f"{name} is the current shard of partition {self.partition}", wanted="another folder")
        part = self.path / (name + TEMPORARY)
        shutil.rmtree(part, ignore_errors=True)
        (self.path / name).rename(part)
        shutil.rmtree(part, ignore_errors=True)

    def sweep(self) -> None:
        """Delete what a crash left half done."""
        if not self.path.is_dir():
            return
        for entry in self.path.iterdir():
            if entry.is_dir() and entry.name.endswith(TEMPORARY):
                shutil.rmtree(entry, ignore_errors=True)


def generation_of(name: str) -> str:
    """The generation in a folder's name."""
    return name.rpartition(".")[0]


class CurrentShard(NamedTuple):
    """A shard that readers on this machine may open: its slot, topic, partition and folder."""

    slot: Path
    topic_id: str
    partition: int
    folder: Path


def current_shards(data: Path, prefix: str, topic_id: str | None = None) -> Iterator[CurrentShard]:
    """The current shard of every partition in every slot of this machine. A partition may be in several slots: the one
    with the greatest cursor is the one to read. A damaged pointer is left out."""
    for slot in slot_folders(data, prefix):
        for topic in sorted(entry for entry in slot.iterdir() if entry.is_dir() and _TOPIC_ID.match(entry.name)):
            if topic_id is not None and topic.name != topic_id:
                continue
            for entry in sorted(e for e in topic.iterdir() if e.name.isdigit()):
                folder = PartitionFolder(slot, topic.name, int(entry.name))
                try:
                    name = folder.current()
                except StoreDamaged:
                    continue
                if name is not None:
                    yield CurrentShard(slot, topic.name, folder.partition, folder.path / name)
