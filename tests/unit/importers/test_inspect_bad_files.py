"""Torn, damaged, foreign and hostile files: refused whole, naming file and place."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from dalsegno.errors import BadInputFile
from dalsegno.importers.inspect_ai.file import Limits
from inspect_logs import (
    HEADER,
    THEORY,
    model_event,
    needs_traces,
    sample,
    sessions_of,
    write_eval,
    write_json,
)


def refused(path: Path, limits: Limits | None = None) -> BadInputFile:
    with pytest.raises(BadInputFile) as caught:
        sessions_of(path, limits)
    assert str(path) in str(caught.value)
    assert caught.value.todo
    assert caught.value.wanted
    return caught.value


@needs_traces
def test_a_byte_changed_inside_any_member_is_found_and_the_member_named(tmp_path: Path) -> None:
    data = THEORY.read_bytes()
    with zipfile.ZipFile(THEORY) as archive:
        infos = [archive.infolist()[i] for i in (0, 1, 50, -3, -2, -1)]
    for info in infos:
        middle = info.header_offset + 30 + len(info.filename) + info.compress_size // 2
        path = tmp_path / "changed.eval"
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :])
        assert info.filename in str(refused(path))


def test_damage_in_the_middle_names_the_line(tmp_path: Path) -> None:
    # case C46
    path = write_json(tmp_path / "log.json", sample([model_event(0)]))
    lines = json.dumps(json.loads(path.read_text()), indent=1).split("\n")
    lines[20] = lines[20] + "\0" * 300
    path.write_text("\n".join(lines))
    assert "line 21" in str(refused(path))


def test_empty_missing_and_not_text(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_bytes(b"")
    assert "is empty" in str(refused(path))
    path.write_bytes(b'{"eval": "\xff"}')
    assert "byte 10 is no UTF-8" in str(refused(path))
    refused(tmp_path / "nowhere.eval")
    refused(tmp_path)


@pytest.mark.parametrize(
    ("content", "place", "found"),
    [
        ("[]", "", "a list instead of an object"),
        ("1", "", "a number instead of an object"),
        ("{}", "", "no /eval"),
        ('{"eval": 1}', "/eval", "a number instead of an object"),
        ('{"eval": {}, "version": 9}', "/version", "9, known are 1 and 2"),
        ('{"eval": {}, "plan": 3}', "/plan", "a number instead of an object"),
        ('{"eval": {}, "samples": 3}', "/samples", "no list"),
        ('{"eval": {}, "samples": [{"id": 1}]}', "/samples/0", "no /epoch"),
        ('{"eval": {}, "samples": [{"id": {}, "epoch": 1}]}', "/samples/0/id", "an object"),
        ('{"eval": {}, "samples": [{"id": 1, "epoch": "1"}]}', "/samples/0/epoch", "no whole number"),
        ('{"eval": {}, "samples": [{"id": 1, "epoch": 1, "events": [1]}]}', "/samples/0/events/0", "a number"),
        ("[" * 100_000, "", "nested too deeply"),
    ],
)
def test_json_that_is_no_log(content: str, place: str, found: str, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(content)
    error = refused(path)
    assert f"{path}: {place}: {found}" in str(error) if place else f"{path}: {found}" in str(error)
    assert error.data["place"] == place


def test_the_same_sample_twice(tmp_path: Path) -> None:
    path = write_json(tmp_path / "log.json", sample([]), sample([]))
    assert "/samples/1: sample '1', epoch 1, which /samples/0 is too" in str(refused(path))


def test_a_zip_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("samples/1_epoch_1.json", json.dumps(sample([])))
    assert "header.json" in str(refused(path))


def test_what_would_fill_the_memory_is_refused_before_it_does(tmp_path: Path) -> None:
    path = write_eval(tmp_path / "bomb.eval", sample([], metadata={"x": "a" * 5_000_000}), header=HEADER)
    assert path.stat().st_size < 20_000
    assert "samples/1_epoch_1.json: larger" in str(refused(path, Limits(member_bytes=1_000_000)))
    assert "all members" in str(refused(path, Limits(total_bytes=1_000_000)))
    assert "members" in str(refused(path, Limits(members=2)))


def test_attachments_that_multiply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dalsegno.importers.inspect_ai.record.RESOLVED_MAX_BYTES", 100_000)
    texts = {"ab" * 16: "x" * 10_000}
    messages = [{"id": f"m{i}", "role": "user", "content": "attachment://" + "ab" * 16} for i in range(50)]
    path = write_json(tmp_path / "log.json", sample([model_event(0, input=messages)], attachments=texts))
    assert "/samples/0" in str(refused(path))


def test_a_pool_reference_out_of_range(tmp_path: Path) -> None:
    pools = {"messages": [], "calls": []}
    path = write_json(tmp_path / "log.json", sample([model_event(0, input_refs=[[0, 3]])], events_data=pools))
    assert "events_data" in str(refused(path))


def test_deep_nesting(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    deep = "[" * 3000 + "]" * 3000
    log = json.dumps({**HEADER, "samples": [sample([{"event": "info", "data": "DEEP"}])]})
    path.write_text(log.replace('"DEEP"', deep))
    refused(path)
