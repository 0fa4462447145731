"""A mutation run: every mutant of the pure kernel must be seen by a test. ``./run test --long`` runs it too.

    python tests/mutation/run.py [--write] [--only PATH-PART]

1. All tests of ``TESTS`` run once, unchanged, in one process; it is noted which functions each of them calls.
2. A mutant of a function is put into a fork of that process, in place of the function's code; then the tests that call
   the function run, fastest first, until one fails.
3. A mutant of what a module does when it is loaded (tables, default values) needs a process that has not loaded it: it
   is loaded changed, and the tests that call anything of the module's room run, since a table is read by others.

A mutant that no test fails for has survived. Survivors are compared with ``docs/mutation.md``, where each stands with a
reason; one that does not stand there makes the run fail. ``--write`` writes them there, those known with their reason.
A mutant under which the tests do not end within the limits counts as seen.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.abc
import importlib.util
import os
import pickle
import signal
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "processors" / "dalsegno"
REPORT = ROOT / "docs" / "mutation.md"
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "mutation")]

from mutants import Mutant, mutants_of  # noqa: E402

MODULES = (
    "model/amendments.py", "model/choose.py", "model/cursor.py", "model/hashing.py", "model/history.py", "model/ids.py",
    "model/path.py", "model/records.py", "model/lifecycle/checks.py", "model/lifecycle/effects.py",
    "model/lifecycle/judging.py",
    "model/lifecycle/state.py", "model/lifecycle/tables.py", "replay/plan.py", "replay/stale.py", "replay/target.py",
)  # fmt: skip
TESTS = (
    "tests/unit/model", "tests/unit/replay", "tests/unit/log/test_codec_place.py", "tests/unit/log/test_vectors.py",
    "tests/unit/kernel", "tests/property/test_path_properties.py", "tests/property/test_choose_properties.py",
    "tests/property/test_plan_properties.py", "tests/property/test_lifecycle_properties.py",
    "tests/property/test_history_properties.py",
)  # fmt: skip
# Slow on purpose, or with threads of a store that would not live on in a fork.
LEFT_OUT = ("test_a_hundred_thousand_records_take_linear_time", "disk")
EXAMPLES = 60
# A machine that is busy with other things is no mutant that never ends, so it is the processor's time that counts.
LIMIT_CPU_SECONDS = 20.0
LIMIT_SECONDS = 300.0
PROCESSES = 2

settings.register_profile(
    "mutation", max_examples=EXAMPLES, derandomize=True, database=None, deadline=None,
    phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck),
)  # fmt: skip


NO_REASON = "NO REASON YET"


class Result(NamedTuple):
    mutant: Mutant
    seen: bool
    how: str


class Profile:
    """The settings of a mutation run, whatever the tests' own configuration says."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        settings.load_profile("mutation")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not any(word in item.nodeid for word in LEFT_OUT)]


def run_item(item: pytest.Item) -> bool:
    """Whether the test passes. Skipped counts as passed."""
    from _pytest.runner import runtestprotocol

    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


# --- in a process: forks, two at a time -------------------------------------------------------------------------------


def in_forks(mutants: Sequence[Mutant], test: Callable[[Mutant], str | None]) -> list[Result]:
    """Run ``test`` for each mutant in a process of its own; it names the test that failed, or gives None."""
    results: dict[int, Result] = {}
    running: dict[int, tuple[int, int]] = {}
    waiting = list(enumerate(mutants))[::-1]
    while waiting or running:
        while waiting and len(running) < PROCESSES:
            number, mutant = waiting.pop()
            read_end, write_end = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(read_end)
                _child(mutant, test, write_end)
            os.close(write_end)
            running[pid] = (number, read_end)
        pid, status = os.wait()
        if pid not in running:
            continue
        number, read_end = running.pop(pid)
        with os.fdopen(read_end, "rb") as pipe:
            said = pipe.read().decode("utf-8", "replace")
        alive = os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0
        results[number] = Result(mutants[number], not alive, said or "it did not end, or died")
        if alive:
            print(f"survived: {_told(mutants[number])}", flush=True)
        if len(results) % 100 == 0:
            print(f"  {len(results)} of {len(mutants)} mutants", file=sys.stderr, flush=True)
    return [results[number] for number in sorted(results)]


def _child(mutant: Mutant, test: Callable[[Mutant], str | None], write_end: int) -> None:
    """Never returns. Exit code 0: no test failed."""
    for timer, alarm, seconds in (
        (signal.ITIMER_PROF, signal.SIGPROF, LIMIT_CPU_SECONDS),
        (signal.ITIMER_REAL, signal.SIGALRM, LIMIT_SECONDS),
    ):
        signal.signal(alarm, signal.SIG_DFL)
        signal.setitimer(timer, seconds)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    failed: str | None = "it could not even be loaded"
    try:
        failed = test(mutant)
    except BaseException as error:
        failed = type(error).__name__
    os.write(write_end, (failed or "").encode())
    os._exit(0 if failed is None else 1)


# --- mutants of functions ---------------------------------------------------------------------------------------------


class FunctionMutants:
    """Plugin: after collection, the baseline and then every mutant of a function, in forks of this process."""

    def __init__(self, mutants: Sequence[Mutant]) -> None:
        self._mutants = mutants
        self.results: list[Result] = []
        self.calls: dict[str, dict[str, float]] = {}
        """"path:function" (and the room's name) -> test -> seconds."""
        self.broken: list[str] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        codes = {code: name for path in MODULES for name, code in _codes(path)}
        for item in session.items:
            self._baseline(item, codes)
        if self.broken:
            return True

        def test(mutant: Mutant) -> str | None:
            _put_in(mutant)
            of_function = self.calls.get(f"{mutant.path}:{mutant.function}", {})
            for name in sorted(of_function, key=of_function.__getitem__):
                if not run_item(items[name]):
                    return name
            return None

        # What only runs while its module is loaded is for step 3.
        called = [mutant for mutant in self._mutants if f"{mutant.path}:{mutant.function}" in self.calls]
        self.results = in_forks(called, test)
        return True

    def _baseline(self, item: pytest.Item, codes: dict[types.CodeType, str]) -> None:
        called: set[str] = set()

        def note(frame: types.FrameType, event: str, _arg: Any) -> None:
            if event == "call" and frame.f_code in codes:
                called.add(codes[frame.f_code])

        _forget_cached()
        began = time.monotonic()
        sys.setprofile(note)
        try:
            passed = run_item(item)
        finally:
            sys.setprofile(None)
        if not passed:
            self.broken.append(item.nodeid)
        seconds = time.monotonic() - began
        for name in called | {room_of(name) for name in called}:
            self.calls.setdefault(name, {})[item.nodeid] = seconds


def room_of(path: str) -> str:
    return path.split("/")[0]


def module_name(path: str) -> str:
    return "dalsegno." + path.removesuffix(".py").replace("/", ".")


def _codes(path: str) -> Iterable[tuple[str, types.CodeType]]:
    """("path:function", code), also of the functions inside a function."""
    module = importlib.import_module(module_name(path))
    for name in _function_names((SOURCE / path).read_text("utf-8")):
        for code in _nested(_function_of(module, name).__code__):
            yield f"{path}:{name}", code


def _nested(code: types.CodeType) -> Iterable[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _nested(const)


def _function_names(text: str) -> Iterable[str]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef))


def _function_of(module: types.ModuleType, name: str) -> types.FunctionType:
    found: Any = module
    for part in name.split("."):
        found = found.__dict__[part]
    if isinstance(found, property):
        found = found.fget
    found = getattr(found, "__func__", found)
    return getattr(found, "__wrapped__", found)  # type: ignore[no-any-return]


def _put_in(mutant: Mutant) -> None:
    """Give the function the mutant's code. Whoever imported it has the same function object."""
    module = importlib.import_module(module_name(mutant.path))
    code = compile(mutant.source, mutant.path, "exec", dont_inherit=True)
    for part in mutant.function.split("."):
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == part)
    function = _function_of(module, mutant.function)
    function.__code__ = code
    _forget_cached()


def _forget_cached() -> None:
    """What a function was called for once must be called for again."""
    for path in MODULES:
        for value in vars(importlib.import_module(module_name(path))).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


# --- mutants of modules -----------------------------------------------------------------------------------------------


class _Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from the mutant's source."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, name: str, _path: Any, _target: Any = None) -> Any:
        return importlib.util.spec_from_loader(name, self) if name == module_name(self._mutant.path) else None

    def exec_module(self, module: types.ModuleType) -> None:
        exec(compile(self._mutant.source, self._mutant.path, "exec", dont_inherit=True), module.__dict__)


class _UntilOneFails:
    """Plugin: runs the tests, fastest first, and remembers the first that failed."""

    def __init__(self, tests: dict[str, float]) -> None:
        self._tests = tests
        self.failed: str | None = None

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for item in sorted(session.items, key=lambda item: self._tests.get(item.nodeid, 1e9)):
            if item.nodeid in self._tests and not run_item(item):
                self.failed = item.nodeid
                break
        return True


def _test_module_mutant(mutant: Mutant, tests: dict[str, float]) -> str | None:
    sys.meta_path.insert(0, _Changed(mutant))
    loop = _UntilOneFails(tests)
    files = sorted({name.split("::")[0] for name in tests})
    code = pytest.main(["-q", "-p", "no:cacheprovider", *files], plugins=[Profile(), loop])
    if loop.failed is None and code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return "it could not be loaded"
    return loop.failed


# --- the whole run ----------------------------------------------------------------------------------------------------


def _functions_in_a_fork(mutants: Sequence[Mutant]) -> tuple[list[Result], dict[str, dict[str, float]], list[str]]:
    """Steps 1 and 2 in a process of their own, so that this one stays without the product's modules."""
    with tempfile.NamedTemporaryFile() as answer:
        pid = os.fork()
        if pid == 0:
            plugin = FunctionMutants(mutants)
            there = [name for name in TESTS if (ROOT / name).exists()]
            pytest.main(["-q", "-p", "no:cacheprovider", *there], plugins=[Profile(), plugin])
            Path(answer.name).write_bytes(pickle.dumps((plugin.results, plugin.calls, plugin.broken)))
            os._exit(0)
        os.waitpid(pid, 0)
        found: tuple[list[Result], dict[str, dict[str, float]], list[str]] = pickle.loads(answer.read())
        return found


def run(only: str) -> tuple[list[Result], float]:
    began = time.monotonic()
    mutants = [m for path in MODULES if only in path for m in mutants_of(path, (SOURCE / path).read_text("utf-8"))]
    print(f"{len(mutants)} mutants", file=sys.stderr, flush=True)
    results, calls, broken = _functions_in_a_fork([mutant for mutant in mutants if mutant.function])
    if broken:
        raise SystemExit(f"these tests fail without any mutant: {', '.join(broken)}")
    tested = {result.mutant for result in results}
    modules = [mutant for mutant in mutants if mutant not in tested]
    results += in_forks(modules, lambda mutant: _test_module_mutant(mutant, calls.get(room_of(mutant.path), {})))
    return results, time.monotonic() - began


def known_reasons() -> dict[tuple[str, str, str], str]:
    """(module, function, change) -> reason, of the survivors that the report lists."""
    if not REPORT.exists():
        return {}
    found = {}
    for line in REPORT.read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("| `") and len(cells) == 4:
            found[cells[0].strip("` "), cells[1].strip("` "), cells[2].strip("` ")] = cells[3].rstrip(" |")
    return found


def _told(mutant: Mutant) -> str:
    return f"{mutant.path}:{mutant.line} {mutant.function or '(module)'}: {mutant.change}"


def _row(mutant: Mutant) -> tuple[str, str, str]:
    return mutant.path, mutant.function or "(module)", mutant.change.replace("|", "\\|").replace("`", "'")


def write_report(results: Sequence[Result], seconds: float, reasons: dict[tuple[str, str, str], str]) -> None:
    seen = sum(result.seen for result in results)
    lines = [
        "# Mutation run",
        "",
        "A mutant is a small change of the kernel's source. Each row below is one that no test fails for, with the",
        "reason why that is no harm. Written by `python tests/mutation/run.py --write`, which keeps the reasons.",
        "`./run test --long` makes the same run and fails on a survivor that has no reason here.",
        "",
        "| module | mutants | seen by a test | survived |",
        "|---|---|---|---|",
    ]
    for path in MODULES:
        of_module = [result for result in results if result.mutant.path == path]
        killed = sum(result.seen for result in of_module)
        lines.append(f"| {path} | {len(of_module)} | {killed} | {len(of_module) - killed} |")
    lines += [
        f"| all | {len(results)} | {seen} | {len(results) - seen} |",
        "",
        f"{EXAMPLES} examples per property, {PROCESSES} processes, {seconds / 60:.0f} minutes.",
        "",
        "| module | function | change | reason |",
        "|---|---|---|---|",
    ]
    rows = dict.fromkeys(_row(result.mutant) for result in results if not result.seen)
    lines += [f"| `{row[0]}` | `{row[1]}` | `{row[2]}` | {reasons.get(row, NO_REASON)} |" for row in rows]
    REPORT.write_text("\n".join(lines) + "\n", "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutation run over the pure kernel.")
    parser.add_argument("--write", action="store_true", help="write docs/mutation.md")
    parser.add_argument("--only", default="", help="modules whose path holds this text")
    options = parser.parse_args()
    os.chdir(ROOT)
    results, seconds = run(options.only)
    reasons = known_reasons()
    survivors = [result.mutant for result in results if not result.seen]
    for mutant in survivors:
        if reasons.get(_row(mutant), NO_REASON) == NO_REASON:
            print(f"without a reason in {REPORT.relative_to(ROOT)}: {_told(mutant)}")
    print(f"{len(results)} mutants, {len(survivors)} survived, {seconds:.0f} s")
    if options.write and not options.only:
        write_report(results, seconds, reasons)
    unknown = [m for m in survivors if reasons.get(_row(m), NO_REASON) == NO_REASON]
    return 1 if unknown else 0


if __name__ == "__main__":
    raise SystemExit(main())
