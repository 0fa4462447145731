"""``--bisect-exit``: every end of a command as git bisect run may believe it, and a whole bisect of a repository."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from dalsegno import errors
from dalsegno.cli import bisect_exit, frame
from dalsegno.cli.bisect_exit import Judged
from dalsegno.cli.frame import run
from dalsegno.testing.builder import SessionBuilder, blob
from reader_lab import House

Say = Callable[..., tuple[str, str]]
ROOT = Path(__file__).parents[3]


def tree(root: type[errors.DalsegnoError] = errors.DalsegnoError) -> Iterator[type[errors.DalsegnoError]]:
    yield root
    for child in root.__subclasses__():
        yield from tree(child)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], int]:
    """The exit code of a command that takes the option and does just this."""

    def end(do: Callable[[], Any], *options: str) -> int:
        command = bisect_exit.bisect_exit(click.command()(lambda: do()))
        monkeypatch.setattr(frame.LazyGroup, "get_command", lambda *_: command)
        return run(["anything", *(options or ("--bisect-exit",))])

    return end


def raising(error: BaseException) -> Callable[[], Any]:
    def do() -> Any:
        raise error

    return do


@pytest.mark.parametrize("kind", list(tree()), ids=lambda kind: kind.__name__)
def test_no_error_is_a_verdict(kind: type[errors.DalsegnoError], ends: Callable[..., int]) -> None:
    assert ends(raising(kind("found"))) == 125


@pytest.mark.parametrize(
    "end",
    [
        *(
            raising(error)
            for error in (
                click.UsageError("wrong word"), click.BadParameter("wrong"), click.NoSuchOption("--x"),
                click.MissingParameter(param_hint="A", param_type="argument"), click.FileError("f"),
                click.exceptions.Exit(0), click.exceptions.Exit(1), click.exceptions.Exit(3), RuntimeError("boom"),
                MemoryError(), RecursionError(), OSError(28, "full"), BrokenPipeError(), SystemExit(0), SystemExit(1),
                ModuleNotFoundError("No module named 'faust'", name="faust"),
            )
        ),
        lambda: None,
        lambda: 0,
        lambda: 1,
        raising(Judged(differs=None, code=0)),
    ],
)  # fmt: skip
def test_whatever_else_is_no_verdict(
    end: Callable[[], Any], ends: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "_drop_output", lambda: None)  # it would close this process's stdout
    assert ends(end) == 125


def test_a_verdict_and_an_interrupt(ends: Callable[..., int]) -> None:
    assert ends(raising(Judged(differs=False, code=3))) == 0
    assert ends(raising(Judged(differs=True, code=0))) == 1
    assert ends(raising(KeyboardInterrupt())) == 130
    assert ends(raising(click.Abort())) == 130


def test_without_the_option_a_verdict_has_the_command_s_own_code(ends: Callable[..., int]) -> None:
    assert ends(raising(Judged(differs=True, code=3)), "--") == 3
    assert ends(raising(Judged(differs=None, code=0)), "--") == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("session", "diff", "--bisect-exit"),
        ("session", "diff", "a", "--bisect-exit"),
        ("session", "diff", "a", "b", "--limit", "0", "--bisect-exit"),
        ("session", "diff", "a", "b", "--bisect-exit", "--no-such"),
        ("session", "diff", "--help", "--bisect-exit"),
        ("session", "dif", "--bisect-exit"),
        ("--no-such", "session", "diff", "a", "b", "--bisect-exit"),
        ("-o", "xml", "session", "diff", "a", "b", "--bisect-exit"),
        ("--version", "--bisect-exit"),
        ("topic", "apply", "--bisect-exit"),
    ],
)
def test_a_wrong_command_line_is_no_verdict(arguments: tuple[str, ...]) -> None:
    assert run(list(arguments)) == 125


def test_an_operand_of_that_name_does_not_ask_for_it() -> None:
    assert run(["session", "diff", "--", "--bisect-exit"]) == 2


def a_session(session_id: str, result: str) -> SessionBuilder:
    builder = SessionBuilder(session_id, profile="OBSERVED", writer=session_id).begin()
    builder.append("ToolCallRequested", tool_call_id="c", name="search")
    builder.append("ToolCallAuthorized", tool_call_id="c", basis="POLICY_ALLOW")
    builder.append("ToolCallStarted", tool_call_id="c", attempt=1)
    builder.append("ToolReceiptRecorded", tool_call_id="c", attempt=1, status="OK", result=blob(result.encode()))
    return builder


def test_sessions_that_are_the_same_that_differ_and_that_are_not_there(house: House, say: Say) -> None:
    one, same, other = (a_session(name, words) for name, words in (("a", "x"), ("b", "x"), ("c", "y")))
    house.shard([*one.records, *same.records, *other.records])
    say("session", "diff", "a", "b", "--bisect-exit")
    say("session", "diff", "a", "c", "--bisect-exit", code=1)
    say("session", "diff", "a", "absent", "--bisect-exit", code=125)


def test_a_session_that_is_held_is_the_same_only_as_far_as_it_is_known(house: House, say: Say) -> None:
    one, torn, other = a_session("a", "x"), a_session("b", "x"), a_session("c", "y")
    shorter = a_session("d", "x").records[:-1]
    house.shard([*one.records, *torn.records[:-2], torn.records[-1], *other.records, *shorter])
    say("session", "diff", "b", "b", "--bisect-exit", code=125)
    say("session", "diff", "b", "b")
    say("session", "diff", "a", "b", "--bisect-exit", code=1)


def test_a_checkout_that_does_not_load_is_no_verdict(tmp_path: Path) -> None:
    broken = "import sys; sys.modules['dalsegno.cli.frame'] = None; from dalsegno.cli import main; main()"
    for options, code in ((["--bisect-exit"], 125), ([], 1)):
        command = [sys.executable, "-c", broken, "session", "diff", "a", "b", *options]
        ended = subprocess.run(command, cwd=tmp_path, env=_environment(), capture_output=True, text=True, timeout=60)
        assert ended.returncode == code, ended.stderr
        assert "Traceback" in ended.stderr


# --- git bisect run ---------------------------------------------------------------------------------------------------

ORACLE = """
import sys
from pathlib import Path
sys.path.insert(0, str(Path.cwd()))
from dalsegno.cli import main
sys.argv = ["dalsegno", "--data", "data", "--prefix", "p", "session", "diff", "golden", "today", "--bisect-exit"]
try:
    from agent import answer
    from reader_lab import House
    from test_bisect_exit import a_session
    import tempfile
    with tempfile.TemporaryDirectory() as folder, House(Path(folder)) as house:
        house.shard([*a_session("golden", "42").records, *a_session("today", answer()).records])
        sys.argv[2] = str(house.data)
        main()
except Exception:
    sys.exit(125)
"""


def _environment() -> dict[str, str]:
    places = [ROOT / "processors", ROOT / "tests", Path(__file__).parent]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DALSEGNO_", "GIT_"))}
    return {
        **clean, "PYTHONPATH": os.pathsep.join(map(str, places)), "PYTHONDONTWRITEBYTECODE": "1",
        "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t", "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@t",
    }  # fmt: skip


def test_git_bisect_finds_the_commit_that_changed_what_a_session_says(tmp_path: Path) -> None:
    repository, oracle = tmp_path / "repository", tmp_path / "oracle.py"
    repository.mkdir()
    oracle.write_text(ORACLE)

    def git(*arguments: str) -> str:
        ended = subprocess.run(
            ["git", *arguments], cwd=repository, env=_environment(), capture_output=True, text=True, timeout=120
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout.strip()

    versions = [
        "def answer(): return '42'",
        "def answer(): return '4' + '2'",
        "def answer(): return str(6 * 7)",
        "def answer() return 42",  # it does not even parse: no verdict
        "def answer(): return str(6 * 7)  # again",
        "def answer(): return str(6 * 9)",  # the culprit
        "def answer(): return '54'",
        "def answer(): return str(9 * 6)",
    ]
    git("init", "-q")
    commits = []
    for number, text in enumerate(versions):
        (repository / "agent.py").write_text(text + "\n")
        git("add", "agent.py")
        git("commit", "-q", "-m", f"version {number}")
        commits.append(git("rev-parse", "HEAD"))
    git("bisect", "start", commits[-1], commits[0])
    git("bisect", "run", sys.executable, str(oracle))
    assert git("rev-parse", "refs/bisect/bad") == commits[5]
    assert f"git bisect skip {commits[3]}" in git("bisect", "log")
