"""A replay that asks nobody has no way out: no connection, no process, no file outside its own folder, no tool.

The child watches itself by an audit hook that stands before anything of the product is imported; what goes past
Python (Kafka's client) is counted where it is made, and once shut out by a network namespace without any network.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import NotReconstructable
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.replay.session_replay import Asked, replay_session
from dalsegno.replay.strategy import Strategy
from dalsegno.testing.builder import SessionBuilder
from reader_lab import PREFIX, House
from replay_lab import decided, records_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="what is open is looked up in /proc")
MODES = ("inference-skipping", "full", "simulation")
TURNS = 34
LONG = 500

CHILD = """
import json, os, sys

own, prefix, mode, may_write, try_out = json.loads(sys.argv[1])
breaches = []
PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn")
CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

def inside(path, folder=-1):
    if isinstance(path, int):
        return True  # of a file that is open already
    base = os.getcwd() if folder < 0 else os.readlink(f"/proc/self/fd/{folder}")
    whole = os.path.normpath(os.path.join(base, os.fsdecode(path)))
    return any(whole.startswith(each) for each in may_write)

def refuse(name, *what):
    breaches.append([name, *map(repr, what)])
    raise PermissionError(f"fenced: {name} {what!r}")

def hook(name, arguments):
    if name in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto") or name in PROCESSES:
        refuse(name, arguments)
    if name == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES and not inside(arguments[0]):
        refuse(name, arguments[0], arguments[2])
    if name in CHANGES and not inside(arguments[0], -1 if name == "os.truncate" else arguments[-1]):
        refuse(name, arguments[0])

sys.addaudithook(hook)

import dalsegno.log.kafka as kafka
from dalsegno.cli.frame import run
from dalsegno.harness import tools
from dalsegno.harness.providers import openai_http, scripted
from dalsegno.log import inbox

counters = {}
def counted(owner, name):
    what = f"{owner.__name__}.{name}"
    counters[what] = 0
    def used(*arguments, **named):
        counters[what] += 1
        raise AssertionError(f"fenced: {what}")
    setattr(owner, name, used)

for owner, name in (
    (kafka, "Producer"), (kafka, "Consumer"), (kafka, "AdminClient"), (tools.PythonTools, "run"),
    (inbox.Inbox, "send"), (openai_http.OpenAiHttp, "complete"), (scripted.Scripted, "complete"),
):
    counted(owner, name)

chosen = ["--mode", mode, "--all", "--forks", "--jobs", "1"]
code = run(["--data", own, "--prefix", prefix, "-o", "json", "replay", "run", *chosen])
during = list(breaches)
sockets = [fd for fd in os.listdir("/proc/self/fd") if "socket:" in os.path.realpath(f"/proc/self/fd/{fd}")]

def attempt(do):
    try:
        do()
    except PermissionError as error:
        return str(error).startswith("fenced")
    return False

def connect():
    import socket
    socket.socket(socket.AF_INET, socket.SOCK_STREAM).connect(("127.0.0.1", 9))

def start():
    import subprocess
    subprocess.Popen(["true"])

refused = [attempt(each) for each in (connect, start, os.fork, lambda: open(try_out, "w"), lambda: os.remove(own))]
print(json.dumps([code, during, counters, len(sockets), refused]), file=sys.stderr)
"""


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[House]:
    """Four sessions: one of one event, a long decided one, a decided one with approvals, and one of all kinds, with its
    fork and an amendment."""
    first = SessionBuilder("a-first", profile="STRICT")
    first.append("SessionCreated", profile="STRICT", relation="NONE", workflow_name="w")
    kinds = SessionBuilder("kinds", profile="OBSERVED").begin()
    for name in CATALOGUE:
        if name not in ("HistoryAmended", "SessionForked"):
            kinds.append(name)
    fork = kinds.fork(3, "f")
    control = kinds.amend([kinds.records[3]], request_id="r")
    long = records_of("long", decided(TURNS))
    assert len(long.records) >= LONG
    asked = records_of("asked", decided(4, approve=True))
    assert {event.type for event in (*kinds.events, *fork.events)} == set(CATALOGUE) - {"HistoryAmended"}
    with House(tmp_path) as house:
        house.shard([*first.records, *long.records, *asked.records, *kinds.records, *fork.records, control])
        yield house


def fenced(house: House, mode: str, *before: str) -> tuple[list[dict[str, Any]], int, Any, Any, int, list[bool]]:
    scratch = house.data.parent / "scratch"
    scratch.mkdir()
    may_write = [f"{folder}{os.sep}" for folder in (house.data, scratch)]
    told = [str(house.data), PREFIX, mode, [*may_write, str(scratch), os.devnull], str(house.data.parent / "out")]
    # No keys of providers, no settings; what is opened to be read has its notes in a folder that goes with it.
    environment = {"PATH": os.environ["PATH"], "HOME": str(house.data.parent), "TMPDIR": str(scratch)}
    found = subprocess.run(
        [*before, sys.executable, "-B", "-c", CHILD, json.dumps(told)],
        capture_output=True, text=True, timeout=240, cwd=house.data.parent, env=environment, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    code, during, counters, sockets, refused = json.loads(found.stderr.splitlines()[-1])
    assert found.stdout, found.stderr
    return json.loads(found.stdout), code, during, counters, sockets, refused


def tree(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


# case C41
@pytest.mark.parametrize("mode", MODES)
def test_c41_a_replay_of_all_kinds_touches_nothing_outside(shard: House, mode: str) -> None:
    before = tree(shard.data)
    results, code, during, counters, sockets, refused = fenced(shard, mode)
    assert during == []
    assert (set(counters.values()), len(counters)) == ({0}, 7)
    assert sockets == 0
    assert refused == [True] * 5, "the fence itself holds"
    found = {each["session"]: each for each in results}
    assert set(found) == {"a-first", "asked", "kinds", "kinds~f", "long"}
    assert (found["long"]["verdict"], found["asked"]["verdict"]) == ("EQUAL", "EQUAL")
    assert found["long"]["events"] >= LONG
    assert code in (0, 1, 3)
    assert tree(shard.data) == before
    assert not (shard.data.parent / "out").exists()
    assert list((shard.data.parent / "scratch").iterdir()) == []


# case C41
def test_c41_nothing_is_asked_of_a_network(shard: House) -> None:
    """Not by what is written in C either: there is no network."""
    alone = ("unshare", "-rn")
    try:
        works = subprocess.run([*alone, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        works = False
    if not works:
        pytest.skip("no network namespace can be made here")
    results, _, during, _, _, _ = fenced(shard, "inference-skipping", *alone)
    assert during == []
    assert next(each["verdict"] for each in results if each["session"] == "long") == "EQUAL"


# case C41
@pytest.mark.parametrize("mode", ["full", "simulation"])
def test_c41_without_ports_a_miss_has_nobody_to_ask(mode: str) -> None:
    history = [event for event in decided() if event.type != "ToolReceiptRecorded"]
    with pytest.raises(NotReconstructable):
        replay_session(Asked(history, Strategy(mode=mode)))
