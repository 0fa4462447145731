"""A session's events, sorted into what rows are made of. Pure.

Places are positions in the list of all events that count: those of ancestors first, then the session's own. Seqs begin
anew in a fork, places do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from dalsegno.model.lifecycle import config_set_digest
from dalsegno.model.records import Event


class Told(NamedTuple):
    """An event as rows may use it. ``own``: not of an ancestor. ``redacted``: rules took something out of it.
    ``problem``: a reason of ``left_out`` why nothing of it can be used. ``shown``: of a request by dalsegno itself."""

    event: Event
    own: bool = True
    redacted: bool = False
    problem: str | None = None
    shown: Shown | None = None


class Shown(NamedTuple):
    """What a model was sent. ``used``: the events that gave the items. ``problem``: why it is not known."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    used: list[Told]
    problem: str | None = None


class Pack(NamedTuple):
    """A ``ContextPackBuilt``; ``base`` is the pack that had the id when this one was built, or None if none had."""

    body: Mapping[str, Any]
    base: Pack | None


class Asked(NamedTuple):
    """The newest request of an inference, and what was in force when it was made."""

    place: int
    told: Told
    pack: Pack | None
    configuration: bytes
    documents: Mapping[str, Mapping[str, Any] | None]
    """Contents by kind."""


class Answer(NamedTuple):
    """An answer with its request; ``place`` is where it came. Without an event: there is none (yet)."""

    asked: Asked | None
    place: int
    told: Told | None
    inference_id: str


ENDS: Final = frozenset({"ToolReceiptRecorded", "ToolCallFailed", "ToolCallRejected", "SubSessionEnded"})
SHOWN: Final = frozenset({"MessageReceived", "InferenceCompleted", "ContextItemRetrieved", "CompressionCompleted"})
"""What a transcript is made of, beside the results that belong to the answers."""
SEEN: Final = SHOWN | ENDS
"""Types of events whose loss leaves a hole in what a model saw."""


class History:
    """``answers`` are those of purpose AGENT, in order, also the missing ones; all else is found by id."""

    def __init__(self, told: Iterable[Told]) -> None:
        self.told: list[Told] = []
        self.shown: list[int] = []
        """Places of the types of ``SHOWN``; an answer only if it is an agent's."""
        self.holes: list[int] = []
        """Places where an event of ``SEEN`` was taken out of the history."""
        self.aside: list[tuple[int, str]] = []
        """What a model may have been told, though nothing says in which words: place, and what it is."""
        self.tools_digests: set[bytes] = set()
        self.items: dict[str, list[int]] = {}
        """Item id -> places of the events that gave it."""
        self.requested: dict[str, Told] = {}
        """Tool call id -> its newest request."""
        self.ancestors: list[str] = []
        """Of a fork: its parent, that one's parent, and so on."""
        self.answers: list[Answer] = []
        self.contents: dict[bytes, int] = {}
        """Digest of a retrieved content -> its place; for definitions of tools, which requests name so."""
        self.created: Told | None = None
        self.forked: Told | None = None
        self.validations: list[Told] = []
        self.feedback: list[Told] = []
        self._asked: dict[str, Asked] = {}
        self._waiting: dict[str, int] = {}
        self._packs: dict[str, Pack] = {}
        self._pins: dict[tuple[str, str], bytes | None] = {}
        self._pending: list[Told] = []
        self._documents: dict[str, Mapping[str, Any] | None] = {}
        for each in told:
            self._take(each)

    def _take(self, told: Told) -> None:
        place, type_ = len(self.told), told.event.type
        self.told.append(told)
        if told.event.stub is not None:
            if type_ in SEEN:
                self.holes.append(place)
            return
        take = _TAKES.get(type_)
        if take is not None:
            take(self, place, told)
        if type_ in ENDS and isinstance(id := told.event.body["tool_call_id"], str):
            self._give(id, place)

    def _give(self, item_id: str, place: int) -> None:
        self.items.setdefault(item_id, []).append(place)

    # --- one type each -----------------------------------------------------------------------------------------------

    def _session(self, _: int, told: Told) -> None:
        self.created = told

    def _fork(self, _: int, told: Told) -> None:
        self.forked = told
        self.ancestors.insert(0, told.event.body["parent_session"])

    def _pin(self, _: int, told: Told) -> None:
        if told.event.body["effective"] in ("NEXT_TURN", "NEXT_STAGE"):
            self._pending.append(told)
        else:
            self._in_force(told)

    def _in_force(self, told: Told) -> None:
        body = told.event.body
        self._pins[(body["kind"], body["name"])] = body["digest"]
        content = None if told.problem is not None else body["content"]
        self._documents = {**self._documents, body["kind"]: content}

    def _boundary(self, _: int, told: Told) -> None:
        due = {"NEXT_TURN"} if told.event.type == "TurnStarted" else {"NEXT_STAGE"}
        for pin in [pin for pin in self._pending if pin.event.body["effective"] in due]:
            self._pending.remove(pin)
            self._in_force(pin)

    def _configuration(self) -> bytes:
        return config_set_digest(
            [f"{kind}:{name}:{'-' if digest is None else digest.hex()}" for (kind, name), digest in self._pins.items()]
        )

    def _message(self, place: int, told: Told) -> None:
        self.shown.append(place)
        self._give(told.event.body["message_id"], place)

    def _item(self, place: int, told: Told) -> None:
        self.shown.append(place)
        self._give(told.event.body["item_id"], place)
        if (content := told.event.body["content"]) is not None:
            self.contents[content["digest"]] = place

    def _compression(self, place: int, told: Told) -> None:
        self.shown.append(place)
        self._give(told.event.body["compression_id"], place)

    def _pack(self, _: int, told: Told) -> None:
        body = told.event.body
        base = None if body["base_pack_id"] is None else self._packs.get(body["base_pack_id"])
        self._packs[body["pack_id"]] = Pack(body, base)
        self._defined(body["tools_digest"])

    def _defined(self, digest: bytes | None) -> None:
        if digest is not None:
            self.tools_digests.add(digest)

    def _ask(self, place: int, told: Told) -> None:
        body = told.event.body
        pack = None if body["pack_id"] is None else self._packs.get(body["pack_id"])
        asked = Asked(place, told, pack, self._configuration(), self._documents)
        id = body["inference_id"]
        self._asked[id] = asked
        self._defined(body["tools_digest"])
        if body["purpose"] == "AGENT":
            if id not in self._waiting:
                self._waiting[id] = len(self.answers)
                self.answers.append(Answer(asked, place, None, id))
            else:
                at = self._waiting[id]
                self.answers[at] = Answer(asked, place, None, id)

    def _answer(self, place: int, told: Told) -> None:
        id = told.event.body["inference_id"]
        asked = self._asked.get(id)
        answer = Answer(asked, place, told, id)
        if asked is None:
            self.answers.append(answer)
        elif asked.told.event.body["purpose"] != "AGENT":
            return
        elif (at := self._waiting.pop(id, None)) is not None:
            self.answers[at] = answer
        else:
            self.answers.append(answer)
        self.shown.append(place)
        self._give(id, place)

    def _call(self, place: int, told: Told) -> None:
        self.requested[told.event.body["tool_call_id"]] = told
        if told.event.body["inference_id"] is None:
            self.aside.append((place, "calls of no model"))

    def _input(self, place: int, told: Told) -> None:
        self.aside.append((place, "inputs"))
        self._give(told.event.body["request_id"], place)

    def _judged(self, _: int, told: Told) -> None:
        self.validations.append(told)

    def _opinion(self, _: int, told: Told) -> None:
        self.feedback.append(told)


_TAKES: Final[Mapping[str, Callable[[History, int, Told], None]]] = {
    "SessionCreated": History._session,
    "SessionForked": History._fork,
    "ConfigPinned": History._pin,
    "TurnStarted": History._boundary,
    "StageScheduled": History._boundary,
    "MessageReceived": History._message,
    "ContextItemRetrieved": History._item,
    "CompressionCompleted": History._compression,
    "ContextPackBuilt": History._pack,
    "InferenceRequested": History._ask,
    "InferenceCompleted": History._answer,
    "ToolCallRequested": History._call,
    "InputProvided": History._input,
    "ValidationRequested": History._judged,
    "ValidationDecided": History._judged,
    "ValidationAmended": History._judged,
    "FeedbackRecorded": History._opinion,
}
