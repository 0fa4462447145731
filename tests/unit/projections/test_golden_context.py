"""A session of stages, messages, packs and compressions: its verdicts and rows, against files written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno.projections.base import Projection
from dalsegno.projections.compressions import Compressions
from dalsegno.projections.context_packs import ContextPacks
from dalsegno.projections.inputs import Inputs
from dalsegno.projections.messages import Messages
from dalsegno.projections.sessions import Sessions
from dalsegno.projections.stages import Stages
from golden_session import CONTEXT, golden_rows, golden_session, golden_story
from shard_lab import folded, reads

PROJECTIONS = [Sessions(), Stages(), ContextPacks(), Compressions(), Messages(), Inputs()]


@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda each: each.name)
def test_rows_are_those_written_by_hand(projection: Projection[Any]) -> None:
    builder = golden_session(CONTEXT)
    found = reads(folded(builder.records)).rows(projection.name, builder.session_id)
    wanted = golden_rows(CONTEXT, projection.name, projection.version)
    assert list(found) == [(row_id, projection.row(**fields)) for row_id, fields in wanted]


def test_verdicts_are_those_written_by_hand() -> None:
    entries, builder = golden_story(CONTEXT)["events"], golden_session(CONTEXT)
    for entry, verdict in zip(entries, builder.verdicts, strict=True):
        found = (verdict.violations, verdict.findings, verdict.opened, verdict.closed)
        opened, closed = (tuple(map(tuple, entry[name])) for name in ("opened", "closed"))
        assert found == (tuple(entry["violations"]), (), opened, closed), entry
