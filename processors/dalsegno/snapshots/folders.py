"""Looking into a shard's folder that nobody has open: what it says of itself, and giving it another generation."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from dalsegno.errors import NotFound, StoreDamaged
from dalsegno.snapshots.manifest import Marks, ProjectionMark
from dalsegno.state.kv import STATE, KeyReader
from dalsegno.state.layout import COPY_KEY, IDENTITY_KEY, POSITION_KEY, decode_identity, decode_position, encode_meta
from dalsegno.state.rocks import DEFAULT_BUDGET, RocksBudget, RocksStore, open_secondary


class RocksFolders:
    """The filling of ``StateFolders`` for shards in RocksDB."""

    def __init__(self, budget: RocksBudget = DEFAULT_BUDGET) -> None:
        self._budget = budget

    def marks(self, folder: Path) -> Marks:
        """What the state says of itself. The folder is only read. Raises StoreDamaged, NotPermitted."""
        scratch = folder.with_name(folder.name + ".look")
        try:
            try:
                store = open_secondary(folder, scratch, self._budget)
            except NotFound as error:
                raise _damaged(folder, "no store is there") from error
            try:
                return read_marks(store, str(folder))
            finally:
                store.close()
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def adopt(self, folder: Path, generation: str, base: str) -> None:
        """Write the new generation and base into the shard, make it a copy of its own, and bring it onto the disk."""
        store = RocksStore.open(folder, self._budget, create=False)
        try:
            identity = decode_identity(_meta(store, IDENTITY_KEY, str(folder)), str(folder))
            batch = store.batch()
            batch.delete(STATE, COPY_KEY)
            batch.put(
                STATE, IDENTITY_KEY, encode_meta(msgspec.structs.replace(identity, generation=generation, base=base))
            )
            store.write(batch)
            store.flush()
        finally:
            store.close()


def read_marks(store: KeyReader, path: str) -> Marks:
    """The marks of an open store. Raises StoreDamaged."""
    identity = decode_identity(_meta(store, IDENTITY_KEY, path), path)
    position = decode_position(_meta(store, POSITION_KEY, path), path)
    projections = {name: ProjectionMark(kept.version, kept.total.hex()) for name, kept in position.digests.items()}
    return Marks(position.cursor, identity.generation, identity.base, projections)


def _meta(store: KeyReader, key: bytes, path: str) -> bytes:
    value = store.get(STATE, key)
    if value is None:
        raise _damaged(Path(path), f"it has no row {key.decode()}")
    return value


def _damaged(folder: Path, what: str) -> StoreDamaged:
    return StoreDamaged(
        f"{folder} holds no shard: {what}",
        wanted="a shard's RocksDB",
        todo="set the folder aside; the shard is built again from a snapshot or from the log",
        path=str(folder),
    )
