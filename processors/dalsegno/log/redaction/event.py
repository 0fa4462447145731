"""Applying redaction rules to the record of one event: found, replaced, noted. Pure.

Two walks: the first takes out what the rules find, the second what was found wherever else it stands. Only what
changes is written anew.

Ids and the envelope are not searched by patterns, which would hit random ids by chance; but an event in whose ids a
found secret stands is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from dalsegno.log.encode import refuse
from dalsegno.log.redaction.json_spans import Path, spans
from dalsegno.log.redaction.notes import Compiled, Found, notes
from dalsegno.log.redaction.texts import TextRedactor, said
from dalsegno.storage.blobs import SCHEME

ELSEWHERE_MIN_CHARACTERS: Final = 6
"""Shorter values are taken out where they were found only: looked for everywhere, a "7" would destroy everything."""
ELSEWHERE_MAX_VALUES: Final = 1_000
"""Of one event; the search costs as much as there are values."""
_IDS = frozenset({"id", "idempotency_key", "open_ops", "depends_on", "scope", "forgotten", "removed", "rule_ids"})


def redact_event(
    rules: Sequence[Compiled],
    markers: re.Pattern[str],
    schema: Mapping[str, Any],
    record: Mapping[str, Any],
    digests: dict[bytes, bytes],
) -> dict[str, Any]:
    """See ``Redactor.apply``. ``markers``: finds what earlier redactions left, which is not searched."""
    body = {name: value for name, value in record.items() if name != "meta"}
    named: dict[str, Any] = {}
    name_types(schema, named)
    first = _Walk(rules, markers, named)
    body = first.record(schema, body, ())
    second = _Walk(_literals(first.found), markers, named, trusted=True)
    if second.rules:
        body = second.record(schema, body, ())
    clean = TextRedactor([*rules, *second.rules], markers).plain
    found = [*first.found, *second.found]
    meta = dict(record["meta"])
    _check_ids(second.rules, {"meta": meta, **body})
    meta["redactions"] = [*meta["redactions"], *notes(found, clean)]
    digests.update({old: second.digests.get(new, new) for old, new in first.digests.items()})
    digests.update({old: new for old, new in second.digests.items() if old not in first.digests.values()})
    return _with_digests({"meta": meta, **body}, digests) if digests else {"meta": meta, **body}


class _Walk(TextRedactor):
    """One way through an event, whose schema has no union but with null (a test walks through every type).

    ``named``: the types that the schema names. ``trusted``: the event was walked before.
    """

    def __init__(
        self, rules: Sequence[Compiled], markers: re.Pattern[str], named: Mapping[str, Any], *, trusted: bool = False
    ) -> None:
        super().__init__(rules, markers)
        self._named = named
        self._trusted = trusted
        self.digests: dict[bytes, bytes] = {}

    def record(self, schema: Mapping[str, Any], value: Mapping[str, Any], path: Path) -> dict[str, Any]:
        types = {field["name"]: field["type"] for field in schema["fields"]}
        return {
            name: self._field(types[name], each, (*path, name)) if name in types else each
            for name, each in value.items()
        }

    def _field(self, schema: Any, value: Any, path: Path) -> Any:
        rule = self.pointed(path)
        if value is None:
            return None
        nullable = isinstance(schema, list) and "null" in schema
        (branch,) = [each for each in schema if each != "null"] if isinstance(schema, list) else [schema]
        kind = self._resolve(branch)
        if rule is not None:
            return self._take_field(rule, kind, nullable, value, path)
        if _is_content(kind) and isinstance(value, Mapping):
            return self._content(value, path)
        if kind == "string" and isinstance(value, str):
            return value if is_id(path) else self.text(value, path)
        if isinstance(kind, dict) and kind["type"] == "record" and isinstance(value, Mapping):
            return self.record(kind, value, path)
        if isinstance(kind, dict) and kind["type"] == "array" and isinstance(value, list | tuple):
            return [self._field(kind["items"], each, (*path, str(index))) for index, each in enumerate(value)]
        return value

    def _take_field(self, rule: Compiled, kind: Any, nullable: bool, value: Any, path: Path) -> Any:
        if _is_content(kind) and isinstance(value, Mapping) and _inline(value) is not None:
            return self._take_content(rule, value, path)
        if kind == "string" and isinstance(value, str) and not is_id(path):
            self.found.append(Found(rule, path, value))
            return rule.marker
        self.found += [Found(rule, path, each) for each in ("", *self._texts_in(kind, value))]
        if isinstance(value, list | tuple):
            return []
        if not nullable:
            refuse(
                ".".join(path),
                f"taken out by the redaction rule {rule.name}, and the event cannot be without it",
                "a rule for what may be missing",
            )
        return None

    def _texts_in(self, kind: Any, value: Any) -> Iterator[str]:
        """The texts of a value that is taken out as one, without the names that a schema gives."""
        if kind == "string" and isinstance(value, str):
            yield value
        elif _is_content(kind) and isinstance(value, Mapping):
            text = _as_text(_inline(value) or b"")
            yield from (text, *said(text, spans(text) or []))
        elif isinstance(kind, dict) and kind["type"] == "record" and isinstance(value, Mapping):
            for field in kind["fields"]:
                types = field["type"] if isinstance(field["type"], list) else [field["type"]]
                for each in types:
                    yield from self._texts_in(self._resolve(each), value.get(field["name"]))
        elif isinstance(kind, dict) and kind["type"] == "array" and isinstance(value, list | tuple):
            for item in value:
                yield from self._texts_in(self._resolve(kind["items"]), item)

    def _content(self, blob: Mapping[str, Any], path: Path) -> dict[str, Any]:
        fields = dict(blob)
        for name in ("media_type", "uri"):
            if isinstance(text := blob.get(name), str) and not text.startswith(SCHEME):
                fields[name] = self.text(text, (*path, name))
        inline = _inline(blob)
        if inline is None:
            if blob.get("uri") is not None and not self._trusted:
                refuse(
                    ".".join(path),
                    "a content by uri, which the redaction rules cannot look at",
                    "its bytes: blob(content); the session redacts and stores them",
                )
            return fields
        rule = self.pointed((*path, "inline"))
        if rule is not None:
            return self._take_content(rule, blob, (*path, "inline"))
        text = _as_text(inline)
        changed = self.text(text, (*path, "inline"))
        return fields if changed == text else self._written(fields, inline, changed.encode("utf-8", "surrogateescape"))

    def _take_content(self, rule: Compiled, blob: Mapping[str, Any], path: Path) -> dict[str, Any]:
        inline = _inline(blob) or b""
        text = _as_text(inline)
        self.found.append(Found(rule, path, text))
        self.found += [Found(rule, path, each) for each in said(text, spans(text) or [])]
        return self._written({**blob, "media_type": "text/plain; charset=utf-8"}, inline, rule.marker.encode())

    def _written(self, blob: Mapping[str, Any], before: bytes, content: bytes) -> dict[str, Any]:
        digest = sha256(content).digest()
        self.digests[sha256(before).digest()] = digest
        return {**blob, "digest": digest, "size": len(content), "inline": content}

    def _resolve(self, schema: Any) -> Any:
        """The type itself: a name of a primitive, or the record, enum, fixed or array."""
        if isinstance(schema, str):
            return self._named.get(schema, schema)
        return schema if schema["type"] in ("record", "enum", "fixed", "array", "map") else schema["type"]


# --- what was found ---------------------------------------------------------------------------------------------------


def _literals(found: Sequence[Found]) -> list[Compiled]:
    """Rules that find the found values themselves, wherever they stand; of a rule, the longest first."""
    values: dict[Compiled, set[str]] = {}
    for each in found[:ELSEWHERE_MAX_VALUES]:
        if len(each.value) >= ELSEWHERE_MIN_CHARACTERS:
            values.setdefault(each.rule, set()).add(each.value)
    return [
        rule._replace(pointer=None, pattern=re.compile("|".join(map(re.escape, sorted(those, key=_longest_first)))))
        for rule, those in values.items()
    ]


def _longest_first(value: str) -> tuple[int, str]:
    return (-len(value), value)


def _check_ids(literals: Sequence[Compiled], record: Mapping[str, Any]) -> None:
    for path, text in _texts(record, ()):
        if path[0] != "meta" and not is_id(path):
            continue
        for rule in literals:
            if rule.pattern is not None and rule.pattern.search(text):
                refuse(
                    ".".join(path),
                    f"an id or a name with what the redaction rule {rule.name} took out of this event",
                    "ids without secrets",
                )


def _with_digests(value: Any, digests: Mapping[bytes, bytes]) -> Any:
    """The digests of what was redacted follow it. A content that is there has the digest that it has."""
    if isinstance(value, bytes):
        return digests.get(value, value)
    if isinstance(value, Mapping) and value.get("inline") is None:
        return {key: _with_digests(each, digests) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_digests(each, digests) for each in value]
    return value


def _is_content(kind: Any) -> bool:
    return isinstance(kind, dict) and kind["type"] == "record" and kind["name"].endswith(".Blob")


def _inline(blob: Mapping[str, Any]) -> bytes | None:
    found = blob.get("inline")
    return bytes(found) if isinstance(found, bytes | bytearray | memoryview) else None


def _as_text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Every text in a value, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _texts(each, (*path, str(name)))
    elif isinstance(value, list | tuple):
        for index, each in enumerate(value):
            yield from _texts(each, (*path, str(index)))


def is_id(path: Path) -> bool:
    """Whether a field of an event holds ids, by its name: of one, or of a list."""
    name = path[-2] if path[-1].isdecimal() and len(path) > 1 else path[-1]
    return name in _IDS or name.endswith(("_id", "_session"))


def name_types(schema: Any, named: dict[str, Any]) -> None:
    """All named types of a closed schema."""
    if isinstance(schema, list):
        for branch in schema:
            name_types(branch, named)
    elif isinstance(schema, dict):
        if "name" in schema and schema["type"] in ("record", "enum", "fixed"):
            named[schema["name"]] = schema
        for field in schema.get("fields", ()):
            name_types(field["type"], named)
        for below in ("items", "values"):
            if below in schema:
                name_types(schema[below], named)
        if isinstance(schema["type"], dict | list):
            name_types(schema["type"], named)
