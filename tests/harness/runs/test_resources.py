"""A workshop: which endpoint is asked, and with which key."""

from __future__ import annotations

import pytest

from stillweb.harness.runs.resources import judge_endpoints
from stillweb.harness.task import Task
from stillweb.snapshots.errors import UsageError

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
