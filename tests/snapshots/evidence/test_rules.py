"""Rules that hold for every recording: nothing sure that was never seen, as recorded right, the same on every machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillweb.snapshots.capture import Response
from stillweb.snapshots.evidence import SURE
from stillweb.snapshots.evidence.matcher import Matcher
from stillweb.snapshots.identity.equality import equal
from stillweb.snapshots.request import Request
from tests.support.memory_store import MemoryStore, Recorded, get, html, post

A = "http://a.test"
ASKED = [
    get(f"{A}/"),
    get(f"{A}/list?sort=name"),
    post(f"{A}/filter", "year=2020"),
    post(f"{A}/filter", "year=2021"),
    Request("DELETE", f"{A}/items/1"),
]
steps = st.lists(st.tuples(st.integers(0, len(ASKED) - 1), st.integers(0, 2)), min_size=1, max_size=12)
walks = st.lists(st.integers(0, len(ASKED) - 1), min_size=1, max_size=8)


def over(recorded: list[tuple[int, int]]) -> Matcher:
    """Return a matcher over requests of ASKED by number, each with a numbered answer."""
    return Matcher(
        MemoryStore([Recorded(ASKED[asked], html(f"answer {answer}")) for asked, answer in recorded]),
    )


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(steps)
def test_whatever_was_recorded_is_given_in_its_own_walk(recorded: list[tuple[int, int]]) -> None:
    matcher = over(recorded)
    session = matcher.session("replay")
    for asked, answer in recorded:
        lookup = matcher.lookup(ASKED[asked], session)
        assert lookup.capture is not None
        assert matcher.snapshot.read(lookup.capture).body.decode() == f"answer {answer}"
        assert lookup.confidence >= SURE
        session.answered(lookup)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(steps, walks)
def test_chances_are_chances_and_only_recorded_requests_are_answered(
    recorded: list[tuple[int, int]], walk: list[int]
) -> None:
    matcher = over(recorded)
    session = matcher.session("replay")
    known = {asked for asked, _ in recorded}
    for asked in walk:
        lookup = matcher.lookup(ASKED[asked], session, min_confidence=0.0)
        assert 0.0 <= lookup.confidence <= 1.0
        assert (lookup.capture is not None) == (asked in known)
        assert (lookup.confidence > 0) == (asked in known)
        if lookup.capture is not None:
            assert lookup.ambiguous == (lookup.confidence < SURE)
            session.answered(lookup)


@settings(max_examples=40, deadline=None)
@given(steps, walks, st.floats(0.0, 1.0))
def test_a_threshold_serves_what_is_at_least_as_likely(
    recorded: list[tuple[int, int]], walk: list[int], least: float
) -> None:
    matcher = over(recorded)
    session = matcher.session("replay")
    for asked in walk:
        likeliest = matcher.lookup(ASKED[asked], session, min_confidence=0.0)
        if likeliest.capture is None:
            continue
        served = matcher.lookup(ASKED[asked], session, min_confidence=least)
        assert (served.capture is not None) == (likeliest.confidence >= least)
        if served.capture is None:
            break
        session.answered(served)


@pytest.mark.parametrize(
    ("field", "same"),
    [("Date", True), ("Age", True), ("ETag", True), ("Content-Type", False), ("X-Total-Count", False)],
)
def test_answers_are_equal_but_for_time(field: str, same: bool) -> None:
    one, other = (Response(200, "OK", ((field, value),), b"text") for value in ("a", "b"))
    assert equal(one, other) == same


@pytest.mark.parametrize(
    ("shape", "same"),
    [
        ('{{"now": {0:.0f}, "n": 1}}', True),
        ('{{"now": {1:.0f}}}', True),
        ('{{"at": "{2:%Y-%m-%dT%H:%M:%S}.123Z"}}', True),
        ("<p>Made {2:%Y-%m-%d %H:%M:%S}", True),
        ('{{"at": "{3:%Y-%m-%dT%H:%M:%S}+02:00"}}', True),
        ('{{"changed": {4:.0f}}}', False),
        ('{{"price": {5:.0f}}}', False),
    ],
)
def test_an_answer_that_tells_the_time_is_the_same_at_another(shape: str, same: bool) -> None:
    answers = []
    for second in (5, 47):
        made = datetime(2026, 3, 1, 10, 30, second, tzinfo=UTC)
        since, day = made.timestamp(), timedelta(days=1)
        told = (
            since,
            since * 1000 + 120,
            made,
            made + timedelta(hours=2),
            (made - day).timestamp(),
            since % 1000,
        )
        date = f"Sun, 01 Mar 2026 10:30:{second:02} GMT"
        body = shape.format(*told).encode()
        answers.append(Response(200, "OK", (("Date", date), ("Content-Type", "text/html")), body))
    assert equal(*answers) == same


@pytest.mark.parametrize(
    ("field", "body", "same"),
    [
        ("script-src 'nonce-{}' 'strict-dynamic'", "<script>go()</script>", True),
        ("script-src {}", "<script>go()</script>", False),
        ("", '<input type="hidden" name="token" value="{}:7">', True),
        ("", "<input value='{}' type=hidden name=sectok>", True),
        ("", '<input type="text" name="token" value="{}:7">', False),
        ("", '<input type="hidden" name="page_token" value="{}:7">', False),
        ("", '<input type="hidden" name="token"><input name="q" value="{}:7">', False),
    ],
)
def test_an_answer_with_a_token_of_its_own_is_the_same_with_another(
    field: str, body: str, same: bool
) -> None:
    """A nonce of Content-Security-Policy, or a hidden field that a form sends back (Adminer, DokuWiki)."""
    one, other = (
        Response(
            200,
            "OK",
            (("Content-Security-Policy", field.format(drawn)), ("Content-Type", "text/html")),
            f"<p>{body.format(drawn)}".encode(),
        )
        for drawn in ("54119612", "15928678")
    )
    assert equal(one, other) == same


@pytest.mark.parametrize(
    ("shape", "same"),
    [
        ("<p>Total: 70 (Query took {0} sec)", True),
        ("<i>Page generated in {0} seconds.</i>", True),
        ("<span class='time'>({0} s)</span>", True),
        ("<!-- Real time usage: {0} seconds -->", True),
        ('{{"took":{1},"hits":[]}}', True),
        ('<script>mw.config.set({{"wgBackendResponseTime":{1}}})</script>', True),
        ("<p>Queries took {1} ms", True),
        ("<td>Lap {0} s", False),
        ("<td>Run of {1} (took {1} seconds)", False),
        ('{{"time":{1}}}', False),
    ],
)
def test_an_answer_that_tells_how_long_it_took_is_the_same_at_another_pace(shape: str, same: bool) -> None:
    """phpLiteAdmin, Adminer, MediaWiki, Elasticsearch and Datasette tell it in each answer."""
    assert equal(*(html(shape.format(*took)) for took in (("0.0393", 31), ("0.0007", 125)))) == same


def test_answers_differ_by_status_and_body() -> None:
    assert not equal(html("a"), html("b"))
    assert not equal(html("a"), html("a", 404))


PRINTS = """
from tests.snapshots.evidence.test_rules import ASKED, over
matcher = over([(0, 0), (2, 0), (0, 1), (1, 0), (3, 0), (0, 2), (4, 1), (0, 1), (1, 2), (2, 0), (0, 1)])
session = matcher.session("replay")
for number in (2, 0, 1, 4, 0, 3, 1, 0):
    lookup = matcher.lookup(ASKED[number], session, min_confidence=0.0)
    print(lookup.capture.offset, repr(lookup.confidence))
    session.answered(lookup)
"""


@pytest.mark.slow
def test_confidence_is_the_same_under_every_hash_seed() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", PRINTS],
            env=os.environ | {"PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(found) == 1
    assert found.pop().count("\n") == 8


API = "http://a.test/api"
BYTES = Request("POST", API, (("Content-Type", "image/png"),), b"\x00\xff")


def _json(method: str, said: object) -> Request:
    return Request(method, API, (("Content-Type", "application/json"),), json.dumps(said).encode())


@pytest.mark.parametrize(
    ("kept", "asked", "others"),
    [
        (
            f"{API}?__wb_method=POST&q=tea&page=2&tag=a&tag.2_=b",
            _json("POST", {"q": "tea", "page": 2, "tag": ["a", "b"], "none": ""}),
            [_json("POST", {"q": "Tea", "page": 2, "tag": ["a", "b"]}), _json("PUT", {"q": "tea", "page": 2, "tag": ["a", "b"]})],
        ),
        (f"{API}?x=1&__wb_method=POST&q=a%26b&r=c+d", post(f"{API}?x=1", "r=c+d&q=a%26b"), [post(API, "r=c+d&q=a%26b"), post(f"{API}?x=1", "r=c+d&q=a&b=")]),
        (f"{API}?__wb_method=POST&__wb_post_data=AP8=", BYTES, [replace(BYTES, body=b"\x00\xfe")]),
        (f"{API}?__wb_method=DELETE&", Request("DELETE", API), [Request("DELETE", f"{API}?x=1"), Request("POST", API)]),
    ],
)  # fmt: skip
def test_what_an_archive_keeps_as_a_get_answers_the_method_that_was_asked(
    kept: str, asked: Request, others: list[Request]
) -> None:
    """ArchiveWeb.page writes requests whose body it has not kept so."""
    matcher = Matcher(MemoryStore([Recorded(get(kept), html("answer"))]))
    lookup = matcher.lookup(asked, matcher.session("a"))
    assert (lookup.verdict, lookup.ambiguous) == ("rule:post-as-get", True)
    assert matcher.lookup(asked, matcher.session("b"), accept="varies").verdict == "miss"
    assert {matcher.lookup(other, matcher.session("c")).verdict for other in others} == {"miss"}
    assert matcher.lookup(get(kept), matcher.session("d")).verdict == "exact"
