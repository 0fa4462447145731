"""Rows as Parquet, by the extra ``[dataset]``: as in JSON, but ``tools`` is JSON text, since tools differ in shape."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final

from dalsegno.readers.datasets.rows import line_of

_BATCH_ROWS: Final = 256
_TEXTS: Final = (
    "configuration_digest", "context", "context_digest", "inference", "model", "origin", "output_digest",
    "parent_session", "provider", "request_digest", "session", "stage", "turn", "verdict", "verdict_of", "workflow",
)  # fmt: skip
_NUMBERS: Final = ("first_seq", "last_seq", "parent_seq")
_FLAGS: Final = ("redacted", "tainted", "tools_recorded")


class ParquetFile:
    """Raises ModuleNotFoundError, which the command line explains, where the extra is not installed."""

    def __init__(self, path: Path, *, pairs: bool) -> None:
        self._arrow: Any = import_module("pyarrow")
        self._schema = _schema(self._arrow, pairs=pairs)
        self._writer = import_module("pyarrow.parquet").ParquetWriter(path, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []

    def write(self, data: dict[str, Any]) -> None:
        self._rows.append({**data, "tools": line_of(data["tools"])})
        if len(self._rows) == _BATCH_ROWS:
            self._flush()

    def close(self) -> None:
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        self._writer.write_table(self._arrow.Table.from_pylist(self._rows, schema=self._schema))
        self._rows.clear()


def check_installed() -> None:
    """Raises ModuleNotFoundError."""
    import_module("pyarrow.parquet")


def _schema(arrow: Any, *, pairs: bool) -> Any:
    text = arrow.string()
    function = arrow.struct([("name", text), ("arguments", text)])
    call = arrow.struct([("id", text), ("type", text), ("function", function)])
    message = arrow.struct(
        [("role", text), ("content", text), ("tool_calls", arrow.list_(call)), ("tool_call_id", text)]
    )
    facts = arrow.struct(
        [
            *((name, text) for name in _TEXTS),
            *((name, arrow.int64()) for name in _NUMBERS),
            *((name, arrow.bool_()) for name in _FLAGS),
            ("labels", arrow.list_(arrow.struct([("key", text), ("value", text)]))),
            ("feedback", arrow.list_(arrow.struct([("kind", text), ("value", text)]))),
            ("omitted", arrow.list_(text)),
        ]
    )
    messages = arrow.list_(message)
    if not pairs:
        return arrow.schema([("messages", messages), ("tools", text), ("provenance", facts)])
    both = arrow.struct([("pair", text), ("preferred_by", text), ("chosen", facts), ("rejected", facts)])
    lists = [(name, messages) for name in ("prompt", "chosen", "rejected")]
    return arrow.schema([*lists, ("tools", text), ("provenance", both)])
