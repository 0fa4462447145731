"""Recordings in which a value is another one, of any kind: refused by name, or sessions that can be encoded."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dalsegno.errors import BadInputFile
from dalsegno.importers.registry import IMPORTERS
from dalsegno.importers.run import import_file
from dalsegno.log.publisher import Publisher
from dalsegno.storage.object_store import FolderStore
from dalsegno.testing.memory_log import MemoryLog
from examples import examples
from inspect_logs import clock, model_event, sample, write_json
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


def an_inspect_log(path: Path) -> Path:
    """With records that the shared ones have none of: approvals, cut and failed results, scores that were edited."""
    asked = {"id": "c1", "function": "run", "arguments": {"x": 1}}
    span = {"id": "s", "span_id": "s", "type": "scorer", "name": "judge"}
    events: list[dict[str, Any]] = [
        {"event": "sample_init", "state": {"messages": [{"role": "user", "content": "do"}]}, "sample": {"input": "do"}},
        model_event(1, calls=[("c1", "run", {"x": 1}), ("c2", "run", {"x": 2})]),
        {"event": "tool", **asked, "completed": clock(5), "result": "r", "truncated": [3, 2], "error": {"type": "x"}},
        {"event": "approval", "call": asked, "decision": "escalate", "approver": "auto", "explanation": "e"},
        {"event": "approval", "call": asked, "decision": "modify", "modified": {"arguments": {}}, "approver": "human"},
        {"event": "tool", **asked, "id": "c2", "completed": clock(7), "failed": True, "error": {"type": "timeout"}},
        {"event": "span_begin", **span},
        {"event": "score", "score": {"value": "C"}, "span_id": "s"},
        {"event": "span_end", **span},
        {"event": "compaction", "type": "trim", "tokens_before": 9},
        {"event": "sample_limit", "type": "time", "limit": 60, "message": "late"},
        {"event": "input", "input": "q"},
        {"event": "state", "changes": [{"op": "add"}]},
        {"event": "error", "error": {"message": "b"}},
        {"event": "score_edit", "score_name": "judge", "edit": {"value": "I", "provenance": {"author": "a"}}},
    ]
    return write_json(path, sample([{"timestamp": clock(at), **event} for at, event in enumerate(events)]))


@pytest.mark.parametrize(
    ("place", "odd"),
    [
        ((1, "output", "choices"), True),
        ((0, "state", "messages"), 3),
        ((2, "truncated"), [2**70, 1]),
        ((3, "call"), "c1"),
    ],
)
def test_a_value_of_another_kind_in_an_inspect_log(place: tuple[Any, ...], odd: Any, tmp_path: Path) -> None:
    path = an_inspect_log(tmp_path / "log.json")
    log = json.loads(path.read_text())
    holder = log["samples"][0]["events"]
    for key in place[:-1]:
        holder = holder[key]
    assert place[-1] in holder
    holder[place[-1]] = odd
    path.write_text(json.dumps(log))
    with Publisher(MemoryLog(partitions=1).connect(), prefix="t") as publisher:
        assert import_file(publisher, IMPORTERS["inspect"](), path).appended > 0


def test_an_inspect_log_with_odd_values(tmp_path: Path) -> None:
    is_refused_or_taken(Recording("inspect", an_inspect_log(tmp_path / "log.json")), tmp_path)


@pytest.mark.parametrize("recording", each_recording(*TEXT))
def test_a_document_with_odd_values(recording: Recording, tmp_path: Path) -> None:
    is_refused_or_taken(recording, tmp_path)


def is_refused_or_taken(recording: Recording, tmp_path: Path) -> None:
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
