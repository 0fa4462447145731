"""The producer in another language: what it computes, and that its sessions are sessions like any other."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, RFC_4122, UUID, uuid5

import pytest

from dalsegno import Publisher, events
from dalsegno.log.codec import encode, event_hash, frame, place
from dalsegno.log.embedded.java import JAVA_MINIMUM, java_version
from dalsegno.log.reader import read_compacted, read_range
from dalsegno.log.schema_set import SchemaSet, schema_folder
from dalsegno.log.schema_topic import topic_of
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.path import choose_path
from dalsegno.model.records import Event
from dalsegno.testing import MemoryPublisher, memory_publisher
from harness_cli import Cli
from harness_worker import World

pytestmark = pytest.mark.broker
SOURCE = Path(__file__).parents[2] / "examples" / "java" / "Producer.java"
LIMIT_SECONDS = 120
TURN = "answer.1/t1"
ROWS: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {
    "stages": {("stage", "answer.1"): {"status": "COMPLETED", "attempt": 1}},
    "messages": {(13,): {"role": "USER", "text": "Which Java runs here?"}},
    "context_packs": {
        (f"{TURN}/p",): {"items": 1, "fits": True},
        (f"{TURN}/p", "item", 0): {"item_id": "m1", "source_type": "MessageReceived", "source_seq": 13},
    },
    "inferences": {(f"{TURN}/i",): {"status": "COMPLETED", "pack_id": f"{TURN}/p", "input_tokens": 12}},
    "tools": {(f"{TURN}/c0",): {"status": "OK", "turn_id": TURN, "basis": "POLICY_ALLOW", "receipts": 1}},
}
"""What each projection has of the session, as far as it says whether the events were understood."""


@cache
def java_with_compiler() -> Path:
    """A Java that runs a source file. The one that comes with dalsegno[embedded] cannot: it has no compiler."""
    home = os.environ.get("JAVA_HOME")
    installed = [Path(home) / "bin" / "java"] if home else []
    on_path = shutil.which("java")
    for java in [*installed, *([Path(on_path)] if on_path else [])]:
        if (java_version(java) or 0) < JAVA_MINIMUM:
            continue
        listed = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60, check=True)
        if re.search(r"^jdk\.compiler(@|$)", listed.stdout, re.M):
            return java
    pytest.skip(f"no JDK {JAVA_MINIMUM} or later (a java with the module jdk.compiler) by JAVA_HOME or on PATH")


class Java:
    """The example with the schemas as ``dalsegno schema export`` gives them and the jars of the embedded broker."""

    def __init__(self, jars: Path, avro: Path) -> None:
        # The quick compiler only: each run is over before another would pay.
        self._command = [java_with_compiler(), "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", SOURCE, avro]

    def __call__(self, *arguments: str | Path, code: int = 0) -> str:
        """What it printed. In the C locale, where Java 17 takes a source file for ASCII."""
        done = subprocess.run(
            [*self._command, *arguments], env={**os.environ, "LC_ALL": "C"},
            capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout


@pytest.fixture
def java(broker_data: Path, cli: Cli, tmp_path: Path) -> Java:
    java_with_compiler()
    cli("schema", "export", "--to", tmp_path / "avro")
    return Java(broker_data / "broker" / "jars", tmp_path / "avro")


def test_the_vectors_follow_from_their_inputs_in_java_too(java: Java, tmp_path: Path) -> None:
    vectors = json.loads((schema_folder() / "vectors.json").read_text("utf-8"))
    sizes = [len(vectors[part]) for part in ("partitions", "schemas", "events")]
    said = "{} partitions, {} schemas, {} records: ".format(*sizes)
    assert java("--check", schema_folder() / "vectors.json") == f"{said}0 differences\n"

    # One digit of each kind of result is another: every one of them is computed, so every one is named.
    changed: list[str] = []
    for part, fields in {
        "partitions": ["partition"],
        "schemas": ["canonical_form", "frame_id", "schema_hash"],
        "events": ["body", "hash", "key", "value", "partition_of_16"],
    }.items():
        for field in fields:
            found = vectors[part][1][field]
            vectors[part][1][field] = found + 1 if isinstance(found, int) else found[:-1] + "?"
            changed.append(field)
    (tmp_path / "other.json").write_text(json.dumps(vectors), "utf-8")
    *lines, last = java("--check", tmp_path / "other.json", code=1).splitlines()
    assert last == f"{said}{len(changed)} differences"
    assert sorted(line.partition(":")[0] for line in lines) == sorted(changed)


def test_a_session_from_java_is_one_like_any_other(java: Java, world: World, cli: Cli) -> None:
    told = java(world.config.bootstrap_servers, world.prefix)
    said = re.fullmatch(r"(?P<id>\S+): (?P<events>\d+) events in partition (?P<partition>\d+)\n", told)
    assert said is not None
    session_id, count = said["id"], int(said["events"])

    # The bytes are those that Python makes, in the right place, and the log explains itself.
    in_log = read_compacted(world.config, topic_of(world.prefix))
    schemas = SchemaSet()
    for key, text in in_log.items():
        assert key.decode() == schemas.add(text).schema_hash.hex()
    written = list(records(world))
    found = [checked(schemas, *record, partitions=world.partitions) for record in written]
    assert len(in_log) == len({event.type for event in found})
    path = choose_path([event.link for event in found])
    assert (len(path.hashes), path.held) == (count, None)
    assert {(number, event.session_id) for (number, _, _), event in zip(written, found, strict=True)} == {
        (int(said["partition"]), session_id)
    }
    assert found[0].body["goal"]["inline"].decode() == "Welches Java läuft hier?"

    # Its rows are what it told, a worker has the same ones, and no rule has anything to say about it.
    for name, wanted in ROWS.items():
        rows = held_by_memory(written).rows(name, session_id)
        assert {id: {field: getattr(row, field) for field in wanted[id]} for id, row in rows.items()} == wanted
    world.start(wait=True)
    world.settle()
    world.check()
    shown = cli("session", "show", session_id).json
    assert (shown["session"]["status"], shown["session"]["events"]) == ("COMPLETED", count)
    assert [event for event in shown["events"] if event["violations"] or event["findings"]] == []
    assert cli("session", "verify", session_id).json["verdict"] == "proven"

    # Python goes on with it: behind its end, and from the middle of its call.
    with Publisher(world.config, prefix=world.prefix) as publisher, publisher.resume(session_id) as resumed:
        assert (resumed.epoch, resumed.seq) == (1, count + 1)
        resumed.append(events.FeedbackRecorded(kind="rating", value="5"))
    world.settle()
    assert cli("session", "show", session_id).json["session"]["events"] == count + 2
    assert cli("session", "verify", session_id).json["verdict"] == "proven"
    started = [event.type for event in found].index("ToolCallStarted") + 1
    crashed = held_by_memory(written[:started])
    crashed.resume(session_id).close()
    recovered = crashed.events(session_id)[started]
    assert recovered.type == "SessionRecovered"
    assert recovered.body["in_flight"] == [{"kind": "TOOL", "id": f"{TURN}/c0", "resolution": "RETRY"}]


def held_by_memory(written: list[tuple[int, bytes, bytes]]) -> MemoryPublisher:
    publisher = memory_publisher()
    for _, key, value in written:
        publisher.send(key, value)
    return publisher


def records(world: World) -> Iterator[tuple[int, bytes, bytes]]:
    for number in range(world.partitions):
        for batch in read_range(world.config, world.events, number):
            for record in batch.records:
                assert record.key is not None
                assert record.value is not None
                yield number, record.key, record.value


def checked(schemas: SchemaSet, number: int, key: bytes, value: bytes, *, partitions: int) -> Event:
    """The event as the log's own schemas tell it; encoded again by this build's it must come to the same bytes."""
    event = place(schemas, key, value, number, partitions)
    assert isinstance(event, Event)
    writer = SchemaSet.load().event(event.type)
    body = encode(writer, event.body)
    assert (frame(writer, body), event_hash(writer, body)) == (value, event.hash)
    event_id = UUID(event.meta["event_id"])
    assert event_id.variant == RFC_4122
    if CATALOGUE[event.type].cls != "D":
        assert event_id.version == 7
    else:
        assert event.prev_hash is not None
        name = f"{event.session_id}\n{event.type}\n{event.prev_hash.hex()}\n0"
        assert event_id == uuid5(uuid5(NAMESPACE_URL, "dalsegno:decision"), name)
    return event
