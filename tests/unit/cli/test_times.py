"""Times as people read them, also those that no calendar has."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

import pytest

from dalsegno.cli.frame import run
from dalsegno.cli.times import iso, moment, relative
from dalsegno.testing.builder import SessionBuilder
from reader_lab import PREFIX, House


def test_times_in_utc() -> None:
    assert moment(1_764_444_600_000_001) == "2025-11-29T19:30:00.000001Z"
    assert iso(1_764_444_600_999_999) == "2025-11-29T19:30:00Z"
    assert moment(None) is None


def test_a_time_that_no_calendar_has_is_shown_as_it_is() -> None:
    assert iso(2**62) == f"{2**62} µs"
    assert moment(-(2**62)) == f"-{2**62} µs"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s ago"),
        (59.4, "59 s ago"),
        (61, "1 min ago"),
        (7_300, "2 h ago"),
        (200_000, "2 d ago"),
        (-90, "in 2 min"),
    ],
)
def test_how_long_ago(seconds: float, said: str) -> None:
    now = 1_764_444_600.0
    assert relative(int((now - seconds) * 1_000_000), now) == said


def test_the_form_that_was_asked_for_is_that_of_tables_and_never_of_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("DALSEGNO_")]:
        monkeypatch.delenv(name)
    with House(tmp_path) as house:
        house.shard(SessionBuilder("s-1").begin().records)
        said = {}
        for form, output in (("iso", "text"), ("raw", "text"), ("relative", "text"), ("raw", "json")):
            place = ["--data", str(house.data), "--prefix", PREFIX]
            assert run([*place, "--time-format", form, "-o", output, "session", "list"]) == 0
            said[form, output] = capsys.readouterr().out
    when = json.loads(said["raw", "json"])[0]["last_event"]
    assert when.endswith("Z")
    assert when in said["iso", "text"]
    micros = int(datetime.fromisoformat(when).timestamp() * 1_000_000)
    assert str(micros)[:13] in said["raw", "text"]
    assert " d ago" in said["relative", "text"] or "in " in said["relative", "text"]
