"""mini-swe-agent's trajectories (``.traj.json``): one session per file, its verdict from a report of SWE-bench.

``message`` reads one message, ``run`` maps all of them, ``verdict`` finds and reads the report that belongs to a file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dalsegno.importers.base import ImportedSession, Importer, ImportReport
from dalsegno.importers.json_file import foreign, object_at, objects_at, read_object
from dalsegno.importers.mini_swe_agent.run import Run
from dalsegno.importers.mini_swe_agent.verdict import report_on

_WANTED = "a trajectory of mini-swe-agent"
_FORMATS = (None, "mini-swe-agent-1", "mini-swe-agent-1.1")


class MiniSweAgentImporter(Importer):
    """mini-swe-agent, formats 1 and 1.1."""

    name = "mini-swe-agent"
    about = "mini-swe-agent's trajectories (.traj.json); the verdict of SWE-bench with --report"
    takes_reports = True

    def sessions(self, path: Path, report: ImportReport) -> Iterator[ImportedSession]:
        document = read_object(path, _WANTED, needs=("info", "messages"))
        info = object_at(path, "/info", document["info"], _WANTED)
        messages = objects_at(path, "/messages", document["messages"], _WANTED)
        if not info.get("mini_version"):
            raise foreign(path, "/info", "no /mini_version", _WANTED)
        if document.get("trajectory_format") not in _FORMATS:
            found = f"{document['trajectory_format']!r}, known are 1 and 1.1"
            raise foreign(path, "/trajectory_format", found, _WANTED)
        for index, message in enumerate(messages):
            if not isinstance(message.get("role"), str):
                raise foreign(path, f"/messages/{index}", "no /role", _WANTED)
        run = Run(self.id, document, info, messages, report)
        run.map()
        verdict = report_on(path, document.get("instance_id"), self.reports)
        if verdict is not None:
            self.reports_used.add(verdict.path)
            run.judge(verdict.data)
        yield run.session()
