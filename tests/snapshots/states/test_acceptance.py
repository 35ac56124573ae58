"""An answer of a kind that was not asked for is never surely the answer, unless the recorder saw it asked for so."""

from __future__ import annotations

import pytest

from stillweb.snapshots.capture import Response
from stillweb.snapshots.http.languages import SAME
from stillweb.snapshots.matching.kinship import kinship
from stillweb.snapshots.request import Request
from tests.support.memory_store import Replay, get, html, matcher

U = "http://a.test/data"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8"


def as_kind(kind: str) -> Response:
    return Response(200, "OK", (("Content-Type", kind), ("Content-Length", "2")), b"{}")


@pytest.mark.parametrize(
    ("recorded", "kind", "asked", "ambiguous"),
    [
        ("application/json", "application/json", "text/html", True),
        ("application/json", "application/json", BROWSER, True),  # it takes JSON only for want of a page
        ("*/*", "application/json", BROWSER, True),
        (f"{BROWSER},x/y;q=0.1", "application/json", BROWSER, False),
        ("*/*", "image/png", BROWSER, False),
        (BROWSER, "text/html", "application/json, text/plain, */*", True),
        (BROWSER, "text/html", "*/*", False),
        ("application/json", "application/json", "application/json", False),
        ("application/json", "application/ld+json", "application/json; charset=utf-8", False),
        (BROWSER, "text/html", "application/json", True),
        (BROWSER, "text/html", "text/*;q=0.2", False),
        (BROWSER, "text/html", "text/html;q=0, application/json", True),
        (BROWSER, "image/svg+xml", "image/*", False),
        ("application/json", "text/html", "application/json", False),  # the site minds no Accept, as was seen
        ("*/*", "text/html", "", False),
        # data that was asked for by its name, for who would take anything: there may be a page for those
        ("application/json", "application/json", "*/*", True),
        ("text/csv", "text/csv", "", True),
        ("text/csv", "text/csv", "application/json, text/csv;q=0.1", True),
        ("application/json, text/plain, */*", "application/json", "application/json", False),
        ("*/*", "application/json", "application/json", False),
        ("*/*", "application/json", "", False),
        (BROWSER, "application/xml", "*/*", False),
        (BROWSER, "application/xml", "", False),
        (BROWSER, "text/plain", "*/*", False),
        # a variant or version of a kind
        ("application/json", "application/json", "application/vnd.a.v3+json, */*", True),
        # a new kind of image in place of the one that the address names
        ("image/avif,image/webp,*/*", "image/webp", "*/*", True),
        ("image/avif,image/webp,*/*", "image/webp", "", True),
        ("image/avif,image/webp,*/*", "image/webp", "image/webp,*/*", False),
        ("image/avif,image/webp,*/*", "image/png", "*/*", False),
        ("image/avif,image/webp,*/*", "text/css", "*/*", False),
    ],
)
def test_a_kind_that_was_not_asked_for_is_not_sure(
    recorded: str, kind: str, asked: str, ambiguous: bool
) -> None:
    plain = Request("GET", U, (("Accept", recorded),))
    over = matcher((plain, as_kind(kind)))
    for first in (plain, None):  # what a replay remembers of an address changes nothing
        replay = Replay(over)
        if first is not None:
            replay.ask(first)
        assert replay.ask(Request("GET", U, (("Accept", asked),) if asked else ())) == "{}"
        assert (replay.last.verdict, replay.last.ambiguous) == ("exact", ambiguous)
    if ambiguous:
        refused = over.lookup(Request("GET", U, (("Accept", asked),)), accept="rule+unambiguous")
        assert refused.verdict == "miss"


def test_an_empty_field_accepts_all() -> None:
    replay = Replay(matcher((get(U, Accept=BROWSER), html("page"))))
    assert replay.ask(get(U, Accept=" ")) == "page"
    assert not replay.last.ambiguous


@pytest.mark.parametrize(
    ("recorded", "asked", "verdict", "ambiguous"),
    [
        ("application/json;odata=verbose", "application/json;odata=verbose", "exact", False),
        ("application/json;odata=verbose", "application/json; odata=verbose, */*", "varies:accept", False),
        ("application/json;odata=verbose", "application/json;odata=none", "varies:accept", True),
        ("application/json;odata=verbose", "application/json", "varies:accept", True),
        ("application/vnd.a.v3+json", "application/json", "varies:accept", True),
        ("application/vnd.a.v3+json", "", "varies:accept", True),
        ('application/json;profile="a"', 'application/json;profile="b"', "varies:accept", True),
    ],
)
def test_a_variant_or_version_is_for_who_asks_for_it(
    recorded: str, asked: str, verdict: str, ambiguous: bool
) -> None:
    over = matcher((get(U, Accept=recorded), as_kind("application/json")))
    replay = Replay(over)
    for _ in range(2):
        assert replay.ask(get(U, **({"Accept": asked} if asked else {}))) == "{}"
        assert (replay.last.verdict, replay.last.ambiguous) == (verdict, ambiguous)


def test_an_image_of_a_new_kind_by_its_address_is_anybodys() -> None:
    asked = get(f"{U}/i.webp", Accept="image/webp,*/*")
    replay = Replay(matcher((asked, as_kind("image/webp"))))
    for request in (get(f"{U}/i.webp"), get(f"{U}/i.webp", Accept="*/*")):
        assert replay.ask(request) == "{}"
        assert not replay.last.ambiguous


@pytest.mark.parametrize(
    ("status", "kind", "recorded", "asked", "ambiguous"),
    [
        (404, "text/html", BROWSER, "*/*", False),
        (404, "text/html", BROWSER, "application/json", True),
        (401, "application/json", "application/json", BROWSER, True),
        (401, "application/json", "application/json", "*/*", False),
        (401, "application/json", BROWSER, BROWSER, False),
        (302, "", BROWSER, "application/json", True),  # to sign in; data is refused in another way
        (302, "", BROWSER, "application/json, text/plain, */*", True),
        (404, "text/plain", BROWSER, "application/json, text/plain, */*", True),
        (302, "", "application/json", "application/json", False),
        (301, "", BROWSER, "application/json", False),
        (308, "text/html", BROWSER, "application/json", False),
    ],
)
def test_a_refusal_of_a_page_is_not_surely_that_of_data(
    status: int, kind: str, recorded: str, asked: str, ambiguous: bool
) -> None:
    response = Response(status, "", (("Location", "/in"), *((("Content-Type", kind),) if kind else ())), b"")
    replay = Replay(matcher((get(U, Accept=recorded), response)))
    for _ in range(2):
        assert replay.ask(get(U, Accept=asked)) == ""
        assert (replay.last.verdict, replay.last.ambiguous) == ("exact", ambiguous)


def test_where_different_kinds_were_asked_for_and_the_same_was_answered_it_is_sure() -> None:
    kinds = ("text/csv", "application/json")
    over = matcher(*((get(U, Accept=kind), as_kind("text/csv")) for kind in kinds))
    for asked in (*kinds, "*/*"):
        replay = Replay(over)
        assert replay.ask(get(U, Accept=asked)) == "{}"
        assert not replay.last.ambiguous


@pytest.mark.parametrize(
    ("values", "asked", "ambiguous"),
    [
        (["en-GB"], "en-GB, en;q=0.9", False),  # the same in other words
        (["en"], "en-GB", True),  # a site may have both
        (["en"], "fr", True),  # what is said to the French was never seen
        (["en", "de"], "fr", True),
        (["en", "de"], "de, en;q=0.5", False),  # it was seen that these are answered alike
    ],
)
def test_another_value_of_a_vary_field_is_sure_where_it_was_seen_not_to_matter(
    values: list[str], asked: str, ambiguous: bool
) -> None:
    page = html("hello", 200, ("Vary", "Accept-Language"))
    replay = Replay(matcher(*((get(U, Accept_Language=value), page) for value in values)))
    assert replay.ask(get(U, Accept_Language=asked)) == "hello"
    assert (replay.last.verdict, replay.last.ambiguous) == ("varies:accept-language", ambiguous)


@pytest.mark.parametrize(
    ("recorded", "asked", "same"),
    [
        ("application/json", "application/json, text/plain, */*", True),
        ("application/json", "text/json; charset=utf-8", True),
        ("text/html", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", True),
        ("application/json;q=0.5, text/html", "text/html", True),  # what weighs most is asked for first
        ("application/json;q=0.5, text/html", "application/json", False),
        ("application/json", "application/vnd.api.raw+json", False),
        ("application/ld+json; profile=a", "application/ld+json;profile=a;q=0.9", True),
        ("application/ld+json; profile=a", "application/ld+json; profile=b", False),
        ("", "*/*", True),
    ],
)
def test_what_two_accepts_ask_for_first_is_the_same_or_not(recorded: str, asked: str, same: bool) -> None:
    for one, other in ((recorded, asked), (asked, recorded)):
        assert (kinship("accept", one, other) == SAME) is same


def test_a_kind_that_is_wanted_less_is_not_the_answer() -> None:
    vary = ("Vary", "Accept")
    over = matcher(
        (get(U, Accept="application/json"), html("{}", 200, vary)),
        (get(U, Accept="text/html"), html("<p>", 200, vary)),
    )
    assert Replay(over).ask(get(U, Accept="application/json;q=0.5, text/html")) == "<p>"
    assert Replay(over).ask(get(U, Accept="application/vnd.api.raw+json, */*")) == "miss"
