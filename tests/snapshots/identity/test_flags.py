"""Flags are recorded for one installation, and answered to another as unsure."""

import json
from collections.abc import Callable

import pytest

from stillweb.snapshots.request import Request
from tests.support.memory_store import html, matcher, post

ONE, TWO = "4f8a1c09e27b35d6a9c0e4f71b82d3a6", "9c1e7b2d5a3f8046e1d2c3b4a5968770"


def _sent(value: object, path: str = "/api/eval/sdk-1") -> Request:
    return post(f"http://a.test{path}", json.dumps(value), "application/json")


def _asked(whom: object, path: str = "/api/eval/sdk-1") -> Request:
    return _sent({"attributes": whom, "forcedVariations": {}, "url": ""}, path)


def test_another_installation_is_told_the_flags_of_the_recorded_one() -> None:
    over = matcher((_asked({"id": ONE, "deviceID": ONE, "os": "linux"}), html("flags")))
    for whom, verdict, ambiguous in (
        ({"id": ONE, "deviceID": ONE, "os": "linux"}, "exact", False),
        ({"id": TWO, "deviceID": TWO, "os": "linux"}, "rule:flags", True),
        ({"id": TWO, "deviceID": TWO, "os": "mac"}, "miss", False),
        ({"id": "ann", "deviceID": ONE, "os": "linux"}, "miss", False),
    ):
        lookup = over.lookup(_asked(whom), over.session())
        assert (lookup.verdict, lookup.ambiguous) == (verdict, ambiguous), whom


@pytest.mark.parametrize("whom", ["ann", ["ann"], None])
def test_what_names_nobody_is_left_as_it_is(whom: object) -> None:
    over = matcher((_asked(whom), html("flags")))
    assert over.lookup(_asked(whom), over.session()).verdict == "exact"
    assert over.lookup(_asked({"id": TWO}), over.session()).verdict == "miss"


@pytest.mark.parametrize(
    "sent",
    [
        lambda who: _asked({"id": who}, "/api/evaluate/sdk-1"),
        lambda who: _sent({"attributes": {"id": who}}),
        lambda who: _asked({"order": who}),
        lambda who: _asked({"id": int(who[:8], 16)}),
        lambda who: _sent(["forcedVariations", who]),
        lambda who: _sent({"forcedVariations": {"id": who}}),
    ],
    ids=["elsewhere", "no flags", "no name of an id", "a number", "a list", "of nobody"],
)
def test_what_is_no_question_of_an_installation_for_its_flags_is_not_joined(
    sent: Callable[[str], Request],
) -> None:
    over = matcher((sent(ONE), html("flags")))
    assert over.lookup(sent(ONE), over.session()).verdict == "exact"
    assert over.lookup(sent(TWO), over.session()).verdict == "miss"
