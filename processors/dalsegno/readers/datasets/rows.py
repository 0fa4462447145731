"""The rows of one session: an answer of an agent with what the model saw, its tools, and where it all comes from. Pure.

{"messages": [..., {"role": "assistant", ...}], "tools": [...], "provenance": {...}}
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from dalsegno.model.forking import TRIALS
from dalsegno.readers.datasets.chat import Message
from dalsegno.readers.datasets.context import Contexts, Seen
from dalsegno.readers.datasets.history import Answer, Asked, History, Told
from dalsegno.readers.datasets.left_out import LeftOut
from dalsegno.readers.datasets.verdicts import Judged, Verdicts
from dalsegno.replay.serving import EXACT, INEXACT, served_as

RECORDED: Final = "recorded"
RERUN: Final = "rerun"
"""Of forks in which something is tried; the others go on from where their parent was left."""


class Row(NamedTuple):
    """``context`` is the digest of messages (without the answer) and tools; ``ancestors`` are a fork's, the nearest
    first."""

    prompt: list[Message]
    answer: Message
    tools: list[dict[str, Any]]
    provenance: dict[str, Any]
    context: str
    ancestors: list[str]

    def as_data(self) -> dict[str, Any]:
        return {"messages": [*self.prompt, self.answer], "tools": self.tools, "provenance": self.provenance}


class Missed(NamedTuple):
    """An answer that is no row."""

    reason: str


def rows_of(
    told: Sequence[Told], *, whole_session: bool = False, allow_tainted: bool = False
) -> Iterator[Row | Missed]:
    """A row, or the reason why there is none, for each time an agent's model was asked in the session itself (its
    ancestors' are theirs). ``whole_session``: only the last one, whose context is all that went before."""
    history = History(told)
    makes = _Rows(history, allow_tainted)
    own = [answer for answer in history.answers if _is_own(answer)]
    for answer in own[-1:] if whole_session else own:
        try:
            yield makes.row(answer)
        except LeftOut as error:
            yield Missed(error.reason)


def _is_own(answer: Answer) -> bool:
    told = answer.told if answer.told is not None else answer.asked.told if answer.asked is not None else None
    return told is not None and told.own


class _Rows:
    def __init__(self, history: History, allow_tainted: bool) -> None:
        self._history = history
        self._contexts = Contexts(history)
        self._verdicts = Verdicts(history)
        self._allow_tainted = allow_tainted
        self._tainted = any(told.own and served_as(told.event) == INEXACT for told in history.told)

    def row(self, answer: Answer) -> Row:
        """Raises LeftOut."""
        asked, told = answer.asked, answer.told
        if told is None:
            raise LeftOut("no-answer")
        if asked is None:
            raise LeftOut("not-requested")
        if self._tainted and not self._allow_tainted:
            raise LeftOut("tainted")
        if served_as(told.event) == EXACT:
            raise LeftOut("served-again")
        for each in (self._history.created, asked.told, told, *self._history.feedback):
            if each is not None and each.problem is not None:
                raise LeftOut(each.problem)
        if not told.event.body["complete"]:
            raise LeftOut("cut-off")
        seen = self._contexts.before(asked)
        said = self._contexts.answer(answer, seen.omitted)
        if not said["content"] and "tool_calls" not in said:
            raise LeftOut("empty-answer")
        tools, known = self._contexts.tools(asked)
        context = digest_of([seen.messages, tools])
        facts = {
            **self._of_session(),
            "session": told.event.session_id,
            "configuration_digest": asked.configuration.hex(),
            **_of_answer(asked, told, seen, self._verdicts.of(answer)),
            "tools_recorded": known,
            "origin": RERUN if self._is_rerun(told) else RECORDED,
            "tainted": self._tainted,
            "context_digest": context,
            "feedback": self._feedback(told),
        }
        return Row(seen.messages, said, tools, facts, context, self._history.ancestors)

    def _is_rerun(self, told: Told) -> bool:
        forked = self._history.forked
        purpose = None if forked is None or not forked.own else forked.event.body["purpose"]
        return purpose in TRIALS and not _origin(told)

    def _of_session(self) -> dict[str, Any]:
        created, forked = self._history.created, self._history.forked
        body: Mapping[str, Any] = {} if created is None else created.event.body
        parent = None if forked is None or not forked.own else forked.event.body
        return {
            "workflow": body.get("workflow_name"),
            "labels": [{"key": each["key"], "value": each["value"]} for each in body.get("labels") or ()],
            "parent_session": None if parent is None else parent["parent_session"],
            "parent_seq": None if parent is None else parent["parent_at"]["seq"],
        }

    def _feedback(self, told: Told) -> list[dict[str, str | None]]:
        """What was said of this answer, or of the session as a whole."""
        found = []
        for each in self._history.feedback:
            body, event = each.event.body, told.event
            target = body["target"]
            of_it = target is None or (target["seq"] == event.seq and each.event.session_id == event.session_id)
            if of_it and each.own:
                found.append({"kind": body["kind"], "value": body["value"]})
        return found


def _of_answer(asked: Asked, told: Told, seen: Seen, judged: Judged) -> dict[str, Any]:
    """Digests that were recorded are of contents before redaction: they are told only where nothing was taken out."""
    request, body = asked.told.event.body, told.event.body
    own = [each.event.seq for each in (*seen.used, asked.told, told) if each.own]
    redacted = any(each.redacted for each in seen.used)
    stage = told.event.meta["stage_id"]
    return {
        "inference": body["inference_id"],
        "stage": stage,
        "turn": told.event.meta["turn_id"],
        "first_seq": min(own),
        "last_seq": told.event.seq,
        "provider": request["provider"],
        "model": body["model"] or request["model"],
        "request_digest": None if redacted else _hex(request["request_digest"]),
        "output_digest": None if told.redacted else _hex(body["output_digest"]),
        "context": seen.source,
        "omitted": sorted(seen.omitted),
        "redacted": redacted or told.redacted,
        "verdict": judged.verdict,
        "verdict_of": judged.of,
    }


def _origin(told: Told) -> str:
    """The importer that an event names; "" for what was not imported and not served."""
    origin = told.event.meta.get("origin")
    return origin["importer"] if origin else ""


def _hex(digest: bytes | None) -> str | None:
    return None if digest is None else digest.hex()


def line_of(data: Any) -> str:
    """JSON in one line, keys sorted, without its end: equal data has equal bytes."""
    return json.dumps(data, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def digest_of(data: Any) -> str:
    return sha256(line_of(data).encode("utf-8", "surrogatepass")).hexdigest()
