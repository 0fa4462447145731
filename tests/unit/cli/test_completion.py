"""`dalsegno completion`: scripts for shells, ids from this machine, and nothing that keeps a prompt waiting."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from dalsegno.cli import completion
from dalsegno.cli.frame import cli, run
from dalsegno.errors import NotFound
from dalsegno.testing.builder import SessionBuilder
from reader_lab import PREFIX, House


@pytest.fixture(autouse=True)
def _settings_of_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("DALSEGNO_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def offered(*words: str, incomplete: str = "") -> list[str]:
    shell = ShellComplete(cli, {}, "dalsegno", "_DALSEGNO_COMPLETE")
    return [item.value for item in shell.get_completions(list(words), incomplete)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_DALSEGNO_COMPLETE" in script
    assert f"{shell}_complete" in script


def test_commands_options_and_projections() -> None:
    assert offered(incomplete="pro") == ["projection"]
    assert "--limit" in offered("projection", "get", incomplete="--l")
    assert offered("projection", "get", incomplete="to") == ["tools"]


def test_ids_of_sessions_that_begin_so(tmp_path: Path) -> None:
    with House(tmp_path) as house:
        house.shard([*SessionBuilder("a-1").begin().records, *SessionBuilder("b-1").begin().records])
        there = ("--data", str(house.data), "--prefix", PREFIX)
        assert offered(*there, "projection", "get", "tools", incomplete="b") == ["b-1"]
        assert sorted(offered(*there, "projection", "get", "tools")) == ["a-1", "b-1"]


def test_ids_that_a_shell_would_carry_out_are_not_offered(tmp_path: Path) -> None:
    hostile = [
        "$(touch x)",
        "a;touch x",
        "`id`",
        "*",
        "it's",
        'a"b',
        "a b",
        "-rf",
        "--help",
        "#c",
        "a\\b",
        "!1",
    ]
    harmless = ["x:y", "é/ü", "run-1@2026", "a.b_c"]
    with House(tmp_path) as house:
        sessions = [SessionBuilder(name).begin() for name in (*hostile, *harmless)]
        house.shard([record for session in sessions for record in session.records])
        there = ("--data", str(house.data), "--prefix", PREFIX)
        assert sorted(offered(*there, "session", "export")) == sorted(harmless)


@pytest.mark.parametrize("words", [("session", "show"), ("session", "tail"), ("session", "verify"), ("event", "show")])
def test_every_session_is_completed(tmp_path: Path, words: tuple[str, ...]) -> None:
    with House(tmp_path) as house:
        house.shard(SessionBuilder("a-1").begin().records)
        assert offered("--data", str(house.data), "--prefix", PREFIX, *words) == ["a-1"]


def test_no_state_offers_nothing() -> None:
    assert offered("projection", "get", "tools", incomplete="b") == []


def test_who_answers_too_late_or_fails_is_not_heard() -> None:
    gate = threading.Event()

    def late() -> list[str]:
        gate.wait(10)
        return ["late"]

    def failing() -> list[str]:
        raise NotFound("nothing here")

    assert completion.within(0.01, late) == []
    gate.set()
    assert completion.within(10, failing) == []
    assert completion.within(10, lambda: ["in time"]) == ["in time"]


def test_a_process_that_has_just_begun_has_time_to_read_its_shards() -> None:
    def look() -> list[str]:
        threading.Event().wait(0.75)  # as long as 16 partitions took
        return ["a-1"]

    assert completion.within(completion.LIMIT_SECONDS, look) == ["a-1"]


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "csh"]) == click.UsageError.exit_code
    assert "'csh'" in capsys.readouterr().err
