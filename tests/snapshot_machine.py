"""A real shard that goes on, and the snapshots taken of it into any store."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from dalsegno.snapshots.folders import RocksFolders
from dalsegno.snapshots.ports import file_key
from dalsegno.snapshots.restore import restore
from dalsegno.snapshots.take import Origin, Taken, freeze, upload
from dalsegno.state.shard import Shard
from dalsegno.storage.object_store import FolderStore, Store
from dalsegno.testing.builder import SessionBuilder, Written
from dalsegno.testing.moves import play
from shard_lab import IDENTITY, Lab, interleaved

PREFIX = "p"
STATES = RocksFolders()
ORIGIN = Origin("test.events", "w", "test")


def records(sessions: int, seed: int = 1) -> list[Written]:
    """Events of some sessions, interleaved."""
    rnd = random.Random(seed)
    rows = [
        play(SessionBuilder(f"s-{n}").begin().start(), [rnd.getrandbits(16) for _ in range(30)]).records
        for n in range(sessions)
    ]
    return interleaved(rows, rnd)


EVENTS = records(12)


class Machine:
    """A shard on disk that goes on, and the snapshots taken of it."""

    def __init__(self, folder: Path, store: Store | None = None, prefix: str = PREFIX) -> None:
        self.folder, self.prefix = folder, prefix
        self.store = store or FolderStore(folder / "store")
        self.lab = Lab(folder / "shard")
        self.shard = self.lab.open()
        self.published: list[str] = []

    def take(self, *, meanwhile: Callable[[], None] = lambda: None, store: Store | None = None) -> Taken:
        marks = freeze(self.shard.kv.checkpoint, self.folder / "checkpoint", STATES)
        meanwhile()
        return upload(
            self.folder / "checkpoint",
            marks,
            store or self.store,
            self.prefix,
            ORIGIN,
            now=time.time,
            publish=lambda taken, _: self.published.append(taken.id),
        )

    def restored(self, taken: Taken, name: str = "restored") -> Shard:
        """The shard of a snapshot, opened in a generation of its own."""
        restore(taken.id, self.store, self.prefix, self.folder / name, STATES, generation="g", base=taken.id)
        lab = Lab(self.folder / name)
        return Shard.open(
            lab.store(), identity=IDENTITY, schemas=self.shard._work.schemas, projections=[*self._projections()]
        )

    def _projections(self) -> list[object]:
        return [tables.projection for tables in self.shard._work.tables]

    def stored(self, taken: Taken, suffix: str) -> Path:
        """The stored copy of a file of the snapshot whose name ends so."""
        file = next(file for file in taken.manifest.files if file.name.endswith(suffix))
        assert isinstance(self.store, FolderStore)
        return self.store.root / file_key(self.prefix, file.sha256)
