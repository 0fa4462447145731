"""The folder of a data set: made beside its place, and moved there when it is whole."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from io import BufferedWriter
from pathlib import Path
from typing import Any, Final

from dalsegno.errors import Conflict, Failed, NegativeVerdict, NotFound
from dalsegno.readers.datasets import card
from dalsegno.readers.datasets.parquet import ParquetFile
from dalsegno.readers.datasets.rows import line_of
from dalsegno.readers.datasets.splits import NAMES
from dalsegno.storage.object_store import os_errors

JSONL, PARQUET = "jsonl", "parquet"
CARD_JSON, CARD_MD = "card.json", "card.md"
_CHUNK_BYTES: Final = 1 << 20


class _SplitFile:
    """One split: its rows in one of the forms, and the sum of their lines as JSON, which is the same for both."""

    def __init__(self, path: Path, *, pairs: bool) -> None:
        self.path = path
        self.rows = 0
        self._sum = sha256()
        self._lines: BufferedWriter | None = None
        self._parquet: ParquetFile | None = None
        if path.suffix == f".{PARQUET}":
            self._parquet = ParquetFile(path, pairs=pairs)
        else:
            self._lines = path.open("wb")

    def write(self, data: dict[str, Any]) -> None:
        line = line_of(data).encode("utf-8") + b"\n"
        self._sum.update(line)
        self.rows += 1
        if self._lines is not None:
            self._lines.write(line)
        elif self._parquet is not None:
            self._parquet.write(data)

    def close(self) -> None:
        for each in (self._lines, self._parquet):
            if each is not None:
                each.close()

    def facts(self) -> dict[str, Any]:
        return {
            "file": self.path.name,
            "rows": self.rows,
            "rows_sha256": self._sum.hexdigest(),
            "file_sha256": _sum_of(self.path),
        }


class DataSetFolder:
    """A context manager. What is there when it is left without ``finish`` goes away again.

    Raises Conflict for a place that is taken, DiskFull, NotPermitted, StoreDamaged.
    """

    def __init__(self, target: Path, form: str, *, pairs: bool) -> None:
        self._target = target
        self._form = form
        self._pairs = pairs
        self._files: dict[str, _SplitFile] = {}
        with os_errors(f"write {target}"):
            if target.exists() and (not target.is_dir() or any(target.iterdir())):
                raise Conflict(
                    f"{target} is {'not empty' if target.is_dir() else 'a file'}",
                    wanted="a folder that is new or empty",
                    todo="name another one, or take this one away",
                    path=str(target),
                )
            # resolved: 'a/..' has no name of its own
            self.work = Path(tempfile.mkdtemp(prefix=f".{target.resolve().name}-", dir=target.resolve().parent))

    def __enter__(self) -> DataSetFolder:
        return self

    def __exit__(self, *error: object) -> None:
        for each in self._files.values():
            each.close()
        shutil.rmtree(self.work, ignore_errors=True)

    def write(self, split: str, data: dict[str, Any]) -> None:
        with os_errors(f"write {self._target}"):
            if split not in self._files:
                self._files[split] = _SplitFile(self.work / f"{split}.{self._form}", pairs=self._pairs)
            self._files[split].write(data)

    def finish(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write the card and put the folder in its place. The card's digest is of the rows, whatever their form."""
        with os_errors(f"write {self._target}"):
            for each in self._files.values():
                each.close()
            splits = {name: self._files[name].facts() for name in NAMES if name in self._files}
            sums = "".join(f"{name} {each['rows_sha256']}\n" for name, each in splits.items())
            whole = {"dataset": card.VERSION, "digest": sha256(sums.encode()).hexdigest(), **facts, "splits": splits}
            (self.work / CARD_JSON).write_bytes(card.as_json(whole))
            (self.work / CARD_MD).write_text(card.as_text(whole), "utf-8")
            mask = os.umask(0)
            os.umask(mask)
            self.work.chmod(0o777 & ~mask)
            self.work.replace(self._target)
        return whole


def read_folder(folder: Path) -> dict[str, Any]:
    """The card of a data set whose files are as it says. Raises NotFound, Failed, NegativeVerdict."""
    path = folder / CARD_JSON
    if not path.is_file():
        raise NotFound(f"{folder} holds no {CARD_JSON}", wanted="a folder that 'dalsegno dataset build' made")
    with os_errors(f"read {path}"):
        found = card.from_json(path.read_bytes())
        if found is None:
            raise Failed(f"{path} is no card of a data set", wanted="the file as it was made", todo="build it again")
        for split in found["splits"].values():
            file = folder / Path(split["file"]).name
            if not file.is_file() or _sum_of(file) != split["file_sha256"]:
                what = "is not what the card says" if file.is_file() else "is missing"
                raise NegativeVerdict(f"{file} {what}", wanted="the files as they were made", todo="build it again")
    return found


def _sum_of(path: Path) -> str:
    found = sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()
