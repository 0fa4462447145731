"""``./run`` says what it does, and refuses a machine that cannot do it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LIMIT_SECONDS = 60


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with the script and its locks, and a PATH folder that holds no Python at all."""
    shutil.copy(ROOT / "run", tmp_path / "run")
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    (tmp_path / "path").mkdir()
    for tool in ("bash", "dirname", "cat", "cmp", "grep", "head", "rm", "env"):
        found = shutil.which(tool)
        assert found, tool
        (tmp_path / "path" / tool).symlink_to(found)
    return tmp_path


def run(checkout: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": str(checkout / "path"), "HOME": str(checkout)}
    return subprocess.run(
        [str(checkout / "run"), *words], capture_output=True, text=True, timeout=LIMIT_SECONDS, env=env, cwd="/"
    )


def fake_python(checkout: Path, body: str, name: str = "python3") -> None:
    path = checkout / "path" / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_alone_it_says_what_there_is(checkout: Path) -> None:
    told = run(checkout)
    assert told.returncode == 2
    assert "./run test" in told.stdout
    assert not (checkout / ".venv").exists()


def test_no_python_is_refused(checkout: Path) -> None:
    told = run(checkout, "setup")
    assert told.returncode == 2
    assert "needs Python 3.11 or later" in told.stderr
    assert "no python3" in told.stderr
    assert not (checkout / ".venv").exists()


def test_an_old_python_is_refused_by_its_version(checkout: Path) -> None:
    fake_python(checkout, 'if [ "$1" = -V ]; then echo Python 3.9.2; else exit 1; fi')
    told = run(checkout, "demo")
    assert told.returncode == 2
    assert "python3 is Python 3.9.2" in told.stderr
    assert "PYTHON=/path/to/python3.11 ./run setup" in told.stderr


def test_a_python_without_venv_is_refused_with_the_package_to_install(checkout: Path) -> None:
    fake_python(checkout, 'case "$2" in *ensurepip*) exit 1;; *) exit 0;; esac')
    told = run(checkout, "test")
    assert told.returncode == 2
    assert "apt install python3-venv" in told.stderr


def test_a_finished_set_up_is_not_repeated_until_the_lock_changes(checkout: Path) -> None:
    calls = checkout / "calls"
    bin_ = checkout / ".venv" / "bin"
    # A Python that notes its calls; its `-m venv` lays down the same one, and a command that tells its words.
    (checkout / "venv-python").write_text(f'#!/bin/sh\necho "$*" >> "{calls}"\n')
    (checkout / "venv-python").chmod(0o755)
    mkdir, cp = shutil.which("mkdir"), shutil.which("cp")
    fake_python(
        checkout,
        f'if [ "$2" = venv ]; then {mkdir} -p "{bin_}"; {cp} "{checkout}/venv-python" "{bin_}/python";'
        f' printf "#!/bin/sh\\necho told: \\"\\$*\\"\\n" > "{bin_}/dalsegno";'
        f' /bin/chmod 755 "{bin_}/dalsegno"; fi',
    )
    first = run(checkout, "demo", "a file", "--clean")
    assert first.returncode == 0, first.stderr
    assert first.stdout == "told: demo a file --clean\n"
    assert "setup: installing" in first.stderr
    installs = [line for line in calls.read_text().splitlines() if " install " in line]
    assert len(installs) == 3
    assert all("--require-hashes" in line for line in installs[:2])
    assert "--no-deps --no-build-isolation --editable" in installs[2]

    second = run(checkout, "status")
    assert (second.stdout, second.stderr) == ("told: status\n", "")

    with (checkout / "requirements" / "dev.txt").open("a") as lock:
        lock.write("# changed\n")
    third = run(checkout, "status")
    assert "setup: installing" in third.stderr
    assert "setup: making" not in third.stderr  # the environment itself is kept
    assert os.access(bin_ / "python", os.X_OK)
