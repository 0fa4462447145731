"""What a producer imports: everything public is there, and nothing that only workers need is loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dalsegno

HEAVY = ("faust", "rocksdict", "click", "pydantic", "structlog", "aiohttp", "rich", "avro", "jgo", "asyncpg")

WRITE_A_SESSION = """
import sys
import dalsegno
assert not [name for name in sys.modules if name.startswith(("dalsegno.", "confluent_kafka", "fastavro"))]
from dalsegno import Publisher, Session, Receipt, Pending, KafkaConfig, Actor, events, errors, inline_blob, Blobs
from dalsegno.testing.memory_log import MemoryLog
log = MemoryLog()
with Publisher(log.connect()) as publisher:
    session = publisher.session("s-1")
    session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED")).result(10)
    publisher.resume("s-1")
print(*[name for name in sys.argv[1:] if name in sys.modules])
"""


def test_a_producer_loads_nothing_that_only_workers_need() -> None:
    command = [sys.executable, "-W", "error", "-c", WRITE_A_SESSION, *HEAVY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_every_public_name_can_be_had() -> None:
    for name in dalsegno.__all__:
        assert getattr(dalsegno, name) is not None
        assert name in dir(dalsegno)
    assert dalsegno.__version__
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = dalsegno.no_such_name
