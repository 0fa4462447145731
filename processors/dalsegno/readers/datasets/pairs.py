"""Preference pairs: two answers to one context, of which one is to be preferred.

{"prompt": [...], "chosen": [answer], "rejected": [answer], "tools": [...], "provenance": {...}}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from dalsegno.readers.datasets.rows import RERUN, Missed, Row, digest_of, line_of
from dalsegno.readers.datasets.spool import Kept, Spool
from dalsegno.readers.datasets.verdicts import PASS, REJECT

VERDICT: Final = "verdict"
RETRY: Final = "retry"
_OF_ONE_TRY: Final = {"answer": "inference", "turn": "turn", "stage": "stage"}

Pair = dict[str, Any]


def is_judged(row: Row) -> bool:
    """Whether it can be either side of a pair by verdict."""
    return row.provenance["verdict"] in (PASS, REJECT)


def retried(rows: Iterable[Row]) -> Iterator[tuple[Row, Row]]:
    """(accepted, rejected) of one session: what was rejected, and what was accepted when the stage was tried again.

    Of each thing that was judged (an answer, a turn, a stage attempt) the last answer stands for it.
    """
    judged: dict[tuple[str, Any], Row] = {}
    for row in rows:
        what = row.provenance["verdict_of"]
        if what in _OF_ONE_TRY:
            judged[what, row.provenance[_OF_ONE_TRY[what]]] = row
    waiting: dict[str, list[Row]] = {}
    for row in judged.values():
        stage = (row.provenance["stage"] or "").rpartition(".")[0]
        if row.provenance["verdict"] == REJECT:
            waiting.setdefault(stage, []).append(row)
        elif row.provenance["verdict"] == PASS:
            # With an equal context they are found among all sessions.
            yield from ((row, rejected) for rejected in waiting.pop(stage, []) if rejected.context != row.context)


def retry_pair(accepted: Row, rejected: Row) -> Pair:
    """The prompt is what the rejected answer saw; the accepted one came later and saw that it was rejected, or not."""
    return _pair(rejected.as_data(), accepted.as_data(), rejected.as_data(), RETRY, VERDICT)


def kept(row: Row, split: str, *, paired: bool = False) -> Kept:
    facts = row.provenance
    return Kept(
        split, row.context, facts["session"], facts["inference"], facts["verdict"], facts["origin"],
        "\n".join(row.ancestors), digest_of(row.answer), paired, line_of(row.as_data()),
    )  # fmt: skip


def by_verdict(spool: Spool) -> Iterator[tuple[str, Pair] | Missed]:
    """Every rejected answer against the first accepted one of the same context, in the same split."""
    accepted: Kept | None = None
    used = True
    for row in spool.judged():
        if accepted is not None and (row.split, row.context) != (accepted.split, accepted.context):
            if not used:
                yield Missed("no-counterpart")
            accepted = None
        if row.verdict == PASS:
            if accepted is None:
                accepted, used = row, False
        elif accepted is None:
            yield Missed("no-counterpart")
        elif row.answer == accepted.answer:
            used = True
            yield Missed("equal-answers")
        else:
            used = True
            yield row.split, _of_kept(accepted, row, VERDICT, VERDICT)
    if accepted is not None and not used:
        yield Missed("no-counterpart")


def by_rerun(spool: Spool) -> Iterator[tuple[str, Pair] | Missed]:
    """Every answer of a fork that was asked for anew, against the recorded one in its place: the same inference of the
    nearest ancestor, with the same context. Where verdicts do not say otherwise, the recorded one is preferred."""
    for row in spool.of_origin(RERUN):
        found = (spool.of_inference(session, row.inference) for session in row.ancestors.split("\n"))
        recorded = next((each for each in found if each is not None), None)
        if recorded is None or recorded.context != row.context:
            yield Missed("no-counterpart")
        elif recorded.answer == row.answer:
            yield Missed("equal-answers")
        elif (row.verdict, recorded.verdict) == (PASS, REJECT):
            yield row.split, _of_kept(row, recorded, RERUN, VERDICT)
        else:
            judged = (recorded.verdict, row.verdict) == (PASS, REJECT)
            yield row.split, _of_kept(recorded, row, RERUN, VERDICT if judged else "recorded")


def _of_kept(chosen: Kept, rejected: Kept, kind: str, preferred_by: str) -> Pair:
    better, worse = json.loads(chosen.line), json.loads(rejected.line)
    return _pair(worse, better, worse, kind, preferred_by)


def _pair(
    prompt: Mapping[str, Any], chosen: Mapping[str, Any], rejected: Mapping[str, Any], kind: str, preferred_by: str
) -> Pair:
    return {
        "prompt": prompt["messages"][:-1],
        "chosen": chosen["messages"][-1:],
        "rejected": rejected["messages"][-1:],
        "tools": prompt["tools"],
        "provenance": {
            "pair": kind,
            "preferred_by": preferred_by,
            "chosen": chosen["provenance"],
            "rejected": rejected["provenance"],
        },
    }
