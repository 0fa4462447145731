"""Inspect AI's logs (``.json`` and ``.eval``): one session per sample and epoch.

What becomes what stands in the modules: ``stages`` (spans and old steps), ``inferences`` (model calls), ``calls`` and
``approvals`` (tool calls), ``scores`` (validations), ``events`` (everything else), ``sample`` (the whole). ``file``
reads and checks, ``order`` says where the end of a call stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from dalsegno.errors import BadInputFile
from dalsegno.importers.base import ImportedSession, Importer, ImportReport
from dalsegno.importers.inspect_ai.file import Limits, NativeSample, read_log
from dalsegno.importers.inspect_ai.header import Header
from dalsegno.importers.inspect_ai.sample import map_sample
from dalsegno.importers.json_file import bad_file


class InspectImporter(Importer):
    """Inspect's logs."""

    name = "inspect"
    about = "Inspect AI's logs (.json, .eval)"

    def __init__(self, reports: Sequence[Path] = (), *, ended: bool = False, limits: Limits | None = None) -> None:
        super().__init__(reports, ended=ended)
        self._limits = limits

    def sessions(self, path: Path, report: ImportReport) -> Iterator[ImportedSession]:
        log = read_log(path, self._limits)
        report.warnings += log.warnings
        for part, count in sorted(log.parts.items()):
            report.not_carried[f"file.{part}"] += count
        header = Header(self.id, log.evaluation, log.plan)
        # Not a loop here: its variable would hold one sample while the next is read.
        return map(partial(_mapped, path, header, report), log.samples())


def _mapped(path: Path, header: Header, report: ImportReport, sample: NativeSample) -> ImportedSession:
    try:
        return map_sample(header, sample.data, sample.place, report)
    except BadInputFile as error:
        raise BadInputFile(
            f"{path}: {error.found}", wanted=error.wanted, todo=error.todo, file=str(path), place=sample.place
        ) from error
    except RecursionError as error:
        todo = "check that the file is a real log; nothing of it was imported"
        raise bad_file(path, sample.place, "nested too deeply", "an Inspect log", todo) from error
