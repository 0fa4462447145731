"""What the random tests of the kernel once found, each as a story of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import pytest

from dalsegno.model.cursor import Commit
from dalsegno.model.records import Event
from dalsegno.testing.builder import SessionBuilder, Written
from dalsegno.testing.reference import settle
from dalsegno.testing.strategies import strange_frame
from kernel_world import Worker, World, projections_of
from shard_lab import Lab, apply, folded, paths


@pytest.fixture
def world(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> World:
    caplog.set_level(logging.ERROR, logger="dalsegno.state")
    return World(tmp_path, partitions=1, workers=2, disk=False)


def arrive(world: World, records: Iterable[Written]) -> None:
    for record in records:
        world.logs[0].append(record.key, record.value)


def live(world: World, worker: Worker) -> None:
    while world.read(worker, 0, 1000) or world.emit(0, 1000):
        pass


def told(world: World) -> dict[str, dict[bytes, bytes]]:
    return {each.name: dict(world.topic(0, each.name)) for each in projections_of(world.trail)}


def wanted(world: World) -> dict[str, dict[bytes, bytes]]:
    """What the topics must hold: the rows of a worker that read everything from the start."""
    fresh = World(Path("unused"), partitions=1, workers=1, disk=False)
    fresh.trail = world.trail
    for record in world.logs[0].ever():
        fresh.logs[0].append(record.key, record.value)
    fresh.assign(0, fresh.workers[0])
    live(fresh, fresh.workers[0])
    return told(fresh)


def session_with_a_call() -> tuple[SessionBuilder, list[Written], Written]:
    builder = SessionBuilder("s-1", profile="OBSERVED").begin()
    builder.append("TurnStarted", turn_id="t")
    before = list(builder.records)
    call = builder.append("ToolCallRequested", tool_call_id="c", name="shell", effect="READ")
    return builder, before, call


@pytest.mark.parametrize("displaced_by", ["rival", "amendment", "tombstone"])
@pytest.mark.parametrize("how", ["snapshot", "own folder", "zombie"])
def test_a_row_that_the_new_owner_never_had_leaves_the_topics(world: World, displaced_by: str, how: str) -> None:
    """One worker emits a call. Its record is displaced before another worker, from an older copy, gets to read it."""
    builder, before, call = session_with_a_call()
    rival = builder.branch(len(before), writer="builder/1/rival")
    first, second = world.workers
    arrive(world, before)
    if how != "snapshot":
        world.assign(0, second)
        live(world, second)
    world.assign(0, first, linger=how == "zombie")
    live(world, first)
    world.snapshot(first, 0)
    arrive(world, [call])
    live(world, first)
    assert len(world.topic(0, "tools")) == 1
    if displaced_by == "rival":
        arrive(world, [rival.recover()])
    elif displaced_by == "amendment":
        arrive(world, [builder.amend([call])])
    else:
        arrive(world, [Written(call.key, None, None)])
        world.logs[0].compact(world.logs[0].end)
    if how == "zombie":
        while world.read(second, 0, 1000):
            pass
    world.kill(first)
    world.assign(0, second)
    live(world, second)
    assert world.topic(0, "tools") == {}
    assert told(world) == wanted(world)


def test_a_worker_that_comes_back_and_spoke_last_compares_nothing(world: World) -> None:
    _, before, call = session_with_a_call()
    first = world.workers[0]
    arrive(world, before)
    world.assign(0, first)
    live(world, first)
    world.kill(first)
    arrive(world, [call])
    world.assign(0, first)
    assert not world.open_by(first).building
    live(world, first)
    assert told(world) == wanted(world)


def test_a_transaction_in_parts_names_its_emitter_at_once(world: World) -> None:
    """The offset moves only with the last part, but the topics hold rows of this copy from the first part on."""
    builder, before, call = session_with_a_call()
    first, second = world.workers
    arrive(world, before)
    world.assign(0, second)
    live(world, second)
    stood_at = world.commits[0].offset
    world.assign(0, first)
    live(world, first)
    arrive(world, [call])
    while world.read(first, 0, 1000):
        pass
    world.emit(0, 1)
    assert world.commits[0] == Commit(stood_at, "0" * 32, "-", world.open_by(first).shard.emitter)
    arrive(world, [builder.amend([call])])
    world.kill(first)
    world.assign(0, second)
    live(world, second)
    assert told(world) == wanted(world)


def test_a_fold_that_goes_back_a_version_leaves_nothing_in_the_older_topic(world: World) -> None:
    _, before, _ = session_with_a_call()
    worker = world.workers[0]
    arrive(world, before)
    world.assign(0, worker)
    live(world, worker)
    world.release(2)
    arrive(world, [Written(record.key, None, None) for record in before])
    world.assign(0, worker)
    live(world, worker)
    world.release(1)
    world.assign(0, worker)
    live(world, worker)
    assert world.topic(0, "trail") == {}
    assert told(world) == wanted(world)


def test_every_copy_of_a_shard_has_a_name_of_its_own(world: World) -> None:
    _, before, _ = session_with_a_call()
    first, second = world.workers
    arrive(world, before)
    world.assign(0, first)
    live(world, first)
    name = world.open_by(first).shard.emitter
    world.snapshot(first, 0)
    world.kill(first)
    world.assign(0, second)
    assert world.open_by(second).shard.emitter != name
    world.kill(second)
    world.assign(0, first)
    assert world.open_by(first).shard.emitter == name


GARBAGE = [b"no frame", b"\xc3\x01" + bytes(8) + b"?", b"\xc3\x01" + bytes(8) + b"!"]


@pytest.mark.parametrize("first", [None, *GARBAGE])
@pytest.mark.parametrize("second", [None, *GARBAGE])
@pytest.mark.parametrize("resent", [False, True])
def test_the_last_bytes_under_a_key_count_whatever_they_are(
    first: bytes | None, second: bytes | None, resent: bool
) -> None:
    """Compaction keeps only them, so a shard that saw the ones before must not remember more."""
    builder = SessionBuilder("s-1").begin()
    victim = builder.records[3]
    others = [record for record in builder.records if record is not victim]
    under_the_key = [Written(victim.key, value, None) for value in (first, second)]
    history = [*others, under_the_key[0], victim, under_the_key[1], *([victim] if resent else [])]
    last = history[-1]
    compacted = folded([*others, last])
    for batch in (1, 3, 100):
        lab = Lab()
        shard = lab.open()
        for at in range(0, len(history), batch):
            apply(shard, history[at : at + batch])
        assert shard.digests() == compacted.digests()
        assert paths(shard) == paths(compacted)
        shard.retry_held()
        assert shard.digests() == compacted.digests()
    settled = settle([(record.key, record.value) for record in history])["s-1"]
    assert len(settled.events) == (len(builder.records) if resent else 3)


def test_an_amended_record_that_cannot_be_read_holds_nothing() -> None:
    builder = SessionBuilder("s-1").begin()
    tip = builder.tip
    assert tip is not None
    strange = strange_frame("s-1", tip.seq + 1)
    hash_ = bytes.fromhex(strange.key.rpartition(b":")[2].decode())
    meant = Event("s-1", tip.seq + 1, hash_, tip.hash, 0, "NoteRecorded", True, True, {}, {})
    amendment = builder.amend([strange._replace(event=meant)], action="SKIPPED")
    records = [*builder.records, strange, amendment]
    settled = settle([(record.key, record.value) for record in records])["s-1"]
    head, path = paths(folded(records))["s-1"]
    assert settled.held is None
    assert head.held_reason is None
    assert [event.hash for event in settled.events] == [hash_ for _, hash_, _ in path]
    assert path[-1] == (tip.seq + 1, hash_, "SKIPPED")
