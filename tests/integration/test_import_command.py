"""``dalsegno import`` and ``dalsegno workload`` against the real broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dalsegno.cli.frame import run
from dalsegno.log.codec import place
from dalsegno.log.reader import read_range
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.records import Event
from inspect_logs import THEORY, needs_traces

if TYPE_CHECKING:
    from conftest import KafkaForTest

pytestmark = pytest.mark.broker
PARTITIONS = 4

# Imports a file and is killed by itself, without any clean-up, once this many records have left the process.
KILLED_IMPORT = """
    import os, signal, sys
    from pathlib import Path
    from dalsegno.importers.inspect_ai import InspectImporter
    from dalsegno.importers.run import import_file
    from dalsegno.log.kafka import KafkaConfig
    from dalsegno.log.publisher import Publisher

    publisher = Publisher(KafkaConfig(sys.argv[1]), prefix=sys.argv[2])
    send, left = publisher.send, int(sys.argv[4])

    def send_some(key, value):
        global left
        if not left:
            publisher.flush(30)
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return send(key, value)

    publisher.send = send_some
    import_file(publisher, InspectImporter(), Path(sys.argv[3]))
"""


@pytest.fixture
def cli(
    kafka: KafkaForTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    kafka.topics(partitions=PARTITIONS)
    monkeypatch.setenv("DALSEGNO_KAFKA__BOOTSTRAP_SERVERS", kafka.config.bootstrap_servers)
    monkeypatch.setenv("DALSEGNO_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("DALSEGNO_PREFIX", kafka.prefix)

    def call(*arguments: str, code: int = 0) -> Any:
        capsys.readouterr()
        found = run(["-o", "json", *arguments])
        out, err = capsys.readouterr()
        assert found == code, f"exit code {found}\n{out}\n{err}"
        return json.loads(out) if out else err

    return call


def keys_in_log(kafka: KafkaForTest) -> list[bytes]:
    return [key for _, key, _ in records_in_log(kafka)]


def records_in_log(kafka: KafkaForTest) -> list[tuple[int, bytes, bytes]]:
    found = []
    for partition in range(PARTITIONS):
        for batch in read_range(kafka.config, f"{kafka.prefix}.events", partition, None):
            found += [(partition, r.key, r.value) for r in batch.records if r.key and r.value]
    return found


@needs_traces
def test_an_import_killed_in_the_middle_and_done_again(kafka: KafkaForTest, cli: Any) -> None:
    arguments = [kafka.config.bootstrap_servers, kafka.prefix, str(THEORY), "1500"]
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED_IMPORT), *arguments], timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(keys_in_log(kafka)) == 1500
    (again,) = cli("import", "inspect", str(THEORY))
    assert (again["sessions"], again["appended"]) == (100, 1700)
    keys = keys_in_log(kafka)
    assert len(keys) == len(set(keys)) == 3200
    (once_more,) = cli("import", "inspect", str(THEORY))
    assert (once_more["same"], once_more["appended"]) == (100, 0)
    assert len(keys_in_log(kafka)) == 3200


def test_a_damaged_file_among_good_ones(kafka: KafkaForTest, cli: Any, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text('{"eval": {"eval_id": "E"}, "samples": [{"id": 1, "epoch": 1}]}')
    bad.write_text(good.read_text()[:-4])
    error = cli("import", "inspect", str(good), str(bad), code=1)
    assert "bad.json: line 1 column" in error
    assert "to do:" in error
    assert keys_in_log(kafka) == []


def test_the_workload_is_in_the_log_as_its_tally_says(kafka: KafkaForTest, cli: Any) -> None:
    tally = cli("workload", "--sessions", "60", "--seed", "7", "--active", "9", "--mean-events", "40")
    schemas = SchemaSet.load()
    events = [place(schemas, key, value, partition, PARTITIONS) for partition, key, value in records_in_log(kafka)]
    assert tally["acknowledged"] == tally["events"] == len(events)
    assert tally["by_type"] == dict(Counter(event.type for event in events if isinstance(event, Event)))
    assert len({event.session_id for event in events if isinstance(event, Event)}) == tally["sessions"] == 60
    again = cli("workload", "--sessions", "60", "--seed", "7", "--active", "9", "--mean-events", "40")
    assert again["by_type"] == tally["by_type"]
    assert len(set(keys_in_log(kafka))) == len(events)
