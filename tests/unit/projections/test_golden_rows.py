"""The golden session's rows, one state per projection, against a file written by hand."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from dalsegno.projections.registry import built_in
from dalsegno.testing.builder import SessionBuilder, digest_of
from golden_session import GOLDEN, golden_session
from shard_lab import folded, reads

ROWS = json.loads(GOLDEN.with_name("session_40.rows.json").read_text(encoding="utf-8"))

# A fold whose result changes must get another version, or shards of old rows are taken for new ones. When this test
# fails: raise the projection's version first, then correct the digest here.
DIGESTS = {
    ("lifecycle", 1): "186869c9a4907170d41d3256cfc76594c80f2f91a3812f9dd17fd6d3152aaa54",
    ("sessions", 2): "2332890ce61ff30dd17d49de7165483dcc7941077cffe2168a11334e46692dc3",
    ("stages", 1): "8b02e6734bfed119d9ed35c0cd09b913c139ffe1e907fb2cffe045216ff69285",
    ("context_packs", 1): "1498a3ea6c2d7e3f5b0e6bab8d4b59f8591f54666766c27f67264431171b4a2d",
    ("compressions", 1): "0000000000000000000000000000000000000000000000000000000000000000",
    ("messages", 1): "fd38a602c46a8bb65713f3494104104f09858f3e43c4fa65bbfeccada95dd0b6",
    ("tools", 1): "0a94de9b94132a3d643aa8d4f60de40ca0a7c2009fdd84541179bd0ac04ec113",
    ("usage", 1): "0b4eb0dfe96f1af6244e7d6bd4bb1db0ab3d6060b8b43f92a1a8f1a6227d92ef",
}


def _value(value: Any, builder: SessionBuilder) -> Any:
    if not isinstance(value, dict):
        return value
    if "$digest" in value:
        return digest_of(value["$digest"])
    if "$sha256" in value:
        return sha256(value["$sha256"].encode()).digest()
    return builder.events[value["$hash_of_seq"] - 1].hash


@pytest.mark.parametrize("projection", ["sessions", "tools", "usage"])
def test_rows_are_those_written_by_hand(projection: str) -> None:
    builder = golden_session()
    reader = reads(folded(builder.records))
    found = reader.rollups(projection) if projection == "usage" else reader.rows(projection, builder.session_id)
    wanted = [
        (tuple(entry["id"]), {name: _value(value, builder) for name, value in entry["row"].items()})
        for entry in ROWS[projection]
    ]
    assert [(row_id, msgspec.structs.asdict(row)) for row_id, row in found] == wanted


def test_a_changed_fold_has_another_version() -> None:
    digests = folded(golden_session().records).digests()
    assert {(name, each.version): each.digest for name, each in digests.items()} == DIGESTS
    assert set(digests) == {"lifecycle", *(projection.name for projection in built_in())}
