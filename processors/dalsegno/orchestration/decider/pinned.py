"""The configuration in force in a session, from what was pinned. Pure."""

from __future__ import annotations

from typing import Final

from dalsegno.errors import NotReconstructable
from dalsegno.orchestration.configuration import configuration_of
from dalsegno.orchestration.decider.world import Contents
from dalsegno.orchestration.documents import KINDS, Configuration
from dalsegno.projections.decider.rows import PIN, Pin
from dalsegno.projections.decider.table import MemoryRows


def configuration_in_force(rows: MemoryRows, contents: Contents) -> Configuration:
    """Raises NotReconstructable where a document was not pinned, or its content is missing; InvalidDocument where this
    build cannot read it."""
    pins: dict[str, Pin] = rows.family(PIN)
    digests: list[tuple[str, bytes]] = []
    for kind in KINDS:
        pin = pins.get(kind)
        if pin is None or pin.digest is None:
            raise NotReconstructable(
                f"no {kind} document was pinned" if pin is None else f"the {kind} document was pinned without a digest",
                wanted="a ConfigPinned with its content for every kind of document",
                todo="replay it by projection only; a session without its configuration has no decisions to compare",
                kind=kind,
            )
        digests.append((kind, pin.digest))
    key = tuple(digests)
    found = _known.get(key)
    if found is None:
        found = configuration_of({kind: contents.get(digest) for kind, digest in digests})
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = found
    return found


_known: dict[tuple[tuple[str, bytes], ...], Configuration] = {}
"""By digests: a document is read and its conditions are compiled once, however many decisions are made with it."""
_MOST: Final = 64
