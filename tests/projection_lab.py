"""One projection's rows of a builder's session, as a shard keeps them and as its topic takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dalsegno.projections.base import Projection, RowId
from dalsegno.testing.builder import SessionBuilder, Written
from shard_lab import Lab, apply, reads


def rows_of(
    projection: Projection[Any], builder: SessionBuilder, records: Iterable[Written] | None = None
) -> dict[RowId, Any]:
    """Row by id, after ``records``, else the builder's, each in a batch of its own. Public rows fit their schema."""
    shard = Lab().open(projections=[projection])
    for record in builder.records if records is None else records:
        apply(shard, [record])
    rows = dict(reads(shard).rows(projection.name, builder.session_id))
    for row in rows.values():
        assert not projection.public or shard.forms.value(projection.name, row)
    return rows
