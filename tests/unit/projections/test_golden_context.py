"""A session of stages, messages, packs and compressions: its verdicts and rows, against files written by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dalsegno.projections.base import Projection
from dalsegno.projections.compressions import Compressions
from dalsegno.projections.context_packs import ContextPacks
from dalsegno.projections.messages import Messages
from dalsegno.projections.sessions import Sessions
from dalsegno.projections.stages import Stages
from golden_session import CONTEXT, GOLDEN, golden_rows, golden_session, golden_story
from shard_lab import folded, reads

PROJECTIONS = [Sessions(), Stages(), ContextPacks(), Compressions(), Messages()]

# As in test_golden_rows.py: a fold whose result changes gets another version first, and then another digest here.
DIGESTS = {
    ("sessions", 2): "359bc39e176000c16348066cc39d448a3369724bf5b6b92f4743c659fa9f41e8",
    ("stages", 1): "12848913fdbd3db9ae8030e031db83481d643e7b34af4d212273870506a0112e",
    ("context_packs", 1): "4c9cb1e573028af50babc32b2ddc8c4635995800678b2dcf37dabb4af5087c72",
    ("compressions", 1): "11511da7aa1b3fa4eb4af1a8232dbe25645ff302f81b0616653b0c890b99c31f",
    ("messages", 1): "2f3f52dcfbf2b7158f49507020dfde498d3ce458faac9dbb98e5ee4744f4def3",
}


@pytest.mark.parametrize("golden", [GOLDEN, CONTEXT], ids=lambda path: path.stem)
@pytest.mark.parametrize("projection", PROJECTIONS, ids=lambda each: each.name)
def test_rows_are_those_written_by_hand(golden: Any, projection: Projection[Any]) -> None:
    builder = golden_session(golden)
    found = reads(folded(builder.records)).rows(projection.name, builder.session_id)
    wanted = golden_rows(golden, projection.name, projection.version)
    assert [(row_id, msgspec.structs.asdict(row)) for row_id, row in found] == wanted


def test_verdicts_are_those_written_by_hand() -> None:
    entries, builder = golden_story(CONTEXT)["events"], golden_session(CONTEXT)
    for entry, verdict in zip(entries, builder.verdicts, strict=True):
        found = (verdict.violations, verdict.findings, verdict.opened, verdict.closed)
        opened, closed = (tuple(map(tuple, entry[name])) for name in ("opened", "closed"))
        assert found == (tuple(entry["violations"]), (), opened, closed), entry


def test_a_changed_fold_has_another_version() -> None:
    digests = folded(golden_session(CONTEXT).records).digests()
    names = {projection.name for projection in PROJECTIONS}
    assert {(name, digests[name].version): digests[name].digest for name in names} == DIGESTS
