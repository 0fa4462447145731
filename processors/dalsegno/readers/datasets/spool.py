"""What must be known of all rows at once: a file beside the data set while it is made, so that memory does not grow."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from dalsegno.errors import Failed

_TABLES = """
CREATE TABLE rows (place INTEGER PRIMARY KEY, split TEXT, context TEXT, session TEXT, inference TEXT, verdict TEXT,
                   origin TEXT, ancestors TEXT, answer TEXT, paired INTEGER, line TEXT);
CREATE INDEX by_context ON rows (split, context);
CREATE INDEX by_inference ON rows (session, inference);
CREATE TABLE contexts (digest TEXT PRIMARY KEY) WITHOUT ROWID;
"""
_COLUMNS = "split, context, session, inference, verdict, origin, ancestors, answer, paired, line"


class Kept(NamedTuple):
    """A row: ``answer`` is the digest of its answer, ``line`` its JSON; ``ancestors`` are a fork's, a line each."""

    split: str
    context: str
    session: str
    inference: str
    verdict: str | None
    origin: str
    ancestors: str
    answer: str
    paired: bool
    line: str


class Spool:
    """A context manager; its file goes with it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _ours():
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;" + _TABLES)

    def __enter__(self) -> Spool:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()
        self._path.unlink(missing_ok=True)

    def is_new(self, context: str) -> bool:
        """Whether this context was not asked about before."""
        with _ours():
            return self._db.execute("INSERT OR IGNORE INTO contexts VALUES (?)", (context,)).rowcount == 1

    def put(self, row: Kept) -> None:
        with _ours():
            self._db.execute(f"INSERT INTO rows ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?)", row)

    def judged(self) -> Iterator[Kept]:
        """Rows without a pair, those of one context together, accepted ones first."""
        return self._select("WHERE NOT paired ORDER BY split, context, verdict = 'REJECT', place")

    def of_origin(self, origin: str) -> Iterator[Kept]:
        return self._select("WHERE origin = ? ORDER BY place", origin)

    def of_inference(self, session: str, inference: str) -> Kept | None:
        """The session's row of that inference."""
        return next(
            self._select("WHERE session = ? AND inference = ? ORDER BY place LIMIT 1", session, inference), None
        )

    def _select(self, where: str, *values: str) -> Iterator[Kept]:
        with _ours(), closing(self._db.execute(f"SELECT {_COLUMNS} FROM rows {where}", values)) as cursor:
            yield from map(Kept._make, cursor)


@contextmanager
def _ours() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise Failed(
            f"the work file of the data set cannot be used: {error}",
            wanted="a disk with free space where the data set is to be",
            todo="look at the disk, then build again; nothing was left behind",
        ) from error
