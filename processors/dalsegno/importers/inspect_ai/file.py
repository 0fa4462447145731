"""Reading an Inspect log: one JSON document, or a zip (.eval) of JSON members. Bounded, checked to the last byte.

Samples are given one at a time; of a zip no more than one member is unpacked at once. Whoever goes through all of them
has had every member unpacked, also those that hold nothing for us, because that is what checks their sums: go to the
end before anything is imported. Sizes are checked against what is really unpacked, not against what the zip says.
"""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from dalsegno.errors import BadInputFile
from dalsegno.importers.json_file import (
    bad_file,
    foreign,
    kind_of,
    object_at,
    objects_at,
    parse_json,
    read_bytes,
    unreadable,
)

SUPPORTED_VERSIONS = (1, 2)
_ZIP_MAGIC = b"PK"
_HEADER = "header.json"
_JOURNAL_START = "_journal/start.json"
_SAMPLES = "samples/"
_WANTED = "an Inspect log: .json, or .eval (zip)"


@dataclass(frozen=True)
class Limits:
    """What is unpacked at most: more than a large real log needs, less than a machine has."""

    member_bytes: int = 512 * 1024 * 1024
    total_bytes: int = 4 * 1024 * 1024 * 1024
    members: int = 200_000


class NativeSample(NamedTuple):
    """One sample as the file holds it; ``place`` names where, for messages to people."""

    data: dict[str, Any]
    place: str


@dataclass
class NativeLog:
    """A log whose header was read. ``samples`` goes through its samples, each time anew. ``parts`` counts what the file
    holds beside header and samples."""

    version: int
    evaluation: dict[str, Any]
    plan: dict[str, Any]
    samples: Callable[[], Iterator[NativeSample]]
    parts: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def read_log(path: Path, limits: Limits | None = None) -> NativeLog:
    """A log, to be gone through. This and ``samples`` raise BadInputFile, naming file and place, for what is torn,
    foreign, damaged or too large."""
    bounds = limits or Limits()
    try:
        with path.open("rb") as stream:
            magic = stream.read(2)
    except OSError as error:
        raise unreadable(path, error, _WANTED) from error
    if magic == _ZIP_MAGIC:
        return _from_zip(_Zip(path, bounds))
    return _from_document(path, _parse(path, "", read_bytes(path, _WANTED, bounds.member_bytes)))


def _from_document(path: Path, document: Any) -> NativeLog:
    def samples() -> Iterator[NativeSample]:
        seen: dict[tuple[str, int], str] = {}
        return (_sample(path, f"/samples/{i}", data, seen) for i, data in enumerate(document.get("samples") or []))

    log = _from_header(path, "", document, samples)
    if not isinstance(document.get("samples") or [], list):
        raise foreign(path, "/samples", "no list", _WANTED)
    log.parts = _parts_of(document)
    return log


def _from_zip(archive: _Zip) -> NativeLog:
    path, names = archive.path, archive.names()
    parts: dict[str, int] = {}
    for name in names:
        if not _is_sample(name) and name not in (_HEADER, _JOURNAL_START) and not name.endswith("/"):
            kind = "journal" if name.startswith("_journal/") else name.removesuffix(".json")
            parts[kind] = parts.get(kind, 0) + 1
    ended = _HEADER in names
    if not ended and _JOURNAL_START not in names:
        raise foreign(path, "zip directory", f"neither {_HEADER} nor {_JOURNAL_START}", _WANTED)
    place = _HEADER if ended else _JOURNAL_START
    header = _parse(path, place, archive.member(place))
    log = _from_header(path, place, header, archive.samples)
    twice = [name for name, count in Counter(names).items() if count > 1 and _is_sample(name)]
    log.warnings = [f"{name} is there more than once; the last one counts" for name in twice]
    if not ended:
        log.warnings.append(f"there is no {_HEADER}: the evaluation had not ended; its finished samples are read")
    log.parts = {**parts, **(_parts_of(header) if ended else {})}
    return log


def _is_sample(name: str) -> bool:
    return name.startswith(_SAMPLES) and name.endswith(".json")


class _Zip:
    """The members of a zip, each unpacked by itself."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path = path
        self._limits = limits
        self._unpacked = 0

    def names(self) -> list[str]:
        """Of all members, in the order of the directory."""
        with self._open() as archive:
            return [info.filename for info in archive.infolist()]

    def member(self, name: str) -> bytes:
        """The last one of that name."""
        with self._open() as archive:
            return self._unpack(archive, archive.getinfo(name))

    def samples(self) -> Iterator[NativeSample]:
        seen: dict[tuple[str, int], str] = {}
        with self._open() as archive:
            self._unpacked = 0
            for info in archive.infolist():
                name = info.filename
                if _is_sample(name) and archive.getinfo(name) is info:
                    # No name for what was unpacked: it would be held while the next member is.
                    yield _sample(self.path, name, _parse(self.path, name, self._unpack(archive, info)), seen)
                else:
                    self._unpack(archive, info)

    def _open(self) -> zipfile.ZipFile:
        try:
            archive = _open_zip(self.path)
        except Exception as error:
            raise _broken(self.path, "", error) from error
        if len(archive.filelist) > self._limits.members:
            archive.close()
            raise _too_large(self.path, f"{len(archive.filelist)} members", len(archive.filelist), self._limits.members)
        return archive

    def _unpack(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
        """A whole member, checked against its sum."""
        path, limits, member = self.path, self._limits, info.filename
        if info.flag_bits & 0x1:
            raise _damaged(path, member, "it is encrypted")
        try:
            with archive.open(info) as stream:
                data = stream.read(limits.member_bytes + 1)
        except Exception as error:
            raise _broken(path, member, error) from error
        self._unpacked += len(data)
        if len(data) > limits.member_bytes:
            raise _too_large(path, member, len(data), limits.member_bytes)
        if self._unpacked > limits.total_bytes:
            raise _too_large(path, "all members", self._unpacked, limits.total_bytes)
        return data


def _open_zip(path: Path) -> zipfile.ZipFile:
    """The archive, opened with zstd support where there is some."""
    try:
        from backports.zstd import zipfile as zstd_zipfile
    except ImportError:
        return zipfile.ZipFile(path)
    opened: Any = zstd_zipfile.ZipFile(path)
    return cast(zipfile.ZipFile, opened)


def _parse(path: Path, place: str, data: bytes) -> Any:
    return parse_json(path, place, data, _WANTED, constants=True)


def _from_header(path: Path, place: str, header: Any, samples: Callable[[], Iterator[NativeSample]]) -> NativeLog:
    header = object_at(path, place, header, _WANTED, needs=("eval",))
    evaluation = object_at(path, f"{place}/eval", header["eval"], _WANTED)
    version = header.get("version", 1)
    if version not in SUPPORTED_VERSIONS or isinstance(version, bool):
        raise foreign(path, f"{place}/version", f"{version!r}, known are 1 and 2", _WANTED)
    plan = object_at(path, f"{place}/plan", header.get("plan") or {}, _WANTED)
    return NativeLog(version=version, evaluation=evaluation, plan=plan, samples=samples)


def _sample(path: Path, place: str, data: Any, seen: dict[tuple[str, int], str]) -> NativeSample:
    """A sample with all that identifies it; ``seen`` holds the places of those before it."""
    data = object_at(path, place, data, _WANTED, needs=("id", "epoch"))
    native_id, epoch = data["id"], data["epoch"]
    if isinstance(native_id, bool | list | dict):
        raise foreign(path, f"{place}/id", f"{kind_of(native_id)} instead of a text or a number", _WANTED)
    if not isinstance(epoch, int) or isinstance(epoch, bool):
        raise foreign(path, f"{place}/epoch", "no whole number", _WANTED)
    if data.get("events") is not None:
        objects_at(path, f"{place}/events", data["events"], _WANTED)
    key = (str(native_id), epoch)
    if key in seen:
        found = f"sample {key[0]!r}, epoch {epoch}, which {seen[key]} is too"
        wanted, todo = "one sample per id and epoch", "split the file, or remove one of the two"
        raise bad_file(path, place, found, wanted, todo)
    seen[key] = place
    return NativeSample(data, place)


def _parts_of(header: dict[str, Any]) -> dict[str, int]:
    """What a header holds beside evaluation, plan and samples: sums over samples, which are folded again anyway."""
    known = {"version", "eval", "plan", "samples", "status"}
    return {name: 1 for name, value in header.items() if name not in known and value}


def _broken(path: Path, member: str, error: Exception) -> BadInputFile:
    """What unpacking damaged bytes can raise differs by packing method and Python; nearly all of it means the same."""
    if not isinstance(error, NotImplementedError):
        return _damaged(path, member, f"{type(error).__name__}: {error}")
    wanted = "members packed with deflate, or with zstd where this Python can unpack it"
    todo = "install dalsegno[service], which brings zstd, or convert the log with `inspect log convert`"
    return bad_file(path, member, str(error), wanted, todo)


def _damaged(path: Path, member: str, found: str) -> BadInputFile:
    return bad_file(path, member or "zip directory", found, _WANTED)


def _too_large(path: Path, place: str, size: int, limit: int) -> BadInputFile:
    found = f"larger than the limit ({size} of at most {limit})"
    return bad_file(path, place, found, _WANTED, "check that the file is a real log; split it if it is one")
