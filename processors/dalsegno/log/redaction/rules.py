"""Taking secrets out of events before they are hashed: the rules, the document that says them, and what it leaves.

    rules = Redactor([RedactionRule(name="api-key", pattern=r"sk-[A-Za-z0-9]{20,}", digest=True),
                      RedactionRule(name="password", pointer="/arguments/inline/password")])
    Publisher(..., redact=rules)

A rule has a ``pattern``, a regular expression over the texts of an event and of the contents in it, or a ``pointer``, a
JSON pointer into the event (``*`` stands for any member or item; behind a content's ``inline``, and behind a text, it
goes on in the JSON there). What a rule finds is replaced by ``[redacted:<name>]`` and, if it has 6 characters or more,
wherever else it stands in the event. ``meta.redactions`` says where and by which rule.

A digest of what was taken out is a means to test guesses against, at billions a second. It is kept only where a rule
says that its values are random (``digest``: no look at a value can tell), and the value is long and varied enough to
be: an estimate of at least 96 bits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec
import rfc8785

from dalsegno.errors import Usage
from dalsegno.log.redaction.event import redact_event
from dalsegno.log.redaction.json_spans import DEPTH_MAX
from dalsegno.log.redaction.notes import Compiled
from dalsegno.log.redaction.texts import TextRedactor
from dalsegno.model import events
from dalsegno.model.catalogue import CATALOGUE
from dalsegno.model.events import ConfigPinned
from dalsegno.model.naming import likely
from dalsegno.storage.blobs import blob

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_VERSION = 1


class RedactionRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One rule. ``event``: of this type of event only. ``digest``: the values are random, such as generated keys."""

    name: str
    pattern: str | None = None
    pointer: str | None = None
    event: str | None = None
    digest: bool = False


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    redaction: int
    rules: list[RedactionRule]


class Redactor:
    """Rules, ready to be applied. Raises Usage naming the rule that is none."""

    def __init__(self, rules: Sequence[RedactionRule]) -> None:
        self.rules = tuple(rules)
        self._compiled = [_compiled(rule) for rule in self.rules]
        names = [rule.name for rule in self.rules]
        self._markers = re.compile(rf"(\[redacted:(?:{'|'.join(map(re.escape, names))})\])")
        for name in names:
            if names.count(name) > 1:
                raise _wrong(name, "there twice", "one rule of a name")

    @classmethod
    def load(cls, document: str | bytes) -> Redactor:
        """From a document: ``{"redaction": 1, "rules": [{"name": ..., "pattern": ...}, ...]}``."""
        try:
            found = msgspec.json.decode(document, type=_Document)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Usage(f"no redaction rules: {error}", wanted='{"redaction": 1, "rules": [...]}') from error
        if found.redaction != _VERSION:
            raise Usage(f"redaction rules of version {found.redaction}", wanted=f"version {_VERSION}")
        return cls(found.rules)

    @cached_property
    def document(self) -> bytes:
        """What ``load`` takes, as canonical JSON: equal rules have equal bytes. Patterns stand in it, so they must
        describe secrets, not be them."""
        return rfc8785.dumps({"redaction": _VERSION, "rules": [msgspec.to_builtins(rule) for rule in self.rules]})

    def pinned(self, *, name: str = "redaction", version: str = "1") -> ConfigPinned:
        """The event that pins these rules in a session."""
        content = blob(self.document, "application/json")
        return ConfigPinned(
            kind="REDACTION", name=name, version=version, digest=content.digest, content=content, effective="NOW"
        )

    def clean(self, text: str) -> str:
        """A text for people without what the patterns find."""
        return TextRedactor(self._compiled, self._markers).plain(text, ())

    def apply(
        self, type_: str, schema: Mapping[str, Any], record: Mapping[str, Any], digests: dict[bytes, bytes]
    ) -> dict[str, Any]:
        """The record of an event (with ``meta``) without what the rules take out. Pure, but for ``digests``: it learns
        the new digest of each content that changed, and every digest in the record follows it.

        Raises InvalidEvent where a content is named by uri and so cannot be looked at, where a rule takes out what the
        event cannot be without, and where a found secret stands in an id.
        """
        rules = [rule for rule in self._compiled if rule.event in (None, type_)]
        return redact_event(rules, self._markers, schema, record, digests)


def _compiled(rule: RedactionRule) -> Compiled:
    if not _NAME.fullmatch(rule.name):
        raise _wrong(rule.name, "a name that cannot stand in a marker", "a-z, then at most 39 of a-z, 0-9, _ and -")
    if (rule.pattern is None) == (rule.pointer is None):
        raise _wrong(rule.name, "neither or both of pattern and pointer", "one of them")
    _types(rule)
    return Compiled(rule.name, _pattern(rule), _pointer(rule), rule.event, rule.digest)


def _pattern(rule: RedactionRule) -> re.Pattern[str] | None:
    if rule.pattern is None:
        return None
    try:
        pattern = re.compile(rule.pattern)
    except re.error as error:
        raise _wrong(rule.name, f"no regular expression: {error}", "one of Python's re") from error
    if pattern.search("") is not None:
        raise _wrong(rule.name, "a pattern that finds nothing everywhere", "one that needs at least one character")
    return pattern


def _pointer(rule: RedactionRule) -> tuple[str, ...] | None:
    if rule.pointer is None:
        return None
    tokens = tuple(token.replace("~1", "/").replace("~0", "~") for token in rule.pointer.split("/"))
    fields = {name for type_ in _types(rule) for name in getattr(events, type_).__struct_fields__}
    if not 2 <= len(tokens) < DEPTH_MAX or tokens[0] or tokens[1] in ("", "meta", "*"):
        raise _wrong(rule.name, f"the pointer {rule.pointer!r}", "/<field of the event>/..., outside of meta")
    if tokens[1] not in fields:
        where = rule.event or "any event"
        raise _wrong(rule.name, f"a pointer to {tokens[1]!r}, no field of {where}", likely(tokens[1], fields, where))
    return tokens[1:]


def _types(rule: RedactionRule) -> Collection[str]:
    if rule.event is None:
        return CATALOGUE
    if rule.event not in CATALOGUE:
        found = f"of the event {rule.event!r}, which there is not"
        raise _wrong(rule.name, found, likely(rule.event, CATALOGUE, "one of 'dalsegno schema list'"))
    return [rule.event]


def _wrong(name: str, found: str, wanted: str) -> Usage:
    return Usage(f"redaction rule {name[:60]!r} is {found}", wanted=wanted, todo="correct the rule", rule=name)
