"""The stages of ``dalsegno bench``, in order, and what their figures must be. A figure counts only within one run."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from dalsegno.testing.bench_flat import Flat, measure
from dalsegno.testing.bench_world import BenchWorld

LOOP_STAGES = {
    "scan": "consume(10_000) alone",
    "decode": "and fastavro's plain reader: the baseline",
    "path": "and key, hash, place, path and rules",
    "rows": "and rows of sessions",
    "digests": "and digests",
    "journal": "and journal, index, rows, cursor in RocksDB",
    "all": "the same with all projections",
}
OTHER_STAGES = {
    "worker": "one whole worker, all projections, assignment to last emit",
    "two": "two workers, from a common begin to the last emit of both",
    "tail": "1 % from a snapshot, assignment to last emit",
    "memory": "one whole worker over a log of 300,000 events",
    "flat": "a session of 100,000 events, by count",
}
STAGES = (*LOOP_STAGES, *OTHER_STAGES)
SMALL_EVENTS = 300_000
FLAT_EVENTS = 100_000
MIB = 1 << 20


@dataclass(frozen=True)
class Line:
    """One measured stage. ``ratio`` is to ``decode`` by the clock, ``cpu_ratio`` by processor time, which others on the
    machine disturb less; ``load`` is the load average when it began."""

    stage: str
    what: str
    events: int
    seconds: float
    per_second: float
    cpu_us: float
    ratio: float | None
    cpu_ratio: float | None
    peak_mib: float
    load: float


class Bar(NamedTuple):
    """``passed`` None: not measured in this run."""

    bar: str
    wanted: str
    found: str
    passed: bool | None


class Report(NamedTuple):
    parameters: dict[str, Any]
    machine: dict[str, Any]
    lines: list[Line]
    bars: list[Bar]

    def as_data(self) -> dict[str, Any]:
        return {
            "parameters": self.parameters,
            "machine": self.machine,
            "stages": [asdict(line) for line in self.lines],
            "bars": [bar._asdict() for bar in self.bars],
        }


_Figure: TypeAlias = Callable[[], float]
_Note: TypeAlias = Callable[[str, int, float, float, int, float], None]
"""Takes name, events, seconds, processor seconds, peak in bytes, load."""


class Raw(NamedTuple):
    stage: str
    events: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    load: float


def run(world: BenchWorld, stages: Iterable[str], say: Callable[[str], None]) -> Report:
    """Measure these stages (of ``STAGES``), each in processes of its own."""
    wanted = set(stages)
    raw: dict[str, Raw] = {}

    def note(name: str, events: int, seconds: float, cpu: float, peak: int, load: float) -> None:
        raw[name] = Raw(name, events, seconds, cpu, peak, load)
        say(f"{name}: {events / seconds:,.0f} events/s ({seconds:.1f} s, load {load:.1f})")

    world.prepare()
    try:
        _measure(world, wanted, note, say)
    finally:
        world.clear()
    flat = measure(FLAT_EVENTS) if "flat" in wanted else None
    return Report(asdict(world.mix), machine(), _lines(raw), bars(raw, flat))


def _measure(world: BenchWorld, wanted: set[str], note: _Note, say: Callable[[str], None]) -> None:
    for name in (name for name in LOOP_STAGES if name in wanted):
        load = os.getloadavg()[0]
        found = world.loop(name)
        note(name, found["events"], found["seconds"], found["cpu_seconds"], found["peak_bytes"], load)
    _workers(world, wanted, note, say)


def _workers(world: BenchWorld, wanted: set[str], note: _Note, say: Callable[[str], None]) -> None:
    if "memory" in wanted and world.mix.events > SMALL_EVENTS:
        small = world.smaller(SMALL_EVENTS)
        small.prepare()
        try:
            _one(small, "memory", note)
        finally:
            small.clear()
    if "two" in wanted:
        world.fresh()
        ends, load = world.ends(), os.getloadavg()[0]
        both = world.workers(2, ends)
        seconds = max(each["emitted"] for each in both) - both[0]["began"]
        cpu, peak = sum(each["cpu_seconds"] for each in both), max(each["peak_bytes"] for each in both)
        note("two", sum(ends.values()), seconds, cpu, peak, load)
    if wanted & {"worker", "two", "tail", "memory"}:
        _one(world, "worker", note)
    if "tail" in wanted:
        world.snapshot()
        events, load = world.publish_tail(), os.getloadavg()[0]
        world.wait_until_left()
        found = world.worker("b", ends := world.ends())
        if found["restored"] < len(ends):
            say(f"tail: {len(ends) - found['restored']} partitions were built from zero, not from a snapshot")
        note("tail", events, found["emitted"] - found["assigned"], found["cpu_seconds"], found["peak_bytes"], load)


def _one(world: BenchWorld, name: str, note: _Note) -> None:
    world.fresh()
    ends, load = world.ends(), os.getloadavg()[0]
    found = world.worker("a", ends)
    seconds = found["emitted"] - found["assigned"]
    note(name, sum(ends.values()), seconds, found["cpu_seconds"], found["peak_bytes"], load)


def _lines(raw: dict[str, Raw]) -> list[Line]:
    decode = raw.get("decode")
    base = None if decode is None else decode.events / decode.seconds
    base_cpu = 0.0 if decode is None else decode.cpu_seconds / decode.events * 1e6
    lines = []
    for name, what in {**LOOP_STAGES, **OTHER_STAGES}.items():
        found = raw.get(name)
        if found is None:
            continue
        rate = found.events / found.seconds
        ratio = None if base is None or name == "tail" else round(rate / base, 3)
        cpu = round(found.cpu_seconds / found.events * 1e6, 2)
        peak = round(found.peak_bytes / MIB, 1)
        by_cpu = None if ratio is None else round(base_cpu / cpu, 3)
        seconds, load = round(found.seconds, 3), round(found.load, 1)
        lines.append(Line(name, what, found.events, seconds, round(rate), cpu, ratio, by_cpu, peak, load))
    return lines


def bars(raw: dict[str, Raw], flat: Flat | None) -> list[Bar]:
    def rate(name: str) -> float:
        return raw[name].events / raw[name].seconds

    def bar(what: str, wanted: str, needs: Sequence[str], found: _Figure, good: Callable[[float], bool]) -> Bar:
        if any(name not in raw for name in needs):
            return Bar(what, wanted, "not measured", None)
        value = found()
        return Bar(what, wanted, f"{value:.3g}", good(value))

    one, two, small = ["decode", "journal"], ["worker", "two"], ["memory", "worker"]
    judged = [
        bar("sessions, journal and digest : decode", ">= 0.25", one, lambda: rate("journal") / rate("decode"),
            lambda x: x >= 0.25),
        bar("two processes : one", ">= 1.6", two, lambda: rate("two") / rate("worker"), lambda x: x >= 1.6),
        bar("1 % from a snapshot : all from zero (time)", "<= 0.05", ["worker", "tail"],
            lambda: raw["tail"].seconds / raw["worker"].seconds, lambda x: x <= 0.05),
        bar("peak memory of a worker, MB", "<= 500", ["worker"], lambda: raw["worker"].peak_bytes / 1e6,
            lambda x: x <= 500),
        bar("peak memory, all events : 300,000", "<= 1.2", small,
            lambda: raw["worker"].peak_bytes / raw["memory"].peak_bytes, lambda x: x <= 1.2),
    ]  # fmt: skip
    if flat is None:
        return [*judged, Bar("rows and bytes per event over a long session", "flat", "not measured", None)]
    found = f"{flat.first_rows:.2f} -> {flat.last_rows:.2f} rows, {flat.first_bytes:.0f} -> {flat.last_bytes:.0f} bytes"
    # Numbers above 65,535 take two bytes more than those below, in a dozen places.
    same = flat.first_rows == flat.last_rows and abs(flat.last_bytes / flat.first_bytes - 1) <= 0.02
    return [*judged, Bar("rows and bytes per event over a long session", "equal, within 2 %", found, same)]


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cores": os.cpu_count(),
        "memory_mib": _memory_mib(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 1),
    }


def _memory_mib() -> int | None:
    info = Path("/proc/meminfo")
    if not info.exists():
        return None
    return int(info.read_text("ascii", "replace").split("MemTotal:")[1].split()[0]) // 1024
