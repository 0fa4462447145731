"""Decisions of sessions that other harnesses decided, checked on what they say."""

from __future__ import annotations

import pytest

from dalsegno.replay.observed import Observed, check_observed
from recordings import Recording, each_recording, events_of, recording_of


def checked(recording: Recording) -> Observed:
    result = Observed()
    for events in events_of(recording):
        check_observed(events, result)
    return result


@pytest.mark.parametrize("recording", each_recording())
def test_every_decision_is_compared_derived_or_has_a_reason(recording: Recording) -> None:
    result = checked(recording)
    assert result.decisions == result.compared + result.derived + sum(result.not_comparable.values())
    assert result.different == 0


def test_calls_that_were_recorded_beside_the_answer_are_equal() -> None:
    result = checked(recording_of("inspect-ai", "browser.json"))
    assert (result.decisions, result.equal, result.derived) == (20, 4, 0)


@pytest.mark.parametrize("name", ["astropy__astropy-12907.traj.json", "pallets__flask-5014.traj.json"])
def test_calls_that_stand_only_in_the_answer_are_derived(name: str) -> None:
    result = checked(recording_of("mini-swe-agent", name))
    assert (result.derived, result.compared) == (20, 0)


def test_a_call_that_is_not_the_one_of_the_answer_is_found() -> None:
    events = list(events_of(recording_of("inspect-ai", "browser.json"))[0])
    place = next(place for place, event in enumerate(events) if event.type == "ToolCallRequested")
    body = {**events[place].body, "name": "other"}
    events[place].body, before = body, events[place].body
    try:
        result = check_observed(events)
    finally:
        events[place].body = before
    assert (result.equal, result.different) == (3, 1)
    assert [each.pointer for each in result.divergences[0].fields] == ["/name"]
    assert result.divergences[0].seq == events[place].seq
