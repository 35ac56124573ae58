"""Requests to language models: recognize them, and leave out what differs at each run and is no part of the question.

That is who sends them, the ids that their sender draws, and the present date and time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stillweb.snapshots.identity.keys import ParsedRequest
from stillweb.snapshots.identity.spelling import BLANK
from stillweb.snapshots.words import texts_in
from stillweb.snapshots.yielding import matches

# Members that hold prompts: OpenAI, Anthropic, Google, Mistral, Cohere, AWS Bedrock, Ollama.
_PROMPTS = frozenset(("messages", "input", "instructions", "system", "contents", "prompt", "message"))
# Operations of APIs whose body need not name the model: Google, Bedrock, Azure.
_OPERATION = re.compile(
    r":(?:stream)?GenerateContent|/model/[^/]+/(?:converse|invoke)[a-z-]*|/deployments/[^/]+/.*completions",
    re.I,
)
_LANGCHAIN = ("human", "ai", "tool", "system")  # types of turns that have no role
TURNS = ("messages", "input", "contents", "prompt")  # members that hold the turns of a conversation
# Claude Code's billing line, the first text of its system prompt: ids of its run, and a checksum of each
# request.
_BILLED = re.compile(r"(?<=\Ax-anthropic-billing-header:).+")


def asks_a_model(parsed: ParsedRequest) -> bool:
    """Return True if a request has a prompt, and names a model in its body or URL."""
    value = parsed.body.value
    if not isinstance(value, dict) or value.keys().isdisjoint(_PROMPTS):
        return False
    return isinstance(value.get("model"), str) or _OPERATION.search(parsed.url) is not None


def is_conversation(parsed: ParsedRequest) -> bool:
    """Return True if a request asks a model, or holds the turns of a conversation for a server that does."""
    value = parsed.body.value
    held = value.get("input") if isinstance(value, dict) and isinstance(value.get("input"), dict) else value
    turns = held.get("messages") if isinstance(held, dict) else None
    roles = isinstance(turns, list) and any(
        isinstance(turn, dict) and ("role" in turn or turn.get("type") in _LANGCHAIN) for turn in turns
    )
    return roles or asks_a_model(parsed)


def without_sender(parsed: ParsedRequest) -> ParsedRequest:
    """Return a model request without Anthropic's `metadata.user_id` and the content of the billing line.

    Returns `parsed` itself if there is nothing to remove. The user id is for abuse detection
    (https://docs.claude.com/en/api/messages); Claude Code generates one for each session.
    """
    if not asks_a_model(parsed):
        return parsed
    body = parsed.body
    value = dict(body.value)
    metadata = value.get("metadata")
    if isinstance(metadata, dict):
        value["metadata"] = {name: item for name, item in metadata.items() if name != "user_id"}
        if not value["metadata"]:
            del value["metadata"]
    if isinstance(system := value.get("system"), list):
        value["system"] = [_unbilled(item) for item in system]
    return parsed if value == body.value else replace(parsed, body=body.with_value(value))


# Members that hold the id of a tool call, in the call and in its result; "id" alone only in a call or result, as its type or
# the member that holds it says (Gemini, Mistral).
_CALL_IDS = frozenset(
    ("tool_call_id", "tool_use_id", "call_id", "toolUseId", "toolCallId", "approval_request_id")
)
_CALL = re.compile(r"function|(?:\w+_)?(?:tool_use|tool_result|call|call_output|approval_request)")
_HOLDING_CALLS = (
    "tool_calls",
    "toolCalls",
    "functionCall",
    "functionResponse",
    "function_call",
    "function_response",
)


def with_numbered_calls(parsed: ParsedRequest) -> ParsedRequest:
    """Return a model request with its tool calls' ids numbered in order, or `parsed` itself if it has none.

    Some clients draw these ids themselves, others at each run. They only link a result to its call.
    """
    if not is_conversation(parsed):
        return parsed
    numbers: dict[str, str] = {}
    value = _numbered(parsed.body.value, numbers)
    return replace(parsed, body=parsed.body.with_value(value)) if numbers else parsed


def _numbered(value: Any, numbers: dict[str, str], member: str = "") -> Any:
    """Return a value with its tool-call ids replaced by numbers; the arguments of the calls stay as they are."""
    if isinstance(value, list):
        return [_numbered(item, numbers, member) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("type")
    called = member in _HOLDING_CALLS or (isinstance(kind, str) and _CALL.fullmatch(kind))
    ids = {name: item for name, item in value.items() if name in _CALL_IDS or (called and name == "id")}
    found = {
        name: numbers.setdefault(item, f"{BLANK}{len(numbers)}")
        for name, item in ids.items()
        if isinstance(item, str)
    }
    return value | found if found else {n: _numbered(item, numbers, n) for n, item in value.items()}


# How a prompt introduces the handle of something that the client opened: `Tab 5C1E: …`, `(tab_id: 5C1E)`, `session id 9f3a…`.
_OPENED = (
    r"(?i:tab|(?:tab|window|target|frame|session|shell|terminal|process|container|sandbox)[ _-]?id)"
    r"[\s:=#\"'(\\]{1,6}"
)
# `Tab added` and `tab face` are words.
_HEX = r"(?![a-f]+(?![0-9A-Za-z]))(?:[0-9A-F]{4,64}|[0-9a-f]{4,64})(?:-[0-9A-Fa-f]{4,12}){0,4}(?![0-9A-Za-z])"
REACH = 256  # characters of an introduction with its handle, and the one after it
_INTRODUCED = re.compile(rf"(?<![A-Za-z]){_OPENED}({_HEX})")
# The letter of an escape (`\\n`) in JSON within a text is no part of a word.
_START = r"(?:(?<![0-9A-Za-z])|(?<=\\[nrt]))"


def handles(parsed: ParsedRequest) -> list[str]:
    """Return the handles that a model request introduces, in order: ids of tabs and the like, which its client draws."""
    if not asks_a_model(parsed):
        return []
    found = (match[1] for text in texts_in(parsed.body.value) for match in matches(_INTRODUCED, text, REACH))
    return list(dict.fromkeys(found))


def with_numbered_handles(parsed: ParsedRequest) -> ParsedRequest:
    """Return a model request with its handles numbered wherever they stand, or `parsed` itself if it has none.

    A mark holds a handle's length, too, so that one can take the place of another in a streamed answer.
    """
    marks = {one: f"{BLANK}{number}.{len(one)}{BLANK}" for number, one in enumerate(handles(parsed))}
    if not marks:
        return parsed
    body = parsed.body
    return replace(parsed, body=body.with_value(_retold(body.value, marks)))


def replace_words(text: str, names: Mapping[str, str]) -> str:
    """Return a text with the words of `names` replaced, all in one pass."""
    words = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.sub(rf"{_START}(?:{words})(?![0-9A-Za-z])", lambda match: names[match[0]], text)


def _retold(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return replace_words(value, names)
    if isinstance(value, list):
        return [_retold(item, names) for item in value]
    if isinstance(value, dict):
        return {name: _retold(item, names) for name, item in value.items()}
    return value


def _unbilled(item: Any) -> Any:
    if not isinstance(item, dict) or not isinstance(text := item.get("text"), str):
        return item
    return item | {"text": _BILLED.sub(BLANK, text, 1)}


# Only a moment that is called the present counts (`Today's date is 2026-11-24`, `<current_time>10:05:33</current_time>`).
# Other dates in a text stay, and so does a date without such words. No clock is read.
_WEEKDAY = r"(?:(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs?)?|Fri|Sat(?:ur)?|Sun)(?:day)?\b|星期[一二三四五六日天])"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec)(?:uary|ruary|ch|il|ust|ember|ober)?\b\.?"
_DAY = r"\d\d?(?:st|nd|rd|th)?\b"
_YEAR = r"(?:19|20)\d\d\b"
_DATE = (
    rf"(?:(?:19|20)\d\d[-/.]\d\d?[-/.]\d\d?(?!\d)|\d\d?[-/.]\d\d?[-/.](?:\d\d)?\d\d\b"
    rf"|{_MONTH} +{_DAY}(?:,? +{_YEAR})?|{_DAY} (?:of )?{_MONTH}(?:,? {_YEAR})?|{_MONTH},? {_YEAR}"
    rf"|(?:19|20)\d\d ?年 ?\d\d? ?月 ?\d\d? ?日)"
)
_ZONE = r"(?: ?(?:Z|UTC|GMT|[A-Z]{2,4}T)\b)?(?: ?[+-]\d\d(?::?\d\d)?\b)?(?: \([A-Z][A-Za-z ]+ Time\))?"
_TIME = rf"(?:\d\d?:\d\d(?::\d\d(?:[.,]\d{{1,9}})?)?(?:[ \u202f]?[AaPp]\.?[Mm]\b\.?)?{_ZONE}(?: {_YEAR})?)"
_PART = rf"(?:{_WEEKDAY}|{_DATE}|{_TIME})"
_MOMENT = rf"{_PART}(?:(?:[.,;]? ?\(?(?:at )?|T| [-–|] ){_PART}){{0,3}}"

_WHAT = r"(?:date|day|time|datetime|timestamp|month)"
_PRESENT = (
    rf"(?:(?i:\btoday(?:['’]s)?(?:[\s_-]?{_WHAT}\b)?"
    rf"|\b(?:current|present|local|system)(?:[\s_-]?(?:local|system|utc))?[\s_-]?{_WHAT}\b"
    rf"|\bnow\b|\bcurrently\b|\bthe {_WHAT}(?: (?:today|now))?(?= is\b)|\b{_WHAT} (?:today|now)\b)"
    rf"(?i:\s?(?:and|&|/)\s?{_WHAT}\b)?"
    r"|(?:今天|今日|现在|当前|目前)(?:的?(?:日期|时间))*)"
)
# Without `to`, `and`, `until` and dashes: they begin a span of time, whose end is part of the question.
_BETWEEN = r"(?:[\s:：是为=,\"'*`<>()\[\]|#\\_]|\b(?:is|in|UTC|GMT|ISO|8601|format|YYYY-MM-DD)\b){1,12}?"

_TOLD = re.compile(rf"({_PRESENT}{_BETWEEN}){_MOMENT}")
_TELLING = re.compile(_PRESENT)
_TIME_TOLD = re.compile(_MOMENT)


def without_told_moments(parsed: ParsedRequest) -> ParsedRequest:
    """Return a model request with a mark for each present moment, or `parsed` itself if there is none."""
    if not asks_a_model(parsed):
        return parsed
    body = parsed.body
    value = _blanked(body.value)
    return parsed if value == body.value else replace(parsed, body=body.with_value(value))


def without_moments(text: str) -> str:
    """Return a text with a mark for each present moment that it tells."""
    return _TOLD.sub(rf"\1{BLANK}", text)


def _blanked(value: Any) -> Any:
    if isinstance(value, str):
        return without_moments(value)
    if isinstance(value, list):
        return [_blanked(item) for item in value]
    if isinstance(value, dict):
        return {name: BLANK if _tells(name, item) else _blanked(item) for name, item in value.items()}
    return value


def _tells(name: str, value: Any) -> bool:
    """Return True if a field's name says that its value is the present, and the value is a moment."""
    return isinstance(value, str) and bool(_TELLING.fullmatch(name)) and bool(_TIME_TOLD.fullmatch(value))
