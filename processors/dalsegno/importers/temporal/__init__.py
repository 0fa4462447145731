"""Temporal's workflow histories (JSON): one run of a workflow as one session.

``history`` reads the events and their payloads, ``run`` says what becomes what, ``models`` reads what a model was asked
and answered. A history is written by the server as it happens, in order and with the causes of each event, so that
little has to be concluded. What it does not hold are calls of tools that the workflow ran by itself: that a model
wanted one and what came of it shows in the model's answer and in what it is asked next.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dalsegno.importers.base import ImportedSession, Importer, ImportReport
from dalsegno.importers.temporal.history import read_history
from dalsegno.importers.temporal.run import map_run


class TemporalImporter(Importer):
    """``Importer`` of Temporal's histories."""

    name = "temporal"
    about = "Temporal's workflow histories (JSON of `temporal workflow show --output json`)"

    def sessions(self, path: Path, report: ImportReport) -> Iterator[ImportedSession]:
        yield map_run(self.id, read_history(path, report), report)
