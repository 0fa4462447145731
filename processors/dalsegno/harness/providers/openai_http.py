"""Chat completions of any OpenAI-compatible server, over HTTP.

One attempt a call: whether to ask again is the decider's. The key is read once from the variable that the caller names;
it stands in no error, no log and no answer.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import aiohttp
import msgspec

from dalsegno.errors import Failed
from dalsegno.harness.providers import chat_answers
from dalsegno.harness.providers.sse import Events
from dalsegno.model.events import Usage
from dalsegno.orchestration.ports import Answer, InferenceError, Request

_OURS: Final = ("model", "messages", "tools", "stream")
_MASK: Final = b"[api key]"
_ERROR_BODY_BYTES: Final = 1 << 16


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """USD micros for a million tokens. ``cache_read``: of input tokens that came from a cache; None: as ``input``."""

    input: int
    output: int
    cache_read: int | None = None

    def cost(self, usage: Usage) -> int | None:
        """USD micros, rounded up; None where the server did not say how many tokens. Input tokens that came from a
        cache are among the input tokens."""
        if usage.input is None or usage.output is None:
            return None
        cached = 0 if self.cache_read is None else min(usage.cache_read or 0, usage.input)
        total = (usage.input - cached) * self.input + cached * (self.cache_read or 0) + usage.output * self.output
        return -(-total // 1_000_000)


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``base_url``: what stands before ``/chat/completions``. ``api_key_env``: the variable with the key; None: no key
    is sent. ``ca_file``: certificates, as PEM, of who may have signed the server's; None: of those whom this machine
    trusts, or of the variable SSL_CERT_FILE. ``silence_seconds``: the longest wait for the first byte, and between two.
    ``prices``: by model."""

    base_url: str
    api_key_env: str | None = None
    ca_file: str | None = None
    stream: bool = True
    connect_seconds: float = 10.0
    silence_seconds: float = 300.0
    max_body_bytes: int = 32 << 20
    prices: dict[str, Price] = msgspec.field(default_factory=dict)


class OpenAiHttp:
    """Fills ``Provider``. Raises Failed where the settings are wrong, the key's variable is empty, or ``ca_file`` holds
    no certificate."""

    def __init__(self, settings: Settings) -> None:
        if not re.fullmatch(r"https?://[^/@\s]+(/[^@\s?#]*)?", settings.base_url):
            raise _wrong("base_url is no http(s) URL, or holds credentials or a query")
        self._settings = settings
        self._url = settings.base_url.rstrip("/") + "/chat/completions"
        self._key = "" if settings.api_key_env is None else os.environ.get(settings.api_key_env, "").strip()
        if settings.api_key_env is not None and not re.fullmatch(r"[!-~]+", self._key):
            raise _wrong(f"the variable {settings.api_key_env} is empty, or holds what no HTTP header can")
        self._trust = _trust(settings.ca_file) if self._url.startswith("https:") else True

    def complete(self, request: Request) -> Answer:
        began = time.monotonic()
        answer = asyncio.run(self._ask(request, began))
        price = self._settings.prices.get(request.model)
        return replace(
            answer,
            latency_ms=_since(began),
            cost_usd_micros=None if price is None else price.cost(answer.usage),
        )

    async def _ask(self, request: Request, began: float) -> Answer:
        body = self._body(request)
        limits = aiohttp.ClientTimeout(
            total=request.timeout_seconds,
            connect=self._settings.connect_seconds,
            sock_read=self._settings.silence_seconds,
        )
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        try:
            async with (
                aiohttp.ClientSession(timeout=limits) as session,
                session.post(self._url, data=body, headers=headers, allow_redirects=False, ssl=self._trust) as response,
            ):
                if response.status != 200:
                    said = self._hidden(await _beginning(response))
                    raise chat_answers.error_of(response.status, said, retry_after_ms=retry_after_ms(response.headers))
                if response.content_type == "text/event-stream":
                    return await self._streamed(response, began)
                return chat_answers.whole(self._hidden(await self._all(response)))
        except TimeoutError as error:
            raise InferenceError("timeout", self._late(error, request), retryable=True) from error
        except aiohttp.ClientPayloadError as error:
            raise _torn(str(error)) from error
        except aiohttp.ClientConnectorCertificateError as error:
            why = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
            raise InferenceError("untrusted_certificate", _untrusted(self._url, why), retryable=False) from error
        except (aiohttp.ClientError, OSError) as error:
            found = self._hidden(f"{type(error).__name__}: {error}".encode()).decode()
            raise InferenceError("connection_failed", f"{self._url}: {found}", retryable=True) from error

    def _body(self, request: Request) -> bytes:
        if taken := [name for name in _OURS if name in request.params]:
            raise InferenceError(
                "bad_request", f"params hold {', '.join(taken)}, which the provider sets itself", retryable=False
            )
        body: dict[str, Any] = {**request.params, "model": request.model, "messages": request.messages}
        if request.tools:
            body["tools"] = request.tools
        if self._settings.stream:
            body = {"stream_options": {"include_usage": True}, **body, "stream": True}
        return msgspec.json.encode(body)

    async def _streamed(self, response: aiohttp.ClientResponse, began: float) -> Answer:
        """``raw`` is each event's data on a line of its own."""
        events, deltas = Events(), chat_answers.Deltas()
        lines: list[bytes] = []
        size, first, done = 0, None, False
        async for chunk in response.content.iter_any():
            size = self._bounded(size + len(chunk))
            for data in map(self._hidden, events.feed(chunk)):
                lines.append(data)
                done = done or data == b"[DONE]"
                if not done and deltas.feed(data) and first is None:
                    first = _since(began)
            if done:
                break
        if not done and (last := events.end()) is not None:
            lines.append(self._hidden(last))
            done = last == b"[DONE]"
            if not done:
                deltas.feed(lines[-1])
        # Some servers send no [DONE]; a reason to finish says as much.
        if not done and deltas.finish_reason is None:
            raise _torn(f"the stream ended after {len(lines)} events without saying that this is all")
        return replace(deltas.answer(b"\n".join(lines)), ttft_ms=first)

    async def _all(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            self._bounded(len(body))
        return bytes(body)

    def _bounded(self, size: int) -> int:
        limit = self._settings.max_body_bytes
        if size > limit:
            raise InferenceError("answer_too_large", f"the answer has more than {limit} bytes", retryable=False)
        return size

    def _hidden(self, text: bytes) -> bytes:
        """Some servers repeat the key that they refuse."""
        return text.replace(self._key.encode(), _MASK) if self._key else text

    def _late(self, error: TimeoutError, request: Request) -> str:
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return f"{self._url}: no connection in {self._settings.connect_seconds:g} s"
        if isinstance(error, aiohttp.SocketTimeoutError):
            return f"{self._url}: not a byte in {self._settings.silence_seconds:g} s"
        return f"{self._url}: no whole answer in {request.timeout_seconds:g} s"


def from_settings(settings: Mapping[str, Any]) -> OpenAiHttp:
    try:
        return OpenAiHttp(msgspec.convert(settings, Settings))
    except msgspec.ValidationError as error:
        raise _wrong(str(error)) from error


def retry_after_ms(headers: Mapping[str, str]) -> int | None:
    """RFC 9110, section 10.2.3: seconds or a date; None where there is none, or none that can be read."""
    given = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", given):
        return int(float(given) * 1000)
    try:
        when = parsedate_to_datetime(given)
    except ValueError:
        return None
    wait = (when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime.now(UTC)
    return max(0, int(wait.total_seconds() * 1000))


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    """Enough of an error's body to say what it is."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) >= _ERROR_BODY_BYTES:
            break
    return bytes(body[:_ERROR_BODY_BYTES])


def _since(began: float) -> int:
    return round((time.monotonic() - began) * 1000)


def _trust(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        raise _wrong(f"ca_file {ca_file}: no file of certificates (PEM): {error}") from error


def _untrusted(url: str, why: str) -> str:
    return (
        f"{url}: its certificate is not trusted: {why}; nothing was sent. To do: name the PEM file of who signed it by "
        "the setting ca_file, or by SSL_CERT_FILE; base_url must name a host that the certificate is for"
    )


def _torn(found: str) -> InferenceError:
    return InferenceError("torn_answer", f"the answer broke off: {found}", retryable=True)


def _wrong(found: str) -> Failed:
    return Failed(
        f"the settings of the openai provider: {found}",
        wanted=f"{', '.join(Settings.__struct_fields__)}",
        todo="correct them as docs/harness.md shows",
    )
