"""The projections of this installation: the built-in ones, and those that other packages register.

An entry point of the group ``dalsegno.projections`` names a subclass of ``Projection`` (or a function that makes one).
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import entry_points
from typing import Any, Final

from dalsegno.errors import Failed, NotFound
from dalsegno.projections.approvals import Approvals
from dalsegno.projections.audit import Audit
from dalsegno.projections.base import Projection
from dalsegno.projections.compressions import Compressions
from dalsegno.projections.context_packs import ContextPacks
from dalsegno.projections.decider.projection import Decider
from dalsegno.projections.inferences import Inferences
from dalsegno.projections.inputs import Inputs
from dalsegno.projections.messages import Messages
from dalsegno.projections.outcomes import Outcomes
from dalsegno.projections.sessions import Sessions
from dalsegno.projections.stages import Stages
from dalsegno.projections.tools import Tools
from dalsegno.projections.usage import Usage
from dalsegno.projections.validations import Validations

GROUP: Final = "dalsegno.projections"
_RESERVED: Final = frozenset({"lifecycle"})


def built_in() -> list[Projection[Any]]:
    return [
        Sessions(),
        Stages(),
        ContextPacks(),
        Compressions(),
        Messages(),
        Inferences(),
        Tools(),
        Approvals(),
        Inputs(),
        Validations(),
        Audit(),
        Usage(),
        Outcomes(),
        Decider(),
    ]


def installed() -> dict[str, Projection[Any]]:
    """All projections by name. Raises Failed naming an entry point that gives none, or a name that is given twice."""
    found: dict[str, Projection[Any]] = {projection.name: projection for projection in built_in()}
    for entry in entry_points(group=GROUP):
        try:
            projection = entry.load()()
        except Exception as error:
            raise _refused(entry.value, f"{type(error).__name__}: {error}") from error
        if not isinstance(projection, Projection):
            raise _refused(entry.value, f"a {type(projection).__name__}")
        for field in ("name", "version", "handles", "row"):
            if not hasattr(projection, field):
                raise _refused(entry.value, f"a projection without {field}")
        if projection.version < 1 or projection.name in _RESERVED:
            raise _refused(entry.value, f"a projection named {projection.name!r} of version {projection.version}")
        if projection.name in found:
            raise _refused(entry.value, f"a second projection {projection.name!r}")
        found[projection.name] = projection
    return found


def chosen(names: Iterable[str] | None = None) -> list[Projection[Any]]:
    """These projections in order of their names; all that are installed if ``names`` is None. Raises NotFound."""
    found = installed()
    wanted = sorted(found if names is None else set(names))
    for name in wanted:
        if name not in found:
            raise NotFound(
                f"no projection {name!r}",
                wanted=f"one of {', '.join(sorted(found))}",
                todo=f"install the package that registers it in the group {GROUP}",
                projection=name,
            )
    return [found[name] for name in wanted]


def _refused(where: str, found: str) -> Failed:
    return Failed(
        f"the entry point {where} of group {GROUP} gives {found}",
        wanted="a Projection with name, version, handles and row",
        todo="correct or remove that package",
        entry_point=where,
    )
