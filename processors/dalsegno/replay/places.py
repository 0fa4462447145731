"""How far a run has come in the recording that it is of, by what both have. Pure.

What comes by itself has its place behind what it followed: it comes as soon as the run has that event, or another one
that was recorded behind it. So a run that leaves the recording and comes back to it gets it where it belongs.
"""

from __future__ import annotations

from collections import Counter

from dalsegno.model.records import Event
from dalsegno.replay.subjects import identity

_BEGINNING = -1


class Places:
    """The places of one recording, and the furthest one of them that a run has reached."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str, int], int] = {}
        self._behind: dict[tuple[str, int], int] = {}
        self._recorded: Counter[tuple[str, str]] = Counter()
        self._run: Counter[tuple[str, str]] = Counter()
        self._reached = _BEGINNING

    def record(self, event: Event) -> None:
        """The recording's next event."""
        which = identity(event)
        if which is None:
            self._behind[event.session_id, event.seq] = len(self._places) + _BEGINNING
        else:
            self._recorded[which] += 1
            self._places[(*which, self._recorded[which])] = len(self._places)

    def passed(self, event: Event) -> None:
        """The run's next event."""
        which = identity(event)
        if which is not None:
            self._run[which] += 1
            self._reached = max(self._reached, self._places.get((*which, self._run[which]), _BEGINNING))

    def is_reached(self, event: Event) -> bool:
        """Whether the run is where this recorded event, which comes by itself, followed."""
        return self._behind[event.session_id, event.seq] <= self._reached
