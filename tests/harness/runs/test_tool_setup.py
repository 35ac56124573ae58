"""Requests of a program to the gateway, as they stand in the trace of its attempt."""

from typing import Any

import pytest

from stillweb.harness.runs.resources import judge_endpoints
from stillweb.harness.runs.tool_setup import request_events
from stillweb.harness.task import Task
from stillweb.harness.trace import hashed_part
from stillweb.snapshots.errors import UsageError


def entry(seq: int, url: str, **more: Any) -> dict[str, Any]:
    """A line of a ledger."""
    found = {
        "session": "a",
        "seq": seq,
        "key": url,
        "method": "GET",
        "url": url,
        "verdict": "exact",
        "status": 200,
    }
    return {**found, "capture": None, "irrelevant": False, "ambiguous": False, **more}


def test_what_a_browser_asks_for_beside_its_page_changes_no_trace():
    page, data = entry(0, "https://a.test/"), entry(2, "https://a.test/data")
    icon = entry(1, "https://a.test/favicon.ico", irrelevant=True, status=404)
    errand = entry(3, "https://update.googleapis.com/x?key=4711", irrelevant=True, verdict="miss", status=504)
    late = [page, {**data, "seq": 1}, {**icon, "seq": 2, "ambiguous": True}]
    first, second, none = (
        request_events(entries) for entries in ([page, icon, data, errand], late, [page, data])
    )
    assert [hashed_part(event) for event in first] == [hashed_part(event) for event in second]
    assert [hashed_part(event) for event in first] == [hashed_part(event) for event in none]
    assert first[-1]["aside"]["irrelevant"] == [
        {"method": "GET", "url": "https://a.test/favicon.ico", "verdict": "exact", "status": 404},
        {
            "method": "GET",
            "url": "https://update.googleapis.com/x?key=4711",
            "verdict": "miss",
            "status": 504,
        },
    ]
    assert "irrelevant" not in none[-1]["aside"]


def test_only_what_is_irrelevant_is_no_event():
    assert request_events([entry(0, "https://a.test/favicon.ico", irrelevant=True)]) == []


def test_a_long_text_for_which_a_program_polls_is_in_the_trace_once() -> None:
    entries = [entry(n, f"https://a.test/{n % 2}") for n in range(4)]
    texts = {"https://a.test/0": "long " * 1000, "https://a.test/1": "short"}
    found = request_events(entries, lambda one: texts[one["url"]])
    assert [event["output"]["text"] for event in found] == [
        texts["https://a.test/0"],
        "(the text of an earlier call)",
        "short",
        "short",
    ]


def test_calls_that_draw_ids_keep_the_order_of_what_answered_them() -> None:
    """A prompt that names a tab has another key in each run, and the order of its key is one of chance."""

    def call(seq: int, offset: int, key: str) -> dict[str, Any]:
        capture = {"file": "a.warc.gz", "offset": offset, "digest": f"sha256:{offset}"}
        more = {"verdict": "rule:handle", "key": key, "capture": capture}
        return {**entry(seq, "https://model.test/v1/chat/completions"), "method": "POST", **more}

    one, other = (
        [event["captures"] for event in request_events([call(0, 10, first), call(1, 20, second)])]
        for first, second in (("a", "b"), ("b", "a"))
    )
    assert one == other


OPENAI = {"base_url": "https://api.openai.com/v1", "key_variable": "OPENAI_API_KEY"}
OWN = {"base_url": "https://judge.example/v1", "key_variable": "GRADER_API_KEY"}


@pytest.mark.parametrize(
    ("env", "endpoint"),
    [
        ({}, OPENAI),
        ({"GRADER_BASE_URL": ""}, OPENAI),  # as a build's settings leave what nobody filled in
        ({"GRADER_BASE_URL": OWN["base_url"]}, OWN),
        ({"GRADER_BASE_URL": OWN["base_url"], "OPENAI_BASE_URL": "https://x.example/v1"}, OWN),
        ({"OPENAI_BASE_URL": OWN["base_url"]}, {**OPENAI, "base_url": OWN["base_url"]}),
    ],
)
def test_a_judge_gets_the_key_of_the_endpoint_that_it_is_asked_at(
    env: dict[str, str], endpoint: dict[str, str]
) -> None:
    assert judge_endpoints(env, [Task("a", "?", "7", "judge")]) == {None: endpoint}


def test_endpoints_follow_the_documented_variables() -> None:
    env = {
        "GRADER_BASE_URL": "https://g.test/v1",
        "SGI_JUDGE_MODEL_1": "one",
        "SGI_JUDGE_BASE_URL_1": "https://j.test/v1",
        "SGI_JUDGE_API_KEY_1": "not-read",
    }
    places = judge_endpoints(env, [Task("i", "?", {}, "sgi-idea-generation")])
    assert places == {
        None: {"base_url": "https://g.test/v1", "key_variable": "GRADER_API_KEY"},
        "one": {"base_url": "https://j.test/v1", "key_variable": "SGI_JUDGE_API_KEY_1"},
    }
    assert judge_endpoints(env, [Task("w", "?", {}, "sgi-wet-experiment")]) == {}
    twice = {f"SGI_JUDGE_MODEL_{n}": "same" for n in (1, 2)}
    twice |= {f"SGI_JUDGE_BASE_URL_{n}": f"https://j{n}.test/v1" for n in (1, 2)}
    with pytest.raises(UsageError, match="SGI_JUDGE_MODEL_2: same"):
        judge_endpoints(twice, [Task("i", "?", {}, "sgi-idea-generation")])
