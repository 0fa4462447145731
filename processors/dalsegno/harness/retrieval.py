"""What a stage fetches before its first turn: files below one folder, and texts that are held in memory."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dalsegno.errors import Failed, Forbidden, NotFound
from dalsegno.orchestration.ports import Retriever

FILE_BYTES: Final = 1 << 20
"""Of one file, unless told otherwise: more than that is no context of a model."""


class FileRetriever:
    """Fills ``Retriever``. The query is a path below ``root``; what leads out of it, by ``..`` or by a link, is refused
    before it is opened."""

    def __init__(self, root: Path, *, max_bytes: int = FILE_BYTES) -> None:
        self._root = root.resolve()
        self._max_bytes = max_bytes

    def fetch(self, session_id: str, item_id: str, kind: str, query: Any) -> tuple[bytes, str, str | None]:  # noqa: ARG002
        """Raises Forbidden, NotFound, Failed."""
        if not isinstance(query, str) or not query or "\0" in query:
            raise Failed(f"{item_id} asks for {query!r}", wanted="a path as text", todo="correct its query")
        try:
            path = (self._root / query).resolve()
            if not path.is_relative_to(self._root):
                raise Forbidden(
                    f"{item_id} asks for {query!r}, which is outside of {self._root}",
                    wanted="a path below that folder, by no link that leads out of it",
                    todo="correct its query, or choose another folder",
                )
            if not path.is_file():  # a pipe would never end
                raise FileNotFoundError("no file")
            with path.open("rb") as file:
                content = file.read(self._max_bytes + 1)
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
            raise NotFound(
                f"{item_id} asks for {query[:200]!r}: {error}",
                wanted=f"a file in {self._root} that can be read",
                todo="correct its query, or the file's rights",
            ) from error
        if len(content) > self._max_bytes:
            raise Failed(
                f"{path} has more than {self._max_bytes} bytes",
                wanted="a file that a model can be shown whole",
                todo="name a part of it, or raise the limit",
            )
        media_type = mimetypes.guess_type(path.name)[0] or "text/plain"
        return content, media_type, f"file:{path.relative_to(self._root).as_posix()}"


class MemoryRetriever:
    """Fills ``Retriever`` from a mapping; the query is a key of it."""

    def __init__(self, contents: Mapping[str, bytes], *, media_type: str = "text/plain") -> None:
        self._contents, self._media_type = contents, media_type

    def fetch(self, session_id: str, item_id: str, kind: str, query: Any) -> tuple[bytes, str, str | None]:  # noqa: ARG002
        """Raises NotFound."""
        if not isinstance(query, str) or query not in self._contents:
            raise NotFound(
                f"{item_id} asks for {query!r}, which is not there",
                wanted=f"one of {', '.join(sorted(self._contents)) or 'nothing: there are no contents'}",
                todo="correct its query",
            )
        return self._contents[query], self._media_type, f"memory:{query}"


class ByKind:
    """Fills ``Retriever`` by the kind of what is fetched: RETRIEVED, FILE or MEMORY."""

    def __init__(self, retrievers: Mapping[str, Retriever]) -> None:
        self._retrievers = retrievers

    def fetch(self, session_id: str, item_id: str, kind: str, query: Any) -> tuple[bytes, str, str | None]:
        """Raises NotFound where nothing fetches that kind."""
        if kind not in self._retrievers:
            raise NotFound(
                f"{item_id} is a {kind}, and nothing here fetches those",
                wanted=f"one of {', '.join(sorted(self._retrievers)) or 'none'}",
                todo="give the run a retriever of that kind",
            )
        return self._retrievers[kind].fetch(session_id, item_id, kind, query)
