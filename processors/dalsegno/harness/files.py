"""Documents in files: a workflow with the files that it names, beside it; a policy of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dalsegno.errors import InvalidDocument
from dalsegno.orchestration import authoring
from dalsegno.orchestration.configuration import Loaded
from dalsegno.orchestration.documents import Policy, ToolSpec
from dalsegno.orchestration.yaml_text import MAX_BYTES


def load(path: Path | str, *, tools: Sequence[ToolSpec] = ()) -> Loaded:
    """Raises InvalidDocument. ``tools``: those that a program declares."""
    file = Path(path)
    return authoring.load(file.name, _Folder(file.parent), tools=tools)


def load_policy(path: Path | str) -> Policy:
    """Raises InvalidDocument."""
    file = Path(path)
    return authoring.load_policy(file.name, _Folder(file.parent))


class _Folder:
    """Names in a document are relative to the folder of the workflow's file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, name: str) -> bytes:
        path = self._folder / name
        try:
            with path.open("rb") as file:
                return file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise InvalidDocument(f"{path}: {reason}", wanted="a file of YAML", todo="correct the name") from None
