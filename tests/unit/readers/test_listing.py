"""Which sessions there are is answered from their rows: no event of any is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dalsegno.readers.sessions import list_sessions
from dalsegno.state.history import Journal
from dalsegno.testing.builder import SessionBuilder
from reader_lab import House


def test_a_list_of_sessions_reads_none_of_their_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*arguments: Any) -> Any:
            read.append(arguments)
            return method(*arguments)

        return counting

    with House(tmp_path) as house:
        house.shard([record for number in range(20) for record in SessionBuilder(f"s-{number}").begin().records])
        for name in ("entry", "must_have", "read", "event"):
            monkeypatch.setattr(Journal, name, counted(getattr(Journal, name)))
        found = list_sessions(house.reader(), 10)
        assert (len(found), read) == (10, [])
        assert list(found[0].view.reads.path(found[0].session_id))
        assert read, "what is read would be counted"
