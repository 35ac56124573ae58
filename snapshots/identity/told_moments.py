"""The present date and time in prompts, which differ at each run and are no part of the question.

Only a moment that is called the present counts (`Today's date is 2026-11-24`,
`<current_time>10:05:33</current_time>`). Other dates in a text stay, and so does a date without such words.
No clock is read.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from stillweb.snapshots.identity.keys import Parsed
from stillweb.snapshots.identity.model_calls import asks_a_model
from stillweb.snapshots.identity.spelling import BLANK

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
_NAME = re.compile(_PRESENT)
_VALUE = re.compile(_MOMENT)


def without_told_moments(parsed: Parsed) -> Parsed:
    """Return a model request with a mark for each present moment, or `parsed` itself if there is none."""
    if not asks_a_model(parsed):
        return parsed
    body = parsed.body
    value = _blanked(body.value)
    return parsed if value == body.value else replace(parsed, body=body.with_value(value))


def _blanked(value: Any) -> Any:
    if isinstance(value, str):
        return _TOLD.sub(rf"\1{BLANK}", value)
    if isinstance(value, list):
        return [_blanked(item) for item in value]
    if isinstance(value, dict):
        return {name: BLANK if _tells(name, item) else _blanked(item) for name, item in value.items()}
    return value


def _tells(name: str, value: Any) -> bool:
    """Return True if a field's name says that its value is the present, and the value is a moment."""
    return isinstance(value, str) and bool(_NAME.fullmatch(name)) and bool(_VALUE.fullmatch(value))
