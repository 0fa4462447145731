"""A file of one JSON object per line (JSONL), which its harness may still be writing.

Lines end with a line feed and nothing else; U+2028 and its like are text. A last line without a line feed that is no
whole object was not written to its end yet: all before it is read, and a warning says where it begins and how long it
is. Anything else that is wrong is an error that names the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dalsegno.errors import BadInputFile
from dalsegno.importers.base import ImportReport
from dalsegno.importers.json_file import bad_file, foreign, kind_of, parse_json, unreadable
from dalsegno.importers.payload import digest_of

MAX_LINE_BYTES = 64 * 1024 * 1024
_MOST_NAMED = 3
_BLANK = re.compile(rb"[ \t\r]*\Z")
_TORN = re.compile(rb"[ \t\r]*\{|\0+\Z")
"""The beginning of an object, or the zeros that a crashed machine leaves where data was not yet written."""


class Line(NamedTuple):
    """One line. ``ref`` is its ``origin.native_ref``, ``digest`` that of its bytes without the line feed."""

    number: int
    data: dict[str, Any]
    digest: bytes

    @property
    def ref(self) -> str:
        return f"#{self.number}"


def read_lines(
    path: Path, wanted: str, report: ImportReport, *, may_grow: bool, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[Line]:
    """The lines of the file, one at a time; blank ones are left out. ``wanted`` names the format. Of a file that does
    not grow any more (``may_grow``) the last line must be whole too.

    Only who comes to the end knows that the file is good. Raises BadInputFile at any line, or at the end where there
    was none.
    """
    number = start = whole = 0
    try:
        stream = path.open("rb")
    except OSError as error:
        raise unreadable(path, error, wanted) from error
    with stream:
        while True:
            try:
                raw = stream.readline(max_line_bytes + 1)
            except OSError as error:
                raise unreadable(path, error, wanted) from error
            if not raw:
                break
            number += 1
            if len(raw) > max_line_bytes:
                raise bad_file(path, f"line {number}", f"longer than {max_line_bytes} bytes", wanted, line=number)
            has_end = raw.endswith(b"\n")
            bytes_ = raw[:-1] if has_end else raw
            if not _BLANK.match(bytes_):
                try:
                    line = _line(path, number, bytes_, wanted)
                except BadInputFile:
                    if has_end or not may_grow or not whole or not _TORN.match(bytes_):
                        raise
                    report.warnings.append(
                        f"line {number} is not whole: {len(raw)} bytes from byte {start} on were not imported"
                    )
                    return
                whole += 1
                yield line
            start += len(raw)
    if not whole:
        raise bad_file(path, "", "no whole line in it" if number else "the file is empty", wanted)


def warning_of(found: str, lines: Sequence[int]) -> str:
    """What was found in these lines, by number."""
    more = len(lines) - _MOST_NAMED
    return f"{found}: line {', '.join(map(str, lines[:_MOST_NAMED]))}" + (f" and {more} more" if more > 0 else "")


def _line(path: Path, number: int, raw: bytes, wanted: str) -> Line:
    data = parse_json(path, "", raw, wanted, line=number)
    if not isinstance(data, dict):
        raise foreign(path, f"line {number}", f"{kind_of(data)} instead of an object", wanted)
    return Line(number, data, digest_of(raw))
