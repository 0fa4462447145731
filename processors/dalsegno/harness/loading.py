"""Code of others that a run names: by entry point, by module, or by file. Each way says what it could not load."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from dalsegno.errors import Failed, NotFound


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


def one_of(found: Mapping[str, Callable[..., Any]], name: str, group: str, what: str) -> Callable[..., Any]:
    """The one of that name. Raises NotFound naming those there are."""
    if name not in found:
        raise NotFound(
            f"no {what} {name!r}",
            wanted=f"one of {', '.join(sorted(found)) or 'none that are installed'}",
            todo=f"install the package that registers it in the group {group}",
            name=name,
        )
    return found[name]


def is_code(reference: str) -> bool:
    """Whether it names a file or a module's attribute, and not an entry point."""
    return reference.endswith(".py") or ":" in reference


def module(name: str) -> ModuleType:
    """A module by its dotted name, or by its file if that ends in ``.py``; its code runs. Raises Failed."""
    try:
        return _from_file(Path(name)) if name.endswith(".py") else importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise Failed(
            f"{name} does not load: {type(error).__name__}: {error}",
            wanted="a Python file, or a module that can be imported",
            todo="correct the name or the code",
            module=name,
        ) from error


def attribute(reference: str) -> Any:
    """``module:name`` or ``file.py:name``. Raises Failed."""
    where, _, name = reference.rpartition(":")
    loaded = module(where)
    if not hasattr(loaded, name):
        raise Failed(f"{where} has no {name!r}", wanted="module:name", todo="correct the name", reference=reference)
    return getattr(loaded, name)


def _from_file(path: Path) -> ModuleType:
    # The name holds the place, so that two files `tools.py` are two modules.
    place = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
    name = f"_dalsegno_{path.stem}_{place}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded  # annotations of its classes are looked up there
    try:
        spec.loader.exec_module(loaded)
    except BaseException:
        del sys.modules[name]
        raise
    return loaded


def _refused(group: str, where: str, found: str) -> Failed:
    return Failed(
        f"the entry point {where} of group {group} gives {found}",
        wanted="a function or class of a name of its own",
        todo="correct or remove that package",
        entry_point=where,
    )
