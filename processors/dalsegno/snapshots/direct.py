"""Snapshots of this machine's shards while no worker runs: the slots are locked, and their shards checkpointed."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from pathlib import Path

from dalsegno.errors import DalsegnoError, StoreLocked
from dalsegno.snapshots.folders import RocksFolders
from dalsegno.snapshots.manifest import Marks
from dalsegno.snapshots.ports import StateFolders
from dalsegno.snapshots.request import Answers
from dalsegno.snapshots.take import Origin, Taken, freeze, upload
from dalsegno.state.generations import CurrentShard, current_shards
from dalsegno.state.rocks import RocksStore
from dalsegno.state.slot import Slot, is_held, open_slot, slot_folders
from dalsegno.storage.object_store import Store

_CHECKPOINT = "snapshot.tmp"


def snapshot_local_shards(
    data: Path,
    prefix: str,
    topic: str,
    topic_id: str,
    store: Store,
    partitions: Collection[int],
    *,
    reason: str,
    schemas: Iterable[bytes],
    publish: Callable[[Taken, str], None],
    now: Callable[[], float] = time.time,
    states: StateFolders | None = None,
) -> Answers:
    """Take a snapshot of each partition's furthest current shard on this machine.

    A partition without a shard here is among the silent ones. Raises StoreLocked when a worker holds a slot: it must be
    asked instead.
    """
    looker = states or RocksFolders()
    taken: dict[int, str] = {}
    failed: dict[int, str] = {}
    with ExitStack() as stack:
        slots = {slot.folder: slot for slot in _lock_all(data, prefix, stack)}
        furthest = _furthest(current_shards(data, prefix, topic_id), looker, failed)
        for number in sorted(set(partitions) & furthest.keys()):
            shard, _ = furthest[number]
            worker = slots[shard.slot].id if shard.slot in slots else str(shard.slot)
            origin = Origin(topic, worker, reason, schemas=schemas)
            try:
                taken[number] = _take(shard, store, prefix, origin, publish, now, looker).id
                failed.pop(number, None)
            except DalsegnoError as error:
                failed[number] = str(error)
    silent = set(partitions) - taken.keys() - failed.keys()
    wanted = set(partitions)
    return Answers(taken, {n: why for n, why in failed.items() if n in wanted}, tuple(sorted(silent)))


def _lock_all(data: Path, prefix: str, stack: ExitStack) -> list[Slot]:
    slots = []
    for folder in slot_folders(data, prefix):
        if is_held(folder):
            raise StoreLocked(
                f"slot {folder.name} is held by a running worker that is not in the group",
                wanted="workers in the group, or none at all",
                todo="wait until it has joined ('dalsegno worker status'), then ask again",
                folder=str(folder),
            )
        slot = open_slot(data, prefix, int(folder.name))
        stack.callback(slot.close)
        slots.append(slot)
    return slots


def _furthest(
    shards: Iterable[CurrentShard], states: StateFolders, failed: dict[int, str]
) -> dict[int, tuple[CurrentShard, Marks]]:
    found: dict[int, tuple[CurrentShard, Marks]] = {}
    for shard in shards:
        try:
            marks = states.marks(shard.folder)
        except DalsegnoError as error:
            failed[shard.partition] = str(error)
            continue
        other = found.get(shard.partition)
        if other is None or marks.cursor.next_offset > other[1].cursor.next_offset:
            found[shard.partition] = (shard, marks)
    return found


def _take(
    shard: CurrentShard,
    store: Store,
    prefix: str,
    origin: Origin,
    publish: Callable[[Taken, str], None],
    now: Callable[[], float],
    states: StateFolders,
) -> Taken:
    folder = shard.folder.parent / _CHECKPOINT
    open_store = RocksStore.open(shard.folder, create=False)
    try:
        marks = freeze(open_store.checkpoint, folder, states)
    finally:
        open_store.close()
    return upload(folder, marks, store, prefix, origin, now=now, publish=publish)
