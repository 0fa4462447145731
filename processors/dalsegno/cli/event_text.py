"""One event for people: a line a field, nothing cut, times as times, contents as the text that they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dalsegno.cli.output import cell, visible
from dalsegno.cli.times import TIME_FIELDS, moment
from dalsegno.errors import NotFound
from dalsegno.storage.blobs import Blobs

_BLOB = frozenset({"digest", "size", "media_type", "uri", "inline"})


def text_lines(fields: Mapping[str, Any]) -> Iterator[str]:
    """``name  value`` for each; what stands in records and lists is named by its path, such as ``parts.0.text``."""
    found = list(_flat(fields, ""))
    width = max(len(path) for path, _ in found)
    for path, value in found:
        first, *more = _shown(path, value).split("\n")
        yield f"{path:<{width}}  {visible(first)}".rstrip()
        for line in more:
            yield f"{'':<{width}}  {visible(line)}".rstrip()


def content_at(body: Mapping[str, Any], path: str, blobs: Blobs) -> bytes:
    """The whole content that stands at a path of an event. Raises NotFound, naming those there are, BlobMissing,
    BlobDamaged."""
    contents = {name: value for name, value in _flat(body, "") if _is_blob(value)}
    if path not in contents:
        raise NotFound(
            f"the event has no content {path!r}",
            wanted=f"one of {', '.join(contents)}" if contents else "an event that has a content",
            todo="see 'dalsegno event show' without --content",
        )
    return blobs.get(contents[path])


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    inner: Iterator[tuple[Any, Any]] | None = None
    if isinstance(value, Mapping) and not _is_blob(value):
        inner = iter(value.items())
    elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        inner = iter(enumerate(value))
    if inner is None:
        if value is not None:
            yield path, value
        return
    for name, each in inner:
        yield from _flat(each, f"{path}.{name}" if path else str(name))


def _is_blob(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() == _BLOB


def _shown(path: str, value: Any) -> str:
    if _is_blob(value):
        return _content(path, value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int) and path.rpartition(".")[2] in TIME_FIELDS:
        return cell(moment(value))
    return (
        value
        if isinstance(value, str)
        else ", ".join(map(str, value)) or "-"
        if isinstance(value, list)
        else cell(value)
    )


def _content(path: str, blob: Mapping[str, Any]) -> str:
    """Size, type and digest, and behind them the text if it is one."""
    head = f"{blob['size']} bytes, {blob['media_type']}, SHA-256 {blob['digest'].hex()}"
    if blob["inline"] is None:
        return f"{head}, in the store: --content {path}"
    try:
        return f"{head}\n{blob['inline'].decode()}".removesuffix("\n")
    except UnicodeDecodeError:
        return f"{head}, no text: --content {path}"
