"""A manifest cannot be changed under its id, and a state must be of its manifest's moment."""

from __future__ import annotations

import json

import msgspec
import pytest

from dalsegno.errors import SnapshotDamaged, SnapshotIncompatible
from dalsegno.model.cursor import Cursor
from dalsegno.snapshots.manifest import (
    FORMAT,
    CursorMark,
    Manifest,
    ManifestFile,
    Marks,
    ProjectionMark,
    check_marks,
    decode,
    encode,
    id_of,
)

CURSOR = Cursor(7, "c1", "t1", 3, 4, 2, 6, b"s:6:\xff")
MANIFEST = Manifest(
    format=FORMAT,
    topic="p.events",
    generation="first",
    base="-",
    parent=None,
    cursor=CursorMark.of(CURSOR),
    projections={"tools": ProjectionMark(1, "aa" * 32), "sessions": ProjectionMark(2, "bb" * 32)},
    schemas=["cc" * 32],
    configuration={},
    files=[ManifestFile("CURRENT", "dd" * 32, 16)],
    taken_at=1_700_000_000_000_000,
    worker="w",
)
MARKS = Marks(CURSOR, "first", "-", MANIFEST.projections)


def test_it_reads_back_from_its_canonical_bytes() -> None:
    content = encode(MANIFEST)
    assert decode(id_of(content), content) == MANIFEST
    assert MANIFEST.cursor.cursor() == CURSOR
    # Canonical: sorted names, no spaces, so equal manifests have equal ids.
    assert content == json.dumps(json.loads(content), sort_keys=True, separators=(",", ":")).encode()


def test_one_changed_byte_is_damage() -> None:
    content = encode(MANIFEST)
    with pytest.raises(SnapshotDamaged):
        decode(id_of(content), content.replace(b'"next_offset":7', b'"next_offset":8'))


def test_a_newer_format_is_named_not_guessed() -> None:
    content = encode(msgspec.structs.replace(MANIFEST, format=FORMAT + 1))
    with pytest.raises(SnapshotIncompatible) as caught:
        decode(id_of(content), content)
    assert caught.value.data["format"] == FORMAT + 1


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"format":1}', b'{"format":1,"more":2}'])
def test_what_is_no_manifest_is_damage(content: bytes) -> None:
    with pytest.raises((SnapshotDamaged, SnapshotIncompatible)):
        decode(id_of(content), content)


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "", ".", "a//b", "a\\b", "./a"])
def test_a_file_stays_inside_the_folder(name: str) -> None:
    content = encode(msgspec.structs.replace(MANIFEST, files=[ManifestFile(name, "dd" * 32, 1)]))
    with pytest.raises(SnapshotDamaged):
        decode(id_of(content), content)


def test_a_file_is_named_once_and_by_a_hash() -> None:
    for files in ([MANIFEST.files[0]] * 2, [ManifestFile("a", "xyz", 1)], [ManifestFile("a", "dd" * 32, -1)]):
        content = encode(msgspec.structs.replace(MANIFEST, files=files))
        with pytest.raises(SnapshotDamaged):
            decode(id_of(content), content)


def test_a_state_of_the_same_moment_is_accepted() -> None:
    check_marks("id", MANIFEST, MARKS)


# case C25: parts from different moments
@pytest.mark.parametrize(
    ("found", "difference"),
    [
        (MARKS._replace(cursor=msgspec.structs.replace(CURSOR, next_offset=5)), "cursor"),
        (MARKS._replace(cursor=msgspec.structs.replace(CURSOR, last_key=b"other")), "cursor"),
        (MARKS._replace(generation="second"), "generation"),
        (MARKS._replace(base="x"), "base"),
        (MARKS._replace(projections={**MARKS.projections, "tools": ProjectionMark(1, "00" * 32)}), "tools"),
        (MARKS._replace(projections={**MARKS.projections, "tools": ProjectionMark(2, "aa" * 32)}), "tools"),
        (MARKS._replace(projections={"sessions": MARKS.projections["sessions"]}), "tools"),
        (MARKS._replace(projections={**MARKS.projections, "extra": ProjectionMark(1, "aa" * 32)}), "extra"),
    ],
)
def test_a_state_of_another_moment_is_refused(found: Marks, difference: str) -> None:
    with pytest.raises(SnapshotDamaged) as caught:
        check_marks("id", MANIFEST, found)
    assert caught.value.data["difference"] == difference
