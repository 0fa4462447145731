"""Five changed deciders are each found at the seq that was written down beforehand; the unchanged one is not."""

from __future__ import annotations

import pytest

from dalsegno.orchestration.decider import World, configuration_in_force
from dalsegno.replay.check import check
from decider_lab import check_log, folded
from decider_variants import VARIANTS, Variant, install, recorded


def test_the_record_is_what_the_page_says() -> None:
    scene = recorded()
    check_log(scene)
    types = {event.seq: event.type for event in scene.events}
    said = {11: "TransitionTaken", 23: "ToolRetryDecided", 27: "TurnStarted", 34: "StageCompleted",
            45: "ApprovalGranted", 57: "ValidationRequested", 62: "SessionCompleted"}  # fmt: skip
    assert {seq: types[seq] for seq in said} == said
    assert len(types) == 62


def test_the_products_decider_is_found_nowhere() -> None:
    result = check(recorded().events)
    assert (result.diverged, result.compared, result.equal) == (0, 38, 38)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda each: each.name)
def test_a_changed_decider_is_found_where_it_first_decides_otherwise(
    variant: Variant, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = recorded().events
    install(monkeypatch, variant)
    first = check(events).first
    assert first is not None
    assert first.seq == variant.differs_at
    rows, contents = folded([event for event in events if event.seq < variant.differs_at])
    world = World(rows, configuration_in_force(rows, contents), contents)
    assert variant.due(world) == variant.instead
