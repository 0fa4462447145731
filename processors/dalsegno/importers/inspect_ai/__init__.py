"""Inspect AI's logs (``.json`` and ``.eval``): one session per sample and epoch.

What becomes what stands in the modules: ``stages`` (spans and old steps), ``inferences`` (model calls), ``calls`` and
``approvals`` (tool calls), ``scores`` (validations), ``events`` (everything else), ``sample`` (the whole). ``file``
reads and checks, ``order`` says where the end of a call stands.
"""

from __future__ import annotations

from pathlib import Path

from dalsegno.errors import BadInputFile
from dalsegno.importers.base import ImportedSession, ImportReport, ImportResult
from dalsegno.importers.inspect_ai.file import Limits, NativeLog, read_log
from dalsegno.importers.inspect_ai.header import Header
from dalsegno.importers.inspect_ai.sample import map_sample
from dalsegno.importers.payload import blob_uri

MODES = {
    "projection-only": "yes",
    "inference-skipping": "yes: payloads of decisions are compared where their inputs were recorded",
    "full": "recorded results only: the log holds no context packs to ask a model with",
    "simulation": "not comparable: workflow and policies of the recording are not ours",
}


class InspectImporter:
    """``Importer`` of Inspect's logs."""

    name = "inspect"
    mapping_version = 1

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits

    def read(self, path: Path) -> ImportResult:
        log = read_log(path, self._limits)
        report = ImportReport(self.name, self.mapping_version, modes=dict(MODES))
        report.warnings += log.warnings
        sessions = tuple(self._sessions(path, log, report))
        for part, count in sorted(log.parts.items()):
            report.not_carried[f"file.{part}"] += count
        for session in sessions:
            report.events.update(type(event.event).TYPE for event in session.events)  # type: ignore[attr-defined]
        return ImportResult(sessions, report)

    def _sessions(self, path: Path, log: NativeLog, report: ImportReport) -> list[ImportedSession]:
        header = Header(f"{self.name}/{self.mapping_version}", log.evaluation, log.plan, blob_uri)
        sessions = []
        for sample in log.samples:
            try:
                sessions.append(map_sample(header, sample.data, sample.place, report))
            except BadInputFile as error:
                raise BadInputFile(
                    f"{path}: {error.found}", wanted=error.wanted, todo=error.todo, file=str(path), place=sample.place
                ) from error
            except RecursionError as error:
                raise BadInputFile(
                    f"{path}: {sample.place} is nested too deeply",
                    wanted="an Inspect log",
                    todo="check that the file is a real log; nothing of it was imported",
                    file=str(path),
                    place=sample.place,
                ) from error
        return sessions
