"""The present time in a prompt takes no part in the request; any other moment does."""

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.identity.rules import builtin, rules_that_join
from stillweb.snapshots.request import Request
from tests.support.memory_store import post

MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2099, 12, 31))
LEADS = [
    "Today's date is {}",
    "Today’s date: {}.",
    "Today Date: {}",
    "Today is {}, a fine day.",
    "as of today ({})",
    "For context, today's date is {}.",
    "Assume that the current date is {} if required.",
    "**Current Date:** {}",
    "Current date and time: {}",
    "Current date & time: {}",
    "The current time and date is {}",
    "Current time (UTC): {}",
    "Current UTC time is {}",
    "Current date and time in ISO format: {}",
    "Current Date (YYYY-MM-DD): {}",
    "It's currently {}",
    "It is now {}",
    "The time now is {}",
    "The date is {}.",
    "<current_date>{}</current_date>",
    "<currentDateTime>{}</currentDateTime>",
    "今天是 {}。",
    "当前日期：{}",
    "当前时间: {}",
    'call: {{"current_time": "{}"}}',
]
FORMATS = [
    "%Y-%m-%d",
    "%Y-%m-%d %H:%M",
    "%Y-%m-%d %H:%M:%S.%f",
    "%Y-%m-%dT%H:%M:%SZ",
    "%Y-%m-%dT%H:%M:%S.%f+00:00",
    "%Y/%m/%d",
    "%m/%d/%Y",
    "%m/%d/%Y, %I:%M:%S %p",
    "%d.%m.%Y",
    "%B %d, %Y",
    "%d %b %Y",
    "%a %b %d, %Y",
    "%A, %B %d, %Y",
    "%A, %B %d, %Y at %I:%M %p",
    "%a, %d %b %Y %H:%M:%S GMT",
    "%a %b %d %Y %H:%M:%S GMT+0000 (Coordinated Universal Time)",
    "%a %b %d %H:%M:%S %Y",
    "%a %b %d %H:%M:%S UTC %Y",
    "%Y-%m-%d (%A)",
    "%H:%M:%S",
    "%I:%M %p",
    "%A",
    "%B %Y",
    "%Y年%m月%d日 %H:%M",
]
STAY = [
    "Days from today to {}?",
    "What changed between today and {}?",
    "What happened on {}?",
    "Published: {}",
    "{}",
    "I was there today. On {} I wasn't.",
]


def asked(text: str, **more: Any) -> Request:
    body = {"model": "m", "messages": [{"role": "system", "content": text}], **more}
    return post("https://api.test/v1/chat/completions", json.dumps(body), "application/json")


def joined(one: Request, two: Request) -> str | None:
    return rules_that_join(one, two, builtin().rules)


@given(st.sampled_from(LEADS), st.sampled_from(FORMATS), MOMENTS, MOMENTS)
def test_the_present_that_a_model_is_told_takes_no_part(
    lead: str, form: str, one: datetime, two: datetime
) -> None:
    requests = [asked(lead.format(moment.strftime(form))) for moment in (one, two)]
    assert joined(*requests) == ("" if requests[0] == requests[1] else "told-moment")


@given(st.sampled_from(STAY), st.sampled_from(FORMATS), MOMENTS, MOMENTS)
def test_any_other_moment_stays(lead: str, form: str, one: datetime, two: datetime) -> None:
    requests = [asked(lead.format(moment.strftime(form))) for moment in (one, two)]
    assert joined(*requests) == ("" if requests[0] == requests[1] else None)


@given(st.sampled_from(LEADS), st.sampled_from(FORMATS), MOMENTS, st.integers(0, 99), st.integers(0, 99))
def test_what_follows_the_moment_stays(lead: str, form: str, moment: datetime, one: int, two: int) -> None:
    told = lead.format(moment.strftime(form))
    requests = [asked(f"{told}{gap}{number} items") for number in (one, two) for gap in (" ",)]
    assert joined(*requests) == ("" if one == two else None)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("Today may 5 people come", "Today may 6 people come"),
        ("Now march 5 miles", "Now march 6 miles"),
        ("today sat 5 of us", "today sat 6 of us"),
        ("the current time limit is 10:05", "the current time limit is 10:06"),
        ("Today's menu, May 5", "Today's menu, May 6"),
    ],
)
def test_words_that_only_look_like_a_moment_stay(one: str, two: str) -> None:
    assert joined(asked(one), asked(two)) is None


def test_it_is_found_wherever_a_request_to_a_model_has_text() -> None:
    def request(day: str) -> list[Request]:
        tool = {"type": "function", "function": {"name": "f", "description": f"Today is {day}."}}
        answer = {"functionResponse": {"response": {"current_date": day, "due": "2020-01-01"}}}
        google = json.dumps({"contents": [{"parts": [answer]}]})
        return [
            asked("q", tools=[tool]),
            post("https://g.test/v1beta/models/g:generateContent", google, "application/json"),
        ]

    for one, two in zip(request("2026-11-24"), request("2027-01-02"), strict=True):
        assert joined(one, two) == "told-moment"


def test_weekdays_in_chinese() -> None:
    assert joined(asked("今天是星期二"), asked("今天是星期六")) == "told-moment"
    assert joined(asked("他星期二来"), asked("他星期六来")) is None


@pytest.mark.parametrize("more", [{"message": "Today is {}."}, {"model": "Golf", "today": "{}"}])
def test_a_request_to_no_model_keeps_it(more: dict[str, str]) -> None:
    texts = (json.dumps(more).replace("{}", day) for day in ("2026-11-24", "2027-01-02"))
    one, two = (post("https://a.test/cars", text, "application/json") for text in texts)
    assert joined(one, two) is None


def test_a_field_that_says_so_with_a_number_keeps_it() -> None:
    assert joined(asked("q", now=1), asked("q", now=2)) is None


def test_a_field_that_says_so_with_no_moment_keeps_its_value() -> None:
    one, two = (asked("q", current_date=value) for value in ("soon", "2026-11-24 or later"))
    assert joined(one, two) is None
