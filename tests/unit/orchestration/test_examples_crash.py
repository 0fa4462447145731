"""The workflows in ``examples/``, killed wherever they may be and resumed from the log alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from dalsegno import blob, events
from dalsegno.harness.live import Stopped
from dalsegno.model.records import Event
from workflow_lab import (
    CODING,
    TRIAGE,
    WIRE,
    Example,
    Point,
    Run,
    doubled,
    keys,
    outcome,
    recovered_at,
    undecided,
    violations,
)

ENDED = Stopped("ENDED")
EXAMPLES = pytest.mark.parametrize("example", [CODING, TRIAGE], ids=lambda each: each.name)
PAIRS = 12
"""Of each example in CI; with full counts it is every pair."""
LONG_SECONDS = 4 * 3600


@dataclass(frozen=True)
class Whole:
    """An example that nobody killed."""

    recorded: list[Event]
    outcome: list[str]
    effects: list[str]
    files: dict[str, str]
    points: list[Point]
    """Behind each record; and before each fact, when it has happened and nobody knows."""


Begin = Callable[[Example], Run]


@pytest.fixture
def begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Begins an example in a folder of its own."""
    folders = (tmp_path / str(number) for number in range(1_000_000))
    return lambda example: Run(example, next(folders), monkeypatch)


def whole(begin: Begin, example: Example) -> Whole:
    run = begin(example)
    assert run.to_its_end() == ENDED
    recorded = run.recorded()
    types = iter(event.type for event in recorded)
    sent = [next(types) if topic.endswith("events") else "" for topic in run.sent[0]]
    points = [Point(number, True) for number in range(1, len(sent) + 1)]
    facts = [number for number, type_ in enumerate(sent, 1) if type_ and getattr(events, type_).CLASS == "X"]
    points += [Point(number, False) for number in facts]
    return Whole(recorded, outcome(recorded), run.effects(), run.files(), points)


def wrong(begin: Begin, example: Example, expected: Whole, deaths: Sequence[Point]) -> tuple[Run, list[str]]:
    """What is other than where nobody was killed."""
    run = begin(example)
    stopped = run.to_its_end(deaths)
    recorded = run.recorded()
    found = [] if stopped == ENDED else [f"{stopped}"]
    found += sorted(set(outcome(recorded)) ^ set(expected.outcome))
    found += [f"effect: {line}" for line in sorted(set(run.effects()) ^ set(expected.effects))]
    found += [f"twice: {line}" for line in doubled(run.effects())]
    found += [] if run.files() == expected.files else ["other files"]
    found += [f"{call} had the keys {had}" for call, had in keys(recorded).items() if len(had) > 1]
    found += [f"{each}" for each in violations(recorded)] + undecided(recorded, since=recovered_at(recorded))
    return run, [f"{example.name} {[tuple(each) for each in deaths]}: {each}" for each in found]


@EXAMPLES
def test_it_runs_to_its_end_and_every_decision_is_the_one_that_was_due(begin: Begin, example: Example) -> None:
    expected = whole(begin, example)
    assert undecided(expected.recorded) == []
    assert violations(expected.recorded) == []
    assert len(expected.recorded) > 100


@EXAMPLES
def test_killed_at_any_record_it_comes_to_the_same_end_with_each_effect_once(begin: Begin, example: Example) -> None:
    expected = whole(begin, example)
    assert expected.effects
    problems = [each for point in expected.points for each in wrong(begin, example, expected, [point])[1]]
    assert problems == []


@EXAMPLES
def test_killed_twice_it_comes_to_the_same_end(begin: Begin, example: Example) -> None:
    expected = whole(begin, example)
    chosen = random.Random(5)
    problems: list[str] = []
    for _ in range(PAIRS):
        second = Point(chosen.randint(1, 40), chosen.random() < 0.5)
        problems += wrong(begin, example, expected, [chosen.choice(expected.points), second])[1]
    assert problems == []


@pytest.mark.long
@pytest.mark.timeout(LONG_SECONDS)
@EXAMPLES
def test_killed_at_every_pair_of_records_it_comes_to_the_same_end(begin: Begin, example: Example) -> None:
    expected = whole(begin, example)
    for first in expected.points:
        number = 1
        while True:
            run, problems = wrong(begin, example, expected, [first, Point(number, True)])
            assert problems == []
            if len(run.sent) == 2:
                break  # the second process came to the end before it was to die
            number += 1


CALL = "pay.1/t1/c0"


def lost(begin: Begin, *, ran: bool) -> Run:
    """The wire, killed between the start of its call and the receipt; ``ran``: when the money had gone."""
    run = begin(WIRE)
    types = [event.type for event in whole(begin, WIRE).recorded]
    point = (
        Point(types.index("ToolReceiptRecorded") + 1, False) if ran else Point(types.index("ToolCallStarted") + 1, True)
    )
    assert run.to_its_end([point]) == Stopped("WAITING", (CALL,))
    return run


def test_a_wire_that_may_have_gone_is_waited_for_and_any_other_is_sent_once(begin: Begin) -> None:
    expected = whole(begin, WIRE)
    waited: list[tuple[str, bool, int]] = []
    for point in [*expected.points, *(Point(number, False) for number in range(1, len(expected.recorded) + 1))]:
        run = begin(WIRE)
        stopped = run.to_its_end([point])
        recorded = run.recorded()
        assert violations(recorded) == []
        assert undecided(recorded) == []
        if stopped == ENDED:
            assert (outcome(recorded), run.effects()) == (expected.outcome, expected.effects), point
            continue
        assert stopped == Stopped("WAITING", (CALL,))
        assert recorded[-1].type == "SessionRecovered"
        assert [(each["id"], each["resolution"]) for each in recorded[-1].body["in_flight"]] == [
            (CALL, "UNKNOWN_OUTCOME")
        ]
        waited.append((expected.recorded[point.number - 1].type, point.stored, len(run.effects())))
    # Nobody who reads the log can tell these from each other.
    assert set(waited) == {("ToolCallStarted", True, 0), ("ToolReceiptRecorded", False, 1)}


@pytest.mark.parametrize("ran", [True, False])
def test_a_wire_that_is_waited_for_is_never_sent_again_by_itself(begin: Begin, ran: bool) -> None:
    run = lost(begin, ran=ran)
    for _ in range(3):
        assert run.to_its_end() == Stopped("WAITING", (CALL,))
    assert len(run.effects()) == ran
    assert outcome(run.recorded())[-1].startswith("TransitionTaken")


@pytest.mark.parametrize(("ran", "status"), [(True, "OK"), (False, "ERROR")])
def test_who_looked_it_up_hands_in_the_receipt_and_the_session_goes_on(begin: Begin, ran: bool, status: str) -> None:
    run = lost(begin, ran=ran)
    receipt = events.ToolReceiptRecorded(
        tool_call_id=CALL,
        attempt=1,
        status=status,  # type: ignore[arg-type]
        receipt_id="by-hand",
        result=blob("looked up at the bank"),
        result_digest=blob("looked up at the bank").digest,
        started_at=1,
        ended_at=2,
    )
    run.tell(receipt)
    assert run.to_its_end() == ENDED
    assert len(run.effects()) == ran
    recorded = run.recorded()
    assert undecided(recorded) == violations(recorded) == []
    (taken,) = [event for event in recorded if event.type == "ToolReceiptRecorded"]
    assert taken.meta["actor_id"] == "support"
