"""What redaction takes out stands nowhere in the encoded record, however deep and however escaped it stood."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from avro_strategies import records
from dalsegno import RedactionRule, Redactor, blob, events
from dalsegno.errors import InvalidEvent
from dalsegno.log.codec import encode
from dalsegno.log.drafting import Chain, Draft, Drafter
from dalsegno.log.publisher import Publisher
from dalsegno.log.redaction.event import ELSEWHERE_MIN_CHARACTERS, is_id, name_types
from dalsegno.log.redaction.json_spans import spans
from dalsegno.log.schema_set import WriterSchema
from dalsegno.model.events import to_record
from dalsegno.model.lifecycle import MemoryOps, SessionState
from dalsegno.model.records import Actor
from dalsegno.testing import memory_publisher
from examples import examples

PUBLISHER: Publisher = memory_publisher(writer="w/1/a")

# Quotes, backslashes and what JSON escapes; nothing of it stands in names, ids or markers.
secrets = st.text('KQZ"\\/\n\té☃𝄞', min_size=ELSEWHERE_MIN_CHARACTERS, max_size=12).filter(
    lambda text: not text.isspace()
)
plain = st.text('ab {}[]:,"\\1é', max_size=8)


@st.composite
def around(draw: st.DrawFn, secret: str) -> str:
    """A text that holds the secret: alone, between others, or as JSON in some depth of JSON in JSON."""
    text = draw(plain) + secret + draw(plain)
    for _ in range(draw(st.integers(0, 3))):
        held: Any = draw(
            st.sampled_from([text, [text], {"k": text}, {text: 1}, [{"a": [0, text]}, None, 1.5], {"k": [text, text]}])
        )
        text = json.dumps(held, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
        text = draw(st.sampled_from(["", "", "data: ", "\n"])) + text
    return text


@st.composite
def events_with(draw: st.DrawFn, secret: str) -> events.NewEvent:
    """An event that holds the secret in one of its texts or contents, or in several."""
    texts = [draw(around(secret)), draw(st.one_of(plain, around(secret)))]
    first, second = draw(st.permutations(texts))
    return draw(
        st.sampled_from(
            [
                events.NoteRecorded(kind=first, data=blob(second)),
                events.MessageReceived(
                    message_id="m",
                    role="USER",
                    parts=[events.Part(kind="TEXT", text=first), events.Part(kind="OTHER", blob=blob(second))],
                ),
                events.ToolReceiptRecorded(
                    tool_call_id="c0",
                    attempt=1,
                    status="ERROR",
                    receipt_id="r",
                    result=blob(first),
                    result_digest=blob(first).digest,
                    side_effects=[events.SideEffect(kind="k", resource=second)],
                ),
                events.ErrorRecorded(error=events.ErrorInfo(error_class="E", message=first, detail=blob(second))),
                events.SessionCreated(
                    workflow_name=first, profile="OBSERVED", labels=[events.Label(key=second, value=first)]
                ),
            ]
        )
    )


def drafted(event: events.NewEvent, rules: Redactor | None) -> Draft:
    drafter = Drafter(PUBLISHER, "s", False, Actor("HARNESS", "h"), lambda: 1, None, rules)
    how = {"event_id": "00000000-0000-7000-8000-000000000000"}
    return drafter.draft(event, Chain(), SessionState(), MemoryOps(), how, lambda _event, _state: None)


def said(value: Any) -> Iterator[str]:
    """Every text in a record, and every text that JSON in it says, by Python's own reader."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        yield value
        for each in (value, value.removeprefix("data: ")):
            try:
                inner = json.loads(each)
            except (ValueError, RecursionError):
                continue
            if not isinstance(inner, int | float) and inner != value:
                yield from said(inner)
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from said(key)
            yield from said(each)
    elif isinstance(value, list):
        for each in value:
            yield from said(each)


def read(draft: Draft) -> dict[str, Any]:
    from dalsegno.log.codec import place
    from dalsegno.model.records import Event

    event = place(PUBLISHER.schemas, draft.pending.key.encode(), draft.pending.value, 0, 1)
    assert isinstance(event, Event)
    return {"meta": event.meta, **event.body}


@given(st.data(), secrets)
@settings(max_examples=examples(150))
def test_a_secret_that_a_pattern_finds_is_nowhere_in_the_record(data: st.DataObject, secret: str) -> None:
    event = data.draw(events_with(secret))
    rules = Redactor([RedactionRule(name="r", pattern=re.escape(secret), digest=True)])
    draft = drafted(event, rules)
    assert draft.pending.value is not None
    assert secret.encode() not in draft.pending.value
    record = read(draft)
    assert [text for text in said(record) if secret in text] == []
    assert record["meta"]["redactions"]


@given(st.data(), secrets)
@settings(max_examples=examples(100))
def test_a_secret_that_a_pointer_names_is_nowhere_in_the_record(data: st.DataObject, secret: str) -> None:
    deep = data.draw(
        st.recursive(
            st.just(secret),
            lambda below: st.one_of(st.lists(below, min_size=1, max_size=2), st.fixed_dictionaries({"k": below})),
        )
    )
    named = {"first": 1, "secret": deep, "again": data.draw(around(secret))}
    event = events.NoteRecorded(kind=data.draw(around(secret)), data=blob(json.dumps(named)))
    rules = Redactor([RedactionRule(name="r", pointer="/data/inline/secret")])
    record = read(drafted(event, rules))
    assert [text for text in said(record) if secret in text] == []
    assert json.loads(record["data"]["inline"])["secret"] == "[redacted:r]"


@given(st.data(), secrets)
@settings(max_examples=examples(100))
def test_an_event_that_holds_no_secret_is_written_as_without_rules(data: st.DataObject, secret: str) -> None:
    event = data.draw(events_with("nothing"))
    rules = Redactor(
        [RedactionRule(name="r", pattern=re.escape("#" + secret)), RedactionRule(name="p", pointer="/data/inline/x")]
    )
    assert drafted(event, rules).pending.value == drafted(event, None).pending.value


@given(st.data(), secrets)
@settings(max_examples=examples(100))
def test_redacting_is_pure_and_redacting_again_changes_nothing(data: st.DataObject, secret: str) -> None:
    event = data.draw(events_with(secret))
    rules = Redactor([RedactionRule(name="r", pattern=re.escape(secret)), RedactionRule(name="e", pattern="[KQZ]+")])
    writer = PUBLISHER.schemas.event(event.TYPE)
    record = {"meta": {"redactions": []}, **to_record(event)}
    kept = repr(record)
    once = rules.apply(writer.type, writer.schema, record, {})
    assert once == rules.apply(writer.type, writer.schema, record, {})
    assert repr(record) == kept
    assert rules.apply(writer.type, writer.schema, once, {}) == once


EVENTS = sorted((writer for writer in PUBLISHER.schemas if writer.is_event), key=lambda writer: writer.name)
SECRET = "KQZ-KQZ-KQZ"


def planted(schema: Any, value: Any, named: dict[str, Any], name: str = "") -> Any:
    """The value with the secret in every text and content that is no id."""
    if isinstance(schema, list):
        return None if value is None else planted(next(each for each in schema if each != "null"), value, named, name)
    kind = named.get(schema, schema) if isinstance(schema, str) else schema
    if kind == "string":
        return value if is_id((name,)) else f"{value}{SECRET}"
    if isinstance(kind, str) or "fields" not in kind:
        if isinstance(kind, dict) and kind["type"] == "array":
            return [planted(kind["items"], each, named, name) for each in value]
        return value
    if kind["name"].endswith(".Blob"):
        return to_record(blob(json.dumps({"deep": [SECRET]})))
    return {
        field["name"]: planted(field["type"], value[field["name"]], named, field["name"]) for field in kind["fields"]
    }


@pytest.mark.parametrize("writer", EVENTS, ids=lambda writer: writer.type)
def test_no_text_of_any_type_of_event_is_passed_over(writer: WriterSchema) -> None:
    named: dict[str, Any] = {}
    name_types(writer.schema, named)
    rules = Redactor([RedactionRule(name="r", pattern=SECRET)])

    @given(records(writer.schema))
    @settings(max_examples=examples(3), deadline=None, suppress_health_check=list(HealthCheck))
    def each(record: dict[str, Any]) -> None:
        body = {
            field["name"]: planted(field["type"], record[field["name"]], named, field["name"])
            for field in writer.schema["fields"][1:]
        }
        given_ = {"meta": {**record["meta"], "redactions": []}, **body}
        assert SECRET.encode() not in encode(writer, rules.apply(writer.type, writer.schema, given_, {}))

    each()


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda below: st.one_of(st.lists(below, max_size=3), st.dictionaries(st.text(), below, max_size=3)),
    max_leaves=12,
)


@given(json_values, st.booleans(), st.sampled_from([None, 2]))
@settings(max_examples=examples(100))
def test_spans_are_the_values_that_json_has(value: Any, ascii_: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_, indent=indent)
    found = spans(text)
    assert found is not None
    got = {span.path: json.loads(text[span.start : span.end]) for span in found if span.kind != "KEY"}

    def walk(each: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        yield path, each
        pairs = each.items() if isinstance(each, dict) else enumerate(each) if isinstance(each, list) else ()
        for name, inner in pairs:
            yield from walk(inner, (*path, str(name)))

    assert got == dict(walk(value, ()))


@given(st.text(), st.data(), secrets)
@settings(max_examples=examples(100))
def test_any_content_of_bytes_loses_what_a_pattern_finds(text: str, data: st.DataObject, secret: str) -> None:
    noise = data.draw(st.binary(max_size=6))
    content = noise + text.encode("utf-8", "ignore") + secret.encode() + noise
    rules = Redactor([RedactionRule(name="r", pattern=re.escape(secret))])
    try:
        record = read(drafted(events.NoteRecorded(kind="k", data=blob(content)), rules))
    except InvalidEvent as error:  # pragma: no cover
        raise AssertionError(content) from error
    left = record["data"]["inline"]
    # Bytes before it can make its first character another one: then it was not there as a text.
    assert secret.encode() not in left or secret not in content.decode("utf-8", "surrogateescape")
