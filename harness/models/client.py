"""Clients of models, each by its own SDK, through a tape: OpenAI-compatible endpoints, Anthropic's Messages, Gemini.

client = ModelClient(tape, base_url=…, key_variable="OPENAI_API_KEY")
reply = await client.chat(session, {"model": …, "messages": […], "tools": […]})
reply = await client.respond(session, {"model": …, "input": […]})
Judge(tape, {None: {"base_url": …, "key_variable": …}}).complete(messages, model, temperature)

Requests are those of the API, as plain JSON: `AnthropicClient.messages(session, {"model": …, "max_tokens": …,
"messages": […]})`, `GeminiClient.generate(session, {"model": …, "contents": […], "config": {…}})`. What a model sends
with its answer (thinking blocks, signatures) is in the reply's `items`, whole, and is sent back so.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import httpx

from stillweb.harness.models.sse import chat_of, check_number, read_stream, response_of, text_of, thoughts_of
from stillweb.harness.models.tape import CallInProgress, ModelError, Tape
from stillweb.harness.models.transport import REPLY, SESSION_HEADER, Retry, TapeTransport
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.extras import require
from stillweb.snapshots.secrets.redact import mask_value

Prices = Mapping[str, Mapping[str, float]]
# an SDK's errors: no connection, an error status, and any other
SdkErrors = tuple[type[Exception], type[Any], type[Exception]]
MOST_REPLY = 4_000_000  # characters of text, thoughts and tool calls
_JUDGE_CLOSED = "the judge was asked while the run was ending"


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """Tool call requested by a model; `arguments` are its text."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts reported by the endpoint; `cached` are part of `input`."""

    input: int = 0
    output: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer of a model. `items` must be sent back to it: one message, or the Responses items."""

    text: str | None
    tool_calls: tuple[ToolRequest, ...]
    items: tuple[dict[str, Any], ...]
    finish: str | None
    usage: Usage
    served: str | None
    fingerprint: str | None = None
    reasoning: str | None = None
    hosted: tuple[dict[str, Any], ...] = ()
    cost: float | None = None
    aside: dict[str, Any] = field(default_factory=dict)

    def members(self) -> dict[str, Any]:
        """Return the members of a `model` event: served, fingerprint, reply, usage, cost, aside."""
        reply: dict[str, Any] = {
            "text": self.text,
            "tool_calls": [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in self.tool_calls],
            "finish": self.finish,
        }
        if self.reasoning:
            reply["reasoning"] = self.reasoning
        if self.hosted:
            reply["hosted"] = list(self.hosted)
        usage = {"input": self.usage.input, "output": self.usage.output, "cached": self.usage.cached}
        return {
            "served": self.served,
            "fingerprint": self.fingerprint,
            "reply": reply,
            "usage": usage,
            "cost": self.cost,
            "aside": self.aside,
        }


def cost_of(usage: Usage, price: Mapping[str, float] | None) -> float | None:
    """Return the cost of a call at prices per million tokens, or None.

    None stands for an unknown price and for an impossible count, with more cached tokens than input.
    """
    if price is None or usage.cached > usage.input:
        return None
    fresh = usage.input - usage.cached
    cached = price.get("cached", price["input"])
    return round((fresh * price["input"] + usage.cached * cached + usage.output * price["output"]) / 1e6, 9)


class ModelClient:
    """Client of one endpoint.

    The key in the variable `key_variable` is needed only for calls that are not taped.
    """

    def __init__(
        self,
        tape: Tape,
        *,
        base_url: str = "https://api.openai.com/v1",
        key_variable: str = "OPENAI_API_KEY",
        timeout: float = 300.0,
        retry: Retry | None = None,
        prices: Prices | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        key = os.environ.get(key_variable, "")
        inner = transport or httpx.AsyncHTTPTransport(trust_env=False)
        self._tape = tape
        self._transport = TapeTransport(tape, key, key_variable, retry or Retry(), inner, self.check_answer)
        self._http = httpx.AsyncClient(transport=self._transport, timeout=timeout, follow_redirects=False)
        self._sdk = self.open_sdk(key or "none", base_url, self._http, timeout)
        self._prices = prices or {}

    def open_sdk(self, key: str, base_url: str, http: httpx.AsyncClient, timeout: float) -> Any:
        """Return the SDK's client over `http`, which makes no tries of its own."""
        from openai import AsyncOpenAI  # 1,200 modules, which an agent's own process does not need

        sdk = AsyncOpenAI(api_key=key, base_url=base_url, http_client=http, max_retries=0, timeout=timeout)
        # otherwise the SDK detects it on a thread, which would reorder concurrent first calls
        sdk._platform = "Unknown"
        return sdk

    @staticmethod
    def errors() -> SdkErrors:
        import openai

        return openai.APIConnectionError, openai.APIStatusError, openai.OpenAIError

    def check_answer(self, asked: bytes, body: bytes) -> Reply:
        """Return the reply in an answer. Raise ModelError for one that can't be read."""
        with check_reply(body):
            return self.read_answer(asked, body)

    @staticmethod
    def read_answer(asked: bytes, body: bytes) -> Reply:
        """Read the answer to a request, of either API, streamed or not. Raise what is wrong with its form."""
        request = json.loads(asked)
        if request.get("stream"):
            events, _ = read_stream(body)
            chat = any("choices" in event for event in events)
            value = chat_of(events) if chat else response_of(events)
        else:
            value = json.loads(body)
        if "output" in value:
            return _response_reply(value)
        return _chat_reply(value, sum(len(m.get("tool_calls") or ()) for m in request.get("messages", ())))

    def begin(self, session: str) -> CallInProgress:
        """Return a call that begins now; the caller makes it in `followed` and then takes or drops it."""
        return self._tape.begin(session)

    def stop(self, session: str, error: BaseException) -> None:
        """Raise `error` in all callers that wait for recorded answers of a session."""
        self._tape.stop(session, error)

    async def wait_until_idle(self, session: str) -> None:
        """Wait until the recorded calls of a session are made and answered.

        Raises the error passed to `stop`.
        """
        await self._tape.wait_until_idle(session)

    def end(self, session: str) -> None:
        """End a session: calls under way are kept as unanswered, and their callers wait no longer."""
        self._tape.end(session)

    async def close(self) -> None:
        await self._sdk.close()

    async def chat(self, session: str, body: Mapping[str, Any]) -> Reply:
        """Make one Chat Completions call. Raise ModelError or TapeMiss if there is no answer."""
        return await self._ask("/chat/completions", session, body)

    async def respond(self, session: str, body: Mapping[str, Any]) -> Reply:
        """Make one Responses call. Raise ModelError or TapeMiss if there is no answer."""
        return await self._ask("/responses", session, body)

    async def _ask(self, path: str, session: str, body: Mapping[str, Any]) -> Reply:
        begin = time.perf_counter()
        no_connection, refused, failed = self.errors()
        options = {"headers": {SESSION_HEADER: quote(session)}}
        sent = {**body, **(body.get("extra_body") or {})}  # as the SDK's own methods take it
        sent.pop("extra_body", None)
        try:
            # the SDK's own methods would send no member that it does not know, and make objects of the answer
            answer: httpx.Response = await self._sdk.post(
                path, cast_to=httpx.Response, body=_encodable(sent), options=options
            )
        except no_connection as error:
            if isinstance(error.__cause__, StillwebError):
                raise error.__cause__ from None
            raise ModelError(f"{mask_value(str(self._sdk.base_url))}: {error.__cause__ or error}") from error
        except refused as error:
            text = f"{mask_value(str(error.request.url))}: status {error.status_code}: {error.message[:500]}"
            if error.status_code in (400, 422) and (name := _refused_parameter(error, body)):
                raise ParameterRefused(text, name) from error
            raise ModelError(text) from error
        except failed as error:
            raise ModelError(f"{mask_value(str(self._sdk.base_url))}: {error}") from error
        reply = answer.extensions.get(REPLY) or self.check_answer(answer.request.content, answer.content)
        return self._finish(body, reply, begin)

    def _finish(self, body: Mapping[str, Any], reply: Reply, begin: float) -> Reply:
        _check_length(
            reply.text, reply.reasoning, *(part for c in reply.tool_calls for part in (c.name, c.arguments))
        )
        counted = reply.usage != Usage()  # without a usage report the cost is unknown, not zero
        price = self._prices.get(str(body.get("model"))) if counted else None
        aside = {"seconds": round(time.perf_counter() - begin, 6)}
        return replace(reply, cost=cost_of(reply.usage, price), aside=aside)


def _check_length(*texts: str | None) -> None:
    size = sum(len(text or "") for text in texts)
    if size > MOST_REPLY:
        raise ModelError(f"the endpoint's answer has {size:,} characters; at most {MOST_REPLY:,} are taken")


class ParameterRefused(ModelError):
    """Error for an endpoint that refuses a parameter of the request, `name`."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name


def _refused_parameter(error: Any, body: Mapping[str, Any]) -> str | None:
    """Return the parameter that an endpoint's error names, of those that a request can do without."""
    optional = [name for name in body if name not in ("model", "messages", "input", "tools")]
    named = getattr(error, "param", None)
    if named in optional:
        return str(named)
    return next(
        (name for name in optional if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", error.message)), None
    )


def _encodable(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a request that UTF-8 can encode: lone surrogates, e.g. from scripts of pages, become U+FFFD."""
    text = json.dumps(body, ensure_ascii=False)
    try:
        text.encode()
        return body
    except UnicodeEncodeError:
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return dict(json.loads(whole))


@contextlib.contextmanager
def check_reply(result: Any) -> Iterator[None]:
    """Raise ModelError for an answer that doesn't have the API's form: endpoints are foreign code."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"the endpoint's answer can't be read ({type(error).__name__}: {error}): {str(result)[:300]}"
        ) from error


def _called(call: dict[str, Any]) -> ToolRequest:
    name, arguments = call["function"]["name"], call["function"].get("arguments") or ""
    if not isinstance(name, str) or not name:
        raise TypeError(f"tool call {call['id']!r} names no function")
    if not isinstance(arguments, str):  # some endpoints send the object itself
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolRequest(call["id"], name, arguments)


def _identified(calls: list[dict[str, Any]], before: int) -> list[dict[str, Any]]:
    """Return the tool calls with an id each, made from the number of calls `before` where it is missing.

    A repeated id counts as missing: each result must find its call.
    """
    found: dict[str, dict[str, Any]] = {}
    for number, call in enumerate(calls, before):
        call_id = str(call.get("id") or "")
        if not call_id or call_id in found:
            call_id = f"call_{number}"
        found[call_id] = {**call, "id": call_id}
    return list(found.values())


# Marks of thoughts that a model writes into its content, where the endpoint doesn't take them out; the last are those
# of Gemma 4 and of the Harmony format, whose messages name a channel each.
_NAME = r"(?:\w+:)?(?:think|thinking|thought|reasoning)"
_THOUGHTS = re.compile(
    rf"\s*(?:<({_NAME})>(.*?)(?:</\1>|\Z)|\[THINK\](.*?)(?:\[/THINK\]|\Z)|◁think▷(.*?)(?:◁/think▷|\Z)"
    r"|<\|channel>thought\b(.*?)(?:<channel\|>|\Z)"
    r"|(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)<\|message\|>(.*?)(?:<\|end\|>|\Z))",
    re.S | re.I,
)
_FINAL = re.compile(
    r"\s*(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>(.*?)(?:<\|(?:return|end)\|>.*)?", re.S
)
# Chat templates that open the thoughts themselves leave only the closing mark in the content.
_OPENING = rf"<{_NAME}>|\[THINK\]|◁think▷"
_CLOSED = re.compile(rf"((?:(?!{_OPENING}).)*?)(?:</{_NAME}>|\[/THINK\]|◁/think▷)", re.S | re.I)

_BEGINNING = re.compile(rf"^[ \t]*<({_NAME})>", re.I | re.M)  # behind a first sentence
_END = re.compile(rf"</({_NAME})>\s*", re.I)


def split_thoughts(text: str | None) -> tuple[str | None, str | None]:
    """Return the thoughts that begin a text or a line of it, and the answer without them; None for an empty part.

    Raise ModelError for a text that is too long: the patterns take 70 bytes for each character.
    """
    _check_length(text)
    thoughts: list[str] = []
    whole, at = text or "", 0
    while found := _THOUGHTS.match(whole, at) or (None if thoughts else _CLOSED.match(whole)):
        thoughts.append(next((part for part in found.groups()[::-1] if part is not None), "").strip())
        at = found.end()
    later, rest = _split_later(whole[at:])
    thoughts += later
    if final := _FINAL.fullmatch(rest):
        rest = final[1]
    elif not thoughts:
        return None, text
    return "\n".join(filter(None, thoughts)) or None, rest.strip() or None


def _split_later(text: str) -> tuple[list[str], str]:
    """Return the thoughts that begin lines, and the text without them, in linear time."""
    ends: dict[str, list[re.Match[str]]] = {}
    for end in _END.finditer(text):
        ends.setdefault(end[1].lower(), []).append(end)
    thoughts: list[str] = []
    rest: list[str] = []
    at = 0
    for beginning in _BEGINNING.finditer(text):
        closing = ends.get(beginning[1].lower(), ())
        first = bisect_left(closing, beginning.end(), key=re.Match.start)
        if beginning.start() >= at and first < len(closing):
            thoughts.append(text[beginning.end() : closing[first].start()].strip())
            rest.append(text[at : beginning.start()])
            at = closing[first].end()
    return thoughts, "".join(rest) + text[at:]


def _word(value: Any) -> str | None:
    return None if value is None else str(value)


def _chat_reply(completion: dict[str, Any], before: int = 0) -> Reply:
    """Return the reply of a completion; `before` counts the tool calls earlier in the conversation."""
    choices = completion.get("choices") or []
    if not choices or not isinstance(choices[0].get("message"), dict):
        raise ModelError(f"the endpoint's answer holds no choices: {str(completion)[:300]}")
    check_number(choices, "choices")
    message = {name: value for name, value in choices[0]["message"].items() if value is not None}
    message = {"role": "assistant", "content": None, **message}
    check_number(message["content"], "parts")
    if message.get("tool_calls"):
        check_number(message["tool_calls"], "tool calls")
        message["tool_calls"] = _identified(message["tool_calls"], before)
    calls = tuple(map(_called, message.get("tool_calls") or []))
    thoughts, text = split_thoughts(text_of(message["content"]))
    reasoning = message.get("reasoning_content") or message.get("reasoning") or thoughts_of(message)
    usage = completion.get("usage") or {}
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Reply(
        text or text_of(message.get("refusal")),
        calls,
        (message,),
        _word(choices[0].get("finish_reason")),
        Usage(int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0), int(cached)),
        _word(completion.get("model")),
        _word(completion.get("system_fingerprint")),
        "\n".join(filter(None, (_word(reasoning), thoughts))) or None,
    )


def _response_reply(response: dict[str, Any]) -> Reply:
    if response.get("error"):
        raise ModelError(f"the endpoint's response failed: {response['error']}")
    if not isinstance(response.get("output"), list):
        raise ModelError(f"the endpoint's answer holds no output: {str(response)[:300]}")
    check_number(response["output"], "items")
    texts: list[str] = []
    calls: list[ToolRequest] = []
    hosted: list[dict[str, Any]] = []
    summaries: list[str] = []
    for item in response["output"]:
        if item.get("type") == "message":
            texts += [
                str(part.get("text") or part.get("refusal") or "") for part in item.get("content") or []
            ]
        elif item.get("type") == "function_call":
            calls.append(_called({"id": item["call_id"], "function": item}))
        elif item.get("type") == "reasoning":
            summaries += [
                str(part.get("text") or "")
                for part in (*(item.get("summary") or ()), *(item.get("content") or ()))
            ]
        elif str(item.get("type", "")).endswith("_call"):
            hosted.append(item)
    usage = response.get("usage") or {}
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens") or 0
    thoughts, text = split_thoughts("".join(texts))
    status = _word(response.get("status"))
    if status == "incomplete":
        status = _word((response.get("incomplete_details") or {}).get("reason")) or status
    return Reply(
        text or None,
        tuple(calls),
        tuple(response["output"]),
        status,
        Usage(int(usage.get("input_tokens") or 0), int(usage.get("output_tokens") or 0), int(cached)),
        _word(response.get("model")),
        reasoning="\n".join(filter(None, (*summaries, thoughts))) or None,
        hosted=tuple(hosted),
    )


class Judge:
    """Judge models, for synchronous code. Calls run on an event loop in a separate thread.

    `endpoints` maps a model's name to {"base_url", "key_variable", "params"}; None stands for all other models.
    `params` are further members of its requests, over the scorer's temperature; one that is None is not sent.
    A parameter that an endpoint refuses is left out, and the question asked again. Each session finds that out
    for itself, so that a repetition makes the same calls whatever the order of attempts.
    """

    def __init__(
        self, tape: Tape, endpoints: Mapping[str | None, Mapping[str, Any]], *, prices: Prices | None = None
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="stillweb-judge", daemon=True)
        self._thread.start()
        self._params = {name: dict(each.get("params") or {}) for name, each in endpoints.items()}
        self._clients = {
            name: ModelClient(tape, prices=prices, **{k: v for k, v in each.items() if k != "params"})
            for name, each in endpoints.items()
        }
        self._left_out: dict[tuple[str, str], list[str]] = {}  # by session and model
        self._lock = threading.Lock()
        self._asked: set[Future[Reply]] = set()
        self._closed = False

    def complete(self, messages: Sequence[Mapping[str, Any]], model: str, temperature: float) -> str:
        """Return the text of the model's answer, "" if it is empty."""
        return str(self.ask(messages, model, temperature, "judge")["reply"]["text"] or "")

    def ask(
        self, messages: Sequence[Mapping[str, Any]], model: str, temperature: float, session: str
    ) -> dict[str, Any]:
        """Return the members of a `model` event for the judge's answer, with what was `left_out` of the request."""
        client = self._clients.get(model) or self._clients.get(None)
        if client is None:
            raise ModelError(f"no endpoint is known for the judge {model!r}")
        params = {"temperature": temperature, **self._params[model if model in self._clients else None]}
        body = {"model": model, "messages": [dict(m) for m in messages]}
        body |= {name: value for name, value in params.items() if value is not None and name not in body}
        left_out = self._left_out.setdefault((session, model), [])
        while True:
            sent = {name: value for name, value in body.items() if name not in left_out}
            try:
                reply = self._call(client, f"{session}/judge", sent)
            except ParameterRefused as error:
                left_out.append(error.name)
                continue
            note = {"left_out": list(left_out)} if left_out else {}
            return {**reply.members(), **note}

    def _call(self, client: ModelClient, session: str, body: Mapping[str, Any]) -> Reply:
        with self._lock:
            if self._closed:
                raise ModelError(_JUDGE_CLOSED)
            future = asyncio.run_coroutine_threadsafe(client.chat(session, body), self._loop)
            self._asked.add(future)
        try:
            return future.result()
        except CancelledError:
            raise ModelError(_JUDGE_CLOSED) from None
        finally:
            with self._lock:
                self._asked.discard(future)

    def close(self) -> None:
        """Close connections and end the thread. Waiting and later callers get a ModelError."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            waiting = list(self._asked)
        for future in waiting:
            future.cancel()
        for client in self._clients.values():
            asyncio.run_coroutine_threadsafe(client.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def client_of(provider: str, tape: Tape, **options: Any) -> ModelClient:
    """Return a client of a provider: openai, anthropic or gemini. Raise MissingCapability without its SDK."""
    kinds = {"openai": ModelClient, "anthropic": AnthropicClient, "gemini": GeminiClient}
    return kinds[provider](tape, **options)


class AnthropicClient(ModelClient):
    """Client of Anthropic's Messages API."""

    def open_sdk(self, key: str, base_url: str, http: httpx.AsyncClient, timeout: float) -> Any:
        """Return the SDK's client over `http`, which makes no tries of its own."""
        sdk = require("anthropic").AsyncAnthropic(
            api_key=key, base_url=base_url, http_client=http, max_retries=0, timeout=timeout
        )
        sdk._platform = "Unknown"  # as in ModelClient
        return sdk

    @staticmethod
    def errors() -> SdkErrors:
        sdk = require("anthropic")
        return sdk.APIConnectionError, sdk.APIStatusError, sdk.AnthropicError

    @staticmethod
    def read_answer(asked: bytes, body: bytes) -> Reply:
        """Read the answer to a request, streamed or not. Raise what is wrong with its form."""
        streamed = json.loads(asked).get("stream")
        return _message_reply(message_of(read_stream(body)[0]) if streamed else json.loads(body))

    async def messages(self, session: str, body: Mapping[str, Any]) -> Reply:
        """Make one call. Raise ModelError or TapeMiss if there is no answer."""
        return await self._ask("/v1/messages", session, body)


class GeminiClient(ModelClient):
    """Client of Gemini's generateContent."""

    def open_sdk(self, key: str, base_url: str, http: httpx.AsyncClient, timeout: float) -> Any:
        """Return the SDK's client over `http`, which makes no tries of its own."""
        genai = require("google.genai")
        options = genai.types.HttpOptions(
            base_url=base_url, httpx_async_client=http, timeout=int(timeout * 1000)
        )
        return genai.Client(api_key=key, vertexai=False, http_options=options)

    @staticmethod
    def read_answer(asked: bytes, body: bytes) -> Reply:
        """Read the answer to a request, streamed or not. Raise what is wrong with its form."""
        streamed = body.lstrip().startswith(b"data:")
        return _candidate_reply(content_of(read_stream(body)[0]) if streamed else json.loads(body))

    async def close(self) -> None:
        await self._http.aclose()

    async def generate(self, session: str, body: Mapping[str, Any]) -> Reply:
        """Make one call; `stream` is a member of `body`. Raise ModelError or TapeMiss if there is no answer."""
        begin = time.perf_counter()
        genai = require("google.genai")
        types, models = genai.types, self._sdk.aio.models
        # JSON, since signatures are bytes, which the SDK reads from base64 in JSON alone
        contents = [types.Content.model_validate_json(json.dumps(one)) for one in body["contents"]]
        config = types.GenerateContentConfig.model_validate_json(json.dumps(body.get("config") or {}))
        config.http_options = types.HttpOptions(headers={SESSION_HEADER: quote(session)})
        config.automatic_function_calling = types.AutomaticFunctionCallingConfig(disable=True)
        given = {"model": body["model"], "contents": contents, "config": config}
        try:
            if body.get("stream"):
                chunks = [_json(chunk) async for chunk in await models.generate_content_stream(**given)]
                answer = content_of(chunks)
            else:
                answer = _json(await models.generate_content(**given))
        except StillwebError:
            raise
        except genai.errors.APIError as error:
            raise ModelError(f"gemini: status {error.code}: {str(error.message)[:500]}") from error
        except (httpx.HTTPError, ValueError) as error:
            raise ModelError(f"gemini: {type(error).__name__}: {error}") from error
        with check_reply(answer):
            reply = _candidate_reply(answer)
        return self._finish(body, reply, begin)


def _json(result: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = json.loads(
        result.model_dump_json(exclude_none=True, by_alias=True, exclude={"sdk_http_response", "parsed"})
    )
    return dumped


def message_of(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the message of a stream's events. Raise ModelError if they end before it does."""
    message: dict[str, Any] = {}
    texts: dict[int, str] = {}  # arguments of tool calls so far, by block
    for event in events:
        kind = event.get("type")
        if kind == "error":
            raise ModelError(f"the endpoint's stream ended in an error: {event.get('error')}")
        if kind == "message_start":
            message = deepcopy(event["message"])
        elif kind == "content_block_start":
            message["content"].append(deepcopy(event["content_block"]))
        elif kind == "content_block_delta":
            delta, block = event["delta"], message["content"][event["index"]]
            if delta["type"] == "input_json_delta":
                texts[event["index"]] = texts.get(event["index"], "") + delta["partial_json"]
            elif delta["type"] == "citations_delta":
                block.setdefault("citations", []).append(delta["citation"])
            else:
                (name,) = [one for one in delta if one != "type"]
                block[name] = (block.get(name) or "") + delta[name]
        elif kind == "message_delta":
            message |= event["delta"]
            message["usage"] = {**message.get("usage", {}), **(event.get("usage") or {})}
        elif kind == "message_stop":
            for index, text in texts.items():
                message["content"][index]["input"] = _input(text)
            return message
    raise ModelError("the endpoint's stream ended before its message did")


def _input(text: str) -> Any:
    """Return the arguments of a tool call, as text where the limit of tokens cut them off."""
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text


def _message_reply(message: dict[str, Any]) -> Reply:
    blocks = message.get("content")
    if not isinstance(blocks, list) or message.get("role") != "assistant":
        raise ModelError(f"the endpoint's answer is not a message: {str(message)[:300]}")
    check_number(blocks, "blocks")
    usage = message.get("usage") or {}
    cached = int(usage.get("cache_read_input_tokens") or 0)
    fresh = int(usage.get("input_tokens") or 0) + int(usage.get("cache_creation_input_tokens") or 0)
    texts = [str(block["text"]) for block in blocks if block["type"] == "text"]
    thoughts = [str(block["thinking"]) for block in blocks if block["type"] == "thinking"]
    return Reply(
        "".join(texts) or None,
        tuple(
            ToolRequest(block["id"], block["name"], _written(block["input"]))
            for block in blocks
            if block["type"] == "tool_use"
        ),
        ({"role": "assistant", "content": [_as_taken(block) for block in blocks]},),
        message.get("stop_reason"),
        Usage(fresh + cached, int(usage.get("output_tokens") or 0), cached),
        message.get("model"),
        reasoning="\n".join(filter(None, thoughts)) or None,
        hosted=tuple(block for block in blocks if block["type"] == "server_tool_use"),
    )


def _written(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _as_taken(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block as the API takes it back: a tool call has an object for arguments."""
    return {**block, "input": {}} if isinstance(block.get("input"), str) else block


def content_of(chunks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return one answer with all that the chunks of a Gemini stream hold; texts that follow each other are joined."""
    whole: dict[str, Any] = {}
    parts: list[dict[str, Any]] = []
    candidate: dict[str, Any] = {}
    for chunk in chunks:
        whole |= {name: value for name, value in chunk.items() if name != "candidates"}
        for one in (chunk.get("candidates") or [])[:1]:
            candidate |= {name: value for name, value in one.items() if name != "content"}
            for part in (one.get("content") or {}).get("parts") or []:
                last = parts[-1] if parts else {}
                plain = "text" in part and "text" in last and "thoughtSignature" not in last
                if plain and part.get("thought") == last.get("thought"):
                    parts[-1] = {**last, **part, "text": last["text"] + part["text"]}
                else:
                    parts.append(dict(part))
    if "finishReason" not in candidate and "promptFeedback" not in whole:
        raise ModelError("the endpoint's stream ended before its answer did")
    return {**whole, "candidates": [{**candidate, "content": {"role": "model", "parts": parts}}]}


def _candidate_reply(answer: dict[str, Any]) -> Reply:
    candidates = answer.get("candidates") or []
    if not candidates:
        raise ModelError(f"the endpoint's answer holds no candidates: {str(answer)[:300]}")
    content = {"role": "model", "parts": [], **(candidates[0].get("content") or {})}
    check_number(candidates, "candidates")
    check_number(content["parts"], "parts")
    calls: list[ToolRequest] = []
    texts: list[str] = []
    thoughts: list[str] = []
    for part in content["parts"]:
        if call := part.get("functionCall"):
            arguments = json.dumps(call.get("args") or {}, ensure_ascii=False)
            calls.append(ToolRequest(str(call.get("id") or f"call_{len(calls)}"), call["name"], arguments))
        elif "text" in part:
            (thoughts if part.get("thought") else texts).append(part["text"])
    usage = answer.get("usageMetadata") or {}
    output = int(usage.get("candidatesTokenCount") or 0) + int(usage.get("thoughtsTokenCount") or 0)
    cached = int(usage.get("cachedContentTokenCount") or 0)
    return Reply(
        "".join(texts) or None,
        tuple(calls),
        (content,) if content["parts"] else (),
        candidates[0].get("finishReason"),
        Usage(int(usage.get("promptTokenCount") or 0), output, cached),
        answer.get("modelVersion"),
        reasoning="\n".join(thoughts) or None,
    )
