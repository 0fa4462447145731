"""A log in memory, one connection to it, and a publisher over that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from dalsegno.errors import Unsent
from dalsegno.log.publisher import Publisher
from dalsegno.testing.memory_log import MemoryLog, MemoryTransport


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(partitions=4)


@pytest.fixture
def transport(log: MemoryLog) -> MemoryTransport:
    return log.connect()


@pytest.fixture
def publisher(transport: MemoryTransport) -> Iterator[Publisher]:
    """Publishes into topics of the prefix ``t``; what a test leaves without a report is no failure."""
    found = Publisher(transport, prefix="t", writer="test/1/a")
    yield found
    with suppress(Unsent):
        found.close(1)
