"""Captures of one request of which not every answer names in Vary what its server decides by."""

from __future__ import annotations

import pytest

from stillweb.snapshots.capture import Response
from stillweb.snapshots.matching.ladder import Matcher
from stillweb.snapshots.request import Request
from tests.support.memory_store import Replay, get, html, matcher

URL = "http://a.test/page"
LANGUAGE = ("Vary", "Accept-Language")
ETAG = ("ETag", '"one"')
UNMODIFIED = Response(304, "Not Modified", (ETAG,), b"")
COPY = {"if_none_match": '"one"'}

Found = tuple[str | None, str, bool]


def found(over: Matcher, request: Request, field: str = "content-type") -> Found:
    """A field of what a new session is answered, the verdict, and whether it is unsure."""
    lookup = over.lookup(request, over.session())
    value = None if lookup.capture is None else over.snapshot.read(lookup.capture).header(field)
    return value, lookup.verdict, lookup.ambiguous


def test_a_304_without_vary_is_no_surer_in_another_language_than_its_page() -> None:
    english, french = {"accept_language": "en"}, {"accept_language": "fr"}
    over = matcher(
        (get(URL, **english), html("hello", 200, LANGUAGE, ETAG)), (get(URL, **english, **COPY), UNMODIFIED)
    )
    assert found(over, get(URL, **english, **COPY), "etag") == ('"one"', "exact", False)
    assert found(over, get(URL, **french, **COPY), "etag") == ('"one"', "varies:accept-language", True)
    replay = Replay(over)
    assert replay.ask(get(URL, **french)) == "hello", "the 304 does not hide the page"
    assert (replay.last.verdict, replay.last.ambiguous) == ("varies:accept-language", True)


def test_an_error_without_vary_is_none_in_another_language() -> None:
    english = get(URL, accept_language="en")
    over = matcher((english, html("not here", 404)), (english, html("hello", 200, LANGUAGE)))
    replay = Replay(over)
    assert replay.ask(get(URL, accept_language="fr")) == "not here"
    assert (replay.last.verdict, replay.last.ambiguous) == ("varies:accept-language", True)


def test_an_answer_to_nobody_without_vary_is_none_for_a_signed_in_client() -> None:
    closed = Response(401, "Unauthorized", (("WWW-Authenticate", "Bearer"),), b"")
    signed_in = get(URL, authorization="Bearer one", accept="text/html")
    over = matcher((get(URL), closed), (signed_in, html("mine", 200, ("Vary", "Accept"))))
    for request, text in ((signed_in, "mine"), (get(URL), "")):
        replay = Replay(over)
        assert replay.ask(request) == text
        assert (replay.last.verdict, replay.last.ambiguous) == ("exact", False)


def test_a_miss_names_the_field_that_an_answer_has_not_in_its_vary() -> None:
    over = matcher(
        (get(URL, accept_language="en"), html("hello")),
        (get(URL, accept_language="fr"), html("bonjour", 200, LANGUAGE)),
    )
    missed = over.lookup(get(URL, accept_language="de"), over.session())
    assert missed.capture is None
    assert [near.differs for near in missed.explain()] == [
        [f"header accept-language: asked 'de', recorded {value!r}"] for value in ("en", "fr")
    ]


ONE, TWO, THREE = ({"origin": f"https://{name}.test"} for name in ("one", "two", "three"))
NAMED = ("Vary", "Origin")
READERS = "access-control-allow-origin"


def data(reader: str | None, *more: tuple[str, str]) -> Response:
    told = () if reader is None else (("Access-Control-Allow-Origin", reader),)
    return Response(200, "OK", (("Content-Type", "application/json"), *told, *more), b"{}")


@pytest.mark.parametrize("vary", [(), (NAMED,)])
def test_which_origin_may_read_an_answer_is_known_for_those_that_asked_only(
    vary: tuple[tuple[str, str], ...],
) -> None:
    over = matcher(*[(get(URL, **origin), data(origin["origin"], *vary)) for origin in (ONE, TWO)])
    for origin in (ONE, TWO):
        assert found(over, get(URL, **origin), READERS) == (origin["origin"], "exact", False)
    assert found(over, get(URL, **THREE), READERS)[1:] == ("varies:origin", True)


@pytest.mark.parametrize("reader", ["*", "https://two.test"])
@pytest.mark.parametrize("vary", [(), (NAMED,)])
@pytest.mark.parametrize("turned", [False, True])
def test_what_was_asked_for_without_origin_is_no_answer_for_another_one(
    reader: str, vary: tuple[tuple[str, str], ...], turned: bool
) -> None:
    """Many servers name Origin in Vary, and let it read, only where one was sent: a picture, then the same in a canvas."""
    recorded = [(get(URL), data(None)), (get(URL, **TWO), data(reader, *vary))]
    over = matcher(*reversed(recorded) if turned else recorded)
    assert found(over, get(URL, **TWO), READERS) == (reader, "exact", False)
    if vary or not turned:
        assert found(over, get(URL), READERS) == (None, "exact", False)
    assert found(over, get(URL, **THREE), READERS)[1:] == ("varies:origin", True)


def test_what_every_origin_may_read_is_sure_for_another_one() -> None:
    over = matcher(*[(get(URL, **origin), data("*", NAMED)) for origin in (ONE, TWO)])
    assert found(over, get(URL, **THREE), READERS) == ("*", "varies:origin", False)
