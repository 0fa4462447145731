"""A recorded result is an answer to its call's arguments, not to the n-th call of a tool."""

from __future__ import annotations

import pytest
from msgspec.structs import asdict, replace

from dalsegno import blob
from dalsegno.errors import NotReconstructable
from dalsegno.harness.past import StoredContents
from dalsegno.model.records import Event
from dalsegno.replay.session_replay import Asked, replay_session
from dalsegno.replay.strategy import Strategy
from replay_lab import decided

FIRST = "work.1/t1/c0"


def asking_otherwise() -> list[Event]:
    """A session as it was recorded, but that its model asked the first call with other arguments."""
    arguments = blob(b'{"what":"something else"}', "application/json")
    found = []
    for event in decided():
        if event.type == "InferenceCompleted" and event.body["inference_id"] == "work.1/t1/i":
            output = [{**part, "blob": asdict(arguments)} if part["kind"] == "TOOL_CALL" and part["name"] == "look"
                      else part for part in event.body["output"]]  # fmt: skip
            calls = [{**call, "arguments_digest": arguments.digest} if call["name"] == "look" else call
                     for call in event.body["tool_calls"]]  # fmt: skip
            event = replace(event, body={**event.body, "output": output, "tool_calls": calls})
        found.append(event)
    return found


@pytest.mark.parametrize("mode", ["full", "simulation"])
def test_a_call_with_other_arguments_is_not_given_the_recorded_result(mode: str) -> None:
    with pytest.raises(NotReconstructable):
        replay_session(Asked(asking_otherwise(), Strategy(mode=mode), contents=StoredContents(None)))
    stopping = Strategy(mode=mode, on_miss="stop")
    found = replay_session(Asked(asking_otherwise(), stopping, contents=StoredContents(None)))
    assert found.diverged
    assert found.counts.missed == 1
    assert FIRST in (found.stopped or "")
