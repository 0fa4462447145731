"""Building a data set: sessions chosen, read one by one, made into rows or pairs, written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from dalsegno.errors import NotFound
from dalsegno.log.redaction import Redactor
from dalsegno.readers.datasets import pairs, parquet
from dalsegno.readers.datasets.choosing import Wanted, chosen
from dalsegno.readers.datasets.folder import JSONL, PARQUET, DataSetFolder
from dalsegno.readers.datasets.reading import SessionReading
from dalsegno.readers.datasets.rows import RERUN, Missed, Row, rows_of
from dalsegno.readers.datasets.splits import Splits
from dalsegno.readers.datasets.spool import Spool
from dalsegno.readers.local import LocalReader
from dalsegno.storage.blobs import Blobs

SESSION = "session"
INFERENCE = "inference"
_PAIRS = {pairs.VERDICT: pairs.by_verdict, RERUN: pairs.by_rerun}
PAIRS = tuple(_PAIRS)


class Form(NamedTuple):
    """How rows are made and written. ``pairs``: one of ``PAIRS``, else rows, one for each ``unit``."""

    unit: str = INFERENCE
    pairs: str | None = None
    splits: Splits = Splits()
    dedupe: bool = False
    allow_tainted: bool = False
    redact: Redactor | None = None
    format: str = JSONL


def build(
    reader: LocalReader, blobs: Blobs, wanted: Wanted, form: Form, target: Path, tell: Callable[[int], None]
) -> dict[str, Any]:
    """Make the data set in ``target``; its card. ``tell`` is given the number of sessions read, after each.

    Raises NotFound where nothing would be in it, and then makes no folder; Conflict for a folder that is not empty.
    """
    if form.format == PARQUET:
        parquet.check_installed()
    with (
        DataSetFolder(target, form.format, pairs=form.pairs is not None) as folder,
        Spool(folder.work / ".spool") as spool,
    ):
        making = _Making(reader, SessionReading(reader, blobs, form.redact), form, spool)
        written = 0
        for split, data in making.records(wanted, tell):
            folder.write(split, data)
            written += 1
        if not written:
            raise _nothing(making, form)
        spool.close()
        return folder.finish(
            {
                "options": _options(wanted, form),
                "redaction": _redaction(form.redact),
                "log": {
                    "prefix": reader.prefix,
                    "positions": [view.position for view in reader.views().values()],
                    "missing": reader.missing(),
                },
                "sessions": {"chosen": making.sessions, "with_rows": making.sessions_with_rows},
                "left_out": dict(making.left_out),
            }
        )


class _Making:
    """``sessions``, ``left_out``, ``rerun`` (whether an answer was given in a re-run): what was met so far."""

    def __init__(self, reader: LocalReader, reading: SessionReading, form: Form, spool: Spool) -> None:
        self._reader, self._reading, self._form, self._spool = reader, reading, form, spool
        self.sessions = self.sessions_with_rows = 0
        self.left_out: Counter[str] = Counter()
        self.rerun = False

    def records(self, wanted: Wanted, tell: Callable[[int], None]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Split and data of everything that is to be written."""
        for found in chosen(self._reader, wanted):
            rows = self._counted(
                rows_of(
                    self._reading.told(found.session_id),
                    whole_session=self._form.unit == SESSION,
                    allow_tainted=self._form.allow_tainted,
                )
            )
            yield from self._of_session(self._form.splits.of(found.session_id), rows)
            self.sessions += 1
            tell(self.sessions)
        if self._form.pairs is not None:
            for split, pair in self._counted(_PAIRS[self._form.pairs](self._spool)):
                if self._is_wanted(pair["provenance"]["rejected"]["context_digest"]):
                    yield split, pair

    def _of_session(self, split: str, rows: Iterable[Row]) -> Iterator[tuple[str, dict[str, Any]]]:
        any_row = False
        if self._form.pairs is None:
            for row in rows:
                any_row = True
                if self._is_wanted(row.context):
                    yield split, row.as_data()
        else:
            made = list(rows)
            any_row = bool(made)
            self.rerun = self.rerun or any(row.provenance["origin"] == RERUN for row in made)
            if self._form.pairs == pairs.VERDICT:
                judged = [row for row in made if pairs.is_judged(row)]
                if len(judged) < len(made):
                    self.left_out["no-verdict"] += len(made) - len(judged)
                made, again = judged, list(pairs.retried(judged))
            else:
                again = []
            for accepted, rejected in again:
                if self._is_wanted(rejected.context):
                    yield split, pairs.retry_pair(accepted, rejected)
            used = {id(row) for pair in again for row in pair}
            for row in made:
                self._spool.put(pairs.kept(row, split, paired=id(row) in used))
        self.sessions_with_rows += any_row

    def _counted(self, made: Iterable[Any]) -> Iterator[Any]:
        """Without those that are missed, which are counted."""
        for each in made:
            if isinstance(each, Missed):
                self.left_out[each.reason] += 1
            else:
                yield each

    def _is_wanted(self, context: str) -> bool:
        if not self._form.dedupe or self._spool.is_new(context):
            return True
        self.left_out["duplicate"] += 1
        return False


def _nothing(making: _Making, form: Form) -> NotFound:
    if not making.sessions:
        return NotFound("no session is chosen", wanted="sessions that all conditions hold for", todo="choose by less")
    wanted, todo = "at least one row", "see docs/datasets.md for the reasons, or choose other sessions"
    reasons = []
    if making.left_out:
        counts = (f"{count} {reason}" for reason, count in sorted(making.left_out.items()))
        reasons.append(f"left out: {', '.join(counts)}")
    elif not making.sessions_with_rows:
        reasons.append("no model of an agent was asked")
    if form.pairs == RERUN and not making.rerun:
        reasons.append("no answer of theirs was asked for again")
        wanted = "sessions together with their forks of 'dalsegno replay run --inference rerun'"
        todo = "choose the forks too: by id ('dalsegno session list --forks-of ID' tells them), or all by --workflow"
    return NotFound(
        "; ".join([f"nothing to write of {making.sessions} chosen sessions", *reasons]),
        wanted=wanted,
        todo=todo,
        left_out=dict(making.left_out),
    )


def _options(wanted: Wanted, form: Form) -> dict[str, Any]:
    return {
        "sessions": sorted(wanted.ids),
        "status": wanted.status,
        "verdict": wanted.verdict,
        "workflow": wanted.workflow,
        "labels": [f"{key}={value}" for key, value in sorted(wanted.labels)],
        "limit": wanted.limit,
        "unit": form.unit,
        "pairs": form.pairs,
        "split": "/".join(map(str, form.splits.shares)),
        "seed": form.splits.seed,
        "dedupe": form.dedupe,
        "allow_tainted": form.allow_tainted,
    }


def _redaction(redact: Redactor | None) -> dict[str, Any] | None:
    if redact is None:
        return None
    return {"rules": [rule.name for rule in redact.rules], "digest": sha256(redact.document).hexdigest()}
