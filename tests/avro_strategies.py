"""Hypothesis strategies of records, made from closed Avro schemas. Shares no code with the codec."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from hypothesis import strategies as st

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
INTS = {"int": 31, "long": 63}
BLOB = "dalsegno.event.v1.Blob"


def records(schema: Any, text: st.SearchStrategy[str] = TEXT) -> st.SearchStrategy[Any]:
    """Values that the schema describes exactly, envelope rules of events included."""
    named: dict[str, st.SearchStrategy[Any]] = {}

    def of(part: Any) -> st.SearchStrategy[Any]:
        if isinstance(part, list):
            return st.one_of([of(branch) for branch in part])
        if isinstance(part, str):
            return text if part == "string" else named[part] if part in named else primitive(part)
        kind = part["type"]
        if kind == "array":
            return st.lists(of(part["items"]), max_size=2)
        if kind == "record":
            made = st.fixed_dictionaries({field["name"]: of(field["type"]) for field in part["fields"]})
            named[part["name"]] = made.map(consistent_blob) if part["name"] == BLOB else made
            return named[part["name"]]
        if kind == "enum":
            named[part["name"]] = st.sampled_from(part["symbols"])
            return named[part["name"]]
        if kind == "fixed":
            named[part["name"]] = st.binary(min_size=part["size"], max_size=part["size"])
            return named[part["name"]]
        return of(kind)

    made = of(schema)
    if schema["fields"][0]["name"] == "meta":
        return made.map(lambda record: placed(record, schema))
    return made


def primitive(kind: str) -> st.SearchStrategy[Any]:
    if kind in INTS:
        return st.integers(-(2 ** INTS[kind]), 2 ** INTS[kind] - 1)
    return {"null": st.none(), "boolean": st.booleans(), "string": TEXT, "bytes": st.binary(max_size=12)}[kind]


def consistent_blob(blob: dict[str, Any]) -> dict[str, Any]:
    if blob["inline"] is None:
        return {**blob, "size": abs(blob["size"] // 2)}
    return {**blob, "size": len(blob["inline"]), "digest": sha256(blob["inline"]).digest()}


def placed(record: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Give the envelope a place that an event can have."""
    meta = dict(record["meta"])
    digest = (meta["prev_hash"] or b"") or sha256(str(meta["seq"]).encode()).digest()
    seq = 0 if schema.get("class") == "C" else 1 + abs(meta["seq"] // 4)
    meta.update(
        session_id="s-" + sha256(meta["session_id"].encode()).hexdigest()[:8],
        seq=seq,
        epoch=abs(meta["epoch"] // 2),
        prev_hash=None if seq <= 1 else digest,
        ignorable=meta["ignorable"] or bool(schema.get("ignorable")),
    )
    return {**record, "meta": meta}
