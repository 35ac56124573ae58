"""Clients of Anthropic's Messages and of Gemini, each by its own SDK (optional extras), through the same tape.

Their requests are those of the API, as plain JSON: `AnthropicClient.messages(session, {"model": …, "max_tokens": …,
"messages": […]})`, `GeminiClient.generate(session, {"model": …, "contents": […], "config": {…}})`. What a model sends
with its answer (thinking blocks, signatures) is in the reply's `items`, whole, and is sent back so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any
from urllib.parse import quote

import httpx

from stillweb.harness.models.client import (
    ModelClient,
    Reply,
    SdkErrors,
    ToolRequest,
    Usage,
    check_reply,
)
from stillweb.harness.models.sse import check_number, read_stream
from stillweb.harness.models.tape import ModelError, Tape
from stillweb.harness.models.transport import SESSION_HEADER
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.extras import require


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
