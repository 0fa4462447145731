"""An answer that asks for more calls than a decision remembers is taken for a failed one."""

from __future__ import annotations

import pytest

from dalsegno.harness.live import Live
from dalsegno.harness.performing import Ports
from dalsegno.harness.providers.scripted import Scripted
from dalsegno.projections.decider.rows import LISTED
from decider_lab import Scene, check_log, stage


class Clock:
    def now(self) -> int:
        return 1


@pytest.mark.parametrize(("calls", "fails"), [(LISTED, False), (LISTED + 1, True)])
def test_too_many_calls_are_a_failed_answer_and_nothing_is_called(calls: int, fails: bool) -> None:
    scene = Scene([stage()])
    script = [{"match": "*/t1/i", "calls": [{"name": "look"}] * calls}, {"match": "*", "text": "done"}]
    Live(scene.conductor, Ports(clock=Clock(), providers={"*": Scripted(script)}), None, patience_seconds=3).run()
    failed = [event.body["error"]["error_class"] for event in scene.events if event.type == "InferenceFailed"]
    assert failed == (["too-many-calls"] if fails else [])
    assert sum(event.type == "ToolCallRequested" for event in scene.events) == (0 if fails else calls)
    check_log(scene)
