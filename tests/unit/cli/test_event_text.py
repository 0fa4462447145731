"""What people are shown of one event: its contents as text, its times as times, nothing cut."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from dalsegno.cli.frame import run
from dalsegno.storage.blobs import Blobs
from dalsegno.storage.object_store import FolderStore
from dalsegno.testing.builder import SessionBuilder
from dalsegno.testing.builder import blob as held
from reader_lab import PREFIX, House

Say = Callable[..., tuple[str, str]]
LARGE = "a line\n" * 20_000
AT = 1_796_009_442_111_467


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with House(tmp_path) as found:
        yield found


@pytest.fixture
def say(house: House, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Say:
    for name in [name for name in os.environ if name.startswith("DALSEGNO_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(house.data.parent)

    def command(*arguments: str, code: int = 0) -> tuple[str, str]:
        capfdbinary.readouterr()
        found = run(["--data", str(house.data), "--prefix", PREFIX, "--bootstrap-servers", "nobody:1", *arguments])
        out, err = (each.decode() for each in capfdbinary.readouterr())
        assert found == code, err
        return out, err

    return command


@pytest.fixture
def session(house: House) -> SessionBuilder:
    """A call with small arguments and a large result, and a message of two parts."""
    folder = house.data / "store"
    stored = Blobs(FolderStore(folder)).put(LARGE)
    result = {each: getattr(stored, each) for each in stored.__struct_fields__}
    arguments = held(b'{"query": "leap years"}')
    builder = SessionBuilder("s-1", profile="OBSERVED").begin()
    parts = [{"kind": "TEXT", "text": "one\ntwo"}, {"kind": "TEXT", "blob": held(b"\xff\xfe")}]
    builder.append("MessageReceived", message_id="m", role="USER", parts=parts)
    builder.append("ToolCallRequested", tool_call_id="c", name="search", arguments=arguments)
    builder.append("ToolReceiptRecorded", tool_call_id="c", receipt_id="r", started_at=AT, result=result)
    house.shard(builder.records)
    return builder


def test_contents_are_shown_as_the_text_they_are(say: Say, session: SessionBuilder) -> None:
    seq = len(session.records)
    requested, receipt = (say("event", "show", "s-1", str(each))[0] for each in (seq - 1, seq))
    lines = requested.splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith("arguments "))
    digest = sha256(b'{"query": "leap years"}').hexdigest()
    assert lines[head].split(maxsplit=1)[1].endswith(f"SHA-256 {digest}")
    assert lines[head + 1].strip() == '{"query": "leap years"}'
    assert "2026-11-30T03:30:42.111467Z" in receipt
    assert receipt.splitlines()[-1].endswith("in the store: --content result")
    message = [line.split(maxsplit=1) for line in say("event", "show", "s-1", str(seq - 2))[0].splitlines()[-6:]]
    assert ["parts.0.text", "one"] in message
    assert ["two"] in message
    assert message[-1][0] == "parts.1.blob"
    assert message[-1][1].endswith("no text: --content parts.1.blob")


def test_one_content_is_written_as_its_bytes(say: Say, session: SessionBuilder) -> None:
    seq = len(session.records)
    assert say("event", "show", "s-1", str(seq), "--content", "result")[0] == LARGE
    assert say("event", "show", "s-1", str(seq - 1), "--content", "arguments")[0] == '{"query": "leap years"}'
    _, err = say("event", "show", "s-1", str(seq), "--content", "arguments", code=4)
    assert "wanted: one of result;" in err
    _, err = say("event", "show", "s-1", str(seq - 3), "--content", "result", code=4)
    assert "wanted: an event that has a content;" in err


@pytest.mark.usefixtures("session")
def test_a_line_says_what_was_said(say: Say) -> None:
    lines = say("session", "show", "s-1")[0].splitlines()[-3:]
    assert [line.partition(" parts=")[2] for line in lines[:1]] == ["one two"]
    assert "name=search" in lines[1]
    assert 'arguments={"query": "leap years"}' in lines[1]
    assert "started_at" not in lines[2]
    assert json.loads(say("-o", "json", "session", "show", "s-1")[0])["events"][-1]["event"]["started_at"] == AT
