"""The test vectors, checked by a producer that shares no code with dalsegno, only schemas/README.md and the schemas.

It stands for a producer in another language: its own canonical form, fingerprints, Avro encoder, key and partition.
"""

from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from dalsegno.log import codec
from dalsegno.log.schema_set import SchemaSet, schema_folder
from dalsegno.model.records import Event, SetAside, Tombstone
from dalsegno.testing import memory_publisher

FOLDER = schema_folder()
VECTORS = json.loads((FOLDER / "vectors.json").read_text("utf-8"))
PRIMITIVES = {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}


# --- the other producer -----------------------------------------------------------------------------------------------


def named_types() -> dict[str, Any]:
    files = [*FOLDER.glob("types/*.avsc"), *FOLDER.glob("events/*.avsc")]
    found = [json.loads(path.read_text("utf-8")) for path in files]
    return {f"{schema['namespace']}.{schema['name']}": schema for schema in found}


NAMED = named_types()


def canonical(schema: Any, space: str, seen: set[str]) -> Any:
    """Avro's parsing canonical form as data, shared types written out where they are first used."""
    if isinstance(schema, list):
        return [canonical(branch, space, seen) for branch in schema]
    if isinstance(schema, str):
        if schema in PRIMITIVES:
            return schema
        full = schema if "." in schema else f"{space}.{schema}"
        return full if full in seen else canonical(NAMED[full], space, seen)
    kind = schema["type"]
    if kind == "array":
        return {"type": "array", "items": canonical(schema["items"], space, seen)}
    if kind not in ("record", "enum", "fixed"):
        return kind
    space = schema.get("namespace", space)
    full = f"{space}.{schema['name']}"
    seen.add(full)
    if kind == "enum":
        return {"name": full, "type": kind, "symbols": schema["symbols"]}
    if kind == "fixed":
        return {"name": full, "type": kind, "size": schema["size"]}
    fields = [{"name": f["name"], "type": canonical(f["type"], space, seen)} for f in schema["fields"]]
    return {"name": full, "type": kind, "fields": fields}


def crc64(data: bytes) -> bytes:
    empty = 0xC15D213AA4D7A795
    crc = empty
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (empty * (crc & 1))
    return crc.to_bytes(8, "little")


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def defined(schema: Any) -> dict[str, Any]:
    """The named types that a canonical schema defines."""
    if isinstance(schema, list):
        return {name: found for branch in schema for name, found in defined(branch).items()}
    if not isinstance(schema, dict):
        return {}
    inner = [schema.get("items"), *(field["type"] for field in schema.get("fields", ()))]
    return {**({schema["name"]: schema} if "name" in schema else {}), **defined(inner)}


def avro(schema: Any, value: Any, named: dict[str, Any]) -> bytes:
    """One value by a canonical schema; bytes come as hex."""
    if isinstance(schema, list):
        branch = 0 if value is None else 1
        return varint(branch) + avro(schema[branch], value, named)
    if isinstance(schema, str) and schema in named:
        schema = named[schema]
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        assert set(value) == {field["name"] for field in schema["fields"]}
        return b"".join(avro(field["type"], value[field["name"]], named) for field in schema["fields"])
    if kind == "array":
        items = b"".join(avro(schema["items"], item, named) for item in value)
        return (varint(len(value)) + items if value else b"") + b"\x00"
    if kind == "enum":
        return varint(schema["symbols"].index(value))
    if kind == "fixed":
        return bytes.fromhex(value)
    if kind in ("string", "bytes"):
        raw = value.encode() if kind == "string" else bytes.fromhex(value)
        return varint(len(raw)) + raw
    return {"null": lambda _: b"", "boolean": lambda v: bytes([v]), "int": varint, "long": varint}[kind](value)


def murmur2(data: bytes) -> int:
    m, h = 0x5BD1E995, 0x9747B28C ^ len(data)
    words = len(data) // 4
    for i in range(words):
        k = int.from_bytes(data[4 * i : 4 * i + 4], "little") * m & 0xFFFFFFFF
        h = (h * m & 0xFFFFFFFF) ^ ((k ^ k >> 24) * m & 0xFFFFFFFF)
    if len(data) % 4:
        h = (h ^ int.from_bytes(data[4 * words :], "little")) * m & 0xFFFFFFFF
    h = (h ^ h >> 13) * m & 0xFFFFFFFF
    return h ^ h >> 15


def home_of(session_id: str, partitions: int) -> int:
    return (murmur2(session_id.partition("~")[0].encode()) & 0x7FFFFFFF) % partitions


# --- the checks -------------------------------------------------------------------------------------------------------


def test_partitions() -> None:
    for vector in VECTORS["partitions"]:
        assert home_of(vector["session_id"], vector["partitions"]) == vector["partition"]


def test_schema_fingerprints_of_every_event_type() -> None:
    listed = {vector["name"]: vector for vector in VECTORS["schemas"]}
    schemas = SchemaSet.load()
    for name, schema in NAMED.items():
        if schema["type"] != "record" or schema["fields"][0]["name"] != "meta":
            continue
        form = json.dumps(canonical(schema, "", set()), separators=(",", ":"), ensure_ascii=False)
        writer = schemas.named(name)
        assert (writer.canonical.decode(), writer.frame_id) == (form, crc64(form.encode()))
        assert writer.schema_hash == sha256(form.encode()).digest()
        if name in listed:
            assert listed[name] == {
                "name": name,
                "canonical_form": form,
                "frame_id": crc64(form.encode()).hex(),
                "schema_hash": sha256(form.encode()).hexdigest(),
            }
    assert {event["type"] for event in VECTORS["events"]} == {*listed, None}


@pytest.mark.parametrize("vector", [v for v in VECTORS["events"] if v["type"]], ids=lambda v: v["type"])
def test_bytes_hash_and_key_of_an_event(vector: dict[str, Any]) -> None:
    schema = canonical(NAMED[vector["type"]], "", set())
    form = json.dumps(schema, separators=(",", ":"), ensure_ascii=False).encode()
    body = avro(schema, vector["record"], defined(schema))
    digest = sha256(sha256(form).digest() + body).hexdigest()
    meta = vector["record"]["meta"]
    assert vector["body"] == body.hex()
    assert vector["value"] == (b"\xc3\x01" + crc64(form) + body).hex()
    assert vector["hash"] == digest
    assert vector["key"] == f"{meta['session_id']}:{meta['seq']}:{digest}"
    assert vector["partition_of_16"] == home_of(meta["session_id"], 16)


def test_the_vectors_are_one_linked_session() -> None:
    chain = [vector for vector in VECTORS["events"] if vector["type"] and vector["record"]["meta"]["seq"] > 0]
    before = None
    for seq, vector in enumerate(chain, 1):
        assert vector["record"]["meta"]["seq"] == seq
        assert vector["record"]["meta"]["prev_hash"] == before
        before = vector["hash"]


def place(vector: dict[str, Any]) -> Any:
    key = None if vector["key"] is None else vector["key"].encode()
    value = None if vector["value"] is None else bytes.fromhex(vector["value"])
    return codec.place(SchemaSet.load(), key, value, vector["partition_of_16"], 16)


def test_readers_take_the_vectors_for_what_they_are() -> None:
    for vector in VECTORS["events"]:
        placed = place(vector)
        assert isinstance(placed, Event if vector["type"] else Tombstone)
        if vector["type"]:
            assert hexed(placed.body) == vector["record"]
    for vector in VECTORS["set_aside"]:
        assert place(vector) == SetAside(vector["reason"])


def test_an_array_in_a_block_that_tells_its_size_is_the_same_array() -> None:
    """As some Avro libraries write it: a negative count, the bytes, then the items."""
    (vector,) = (v for v in VECTORS["events"] if v["type"] == "dalsegno.event.v1.SessionCreated")
    body, label = (
        bytes.fromhex(vector["body"]),
        b"".join(varint(len(t.encode())) + t.encode() for t in ("team", "größe")),
    )
    plain, sized = varint(1) + label + b"\x00", varint(-1) + varint(len(label)) + label + b"\x00"
    assert body.count(plain) == 1
    other = body.replace(plain, sized)
    writer = SchemaSet.load().named(vector["type"])
    key = f"s-1:1:{sha256(writer.schema_hash + other).hexdigest()}".encode()
    publisher = memory_publisher()
    publisher.send(key, writer.prefix + other)
    (event,) = publisher.events("s-1")
    assert hexed(event.body) == vector["record"]
    assert publisher.rows("sessions", "s-1")[()].workflow_name == "review"


def hexed(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: hexed(item) for key, item in value.items()}
    return [hexed(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("script", [["generate.py", "--check"], ["make_vectors.py"]], ids=lambda s: s[0])
def test_generated_files_are_up_to_date(script: list[str]) -> None:
    source = Path(__file__).resolve().parents[3] / "schemas" / script[0]
    done = subprocess.run(
        [sys.executable, str(source), *script[1:]], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
