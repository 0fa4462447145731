"""Inspect AI's logs (``.json`` and ``.eval``): one session per sample and epoch.

What becomes what stands in the modules: ``stages`` (spans and old steps), ``inferences`` (model calls), ``calls`` and
``approvals`` (tool calls), ``scores`` (validations), ``events`` (everything else), ``sample`` (the whole). ``file``
reads and checks, ``order`` says where the end of a call stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from dalsegno.errors import BadInputFile
from dalsegno.importers.base import ImportedSession, ImportReport
from dalsegno.importers.inspect_ai.file import Limits, NativeSample, read_log
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

    def report(self) -> ImportReport:
        return ImportReport(self.name, self.mapping_version, modes=dict(MODES))

    def read(self, path: Path, report: ImportReport) -> Iterator[ImportedSession]:
        log = read_log(path, self._limits)
        report.warnings += log.warnings
        for part, count in sorted(log.parts.items()):
            report.not_carried[f"file.{part}"] += count
        header = Header(f"{self.name}/{self.mapping_version}", log.evaluation, log.plan, blob_uri)
        # Not a loop here: its variable would hold one sample while the next is read.
        return map(partial(_mapped, path, header, report), log.samples())


def _mapped(path: Path, header: Header, report: ImportReport, sample: NativeSample) -> ImportedSession:
    try:
        session = map_sample(header, sample.data, sample.place, report)
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
    report.events.update(type(event.event).TYPE for event in session.events)  # type: ignore[attr-defined]
    return session
