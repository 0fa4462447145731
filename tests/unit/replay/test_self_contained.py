"""A session is decided again from its events alone: no connection is opened, no other process begun, no tool called."""

from __future__ import annotations

import socket
import subprocess
from typing import Any

import pytest

from dalsegno.replay.again import decide_again
from dalsegno.replay.check import check
from dalsegno.replay.compared import compare_run
from decider_variants import recorded


def test_decisions_are_made_again_without_network_processes_or_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    events = recorded().events
    begun = next(place for place, event in enumerate(events, 1) if event.type == "SessionStarted")

    def nobody(*_: Any, **__: Any) -> None:
        raise AssertionError("something outside was asked")

    monkeypatch.setattr(socket, "socket", nobody)
    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    monkeypatch.setattr(subprocess, "Popen", nobody)
    checked = check(events)
    assert (checked.diverged, checked.equal, checked.unreconstructable) == (0, 38, None)
    again, result = decide_again(events)
    compared = compare_run(events[begun:], again[begun:])
    assert (compared.divergences, compared.equal) == ([], 38)
    assert (result.ended, result.stopped) == (True, None)
