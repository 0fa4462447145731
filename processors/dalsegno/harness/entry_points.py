"""What other packages register in an entry-point group of ours: each loaded, checked and named once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from dalsegno.errors import Failed


def installed(group: str, built_in: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The callables of a group by the entry points' names, those of this package first. Raises Failed naming an entry
    point that does not load, is not callable, or takes a name that is taken."""
    found = dict(built_in)
    for entry in entry_points(group=group):
        try:
            loaded = entry.load()
        except Exception as error:
            raise _refused(group, entry.value, f"{type(error).__name__}: {error}") from error
        if not callable(loaded):
            raise _refused(group, entry.value, f"a {type(loaded).__name__}")
        if entry.name in found:
            raise _refused(group, entry.value, f"a second {entry.name!r}")
        found[entry.name] = loaded
    return found


def _refused(group: str, where: str, found: str) -> Failed:
    return Failed(
        f"the entry point {where} of group {group} gives {found}",
        wanted="a function or class of a name of its own",
        todo="correct or remove that package",
        entry_point=where,
    )
