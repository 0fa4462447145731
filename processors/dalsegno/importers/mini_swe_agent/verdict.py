"""Reports of SWE-bench. They name no session: a report belongs to a run by the name of its file or of its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dalsegno.importers.json_file import bad_file, read_object

_WANTED = "a report of SWE-bench on one instance"
_NAME = ".report.json"


class Verdict(NamedTuple):
    """A report; ``data["resolved"]`` is true or false."""

    path: Path
    data: dict[str, Any]


def report_on(path: Path, instance: Any, reports: Sequence[Path]) -> Verdict | None:
    """The one of the reports that is named after the run's instance or file, or lies in a folder that is.

    Raises BadInputFile where there are two, or where it holds no verdict.
    """
    names = {str(instance), path.name.removesuffix(".json").removesuffix(".traj")}
    found = [(report, own) for report in reports if (own := _subject(report)) in names]
    if len(found) > 1:
        told = "two reports: " + ", ".join(str(report) for report, _ in found)
        raise bad_file(path, "", told, "at most one", "give only one of them")
    return next((_read(report, own) for report, own in found), None)


def _subject(report: Path) -> str:
    return report.name.removesuffix(_NAME) if report.name.endswith(_NAME) else report.parent.name


def _read(path: Path, instance: str) -> Verdict:
    data = read_object(path, _WANTED)
    if isinstance(data.get(instance), dict):  # as the harness writes it: by instance
        data = data[instance]
    if not isinstance(data.get("resolved"), bool):
        raise bad_file(path, "", "no /resolved that is true or false", _WANTED)
    return Verdict(path, data)
