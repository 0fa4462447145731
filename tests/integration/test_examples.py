"""The examples, as a reader would run them: programs of their own against a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness_worker import wait_for

pytestmark = pytest.mark.broker
EXAMPLES = Path(__file__).parents[2] / "examples"
DALSEGNO = ("-c", "from dalsegno.cli import main; main()")
LIMIT_SECONDS = 60


class Desk:
    """Somebody's terminal: one prefix, one data folder, and what was installed beside dalsegno."""

    def __init__(self, kafka: Any, folder: Path) -> None:
        self.kafka, self.folder = kafka, folder
        self.where = (kafka.config.bootstrap_servers, kafka.prefix)
        settings = {name: value for name, value in os.environ.items() if not name.startswith("DALSEGNO_")}
        self.environment = {
            **settings,
            "DALSEGNO_KAFKA__BOOTSTRAP_SERVERS": kafka.config.bootstrap_servers,
            "DALSEGNO_PREFIX": kafka.prefix,
            "DALSEGNO_DATA": str(folder / "data"),
            "DALSEGNO_PARTITIONS": "2",
        }

    def run(self, *arguments: str | Path) -> str:
        """Run a Python program to its end; what it printed."""
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def running(self, name: str, *arguments: str | Path, ends_with: int = 0) -> Iterator[Path]:
        """A Python program that goes on until the block ends, then by SIGTERM; the file that it prints to."""
        printed, said = self.folder / f"{name}.out", self.folder / f"{name}.err"
        with printed.open("wb") as out, said.open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, *map(str, arguments)], env=self.environment, cwd=self.folder, stdout=out, stderr=err
            )
        try:
            yield printed
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                code = process.wait(LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        assert code == ends_with, said.read_text("utf-8", "replace")[-4000:]

    def worker(self) -> Any:
        return self.running("worker", *DALSEGNO, "worker", "run")

    def install_examples(self) -> None:
        """What ``pip install ./examples`` does, without an index: the wheel, unpacked where Python looks."""
        wheels, site = self.folder / "wheels", self.folder / "site"
        build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(wheels)]
        subprocess.run(build, cwd=EXAMPLES, check=True, capture_output=True, timeout=LIMIT_SECONDS)
        (wheel,) = wheels.glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(site)
        self.environment["PYTHONPATH"] = str(site)

    def rows_of(self, projection: str) -> Any:
        """The consumer, following a projection; SIGTERM ends it as it ends any program."""
        program = (EXAMPLES / "consumer.py", *self.where, projection)
        return self.running(f"consumer-{projection}", *program, ends_with=-signal.SIGTERM)


@pytest.fixture
def desk(kafka: Any, tmp_path: Path) -> Desk:
    return Desk(kafka, tmp_path)


def newest_rows(printed: Path) -> dict[tuple[str, ...], dict[str, Any] | None]:
    """What the consumer ends with: the newest row of each key."""
    lines = [json.loads(line) for line in printed.read_text("utf-8").splitlines(keepends=True) if line.endswith("\n")]
    return {tuple(line["key"]): line["row"] for line in lines}


def test_the_examples_work_together(desk: Desk) -> None:
    desk.run(*DALSEGNO, "topic", "apply")
    told = desk.run(EXAMPLES / "producer.py", *desk.where)
    session_id = told.partition(":")[0]
    with desk.worker(), desk.rows_of("sessions.v2") as printed:
        row = wait_for(lambda: newest_rows(printed).get((session_id,)), "the consumer has the session's row")
    assert (row["status"], row["workflow_name"], row["events"], row["violations"]) == ("COMPLETED", "hello", 4, 0)

    # Registered afterwards, the projection also has the events that were folded without it.
    desk.install_examples()
    assert "projection.notes.v1" in desk.run(*DALSEGNO, "topic", "apply")
    with desk.worker(), desk.rows_of("notes.v1") as printed:
        row = wait_for(lambda: newest_rows(printed).get((session_id, "greeting")), "the consumer has the notes' row")
        assert row["notes"] == 1
        late = desk.run(EXAMPLES / "producer.py", *desk.where).partition(":")[0]
        row = wait_for(lambda: newest_rows(printed).get((late, "greeting")), "the rows follow the log")
    assert (row["notes"], row["last_at"] > 0) == (1, True)


@pytest.mark.parametrize("name", ["producer.py", "projection.py", "consumer.py"])
def test_an_example_stays_short(name: str) -> None:
    lines = (EXAMPLES / name).read_text("utf-8").splitlines()
    assert len([line for line in lines if line.strip() and not line.startswith("#")]) <= 25
