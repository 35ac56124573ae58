"""Transport to a model endpoint: from the tape if the call is there, else over HTTP with bounded retries.

The wait between tries doubles from `Retry.base` seconds up to `Retry.cap`. It is spread by the request's own
hash (no random number) and follows Retry-After up to the cap. An unusable response (an HTML page, a broken or
empty body, a 429 or 5xx on the last try) is a named error and never goes on the tape.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from hashlib import sha256
from math import isfinite
from typing import Any
from urllib.parse import unquote

import httpx

from stillweb.harness.models.sse import is_last, read_stream
from stillweb.harness.models.tape import (
    FAILED,
    GIVEN_UP,
    Call,
    EndpointResponse,
    ModelError,
    Tape,
    call_in_progress,
    kept_headers,
)
from stillweb.proxy.net.isolation import is_isolated
from stillweb.snapshots.errors import MissingCapability
from stillweb.snapshots.secrets.redact import Redactor, mask_value
from stillweb.snapshots.words import pluralize

_AGAIN = {408, 409, 425, 429}  # and all 5xx
_CONFIGURATION = {401, 402, 403, 407}  # errors that the caller must fix; not part of a model's behaviour
# Shorter keys are the placeholders of local servers (EMPTY, none, ollama, lm-studio), not secrets. Masking
# them would cut these words out of questions and answers.
_SECRET = 12
MOST_BODY = 64 << 20  # bytes of an answer; a stream has some 200 for each token
SESSION_HEADER = "x-stillweb-session"
REPLY = "stillweb_reply"  # extension of a response: what was read of an answer that is not from the tape


@dataclass(frozen=True, slots=True)
class Retry:
    """Number of tries in all, and the wait between them in seconds."""

    tries: int = 5
    base: float = 0.5
    cap: float = 30.0

    def delay(self, number: int, key: str, asked: str | None) -> float:
        """Return the seconds before the next try, after `number` failed ones."""
        spread = int(sha256(f"{key}{number}".encode()).hexdigest()[:8], 16) / 0xFFFFFFFF
        wait: float = min(self.cap, self.base * 2.0 ** (number - 1)) * (0.5 + spread / 2)
        return min(max(wait, retry_after(asked)), self.cap)


def retry_after(asked: str | None) -> float:
    """Return the wait that a Retry-After asks for (seconds or a date), 0 for any other value."""
    try:
        seconds = float(asked or 0)
        return seconds if isfinite(seconds) else 0.0
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(asked or "")
    except ValueError:
        return 0.0
    return (until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds()


class TapeTransport(httpx.AsyncBaseTransport):
    """Transport for httpx that looks on the tape before it uses the real transport."""

    def __init__(
        self,
        tape: Tape,
        key: str,
        key_variable: str,
        retry: Retry,
        inner: httpx.AsyncBaseTransport,
        check_answer: Callable[[bytes, bytes], object],
    ) -> None:
        self._tape, self._key, self._key_variable = tape, key, key_variable
        self._secrets = [key] if len(key) >= _SECRET else []
        self._retry, self._inner, self._check_answer = retry, inner, check_answer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer from the tape or the endpoint. Raise TapeMiss or ModelError."""
        body = await request.aread()
        self._learn(str(request.url))
        call = Call(
            unquote(request.headers.pop(SESSION_HEADER, "default")),
            request.method,
            self._hide(mask_value(str(request.url))),
            self._hide_bytes(body),
            kept_headers(list(request.headers.items())),
        )
        taking = call_in_progress()
        ticket, kept, taken = self._tape.make(call, taking.begin if taking else 0), None, True
        reply: object = None
        try:
            answer = await self._tape.answer(ticket)
            if answer is None:
                answer = await self._ask(request, call)
                if answer.status < 400:
                    reply = self._check_answer(body, answer.body)
                if answer.status not in _CONFIGURATION:
                    kept = answer
            if taking is not None:
                taking.note_answer(ticket, kept)
                taken = False
            elif kept is not None:
                self._tape.keep(ticket, kept)
        except asyncio.CancelledError:
            self._tape.keep_unanswered(ticket, GIVEN_UP)
            raise
        except ModelError as error:
            self._tape.keep_unanswered(ticket, FAILED, str(error))
            raise
        finally:
            if taken:
                self._tape.done(ticket)
        return httpx.Response(
            answer.status, headers=list(answer.headers), content=answer.body, extensions={REPLY: reply}
        )

    async def _ask(self, request: httpx.Request, call: Call) -> EndpointResponse:
        if not self._key and self._key_variable:
            raise MissingCapability(
                f"{call.url}: the variable {self._key_variable} holds no key, and this call is not on the tape; "
                "set it, or name another with key_variable in the agent's YAML file ('' for an endpoint without keys)"
            )
        request.headers["accept-encoding"] = "identity"
        seconds: float | None = request.extensions.get("timeout", {}).get("read")
        number = 0
        while True:
            number += 1
            asked: str | None = None
            try:
                # a read timeout never fires for an endpoint that sends a few bytes at a time
                async with asyncio.timeout(seconds):
                    response = await self._inner.handle_async_request(request)
                    content = bytearray()
                    try:
                        async for piece in response.aiter_bytes():
                            content += piece
                            if len(content) > MOST_BODY:
                                raise ModelError(f"{call.url}: sent more than {MOST_BODY >> 20} MB")
                    finally:
                        await response.aclose()
                asked = response.headers.get("retry-after")
                problem = _problem(response, bytes(content))
            except (httpx.TimeoutException, TimeoutError) as error:
                problem = f"timed out ({type(error).__name__})"
            except httpx.ConnectError as error:
                if is_isolated():
                    raise MissingCapability(
                        f"{call.url}: this call is not on the tape, and --isolate leaves a way to no endpoint "
                        "but the agent's own on this machine; run it without, or replay a tape that has every call"
                    ) from error
                problem = f"{type(error).__name__}: {error}"
            except (httpx.TransportError, httpx.DecodingError) as error:
                problem = f"{type(error).__name__}: {error}"
            if problem is None:
                headers = kept_headers(list(response.headers.items()))
                return EndpointResponse(response.status_code, headers, self._hide_bytes(bytes(content)))
            if number >= self._retry.tries:
                raise ModelError(f"{call.url}: {self._hide(problem)} (tried {pluralize(number, 'time')})")
            await asyncio.sleep(self._retry.delay(number, call.key, asked))

    def _learn(self, url: str) -> None:
        """Remember the secrets of an endpoint's URL, which its answers may repeat."""
        found = Redactor(b"")
        found.url(url)
        for secret in found.secrets:
            if len(secret) >= _SECRET and secret not in self._secrets:
                self._secrets.append(secret)

    def _hide(self, text: str) -> str:
        return self._hide_bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def _hide_bytes(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret.encode(), b"[key]")
        return data

    async def aclose(self) -> None:
        await self._inner.aclose()


def _problem(response: httpx.Response, content: bytes) -> str | None:
    """Return why a response is not an answer, or None."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    start = content[:120].decode("utf-8", "replace").strip()
    if response.status_code in _AGAIN or response.status_code >= 500:
        return f"status {response.status_code}: {start}"
    if kind == "text/event-stream":
        if b"data:" not in content:
            return "sent an empty event stream"
        try:
            events, done = read_stream(content)
        except (ValueError, RecursionError):
            return f"sent an event stream that is not JSON: {start!r}"
        if error := next(filter(None, map(_error, events)), None):
            return error
        return None if done or any(map(is_last, events)) else "sent an event stream that breaks off"
    if kind == "text/html" or start[:15].lower().startswith(("<!doctype", "<html")):
        return f"sent HTML where JSON was expected (status {response.status_code}): {start!r}"
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return f"sent no JSON (status {response.status_code}): {start!r}" if content else "sent an empty body"
    return _error(value) if response.status_code < 400 else None


def _error(value: Any) -> str | None:
    """Return the error in a response or event of status 200, or None.

    Some gateways report errors this way.
    """
    if not isinstance(value, dict):
        return None
    response = value.get("response")
    told = value.get("error") or (response.get("error") if isinstance(response, dict) else None)
    choices = value.get("choices")
    failed = isinstance(choices, list) and any(
        isinstance(choice, dict) and choice.get("finish_reason") == "error" for choice in choices
    )
    failed = failed or ("output" in value and value.get("status") in ("failed", "cancelled"))
    if told or failed or value.get("type") in ("error", "response.failed"):
        return f"sent an error in place of an answer: {json.dumps(told or value)[:200]}"
    return None
