"""The name of the asking user takes no part in a request to a model; other members beside it do."""

import json
from typing import Any

import pytest

from stillweb.snapshots.identity.rules import builtin, rules_that_join
from tests.support.memory_store import post

BILL = "x-anthropic-billing-header: cc_version=2.1.197.404; cc_entrypoint=cli; cch={};"


def _joined(one: dict[str, Any], two: dict[str, Any], path: str = "/v1/messages") -> str | None:
    asked = (
        post(
            f"http://a.test{path}",
            json.dumps({"model": "m", "messages": [{"role": "user", "content": "q"}]} | body).encode(),
            "application/json",
        )
        for body in (one, two)
    )
    return rules_that_join(*asked, builtin().rules)


def _as(user: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"user_id": user} | more}


def _billed(mark: str, text: str = BILL) -> dict[str, Any]:
    return {"system": [{"type": "text", "text": text.format(mark)}, {"type": "text", "text": "Help."}]}


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (_as("session_1"), _as("session_2")),
        (_as("session_1"), {}),
        (_as("session_1", route="a"), _as("session_2", route="a")),
        (_billed("51a8a"), _billed("2905e")),
        (_billed("51a8a"), _billed("2905e", BILL + " cc_prompt_id=c7e45cf9-cb29-4463-85fc-019ffe71641c;")),
        (_as("session_1") | _billed("51a8a"), _as("session_2") | _billed("2905e")),
    ],
)
def test_who_asks_takes_no_part(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert _joined(one, two) == "model-sender"


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (_as("session_1", route="a"), _as("session_1", route="b")),
        ({"metadata": {"user": "1"}}, {"metadata": {"user": "2"}}),
        ({"metadata": "1"}, {"metadata": "2"}),
        ({"user_id": "1"}, {"user_id": "2"}),
        (_billed("51a8a", BILL + "\nHelp."), _billed("2905e", BILL + "\nTest.")),
        (_billed("51a8a", f"See {BILL}"), _billed("2905e", f"See {BILL}")),
        ({"system": BILL.format("51a8a")}, {"system": BILL.format("2905e")}),
        ({"system": ["a"]}, {"system": ["b"]}),
        (_as("session_1", route={}), _as("session_1")),
    ],
)
def test_what_else_is_told_stays(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert _joined(one, two) is None


def test_the_member_of_a_request_to_no_model_stays() -> None:
    assert _joined(_as("ann") | {"model": 1}, _as("bob") | {"model": 1}, "/book") is None


def test_a_text_that_is_none_stays() -> None:
    one, two = ({"system": [{"type": "text", "text": number}]} for number in (1, 2))
    assert _joined(one, two) is None
