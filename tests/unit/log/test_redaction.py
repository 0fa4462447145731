"""Redaction rules: what they take out, what they leave, what they refuse."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from traceback import format_exception
from typing import Any

import pytest

from dalsegno import RedactionRule, Redactor, blob, events
from dalsegno.errors import InvalidEvent, Unsent, Usage
from dalsegno.log.publisher import Publisher
from dalsegno.log.redaction.json_spans import spans
from dalsegno.log.redaction.notes import may_be_random
from dalsegno.storage.blobs import Blobs
from dalsegno.storage.object_store import FolderStore
from dalsegno.testing import MemoryPublisher, memory_publisher

KEY = "sk-Zr81bQ0xLm3TvW9uYc5HaPd7"
RULES = Redactor(
    [
        RedactionRule(name="api-key", pattern=r"sk-[A-Za-z0-9]{20,}", digest=True),
        RedactionRule(name="password", pointer="/arguments/inline/password"),
        RedactionRule(name="pin", pattern=r"(?<=PIN )\d{4}", digest=True),
        RedactionRule(name="mail", pointer="/parts/*/text", event="MessageReceived"),
    ]
)


@pytest.fixture
def publisher() -> Iterator[MemoryPublisher]:
    with suppress(Unsent), memory_publisher(redact=RULES) as found:
        yield found


def written(publisher: MemoryPublisher, event: events.NewEvent, rules: Redactor | None = None) -> dict[str, Any]:
    """The body and meta of the event as it stands in the log."""
    session = publisher.session("s-1", redact=rules)
    session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
    session.append(event)
    session.close()
    found = publisher.events("s-1")[-1]
    return {**found.body, "meta": found.meta}


def call(arguments: Any) -> events.ToolCallRequested:
    content = blob(arguments)
    return events.ToolCallRequested(
        tool_call_id="c0", name="t", arguments=content, arguments_digest=content.digest, effect="READ"
    )


def test_a_pattern_is_taken_out_of_a_text_and_what_is_around_it_stays(publisher: MemoryPublisher) -> None:
    found = written(publisher, events.NoteRecorded(kind=f"use {KEY}!"))
    assert found["kind"] == "use [redacted:api-key]!"
    digest = sha256(KEY.encode()).digest()
    assert found["meta"]["redactions"] == [{"pointer": "/kind", "reason": "api-key", "digest": digest}]


def test_a_member_of_a_json_content_is_taken_out_and_every_other_byte_stays(publisher: MemoryPublisher) -> None:
    text = '{ "n": 1.50e3, "big": 12345678901234567890123, "password" : "hunter22", "n": 2, "o": [ ] }'
    found = written(publisher, call(text))
    content = found["arguments"]["inline"].decode()
    assert content == text.replace('"hunter22"', '"[redacted:password]"')
    assert found["arguments"]["digest"] == sha256(content.encode()).digest()
    assert found["arguments"]["size"] == len(content)
    assert found["meta"]["redactions"] == [
        {"pointer": "/arguments/inline/password", "reason": "password", "digest": None}
    ]


def test_a_digest_of_what_was_redacted_follows_it_here_and_in_later_events(publisher: MemoryPublisher) -> None:
    raw = call({"password": "1234"})
    with publisher.session("s-1") as session:
        session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
        session.append(raw)
        session.append(
            events.ToolCallAuthorized(
                tool_call_id="c0", basis="SIMULATED", effective_arguments_digest=raw.arguments_digest
            )
        )
    _, requested, authorized = publisher.events("s-1")
    assert requested.body["arguments_digest"] == requested.body["arguments"]["digest"] != raw.arguments_digest
    assert authorized.body["effective_arguments_digest"] == requested.body["arguments_digest"]


def test_an_event_without_secrets_is_written_as_without_rules(publisher: MemoryPublisher) -> None:
    event = call('{"a": "b", "n": 1.0, "s": "\\u0041"}')
    found = written(publisher, event)
    assert found["arguments"]["inline"] == event.arguments.inline  # type: ignore[union-attr]
    assert found["arguments_digest"] == event.arguments_digest
    assert found["meta"]["redactions"] == []


@pytest.mark.parametrize(
    ("content", "left"),
    [
        (f'{{"a": {{"b": ["{KEY}"]}}}}', '{"a": {"b": ["[redacted:api-key]"]}}'),
        (f'{{"{KEY}": 1}}', '{"[redacted:api-key]": 1}'),
        (f'{{"a": 1}}\n{{"a": "{KEY}"}}\n', '{"a": 1}\n{"a": "[redacted:api-key]"}\n'),
        ('{"a": "\\u0073k-' + KEY[3:] + '"}', '{"a": "[redacted:api-key]"}'),
        (json.dumps({"a": json.dumps({"b": json.dumps([KEY])})}), None),
        (f'data: {{"a": "x\\n{KEY}"}}', 'data: {"a": "x\\n[redacted:api-key]"}'),
        (f'{{"torn": "{KEY}', '{"torn": "[redacted:api-key]'),
        (b"\xff\xfe" + KEY.encode() + b"\xfd", b"\xff\xfe[redacted:api-key]\xfd"),
        ("[" * 20_000 + f'"{KEY}"' + "]" * 20_000, "[" * 20_000 + '"[redacted:api-key]"' + "]" * 20_000),
    ],
    ids=["nested", "key", "lines", "escaped", "json in json in json", "in a log line", "torn", "no UTF-8", "deep"],
)
def test_contents_of_any_shape(content: str | bytes, left: str | bytes | None, tmp_path: Path) -> None:
    store = Blobs(FolderStore(tmp_path))
    with memory_publisher(redact=RULES, blobs=store) as publisher:
        found = store.get(written(publisher, events.NoteRecorded(kind="k", data=blob(content)))["data"])
    assert KEY.encode() not in found
    if left is not None:
        assert found == (left if isinstance(left, bytes) else left.encode())


@pytest.mark.parametrize(
    "text",
    [
        '{"password": "hunter22"',
        '{"password": "hunter22",}',
        "{'password': 'hunter22'}",
        "{password: 'hunter22'}",
        '{"\\u0070assword": "hunter22",}',
        '```json\n{"password": "hunter22"}\n```',
        '// login\n{"password": "hunter22"}',
        '{"password": "hunter22"}\0',
        'data: {\\"password\\": \\"hunter22\\"}',
    ],
)
def test_what_a_pointer_leads_to_in_no_json_is_taken_out_with_all_around_it(
    publisher: MemoryPublisher, text: str
) -> None:
    found = written(publisher, call(text))
    assert found["arguments"]["inline"] == b"[redacted:password]"
    assert found["arguments"]["digest"] == found["arguments_digest"] == sha256(b"[redacted:password]").digest()
    assert found["meta"]["redactions"] == [{"pointer": "/arguments/inline", "reason": "password", "digest": None}]


@pytest.mark.parametrize("text", ["the password is a secret", "[INFO] begun", '{"user": "me",}', '"password', ""])
def test_what_no_pointer_leads_to_in_no_json_stays(publisher: MemoryPublisher, text: str) -> None:
    assert written(publisher, call(text))["arguments"]["inline"] == text.encode()


def test_quotes_that_are_never_closed_do_not_hold_an_append(publisher: MemoryPublisher) -> None:
    # Looked for from each of them, the end would take minutes.
    text = "{" + '\\"' * 30_000
    began = time.monotonic()
    assert written(publisher, call(text))["arguments"]["inline"] == text.encode()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("cut", ["", "\\", "\\u00"])
def test_a_string_that_was_cut_off_is_read_as_far_as_it_goes(publisher: MemoryPublisher, cut: str) -> None:
    found = written(publisher, events.NoteRecorded(kind='log: "x\\u0073k-' + KEY[3:] + cut))
    assert found["kind"] == 'log: "x[redacted:api-key]'


def test_numbers_in_json_are_texts_to_a_pattern(publisher: MemoryPublisher) -> None:
    rules = Redactor([RedactionRule(name="card", pattern=r"\d{16}")])
    found = written(publisher, call('{"card": 4111111111111111, "n": 12}'), rules)
    assert found["arguments"]["inline"] == b'{"card": "[redacted:card]", "n": 12}'


def test_what_was_found_is_taken_out_wherever_else_it_stands(publisher: MemoryPublisher) -> None:
    content = json.dumps({"password": "hunter22", "log": "tried hunter22 twice", "list": ["hunter22"]})
    event = events.ToolCallRequested(tool_call_id="c0", name="with hunter22", arguments=blob(content))
    found = written(publisher, event)
    assert b"hunter22" not in found["arguments"]["inline"]
    assert found["name"] == "with [redacted:password]"
    assert {each["pointer"] for each in found["meta"]["redactions"]} == {
        "/arguments/inline/password", "/arguments/inline/log", "/arguments/inline/list/0", "/name",
    }  # fmt: skip


def test_a_short_value_is_taken_out_where_it_was_found_only(publisher: MemoryPublisher) -> None:
    found = written(publisher, call('{"password": "7", "n": 7, "s": "7"}'))
    assert found["arguments"]["inline"] == b'{"password": "[redacted:password]", "n": 7, "s": "7"}'


def test_no_digest_of_what_can_be_guessed(publisher: MemoryPublisher) -> None:
    found = written(publisher, events.NoteRecorded(kind=f"PIN 1234 and {KEY}"))
    assert {each["reason"]: each["digest"] is not None for each in found["meta"]["redactions"]} == {
        "pin": False, "api-key": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "may"),
    [
        ("1234", False), ("hunter22", False), ("a" * 100, False), ("0123456789012345", False),
        ("Zr81bQ0xLm3TvW9uYc5HaPd7", True), ("5f4dcc3b5aa765d61d8327deb882cf99", True), ("", False),
    ],
)  # fmt: skip
def test_what_may_be_random(value: str, may: bool) -> None:
    assert may_be_random(value) is may


def test_no_digest_where_the_rule_does_not_say_that_its_values_are_random(publisher: MemoryPublisher) -> None:
    found = written(publisher, call({"password": "Zr81bQ0xLm3TvW9uYc5HaPd7"}))
    assert [each["digest"] for each in found["meta"]["redactions"]] == [None]


@pytest.mark.parametrize("secret", [{"deep": ["Zr81bQ0xLm3TvW9uYc5HaPd7"]}, ["Zr81bQ0xLm3TvW9uYc5HaPd7"], {}])
def test_no_digest_of_what_has_parts(publisher: MemoryPublisher, secret: Any) -> None:
    rules = Redactor([RedactionRule(name="r", pointer="/arguments/inline/password", digest=True)])
    found = written(publisher, call({"password": secret}), rules)
    assert [each["digest"] for each in found["meta"]["redactions"]] == [None]


def test_two_values_in_one_place_have_no_digest(publisher: MemoryPublisher) -> None:
    found = written(publisher, events.NoteRecorded(kind=f"{KEY} {KEY[:-1]}A"))
    assert [each["digest"] for each in found["meta"]["redactions"]] == [None]


def test_a_pointer_of_one_type_of_event(publisher: MemoryPublisher) -> None:
    part = events.Part(kind="TEXT", text="from ann@example.org")
    found = written(publisher, events.MessageReceived(message_id="m", role="USER", parts=[part, part]))
    assert [each["text"] for each in found["parts"]] == ["[redacted:mail]"] * 2
    assert [each["pointer"] for each in found["meta"]["redactions"]] == ["/parts/0/text", "/parts/1/text"]


def test_a_pointer_goes_on_in_the_json_of_a_text(publisher: MemoryPublisher) -> None:
    rules = Redactor([RedactionRule(name="r", pointer="/parts/*/text/a/*/b")])
    inner = json.dumps([{"b": 1}, {"b": {"deep": "value of it"}}])
    part = events.Part(kind="TEXT", text=json.dumps({"a": inner, "c": "has a value of it"}))
    found = written(publisher, events.MessageReceived(message_id="m", role="USER", parts=[part]), rules)
    text = json.loads(found["parts"][0]["text"])
    assert json.loads(text["a"]) == [{"b": "[redacted:r]"}] * 2
    assert text["c"] == "has a [redacted:r]"


def test_a_whole_content_and_what_may_be_missing(publisher: MemoryPublisher) -> None:
    rules = Redactor(
        [
            RedactionRule(name="all", pointer="/result"),
            RedactionRule(name="code", pointer="/exit_code"),
            RedactionRule(name="effects", pointer="/side_effects"),
        ]
    )
    event = events.ToolReceiptRecorded(
        tool_call_id="c0", attempt=1, status="OK", receipt_id="r", exit_code=3, result=blob({"name": "Ann Example"}),
        side_effects=[events.SideEffect(kind="FILE-of-kind", resource="see Ann Example")],
    )  # fmt: skip
    found = written(publisher, event, rules)
    assert (found["result"]["inline"], found["result"]["media_type"]) == (
        b"[redacted:all]", "text/plain; charset=utf-8"
    )  # fmt: skip
    assert (found["exit_code"], found["side_effects"]) == (None, [])


def test_what_the_event_cannot_be_without_is_refused(publisher: MemoryPublisher) -> None:
    for pointer in ("/tool_call_id", "/attempt", "/status"):
        rules = Redactor([RedactionRule(name="r", pointer=pointer)])
        session = publisher.session(f"s{pointer[1:]}", redact=rules)
        session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
        with pytest.raises(InvalidEvent, match="taken out by the redaction rule r") as caught:
            session.append(
                events.ToolReceiptRecorded(tool_call_id="c0", attempt=1, status="OK", receipt_id="r", simulated=False)
            )
        assert caught.value.data["field"] == pointer[1:]
        assert session.append(events.NoteRecorded(kind="k")).result(5).seq == 2


def test_ids_are_not_searched_but_a_found_secret_in_one_is_refused(publisher: MemoryPublisher) -> None:
    rules = Redactor([RedactionRule(name="digits", pattern=r"\d{4,}")])
    session = publisher.session("s-20261130", redact=rules)
    session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
    session.append(events.MessageReceived(message_id="m-998877", role="USER"))
    with pytest.raises(InvalidEvent) as caught:
        session.append(
            events.MessageReceived(
                message_id="m-998877", role="USER", parts=[events.Part(kind="TEXT", text="it is 998877")]
            )
        )
    assert caught.value.data["field"] == "message_id"
    assert "998877" not in str(caught.value)
    with pytest.raises(InvalidEvent) as caught:
        session.append(events.NoteRecorded(kind="20261130"))
    assert caught.value.data["field"] == "meta.session_id"


def test_a_content_by_uri_cannot_be_looked_at(publisher: MemoryPublisher) -> None:
    by_uri = events.Blob(digest=bytes(32), size=1, media_type="text/plain", uri="blob:" + "00" * 32)
    with pytest.raises(InvalidEvent, match="data is a content by uri") as caught:
        written(publisher, events.NoteRecorded(kind="k", data=by_uri))
    assert caught.value.data["field"] == "data"


def test_what_was_redacted_before_it_was_stored(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    with memory_publisher(redact=RULES, blobs=Blobs(store)) as publisher:
        found = written(publisher, events.NoteRecorded(kind="k", data=blob(f"{KEY} " + "x" * 100_000)))
    assert found["data"]["inline"] is None
    assert Blobs(store).get(found["data"]).startswith(b"[redacted:api-key] xxx")
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and KEY.encode() in file.read_bytes()]
    assert found["meta"]["redactions"][0]["pointer"] == "/data/inline"


def test_many_places_are_noted_as_one(publisher: MemoryPublisher) -> None:
    content = json.dumps({f"k{n}": KEY for n in range(150)})
    found = written(publisher, events.NoteRecorded(kind="k", data=blob(content)))
    assert found["meta"]["redactions"] == [{"pointer": "/data/inline", "reason": "api-key", "digest": None}]
    assert KEY.encode() not in found["data"]["inline"]


def test_an_enum_is_no_text(publisher: MemoryPublisher) -> None:
    rules = Redactor([RedactionRule(name="r", pattern="USER|OTHER")])
    parts = [events.Part(kind="OTHER", text="USER")]
    found = written(publisher, events.MessageReceived(message_id="m", role="USER", parts=parts), rules)
    assert (found["role"], found["parts"][0]["kind"], found["parts"][0]["text"]) == ("USER", "OTHER", "[redacted:r]")


def test_rules_are_pinned_as_the_document_they_load_from(publisher: MemoryPublisher) -> None:
    found = written(publisher, RULES.pinned(version="7"))
    assert (found["kind"], found["version"], found["digest"]) == ("REDACTION", "7", sha256(RULES.document).digest())
    again = Redactor.load(found["content"]["inline"])
    assert again.rules == RULES.rules
    assert again.document == RULES.document


@pytest.mark.parametrize(
    "rule",
    [
        {"name": "Big", "pattern": "x"}, {"name": "a"}, {"name": "a", "pattern": "x", "pointer": "/kind"},
        {"name": "a", "pattern": "("}, {"name": "a", "pattern": "x*"}, {"name": "a", "pointer": "kind"},
        {"name": "a", "pointer": "/meta/writer"}, {"name": "a", "pointer": "/"}, {"name": "a", "pointer": ""},
        {"name": "a", "pointer": "/kind" * 64}, {"name": "a", "pointer": "/argumets/inline"},
        {"name": "a", "pointer": "/arguments", "event": "NoteRecorded"},
        {"name": "a", "pattern": "x", "event": "NoteRecord"},
    ],
)  # fmt: skip
def test_a_rule_that_is_none_is_named(rule: dict[str, Any]) -> None:
    with pytest.raises(Usage) as caught:
        Redactor([RedactionRule(**rule)])
    assert caught.value.data["rule"] == rule["name"]


@pytest.mark.parametrize(
    "document",
    [
        "", "[]", "{}", '{"redaction": 2, "rules": []}', '{"redaction": 1, "rules": [{"name": "a", "patern": "x"}]}',
        b"\xff", '{"redaction": 1, "rules": [{"name": "a", "pattern": "x"}, {"name": "a", "pattern": "y"}]}',
    ],
)  # fmt: skip
def test_a_document_that_is_none(document: str | bytes) -> None:
    with pytest.raises(Usage):
        Redactor.load(document)


@pytest.mark.parametrize(
    ("event", "how"),
    [
        (events.NoteRecorded(kind="k", data={"digest": KEY}), {}),  # type: ignore[arg-type]
        (events.SessionStarted(clock_start=KEY), {}),  # type: ignore[arg-type]
        (events.NoteRecorded(kind="k"), {"traceparent": KEY}),
        (events.NoteRecorded(kind="k"), {"actor": KEY}),
    ],
    ids=["a digest", "a time", "a trace", "an actor"],
)
def test_an_event_that_is_refused_shows_no_secret(
    publisher: MemoryPublisher, event: events.NewEvent, how: dict[str, Any]
) -> None:
    session = publisher.session("s-1")
    session.append(events.SessionCreated(workflow_name="w", profile="OBSERVED"))
    with pytest.raises(InvalidEvent) as caught:
        session.append(event, **how)
    assert KEY not in "".join(format_exception(caught.value))
    session.close()


def test_no_rules_take_nothing() -> None:
    assert Redactor.load('{"redaction": 1, "rules": []}').rules == ()
    with memory_publisher(redact=Redactor([])) as publisher:
        assert written(publisher, events.NoteRecorded(kind=KEY))["kind"] == KEY


@pytest.mark.parametrize(
    "text", ["", " ", "{", "}", "[1,]", "[,1]", '{"a"}', '{"a":}', '{"a":1,}', "{1:2}", "[1}", "x", '"a', "[1] x", "1]"]
)
def test_what_is_no_json_has_no_spans(text: str) -> None:
    assert spans(text) is None


def test_a_rule_of_the_session_stands_for_the_publishers() -> None:
    with memory_publisher(redact=RULES) as publisher:
        found = written(publisher, events.NoteRecorded(kind=KEY), Redactor([]))
    assert found["kind"] == KEY


def test_resumed_sessions_are_redacted_too(publisher: MemoryPublisher) -> None:
    written(publisher, events.NoteRecorded(kind="k"))
    session = publisher.resume("s-1")
    session.append(events.NoteRecorded(kind=KEY))
    session.close()
    assert publisher.events("s-1")[-1].body["kind"] == "[redacted:api-key]"
    assert isinstance(publisher, Publisher)
