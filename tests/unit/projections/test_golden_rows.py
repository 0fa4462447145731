"""The golden session's rows, one state per projection and version, against files written by hand."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from dalsegno.projections.base import Projection
from dalsegno.projections.registry import built_in
from golden_session import GOLDEN, golden_rows, golden_session
from shard_lab import folded, reads

# A fold whose result changes must get another version, or shards of old rows are taken for new ones. When this test
# fails: raise the projection's version first, then correct the digest here.
DIGESTS = {
    ("lifecycle", 1): "4f00f496d77b0d7d07937f4d9fb0a0f9ab1a1f62ef3ba162c4cc9a89e817dc14",
    ("approvals", 1): "b1a64a4ad931730fa6265f972979e6ddad496a34ae3fa87fdc285ced3213a797",
    ("audit", 1): "2fab77d1f8f479cdf310484329f66d07370c8a8e81fb1ac7afd8448c2674e3b9",
    ("compressions", 1): "0000000000000000000000000000000000000000000000000000000000000000",
    ("context_packs", 1): "7bcbec1979106b98c0d149d898671520603dc333de5cf3d12c86de94b12ebb21",
    ("decider", 2): "52319192c73e0a7d0e5d3e2be863471b15dcba68ccf5b626b1f829da4edb41c4",
    ("inferences", 2): "cba7682bb3375fbb0d9dd6de32fd3730b99118124df0127aeebddbba4aed976e",
    ("inputs", 1): "0000000000000000000000000000000000000000000000000000000000000000",
    ("messages", 1): "fa597f7da1a1f79843f9e3fa73fe39213d5223be7f0fdc0fb769e996dfd74980",
    ("outcomes", 2): "d8408b523a6558ad8f74a482361a5c3d26f43934c401c9555314578ff1ddf004",
    ("sessions", 2): "cadc9b5ebffb14873d0c573a77c5b2b8e9adc99b20dc5b24fe62a1fca2df6003",
    ("stages", 1): "a61c2f960e98db50065db4e1210ef8a822c59674efb04ce3b5ecec7ef226e99f",
    ("tools", 2): "7e109b35af9afe827977209afa8a5fdc6891510332d207b3e1e3965b0ac2d667",
    ("usage", 3): "7649beb8481264281b77e165af344477c8093cb19d1ea83feb0f8f181cd75f78",
    ("validations", 1): "9a593ef610a6850a80fc2c70d63e6439e9c62c2b592cc84bbdc96b8abe2928c7",
}


@pytest.mark.parametrize("projection", built_in(), ids=lambda each: each.name)
def test_rows_are_those_written_by_hand(projection: Projection[Any]) -> None:
    builder = golden_session()
    reader = reads(folded(builder.records))
    name = projection.name
    found = reader.rollups(name) if projection.rollup else reader.rows(name, builder.session_id)
    wanted = golden_rows(GOLDEN, name, projection.version)
    assert list(found) == [(row_id, _row(projection.row, fields)) for row_id, fields in wanted]


def _row(kind: type[Any], fields: dict[str, Any]) -> Any:
    """The row with these fields, and with the defaults of those that are not named. ``shape``: which of several."""
    if "shape" in fields:
        (kind,) = (each for each in get_args(kind) if each.__name__ == fields["shape"])
        fields = {name: value for name, value in fields.items() if name != "shape"}
    hints = get_type_hints(kind)
    return kind(
        **{
            name: [_row(*get_args(hints[name]), item) if isinstance(item, dict) else item for item in value]
            if isinstance(value, list) and any(isinstance(item, dict) for item in value)
            else msgspec.convert(value, hints[name])
            for name, value in fields.items()
        }
    )


def test_a_changed_fold_has_another_version() -> None:
    digests = folded(golden_session().records).digests()
    assert {(name, each.version): each.digest for name, each in digests.items()} == DIGESTS
    assert set(digests) == {"lifecycle", *(projection.name for projection in built_in())}
