"""Conditions of a write: what a recorded answer says of one with others, held against servers that know their state."""

from itertools import product

import pytest

from stillweb.snapshots.http.preconditions import FAILS, FITS, UNSURE, Preconditions, judge, preconditions_of
from stillweb.snapshots.request import Request
from tests.support.memory_store import Replay, html, matcher

MONDAY, TUESDAY, FRIDAY = (f"{day} Mar 2025 00:00:00 GMT" for day in ("Mon, 03", "Tue, 04", "Fri, 07"))
TAGS = (None, "*", '"a"', '"b"', 'W/"a"', '"a", "b"')
ALL = [
    Preconditions(m, n, d if m is None else None) for m, n, d in product(TAGS, TAGS, (None, MONDAY, FRIDAY))
]
# What a resource may be: its tag (None: there is none) and the day of its last change.
WORLDS = [(None, 0), *product(('"a"', '"b"', '"c"', 'W/"a"'), (3, 4, 7))]
DAYS = {MONDAY: 3, TUESDAY: 4, FRIDAY: 7}


def status(world: tuple[str | None, int], told: Preconditions) -> int:
    """Return the status of a server that follows RFC 9110, 13.2.2."""
    tag, day = world
    if told.match is not None:
        wanted = told.match.split(", ")
        if tag is None or (told.match != "*" and (tag.startswith("W/") or tag not in wanted)):
            return 412
    elif told.unmodified is not None and tag is not None and day > DAYS[told.unmodified]:
        return 412
    if told.none_match is not None and tag is not None:
        weakly = [t.removeprefix("W/") for t in told.none_match.split(", ")]
        if told.none_match == "*" or tag.removeprefix("W/") in weakly:
            return 412
    return 200


def test_what_is_sure_is_so_for_every_server_and_what_is_none_for_none_or_a_refusal() -> None:
    counts = {FITS: 0, UNSURE: 0, FAILS: 0}
    for recorded, asked in product(ALL, ALL):
        for said in (200, 412):
            worlds = [world for world in WORLDS if status(world, recorded) == said]
            if not worlds:
                continue
            found = judge(asked, recorded, said)
            answers = {status(world, asked) for world in worlds}
            counts[found] += 1
            if found == FITS:
                assert answers == {said}, (asked, recorded, said)
            elif found == FAILS and said == 200:
                assert answers == {412}, (asked, recorded)
    assert min(counts.values()) > 100


def test_the_same_conditions_have_the_same_answer_whatever_it_was() -> None:
    assert {judge(told, told, said) for told in ALL for said in (200, 404, 409, 412, 428)} == {FITS}


@pytest.mark.parametrize(
    ("asked", "recorded", "said", "expected"),
    [
        ({"If-Match": '"b"'}, {"If-Match": '"a"'}, 200, FAILS),
        ({"If-Match": '"a", "b"'}, {"if-match": '"a"'}, 200, FITS),
        ({"If-Match": '"a"'}, {"If-Match": '"a", "b"'}, 200, UNSURE),
        ({"If-Match": "*"}, {"If-Match": '"a"'}, 204, FITS),
        ({"If-Match": 'W/"a"'}, {"If-Match": '"a"'}, 200, UNSURE),
        ({}, {"If-Match": '"a"'}, 200, UNSURE),  # a server may demand a condition (428)
        ({"If-Match": '"a"'}, {}, 200, UNSURE),
        ({"If-Match": '"a"'}, {"If-None-Match": "*"}, 201, FAILS),
        ({"If-None-Match": "*"}, {"If-Match": '"a"'}, 200, FAILS),
        ({"If-None-Match": '"a"'}, {"If-None-Match": "*"}, 201, FITS),
        ({"If-Unmodified-Since": FRIDAY}, {"If-Unmodified-Since": MONDAY}, 200, FITS),
        ({"If-Unmodified-Since": MONDAY}, {"If-Unmodified-Since": FRIDAY}, 200, UNSURE),
        ({"If-Unmodified-Since": "never"}, {"If-Unmodified-Since": MONDAY}, 200, UNSURE),
        ({"If-Unmodified-Since": MONDAY, "If-Match": '"a"'}, {"If-Match": '"a"'}, 200, FITS),
        ({"If-Match": '"b"'}, {"If-Match": '"a"'}, 412, FAILS),
        ({"If-Match": '"a"'}, {"If-Match": '"a", "b"'}, 412, FITS),
        ({}, {"If-Match": '"a"'}, 412, FAILS),
        ({"If-None-Match": "*"}, {"If-None-Match": '"a"'}, 412, FITS),
        ({"If-None-Match": "*", "If-Match": '"a"'}, {"If-None-Match": '"a"'}, 412, FAILS),  # in other words
        ({}, {"If-None-Match": "*"}, 201, UNSURE),
        ({"If-Match": '"a"'}, {}, 428, FAILS),
        ({"If-Match": '"a"'}, {"If-Match": '"b"'}, 409, FAILS),
        ({"If-Match": '"a"'}, {"If-Match": '"b"'}, 403, UNSURE),
        ({"If-Modified-Since": MONDAY, "Range": "bytes=0-1"}, {}, 200, FITS),  # of no meaning for a write
    ],
)
def test_a_pair(asked: dict[str, str], recorded: dict[str, str], said: int, expected: int) -> None:
    mine, theirs = (preconditions_of(tuple(h.items())) for h in (asked, recorded))
    assert judge(mine, theirs, said) == expected


def test_fields_that_come_in_several_lines_are_one() -> None:
    assert preconditions_of((("If-Match", '"a"'), ("IF-MATCH", ' "b" '))).match == '"a", "b"'


def put(tag: str, method: str = "PUT") -> Request:
    return Request(method, "http://a.test/doc", (("If-Match", tag),), b"new")


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "POST"])
def test_the_very_same_condition_is_taken_before_one_that_tells_as_much(method: str) -> None:
    over = matcher((put('"a"', method), html("one", 409)), (put('"a", "b"', method), html("two")))
    assert Replay(over).ask(put('"a", "b"', method)) == "two"
    assert Replay(over).ask(put('"a"', method)) == "one"
    assert Replay(over).ask(put('"c"', method)) == "miss"


def test_a_get_is_answered_whatever_its_condition() -> None:
    """The gateway works out 412 and 304 from the answer (`stillweb.proxy.replay.response`)."""
    asked = Request("GET", "http://a.test/doc", (("If-Match", '"b"'),))
    for more in ((), (("Vary", "Accept"),)):
        over = matcher((Request("GET", "http://a.test/doc", (("If-Match", '"a"'),)), html("one", 200, *more)))
        replay = Replay(over)
        assert (replay.ask(asked), replay.last.ambiguous) == ("one", False)


def test_a_miss_names_the_condition() -> None:
    over = matcher((put('"a"'), html("one")), (put('"b"'), html("stale", 412)))
    replay = Replay(over)
    assert replay.ask(put('"c"')) == "miss"
    assert "precondition" in replay.last.why
    assert [near.differs[0] for near in replay.last.explain()] == [
        """header if-match: asked '"c"', recorded '"a"'""",
        """header if-match: asked '"c"', recorded '"b"' (answered 412)""",
    ]
