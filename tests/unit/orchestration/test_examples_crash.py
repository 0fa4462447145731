"""The workflows in ``examples/``, killed wherever they may be and resumed from the log alone."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
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
    """An example that nobody killed. ``left``: what it would have left behind, killed at a point: behind each record,
    and before each fact, when it has happened and nobody knows."""

    recorded: list[Event]
    outcome: list[str]
    effects: list[str]
    files: dict[str, str]
    left: dict[Point, Run]


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    return (tmp_path / str(number) for number in count())


Runner = Callable[[Example], Whole]


@pytest.fixture
def whole(folders: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Runner:
    def run_whole(example: Example) -> Whole:
        run = Run(example, next(folders), monkeypatch)
        left: dict[Point, Run] = {}

        def watch(point: Point) -> None:
            left[point] = run.copy(next(folders))

        run.log.watch = watch
        assert run.to_its_end() == ENDED
        recorded = run.recorded()
        types = iter(event.type for event in recorded)
        sent = [next(types) if topic.endswith("events") else "" for topic in run.sent[0]]
        facts = {number for number, type_ in enumerate(sent, 1) if type_ and getattr(events, type_).CLASS == "X"}
        left = {point: copy for point, copy in left.items() if point.stored or point.number in facts}
        return Whole(recorded, outcome(recorded), run.effects(), run.files(), left)

    return run_whole


def wrong(run: Run, expected: Whole, deaths: Sequence[Point] = ()) -> list[str]:
    """What is other than where nobody was killed, once the run has come to its end."""
    stopped = run.to_its_end(deaths)
    recorded = run.recorded()
    found = [] if stopped == ENDED else [f"{stopped}"]
    found += sorted(set(outcome(recorded)) ^ set(expected.outcome))
    found += [f"effect: {line}" for line in sorted(set(run.effects()) ^ set(expected.effects))]
    found += [f"twice: {line}" for line in doubled(run.effects())]
    found += [] if run.files() == expected.files else ["other files"]
    found += [f"{call} had the keys {had}" for call, had in keys(recorded).items() if len(had) > 1]
    return found + [f"{each}" for each in violations(recorded)] + undecided(recorded, since=recovered_at(recorded))


@EXAMPLES
def test_it_runs_to_its_end_and_every_decision_is_the_one_that_was_due(whole: Runner, example: Example) -> None:
    recorded = whole(example).recorded
    assert undecided(recorded) == []
    assert violations(recorded) == []
    assert len(recorded) > 100


@EXAMPLES
def test_killed_at_any_record_it_comes_to_the_same_end_with_each_effect_once(whole: Runner, example: Example) -> None:
    expected = whole(example)
    assert expected.effects
    assert len(expected.left) > len(expected.recorded)
    problems = {point: found for point, run in expected.left.items() if (found := wrong(run, expected))}
    assert problems == {}


@EXAMPLES
def test_killed_twice_it_comes_to_the_same_end(whole: Runner, example: Example) -> None:
    expected = whole(example)
    chosen = random.Random(5)
    for first in chosen.sample(sorted(expected.left), PAIRS):
        second = Point(chosen.randint(1, 40), chosen.random() < 0.5)
        expected.left[first].behind = chosen.choice([None, 0, 1, 7])
        assert wrong(expected.left[first], expected, [second]) == [], (first, second)


@pytest.mark.long
@pytest.mark.timeout(LONG_SECONDS)
@EXAMPLES
def test_killed_at_every_pair_of_records_it_comes_to_the_same_end(
    whole: Runner, folders: Iterator[Path], example: Example
) -> None:
    expected = whole(example)
    for first, left in expected.left.items():
        for number in count(1):
            run = left.copy(next(folders))
            run.behind = number % 3 or None
            assert wrong(run, expected, [Point(number, True)]) == [], (first, number)
            shutil.rmtree(run.folder)
            if len(run.sent) == 1:
                break  # it came to the end before it was to die


CALL = "pay.1/t1/c0"
WAITS = Stopped("WAITING", (CALL,))


def test_a_wire_that_may_have_gone_is_waited_for_and_any_other_is_sent_once(whole: Runner) -> None:
    expected = whole(WIRE)
    waited: list[tuple[str, bool, int]] = []
    for point, run in expected.left.items():
        stopped = run.to_its_end()
        recorded = run.recorded()
        assert violations(recorded) == []
        assert undecided(recorded) == []
        if stopped == ENDED:
            assert (outcome(recorded), run.effects()) == (expected.outcome, expected.effects), point
            continue
        assert stopped == WAITS
        assert recorded[-1].type == "SessionRecovered"
        (open_,) = recorded[-1].body["in_flight"]
        assert (open_["id"], open_["resolution"]) == (CALL, "UNKNOWN_OUTCOME")
        waited.append((expected.recorded[point.number - 1].type, point.stored, len(run.effects())))
    # Nobody who reads the log can tell these from each other.
    assert waited == [("ToolCallStarted", True, 0), ("ToolReceiptRecorded", False, 1)]


def lost(whole: Runner, ran: bool) -> Run:
    """The wire, killed between the start of its call and the receipt; ``ran``: when the money had gone."""
    expected = whole(WIRE)
    types = [event.type for event in expected.recorded]
    started = types.index("ToolCallStarted") + 1
    run = expected.left[Point(started + 1, False) if ran else Point(started, True)]
    assert len(run.effects()) == ran
    return run


@pytest.mark.parametrize("ran", [True, False])
def test_a_wire_that_is_waited_for_is_never_sent_again_by_itself(whole: Runner, ran: bool) -> None:
    run = lost(whole, ran)
    for _ in range(3):
        assert run.to_its_end() == WAITS
    assert len(run.effects()) == ran
    assert not [event for event in run.recorded() if event.type == "ToolReceiptRecorded"]


@pytest.mark.parametrize(("ran", "status"), [(True, "OK"), (False, "ERROR")])
def test_who_looked_it_up_hands_in_the_receipt_and_the_session_goes_on(whole: Runner, ran: bool, status: str) -> None:
    run = lost(whole, ran)
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
