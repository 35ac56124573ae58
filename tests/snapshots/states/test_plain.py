"""Captures that are plainly without a state get the lines that the whole search for states would give them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.identity.keys import parse
from stillweb.snapshots.identity.rules import builtin, reduced
from stillweb.snapshots.index.build import build
from stillweb.snapshots.index.gathering import Site
from stillweb.snapshots.request import Request
from stillweb.snapshots.states.evidence import _unchanged
from stillweb.snapshots.states.plain import PLAIN_URL, plain_headers, plain_url
from stillweb.snapshots.warc.container import open_directory
from stillweb.snapshots.writer import Writer

BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
PLAIN = ((), (("Accept", "*/*"),), (("Cookie", "_ga=GA1.2.3"), ("Accept", "text/html")))
TELLING = (
    (("Cookie", "lang=en"),),
    (("Cookie", "sid=8f14e45fceea167a5a36dedd4bea2543"),),
    (("HX-Request", "true"),),
    (("X-Requested-With", "XMLHttpRequest"),),
    (("Authorization", "Basic YTpi"),),
    (("X-HTTP-Method-Override", "DELETE"),),
    (("X-Tenant", "acme"),),
)
PATHS = ("", "a", "a?page=1", "a?page=2", "i.png", "s.css")
ODD_PATHS = ("a?utm_source=x", "a?t=1234567890abcdef", "a?", "a/../b", "a?&", "a?=1", "%41", "i.png?x=[1]")


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[str, str, tuple[tuple[str, str], ...], int, str, bytes, str, bool]:
    odd = draw(st.integers(0, 11))  # most recordings have none that is
    method = draw(st.sampled_from(("HEAD", "POST"))) if odd == 1 else "GET"
    path = draw(st.sampled_from(ODD_PATHS if odd == 2 else PATHS))
    headers = draw(st.sampled_from(TELLING if odd == 3 else PLAIN))
    status = draw(st.sampled_from((206, 302, 304, 404))) if odd in (4, 5) else 200
    media = {"p": "image/png", "s": "text/css"}.get(path.partition("?")[0][-3:-2], "text/html")
    body = draw(st.sampled_from((b"one", b"one", b"two"))) if odd < 9 else path.encode()
    return (
        method,
        path,
        headers,
        status,
        media,
        body,
        draw(st.sampled_from(("s", "s", "t", ""))),
        draw(st.booleans()),
    )


Recorded = list[tuple[str, str, tuple[tuple[str, str], ...], int, str, bytes, str, bool]]


def lines(root: Path) -> Iterator[list[bytes]]:
    container = open_directory(root)
    try:
        yield build(container).lines
        with patch.object(Site, "final", lambda site: ([], site.lines, site.requests())):
            yield build(container).lines
    finally:
        container.close()


PAGE = ((), 200, "text/html", b"one", "s", False)
IMAGE = ("GET", "i.png", (), 200, "image/png", b"one", "s", False)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(exchanges(), min_size=1, max_size=12))
@example([IMAGE, (*IMAGE[:5], b"two", "s", True), (*IMAGE[:5], b"one", "t", False)])
@example([IMAGE, (*IMAGE[:2], TELLING[0], *IMAGE[3:5], b"two", "t", False)])
@example([("HEAD", *IMAGE[1:]), ("HEAD", *IMAGE[1:5], b"two", "s", False)])
@example([("HEAD", "a", *PAGE), ("HEAD", "a", *PAGE[:3], b"two", "s", False)])
def test_what_is_plain_needs_no_search(recorded: Recorded) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer.open(folder)
        for number, (method, path, headers, status, media, body, session, vary) in enumerate(recorded):
            answer = (("Content-Type", media), *((("Vary", "Accept"),) if vary else ()))
            if method == "HEAD":
                answer = (*answer, ("ETag", f'"{body.decode()}"'))
            writer.exchange(
                Exchange(
                    Request(
                        method, f"https://a.example/{path}", headers, b"x=1" if method == "POST" else b""
                    ),
                    status,
                    "",
                    answer,
                    b"" if method == "HEAD" else body,
                    BEGIN + timedelta(seconds=number),
                    session,
                    2 * number + 1 if session else 0,
                    2 * number + 2 if session else 0,
                )
            )
        quick, searched = lines(Path(folder))
        writer.close()
    assert quick == searched


def test_most_captures_of_a_plain_site_are_not_searched(tmp_path: Path) -> None:
    site = Site(
        keys=["1", "2", "1"],
        lines=[b"a", b"b", b"c"],
        asked=[None] * 3,
        told={"1": "x", "2": "y"},
        differing={"1"},
    )
    assert site.final() == ([b"b"], [b"a", b"c"], [None, None])
    site.odd.add("1")  # an image that was asked for with a login, and is no file that stays the same
    assert site.final()[0] == []


@settings(max_examples=200, deadline=None)
@given(st.from_regex(r"[A-Za-z0-9._~=-]{0,16}", fullmatch=True))
def test_no_rule_changes_a_plain_query(pair: str) -> None:
    url = f"https://a.example/p?{pair}"
    if plain_url(url):
        assert _unchanged(pair)
        request = Request("GET", url)
        assert reduced(request, builtin().rules) == parse(request)


def test_what_is_not_plain() -> None:
    assert plain_url("https://a.example/p?page=1&q=tea")
    assert not any(map(plain_url, (f"https://a.example/{path}" for path in ODD_PATHS)))
    assert all(map(plain_headers, PLAIN))
    assert not any(map(plain_headers, TELLING))
    assert PLAIN_URL.fullmatch("https://A.example/") is None
