"""Which sessions a data set is made of."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from typing import NamedTuple

from dalsegno.readers.local import LocalReader
from dalsegno.readers.sessions import Found, all_rows, find_session, steps


class Wanted(NamedTuple):
    """All of it must hold; None, or nothing, is no condition. ``verdict`` is the session's own, ``labels`` are those
    that it was created with. ``limit``: the sessions with the newest last event, so many."""

    ids: tuple[str, ...] = ()
    status: str | None = None
    verdict: str | None = None
    workflow: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    limit: int | None = None


def chosen(reader: LocalReader, wanted: Wanted) -> Iterator[Found]:
    """The sessions, always in the same order: by partition and id, those named or of a limit by id. Nothing is kept of
    them but what was named or is within the limit. Raises NotFound, Usage for a name that is no session's."""
    if wanted.ids:
        named = {found.session_id: found for found in (find_session(reader, name) for name in wanted.ids)}
        candidates: Iterator[Found] = iter([named[id] for id in sorted(named)])
    else:
        candidates = (Found(*each, view) for view in reader.views().values() for each in all_rows(view))
    fitting = (found for found in candidates if fits(reader, found, wanted))
    if wanted.limit is None:
        return fitting
    newest = nlargest(wanted.limit, fitting, key=lambda found: (found.row.last_event_at or 0, found.session_id))
    return iter(sorted(newest, key=lambda found: found.session_id))


def fits(reader: LocalReader, found: Found, wanted: Wanted) -> bool:
    """Whether what is wanted of a session holds of this one, but for ``ids`` and ``limit``. For labels an event is
    read."""
    row = found.row
    return (
        wanted.status in (None, row.status)
        and wanted.verdict in (None, row.verdict)
        and wanted.workflow in (None, row.workflow_name)
        and _is_labelled(reader, found, wanted)
    )


def _is_labelled(reader: LocalReader, found: Found, wanted: Wanted) -> bool:
    if not wanted.labels:
        return True
    first = next(steps(reader, found), None)
    body = {} if first is None else first.event.body
    labels = {(label["key"], label["value"]) for label in body.get("labels") or ()}
    return labels.issuperset(wanted.labels)
