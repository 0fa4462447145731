"""Recordings in which a value is another one, of any kind: refused by name, or sessions that can be encoded."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dalsegno.errors import BadInputFile
from dalsegno.importers.run import import_file
from dalsegno.log.publisher import Publisher
from dalsegno.storage.object_store import FolderStore
from dalsegno.testing.memory_log import MemoryLog
from examples import examples
from recordings import GROWING, TEXT, Recording, each_recording, importer_of

ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, 2**70, -(2**70), 1e300, "", "x", "\ud800", "a\u2028b\x00", "9" * 400,
    "2025-01-01T00:00:00", [], {}, [1], ["x"], [None], [{}], {"": None}, {"type": 1}, {"id": []},
]  # fmt: skip


def places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to every value inside."""
    items: Any = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    found = [here] if here else []
    for key, item in items:
        found += places(item, (*here, key))
    return found


def changed(document: Any, rnd: Random) -> Any:
    """The document with one to three values put in the place of others, left out, or there twice."""
    copy = deepcopy(document)
    for _ in range(rnd.randint(1, 3)):
        ways = places(copy)
        if not ways:
            break
        # First how deep, then where: else nearly all changes would lie in the deepest lists.
        depth = rnd.choice(sorted({len(way) for way in ways}))
        *above, last = rnd.choice([way for way in ways if len(way) == depth])
        holder = copy
        for key in above:
            holder = holder[key]
        what = rnd.random()
        if what < 0.7:
            holder[last] = deepcopy(rnd.choice(ODD))
        elif what < 0.85:
            del holder[last]
        elif isinstance(holder, list):
            holder.insert(rnd.randrange(len(holder) + 1), deepcopy(holder[last]))
    return copy


def written(path: Path, recording: Recording, rnd: Random) -> Path:
    text = recording.path.read_text("utf-8")
    if recording.path.suffix == GROWING:
        lines = changed([json.loads(line) for line in text.splitlines()], rnd)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        path.write_text(json.dumps(changed(json.loads(text), rnd)))
    return path


@pytest.mark.parametrize("recording", each_recording(*TEXT))
def test_a_document_with_odd_values(recording: Recording, tmp_path: Path) -> None:
    log, store = MemoryLog(partitions=1), FolderStore(tmp_path / "store")
    taken = 0
    for seed in range(examples(15)):
        path = written(tmp_path / f"odd{recording.path.suffix}", recording, Random(f"{recording.name} {seed}"))
        try:
            with Publisher(log.connect(), prefix="t") as publisher:
                outcome = import_file(publisher, importer_of(recording), path, store=store, dry_run=True)
        except BadInputFile as error:
            assert str(path) in str(error), f"seed {seed}"  # noqa: PT017 - most files are not refused
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        else:
            taken += outcome.report.events.total() > 0
    assert taken > 0
