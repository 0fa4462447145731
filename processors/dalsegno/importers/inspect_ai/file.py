"""Reading an Inspect log: one JSON document, or a zip (.eval) of JSON members. Bounded, checked to the last byte.

A zip is read whole before anything is made of it, also the members that hold nothing for us, because that is what
checks their sums: a damaged file is refused, never imported in part. Sizes are checked against what is really unpacked,
not against what the zip says of itself.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from dalsegno.errors import BadInputFile

SUPPORTED_VERSIONS = (1, 2)
_ZIP_MAGIC = b"PK"
_HEADER = "header.json"
_JOURNAL_START = "_journal/start.json"
_SAMPLES = "samples/"
_WANTED = "an Inspect log: .json, or .eval (zip)"
_AGAIN = "get an undamaged copy of the file; nothing of it was imported"


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
    """A whole log. ``parts`` counts what the file holds beside header and samples."""

    version: int
    evaluation: dict[str, Any]
    plan: dict[str, Any]
    samples: list[NativeSample]
    parts: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def read_log(path: Path, limits: Limits | None = None) -> NativeLog:
    """Read a whole log. Raises BadInputFile, naming file and place, for what is torn, foreign, damaged or too large."""
    bounds = limits or Limits()
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            magic = stream.read(2)
    except OSError as error:
        raise BadInputFile(
            f"{path}: {error.strerror}", wanted=_WANTED, todo="check the path and its permissions", file=str(path)
        ) from error
    if size == 0:
        raise BadInputFile(f"{path} is empty", wanted=_WANTED, todo=_AGAIN, file=str(path))
    if magic == _ZIP_MAGIC:
        return _read_zip(path, bounds)
    if size > bounds.member_bytes:
        raise _too_large(path, str(path), size, bounds.member_bytes)
    return _from_document(path, _parse(path, "", path.read_bytes()))


def _from_document(path: Path, document: Any) -> NativeLog:
    log = _from_header(path, "", document)
    samples = document.get("samples") or []
    if not isinstance(samples, list):
        raise _foreign(path, "/samples is no list")
    log.samples = [_sample(path, f"/samples/{i}", data) for i, data in enumerate(samples)]
    log.parts = _parts_of(document)
    return _checked(path, log)


def _read_zip(path: Path, limits: Limits) -> NativeLog:
    header: Any = None
    start: Any = None
    parts: dict[str, int] = {}
    samples: dict[str, NativeSample] = {}
    warnings: list[str] = []
    for name, data in _members(path, limits):
        if name == _HEADER:
            header = _parse(path, name, data)
        elif name == _JOURNAL_START:
            start = _parse(path, name, data)
        elif name.startswith(_SAMPLES) and name.endswith(".json"):
            if name in samples:
                warnings.append(f"{name} is there more than once; the last one counts")
            samples[name] = _sample(path, name, _parse(path, name, data))
        elif not name.endswith("/"):
            kind = "journal" if name.startswith("_journal/") else name.removesuffix(".json")
            parts[kind] = parts.get(kind, 0) + 1
    if header is None and start is None:
        raise _foreign(path, f"the zip holds neither {_HEADER} nor {_JOURNAL_START}")
    if header is None:
        warnings.append(f"there is no {_HEADER}: the evaluation had not ended; its finished samples are read")
    log = _from_header(path, _HEADER if header is not None else _JOURNAL_START, start if header is None else header)
    log.samples, log.warnings = list(samples.values()), warnings
    log.parts = {**parts, **(_parts_of(header) if header is not None else {})}
    return _checked(path, log)


def _members(path: Path, limits: Limits) -> Iterator[tuple[str, bytes]]:
    """All members in the order of the directory, unpacked and checked against their sums."""
    member = ""
    total = 0
    try:
        with _open_zip(path) as archive:
            infos = archive.infolist()
            if len(infos) > limits.members:
                raise _too_large(path, f"{len(infos)} members", len(infos), limits.members)
            for info in infos:
                member = info.filename
                if info.flag_bits & 0x1:
                    raise _damaged(path, member, "it is encrypted")
                with archive.open(info) as stream:
                    data = stream.read(limits.member_bytes + 1)
                total += len(data)
                if len(data) > limits.member_bytes:
                    raise _too_large(path, member, len(data), limits.member_bytes)
                if total > limits.total_bytes:
                    raise _too_large(path, "all members", total, limits.total_bytes)
                yield member, data
    except NotImplementedError as error:
        raise BadInputFile(
            f"{path}: {member}: {error}",
            wanted="members packed with deflate, or with zstd where this Python can unpack it",
            todo="install dalsegno[service], which brings zstd, or convert the log with `inspect log convert`",
            file=str(path),
            place=member,
        ) from error
    except BadInputFile:
        raise
    except Exception as error:
        # What unpacking damaged bytes can raise differs by packing method and Python; all of it means the same.
        raise _damaged(path, member, f"{type(error).__name__}: {error}") from error


def _open_zip(path: Path) -> zipfile.ZipFile:
    """The archive, opened with zstd support where there is some."""
    try:
        from backports.zstd import zipfile as zstd_zipfile
    except ImportError:
        return zipfile.ZipFile(path)
    opened: Any = zstd_zipfile.ZipFile(path)
    return cast(zipfile.ZipFile, opened)


def _parse(path: Path, place: str, data: bytes) -> Any:
    where = f"{path}{': ' + place if place else ''}"
    try:
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadInputFile(
            f"{where}: byte {error.start} is no UTF-8", wanted=_WANTED, todo=_AGAIN, file=str(path), place=place
        ) from error
    except json.JSONDecodeError as error:
        raise BadInputFile(
            f"{where}: line {error.lineno} column {error.colno}: {error.msg}",
            wanted=f"whole JSON ({_WANTED})",
            todo=_AGAIN,
            file=str(path),
            place=place,
            line=error.lineno,
        ) from error
    except (RecursionError, ValueError) as error:
        raise BadInputFile(f"{where}: {error}", wanted=_WANTED, todo=_AGAIN, file=str(path), place=place) from error


def _from_header(path: Path, place: str, header: Any) -> NativeLog:
    if not isinstance(header, dict) or not isinstance(header.get("eval"), dict):
        raise _foreign(path, f"{place or 'the document'} has no object /eval")
    version = header.get("version", 1)
    if version not in SUPPORTED_VERSIONS or isinstance(version, bool):
        raise _foreign(path, f"{place or 'the document'} has /version {version!r}, known are 1 and 2")
    plan = header.get("plan") or {}
    if not isinstance(plan, dict):
        raise _foreign(path, f"{place or 'the document'}: /plan is no object")
    return NativeLog(version=version, evaluation=header["eval"], plan=plan, samples=[])


def _sample(path: Path, place: str, data: Any) -> NativeSample:
    if not isinstance(data, dict) or "id" not in data or isinstance(data["id"], bool | list | dict):
        raise _foreign(path, f"{place} is no sample with an /id")
    if not isinstance(data.get("epoch"), int) or isinstance(data["epoch"], bool):
        raise _foreign(path, f"{place} has no number /epoch")
    events = data.get("events")
    if events is not None and not (isinstance(events, list) and all(isinstance(event, dict) for event in events)):
        raise _foreign(path, f"{place}: /events is no list of objects")
    return NativeSample(data, place)


def _checked(path: Path, log: NativeLog) -> NativeLog:
    seen: dict[tuple[str, int], str] = {}
    for sample in log.samples:
        key = (str(sample.data["id"]), sample.data["epoch"])
        if key in seen:
            raise BadInputFile(
                f"{path}: {sample.place} and {seen[key]} are both sample {key[0]!r}, epoch {key[1]}",
                wanted="one sample per id and epoch",
                todo="split the file, or remove one of the two",
                file=str(path),
                place=sample.place,
            )
        seen[key] = sample.place
    return log


def _parts_of(header: dict[str, Any]) -> dict[str, int]:
    """What a header holds beside evaluation, plan and samples: sums over samples, which are folded again anyway."""
    known = {"version", "eval", "plan", "samples", "status"}
    return {name: 1 for name, value in header.items() if name not in known and value}


def _foreign(path: Path, found: str) -> BadInputFile:
    return BadInputFile(f"{path}: {found}", wanted=_WANTED, todo="check that this is a log of Inspect", file=str(path))


def _damaged(path: Path, member: str, found: str) -> BadInputFile:
    place = member or "zip directory"
    return BadInputFile(f"{path}: {place}: {found}", wanted=_WANTED, todo=_AGAIN, file=str(path), place=place)


def _too_large(path: Path, place: str, size: int, limit: int) -> BadInputFile:
    return BadInputFile(
        f"{path}: {place} is larger than the limit ({size} of at most {limit})",
        wanted=_WANTED,
        todo="check that the file is a real log; split it if it is one",
        file=str(path),
        place=place,
    )
