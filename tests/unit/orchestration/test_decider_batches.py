"""Batching changes nothing: the same facts, one by one or together, in every order, give the same decisions by id."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest

from dalsegno.model.catalogue import CATALOGUE
from dalsegno.orchestration.documents import Question, Retrieval
from decider_lab import APPROVE, Scene, stage

T1 = "work.1/t1"
Fact = Callable[[Scene], object]


def receipts() -> Scene:
    scene = Scene()
    scene.answer("", ("look",), ("put",), ("look", {"of": "x"}))
    for number in range(3):
        scene.start(f"{T1}/c{number}")
    return scene


def people() -> Scene:
    scene = Scene(policy=[APPROVE])
    scene.answer("", *[("write", {"n": number}) for number in range(3)])
    return scene


def verdicts() -> Scene:
    scene = Scene([stage(validators=["judged", "tests"])])
    scene.answer("done")
    return scene


def asked() -> Scene:
    asks = [Question(id="ok", prompt="ok?"), Question(id="how", prompt="how?")]
    return Scene([stage(retrieve=[Retrieval(id="kb")], ask=asks)])


CASES: list[tuple[Callable[[], Scene], list[Fact]]] = [
    (receipts, [lambda scene, n=n: scene.result(f"{T1}/c{n}", f"result {n}") for n in range(3)]),
    (
        receipts,
        [
            lambda scene: scene.result(f"{T1}/c0", "it broke", "ERROR"),
            lambda scene: scene.no_result(f"{T1}/c1", "TIMEOUT"),
            lambda scene: scene.no_result(f"{T1}/c2", "INFRA", not_started=True),
        ],
    ),
    (
        people,
        [
            lambda scene: scene.grant(f"{T1}/c0/a1"),
            lambda scene: scene.deny(f"{T1}/c1/a1"),
            lambda scene: scene.grant(f"{T1}/c2/a1", modified={"n": 9}),
        ],
    ),
    (
        verdicts,
        [
            lambda scene: scene.judge(f"{T1}/v.judged", "REJECT"),
            lambda scene: scene.report(f"{T1}/v.tests", "REJECT", evidence=(b"why",)),
        ],
    ),
    (
        asked,
        [
            lambda scene: scene.retrieve("work.1/r.kb"),
            lambda scene: scene.provide("work.1/q.ok"),
            lambda scene: scene.provide("work.1/q.how", "DECLINED"),
        ],
    ),
]


def decided(scene: Scene) -> list[str]:
    """What was decided, each with all it says, in an order of its own."""
    return sorted(
        repr((event.type, {name: value for name, value in event.body.items() if name != "meta"}))
        for event in scene.events
        if CATALOGUE[event.type].cls == "D"
    )


@pytest.mark.parametrize(("begin", "facts"), CASES, ids=["receipts", "failures", "people", "verdicts", "asked"])
def test_no_order_and_no_batch_changes_a_decision(begin: Callable[[], Scene], facts: list[Fact]) -> None:
    found = []
    for order in permutations(facts):
        one_by_one, together = begin(), begin()
        before = len(decided(together))
        for fact in order:
            fact(one_by_one)
        with together.together():
            for fact in order:
                fact(together)
        found += [decided(one_by_one), decided(together)]
    assert all(each == found[0] for each in found)
    assert len(found[0]) > before, "something follows of the facts"
