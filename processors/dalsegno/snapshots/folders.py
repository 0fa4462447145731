"""Looking into a shard's folder that nobody has open: what it says of itself, and giving it another generation."""

from __future__ import annotations

import tempfile
from pathlib import Path

from dalsegno.errors import NotFound, StoreDamaged
from dalsegno.snapshots.manifest import Marks, ProjectionMark
from dalsegno.state import rebuild
from dalsegno.state.kv import KeyReader
from dalsegno.state.rocks import DEFAULT_BUDGET, RocksBudget, RocksStore, open_secondary


class RocksFolders:
    """The filling of ``StateFolders`` for shards in RocksDB."""

    def __init__(self, budget: RocksBudget = DEFAULT_BUDGET) -> None:
        self._budget = budget

    def marks(self, folder: Path) -> Marks:
        """What the state says of itself. The folder is only read; several may look at once. Raises StoreDamaged,
        NotPermitted."""
        with tempfile.TemporaryDirectory(prefix="dalsegno-look-") as scratch:
            try:
                store = open_secondary(folder, Path(scratch), self._budget)
            except NotFound as error:
                raise StoreDamaged(
                    f"{folder} holds no shard: no store is there",
                    wanted="a shard's RocksDB",
                    todo="set the folder aside; the shard is built again from a snapshot or from the log",
                    path=str(folder),
                ) from error
            try:
                return _marks(store, str(folder))
            finally:
                store.close()

    def adopt(self, folder: Path, generation: str, base: str) -> None:
        """Write the new generation and base into the shard, make it a copy of its own, and bring it onto the disk."""
        store = RocksStore.open(folder, self._budget, create=False)
        try:
            rebuild.adopt(store, str(folder), generation, base)
        finally:
            store.close()


def _marks(store: KeyReader, path: str) -> Marks:
    identity, position = rebuild.read_marks(store, path)
    projections = {name: ProjectionMark(kept.version, kept.total.hex()) for name, kept in position.digests.items()}
    return Marks(position.cursor, identity.generation, identity.base, projections)
