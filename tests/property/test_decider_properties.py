"""The decider in any workflow and any world: the rules hold, it comes to an end or waits for somebody, nothing that may
not be repeated is, and the order in which answers arrive decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dalsegno.harness.conductor import Conductor
from dalsegno.harness.writers import Recorder
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.records import Event
from dalsegno.orchestration.decider import MemoryContents
from dalsegno.projections.decider.rows import APPROVAL, CALL, COMPRESSION, INFERENCE, REQUEST
from dalsegno.replay.rerun import Runner
from dalsegno.replay.serving import Recording
from dalsegno.replay.strategy import Strategy
from decider_lab import Scene, check_counted, check_log, folded, plain, starts
from decider_world import Oracle, documents, moves, rare, waits
from examples import examples

# Of 32 numbers one is a crash at rest, one a crash in the midst of deciding, one something rare; see ``play``.
NUMBERS = st.lists(st.integers(0, 2**16), max_size=60)
SMALL = 4
"""So many decisions less one survive a crash in the midst of them, at most."""


@settings(max_examples=examples(120))
@given(documents(), NUMBERS)
def test_whatever_happens_every_rule_holds_and_every_decision_was_due(
    given: dict[str, Any], numbers: list[int]
) -> None:
    scene = Scene(**given, begun=False)
    play(scene, numbers)
    check_log(scene)
    _, contents = folded(scene.events)
    assert contents.found.items() <= scene.contents.found.items()
    for call, attempts in starts(scene):
        check_attempts(scene, call, attempts)


@settings(max_examples=examples(40))
@given(documents(), NUMBERS, st.integers(0, 2**16))
def test_a_session_that_is_answered_ends_or_waits_for_somebody(
    given: dict[str, Any], numbers: list[int], seed: int
) -> None:
    scene = Scene(**given, begun=False)
    play(scene, numbers)
    oracle = Oracle(seed, scene)
    for _ in range(2000):
        ready = oracle.ready() if scene.conductor.running else []
        if not ready:
            break
        ready[0]()
        check_rest(scene)
    assert not scene.conductor.running or waits(scene), "nobody is waited for, and nothing is due"


@settings(max_examples=examples(60))
@given(
    documents(calm=True), st.integers(0, 2**16), st.randoms(use_true_random=False), st.randoms(use_true_random=False)
)
def test_the_order_of_answers_decides_nothing(given: dict[str, Any], seed: int, one: Any, other: Any) -> None:
    first, second = answered(given, seed, one), answered(given, seed, other)
    assert decided(first.events) == decided(second.events)


@settings(max_examples=examples(60))
@given(documents(), NUMBERS)
def test_a_session_decided_again_from_its_facts_decides_the_same(given: dict[str, Any], numbers: list[int]) -> None:
    """The facts one after the other as they can be delivered, recoveries too; decisions compared by what they say."""
    scene = Scene(**given, begun=False)
    play(scene, numbers)
    begun = next(place for place, event in enumerate(scene.events) if event.type == "SessionStarted") + 1
    recorder = Recorder("s", lambda: 0, after=scene.events[:begun])
    conductor = Conductor(recorder, MemoryContents(scene.contents.found))
    conductor.take_in(recorder.events)
    result = Runner(conductor, Recording.of(scene.events[begun:]), Strategy(on_miss="stop")).run()
    then, now = decided(scene.events), decided(recorder.events)
    assert not then - now
    # Of a session that has not ended, a run goes on where the record stops.
    assert scene.conductor.running or not now - then
    assert not result.inexact
    assert result.counts.rerun == result.counts.simulated == 0


def answered(given: dict[str, Any], seed: int, rnd: Any) -> Scene:
    """A session whose answers come in an order of chance."""
    scene = Scene(**given, begun=False)
    oracle = Oracle(seed, scene)
    while scene.conductor.running and (ready := oracle.ready()):
        rnd.choice(ready)()
        assert len(scene.events) < 5000
    return scene


def decided(events: Iterable[Event]) -> Counter[str]:
    """Decisions by what they say, wherever they stand."""
    return Counter(
        repr((event.type, {name: value for name, value in event.body.items() if name != "meta"}))
        for event in events
        if CATALOGUE[event.type].cls == "D"
    )


def play(scene: Scene, numbers: list[int]) -> None:
    """One move per number; some of them are crashes, some in the middle of deciding."""
    for number in numbers:
        kind, number = number % 32, number // 32
        if not scene.conductor.running:
            return
        if kind == 0 or (kind == 1 and not moves(scene)):
            scene.recover()
        elif kind == 1:
            crash_within(scene, number)
        elif kind == 2:
            choose(rare(scene), number)
        else:
            choose(moves(scene), number)
        check_rest(scene)


def choose(possible: list[Any], number: int) -> None:
    if possible:
        possible[number % len(possible)]()


def crash_within(scene: Scene, number: int) -> None:
    """The writer dies after a few of the decisions that a fact leads to."""
    scene.drain = partial(scene.drain, number % SMALL)  # type: ignore[method-assign]
    choose(moves(scene), number // SMALL)
    del scene.drain
    if scene.conductor.running:
        scene.recover()


def check_rest(scene: Scene) -> None:
    """Of a session that waits, or is over."""
    check_counted(scene)
    rows, _ = folded(scene.events)
    assert plain(rows) == plain(scene.conductor.rows)
    head = scene.head
    if not head.turn:
        open_ones = {"UNRESOLVED", "STARTED", "AUTHORIZED", "REQUESTED", "ATTEMPT_FAILED"}
        assert {call.phase for call in scene.world.rows.family(CALL).values()} <= open_ones
        if scene.conductor.running:
            assert not scene.world.rows.family(CALL)
        assert all(row.phase == "OPEN" for row in scene.world.rows.family(APPROVAL).values())
        assert all(row.phase == "OPEN" for row in scene.world.rows.family(COMPRESSION).values())
    if not head.stage:
        assert all(row.phase == "OPEN" for row in scene.world.rows.family(REQUEST).values())
    inferences = scene.world.rows.family(INFERENCE)
    kept = {id for id, row in inferences.items() if row.phase != "OPEN"} - {head.inference}
    assert all(id.startswith(f"{head.compressing or head.turn or head.stage}") for id in kept)


def check_attempts(scene: Scene, call: str, attempts: list[Any]) -> None:
    """Another attempt begins only where the one before had no effect, or could have it twice."""
    before: Any = None
    for event in attempts:
        if event.type == "ToolCallFailed":
            before = event
            continue
        requested = next(e for e in scene.events if e.type == "ToolCallRequested" and e.body["tool_call_id"] == call)
        repeatable = requested.body["effect"] == "READ" or event.body["idempotency_key"] is not None
        never_began = before is not None and before.type == "ToolCallFailed" and before.body["not_started"]
        assert before is None or repeatable or never_began, f"{call} was started again"
        before = event
