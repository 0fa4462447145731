"""What kinds of rows a shard has, where they stand, how they are read and digested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, get_args

import msgspec

from dalsegno.errors import StoreDamaged
from dalsegno.projections.base import Projection
from dalsegno.state.digest import row_hasher
from dalsegno.state.keys import (
    CONTRIBUTION,
    HEAD,
    LADDER,
    PRIVATE,
    ROW,
    TOTAL,
    family_prefix,
    outbox_key,
    take_text,
)
from dalsegno.state.ladder import MARK_BYTES

LIFECYCLE: Final = "lifecycle"
"""The pseudo projection of path heads, session states and operations."""

LADDERED: Final = frozenset({ROW, PRIVATE, CONTRIBUTION})
"""Kinds of rows that a ladder is kept of: those that belong to one session, without its head."""

encode_row: Final = msgspec.msgpack.Encoder().encode


class TableSpec:
    """One kind of row of one projection: where it stands, what it is, how it is digested."""

    __slots__ = (
        "decode", "kind", "ladder_prefix", "laddered", "outbox", "outbox_prefix", "prefix", "projection", "row",
        "summand", "version",
    )  # fmt: skip

    def __init__(self, kind: bytes, projection: str, version: int, row: type[Any], *, public: bool = False) -> None:
        self.kind = kind
        self.projection = projection
        self.version = version
        self.row = row
        self.prefix = HEAD if kind == HEAD else family_prefix(kind, projection)
        self.outbox = public
        self.outbox_prefix = outbox_key(self.prefix) if public else b""
        """Stands before the rest of a row's key in the outbox."""
        self.laddered = kind in LADDERED
        """Its rows begin with the window of their last change, and leave images behind."""
        self.ladder_prefix = b"" if kind == TOTAL else LADDER + self.prefix
        """Images, and for the head the lifecycle at every rung; empty where there is no ladder."""
        self.summand: Callable[[bytes, bytes], int] = row_hasher(projection, version)
        decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(row).decode
        self.decode = (lambda raw: decode(raw[MARK_BYTES:])) if self.laddered else decode

    def prefixes(self) -> Iterator[bytes]:
        """What the keys of all that is digested begin with."""
        yield self.prefix
        if self.ladder_prefix:
            yield self.ladder_prefix

    def read(self, key: bytes, raw: bytes) -> Any:
        """The row. Raises StoreDamaged naming the type and the place in it that has another shape."""
        try:
            return self.decode(raw)
        except msgspec.MsgspecError as error:
            # Rows of several shapes are a union, which has no name of its own.
            shape = " or ".join(each.__name__ for each in get_args(self.row) or [self.row])
            raise StoreDamaged(
                f"a row of {self.projection} does not have the shape of {shape}: {error}",
                wanted=f"rows of {self.projection} version {self.version}",
                todo=f"fold the projection {self.projection} again from the journal",
                projection=self.projection,
                type=shape,
                session=None if self.kind == TOTAL else take_text(key, len(self.prefix))[0],
                key=key.hex(),
            ) from error


class ProjectionTables:
    """The tables of one projection; all that reads or writes its rows goes through these."""

    def __init__(self, projection: Projection[Any]) -> None:
        self.projection = projection
        self.name, self.version = projection.name, projection.version
        self.rollup = projection.rollup
        public = projection.public
        self.rows = TableSpec(
            CONTRIBUTION if self.rollup else ROW,
            self.name,
            self.version,
            projection.row,
            public=public and not self.rollup,
        )
        self.totals = TableSpec(TOTAL, self.name, self.version, projection.row, public=public) if self.rollup else None
        self.private = (
            None
            if projection.private_row is None
            else TableSpec(PRIVATE, self.name, self.version, projection.private_row)
        )

    def specs(self) -> Iterator[TableSpec]:
        yield from (spec for spec in (self.rows, self.totals, self.private) if spec is not None)
