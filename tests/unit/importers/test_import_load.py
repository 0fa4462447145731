"""Copies of every recording under other ids, as load: as many sessions, events and tokens as copies."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dalsegno.importers.registry import IMPORTERS
from dalsegno.importers.run import import_file
from dalsegno.log.publisher import Publisher
from dalsegno.projections.registry import installed
from dalsegno.state.shard import Shard
from dalsegno.storage.object_store import FolderStore
from dalsegno.testing.memory_log import MemoryLog
from recordings import MISSING, TEXT, Recording, of_type, recordings
from shard_lab import Lab, reads

BATCH = 10_000


def copy_of(recording: Recording, number: int) -> Any:
    """An importer that maps as its format does, and whose ids are those of another mapping version."""
    kind = IMPORTERS[recording.format]
    return type(f"Copy{number}", (kind,), {"mapping_version": 1_000 + number})(recording.reports)


def folded_log(log: MemoryLog) -> Shard:
    """A shard of one partition over all that the log holds."""
    shard = Lab().open(list(installed().values()))
    records = log.records("t.events")
    for start in range(0, len(records), BATCH):
        batch = records[start : start + BATCH]
        shard.apply(shard.generation, batch[0].offset, batch[-1].offset + 1, batch)
    return shard


def own_tokens(recording: Recording) -> Counter[str]:
    """Model calls and tokens in the events themselves, without any fold."""
    counts: Counter[str] = Counter()
    for event in of_type(recording, "InferenceCompleted"):
        usage = event.body["usage"]
        counts += Counter(calls=1, input=usage["input"] or 0, output=usage["output"] or 0)
    return counts


@pytest.mark.skipif(not recordings(), reason=MISSING)
@pytest.mark.parametrize("copies", [1, pytest.param(28, marks=pytest.mark.long)])
def test_copies_under_other_ids(copies: int, tmp_path: Path) -> None:
    log, store = MemoryLog(partitions=1), FolderStore(tmp_path / "store")
    events, sessions, tokens = 0, 0, Counter[str]()
    # The largest one, a zip, is imported by the suite of every format; here only with the full counts.
    for recording in (each for each in recordings() if copies > 1 or each.path.suffix in TEXT):
        for number in range(copies):
            with Publisher(log.connect(), prefix="t") as publisher:
                outcome = import_file(publisher, copy_of(recording, number), recording.path, store=store)
            assert outcome.appended == outcome.report.events.total()
            events, sessions = events + outcome.appended, sessions + len(outcome.sessions)
            tokens += own_tokens(recording)
    shard = folded_log(log)
    heads = dict(reads(shard).sessions())
    assert len(heads) == sessions
    assert sum(head.seq for head in heads.values()) == len(log.records("t.events")) == events
    assert {head.held_reason for head in heads.values()} == {None}
    rows = [row for _, row in reads(shard).rollups("usage")]
    told = Counter(
        calls=sum(row.inferences for row in rows),
        input=sum(row.input_tokens for row in rows),
        output=sum(row.output_tokens for row in rows),
    )
    assert told == tokens
