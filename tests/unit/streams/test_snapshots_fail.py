"""A snapshot that cannot be taken is told, answered and tried again later, whatever the system says; work goes on."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import DiskFull
from dalsegno.log.kafka import KafkaConfig
from dalsegno.state.generations import PartitionFolder
from dalsegno.streams.config import WorkerConfig, no_fault
from dalsegno.streams.partition import Partition
from dalsegno.streams.snapshotter import RETRY_SECONDS, Snapshotter


@pytest.mark.parametrize(
    "error",
    [
        DiskFull("full"),
        NotADirectoryError(errno.ENOTDIR, "Not a directory"),
        OSError(errno.EIO, "Input/output error"),
        RuntimeError("from the store"),
    ],
)
def test_any_failure_waits_before_it_is_tried_again(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = WorkerConfig(KafkaConfig(""), "p", tmp_path, tmp_path / "store")
    snapshotter = Snapshotter(config, None, {}, None, None)  # type: ignore[arg-type]

    def fail(*_: Any) -> str:
        raise error

    monkeypatch.setattr(snapshotter, "_take_one", fail)
    partition = Partition(0, PartitionFolder(tmp_path, "0" * 32, 0), no_fault)
    partition.snapshot_running = True
    answers: list[tuple[str | None, str | None]] = []
    snapshotter._take(partition, "asked", lambda _, taken, problem: answers.append((taken, problem)))
    assert not partition.snapshot_running
    assert partition.snapshot_retry_at - partition.snapshot_at == pytest.approx(RETRY_SECONDS, abs=RETRY_SECONDS / 2)
    assert [taken for taken, _ in answers] == [None]
    assert str(error) in str(answers[0][1])
