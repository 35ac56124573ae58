"""Streamed answers: parsing of events, completeness, and assembly into one answer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from stillweb.harness.models.tape import ModelError

MOST_ITEMS = 1000  # of each list of an answer: choices, tool calls, parts
# event types that end a stream of Responses, or of Anthropic's Messages
_LAST = {"response.completed", "response.incomplete", "response.failed", "error", "message_stop"}


def check_number(items: Any, name: str) -> None:
    """Raise ModelError for a list that is longer than is taken."""
    if isinstance(items, list) and len(items) > MOST_ITEMS:
        raise ModelError(f"the endpoint's answer has {len(items):,} {name}; at most {MOST_ITEMS:,} are taken")


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
    listed = choices if isinstance(choices, list) else ()
    listed = [*listed, *(event.get("candidates") or ())]
    return event.get("type") in _LAST or any(
        isinstance(c, dict) and (c.get("finish_reason") or c.get("finishReason")) for c in listed
    )


# String members of a delta that name or sign an object; all other strings are text that grows by the chunk.
_NAMES = {"role", "id", "type", "name", "format", "status", "signature", "thought_signature"}


def chat_of(chunks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return one completion (the first choice) with all members that the chunks of a stream hold."""
    whole: dict[str, Any] = {"choices": []}
    message: dict[str, Any] = {}
    calls: list[dict[str, Any]] = []
    finish: str | None = None
    seen = False
    for value in chunks:
        choices = [choice for choice in value.get("choices") or [] if not choice.get("index")]
        for source in (*choices, value):  # some endpoints report the usage in the choice
            for name in ("model", "system_fingerprint", "usage"):
                if source.get(name):
                    whole[name] = source[name]
        for choice in choices:
            seen = True
            finish = choice.get("finish_reason") or finish
            delta = dict(choice.get("delta") or choice.get("message") or {})  # some send it whole
            for part in delta.pop("tool_calls", None) or []:
                _add_call(calls, part)
            _grow(message, delta)
    if seen:
        message = {"role": "assistant", **message, "content": message.get("content") or None}
        if calls:
            message["tool_calls"] = [
                {name: value for name, value in call.items() if name != "index"} for call in calls
            ]
        whole["choices"] = [{"message": message, "finish_reason": finish}]
    return whole


def _add_call(calls: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """Add a part of a tool call to the call that it continues, or begin a new call with it.

    Endpoints differ: several calls share an index or have none, ids are missing, or each part repeats the
    name. A call ends when its arguments are whole and another part brings arguments of its own.
    """
    call_id, index = part.get("id"), part.get("index")
    part = {**part, "function": dict(part.get("function") or {})}
    arguments = part["function"].get("arguments")
    if arguments is not None and not isinstance(arguments, str):  # some endpoints send the object itself
        part["function"]["arguments"] = arguments = json.dumps(arguments, ensure_ascii=False)
    for call in reversed(calls):
        if index is not None and call.get("index") not in (None, index):
            continue
        if call_id and call.get("id") and call["id"] != call_id:
            continue
        begins = (arguments or "").lstrip().startswith("{")
        whole = _parsed(call["function"].get("arguments") or "") if begins else None
        if isinstance(whole, dict):
            is_other = bool(part["function"].get("name")) and not (call_id and _parsed(arguments) == whole)
            if is_other and not (call_id and whole == {}):
                break
            # else the end of the stream repeats the call, or an empty object held the place of its arguments
            call["function"]["arguments"] = ""
        _grow(call, part)
        return
    calls.append({"id": "", "type": "function", **part})
    check_number(calls, "tool calls")


def _parsed(text: str) -> Any:
    """Return the JSON value of a text; None if it is not whole."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _grow(whole: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add the members of a delta to those that came before it."""
    for name, new in delta.items():
        old = whole.get(name)
        if new is None or new == "":
            whole.setdefault(name, new)
        elif old is None or old == "":
            whole[name] = deepcopy(new)
        elif isinstance(old, dict) and isinstance(new, dict):
            _grow(old, new)
        elif isinstance(old, list) or isinstance(new, list):
            whole[name] = parts = _as_parts(old)
            for part in _as_parts(new):
                _add_part(parts, part)
        elif isinstance(old, str) and isinstance(new, str):
            again = name in _NAMES and new.startswith(old)
            whole[name] = new if again else old + new
        else:
            whole[name] = new


def _as_parts(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [{"type": "text", "text": value}]


def _add_part(parts: list[Any], part: Any) -> None:
    """Add an entry of a list member: a continuation of its last entry if type and index are the same."""
    last = parts[-1] if parts else None
    if (
        isinstance(last, dict)
        and isinstance(part, dict)
        and all(last.get(name) == part.get(name) for name in ("type", "index"))
        and not (last.get("id") and part.get("id") and last["id"] != part["id"])
        and ("index" in part or part.get("type") in ("text", "thinking"))
    ):
        _grow(last, part)
    else:
        parts.append(deepcopy(part))


def response_of(events: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the response in the last event of a stream. Raise ModelError if there is none.

    Some endpoints leave its output empty there, since they sent each item before.
    """
    items: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.get("type") == "error":
            raise ModelError(f"the endpoint's stream ended in an error: {event.get('message')}")
        if event.get("type") == "response.output_item.done":
            items[event.get("output_index", len(items))] = event["item"]
        if event.get("type") in _LAST:
            response: dict[str, Any] = event["response"]
            return (
                response
                if response.get("output")
                else {**response, "output": [items[n] for n in sorted(items)]}
            )
    raise ModelError("the endpoint's stream ended without a response")


def text_of(content: Any) -> str | None:
    """Return the text of a message's content. Some endpoints send it in parts, mixed with reasoning."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if part.get("type") in ("text", "output_text")]
        return "".join(str(text) for text in texts if text) or None
    raise TypeError(f"content is {type(content).__name__}")


def thoughts_of(message: dict[str, Any]) -> str | None:
    """Return the text of the thoughts among a message's parts and its `reasoning_details`, or None."""
    content = message.get("content")
    texts: list[str] = []
    for part in [*(content if isinstance(content, list) else ()), *(message.get("reasoning_details") or ())]:
        if str(part.get("type", "")).startswith(("thinking", "reasoning")):
            told = part.get("thinking") or part.get("text") or part.get("summary")
            texts.append((text_of(told) if isinstance(told, list) else told) or "")
    return "\n".join(filter(None, texts)) or None
