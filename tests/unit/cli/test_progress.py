"""Progress on stderr in the form that was asked for."""

from __future__ import annotations

import json

import click
import pytest

from dalsegno.cli import progress
from dalsegno.cli.context import Context
from dalsegno.cli.progress import Watch, bars
from dalsegno.settings import Settings


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    clock = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])

    def read(form: str, *steps: tuple[float, int, int]) -> list[str]:
        """Steps: seconds that went by, partition, position of 10."""
        with click.Context(click.Command("x"), obj=Context(Settings(), progress=form)), bars("reading") as show:
            watch = Watch(show)
            for seconds, partition, position in steps:
                clock[0] += seconds
                watch.progress(partition, position, 10)
        return capsys.readouterr().err.splitlines()

    return read


def test_jsonl_is_an_object_a_second_and_the_last_one_at_once(said) -> None:  # type: ignore[no-untyped-def]
    lines = [json.loads(line) for line in said("jsonl", (0, 0, 0), (0.1, 0, 1), (1, 0, 5), (0.1, 0, 10), (0.1, 0, 10))]
    assert [line["partitions"][0]["position"] for line in lines] == [0, 5, 10]
    assert lines[-1] == {
        "progress": "reading",
        "partitions": [{"partition": 0, "start": 0, "position": 10, "bound": 10, "done": True}],
    }


def test_auto_without_a_terminal_is_a_line_every_ten_seconds_and_none_is_none(said) -> None:  # type: ignore[no-untyped-def]
    steps = [(6.0, 0, position) for position in range(5)]
    assert said("auto", *steps) == [
        "reading: 1 records, 0/s, 9 left, 0 of 1 partitions done",
        "reading: 3 records, 0/s, 7 left, 0 of 1 partitions done",
    ]
    assert said("none", *steps) == []
