"""Streamed answers: parsing of events, completeness, and assembly into one answer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from stillweb.harness.models.tape import ModelError

# event types that end a Responses stream
_LAST = {"response.completed", "response.incomplete", "response.failed", "error"}


def read_stream(body: bytes) -> tuple[list[Any], bool]:
    """Return the values of a stream's events, and whether it ends with `[DONE]`.

    Raise ValueError for an event that is not JSON. An event without an empty line after it is ignored: the
    stream broke off in it.
    """
    events: list[Any] = []
    data: list[bytes] = []
    for line in body.splitlines():
        if line.startswith(b"data:"):
            data.append(line[5:].strip())
        elif not line and data:
            text, data = b"\n".join(data), []
            if text.startswith(b"[DONE]"):
                return events, True
            if text:
                events.append(json.loads(text))
    return events, False


def is_last(event: Any) -> bool:
    """Return True if an event says that its answer ends with it."""
    if not isinstance(event, dict):
        return False
    choices = event.get("choices")
    told = choices if isinstance(choices, list) else ()
    return event.get("type") in _LAST or any(isinstance(c, dict) and c.get("finish_reason") for c in told)


def chat_of(chunks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return one completion (the first choice) from the chunks of a stream."""
    whole: dict[str, Any] = {"choices": []}
    text: list[str] = []
    reasoning: list[str] = []
    calls: list[dict[str, Any]] = []
    open_calls: dict[int, dict[str, Any]] = {}  # by index, which some endpoints give to several calls
    finish: str | None = None
    seen = False
    for value in chunks:
        for name in ("model", "system_fingerprint", "usage"):
            if value.get(name):
                whole[name] = value[name]
        for choice in value.get("choices") or []:
            if choice.get("index"):
                continue  # another choice (parameter `n`)
            seen = True
            delta = choice.get("delta") or {}
            text.append(text_of(delta.get("content")) or "")
            reasoning.append(str(delta.get("reasoning_content") or delta.get("reasoning") or ""))
            finish = choice.get("finish_reason") or finish
            for part in delta.get("tool_calls") or []:
                index, call_id = part.get("index") or 0, part.get("id") or ""
                call = open_calls.get(index)
                if call is None or (call_id and call["id"] and call_id != call["id"]):
                    call = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
                    calls.append(call)
                    open_calls[index] = call
                call["id"] = call_id or call["id"]
                function = part.get("function") or {}
                call["function"]["name"] += function.get("name") or ""
                call["function"]["arguments"] += function.get("arguments") or ""
    if seen:
        message: dict[str, Any] = {"role": "assistant", "content": "".join(text) or None}
        if "".join(reasoning):
            message["reasoning_content"] = "".join(reasoning)
        if calls:
            message["tool_calls"] = calls
        whole["choices"] = [{"message": message, "finish_reason": finish}]
    return whole


def response_of(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the response in the last event of a stream. Raise ModelError if there is none."""
    for event in events:
        if event.get("type") == "error":
            raise ModelError(f"the endpoint's stream ended in an error: {event.get('message')}")
        if event.get("type") in _LAST:
            response: dict[str, Any] = event["response"]
            return response
    raise ModelError("the endpoint's stream ended without a response")


def text_of(content: Any) -> str | None:
    """Return the text of a message's content. Some endpoints send it in parts, mixed with reasoning."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if part.get("type") in ("text", "output_text")]
        return "".join(str(text) for text in texts if text) or None
    raise TypeError(f"content is {type(content).__name__}")
