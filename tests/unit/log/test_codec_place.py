"""What a record is taken for: event, tombstone, unreadable, set aside."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest

from dalsegno.errors import RecordDamaged
from dalsegno.log import codec
from dalsegno.log.codec import decode_body, decode_record, encode_record, place, read_meta
from dalsegno.log.schema_set import SchemaSet
from dalsegno.model.ids import EventKey, Seq, parse_key
from dalsegno.model.records import (
    UNDECODABLE,
    UNKNOWN_SCHEMA,
    Event,
    Placed,
    SetAside,
    Tombstone,
    Unreadable,
)
from log_samples import PARTITIONS, chain, home, knowing, meta, pack, rekeyed, toy, writer_of

SCHEMAS = SchemaSet.load()


def at_home(key: bytes | None, value: bytes | None, schemas: SchemaSet = SCHEMAS, session: str = "s-1") -> Placed:
    return place(schemas, key, value, home(session), PARTITIONS)


def test_bad_records_among_good_ones_are_set_aside_and_the_good_ones_stay() -> None:
    # case C31
    good = chain(SCHEMAS, "s-1", 1000)
    key, value = good[500]
    writer = SCHEMAS.event("MessageReceived")
    bad: list[tuple[bytes | None, bytes | None]] = [
        (key, json.dumps({"hello": "world"}).encode()),  # raw JSON
        (key, b""),  # empty, but no tombstone
        (key, value + b"abc"),  # bytes behind the record: the hash no longer follows
        (key, value[:-2]),  # cut
    ]
    placed = [at_home(k, v) for k, v in good[:500]] + [at_home(k, v) for k, v in bad]
    placed += [at_home(k, v) for k, v in good[500:]]
    assert sum(isinstance(item, Event) for item in placed) == 1000
    reasons = [item.reason for item in placed if isinstance(item, SetAside)]
    assert reasons == [codec.NO_FRAME, codec.NO_FRAME, codec.WRONG_HASH, codec.WRONG_HASH]
    assert at_home(key, None) == Tombstone(parse_key(key))  # type: ignore[arg-type]
    # The same damage by a writer who hashed the damaged bytes: the key is true, so the session must know of it.
    for body in (value[10:] + b"abc", value[10:-2]):
        assert at_home(*rekeyed(writer, "s-1", 501, body)) == Unreadable(
            EventKey("s-1", Seq(501), sha256(writer.schema_hash + body).digest()), UNDECODABLE
        )


def test_other_framings_are_set_aside() -> None:
    # case C31
    [(key, value)] = chain(SCHEMAS, "s-1", 1)
    registry = b"\x00\x00\x00\x00\x07" + value[10:]
    assert at_home(key, registry) == SetAside(codec.NO_FRAME)
    assert at_home(key, b"Obj\x01" + value) == SetAside(codec.NO_FRAME)
    assert at_home(key, b"\xc3\x01" + value[2:9]) == SetAside(codec.NO_FRAME)


def test_keys_that_are_none_of_ours() -> None:
    [(key, value)] = chain(SCHEMAS, "s-1", 1)
    assert at_home(None, value) == SetAside(codec.NO_KEY)
    assert at_home(b"s-1", value) == SetAside(codec.BAD_KEY)
    assert at_home(key.upper(), value) == SetAside(codec.BAD_KEY)
    assert place(SCHEMAS, key, value, (home("s-1") + 1) % PARTITIONS, PARTITIONS) == SetAside(codec.WRONG_PARTITION)
    assert place(SCHEMAS, key, None, (home("s-1") + 1) % PARTITIONS, PARTITIONS) == SetAside(codec.WRONG_PARTITION)


def test_a_key_must_follow_from_the_bytes() -> None:
    (_, first), (second_key, second) = chain(SCHEMAS, "s-1", 2)
    assert at_home(second_key, first) == SetAside(codec.WRONG_HASH)
    digest = parse_key(second_key).hash  # type: ignore[union-attr]
    for key in (EventKey("s-1", Seq(3), digest), EventKey("s-1", Seq(0), digest)):
        assert at_home(key.encode(), second) == SetAside(codec.WRONG_PLACE)
    elsewhere = EventKey("s-2", Seq(2), digest)
    assert at_home(elsewhere.encode(), second, session="s-2") == SetAside(codec.WRONG_PLACE)


@pytest.mark.parametrize(("seq", "prev"), [(1, b"\x01" * 32), (2, None), (0, b"\x01" * 32)])
def test_prev_hash_is_null_at_the_start_and_nowhere_else(seq: int, prev: bytes | None) -> None:
    writer = SCHEMAS.event("TimerFired")
    record = {"meta": meta(seq=2, prev_hash=b"\x02" * 32), "timer": "t"}
    checked = codec.check(writer, record)
    checked["meta"] |= {"seq": seq, "prev_hash": prev}  # a producer that does not use our check
    assert at_home(*rekeyed(writer, "s-1", seq, codec.encode(writer, checked))) == SetAside(codec.WRONG_PLACE)


def test_an_unknown_schema_is_remembered_until_it_is_added() -> None:
    known, stranger = SchemaSet.load(), writer_of(toy(1, {"name": "n", "type": "int"}, name="Stranger"))
    key, value = pack(stranger, {"meta": meta(ignorable=True), "n": 7})
    assert at_home(key, value, known) == Unreadable(parse_key(key), UNKNOWN_SCHEMA)  # type: ignore[arg-type]
    assert known.unknown == {stranger.frame_id}
    assert known.add(stranger.json).schema_hash == stranger.schema_hash
    assert known.unknown == set()
    assert known.add(stranger.json) is known.by_frame(stranger.frame_id)
    event = at_home(key, value, known)
    assert isinstance(event, Event)
    assert (event.type, event.known, event.ignorable, event.body["n"]) == ("Stranger", False, True, 7)


def test_a_foreign_type_never_passes_for_one_of_ours() -> None:
    foreign = toy(1, {"name": "timer", "type": "string"}, name="TimerFired") | {"namespace": "com.example.v1"}
    known = SchemaSet.load()
    writer = known.add(writer_of(foreign).json)
    event = at_home(*pack(writer, {"meta": meta(), "timer": "t"}), known)
    assert isinstance(event, Event)
    assert (event.type, event.known) == ("com.example.v1.TimerFired", False)


def test_records_of_other_topics_are_no_events() -> None:
    value = encode_record("AdminAction", _admin_action())
    writer = SCHEMAS.by_frame(value[2:10])
    assert writer is not None
    assert at_home(*rekeyed(writer, "s-1", 1, value[10:])) == SetAside(codec.NOT_AN_EVENT)


def test_two_schemas_with_one_frame_id_are_told_apart_by_the_hash() -> None:
    known = knowing(
        toy(1, {"name": "a", "type": "int"}, name="One"), toy(1, {"name": "b", "type": "string"}, name="Two")
    )
    one, two = known.event("One"), known.event("Two")
    two.frame_id, two.prefix = one.frame_id, one.prefix
    known._frames = {one.frame_id: (one, two)}
    event = at_home(*pack(two, {"meta": meta(), "b": "text"}), known)
    assert isinstance(event, Event)
    assert (event.type, event.body["b"]) == ("Two", "text")


def test_the_journal_gives_the_same_events_and_sees_damage() -> None:
    [(key, value)] = chain(SCHEMAS, "s-1", 1)
    writer, body = SCHEMAS.event("SessionCreated"), value[10:]
    parsed = parse_key(key)
    assert parsed is not None
    assert decode_body(SCHEMAS, writer.schema_hash, parsed, body) == at_home(key, value)
    assert decode_body(SCHEMAS, b"\x00" * 32, parsed, body) == Unreadable(parsed, UNKNOWN_SCHEMA)
    assert decode_body(SCHEMAS, writer.schema_hash, parsed, body[:-1] + b"\x09") == SetAside(codec.WRONG_HASH)


def test_meta_alone_is_read_from_a_prefix() -> None:
    [(_, value)] = chain(SCHEMAS, "s-1", 1)
    whole = read_meta(SCHEMAS, value)
    assert whole is not None
    assert whole["session_id"] == "s-1"
    assert read_meta(SCHEMAS, value[:-3]) == whole, "what stands behind meta is not looked at"
    assert read_meta(SCHEMAS, value[:30]) is None
    assert read_meta(SCHEMAS, b"{}") is None
    assert read_meta(SCHEMAS, encode_record("AdminAction", _admin_action())) is None


def test_damaged_records_of_other_topics_are_refused() -> None:
    value = encode_record("AdminAction", _admin_action())
    assert decode_record(value)[0] == "AdminAction"
    for damaged in (value + b"x", value[:-1], b"{}", b"", value[:2] + b"12345678" + value[10:]):
        with pytest.raises(RecordDamaged):
            decode_record(damaged)


def _admin_action() -> dict[str, object]:
    return {
        "action_id": "a",
        "request_id": "r",
        "kind": "ERASE",
        "subject": "s-1",
        "actor_kind": "OPERATOR",
        "actor_id": "o",
        "at": 1,
        "reason": "asked for",
    }


def test_the_short_way_and_the_long_way_say_the_same() -> None:
    """An event whose bytes give its key is placed without taking the key apart; with anything else nothing changes."""
    good = chain(SCHEMAS, "s-1", 40) + chain(SCHEMAS, "id:with:colons", 3) + chain(SCHEMAS, "x" * 200, 3)
    odd: list[tuple[bytes | None, bytes | None]] = []
    for key, value in good[:6]:
        odd += [(key, None), (None, value), (key[:-1], value), (key + b"0", value), (key.upper(), value)]
        odd += [
            (b"s-2" + key[3:], value),
            (key, value + b"x"),
            (key, value[:-1]),
            (key, value[:12]),
            (b"0" + key, value),
        ]
    writer, sample = SCHEMAS.event("MessageReceived"), good[4][1]
    odd += [rekeyed(writer, "s-1", 5, body) for body in (sample[10:] + b"x", sample[10:-1], b"")]
    odd += [rekeyed(writer, session, seq, sample[10:]) for session, seq in (("s-1", 7), ("s-2", 5), ("y" * 201, 5))]
    events = 0
    for key, value in [*good, *odd]:
        for partition in range(PARTITIONS):
            short = place(SCHEMAS, key, value, partition, PARTITIONS)
            assert short == codec._place_step_by_step(SCHEMAS, key, value, partition, PARTITIONS)
            events += isinstance(short, Event)
    assert events == len(good)
