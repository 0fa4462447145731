"""A store in memory and shards that are one JSON file: enough to run the protocols step by step."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from dalsegno.errors import StoreDamaged
from dalsegno.model.cursor import Cursor
from dalsegno.snapshots.manifest import CursorMark, Marks, ProjectionMark
from dalsegno.storage.object_store import Stored

PREFIX = "p"


class FakeStore:
    """Remembers the order of writing; can run full, refuse reading, and tell any time."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.modified: dict[str, float] = {}
        self.clock = 1_000_000.0
        self.room: int | None = None
        self.forbidden: set[str] = set()
        self.order: list[str] = []

    def _write(self, key: str, source: Path | bytes) -> None:
        content = source if isinstance(source, bytes) else source.read_bytes()
        if self.room is not None and sum(map(len, self.objects.values())) + len(content) > self.room:
            raise OSError(errno.ENOSPC, "No space left on device", key)
        self.objects[key] = content
        self.modified[key] = self.clock
        self.order.append(key)

    def put_if_absent(self, key: str, source: Path | bytes) -> bool:
        if key in self.objects:
            return False
        self._write(key, source)
        return True

    def put(self, key: str, source: Path | bytes) -> None:
        self._write(key, source)

    def read(self, key: str) -> bytes | None:
        if key in self.forbidden:
            raise PermissionError(errno.EACCES, "Permission denied", key)
        return self.objects.get(key)

    def download(self, key: str, target: Path) -> bool:
        content = self.read(key)
        if content is not None:
            target.write_bytes(content)
        return content is not None

    def info(self, key: str) -> Stored | None:
        return Stored(key, len(self.objects[key]), self.modified[key]) if key in self.objects else None

    def list(self, prefix: str) -> Iterable[Stored]:
        return [
            Stored(key, len(value), self.modified[key]) for key, value in self.objects.items() if key.startswith(prefix)
        ]

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)


class FakeFolders:
    """A shard is ``state.json`` beside tables that nobody looks into."""

    def marks(self, folder: Path) -> Marks:
        try:
            found = json.loads((folder / "state.json").read_bytes())
        except (OSError, ValueError) as error:
            raise StoreDamaged(f"{folder} holds no shard: {error}") from error
        projections = {name: ProjectionMark(*mark) for name, mark in found["projections"].items()}
        return Marks(CursorMark(**found["cursor"]).cursor(), found["generation"], found["base"], projections)

    def adopt(self, folder: Path, generation: str, base: str) -> None:
        found = json.loads((folder / "state.json").read_bytes())
        found.update(generation=generation, base=base)
        (folder / "state.json").write_text(json.dumps(found))


class FakeShard:
    """Something that can make a checkpoint of itself."""

    def __init__(self, next_offset: int = 100, partition: int = 0, generation: str = "first", base: str = "-") -> None:
        key = f"s-{partition}:{next_offset}:".encode() + b"ab" * 32
        self.cursor = Cursor(next_offset, "c1", "t1", partition, 4, 2, next_offset - 1, key)
        self.generation = generation
        self.base = base
        self.projections = {"sessions": (1, f"{next_offset:064x}"), "tools": (3, f"{next_offset + 1:064x}")}
        self.tables = {"000001.sst": b"old rows" * 100, "sub/000002.sst": b"rows up to %d" % next_offset}

    def state(self) -> Mapping[str, object]:
        cursor = {name: getattr(CursorMark.of(self.cursor), name) for name in CursorMark.__struct_fields__}
        return {
            "cursor": cursor,
            "generation": self.generation,
            "base": self.base,
            "projections": self.projections,
        }

    def checkpoint(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "state.json").write_text(json.dumps(self.state()))
        for name, content in self.tables.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
