"""Two versions of a projection over the same events: where their rows begin to differ.

Only one version of a projection is installed, so only its rows stand in shards. Both are therefore folded here, event
by event, in one pass over the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

from msgspec import Struct, structs

from dalsegno.errors import DalsegnoError, Failed, NotFound
from dalsegno.harness.loading import attribute, is_code
from dalsegno.projections import registry
from dalsegno.projections.base import ALL, HeadFacts, Projection, RowId, plus, values_of
from dalsegno.readers.sessions import Step
from dalsegno.state.keys import id_part


class RowsDiffer(NamedTuple):
    """A row of which two versions make something else; None: only the other version has it."""

    id: RowId
    a: dict[str, Any] | None
    b: dict[str, Any] | None


class Compared(NamedTuple):
    """How it stands behind one event. ``differing``: how many rows differ by now; ``newly``: those that this event
    changed and that differ."""

    seq: int
    differing: int
    newly: tuple[RowsDiffer, ...]


def version_of(name: str, given: str) -> Projection[Any]:
    """The installed version by its number, another one by ``module:Class`` or ``file.py:Class``. Raises NotFound,
    Failed."""
    if not is_code(given):
        (installed,) = registry.chosen([name])
        if given != str(installed.version):
            raise NotFound(
                f"version {given} of projection {name} is not installed",
                wanted=f"{installed.version}, which is; or the class of another one: module:Class, file.py:Class",
                projection=name,
            )
        return installed
    made = attribute(given)
    try:
        projection = made() if isinstance(made, type) else made
    except Exception as error:
        raise _refused(given, f"raises {type(error).__name__}: {error}") from error
    fields = ("name", "version", "handles", "row")
    if not isinstance(projection, Projection) or not all(hasattr(projection, field) for field in fields):
        raise _refused(given, f"is a {type(projection).__name__}")
    return projection


def _refused(given: str, found: str) -> Failed:
    return Failed(f"{given} {found}", wanted="a Projection with name, version, handles and row", todo="correct it")


def fields_of_one(a: Projection[Any], b: Projection[Any]) -> list[str]:
    """The fields that only one of them has; they are not compared."""
    return sorted({*a.row.__struct_fields__} ^ {*b.row.__struct_fields__})


def compare_versions(a: Projection[Any], b: Projection[Any], steps: Iterator[Step]) -> Iterator[Compared]:
    """Fold both over a session's events. Raises Failed where one of them raises: a fold must be total."""
    folds = _Fold(a), _Fold(b)
    common = {*a.row.__struct_fields__} & {*b.row.__struct_fields__}
    differing: set[RowId] = set()
    stubs = 0
    for step in steps:
        event = step.event
        stubs += event.stub is not None
        head = HeadFacts(event.seq, event.hash, event.epoch, None, None, 0, stubs)
        changed = {row_id for fold in folds for row_id in fold.take(step, head)}
        newly = []
        for row_id in sorted(changed, key=id_part):
            row_a, row_b = (_values(fold.rows.get(row_id), common) for fold in folds)
            if row_a == row_b:
                differing.discard(row_id)
            else:
                differing.add(row_id)
                newly.append(RowsDiffer(row_id, row_a, row_b))
        yield Compared(event.seq, len(differing), tuple(newly))


def _values(row: Struct | None, fields: set[str]) -> dict[str, Any] | None:
    return None if row is None else {name: value for name, value in values_of(row).items() if name in fields}


class _Fold:
    """One version, and its rows so far."""

    def __init__(self, projection: Projection[Any]) -> None:
        self._projection = projection
        self.rows = _Rows()

    def take(self, step: Step, head: HeadFacts) -> set[RowId]:
        """The ids of the rows that were put or taken away."""
        event, verdict, projection = step.event, step.verdict, self._projection
        self.rows.changed = set()
        try:
            if verdict.violations:
                projection.fold_violation(self.rows, event, verdict)
            elif event.stub is not None:
                projection.fold_stub(self.rows, event)
            elif event.type in projection.handles or projection.handles == ALL:
                projection.fold(self.rows, event, verdict)
            projection.fold_head(self.rows, head)
        except DalsegnoError:
            raise
        except Exception as error:
            raise Failed(
                f"version {projection.version} of projection {projection.name} raises at seq {event.seq}: "
                f"{type(error).__name__}: {error}",
                wanted="a fold that never raises",
                todo="correct it",
                seq=event.seq,
            ) from error
        return self.rows.changed


class _Table:
    """Rows in memory; what was given out and not put back changes nothing."""

    def __init__(self) -> None:
        self._rows: dict[RowId, Any] = {}
        self.changed: set[RowId] = set()

    def get(self, row_id: RowId = ()) -> Any:
        return deepcopy(self._rows.get(row_id))

    def put(self, row_id: RowId, row: Any) -> None:
        self._rows[row_id] = deepcopy(row)
        self.changed.add(row_id)

    def delete(self, row_id: RowId) -> None:
        self._rows.pop(row_id, None)
        self.changed.add(row_id)


class _Rows(_Table):
    def __init__(self) -> None:
        super().__init__()
        self.private = _Table()

    def add(self, key: RowId, amounts: Any) -> None:
        before = self._rows.get(key)
        sums = structs.asdict(amounts)
        if before is not None:
            sums = {name: plus(getattr(before, name), amount) for name, amount in sums.items()}
        if any(sums.values()):
            self.put(key, type(amounts)(**sums))
        else:
            self.delete(key)
