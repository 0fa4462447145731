"""JSON documents and lines: what is refused, with which place, and what may still grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dalsegno.errors import BadInputFile
from dalsegno.importers.base import ImportReport
from dalsegno.importers.json_file import json_in, object_at, objects_at, read_object
from dalsegno.importers.json_lines import Line, read_lines

WANTED = "a made file"


def document(path: Path, data: bytes, **options: Any) -> dict[str, Any]:
    path.write_bytes(data)
    return read_object(path, WANTED, **options)


def lines(path: Path, data: bytes, **options: Any) -> tuple[list[Line], list[str]]:
    path.write_bytes(data)
    report = ImportReport("made", 1)
    return list(read_lines(path, WANTED, report, **{"may_grow": True, **options})), report.warnings


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.json"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "the file is empty"),
        (b" \n", "line 2 column 1"),
        (b'{"a": 1', "line 1 column 8"),
        (b'{"a":\n "x\x00"}', "line 2 column 4"),
        (b'{"a": "b"}\n{}', "line 2 column 1"),
        (b'{"a":\n\n"\xff"}', "line 3: byte 8 is no UTF-8"),
        (b'{"a": 1,\n "b": NaN}', "line 2 column 7: NaN"),
        (b'{"a": "NaN", "b": [-Infinity]}', "line 1 column 20: -Infinity"),
        (b'{"a": "1e999", "b": 1e999}', "line 1 column 21: 1e999"),
        (b'{"a": {"b": 1},\n "b": 2, "a": 3}', "line 2 column 10: 'a' stands twice"),
        (b'[{"a": 1}, {"a": 1, "\\u0061": "a"}]', "line 1 column 21: 'a' stands twice"),
        (b"[" * 200_000, "nested too deeply"),
        (b"1" * 5_000, "digits"),
        (b"[1]", "a list instead of an object"),
        (b"null", "null instead of an object"),
        (b"true", "true or false instead of an object"),
        (b"{}", "no /need"),
    ],
)  # fmt: skip
def test_what_is_refused_and_where(data: bytes, told: str, path: Path) -> None:
    with pytest.raises(BadInputFile) as refused:
        document(path, data, needs=("need",))
    assert str(refused.value).startswith(str(path))
    assert data == b"" or f"check that this is {WANTED}" in refused.value.todo
    assert told in str(refused.value)
    assert refused.value.todo


def test_what_is_taken(path: Path) -> None:
    assert document(path, b'\xef\xbb\xbf{"a": "\\ud800", "b": {"a": 1}, "c": [{"a": 1}, {"a": 2}]}')["b"] == {"a": 1}
    assert document(path, '{"a": "\u2028"}'.encode()) == {"a": "\u2028"}


def test_a_file_larger_than_the_limit(path: Path) -> None:
    assert document(path, b'{"a":1}', max_bytes=7) == {"a": 1}
    with pytest.raises(BadInputFile, match="larger than the limit of 7 bytes"):
        document(path, b'{"a": 1}', max_bytes=7)


def test_places_inside_a_document(path: Path) -> None:
    assert objects_at(path, "/a", [{}], WANTED) == [{}]
    with pytest.raises(BadInputFile, match="/a: a text instead of a list"):
        objects_at(path, "/a", "x", WANTED)
    with pytest.raises(BadInputFile, match="/a/1: a number instead of an object"):
        objects_at(path, "/a", [{}, 1], WANTED)
    with pytest.raises(BadInputFile, match="/a: no /b, /c"):
        object_at(path, "/a", {"d": 1}, WANTED, needs=("b", "c", "d"))


def test_json_inside_a_text() -> None:
    assert json_in('{"a": [1]}') == {"a": [1]}
    assert json_in("[" * 100_000) == "[" * 100_000
    for kept in ("no json", "NaN", '{"a": 1, "a": 2}', "1e999", None, 3):
        assert json_in(kept) == kept


# --- lines -----------------------------------------------------------------------------------------------------------

GOOD = b'{"n": 1}\n{"n": 2}\r\n\n  \n{"n": 3}'


def test_lines_are_counted_and_blank_ones_left_out(path: Path) -> None:
    found, warnings = lines(path, GOOD)
    assert [(line.number, line.ref, line.data["n"]) for line in found] == [(1, "#1", 1), (2, "#2", 2), (5, "#5", 3)]
    assert warnings == []
    assert found[0].digest == lines(path, b'\n\n{"n": 1}\n')[0][0].digest, "a line's digest is of the line alone"


def test_a_line_separator_inside_a_text_ends_no_line(path: Path) -> None:
    # case C46
    found, _ = lines(path, '{"n": "a\u2028b\u2029c\u0085"}\n{"n": 2}\n'.encode())
    assert [line.data["n"] for line in found] == ["a\u2028b\u2029c\u0085", 2]


@pytest.mark.parametrize("cut", range(1, 9))
def test_a_torn_last_line_is_left_out_and_told_with_its_place(cut: int, path: Path) -> None:
    # case C46
    found, warnings = lines(path, b'{"n": 1}\n' + b'{"n": "\xc3\xa9"}'[:cut])
    assert [line.data["n"] for line in found] == [1]
    assert warnings == [f"line 2 is not whole: {cut} bytes from byte 9 on were not imported"]


def test_of_a_file_that_has_ended_the_last_line_must_be_whole(path: Path) -> None:
    with pytest.raises(BadInputFile, match="line 2"):
        lines(path, b'{"n": 1}\n{"n"', may_grow=False)
    assert [line.data["n"] for line in lines(path, b'{"n": 1}\n{"n": 2}', may_grow=False)[0]] == [1, 2]


def test_zeros_at_the_end_are_a_line_that_was_never_written(path: Path) -> None:
    # case C46
    _, (warning,) = lines(path, b'{"n": 1}\n' + bytes(300))
    assert "300 bytes from byte 9 on" in warning


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b'{"n": 1}\n{"n": \n{"n": 3}\n', "line 2 column 7"),
        (b'{"n": 1}\n{"n"' + bytes(300) + b': 2}\n{"n": 3}\n', "line 2 column 5"),
        (b'{"n": 1}\n{"n": 2}{"n": 3}\n', "line 2 column 9"),
        (b'{"n": 1}\n[2]\n', "line 2: a list instead of an object"),
        (b'{"n": 1}\ntext', "line 2 column 1"),
        (b'{"n": 1}\n{"n": "\xff"}\n', "line 2: byte 7 is no UTF-8"),
        (b'{"n": 1}\n{"n": 2, "n": 3}\n', "line 2 column 10: 'n' stands twice"),
        (b'{"n": 1', "line 1 column 8"),
        (b"\n \n", "no whole line"),
        (b"", "the file is empty"),
    ],
)
def test_damage_elsewhere_is_an_error_that_names_the_line(data: bytes, told: str, path: Path) -> None:
    # case C46
    with pytest.raises(BadInputFile) as refused:
        lines(path, data)
    assert str(refused.value).startswith(str(path))
    assert told in str(refused.value)


def test_a_line_longer_than_the_limit(path: Path) -> None:
    assert len(lines(path, b'{"n":1}\n', max_line_bytes=8)[0]) == 1
    with pytest.raises(BadInputFile, match="line 2: longer than 8 bytes"):
        lines(path, b'{"n":1}\n' + json.dumps({"n": "x" * 50}).encode(), max_line_bytes=8)


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(BadInputFile, match=str(path)):
            list(read_lines(path, WANTED, ImportReport("made", 1), may_grow=True))
        with pytest.raises(BadInputFile, match=str(path)):
            read_object(path, WANTED)
