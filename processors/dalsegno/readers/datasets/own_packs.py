"""What dalsegno's own decider showed a model: rebuilt from the events before, and checked by the request's digest.

Such a pack names rendered items, and its system message follows from the pinned documents, so the decider's own fold
and its own way to write a request out are used, not those for packs of others.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

from dalsegno.errors import BlobDamaged, InvalidDocument, NotReconstructable
from dalsegno.harness.past import StoredContents
from dalsegno.model.lifecycle.state import bounded
from dalsegno.model.records import Event
from dalsegno.orchestration.canonical import canonical
from dalsegno.orchestration.context import SYSTEM, TOOLS, request_digest
from dalsegno.orchestration.decider import World, configuration_in_force
from dalsegno.orchestration.decider.packs import Request, request
from dalsegno.projections.base import RowId
from dalsegno.projections.decider.fold import FOLDS, fold_event
from dalsegno.projections.decider.rows import ITEM, PACKED, Item, Packed
from dalsegno.projections.decider.table import MemoryRows
from dalsegno.readers.datasets import chat
from dalsegno.readers.datasets.chat import Message
from dalsegno.readers.datasets.history import Shown, Told
from dalsegno.storage.blobs import Blobs

_BEFORE_START: Final = frozenset(
    {"SessionCreated", "SessionForked", "SessionRecovered", "ConfigPinned", "NoteRecorded", "MessageReceived"}
)
_FOLDED: Final = frozenset({"SessionCreated", *FOLDS})
_LOST: Final = "own-builder"


class OwnPacks:
    """Along one session. ``prepare``: an event as it may be used, contents outside of it left in ``blobs``. Under
    redaction these are not used, for no rule went over them; and no request can be checked by its digest."""

    def __init__(self, prepare: Callable[[Event], Told], blobs: Blobs, *, redacting: bool) -> None:
        self._prepare, self._redacting = prepare, redacting
        self._rows = _Rows()
        self._contents = StoredContents(None if redacting else blobs)
        self._is_own: bool | None = None
        self._begun: list[Event] = []
        """Events until it is known whose session it is."""
        self._problem: str | None = None
        self._redacted = False
        self._messages: dict[bytes, Message] = {}
        """By digest: requests repeat what was said before."""

    def take(self, event: Event) -> Shown | None:
        """What the model is shown, at an agent's request in a session that dalsegno decides."""
        if self._is_own is None:
            self._begun.append(event)
            if _names_decider(event):
                self._is_own = True
                for each in self._begun:
                    self._fold(each)
                self._begun = []
            elif event.type not in _BEFORE_START:
                self._is_own, self._begun = False, []
            return None
        if not self._is_own:
            return None
        self._fold(event)
        asks = event.type == "InferenceRequested" and event.stub is None and event.body["purpose"] == "AGENT"
        return self._shown(event) if asks else None

    def _fold(self, event: Event) -> None:
        if event.type not in _FOLDED:
            return
        if event.stub is not None:
            self._problem = self._problem or "erased"
            return
        told = self._prepare(event)
        if told.problem is not None:
            self._problem = self._problem or told.problem
            return
        self._redacted = self._redacted or told.redacted
        self._rows.taken = told
        fold_event(self._rows, told.event, self._contents.keep)

    def _shown(self, event: Event) -> Shown:
        try:
            made = self._request(event)
            proved = _digest(made) == event.body["request_digest"]
        except (NotReconstructable, InvalidDocument, BlobDamaged, ValueError):  # ValueError: of what is no JSON
            return Shown([], [], [], self._problem or _LOST)
        if self._problem is not None if self._redacting else not proved:
            return Shown([], [], [], self._problem or _LOST)
        messages = [self._messages.setdefault(sha256(canonical(each)).digest(), each) for each in made.messages]
        packed = self._rows.family(PACKED)
        used = [told._replace(redacted=self._redacted) for id, told in self._rows.origins.items() if id in packed]
        return Shown(messages, made.tools, used)

    def _request(self, event: Event) -> Request:
        if self._rows.head_row is None:
            raise NotReconstructable("the session's first event is missing")
        if self._redacting:
            self._follow_redaction()
        world = World(self._rows, configuration_in_force(self._rows, self._contents), self._contents)
        return request(world, bounded(event.body["inference_id"]))

    def _follow_redaction(self) -> None:
        """A pack names its items by digests from before; what they are now has others."""
        for id, packed in self._rows.family(PACKED).items():
            if id in (SYSTEM, TOOLS):
                continue
            item: Item | None = self._rows.get((ITEM, id))
            if item is None:
                raise NotReconstructable(f"the pack's item {id} is missing")
            self._rows.put((PACKED, id), Packed(item.digest, packed.mode))


class _Rows(MemoryRows):
    """``origins``: the event that gave an item, by its id; ``taken`` is the one that is folded."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: Told | None = None
        self.origins: dict[str, Told] = {}

    def put(self, row_id: RowId, row: Any) -> None:
        super().put(row_id, row)
        if isinstance(row, Item) and self.taken is not None:
            self.origins.setdefault(row.id, self.taken)


def _names_decider(event: Event) -> bool:
    body = event.body
    if event.type != "ConfigPinned" or event.stub is not None or body["kind"] != "HARNESS_BUILD":
        return False
    content = body["content"]
    return content is not None and chat.is_of_decider(content)


def _digest(made: Request) -> bytes:
    """As the decider recorded it."""
    system, *items = (canonical(each) for each in made.messages)
    digests = [sha256(each).digest() for each in items]
    tools = [canonical(each) for each in made.tools]
    return request_digest("AGENT", system, tools, digests, made.agent.model, made.agent.params)
