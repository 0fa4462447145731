"""The manifest of a shard snapshot: what it holds, where it stands, and how to prove both. Pure.

A manifest is canonical JSON (RFC 8785); its id is the SHA-256 of those bytes, so a manifest cannot be changed under its
id. It names every file by SHA-256 and size, and every projection by version and digest. The state inside carries its
own cursor and digests; they must equal the manifest's, so a snapshot whose parts come from different moments is
refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec
import rfc8785

from dalsegno.errors import SnapshotDamaged, SnapshotIncompatible
from dalsegno.model.choose import ShardSnapshot
from dalsegno.model.cursor import Cursor

FORMAT = 1

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class ManifestFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of the checkpoint: its name in the folder, its SHA-256 in hex, its size in bytes."""

    name: str
    sha256: str
    size: int


class ProjectionMark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One projection of the state: its version and the digest of its rows, in hex."""

    version: int
    digest: str


class CursorMark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cursor in JSON: ``last_key`` in hex."""

    next_offset: int
    cluster_id: str
    topic_id: str
    partition: int
    partitions: int
    leader_epoch: int
    last_offset: int | None
    last_key: str | None

    @classmethod
    def of(cls, cursor: Cursor) -> CursorMark:
        key = None if cursor.last_key is None else cursor.last_key.hex()
        return cls(
            cursor.next_offset,
            cursor.cluster_id,
            cursor.topic_id,
            cursor.partition,
            cursor.partitions,
            cursor.leader_epoch,
            cursor.last_offset,
            key,
        )

    def cursor(self) -> Cursor:
        key = None if self.last_key is None else bytes.fromhex(self.last_key)
        return Cursor(
            self.next_offset,
            self.cluster_id,
            self.topic_id,
            self.partition,
            self.partitions,
            self.leader_epoch,
            self.last_offset,
            key,
        )


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A shard snapshot.

    ``base`` is what its generation began from, ``parent`` the snapshot taken before it in the same generation.
    ``schemas`` are the hashes (hex) of the writer schemas known when it was taken. ``taken_at`` is in microseconds
    since 1970, UTC.
    """

    format: int
    topic: str
    generation: str
    base: str
    parent: str | None
    cursor: CursorMark
    projections: dict[str, ProjectionMark]
    schemas: list[str]
    configuration: dict[str, str]
    files: list[ManifestFile]
    taken_at: int
    worker: str

    @property
    def partition(self) -> int:
        return self.cursor.partition

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files)

    def entry(self, snapshot_id: str) -> ShardSnapshot:
        """What ``choose`` needs to know of it."""
        return ShardSnapshot(snapshot_id, self.partition, self.generation, self.base, self.cursor.next_offset)


class Marks(NamedTuple):
    """What the state in a folder says of itself, read from that very folder."""

    cursor: Cursor
    generation: str
    base: str
    projections: Mapping[str, ProjectionMark]


def id_of(content: bytes) -> str:
    """The id of a manifest: the SHA-256 of its bytes, in hex."""
    return hashlib.sha256(content).hexdigest()


def encode(manifest: Manifest) -> bytes:
    """The manifest's canonical JSON."""
    return rfc8785.dumps(msgspec.to_builtins(manifest))


def decode(snapshot_id: str, content: bytes) -> Manifest:
    """The manifest with this id. Raises SnapshotDamaged, and SnapshotIncompatible for a format that this build cannot
    read."""
    if id_of(content) != snapshot_id:
        raise _damaged(snapshot_id, f"its manifest has the SHA-256 {id_of(content)}")
    try:
        found = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        number = msgspec.json.decode(found.get("format", b"null"))
    except msgspec.DecodeError as error:
        raise _damaged(snapshot_id, f"its manifest is not JSON: {error}") from error
    if number != FORMAT:
        raise SnapshotIncompatible(
            f"snapshot {snapshot_id} has manifest format {number!r}",
            wanted=f"format {FORMAT}, which this release reads",
            todo="use the release that took it, or another snapshot",
            snapshot=snapshot_id,
            format=number,
        )
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.ValidationError as error:
        raise _damaged(snapshot_id, f"its manifest does not fit the format: {error}") from error
    _check_names(snapshot_id, manifest)
    return manifest


def _check_names(snapshot_id: str, manifest: Manifest) -> None:
    """File names stay inside the folder that they are restored to, and each is there once."""
    seen: set[str] = set()
    for file in manifest.files:
        path = PurePosixPath(file.name)
        outside = (
            path.is_absolute() or ".." in path.parts or "\\" in file.name or str(path) != file.name or not path.parts
        )
        if outside or file.name in seen or file.size < 0 or not _SHA256.match(file.sha256):
            raise _damaged(snapshot_id, f"its manifest names the file {file.name!r}, size {file.size}, {file.sha256!r}")
        seen.add(file.name)
    key = manifest.cursor.last_key
    if key is not None and not re.fullmatch(r"([0-9a-f]{2})*", key):
        raise _damaged(snapshot_id, "the last key of its cursor is not hex")


def check_marks(snapshot_id: str, manifest: Manifest, found: Marks) -> None:
    """Refuse a state that is not of the manifest's moment. Raises SnapshotDamaged naming the difference."""
    wanted = Marks(manifest.cursor.cursor(), manifest.generation, manifest.base, manifest.projections)
    for name, want, have in (
        ("cursor", wanted.cursor, found.cursor),
        ("generation", wanted.generation, found.generation),
        ("base", wanted.base, found.base),
    ):
        if want != have:
            raise _damaged(snapshot_id, f"the {name} of its state is {have}, its manifest says {want}", difference=name)
    for name in sorted({*wanted.projections, *found.projections}):
        want_mark, have_mark = wanted.projections.get(name), found.projections.get(name)
        if want_mark != have_mark:
            raise _damaged(
                snapshot_id,
                f"projection {name} of its state is {_shown(have_mark)}, its manifest says {_shown(want_mark)}",
                difference=name,
            )


def _shown(mark: ProjectionMark | None) -> str:
    return "missing" if mark is None else f"version {mark.version} with digest {mark.digest}"


def _damaged(snapshot_id: str, what: str, **data: object) -> SnapshotDamaged:
    return SnapshotDamaged(
        f"snapshot {snapshot_id} is damaged: {what}",
        wanted="the bytes that were written",
        todo="an older good one is used where there is one; 'dalsegno snapshot verify' says which are good",
        snapshot=snapshot_id,
        **data,
    )
