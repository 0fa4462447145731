"""The chat client against a real HTTP server in a thread: every way in which a server answers, or does not."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dalsegno.errors import Failed
from dalsegno.harness.providers import open_provider
from dalsegno.harness.providers.openai_http import Price, retry_after_ms
from dalsegno.model.events import Usage
from dalsegno.orchestration.ports import CONTEXT_OVERFLOW, Answer, InferenceError, Request

KEY = "sk-very-secret-1234"


class Server:
    """Answers each POST by ``self.answer(handler)``; keeps what it was sent."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.answer: Callable[[BaseHTTPRequestHandler], None] = lambda _: None
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                outer.headers.append(dict(self.headers))
                outer.paths.append(self.path)
                with contextlib.suppress(OSError):  # the client has left, as some of these tests want
                    outer.answer(self)

            def log_message(self, *args: Any) -> None: ...

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.http.server_address[1]}/v1"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.over.set()
        self.http.shutdown()
        self.http.server_close()
        self.thread.join(10)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def says(
    body: Any, status: int = 200, *, content_type: str = "application/json", length: int | None = None, **headers: str
) -> Callable[[BaseHTTPRequestHandler], None]:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", content_type)
        handler.send_header("Content-Length", str(len(sent) if length is None else length))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(sent)

    return answer


def streams(*chunks: Any, done: bool = True) -> Callable[[BaseHTTPRequestHandler], None]:
    lines = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks] + ["[DONE]"] * done
    return says("".join(f"data: {line}\n\n" for line in lines).encode(), content_type="text/event-stream")


def ask(server: Server, *, timeout: float = 30.0, request: dict[str, Any] | None = None, **settings: Any) -> Answer:
    provider = open_provider("openai", {"base_url": server.url, **settings})
    given = {"params": {}, "messages": [{"role": "user", "content": "hi"}], "tools": [], **(request or {})}
    return provider.complete(Request("s", "i", 1, "openai", "m", request_digest=b"", timeout_seconds=timeout, **given))


def fails(server: Server, **more: Any) -> InferenceError:
    with pytest.raises(InferenceError) as raised:
        ask(server, **more)
    return raised.value


def message(**more: Any) -> dict[str, Any]:
    return {"id": "r1", "model": "m-2026", "choices": [{"message": more, "finish_reason": "stop"}]}


def delta(finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "r1", "model": "m-2026", "choices": [{"index": 0, "delta": more, "finish_reason": finish}]}


def call(index: int | None, arguments: str, name: str | None = None, native_id: str | None = None) -> dict[str, Any]:
    one: dict[str, Any] = {"function": {"arguments": arguments}}
    if name is not None:
        one["function"]["name"] = name
    return one | ({} if index is None else {"index": index}) | ({} if native_id is None else {"id": native_id})


def calls(answer: Answer) -> list[tuple[str, bytes, str | None]]:
    return [(one.name, one.arguments, one.native_id) for one in answer.calls]


USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "prompt_tokens_details": {"cached_tokens": 40},
    "completion_tokens_details": {"reasoning_tokens": 5},
}


def test_an_answer_in_one_piece(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", f" {KEY}\n")
    body = message(content="hello", reasoning_content="because") | {"usage": USAGE}
    server.answer = says(body)
    tools = [{"type": "function", "function": {"name": "f"}}]
    prices = {"m": {"input": 3_000_000, "output": 15_000_000, "cache_read": 300_000}}
    answer = ask(
        server,
        api_key_env="TEST_KEY",
        stream=False,
        prices=prices,
        request={"params": {"temperature": 0}, "tools": tools},
    )
    assert (answer.text, answer.reasoning, answer.finish_reasons) == ("hello", "because", ("stop",))
    assert (answer.model, answer.response_id, answer.complete) == ("m-2026", "r1", True)
    assert answer.usage == Usage(input=100, output=20, cache_read=40, reasoning=5)
    assert answer.cost_usd_micros == 60 * 3 + 40 * 3 // 10 + 20 * 15
    assert answer.raw == json.dumps(body).encode()
    assert answer.latency_ms is not None
    assert answer.ttft_ms is None
    assert server.paths == ["/v1/chat/completions"]
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert server.bodies == [
        {"temperature": 0, "model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": tools}
    ]


def test_a_stream_is_put_together(server: Server) -> None:
    chunks = [
        delta(role="assistant", content=""),
        delta(reasoning="hm"),
        delta(content="hel"),
        delta(content="lo"),
        delta("stop"),
        {"choices": [], "usage": USAGE},
    ]
    server.answer = streams(*chunks)
    answer = ask(server, prices={"m": {"input": 1, "output": 1}})
    assert (answer.text, answer.reasoning, answer.finish_reasons) == ("hello", "hm", ("stop",))
    assert (answer.model, answer.response_id) == ("m-2026", "r1")
    assert (answer.usage.input, answer.usage.output, answer.cost_usd_micros) == (100, 20, 1)
    assert answer.raw == "\n".join([*map(json.dumps, chunks), "[DONE]"]).encode()
    assert answer.ttft_ms is not None
    assert answer.latency_ms is not None
    assert 0 <= answer.ttft_ms <= answer.latency_ms
    assert server.bodies[0]["stream_options"] == {"include_usage": True}
    assert "Authorization" not in server.headers[0]


def test_a_server_that_was_asked_to_stream_may_answer_in_one_piece(server: Server) -> None:
    server.answer = says(message(content="whole"))
    assert ask(server).text == "whole"


def test_deltas_of_calls_are_joined_by_index_and_none_is_lost(server: Server) -> None:
    server.answer = streams(
        delta(tool_calls=[call(0, "", "read", "c1")]),
        delta(tool_calls=[call(1, '{"b"', "read", "c1"), call(0, '{"a"')]),
        delta(tool_calls=[call(0, ":1}")]),
        delta("tool_calls", tool_calls=[call(1, ":2}")]),
    )
    answer = ask(server)
    assert calls(answer) == [("read", b'{"a":1}', "c1"), ("read", b'{"b":2}', "c1")], "the same id twice: two calls"
    assert (answer.text, answer.finish_reasons) == ("", ("tool_calls",))


def test_servers_that_number_no_calls_or_all_of_them_alike_lose_none(server: Server) -> None:
    server.answer = streams(
        delta(tool_calls=[call(None, '{"a":', "f", "x"), call(None, "1}")]),
        delta("stop", tool_calls=[call(None, "{}", "g", "x")]),
    )
    assert calls(ask(server)) == [("f", b'{"a":1}', "x"), ("g", b"{}", "x")]
    server.answer = streams(
        delta(tool_calls=[call(0, "{}", "f", "x")]), delta("stop", tool_calls=[call(0, "[]", "g", "y")])
    )
    assert calls(ask(server)) == [("f", b"{}", "x"), ("g", b"[]", "y")]


def test_arguments_are_kept_as_they_came(server: Server) -> None:
    given = ["{not json", "\ud800", {"a": 1}, None, ""]
    server.answer = says(
        message(content=None, tool_calls=[{"id": 7, "function": {"name": "f", "arguments": a}} for a in given])
    )
    answer = ask(server, stream=False)
    assert [one.arguments for one in answer.calls] == [b"{not json", "\ufffd".encode(), b'{"a":1}', b"{}", b"{}"]
    assert {one.native_id for one in answer.calls} == {"7"}


def test_a_character_that_a_stream_tears_apart_is_whole_again(server: Server) -> None:
    server.answer = streams(delta(content="\ud83d"), delta(content="\ude00"), delta("stop", content="\ud83d"))
    assert ask(server).text == "\U0001f600\ufffd"


def test_content_in_parts_and_a_refusal_are_text(server: Server) -> None:
    server.answer = says(message(content=[{"type": "text", "text": "a"}, {"type": "x"}, 3, {"text": "b"}]))
    assert ask(server).text == "ab"
    server.answer = says(message(content=None, refusal="I will not"))
    assert ask(server).text == "I will not"


def test_an_answer_cut_by_the_model_s_limit_says_so(server: Server) -> None:
    server.answer = streams(delta("length", tool_calls=[call(0, '{"path": "a', "write", "c1")]))
    answer = ask(server)
    assert (answer.finish_reasons, answer.calls[0].arguments) == (("length",), b'{"path": "a')


def test_only_the_first_of_several_choices_is_answered_and_raw_holds_all(server: Server) -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}]}
    server.answer = streams(other, delta("stop", content="first"))
    answer = ask(server)
    assert answer.text == "first"
    assert b"other" in (answer.raw or b"")


def test_events_may_end_anywhere_in_a_chunk_and_need_no_empty_line_at_the_end(server: Server) -> None:
    text = ': wait\r\nevent: x\r\ndata: {"choices":\r\ndata: [{"delta": {"content": "ü"}}]}\r\n\r\n' + "data:[DONE]"
    sent = text.encode()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.end_headers()
        for n in range(len(sent)):
            handler.wfile.write(sent[n : n + 1])
            handler.wfile.flush()

    server.answer = answer
    assert ask(server).text == "ü"


def test_a_stream_without_its_end_is_torn_even_between_events(server: Server) -> None:
    server.answer = streams(delta(content="half"), done=False)
    error = fails(server)
    assert (error.error_class, error.retryable) == ("torn_answer", True)
    assert "after 1 events" in error.message
    server.answer = streams(delta("stop", content="all"), done=False)
    assert ask(server).text == "all", "a reason to finish says that this is all"


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
def test_a_connection_that_breaks_in_the_middle_is_torn(server: Server, content_type: str) -> None:
    server.answer = says(b'data: {"choices"', content_type=content_type, length=1000)
    error = fails(server)
    assert (error.error_class, error.retryable) == ("torn_answer", True)


@pytest.mark.parametrize(
    "body", [b"<html>", b"", b"[]", b"\xff\xfe", {"choices": []}, {"choices": "x"}, {"choices": [{"text": "old"}]}]
)
def test_garbage_is_an_error_that_shows_its_beginning(server: Server, body: Any) -> None:
    server.answer = says(body)
    error = fails(server)
    assert (error.error_class, error.retryable) == ("garbled_answer", True)
    assert "it begins: " in error.message
    server.answer = streams("<html>")
    assert fails(server).error_class == "garbled_answer"


@pytest.mark.parametrize(
    ("status", "body", "error_class", "retryable"),
    [
        (400, {"error": {"message": "no", "code": "invalid"}}, "bad_request", False),
        (400, {"error": {"message": "too big", "code": "context_length_exceeded"}}, CONTEXT_OVERFLOW, False),
        (400, {"error": "This model's maximum context length is 8192 tokens."}, CONTEXT_OVERFLOW, False),
        (422, {"detail": "prompt is too long: 9 tokens > 8"}, CONTEXT_OVERFLOW, False),
        (413, b"", CONTEXT_OVERFLOW, False),
        (401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}, "unauthorized", False),
        (403, b"no", "forbidden", False),
        (404, b"no model", "not_found", False),
        (307, b"", "redirected", False),
        (408, b"", "timeout", True),
        (429, {"error": {"message": "slow down"}}, "rate_limited", True),
        (429, {"error": {"message": "pay", "code": "insufficient_quota"}}, "quota_exhausted", False),
        (500, b"\xff<html>oops", "server_error", True),
        (503, {"error": {}}, "server_error", True),
    ],
)
def test_a_status_says_what_kind_of_failure_it_is(
    server: Server, monkeypatch: pytest.MonkeyPatch, status: int, body: Any, error_class: str, retryable: bool
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    server.answer = says(body, status, Retry_After="2", Location=f"{server.url}/elsewhere")
    error = fails(server, api_key_env="TEST_KEY")
    assert (error.error_class, error.retryable, error.http_status) == (error_class, retryable, status)
    assert error.retry_after_ms == 2000
    assert KEY not in str(error)
    assert error.message.startswith(f"HTTP {status}: ")
    assert len(server.paths) == 1, "it asks once"


@pytest.mark.parametrize(
    ("said", "error_class", "retryable"),
    [
        ({"message": "overloaded", "code": 503}, "server_error", True),
        ({"message": "slow", "code": 429}, "rate_limited", True),
        ({"message": "bad", "code": 400}, "bad_request", False),
        ({"message": "context length exceeded"}, CONTEXT_OVERFLOW, False),
        ("it broke", "server_error", True),
    ],
)
def test_an_error_may_come_with_status_200_whole_or_in_a_stream(
    server: Server, said: Any, error_class: str, retryable: bool
) -> None:
    for answer in (says({"error": said}), streams(delta(content="half"), {"error": said})):
        server.answer = answer
        error = fails(server)
        assert (error.error_class, error.retryable, error.http_status) == (error_class, retryable, 200)


@pytest.mark.parametrize("said", [True, [1], {}, {"message": [1], "code": [2]}])
def test_an_error_of_no_known_shape_still_says_something(server: Server, said: Any) -> None:
    server.answer = says({"error": said} if said else said)
    assert fails(server).message


def test_a_server_that_repeats_the_key_does_not_get_it_recorded(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    for answer in (says(message(content=f"k {KEY}")), streams(delta("stop", content=f"k {KEY}"))):
        server.answer = answer
        got = ask(server, api_key_env="TEST_KEY")
        assert got.text == "k [api key]"
        assert KEY.encode() not in (got.raw or b"")


def test_a_silent_server_is_given_up_at_its_first_byte_and_between_two(server: Server) -> None:
    server.answer = lambda _: server.over.wait(30) and None
    error = fails(server, silence_seconds=0.05)
    assert (error.error_class, error.retryable) == ("timeout", True)
    assert "not a byte in 0.05 s" in error.message

    def half(handler: BaseHTTPRequestHandler) -> None:
        says(b'data: {"choices": []}\n\n', content_type="text/event-stream", length=1000)(handler)
        server.over.wait(30)

    server.answer = half
    assert "not a byte in 0.05 s" in fails(server, silence_seconds=0.05).message


def test_a_server_that_drips_is_given_up_after_the_request_s_whole_time(server: Server) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        says(b"", content_type="text/event-stream", length=1000)(handler)
        while not server.over.wait(0.01):
            handler.wfile.write(b":\n")

    server.answer = drip
    error = fails(server, timeout=0.1)
    assert (error.error_class, error.message.endswith("no whole answer in 0.1 s")) == ("timeout", True)


def test_nobody_there_is_a_connection_that_failed() -> None:
    with socket.socket() as taken:  # bound, and not listened to
        taken.bind(("127.0.0.1", 0))
        provider = open_provider("openai", {"base_url": f"http://127.0.0.1:{taken.getsockname()[1]}/v1"})
        with pytest.raises(InferenceError, match=r"127\.0\.0\.1") as refused:
            provider.complete(Request("s", "i", 1, "openai", "m", {}, [], [], b""))
    assert (refused.value.error_class, refused.value.retryable) == ("connection_failed", True)


@pytest.mark.parametrize("content_type", ["application/json", "text/event-stream"])
def test_a_huge_body_is_not_read_to_its_end(server: Server, content_type: str) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", content_type)
        handler.end_headers()
        while not server.over.is_set():
            handler.wfile.write(b": x\n" * 10_000)

    server.answer = endless
    error = fails(server, max_body_bytes=100_000)
    assert (error.error_class, error.retryable) == ("answer_too_large", False)
    assert "more than 100000 bytes" in error.message


def test_a_huge_error_is_cut(server: Server) -> None:
    server.answer = says(b"x" * 1_000_000, 500)
    assert len(fails(server).message) < 3000


@pytest.mark.parametrize("name", ["stream", "messages", "model", "tools"])
def test_params_do_not_override_what_the_log_says_was_sent(server: Server, name: str) -> None:
    error = fails(server, request={"params": {name: []}})
    assert (error.error_class, error.retryable, server.paths) == ("bad_request", False, [])


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, "base_url"),
        ({"base_url": "ftp://x"}, "base_url"),
        ({"base_url": "https://user:secret@x/v1"}, "holds credentials"),
        ({"base_url": "https://x/v1", "key": KEY}, "unknown field `key`"),
        ({"base_url": "https://x/v1", "api_key_env": "TEST_NO_SUCH_KEY"}, "TEST_NO_SUCH_KEY is empty"),
        ({"base_url": "https://x/v1", "api_key_env": "TEST_BAD_KEY"}, "what no HTTP header can"),
        ({"base_url": "https://x/v1", "prices": {"m": {"input": 1}}}, "missing required field `output`"),
    ],
)
def test_wrong_settings_are_refused_without_showing_a_secret(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], found: str
) -> None:
    monkeypatch.setenv("TEST_BAD_KEY", "bad-secret\nX-Header: 1")
    with pytest.raises(Failed, match=found) as refused:
        open_provider("openai", settings)
    assert "secret" not in str(refused.value)


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after_ms({"Retry-After": "1.5"}) == 1500
    assert retry_after_ms({}) is None
    assert retry_after_ms({"Retry-After": "soon"}) is None
    assert retry_after_ms({"Retry-After": "-1"}) is None
    soon = datetime.now(UTC) + timedelta(seconds=60)
    assert 0 < (retry_after_ms({"Retry-After": format_datetime(soon, usegmt=True)}) or 0) <= 60_000
    assert retry_after_ms({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0


def test_a_cost_is_rounded_up_and_unknown_without_usage() -> None:
    price = Price(input=1, output=1)
    assert price.cost(Usage()) is None
    assert price.cost(Usage(input=1, output=0)) == 1
    assert Price(input=10_000_000, output=0, cache_read=0).cost(Usage(input=5, output=1, cache_read=9)) == 0
    assert Price(input=1_000_000, output=0).cost(Usage(input=5, output=1, cache_read=4)) == 5


# --- over TLS ---------------------------------------------------------------------------------------------------------


def self_signed(folder: Path, address: str = "127.0.0.1") -> Path:
    """A certificate for an address that nobody vouches for but itself, with its key behind it, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a test")])
    now, whose = datetime.now(UTC), x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(whose, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(whose), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )  # fmt: skip
    file = folder / f"{address}.pem"
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    return file


@contextlib.contextmanager
def secured(certificate: Path) -> Iterator[Server]:
    server = Server(certificate)
    server.answer = streams(delta(content="hello"), delta("stop"))
    try:
        yield server
    finally:
        server.close()


def test_a_server_whose_certificate_the_settings_trust_is_asked_over_tls(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    with secured(certificate) as server:
        assert ask(server, ca_file=str(certificate)).text == "hello"
        server.answer = says(message(content="whole"))
        assert ask(server, ca_file=str(certificate), stream=False).text == "whole"


def test_a_server_whose_certificate_the_environment_trusts_is_asked_over_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with secured(certificate) as server:
        assert ask(server).text == "hello"


def test_a_certificate_that_nobody_trusts_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", KEY)
    with secured(self_signed(tmp_path)) as server:
        error = fails(server, api_key_env="KEY")
        assert (error.error_class, error.retryable, error.http_status) == ("untrusted_certificate", False, None)
        assert error.message.startswith(f"{server.url}/chat/completions: its certificate is not trusted: self")
        assert "the setting ca_file, or by SSL_CERT_FILE" in error.message
        assert server.headers == [], "the key was not sent to whoever that is"


def test_a_trusted_certificate_of_another_host_is_not_trusted_here(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path, "127.0.0.2")
    with secured(certificate) as server:
        error = fails(server, ca_file=str(certificate))
        assert error.error_class == "untrusted_certificate"
        assert "127.0.0.1" in error.message.partition("not trusted")[2]
        assert server.bodies == []


def test_a_file_without_certificates_is_told_before_anything_is_asked(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("no certificate\n")
    for name in ("empty.pem", "nowhere.pem"):
        with pytest.raises(Failed, match=f"{name}: no file of certificates"):
            open_provider("openai", {"base_url": "https://127.0.0.1:1/v1", "ca_file": str(tmp_path / name)})
