"""The roster of workers: what a worker tells is what is read, and one that tells nothing any more is dead."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from typing import Any

from dalsegno.log.codec import encode_record
from dalsegno.streams import roster
from dalsegno.streams.partition import PartitionState
from dalsegno.streams.roster import DEAD, RESTARTED, STALE_AFTER_SECONDS, Listed, ends, parse_roster

SEEN = 1_700_000_000.0


def told(monkeypatch: Any, *, worker: str = "a" * 32, state: str = "RUNNING", seen: float = SEEN) -> bytes:
    """The bytes that a worker with one partition in every state writes."""
    written: list[tuple[str, bytes]] = []
    monkeypatch.setattr(roster, "write_records", lambda _cfg, _topic, pairs, **_: written.extend(pairs))
    part = {"generation": None, "cursor": None, "end": 7, "held_sessions": None, "reason": None}
    parts: dict[str, Any] = {str(n): {**part, "state": each.value} for n, each in enumerate(PartitionState)}
    parts[str(len(PartitionState))] = {}
    status = {
        "worker_id": worker, "state": state, "group": "g", "host": "h", "pid": 1, "slot": 0,
        "started_at": seen - 5, "updated_at": seen, "partitions": parts,
    }  # fmt: skip
    roster.tell(None, "p", status)  # type: ignore[arg-type]
    ((key, value),) = written
    assert key == worker
    return value


def test_what_is_told_is_what_is_read(monkeypatch: Any) -> None:
    (listed,) = parse_roster([told(monkeypatch)], int(SEEN * 1e6))
    assert listed.state == "RUNNING"
    assert [part["state"] for part in listed.record["parts"]] == [*PartitionState, "UNKNOWN"]
    assert listed.record["seen_at"] == int(SEEN * 1e6)


def test_a_worker_that_tells_nothing_any_more_is_dead_unless_it_said_that_it_ended(monkeypatch: Any) -> None:
    late = int((SEEN + STALE_AFTER_SECONDS) * 1e6)
    values = [told(monkeypatch, worker=state.ljust(32, "x"), state=state) for state in ("RUNNING", "STOPPED", "FAILED")]
    assert {each.state for each in parse_roster(values, late)} == {"RUNNING", "STOPPED", "FAILED"}
    assert {each.state for each in parse_roster(values, late + 1)} == {DEAD, "STOPPED", "FAILED"}


def test_the_newest_stands_first_and_foreign_records_are_left_out(monkeypatch: Any) -> None:
    values = [told(monkeypatch, worker=f"{n}" * 32, seen=SEEN + n) for n in (1, 3, 2)]
    other = {"request_id": "r", "worker_id": "w", "ok": True, "answered_at": 1}
    found = parse_roster([*values, b"nonsense", encode_record("ControlAnswer", other)], int(SEEN * 1e6))
    assert [each.record["worker_id"][0] for each in found] == ["3", "2", "1"]


def test_a_worker_has_ended_when_it_says_so_or_was_started_again(monkeypatch: Any) -> None:
    """A supervisor starts the same slot, and so the same id, before anybody looks: its end is never seen."""

    def listed(name: str, state: str = "RUNNING", seen: float = SEEN) -> Listed:
        return parse_roster([told(monkeypatch, worker=name, state=state, seen=seen)], int(seen * 1e6))[0]

    before = [listed(name) for name in ("stopped", "again", "draining", "failed", "silent")]
    now = [
        listed("stopped", "STOPPED"), listed("again", seen=SEEN + 1), listed("draining", "DRAINING"),
        listed("failed", "FAILED"), listed("another", "STOPPED"),
    ]  # fmt: skip
    assert ends(before, now) == {"stopped": "STOPPED", "again": RESTARTED, "failed": "FAILED"}


def test_a_worker_of_a_folder_that_was_never_installed_tells_of_itself_too(monkeypatch: Any) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert parse_roster([told(monkeypatch)], int(SEEN * 1e6))[0].record["version"] == "0+unknown"
