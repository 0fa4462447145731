"""The end of the broker's log becomes an error that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from dalsegno.errors import BrokerStartFailed, DalsegnoError, DiskFull, PortTaken
from dalsegno.log.embedded import broker
from dalsegno.log.embedded.config import free_ports, port_is_free, properties
from dalsegno.log.embedded.failures import explain, last_lines


@pytest.mark.parametrize(
    ("line", "error", "todo"),
    [
        ("java.io.IOException: No space left on device", DiskFull, "free some space"),
        ("java.net.BindException: Address already in use", PortTaken, "another port"),
        ("ERROR something new", BrokerStartFailed, "see "),
    ],
)
def test_the_cause_is_found_in_the_log(tmp_path: Path, line: str, error: type[DalsegnoError], todo: str) -> None:
    log = tmp_path / "broker.log"
    log.write_text("\n".join([*(f"line {number}" for number in range(50)), line, "    at kafka.Kafka"]))
    told = explain(log, 9092)
    assert type(told) is error
    assert line in str(told)
    assert "line 49" in str(told)
    assert "line 10\n" not in str(told)
    assert todo in told.todo


def test_a_long_log_is_read_from_its_end_alone(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_bytes(b"\xff" * 2_000_000 + "\nlast: ü\n".encode())
    assert last_lines(log, 1) == "    last: ü"
    assert last_lines(tmp_path / "none") == "    (no log)"


def test_too_little_space_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = broker.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(broker.shutil, "disk_usage", lambda _: real._replace(free=20_000_000))
    with pytest.raises(DiskFull, match="20 MB are free") as caught:
        broker.start(tmp_path / "not" / "yet")
    assert "DALSEGNO_DATA" in caught.value.todo
    assert list(tmp_path.iterdir()) == []


def test_ports_are_free_different_and_below_the_range_of_outgoing_connections() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    assert all(20_000 <= port < 32_000 and port_is_free(port) for port in ports)


def test_overrides_win_but_never_the_listeners() -> None:
    text = properties(20_001, 20_002, {"log.cleaner.backoff.ms": "1", "listeners": "PLAINTEXT://0.0.0.0:1"})
    assert "log.cleaner.backoff.ms=1\n" in text
    assert "0.0.0.0" not in text
    assert "auto.create.topics.enable=false\n" in text
