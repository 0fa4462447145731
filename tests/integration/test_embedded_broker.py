"""The embedded broker for real: kept data, one at a time, and every way in which a start can be disturbed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from dalsegno.errors import BrokerStartFailed, DiskFull, JarsUnavailable, PortTaken
from dalsegno.log import embedded
from dalsegno.log.embedded import process

pytestmark = pytest.mark.broker
LIMIT_SECONDS = 60.0
JAVA = os.environ.get("DALSEGNO_JAVA")


def start(data: Path, **more: object) -> str:
    return embedded.start(data, java=JAVA, **more)  # type: ignore[arg-type]


def cluster_and_topics(bootstrap: str) -> tuple[str, set[str]]:
    client = AdminClient({"bootstrap.servers": bootstrap})
    seen = client.list_topics(timeout=LIMIT_SECONDS)
    return str(seen.cluster_id), {name for name in seen.topics if not name.startswith("__")}


def create_topic(bootstrap: str, topic: str) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    client.create_topics([NewTopic(topic, 1, 1)])[topic].result(LIMIT_SECONDS)


def listening(port: int) -> socket.socket:
    """Another program that has this port."""
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    taken.bind(("127.0.0.1", port))
    taken.listen()
    return taken


def port_of(bootstrap: str | None) -> int:
    assert bootstrap is not None
    return int(bootstrap.rpartition(":")[2])


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    # Letters that break class paths, lists and encodings, where they can.
    folder = tmp_path / "données 1,2:3 #x"
    yield folder
    if folder.is_dir():
        embedded.stop(folder)


def test_a_second_start_is_a_no_op_and_data_are_kept_over_a_stop_and_a_kill(data: Path) -> None:
    assert embedded.status(data).state == "never started"
    bootstrap = start(data)
    first = embedded.status(data)
    assert (first.state, first.bootstrap) == ("running", bootstrap)
    assert start(data) == bootstrap
    assert embedded.status(data).pid == first.pid
    with pytest.raises(PortTaken, match=f"runs on port {port_of(bootstrap)} already"):
        start(data, port=port_of(bootstrap) + 1)
    create_topic(bootstrap, "kept")

    assert embedded.stop(data) is True
    assert embedded.stop(data) is False
    assert embedded.status(data).state == "stopped"
    assert start(data) == bootstrap
    assert cluster_and_topics(bootstrap) == (first.cluster_id, {"kept"})

    pid = embedded.status(data).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)  # the pid file is stale now
    deadline = time.monotonic() + LIMIT_SECONDS
    while embedded.status(data).state != "stopped":
        assert time.monotonic() < deadline
    assert start(data) == bootstrap
    assert cluster_and_topics(bootstrap) == (first.cluster_id, {"kept"})
    assert embedded.status(data).pid != pid


def test_two_starts_at_once_make_one_broker(data: Path) -> None:
    code = "import sys, pathlib; from dalsegno.log import embedded as e; print(e.start(pathlib.Path(sys.argv[1])))"
    command = [sys.executable, "-c", code, str(data)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = [each.communicate(timeout=LIMIT_SECONDS)[0].strip() for each in both]
    assert [each.returncode for each in both] == [0, 0]
    assert told[0] == told[1] == embedded.status(data).bootstrap
    assert (data / "broker" / "broker.log").read_text().count("Kafka Server started") == 1


def test_a_pid_that_became_another_programs_is_left_alone(data: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as other:
        (data / "broker").mkdir(parents=True)
        process.write_pid_file(data / "broker" / "broker.pid", process.Process(other.pid, "an older boot/1"))
        assert embedded.status(data).state == "never started"
        start(data)
        assert embedded.status(data).pid != other.pid
        embedded.stop(data)
        assert other.poll() is None
        assert other.stdin is not None
        other.stdin.close()


def test_a_half_formatted_folder_is_formatted_again(data: Path) -> None:
    start(data)
    embedded.stop(data)
    broker = data / "broker"
    # As a kill in the middle of the format leaves it: Kafka writes meta.properties last, broker.json comes after it.
    (broker / "broker.json").unlink()
    (broker / "log" / "meta.properties").unlink()
    assert (broker / "log" / "__cluster_metadata-0").exists()
    bootstrap = start(data)
    create_topic(bootstrap, "works")

    embedded.stop(data)
    cluster = embedded.status(data).cluster_id
    (broker / "broker.json").unlink()  # lost, while the log is whole: the log says whose it is
    bootstrap = start(data)
    assert cluster_and_topics(bootstrap) == (cluster, {"works"})

    embedded.stop(data)
    (broker / "log" / "meta.properties").unlink()
    with pytest.raises(BrokerStartFailed, match=r"holds topics \(works-0\).*move .* away"):
        start(data)
    assert (broker / "log" / "works-0").is_dir()


def test_a_port_that_is_taken(data: Path) -> None:
    with listening(0) as taken:
        wanted = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {wanted} on 127.0.0.1 is taken"):
            start(data, port=wanted)
    bootstrap = start(data, port=wanted)
    assert port_of(bootstrap) == wanted
    embedded.stop(data)

    told: list[str] = []
    remembered = json.loads((data / "broker" / "broker.json").read_text())
    with listening(wanted), listening(remembered["controller_port"]):
        moved = port_of(start(data, announce=told.append))
    assert moved != wanted
    assert f"port {wanted} of the last start is taken by another program: using {moved}" in told
    embedded.stop(data)
    assert port_of(start(data)) == moved


def test_a_start_that_fails_shows_the_end_of_the_log(data: Path) -> None:
    with pytest.raises(BrokerStartFailed, match=r"(?s)num\.io\.threads.*see .*broker\.log"):
        start(data, overrides={"num.io.threads": "many"})
    assert embedded.status(data).state == "stopped"
    start(data)


def test_a_broker_without_its_pid_file_is_named_as_the_cause(data: Path) -> None:
    bootstrap = start(data)
    pid_file = data / "broker" / "broker.pid"
    kept = pid_file.read_text()
    pid_file.unlink()
    try:
        with pytest.raises(BrokerStartFailed, match="a broker that no pid file names is running"):
            start(data)
        with pytest.raises(BrokerStartFailed, match="end that java process"):
            embedded.stop(data)
    finally:
        pid_file.write_text(kept)
    assert start(data) == bootstrap  # and the running one was not disturbed


def test_a_jar_with_a_wrong_byte_is_put_right_or_refused(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(data)
    embedded.stop(data)
    jar = next((data / "broker" / "jars").glob("kafka-clients-*.jar"))
    whole = jar.read_bytes()
    jar.write_bytes(whole[:1000] + bytes([whole[1000] ^ 1]) + whole[1001:])
    monkeypatch.setenv("M2_REPO", str(tmp_path / "empty"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("jgo.constants.MAVEN_CENTRAL_URL", "http://127.0.0.1:1")
    with pytest.raises(JarsUnavailable, match=r"kafka-clients-.*later starts need no network"):
        start(data)
    monkeypatch.undo()
    start(data)
    assert jar.read_bytes() == whole


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs root on Linux to mount a small disk")
def test_a_disk_that_fills_up_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        with pytest.raises(DiskFull, match="MB are free"):
            start(disk / "data")
        roomy = shutil.disk_usage(tmp_path)
        monkeypatch.setattr("shutil.disk_usage", lambda _: roomy)  # it seemed large enough, and then it was not
        with pytest.raises(DiskFull, match=r"no space left at .*jars.*free some space"):
            start(disk / "data")
        assert not list(disk.rglob("*.part"))
    finally:
        subprocess.run(["umount", str(disk)], check=True)
