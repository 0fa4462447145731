"""What was judged of an answer: by a validation of itself, else of its turn, its stage attempt, the session. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dalsegno.readers.datasets.history import Answer, History

PASS, REJECT, INCONCLUSIVE = "PASS", "REJECT", "INCONCLUSIVE"


class Judged(NamedTuple):
    """``of`` is answer, turn, stage or session; both None where nothing was judged."""

    verdict: str | None = None
    of: str | None = None


class _Validation:
    def __init__(self) -> None:
        self.target_id: str | None = None
        self.target_seq: int | None = None
        self.session_id = ""
        self.verdict: str | None = None
        self.final = False


class Verdicts:
    """The verdicts of one session as they stand at its end, amended ones as amended."""

    def __init__(self, history: History) -> None:
        self._by_id: dict[str, _Validation] = {}
        self._newest: str | None = None
        for told in history.validations:
            body, event = told.event.body, told.event
            one = self._by_id.setdefault(body["validation_id"], _Validation())
            if event.type == "ValidationRequested":
                one.target_id, one.session_id = body["target_id"], event.session_id
                one.target_seq = None if body["target"] is None else body["target"]["seq"]
                continue
            one.verdict = body["verdict"]
            if event.type == "ValidationDecided":
                one.final = not body["intermediate"]
            if one.final:
                self._newest = one.verdict

    def of(self, answer: Answer) -> Judged:
        assert answer.told is not None
        event, meta = answer.told.event, answer.told.event.meta
        ids = {answer.inference_id, *(call["tool_call_id"] for call in event.body["tool_calls"])}
        final = [one for one in self._by_id.values() if one.final]
        places = [
            ("answer", [one for one in final if one.target_id in ids or _is_at(one, event.session_id, event.seq)]),
            ("turn", [one for one in final if one.target_id is not None and one.target_id == meta["turn_id"]]),
            ("stage", [one for one in final if one.target_id is not None and one.target_id == meta["stage_id"]]),
        ]
        for of, found in places:
            if found:
                return Judged(_together(one.verdict for one in found), of)
        return Judged() if self._newest is None else Judged(self._newest, "session")


def _is_at(one: _Validation, session_id: str, seq: int) -> bool:
    return one.target_id is None and one.target_seq == seq and one.session_id == session_id


def _together(verdicts: Iterable[str | None]) -> str:
    """One REJECT is enough; for a PASS all must be."""
    found = set(verdicts)
    return REJECT if REJECT in found else PASS if found == {PASS} else INCONCLUSIVE
