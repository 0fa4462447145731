"""What a model saw before it answered: by its context pack where there is one, else the transcript up to there. Pure.

A pack says it exactly. A transcript is what most harnesses send: the messages, the agent's answers and the results of
their calls, in order, with compressions applied that are recorded whole; results stand behind their call, what came in
between behind them.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dalsegno.projections.decider import rendering
from dalsegno.readers.datasets import chat
from dalsegno.readers.datasets.chat import Message
from dalsegno.readers.datasets.history import ENDS, Answer, Asked, History, Pack, Told
from dalsegno.readers.datasets.left_out import LeftOut

PACK: Final = "pack"
TRANSCRIPT: Final = "transcript"
_RECEIPT: Final = "ToolReceiptRecorded"
_SHORTENING: Final = frozenset({"SUMMARY", "TRIM"})
"""Compressions that forget items and put a summary in their place, or nothing."""


class Seen(NamedTuple):
    """``source`` is PACK or TRANSCRIPT; ``used`` the events it was made of. ``omitted``: what there was beside, of
    which these messages say nothing."""

    messages: list[Message]
    source: str
    used: list[Told]
    omitted: set[str]


class Contexts:
    """The contexts of one session's answers."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._last: tuple[Pack, list[Mapping[str, Any]]] | None = None

    def before(self, asked: Asked) -> Seen:
        """What the model saw. Raises LeftOut."""
        shown = asked.told.shown
        if shown is not None:
            if shown.problem is not None:
                raise LeftOut(shown.problem)
            chat.check_pairs(shown.messages)
            return Seen(shown.messages, PACK, shown.used, set())
        seen = Seen([], TRANSCRIPT if asked.told.event.body["pack_id"] is None else PACK, [], set())
        if seen.source == PACK:
            for item in self._items(asked):
                self._add_item(seen, item, asked.place)
        else:
            for place in self._transcript(asked.place):
                self._add(seen, place, asked.place)
            seen.omitted.update(what for place, what in self._history.aside if place < asked.place)
        chat.check_pairs(seen.messages)
        return seen

    def answer(self, answer: Answer, omitted: set[str]) -> Message:
        """The answer itself, with the calls that it asks for. Raises LeftOut."""
        assert answer.told is not None
        said = self._answer(answer.told, omitted)
        if answer.asked is None or answer.asked.told.shown is None:
            return said
        written: Message = json.loads(rendering.assistant(answer.told.event.body))  # as later requests repeat it
        return written

    def tools(self, asked: Asked) -> tuple[list[dict[str, Any]], bool]:
        """The tools that the model was told of, and whether that is recorded in a form known here."""
        if asked.told.shown is not None:
            return asked.told.shown.tools, True
        digest = asked.told.event.body["tools_digest"] or (asked.pack.body["tools_digest"] if asked.pack else None)
        place = None if digest is None else self._history.contents.get(digest)
        names = None
        if place is not None:
            told = self._history.told[place]
            content = None if told.problem is not None else told.event.body["content"]
        else:
            content = asked.documents.get("TOOL_CATALOG")
            names = _tools_of_stage(asked)
        if content is None or content["inline"] is None:
            return [], False
        found = chat.tools_of(chat.text_of(content), names)
        return found or [], found is not None

    # --- one event ---------------------------------------------------------------------------------------------------

    def _use(self, seen: Seen, place: int) -> Told:
        told = self._history.told[place]
        if told.problem is not None:
            raise LeftOut(told.problem)
        seen.used.append(told)
        return told

    def _add(self, seen: Seen, place: int, before: int) -> None:
        """An event of a transcript; an answer with the results of its calls."""
        told = self._use(seen, place)
        seen.messages.append(self._message(told, seen.omitted))
        if told.event.type == "InferenceCompleted":
            for call in told.event.body["tool_calls"]:
                end = self._end(call["tool_call_id"], before)
                if end is None:
                    raise LeftOut("call-without-result")
                ended = self._use(seen, end).event
                seen.messages.append(chat.result(ended.type, ended.body, call["tool_call_id"]))

    def _message(self, told: Told, omitted: set[str]) -> Message:
        event = told.event
        if event.type == "MessageReceived":
            return chat.said(event.body, omitted)
        if event.type == "InferenceCompleted":
            return self._answer(told, omitted)
        if event.type == "CompressionCompleted":
            return {"role": "user", "content": chat.text_of(event.body["summary"])}
        if event.type == "ContextItemRetrieved":
            return chat.retrieved(event.body["content"])
        if event.type == "InputProvided":
            return {"role": "user", "content": chat.text_of(event.body["content"])}
        raise AssertionError(f"{event.type} gives no item")

    def _answer(self, told: Told, omitted: set[str]) -> Message:
        body = told.event.body
        text = chat.text_of_parts(body["output"], omitted)
        return chat.answered(text, chat.calls_of(body, self._requested))

    def _requested(self, call_id: str) -> Mapping[str, Any] | None:
        told = self._history.requested.get(call_id)
        if told is not None and told.problem is not None:
            raise LeftOut(told.problem)
        return None if told is None else told.event.body

    def _end(self, call_id: str, before: int) -> int | None:
        """Where a call ended: at its first receipt, else at the last word on it."""
        places = [place for place in self._history.items.get(call_id, ()) if place < before]
        receipts = [place for place in places if self._history.told[place].event.type == _RECEIPT]
        return receipts[0] if receipts else places[-1] if places else None

    # --- transcripts -------------------------------------------------------------------------------------------------

    def _transcript(self, before: int) -> list[int]:
        """Places of what makes up the conversation, in order."""
        history = self._history
        if history.holes and history.holes[0] < before:
            raise LeftOut("erased")
        places: list[int] = []
        for place in history.shown[: bisect_left(history.shown, before)]:
            event = history.told[place].event
            if event.type == "CompressionCompleted":
                places = self._shortened(places, place)
            elif event.type != "ContextItemRetrieved" or not self._defines_tools(event.body):
                places.append(place)
        return places

    def _defines_tools(self, body: Mapping[str, Any]) -> bool:
        return body["content"] is not None and body["content"]["digest"] in self._history.tools_digests

    def _shortened(self, places: list[int], at: int) -> list[int]:
        body = self._history.told[at].event.body
        if body["effect"] != "REAPPLIABLE" or body["method"] not in _SHORTENING or body["replacement"] is not None:
            raise LeftOut("compression-unknown")
        forgotten = set(body["forgotten"])
        kept = [place for place in places if not self._is_forgotten(place, forgotten)]
        first = next((n for n, place in enumerate(places) if self._is_forgotten(place, forgotten)), len(places))
        return [*kept[:first], *([at] if body["summary"] is not None else []), *kept[first:]]

    def _is_forgotten(self, place: int, forgotten: set[str]) -> bool:
        body = self._history.told[place].event.body
        ids = ("message_id", "inference_id", "item_id", "compression_id")
        if next(body[id] for id in ids if id in body) in forgotten:
            return True
        if any(call["tool_call_id"] in forgotten for call in body.get("tool_calls", ())):
            raise LeftOut("half-a-pair")
        return False

    # --- packs -------------------------------------------------------------------------------------------------------

    def _items(self, asked: Asked) -> list[Mapping[str, Any]]:
        if _is_of_the_decider(asked):
            raise LeftOut("own-builder")
        if asked.pack is None:
            raise LeftOut(self._lost(asked.place))
        chain = []
        pack: Pack | None = asked.pack
        while pack is not None and (self._last is None or pack is not self._last[0]):
            chain.append(pack)
            if pack.base is None and pack.body["base_pack_id"] is not None:
                raise LeftOut(self._lost(asked.place))
            pack = pack.base
        items = list(self._last[1]) if pack is not None and self._last is not None else []
        for each in reversed(chain):
            removed = set(each.body["removed"])
            items = [item for item in items if item["item_id"] not in removed]
            for item in sorted(each.body["added"], key=lambda item: int(item["position"])):
                items.insert(max(0, item["position"]), item)
        self._last = (asked.pack, items)
        return items

    def _lost(self, before: int) -> str:
        """Why something that a pack names cannot be found."""
        return "erased" if any(place < before for place in self._history.holes) else "item-unknown"

    def _add_item(self, seen: Seen, item: Mapping[str, Any], before: int) -> None:
        if item["kind"] == "TOOL_DEFS":
            return
        id = item["item_id"]
        if item["mode"] == "SUMMARY" and item["compression_id"] is not None:
            id = item["compression_id"]
        elif item["mode"] not in ("FULL", "SUMMARY"):
            raise LeftOut("item-not-whole")
        place = self._end(id, before)
        if place is None:
            raise LeftOut(self._lost(before))
        told = self._use(seen, place)
        if told.event.type in ENDS:
            seen.messages.append(chat.result(told.event.type, told.event.body, id))
        else:
            seen.messages.append(self._message(told, seen.omitted))


def _is_of_the_decider(asked: Asked) -> bool:
    """Its packs say nothing of the system message: ``own_packs`` rebuilds what it asked, where it can be."""
    content = asked.documents.get("HARNESS_BUILD")
    return content is not None and chat.is_of_decider(content)


def _tools_of_stage(asked: Asked) -> Sequence[str] | None:
    """Which tools of the catalogue the workflow gives to the stage; None where it does not say."""
    stage_id = asked.told.event.meta.get("stage_id")
    content = asked.documents.get("WORKFLOW")
    if stage_id is None or content is None or content["inline"] is None:
        return None
    return next(_named_tools(chat.text_of(content), str(stage_id).rpartition(".")[0]), None)


def _named_tools(workflow: str, stage_name: str) -> Iterator[list[str]]:
    found = chat.parsed(workflow)
    for stage in found.get("stages") or () if isinstance(found, dict) else ():
        if isinstance(stage, dict) and stage.get("name") == stage_name and isinstance(stage.get("tools"), list):
            yield [name for name in stage["tools"] if isinstance(name, str)]
