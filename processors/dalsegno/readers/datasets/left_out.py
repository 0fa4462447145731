"""Why a row is not in a data set. Pure."""

from __future__ import annotations

from typing import Final

REASONS: Final = {
    "no-answer": "the model was asked and never answered",
    "cut-off": "the answer was cut off",
    "empty-answer": "the answer has neither text nor a call",
    "not-requested": "nothing says what the answer was given for",
    "erased": "an event that the model saw, or may have seen, was taken out of the history",
    "content-missing": "a content is not in the store, or is not the one that the event names",
    "content-not-text": "a content is no UTF-8 text",
    "media": "the model saw or made an image or the like, which these rows cannot hold",
    "not-redactable": "the redaction rules find a secret where it cannot be taken out, such as in an id",
    "call-without-result": "the model was asked again while a call of it had no result",
    "half-a-pair": "the context pack holds a call without its result, or a result without its call",
    "own-builder": "dalsegno itself asked, and what it sent cannot be rebuilt to the digest that it recorded",
    "item-unknown": "the context pack names an item that no event gave",
    "item-not-whole": "the context pack holds an item in a form that is not recorded",
    "item-not-text": "the model saw something that is neither a text nor a message",
    "compression-unknown": "the history was compressed, and what was left of it is not recorded in a form known here",
    "tainted": "recorded results were served that do not fit exactly (--allow-tainted)",
    "served-again": "the answer is its parent session's, served again in a fork",
    "duplicate": "a row of the same context is there already (--dedupe)",
    "no-verdict": "nobody judged the answer, or neither accepted nor rejected it (--pairs verdict)",
    "no-counterpart": "no answer with the same context and the other verdict, or by the other run, is among these rows",
    "equal-answers": "both answers of the pair are the same",
}
"""Every reason with what it means; the names stand in cards."""


class LeftOut(Exception):
    """A row cannot be made; ``reason`` is one of ``REASONS``. Caught where rows are made and counted."""

    def __init__(self, reason: str) -> None:
        assert reason in REASONS, reason
        super().__init__(reason)
        self.reason = reason
