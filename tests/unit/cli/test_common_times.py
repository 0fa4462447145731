"""Times as people read them, also those that no calendar has."""

from __future__ import annotations

from dalsegno.cli.common import iso, moment


def test_times_in_utc() -> None:
    assert moment(1_764_444_600_000_001) == "2025-11-29T19:30:00.000001Z"
    assert iso(1_764_444_600_999_999) == "2025-11-29T19:30:00Z"
    assert moment(None) is None


def test_a_time_that_no_calendar_has_is_shown_as_it_is() -> None:
    assert iso(2**62) == f"{2**62} µs"
    assert moment(-(2**62)) == f"-{2**62} µs"
