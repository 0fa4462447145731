"""Kafka's own tool, ``kafka-consumer-groups``, moves the group's offsets; whatever it sets, nothing is lost.

It leaves the metadata of a commit empty, so the workers take it for somebody's reset: a new generation of each
partition from the newest snapshot at or below the offset.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dalsegno.log.embedded.jars import KAFKA_VERSION, locked_jars
from dalsegno.log.embedded.java import find_java
from dalsegno.model.cursor import parse_metadata
from harness_cli import Cli
from harness_worker import World

pytestmark = pytest.mark.broker
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def tool_jars() -> list[Path]:
    """What the tools need and the broker does not; from this user's Maven folder, else fetched."""
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL
    from jgo.maven import MavenContext

    folder = Path(os.environ.get("M2_REPO") or Path.home() / ".m2" / "repository")
    repositories = {**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL}
    maven = MavenContext(repo_cache=folder, local_repos=[], remote_repos=repositories, timeout=30)
    jackson = next(jar.version for jar in locked_jars() if jar.artifact == "jackson-core")
    wanted = (
        ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
        ("com.fasterxml.jackson.dataformat", "jackson-dataformat-csv", jackson),
    )
    try:
        return [maven.project(group, name).at_version(version).artifact().resolve() for group, name, version in wanted]
    except (OSError, RuntimeError) as error:
        pytest.skip(f"Kafka's tools cannot be fetched here: {error}")


@pytest.fixture
def tool(world: World, broker_data: Path, tool_jars: list[Path]) -> Tool:
    """Run the tool on the world's group; its output. It must succeed."""
    path = os.pathsep.join([str(broker_data / "broker" / "jars" / "*"), *map(str, tool_jars)])
    java = find_java(os.environ.get("DALSEGNO_JAVA"))

    def run(*arguments: str, fails: bool = False) -> str:
        command = [
            str(java), "-cp", path, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            "--bootstrap-server", world.config.bootstrap_servers, "--group", world.group, *arguments,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        told = done.stdout + done.stderr
        assert (done.returncode != 0 or "Error" in told) == fails, told
        return told

    return run


def reset(tool: Tool, world: World, *target: str) -> dict[int, int]:
    """Move the offsets with the tool; what it left, without metadata of ours."""
    tool("--reset-offsets", "--topic", world.events, *target, "--execute")
    left = world.committed()
    assert {parse_metadata(commit.metadata) for commit in left.values()} == {None}
    return {number: commit.offset for number, commit in left.items()}


def rebuilt(world: World, size: int, generations: set[str]) -> set[str]:
    """Let a worker take over and compare everything; the new generations, which are none of ``generations``."""
    worker = world.start()
    world.settle()
    world.check()
    assert world.topic_sizes() == size, "equal rows are not emitted again"
    assert world.rows_that_went_backwards() == []
    found = {str(part["generation"]) for _, part in world.holders().values()}
    assert len(found) == world.partitions
    assert not found & generations
    worker.stop()
    world.wait_until_group_is_empty()
    return found


def test_the_tool_resets_to_a_snapshot_to_zero_forward_and_to_a_date(
    world: World, cli: Cli, tool: Tool, tmp_path: Path
) -> None:
    world.produce(200)
    worker = world.start()
    world.settle()
    snapshot = cli("snapshot", "take").json["id"]
    cursors = {shard["partition"]: shard["next_offset"] for shard in cli("snapshot", "show", snapshot).json["shards"]}
    after_snapshot = datetime.now(UTC)
    world.produce(100)
    world.settle()
    before = world.committed()
    refused = tool("--reset-offsets", "--topic", world.events, "--to-earliest", "--execute", fails=True)
    assert "inactive" in refused
    assert world.committed() == before
    worker.stop()
    world.wait_until_group_is_empty()
    size, generations, ends = world.topic_sizes(), {world.topic_id()}, world.ends()

    # To a snapshot's cursors, by the file that our own command exports.
    file = tmp_path / "offsets.csv"
    file.write_text(cli("group", "reset", "--to-snapshot", snapshot, "--dry-run", "--export", text=True).out)
    assert reset(tool, world, "--from-file", str(file)) == cursors
    generations |= rebuilt(world, size, generations)

    # To zero.
    assert set(reset(tool, world, "--to-earliest").values()) == {0}
    generations |= rebuilt(world, size, generations)

    # Forward: the log goes on while nobody reads, and the offsets are set behind it.
    world.produce(80)
    assert reset(tool, world, "--to-latest") == world.ends() != ends
    worker = world.start()
    world.settle()
    world.check()
    worker.stop()
    world.wait_until_group_is_empty()
    generations |= {
        str(parsed[0]) for commit in world.committed().values() if (parsed := parse_metadata(commit.metadata))
    }
    size = world.topic_sizes()

    # To a date: the tool takes it without a zone as UTC.
    moment = after_snapshot.replace(tzinfo=None).isoformat(timespec="milliseconds")
    dated = reset(tool, world, "--to-datetime", moment)
    assert all(offset >= cursors[number] for number, offset in dated.items())
    rebuilt(world, size, generations)

    # And the tool reads what the workers commit.
    described = tool("--describe")
    for number, end in world.ends().items():
        assert any(line.split()[1:4] == [world.events, str(number), str(end)] for line in described.splitlines())
