"""Header values: weighted lists, languages, spans, fragments, trailers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillweb.snapshots.http.header_values import items_of, merge_trailers, sorted_languages, split_trailers
from stillweb.snapshots.http.spans import covered_range, is_whole
from stillweb.snapshots.request import Headers, Request
from tests.support.memory_store import Replay, get, html, matcher

URL = "http://a.test/p"


@pytest.mark.parametrize(
    ("field", "items"),
    [
        ("", []),
        (" , ;q=1, ", []),
        ("Text/HTML", [("text/html", (), 1.0)]),
        ("br;q=0.5, *", [("br", (), 0.5), ("*", (), 1.0)]),
        ("application/json ; OData = verbose; q = 0.3", [("application/json", ("odata=verbose",), 0.3)]),
        ("en;q=much, fr;q=0.000", [("en", (), 0.0), ("fr", (), 0.0)]),
    ],
)
def test_items_have_a_name_parameters_and_a_weight(
    field: str, items: list[tuple[str, tuple[str, ...], float]]
) -> None:
    assert list(items_of(field)) == items


def test_the_most_wanted_is_first_and_of_equals_the_first_named() -> None:
    assert [tag.language for tag in sorted_languages("a;q=0.2,b, c;q=0.2 ,d;q=1.0,*")] == ["b", "d", "a", "c"]


@pytest.mark.parametrize(
    ("recorded", "asked", "expected"),
    [
        ({"zh-TW": "T"}, "zh-CN", "miss"),
        ({"zh-TW": "T", "fr": "F"}, "zh-CN", "miss"),
        ({"zh-TW": "T", "fr": "F"}, "zh-Hant-TW", "T"),
        ({"zh-TW": "T", "zh-CN": "C"}, "zh-CN", "C?"),
        ({"zh-TW": "T", "zh-CN": "C"}, "zh-Hant", "T?"),
        ({"zh-CN": "C", "zh-TW": "T"}, "zh-HK", "T?"),
        ({"zh-CN": "C", "zh-TW": "T"}, "zh", "C?"),
        ({"zh-TW": "T", "zh-HK": "H"}, "zh-Hant", "miss"),
        ({"zh-TW": "T", "zh-HK": "H"}, "zh-MO", "miss"),
        ({"zh-TW": "T", "zh-HK": "T", "zh-CN": "C"}, "zh-MO", "T?"),
        ({"en-US": "A", "en-GB": "B"}, "en-US,en;q=0.9", "A"),
        ({"en-US": "A", "en": "E"}, "en-US,en;q=0.9", "A"),
        ({"en-US,en;q=0.9": "A", "en-US": "E"}, "en-US,en;q=0.5", "A"),
        ({"en-US": "A", "en-GB": "B"}, "en", "miss"),
        ({"en-US": "A", "en-US,en;q=0.9": "A"}, "fr", "miss"),
        ({"en-US": "A", "en-GB": "A"}, "fr", "miss"),
        ({"en-US": "A", "": "A"}, "fr", "miss"),
        ({"en-US": "A", "de": "A"}, "fr", "miss"),
        ({"en-US": "A", "de": "A"}, "", "miss"),
        ({"en-US": "A", "de,en": "A"}, "", "miss"),
        ({"en": "A", "de": "A"}, "de,en;q=0.5", "A?"),
        ({"en-US": "A", "en-GB": "A"}, "en-AU", "A?"),
        ({"en-US": "A", "en": "A"}, "en-AU", "A?"),
        ({"en-US": "A", "en-US,en;q=0.9": "A", "fr": "F"}, "en-GB", "A?"),
        ({"en-US": "A", "en-GB": "B"}, "en-AU", "miss"),
        ({"en-US": "A"}, "en-GB", "A?"),
        ({"en-US": "A", "fr": "F"}, "en-GB", "A?"),
        ({"en-US": "A", "en": "E", "fr": "F"}, "en-GB", "miss"),
        ({"en-US": "A", "en": "A", "fr": "F"}, "en-GB", "A?"),
        ({"en-US": "A", "fr": "F"}, "en", "A?"),
        ({"": "F", "fr": "F", "en-US": "F"}, "fr-CA,fr;q=0.9", "F?"),
        ({"": "C", "fr-CA": "C"}, "fr", "C?"),
        ({"en-US": "A", "fr": "F"}, "fr-CA,fr;q=0.9", "F?"),
        ({"en-US": "A", "fr": "F"}, "fr;q=0.9", "F?"),
        ({"fr": "D", "en": "E"}, "fr,en;q=0.5", "D?"),
        ({"fr,en;q=0.5": "E", "de": "D"}, "fr", "E?"),
        ({"en-US,en;q=0.9": "E", "fr,en;q=0.5": "E"}, "fr", "E?"),
        ({"en": "D", "fr,en;q=0.5": "F"}, "fr;q=0.5,en", "D?"),
        ({"ja": "J", "en": "E"}, "ja-Latn", "miss"),
        ({"zh-CN": "C", "en": "E"}, "zh-yue", "miss"),
    ],
)  # fmt: skip
def test_an_answer_for_another_script_or_region_is_not_surely_the_one(
    recorded: dict[str, str], asked: str, expected: str
) -> None:
    """`?` stands for ambiguous."""
    vary = ("Vary", "Accept-Language")
    over = matcher(
        *[(get(URL, accept_language=tag), html(text, 200, vary)) for tag, text in recorded.items()]
    )
    replay = Replay(over)
    said = replay.ask(get(URL, accept_language=asked))
    assert said + ("?" if replay.last.ambiguous else "") == expected


def test_another_browser_gets_what_the_recorded_one_got_and_is_told_that_it_is_not_sure() -> None:
    recorded = get(URL, user_agent="Mozilla/5.0 Chrome")
    replay = Replay(matcher((recorded, html("A", 200, ("Vary", "User-Agent")))))
    assert (replay.ask(get(URL, user_agent="curl/8")), replay.last.verdict) == ("A", "varies:user-agent")
    assert replay.last.ambiguous


_FIELDS = (
    "", "*", "en", "en-US", "en-US,en;q=0.9", "en-GB,en;q=0.8", "fr", "fr-CA,fr;q=0.9", "fr,en;q=0.5", "fr;q=0.5,en",
    "de,en;q=0.5", "zh", "zh-CN", "zh-TW", "zh-TW,zh;q=0.9,en;q=0.5", "zh-Hant", "ja", "ja-Latn", "pt", "pt-BR,pt;q=0.9",
)  # fmt: skip
_TAGS = ("en", "en-US", "en-GB", "fr", "fr-CA", "de", "zh", "zh-Hans", "zh-Hant", "ja", "pt", "pt-BR")


def negotiated(site: list[str], field: str) -> str:
    """Return the language that a site with these languages answers in: by RFC 4647, 3.4, else any of the language, else its first."""
    items = [item.partition(";q=") for item in field.split(",") if item not in ("", "*")]
    names = [name for name, _, weight in sorted(items, key=lambda item: -float(item[2] or 1))]
    for name in names:
        tag = {"zh-CN": "zh-Hans", "zh-TW": "zh-Hant"}.get(name, name)
        while tag:
            if tag in site:
                return tag
            tag = tag.rpartition("-")[0]
    kin = [tag for name in names for tag in site if tag.partition("-")[0] == name.partition("-")[0]]
    return (kin or site)[0]


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(_TAGS), min_size=1, max_size=4, unique=True),
    st.lists(st.sampled_from(_FIELDS), min_size=1, max_size=4, unique=True),
    st.sampled_from(_FIELDS),
)
def test_what_is_sure_is_what_the_site_says(site: list[str], recorded: list[str], asked: str) -> None:
    vary = ("Vary", "Accept-Language")
    pages = [(get(URL, accept_language=f), html(negotiated(site, f), 200, vary)) for f in recorded]
    replay = Replay(matcher(*pages))
    said = replay.ask(get(URL, accept_language=asked))
    assert said in ("miss", negotiated(site, asked)) or replay.last.ambiguous


HTML = ("Content-Type", "text/html")
CALL = ("Content-Type", "application/grpc")
LENGTH = ("Content-Length", "3")


@pytest.mark.parametrize("head", [(HTML,), (HTML, ("Trailer", "X-Sum")), (CALL, ("x-sum", "0"))])
def test_what_is_merged_is_parted(head: Headers) -> None:
    behind = (("X-Sum", "1"), ("Y", "2"), ("x-sum", "3"))
    stored = (*merge_trailers(head, behind), LENGTH)  # as archives write it
    assert split_trailers(stored, 3) == ((*head, LENGTH), behind)


def test_what_has_no_place_behind_a_body_is_left_out() -> None:
    assert merge_trailers((HTML,), (("Set-Cookie", "a=1"), ("content-length", "9"))) == (HTML,)
    assert merge_trailers((HTML,), (("Set-Cookie", "a=1"), ("X", "1")))[1:] == (("Trailer", "X"), ("X", "1"))


@pytest.mark.parametrize(
    "fields",
    [
        (HTML, LENGTH),
        (HTML, ("Trailer", "X-Sum"), LENGTH),
        (("Trailer", "Expires"), ("Expires", "0"), HTML),
        (("Trailer", "X-Sum, Y"), ("X-Sum", "1")),
    ],
)
def test_a_head_of_others_stays_whole(fields: Headers) -> None:
    assert split_trailers(fields, 3) == (fields, ())


def test_of_grpc_the_status_is_known() -> None:
    status = (("grpc-status", "0"), ("Grpc-Message", "fine"))
    assert split_trailers((CALL, *status, LENGTH), 3) == ((CALL, LENGTH), status)
    assert split_trailers((CALL, *status), 0) == ((CALL, *status), ())


@pytest.mark.parametrize(
    ("asked", "told", "expected"),
    [
        ("bytes=2-3", "bytes 2-5/10", (2, 4)),
        ("bytes=2-5", "bytes 2-5/10", (2, 6)),
        ("bytes=1-3", "bytes 2-5/10", None),
        ("bytes=4-6", "bytes 2-5/10", None),
        ("bytes=8-", "bytes 2-9/10", (8, 10)),
        ("bytes=8-99", "bytes 2-9/10", (8, 10)),
        ("bytes=-2", "bytes 2-9/10", (8, 10)),
        ("bytes=-2", "bytes 2-9/*", None),  # nobody knows where it ends
        ("bytes=8-", "bytes 2-9/*", None),
        ("bytes=8-9", "bytes 2-9/*", (8, 10)),
        ("bytes=2-3,5-5", "bytes 2-5/10", None),
        ("bytes=10-", "bytes 2-9/10", None),
        ("lines=2-3", "bytes 2-5/10", None),
        ("bytes=2-3", "bytes */10", None),
        ("bytes=2-3", None, None),
    ],
)
def test_inside(asked: str, told: str | None, expected: tuple[int, int] | None) -> None:
    assert covered_range(asked, told) == expected


@pytest.mark.parametrize(
    ("told", "length", "expected"),
    [
        ("bytes 0-9/10", "10", True),
        ("bytes 0-9/10", "9", False),  # cut short
        ("bytes 0-9/10", None, False),
        ("bytes 0-9/*", "10", False),
        ("bytes 0-8/10", "9", False),
        ("bytes 1-9/10", "9", False),
        (None, "10", False),
    ],
)
def test_a_part_may_be_the_whole(told: str | None, length: str | None, expected: bool) -> None:
    assert is_whole(told, length) is expected


U = "http://a.test/list"
FIELDS = [
    ("HX-Request", "true"),
    ("RSC", "1"),
    ("X-PJAX", "true"),
    ("Turbo-Frame", "rows"),
    ("X-Inertia", "true"),
]


@pytest.mark.parametrize("field", FIELDS)
def test_a_fragment_alone_is_no_page(field: tuple[str, str]) -> None:
    fragment, page = Request("GET", U, (field,)), get(U)
    over = matcher((fragment, html("<li>")))
    replay = Replay(over)
    for _ in range(2):
        assert replay.ask(page) == "miss"
        assert replay.ask(fragment) == "<li>"
        assert (replay.last.verdict, replay.last.ambiguous) == ("exact", False)
    assert (
        f"the recording does not show whether header {field[0].lower()} matters"
        in over.lookup(page).explain()[0].differs[0]
    )


def test_what_a_library_asked_for_is_not_surely_what_others_get() -> None:
    """A library sends its field whatever it asks for; many servers send it parts of pages, or data."""
    asked, page = get(U, x_requested_with="XMLHttpRequest"), get(U)
    replay = Replay(matcher((asked, html("<li>"))))
    for request, told in ((page, ("exact", True)), (asked, ("exact", False))) * 2:
        assert replay.ask(request) == "<li>"
        assert (replay.last.verdict, replay.last.ambiguous) == told
    alike = Replay(matcher((asked, html("<li>")), (page, html("<li>"))))
    for request in (page, asked):
        assert alike.ask(request) == "<li>"
        assert (alike.last.verdict, alike.last.ambiguous) == ("exact", False)


@pytest.mark.parametrize(
    ("field", "text"), [*((f, "miss") for f in FIELDS), (("X-Requested-With", "XMLHttpRequest"), "<html>")]
)
def test_a_page_alone_is_not_surely_the_fragment(field: tuple[str, str], text: str) -> None:
    fragment, page = Request("GET", U, (field,)), get(U)
    replay = Replay(matcher((page, html("<html>"))))
    for _ in range(2):
        assert replay.ask(page) == "<html>"
        assert (replay.last.verdict, replay.last.ambiguous) == ("exact", False)
        assert replay.ask(fragment) == text
        assert replay.last.confidence < 0.99


@pytest.mark.parametrize("same", [True, False])
def test_where_both_were_recorded_each_is_served(same: bool) -> None:
    fragment, page = Request("GET", U, (("HX-Request", "true"),)), get(U)
    answers = ("<li>", "<li>") if same else ("<html>", "<li>")
    over = matcher((page, html(answers[0])), (fragment, html(answers[1])))
    for order in ((page, fragment, page), (fragment, page, fragment)):
        replay = Replay(over)
        for request in order:
            assert replay.ask(request) == answers[request is fragment]
            assert replay.last.verdict == "exact"
            assert replay.last.confidence > 0.9


def test_what_is_known_of_one_field_says_nothing_of_another() -> None:
    over = matcher((get(U), html("<html>")), (get(U, hx_request="true"), html("<li>")))
    for field, text in (("X-Requested-With", "<html>"), ("HX-Request", "<li>")):
        replay = Replay(over)
        assert replay.ask(Request("GET", U, ((field, "true"),))) == text
        assert replay.last.confidence < 0.99
