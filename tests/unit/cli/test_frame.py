"""The frame: exit codes by the tree of errors, lazy loading, missing packages, colours, what a bug looks like."""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from dalsegno import errors
from dalsegno.cli import frame, note_missing
from dalsegno.cli.context import Context
from dalsegno.cli.frame import COMMANDS, cli, run
from dalsegno.cli.logs import configure_logging

EXIT_CODES = {1, 2, 3, 4, 5, 6, 7, 70}


def tree(root: type[errors.DalsegnoError] = errors.DalsegnoError) -> Iterator[type[errors.DalsegnoError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


@pytest.fixture(autouse=True)
def _settings_of_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in [name for name in os.environ if name.startswith("DALSEGNO_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command that does just this; its exit code, stdout and stderr."""

    def end(do: Callable[[], Any], *options: str) -> tuple[int, str, str]:
        command = click.command()(lambda: do())
        monkeypatch.setattr(frame.LazyGroup, "get_command", lambda *_: command)
        code = run([*options, "anything"])
        said = capsys.readouterr()
        return code, said.out, said.err

    return end


def raising(error: BaseException) -> Callable[[], Any]:
    def do() -> Any:
        raise error

    return do


# --- exit codes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(tree()), ids=lambda kind: kind.__name__)
def test_every_error_ends_with_its_own_code_and_says_what_to_do(
    kind: type[errors.DalsegnoError], ending: Callable[..., tuple[int, str, str]]
) -> None:
    error = kind("this was found", wanted="that", todo="do so", partition=3)
    code, out, err = ending(raising(error), "--bootstrap-servers", "kafka-1:9092")
    assert code == kind.exit_code
    assert code in EXIT_CODES
    assert (out, err) == ("", "error: this was found; wanted: that; to do: do so\n")


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (click.UsageError("wrong word"), 2, "wrong word"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.Abort(), 130, "interrupted"),
        (click.exceptions.Exit(3), 3, ""),
        (RuntimeError("boom"), 70, "this is a bug"),
        (ModuleNotFoundError("No module named 'faust'", name="faust"), 2, "pip install 'dalsegno[service]'"),
        (ModuleNotFoundError("No module named 'jgo.x'", name="jgo.x"), 2, "pip install 'dalsegno[service,embedded]'"),
        (ModuleNotFoundError("No module named 'obstore'", name="obstore"), 2, "pip install 'dalsegno[service,s3]'"),
        (ModuleNotFoundError("No module named 'dalsegno.x'", name="dalsegno.x"), 70, "this is a bug"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_other_ends(error: BaseException, code: int, said: str, ending: Callable[..., tuple[int, str, str]]) -> None:
    found, out, err = ending(raising(error))
    assert (found, out) == (code, "")
    assert said in err
    assert ("Traceback" in err) == (code == 70)


def test_a_topic_that_is_missing_in_an_embedded_broker_is_told_with_its_folder(
    tmp_path: Path, ending: Callable[..., tuple[int, str, str]]
) -> None:
    """Whoever went to another folder has another broker, in which nothing is."""
    code, _, err = ending(raising(errors.TopicMissing("no topic", todo="apply")))
    assert code == errors.TopicMissing.exit_code
    assert err == f"error: no topic, in the embedded broker of the data folder {tmp_path / '.dalsegno'}; to do: apply\n"
    assert "other" in ending(raising(errors.TopicMissing("no topic")), "--data", "other")[2]


def test_a_broker_that_a_command_starts_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: Callable[..., tuple[int, str, str]]
) -> None:
    def start(data: Path, *, announce: Callable[[str], None], **_: Any) -> str:
        announce(f"starting for {data.absolute()}")
        return "127.0.0.1:1"

    monkeypatch.setattr("dalsegno.log.embedded.start", start)

    def use() -> None:
        assert click.get_current_context().find_object(Context).kafka.bootstrap_servers == "127.0.0.1:1"

    assert ending(use) == (0, "", f"starting for {tmp_path / '.dalsegno'}\n")


def test_what_a_command_returns_is_its_code(ending: Callable[..., tuple[int, str, str]]) -> None:
    assert ending(lambda: 6)[0] == 6
    assert ending(lambda: None)[0] == 0
    assert ending(lambda: "text")[0] == 0


def test_an_error_with_hostile_text_cannot_act_on_a_terminal(ending: Callable[..., tuple[int, str, str]]) -> None:
    _, _, err = ending(raising(errors.NotFound("no \x1b[31m session\nsecond line \u202e")))
    assert err == "error: no \\u001b[31m session\nsecond line \\u202e\n"


# --- the list of commands ---------------------------------------------------------------------------------------------


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    name, version = capsys.readouterr().out.split()
    assert name == "dalsegno"
    assert version[0].isdigit()


def test_an_unknown_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sesion", "list"]) == 2
    assert "No such command 'sesion'" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_loads_and_has_an_example(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    leaves = list(command.commands.values()) if isinstance(command, click.Group) else [command]
    for leaf in leaves:
        assert leaf.help, leaf.name
        assert "Example: dalsegno " in (leaf.epilog or command.epilog or ""), leaf.name


def examples(command: click.Command) -> Iterator[str]:
    if command.epilog:
        yield command.epilog.partition("Example: dalsegno ")[2]
    for below in command.commands.values() if isinstance(command, click.Group) else []:
        yield from examples(below)


def parse(command: click.Command, name: str, arguments: list[str], parent: click.Context | None) -> None:
    """Read the words as a shell would give them, without doing anything. Raises what click raises."""
    context = command.make_context(name, arguments, parent=parent)
    if isinstance(command, click.Group):
        word, below, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert below is not None
        parse(below, str(word), rest, context)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_can_be_typed_as_it_stands(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    found = list(examples(command))
    assert found
    for example in found:
        try:
            parse(cli, "dalsegno", shlex.split(example), None)
        except click.BadParameter as error:
            if "does not exist" not in str(error):  # of a file that only the example has
                raise


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is of Linux")
def test_a_full_disk_behind_stdout_is_no_bug() -> None:
    code = "import sys; from dalsegno.cli.frame import run; sys.exit(run(['completion', 'bash']))"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr[:36]) == (errors.DiskFull.exit_code, "error: no space left for the output;")
    assert "Traceback" not in done.stderr


def test_a_closed_stdout_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert run(["completion", "bash"]) == 0


@pytest.mark.parametrize("number", ["nan", "inf", "1e400", "1e300", "-1"])
@pytest.mark.parametrize(
    "command",
    [
        ("worker", "drain", "--all", "--wait-seconds"),
        ("snapshot", "prune", "--older-than"),
        ("broker", "stop", "--limit-seconds"),
    ],
)
def test_a_time_that_is_none_is_refused(
    command: tuple[str, ...], number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, number]) == errors.Usage.exit_code
    assert command[-1] in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["-o", "json", "doctor"], ["doctor", "-o", "json"], ["doctor", "--output=json"]])
def test_the_form_of_output_may_stand_behind_the_command(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run(arguments)
    assert set(json.loads(capsys.readouterr().out)) == {"settings", "checks"}


def test_help_lists_every_command_and_loads_none() -> None:
    code = (
        "import sys; from dalsegno.cli.frame import run; before = set(sys.modules); code = run(['--help']);"
        "loaded = {name for name in set(sys.modules) - before if name.startswith('dalsegno')};"
        "print(sorted(loaded), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "[]")
    listed = {line.split()[0] for line in done.stdout.partition("Commands:")[2].splitlines() if line.strip()}
    assert set(COMMANDS) <= listed


# --- packages that are not installed ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "arguments"),
    [("click", ["--version"]), ("pydantic", ["doctor"]), ("structlog", ["doctor"]), ("rocksdict", ["session", "list"])],
)
def test_a_missing_package_says_which_extra_holds_it(package: str, arguments: list[str]) -> None:
    code = f"""
import importlib.abc, sys
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
sys.argv = ["dalsegno", *{arguments!r}]
from dalsegno.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip() == (
        f"error: this command needs the package {package!r}, which is not installed; "
        "to do: pip install 'dalsegno[service]'"
    )


def test_a_missing_module_of_our_own_is_not_blamed_on_the_installation() -> None:
    assert note_missing(ModuleNotFoundError("x", name="dalsegno.cli.nothing")) is False
    assert note_missing(ModuleNotFoundError("x")) is False


# --- colours and logs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "no_color", "wanted"),
    [([], "", None), ([], "1", False), (["--color", "always"], "1", True), (["--color", "never"], "", False)],
)
def test_colours(
    options: list[str], no_color: str, wanted: bool | None, monkeypatch: pytest.MonkeyPatch,
    ending: Callable[..., tuple[int, str, str]],
) -> None:  # fmt: skip
    monkeypatch.setenv("NO_COLOR", no_color)
    seen = []
    ending(lambda: seen.append(click.get_current_context().parent.color), *options)  # type: ignore[union-attr]
    assert seen == [wanted]


def test_log_lines_carry_their_facts_and_cannot_act_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("dalsegno.test")
    before, level = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        for form in ("text", "json"):
            configure_logging("info", form, colors=False)
            log.info("session_held", extra={"session_id": "s-\x1b[31m\u202e", "partition": 3})
            log.debug("not said")
            try:
                raise ValueError("odd \x1b[31m text")
            except ValueError:
                log.exception("failed")
            err = capsys.readouterr().err
            assert "\x1b" not in err
            assert "\u202e" not in err
            assert "not said" not in err
            if form == "json":
                first, second = (json.loads(line) for line in err.splitlines())
                assert (first["event"], first["level"], first["partition"]) == ("session_held", "info", 3)
                assert first["session_id"] == "s-\x1b[31m\u202e"
                assert "ValueError" in second["exception"]
            else:
                assert "partition=3" in err
                assert r"session_id=s-\u001b[31m\u202e" in err
    finally:
        logging.getLogger().handlers[:] = before
        logging.getLogger().setLevel(level)
