"""The sentence that everything rests on: a shard's state is a function of the set of its records."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dalsegno.log.codec import place
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.amendments import amended_links, merge_amendments, read_amendment
from dalsegno.model.path import choose_path
from dalsegno.model.records import Event, Tombstone, Unreadable
from dalsegno.projections.registry import built_in
from dalsegno.testing.builder import SessionBuilder, shipped_schemas
from dalsegno.testing.strategies import FUTURE, History, histories
from examples import examples
from shard_lab import Lab, apply, apply_in_batches, folded, paths, reads

NAMES = [each.name for each in built_in()]
pytestmark = pytest.mark.usefixtures("small_windows")
RELAXED = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=examples(70))


def _expected_paths(history: History) -> dict[str, tuple[bytes, ...]]:
    """Paths from the model alone: per key the last record, amendments as stubs. Forks are left to the caller."""
    events: dict[bytes, Event | Unreadable] = {}
    for record in [*history.records, *history.tombstones]:
        placed = place(shipped_schemas(), record.key, record.value, 0, 1)
        if isinstance(placed, Tombstone):
            events.pop(record.key, None)
        elif isinstance(placed, Event | Unreadable):
            events[record.key] = placed
    sessions: dict[str, list[Event | Unreadable]] = {}
    for placed in events.values():
        name = placed.session_id if isinstance(placed, Event) else placed.key.session_id
        sessions.setdefault(name, []).append(placed)
    found = {}
    for name, members in sessions.items():
        readable = [event for event in members if isinstance(event, Event)]
        amended = merge_amendments(read_amendment(event.body) for event in readable if event.seq == 0)
        links = amended_links([event.link for event in readable if event.seq > 0], amended.stubs)
        path = choose_path(
            links,
            unfoldable={
                event.hash: "UNKNOWN_TYPE"
                for event in readable
                if not (event.known or event.ignorable) and event.hash not in amended.stubs
            },
            erased=amended.whole_session,
        )
        found[name] = path.hashes
    return found


@RELAXED
@given(histories(), st.randoms(use_true_random=False))
def test_order_repeats_batches_and_compaction_change_nothing(history: History, rnd: Random) -> None:
    straight = folded(history.compacted())
    lab = Lab()
    other = apply_in_batches(lab, lab.open(), history.arrivals(rnd), rnd)
    assert other.digests() == straight.digests()
    assert paths(other) == paths(straight)
    assert other.recompute_digests() == other.digests()


@RELAXED
@given(histories(), st.randoms(use_true_random=False))
def test_the_path_is_the_models(history: History, rnd: Random) -> None:
    lab = Lab()
    shard = apply_in_batches(lab, lab.open(), history.arrivals(rnd), rnd, reopen=False)
    wanted = _expected_paths(history)
    found = paths(shard)
    for name, hashes in wanted.items():
        head, path = found[name]
        chosen = tuple(hash_ for _, hash_, _ in path)
        if head.held_reason == "PARENT_MISSING":
            assert chosen == hashes[:1]
        else:
            assert chosen == hashes
    assert set(found) == set(wanted)


@RELAXED
@given(histories(), st.randoms(use_true_random=False))
def test_folding_again_from_the_journal_changes_nothing(history: History, rnd: Random) -> None:
    lab = Lab()
    shard = apply_in_batches(lab, lab.open(), history.arrivals(rnd), rnd)
    before, counts = shard.digests(), shard.counts
    rows = {name: list(reads(shard).public_rows(name)) for name in NAMES}
    shard.clear_outbox(shard.outbox(10_000))
    shard.refold(["lifecycle", "sessions"])
    shard.refold([name for name in NAMES if name != "sessions"])
    assert shard.digests() == before
    assert shard.counts == counts
    assert {name: list(reads(shard).public_rows(name)) for name in rows} == rows


@settings(RELAXED, max_examples=examples(25))
@given(histories(max_sessions=2), st.randoms(use_true_random=False))
def test_memory_and_disk_agree(history: History, rnd: Random) -> None:
    arrivals = history.arrivals(rnd)
    straight = folded(history.compacted())
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(Path(folder) / "shard")
        shard = apply_in_batches(lab, lab.open(), arrivals, rnd)
        assert shard.digests() == straight.digests()
        assert paths(shard) == paths(straight)
        assert shard.recompute_digests() == shard.digests()
        shard.close()


@RELAXED
@given(histories(), st.randoms(use_true_random=False))
def test_a_schema_that_comes_late_changes_nothing(history: History, rnd: Random) -> None:
    early = SchemaSet.load()
    early.add(FUTURE.json)
    straight = folded(history.compacted(), schemas=early)
    late = SchemaSet.load()
    lab = Lab()
    shard = lab.open(schemas=late)
    arrivals = history.arrivals(rnd)
    middle = rnd.randint(0, len(arrivals))
    shard = apply_in_batches(lab, shard, arrivals[:middle], rnd)
    late.add(FUTURE.json)
    if rnd.random() < 0.5:
        shard.retry_held()
    shard = apply_in_batches(lab, shard, arrivals[middle:], rnd)
    shard.retry_held()
    assert shard.digests() == straight.digests()
    assert paths(shard) == paths(straight)
    assert shard.recompute_digests() == shard.digests()


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_the_outbox_ends_with_the_rows(where: str, tmp_path: Path) -> None:
    """Sending what the outbox names, at any moments, leaves a topic that holds exactly the rows."""
    rnd = Random(7)
    builders = [SessionBuilder(f"s-{n}", profile="OBSERVED").begin() for n in range(5)]
    arrivals = [record for builder in builders for record in builder.records]
    arrivals += [builders[0].amend(whole_session=True), builders[1].amend(builders[1].records[2:5])]
    rnd.shuffle(arrivals)
    lab = Lab(tmp_path / "shard" if where == "disk" else None)
    shard = lab.open()
    topic: dict[tuple[str, bytes], bytes] = {}
    for record in arrivals:
        apply(shard, [record])
        if rnd.random() < 0.5:
            _emit(shard, topic, rnd.randint(1, 4))
    while shard.outbox(1):
        _emit(shard, topic, 3)
    forms = shard.forms
    wanted = {
        (name, forms.topic_key(key)): forms.value(name, row)
        for name in NAMES
        for key, row in reads(shard).public_rows(name)
    }
    assert topic == wanted
    assert sum(name == "sessions" for name, _ in wanted) == 5
    shard.close()


def _emit(shard, topic, limit):  # type: ignore[no-untyped-def]
    items = shard.outbox(limit)
    for item in items:
        key, value = shard.current(item)
        if value is None:
            topic.pop((item.projection, key), None)
        else:
            topic[item.projection, key] = value
    shard.clear_outbox(items)
