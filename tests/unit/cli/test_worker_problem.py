"""What ``worker status`` calls a problem."""

from __future__ import annotations

import time
from typing import Any

from dalsegno.cli.worker import NOT_SENDING_SECONDS, _problem


def status(**more: Any) -> dict[str, Any]:
    return {"state": "RUNNING", "updated_at": time.time(), "partitions": {}, "emitter": None, **more}


def test_a_worker_that_has_sent_nothing_for_long_is_not_well() -> None:
    since = time.time() - NOT_SENDING_SECONDS - 5
    problem = _problem(status(emitter="TOPIC_AUTHORIZATION_FAILED: no", emitter_failing_since=since), running=True)
    assert problem is not None
    assert "TOPIC_AUTHORIZATION_FAILED" in problem


def test_a_transaction_that_met_a_rebalance_is_no_problem() -> None:
    failing = status(emitter="ILLEGAL_GENERATION: no", emitter_failing_since=time.time() - 1)
    assert _problem(failing, running=True) is None
    assert _problem(status(emitter_failing_since=None), running=True) is None
