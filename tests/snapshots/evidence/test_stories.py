"""Stories: what was recorded, what is asked, and what the model answers, how surely.

An answer is written as its text where it is sure, as `text?` where it is presumed, and as `miss` where it is less likely than what is
served by default.
"""

from __future__ import annotations

import base64
import copy
import gc
import gzip
import json
import pickle
import struct
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.capture import Response
from stillweb.snapshots.evidence import SERVED, SURE
from stillweb.snapshots.evidence.events import History
from stillweb.snapshots.evidence.matcher import Matcher
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.redact import PREFIX, Redactor
from tests.support.memory_store import MemoryStore, Recorded, get, html, plain, post, redirect

A = "http://a.test"
Exchange = tuple[Request, Response] | tuple[Request, Response, str]


def over(*recorded: Exchange) -> Matcher:
    """Return a matcher by evidence over exchanges, each of session `s` unless told otherwise."""
    return Matcher(MemoryStore([Recorded(*one) for one in recorded]))


def told(matcher: Matcher, *asked: Request, name: str = "replay") -> list[str]:
    """Return what one session is answered."""
    session, found = matcher.session(name), []
    for request in asked:
        lookup = matcher.lookup(request, session)
        if lookup.capture is None:
            found.append("miss")
            continue
        session.answered(lookup)
        text = matcher.snapshot.read(lookup.capture).body.decode()
        assert lookup.ambiguous == (lookup.confidence < SURE)
        assert lookup.confidence >= SERVED
        found.append(text if lookup.confidence >= SURE else f"{text}?")
    return found


def likely(matcher: Matcher, *asked: Request) -> tuple[str, float]:
    """Return the likeliest answer to the last request of a session, and its confidence, however small."""
    session = matcher.session("replay")
    for request in asked:
        lookup = matcher.lookup(request, session, min_confidence=0.0)
        if lookup.capture is not None:
            session.answered(lookup)
    if lookup.capture is None:
        return "miss", 0.0
    return matcher.snapshot.read(lookup.capture).body.decode(), lookup.confidence


def sent(path: str, value: object, method: str = "POST", **headers: str) -> Request:
    """Return a request with a JSON body."""
    return Request(
        method,
        A + path,
        (("Content-Type", "application/json"), *((n.replace("_", "-"), v) for n, v in headers.items())),
        json.dumps(value).encode(),
    )


def data(value: object, status: int = 200, *more: tuple[str, str]) -> Response:
    """Return a JSON answer."""
    return Response(status, "OK", (("Content-Type", "application/json"), *more), json.dumps(value).encode())


LOGIN = post(f"{A}/login", "user=ann&password=tea")
HOME, LIST, CART = get(f"{A}/"), get(f"{A}/list"), get(f"{A}/cart")
ADD = sent("/cart", {"item": 1})
ADD_2 = sent("/cart", {"item": 2})
DROP = sent("/cart/1", {}, "DELETE")
IN_2020, IN_2021 = post(f"{A}/filter", "year=2020"), post(f"{A}/filter", "year=2021")
FILTERED = (
    (LIST, html("all")),
    (IN_2020, redirect("/list")),
    (LIST, html("of 2020")),
    (IN_2021, redirect("/list")),
    (LIST, html("of 2021")),
    (IN_2020, redirect("/list")),
    (LIST, html("of 2020")),
)
BASKET = (
    (CART, data([])),
    (ADD, data({"count": 1}, 201)),
    (CART, data([1])),
    (ADD_2, data({"count": 2}, 201)),
    (CART, data([1, 2])),
    (DROP, data({"count": 1})),
    (CART, data([2])),
)

AS_RECORDED: dict[str, tuple[Exchange, ...]] = {
    "filter": FILTERED,
    "basket": BASKET,
    "login": ((HOME, html("stranger")), (LOGIN, redirect("/")), (HOME, html("ann"))),
    "counter": tuple((HOME, html(f"visit {n}")) for n in range(1, 6)),
    "the same again": tuple((HOME, html("home")) for _ in range(3)),
    "an answer that comes back": tuple((HOME, html(text)) for text in ("a", "b", "a", "b")),
    "one path, many methods": (
        (Request("PUT", f"{A}/x", (), b"1"), plain("put")),
        (get(f"{A}/x"), plain("1")),
        (Request("DELETE", f"{A}/x"), plain("gone")),
        (get(f"{A}/x"), Response(404, "Not Found", (), b"none")),
    ),
    "languages": (
        (get(f"{A}/", accept_language="de"), html("Guten Tag")),
        (get(f"{A}/", accept_language="en"), html("Good day")),
    ),
}


@pytest.mark.parametrize("name", AS_RECORDED)
def test_a_walk_as_recorded_is_right_and_sure(name: str) -> None:
    recorded = AS_RECORDED[name]
    assert told(over(*recorded), *(one[0] for one in recorded)) == [one[1].body.decode() for one in recorded]


JSON_FIELDS = (("Content-Type", "application/json"),)
SPELT = {
    "a query's order": (get(f"{A}/q?a=1&b=2"), get(f"{A}/q?b=2&a=1")),
    "letters of an address": (get(f"{A}/a b"), get(f"{A}/a%20b")),
    "a form's order": (post(f"{A}/f", "a=1&b=2"), post(f"{A}/f", "b=2&a=1")),
    "members of JSON": (
        Request("POST", f"{A}/j", JSON_FIELDS, b'{"a":1,"b":2}'),
        Request("POST", f"{A}/j", JSON_FIELDS, b'{"b":2,"a":1}'),
    ),
    "space in JSON": (
        Request("POST", f"{A}/j", JSON_FIELDS, b'{"a":1}'),
        Request("POST", f"{A}/j", JSON_FIELDS, b'{ "a": 1 }'),
    ),
    "kinds of JSON": (
        Request("PATCH", f"{A}/j", (("Content-Type", "application/json-patch+json"),), b"[]"),
        Request("PATCH", f"{A}/j", (("Content-Type", "application/merge-patch+json"),), b"[]"),
    ),
    "a telephone": (
        get(HOME.url, user_agent="Mozilla/5.0 (iPhone)"),
        get(HOME.url, user_agent="Mozilla/5.0"),
    ),
    "a screen's density": (get(HOME.url, dpr="1"), get(HOME.url, dpr="2")),
    "a page that led here": (get(HOME.url, referer=LIST.url), get(HOME.url, referer=CART.url)),
    "a page loaded again": (get(HOME.url), get(HOME.url, cache_control="no-cache")),
    "a page, and a script's question": (
        get(HOME.url, sec_fetch_mode="navigate"),
        get(HOME.url, sec_fetch_mode="cors"),
    ),
    "a write and its repeat": (
        sent("/orders", {}, idempotency_key="8e03978e-40d5-43e8-bc93-6894a57f9324"),
        sent("/orders", {}, idempotency_key="5b8d1f7c-93d7-4d43-8f6c-2f2c0a9d1e55"),
    ),
    "a proxy's host": (get(HOME.url, x_forwarded_host="a.test"), get(HOME.url, x_forwarded_host="b.test")),
    "a second kind wanted": (
        get(HOME.url, accept="text/html"),
        get(HOME.url, accept="text/html, image/webp"),
    ),
}


@pytest.mark.parametrize("signed_in", [False, True])
@pytest.mark.parametrize("spelt", SPELT.values(), ids=SPELT)
def test_of_two_spellings_of_a_request_neither_gets_the_others_answer_for_sure(
    spelt: tuple[Request, Request], signed_in: bool
) -> None:
    """Both spellings have one key: a client that asked for the second alone got the first, with confidence 1."""
    first, second = spelt
    before: tuple[Exchange, ...] = ((LOGIN, redirect("/")),) if signed_in else ()
    matcher = over(*before, (first, html("one")), (second, html("two")))
    assert told(matcher, *(one[0] for one in before), first, second)[-2:] == ["one", "two"]
    for request, own in ((first, "one"), (second, "two")):
        text, confidence = likely(matcher, request)
        assert text == own or confidence < SURE
        if request.method == "GET":  # what a write answers may depend on those before it
            assert text == own


def test_spellings_of_a_request_with_one_answer_are_not_told_apart() -> None:
    for first, second in SPELT.values():
        matcher = over((first, html("one")), (second, html("one")), (LIST, html("a")), (LIST, html("b")))
        assert told(matcher, second) == ["one"]


@pytest.mark.parametrize(
    ("recorded", "asked", "told_of"),
    [
        (b'{"n":1}', b'{"n":1.0}', "one?"),
        (b'{"n":[0,1e2]}', b'{"n":[0,100]}', "one?"),
        (b'{"n":[1,1.0]}', b'{"n":[1.0,1]}', "one?"),
        (b'{"n":1,"m":2.0}', b'{"m":2,"n":1.0}', "one?"),
        (b'{"n":0}', b'{"n":-0.0}', "one?"),
        (b'{"n":0.10,"m":1E2}', b'{"m":1e2,"n":0.1}', "one"),
        (b'{"n":9007199254740992}', b'{"n":9007199254740993}', "miss"),
    ],
)
def test_a_number_of_another_type_is_not_surely_the_same(recorded: bytes, asked: bytes, told_of: str) -> None:
    """Python, Java and Go read 1 and 1.0 as two types, which a page may show or a server refuse."""
    json_type = (("Content-Type", "application/json"),)
    first, second = (Request("POST", f"{A}/count", json_type, body) for body in (recorded, asked))
    assert told(over((first, html("one"))), second) == [told_of]


@pytest.mark.parametrize(
    ("field", "recorded", "asked"),
    [
        ("Content-Range", "bytes 0-4/10", "bytes 0-4/20"),
        ("Content-Range", "bytes 0-4/10", ""),
        ("Upload-Offset", "0", "5"),
    ],
)
def test_another_part_of_an_upload_is_another_request(field: str, recorded: str, asked: str) -> None:
    """The whole was answered as its first part, with confidence .96."""
    whole = Request("PUT", f"{A}/file", (), b"hello")
    first, second = (replace(whole, headers=((field, part),) if part else ()) for part in (recorded, asked))
    assert told(over((first, html("go on"))), second) == ["miss"]
    assert told(over((first, html("go on"))), first) == ["go on"]


def test_what_varies_by_anything_is_not_sure_for_another_client() -> None:
    """`Vary: *` says that more than header fields may decide (RFC 9110, 12.5.5): it was sure."""
    one, two = get(HOME.url, user_agent="one"), get(HOME.url, user_agent="two")
    answer = html("one")
    varied = replace(answer, headers=(*answer.headers, ("Vary", "*")))
    assert told(over((one, varied)), two) == ["one?"]
    assert told(over((one, varied)), one) == ["one"]


@pytest.mark.parametrize("fields", [{}, {"referer": f"{A}/elsewhere"}])
def test_a_field_that_was_never_recorded_speaks_against_no_answer(fields: dict[str, str]) -> None:
    """Where nothing else tells the answers apart, the confidence says so."""
    from_list, from_cart = get(HOME.url, referer=LIST.url), get(HOME.url, referer=CART.url)
    matcher = over((from_list, html("one")), (from_cart, html("two")))
    assert told(matcher, get(HOME.url, **fields)) == ["one?"]
    matcher = over((from_list, html("one"), "a"), (from_cart, html("two"), "b"))
    assert likely(matcher, get(HOME.url, **fields))[1] < 0.8
    assert likely(matcher, from_cart)[0] == "two"


def test_a_page_that_was_recorded_in_one_language_is_not_sure_in_another() -> None:
    """Servers that choose by Accept-Language often send no Vary."""
    german = get(HOME.url, accept_language="de")
    for asked, text in (("de", "Guten Tag"), ("fr", "Guten Tag?"), ("de", "Guten Tag")):
        matcher = over((german, html("Guten Tag")), (LIST, html("list")))
        assert told(matcher, LIST, get(HOME.url, accept_language=asked)) == ["list", text]
    assert told(over((german, html("Guten Tag"))), german, get(HOME.url, accept_language="fr")) == [
        "Guten Tag",
        "Guten Tag?",
    ]
    sheet = Response(200, "OK", (("Content-Type", "text/css"),), b"p {}")
    recorded = get(f"{A}/a.css", accept_language="de")
    assert told(over((recorded, sheet)), get(f"{A}/a.css", accept_language="fr")) == ["p {}"]


def test_a_field_that_is_drawn_for_each_request_leaves_a_walk_as_recorded_sure() -> None:
    def ordered(trace: int) -> Request:
        return sent(
            "/orders", {}, idempotency_key=f"{trace:08x}-40d5-43e8-bc93-6894a57f9324", x_request_id=f"{trace}"
        )

    matcher = over((ordered(1), data(1)), (LIST, html("one")), (ordered(2), data(2)), (LIST, html("two")))
    assert told(matcher, ordered(3), LIST, ordered(4), LIST) == ["1", "one", "2", "two"]


FIRST_PAGES = ((HOME, html("one"), "a"), (LIST, html("list"), "a"), (HOME, html("two"), "b"))
LOGINS = tuple(
    (one, answer, f"{s}") for s in "ab" for one, answer in ((LOGIN, redirect("/")), (HOME, html(s)))
)


def shop() -> Matcher:
    """Return a matcher over two visits of a shop: writes, then list and basket asked for at once or one of them, then what was viewed."""
    recorded = []
    for number, writes in enumerate([(ADD, LOGIN, ADD_2, ADD), (IN_2021, ADD, DROP, LOGIN, IN_2020, ADD_2)]):
        done, viewed = list[Request](), list[str]()
        for at, write in enumerate(writes):
            done.append(write)
            state = f"{done.count(ADD)} {LOGIN in done} {write.url}"
            both = [(one, html(f"{one.url} {state}")) for one in (LIST, CART)][at % 3 :]
            viewed += sorted(request.url for request, _ in both)
            answered = [
                (write, data({"done": at, "more": "x" * 300})),
                *both,
                (HOME, html(f"viewed {viewed[-3:]}")),
            ]
            begin = 5 * at + 1
            for turn, (request, response) in zip((0, *[1] * len(both), 3), answered, strict=True):
                events = (begin + turn, begin + turn + 2 if request in (LIST, CART) else begin + turn + 1)
                recorded.append(Recorded(request, response, f"s{number}", events=events))
    return Matcher(MemoryStore(recorded))


SHOP = shop()
WALKS = st.lists(
    st.sampled_from([ADD, ADD_2, DROP, LOGIN, IN_2020, LIST, CART, HOME]), min_size=1, max_size=15
)


@given(walk=WALKS, between=st.lists(st.sampled_from([LIST, CART, HOME, IN_2020]), max_size=2))
def test_what_a_session_is_told_follows_from_what_it_did_alone(
    walk: list[Request], between: list[Request]
) -> None:
    session = SHOP.session("replay")
    for request in walk:
        for asked in (*between, request):
            anew = SHOP.lookup(asked, copy.deepcopy(session), min_confidence=0.0)  # it carried nothing on
            lookup = SHOP.lookup(asked, session, min_confidence=0.0)
            assert (lookup.capture, lookup.confidence) == (anew.capture, anew.confidence)
        session.answered(lookup)


@pytest.mark.parametrize(
    ("recorded", "asked", "texts"),
    [(FIRST_PAGES, (HOME,), "one two"), (LOGINS, (LOGIN, HOME), "a b")],
    ids=["at once", "after a login"],
)
def test_sessions_that_were_answered_otherwise_in_one_state_are_told_apart_by_name_alone(
    recorded: tuple[Exchange, ...], asked: tuple[Request, ...], texts: str
) -> None:
    for name, text in zip("ab", texts.split(), strict=True):
        assert told(over(*recorded), *asked, name=name)[-1] == text
    assert likely(over(*recorded), *asked) == (texts.split()[0], 0.75)  # the first that was recorded


@pytest.mark.parametrize("between", [(), (HOME,)], ids=["as recorded", "otherwise"])
@pytest.mark.parametrize(
    "make", [lambda n: {"count": n}, lambda n: {"liked": n % 2 > 0}], ids=["counter", "switch"]
)
def test_an_answer_is_no_surer_than_the_one_that_it_follows_from(
    make: Callable[[int], object], between: tuple[Request, ...]
) -> None:
    recorded: list[Exchange] = [(HOME, html("home"))]
    for session, start in (("a", 1), ("b", 6)):
        recorded += [(ADD, data(make(n)), session) for n in range(start, start + 4)]
        recorded += [(HOME, html("home"), session)]
    first, then = likely(over(*recorded), ADD), likely(over(*recorded), ADD, *between, ADD)
    assert first[1] == 0.75
    assert then[1] <= 0.76


def test_nothing_is_sure_after_a_write_that_may_have_been_refused() -> None:
    doc = get(f"{A}/doc")

    def put(text: str, version: int) -> Request:
        return Request("PUT", f"{A}/doc", (("If-Match", f'"v{version}"'),), text.encode())

    def walked(session: str, *walk: Request) -> Iterator[Exchange]:
        version, text = 1, "none"
        for one in walk:
            if one.method == "GET":
                yield one, plain(f"{version} {text}"), session
            elif one.header("if-match") == f'"v{version}"':
                version, text = version + 1, one.body.decode()
                yield one, redirect("/doc"), session
            else:
                yield one, html("changed meanwhile", 412), session

    x_1, y_1, x_2, y_2 = put("x", 1), put("y", 1), put("x", 2), put("y", 2)
    matcher = over(
        *walked("a", doc, x_1, y_1, doc, x_1, doc),
        *walked("b", y_1, x_2, doc, y_2, doc, y_1, x_2, x_2),
        *walked("c", doc, x_2, y_1, x_2, x_2, y_1, doc),
    )
    assert likely(matcher, y_1, y_2, x_2, doc)[1] < SURE


def test_a_page_is_doubted_after_a_presumed_refusal_whatever_else_was_recorded_before_it() -> None:
    """Only a refused DELETE was recorded, and in another state; done, it would have changed the list."""
    lock, drop = sent("/lock", {"on": True}, "PUT"), Request("DELETE", f"{A}/list/1")
    shown = LIST, html("tea, pot")
    tries = (drop, data({"error": "locked"}, 423)), (drop, data({"error": "locked again"}, 423))
    matcher = over(shown, (lock, plain("on")), shown, tries[0], shown, tries[1], shown, tries[0])
    text, refused = likely(matcher, LIST, drop)
    assert text == '{"error": "locked"}'
    assert refused < 0.9
    assert likely(matcher, LIST, LIST)[1] >= SURE
    assert likely(matcher, LIST, drop, LIST)[1] < SURE


@pytest.mark.parametrize("status", [429, 503])
def test_an_answer_that_tells_of_a_moment_is_not_sure_of_another(status: int) -> None:
    one, other, busy = get(f"{A}/api/a"), get(f"{A}/api/b"), html("later", status)
    matcher = over((one, html("a")), (one, html("a")), (one, busy), *[(other, busy), (one, busy)] * 8)
    assert SERVED <= likely(matcher, one, other)[1] < SURE


@pytest.mark.parametrize(("year", "text"), [(IN_2020, "of 2020"), (IN_2021, "of 2021")], ids=["2020", "2021"])
def test_a_filter_decides_whatever_was_filtered_before(year: Request, text: str) -> None:
    matcher = over(*FILTERED, *FILTERED)
    assert told(matcher, IN_2021, IN_2020, LIST, year, LIST)[-1] in (text, f"{text}?")


def test_a_filter_whose_words_alone_are_in_the_page_replaces_the_one_before() -> None:
    """A basket's words came with writes, too, but its page shows those of all writes."""
    matcher = over(*FILTERED[:5])
    assert told(matcher, IN_2021, LIST)[-1] == "of 2021?"
    assert likely(over(*BASKET[:5]), ADD_2, CART)[1] < 0.5


def test_a_filter_that_was_never_sent_is_not_answered_by_another() -> None:
    text, confidence = likely(over(*FILTERED), LIST, post(f"{A}/filter", "year=1999"), LIST)
    assert confidence < SERVED, text


def test_a_basket_that_was_never_recorded_is_not_sure() -> None:
    text, confidence = likely(over(*BASKET), CART, ADD_2, CART)
    assert confidence < SURE, text


def test_a_page_after_a_login_is_not_shown_to_strangers() -> None:
    account = get(f"{A}/account")
    matcher = over(
        (account, redirect("/login")), (LOGIN, redirect("/account")), (account, html("ann's account"))
    )
    assert told(matcher, account) == [""]
    assert likely(matcher, LOGIN, account)[0] == "ann's account"


@pytest.mark.parametrize("path", ["/api/session", "/api/sessions", "/sso", "/logoff"])
def test_who_asks_is_another_one_after_a_long_answer_to_a_sign_in(path: str) -> None:
    sign, home = sent(path, {"user": "ann"}), get(f"{A}/home")
    recorded = over((home, html("stranger")), (sign, data({"token": "t" * 300})), (LIST, html("all")))
    assert told(recorded, sign, home)[1] in ("stranger?", "miss")


def test_a_refused_login_opens_nothing() -> None:
    account, wrong = get(f"{A}/account"), post(f"{A}/login", "user=ann&password=no")
    matcher = over(
        (account, redirect("/login")),
        (wrong, html("wrong password", 401)),
        (account, redirect("/login")),
        (LOGIN, redirect("/account")),
        (account, html("ann's account")),
    )
    assert likely(matcher, wrong, account)[0] == ""


@pytest.mark.parametrize(
    "refusal",
    [{"type": "failure", "status": 401}, {"ok": False}, {"errors": ["sign in"]}, {"success": False}],
)
def test_a_write_that_is_refused_by_its_json_is_told_from_one_that_is_not(refusal: object) -> None:
    done = data({"type": "success", "status": 200})
    added = (LIST, html("none")), (ADD, done), (LIST, html("one")), (ADD_2, done), (LIST, html("two"))
    text, refused = likely(over((ADD, data(refusal)), *added), LIST)
    assert text == "none"
    assert refused > 3 * likely(over((ADD, done), *added), LIST)[1]


def test_a_step_that_is_left_out_costs_no_miss() -> None:
    """A beacon, a second look at a page: the answer recorded after it is served without it."""
    about = get(f"{A}/about")
    walk = ((HOME, html("home")), (about, html("about")), (LIST, html("list")), (about, html("about")))
    assert [text.rstrip("?") for text in told(over(*walk), LIST, about, HOME)] == ["list", "about", "home"]


@pytest.mark.parametrize("status", [401, 200], ids=["by status", "by the form again"])
def test_a_refused_write_that_is_left_out_costs_no_miss(status: int) -> None:
    """A wrong password once, an order that was turned down: the pages recorded after it are served without it."""
    wrong, order = post(f"{A}/login", "user=ann&password=no"), post(f"{A}/orders", "id=1")
    recorded = over(
        (wrong, html("wrong password", status)),
        (order, html("sign in first", 403)),
        (LOGIN, redirect("/")),
        (HOME, html("home of ann")),
        (LIST, html("tea, pot, cup")),
    )
    assert likely(recorded, LOGIN, HOME)[1] > 0.9
    assert likely(recorded, LOGIN, HOME, LIST)[1] > 0.9


def test_a_redirect_to_an_error_is_a_refusal() -> None:
    wrong = post(f"{A}/login", "user=ann&password=no")
    walk = (LOGIN, redirect("/home?welcome=ann")), (HOME, html("home of ann")), (LIST, html("tea, pot, cup"))
    refused = over((wrong, redirect("/?login_error=1")), *walk)
    assert likely(refused, LOGIN, HOME, LIST)[1] > 0.9
    assert (
        likely(refused, LOGIN, HOME, LIST)[1]
        > likely(over((wrong, redirect("/")), *walk), LOGIN, HOME, LIST)[1]
    )


def test_a_write_that_an_answer_does_not_repeat_is_missed_less() -> None:
    """A note whose words are in a page may have made that page: without the note, the page is less likely."""
    search, note = get(f"{A}/search?q=pot"), post(f"{A}/notes", "text=chamomile+infusion")

    def recorded(found: str) -> Matcher:
        return over(
            (LIST, html("none")), (note, redirect("/list")), (LIST, html("one")), (search, html(found))
        )

    silent, told = (likely(recorded(found), search)[1] for found in ("a pot", "a pot, chamomile infusion"))
    assert silent > told + 0.1


def test_a_number_in_the_drawing_of_an_icon_is_no_word_of_a_page() -> None:
    """A page that shows the price that a write sent may have been made by that write, whatever is drawn on all pages."""
    price = post(f"{A}/kettle", "price=99")

    def recorded(icon: str) -> Matcher:
        pages = [(get(f"{A}/page/{name}"), html(f"{icon}page {name}")) for name in "abcdefgh"]
        return over(*pages, (price, redirect("/list")), (LIST, html(f"{icon}<p>costs 99.00")))

    plain_pages, drawn = (likely(recorded(icon), LIST)[1] for icon in ("", '<svg><path d="M 99 8"/></svg>'))
    assert drawn == plain_pages


def test_a_redirect_that_sets_a_cookie_likely_chooses_for_all_pages() -> None:
    """A language that a link keeps is doubted more where a page was never seen in it than one that only leads on."""
    french = get(f"{A}/lang/fr")

    def recorded(*cookies: tuple[str, str]) -> Matcher:
        led = (french, redirect("/", *cookies))
        return over((CART, html("one pot")), (HOME, html("home")), led, (HOME, html("accueil")))

    led, kept = (likely(recorded(*one), french, CART)[1] for one in ((), [("Set-Cookie", "lang=fr")]))
    assert kept < led - 0.1


def test_a_missed_font_decides_nothing_after_it() -> None:
    """A font is known by its name on every machine, with a table of media types or without."""
    matcher = over((LIST, html("all")), (ADD, data({"ok": 1})), (LIST, html("one")))
    font, page = (likely(matcher, get(f"{A}/{name}"), LIST) for name in ("new.woff2", "new"))
    assert font == likely(matcher, LIST) > page


@pytest.mark.parametrize("host", ["a.test", "127.0.0.1:8080", "web2.a.test"])
def test_a_number_of_the_host_names_no_thing(host: str) -> None:
    """A page about another thing than the one that was written is less doubted, whatever the site's host."""
    site = f"http://{host}/things"
    matcher = over(
        (get(f"{site}/8"), html("thing 8")),
        (LIST, html("none")),
        (post(f"{site}/9", "name=pot"), redirect("/list")),
        (LIST, html("pot")),
    )
    other, own = (likely(matcher, post(f"{site}/{n}", "name=pot"), get(f"{site}/8"))[1] for n in (9, 8))
    assert other > own + 0.05


def test_a_page_that_only_a_write_to_its_own_thing_changed_waits_for_no_other() -> None:
    """An issue was read after another one was changed, and changed by its own alone: it is known before both."""
    issue, change = get(f"{A}/issue4"), [post(f"{A}/issue{n}", f"status={n}") for n in (3, 4)]
    walk = [(change[0], redirect("/list")), (issue, html("open")), (issue, html("open"))]
    matcher = over(*walk, (change[1], redirect("/list")), (issue, html("closed")))
    text, confidence = likely(matcher, issue)
    assert (text, confidence >= SERVED) == ("open", True)


def test_what_always_came_after_a_write_is_not_sure_without_it() -> None:
    """A job that was never sent off has no state, though none of the recorded jobs was told from the others by it."""
    state = get(f"{A}/jobs/1")
    walk: list[Exchange] = []
    for number in range(12):
        sent = post(f"{A}/jobs", f"kind={number}")
        walk += [(sent, plain("accepted")), (state, plain("running")), (state, plain("running"))]
    text, confidence = likely(over(*walk), state)
    assert text == "running"
    assert confidence < SURE


def showing(title: str, *members: str) -> Response:
    """Return a page with a list that other pages of its site have, too."""
    return html(f"<h1>{title}</h1><ul class=members>{''.join(f'<li>{one}' for one in members)}</ul>")


def test_a_page_that_was_recorded_once_is_doubted_after_a_write_that_changed_what_it_shares() -> None:
    bills, balance, form, text = (get(f"{A}/{path}") for path in ("bills", "balance", "new", "text"))
    join = post(f"{A}/members", "name=Zoe")
    matcher = over(
        (bills, showing("Bills", "Ann")),
        (form, showing("New", "Ann")),
        (text, html("<h1>Terms</h1>")),
        (balance, showing("Balance", "Ann")),
        (join, redirect("/bills")),
        (bills, showing("Bills", "Ann", "Zoe")),
        (balance, showing("Balance", "Ann", "Zoe")),
    )
    assert likely(matcher, join, form)[1] < likely(matcher, join, text)[1] - 0.2


def test_a_trail_of_pages_seen_is_doubted_where_other_pages_were_seen() -> None:
    pages = {path: get(f"{A}/wiki?id={path}") for path in ("start", "tea", "milk", "cup")}
    walk = ["start", "tea", "tea", "milk", "start", "start", "cup", "tea", "milk", "milk"]
    seen: list[str] = []
    recorded = []
    for path in walk:
        seen = [*(one for one in seen if one != path), path]
        recorded.append((pages[path], html(f"<h1>{path}</h1><div class=trail>{' - '.join(seen)}</div>")))
    matcher = over(*recorded)
    assert told(matcher, *(pages[path] for path in walk)) == [page.body.decode() for _, page in recorded]
    assert likely(matcher, pages["cup"])[1] < SERVED


def test_a_view_that_was_recorded_once_is_doubted_where_a_write_changed_the_others() -> None:
    """However many pages of the site stay as they are."""
    views = [get(f"{A}/shelf?by={by}") for by in ("name", "year", "size", "colour", "owner")]
    write, once = post(f"{A}/shelf", "text=tea"), get(f"{A}/shelf?by=price")
    still = [(get(f"{A}/page/{name}"), html(f"page {name}")) for name in "abcdefghijklmnopqrst"]
    walk = [(once, html("no tea")), *still, *((view, html(f"no tea {n}")) for n, view in enumerate(views))]
    walk += [(write, redirect("/shelf?by=name"))]
    walk += [*((view, html(f"tea {n}")) for n, view in enumerate(views)), *still]
    assert likely(over(*walk), write, once)[1] < 0.75


def test_writes_of_several_kinds_add_up_in_what_a_page_shows() -> None:
    """The list as it was after the edit alone went to those who had deleted something before the edit."""
    edit, price, delete = (post(f"{A}/{does}", f"id=1&how={does}") for does in ("edit", "price", "delete"))
    walk: list[Exchange] = [(LIST, html("as it was"))] * 2
    for write, shows in ((edit, "edited"), (price, "edited, priced"), (delete, "edited, priced, deleted")):
        walk += [(write, redirect("/list")), (LIST, html(shows)), (LIST, html(shows))]
    assert told(over(*walk), LIST, LIST, edit, LIST)[-1] == "edited"
    assert told(over(*walk), LIST, delete, edit, LIST)[-1] == "miss"


def test_what_a_path_shows_is_doubted_after_a_write_to_that_path_that_was_never_tried() -> None:
    """Though most addresses of the site share all words of that path."""
    show, write, other = get(f"{A}/api/note"), sent("/api/note", {"text": "tea"}, "PUT"), get(f"{A}/api/font")
    walk: list[Exchange] = [(get(f"{A}/api/note?page={n}"), data(n)) for n in range(3)]
    matcher = over(*walk, (show, data("none")), (other, data("serif")), (write, data({}, 201)))
    assert likely(matcher, write, show)[1] < SERVED <= likely(matcher, write, other)[1]


def test_a_page_is_hardly_doubted_for_a_write_to_another_thing_in_its_folder() -> None:
    """An admin's list of makers was a miss to those who had not deleted a kettle; what other pages show of such writes counts."""
    kettles, makers, few = (get(f"{A}/admin/{at}") for at in ("kettles/", "makers/", "kettles/?kind=gas"))
    delete, add = post(f"{A}/admin/kettles/delete/", "id=5"), post(f"{A}/admin/makers/add/", "name=Valley")
    deleted = over(
        (kettles, html("5")),
        (delete, redirect("/admin/kettles/")),
        (kettles, html("4")),
        (makers, html("Hill")),
    )
    assert likely(deleted, makers)[1] > 0.85
    reaching = over(
        (kettles, html("5")),
        (few, html("2")),
        (add, redirect("/admin/makers/")),
        (kettles, html("5, Valley")),
    )
    assert likely(reaching, add, few)[1] < likely(deleted, makers)[1]


def test_a_thing_is_hardly_doubted_for_writes_to_others_that_say_the_same_beside_their_number() -> None:
    def edit(number: int) -> Request:
        return post(f"{A}/issue{number}", "template=item")

    issue = get(f"{A}/issue21?template=item")
    recorded = [(edit(3), redirect("/issue3")), (edit(4), redirect("/issue4")), (issue, html("issue 21"))]
    assert likely(over(*recorded), edit(4), issue)[1] > 0.85


def test_a_write_to_another_resource_is_no_miss() -> None:
    def put(name: str) -> Request:
        return Request("PUT", f"{A}/notes/{name}", (), b"text")

    recorded: list[Exchange] = []
    for name in ("tea", "pot", "cup"):
        note = get(f"{A}/notes/{name}")
        recorded += [(note, plain(f"no {name}")), (put(name), plain("kept")), (note, plain(f"a {name}"))]
        recorded.append((get(f"{A}/notes/tea"), plain("a tea")))
    assert likely(over(*recorded), put("cup"), get(f"{A}/notes/cup"))[0] == "a cup"
    assert likely(over(*recorded), put("pot"), get(f"{A}/notes/cup"))[0] == "no cup"


@pytest.mark.parametrize("language", ["de", "en"])
def test_a_language_in_a_header_field_decides(language: str) -> None:
    matcher = over(*AS_RECORDED["languages"])
    text = {"de": "Guten Tag", "en": "Good day"}[language]
    assert told(matcher, get(f"{A}/", accept_language=language))[0].rstrip("?") == text


def test_a_language_that_was_never_recorded_is_not_sure() -> None:
    text, confidence = likely(over(*AS_RECORDED["languages"]), get(f"{A}/", accept_language="fr"))
    assert confidence < SURE, text


@pytest.mark.parametrize(
    "field", ["Destination", "Content-Disposition", "X-Tenant", "X-Cart-Id", "X-User", "X-Trace-Mode"]
)
def test_requests_that_differ_in_a_field_have_their_own_answers(field: str) -> None:
    def asked(value: str) -> Request:
        return Request("MOVE" if field == "Destination" else "GET", f"{A}/files/1", ((field, value),))

    matcher = over((asked("one"), plain("one")), (asked("two"), plain("two")))
    for value in ("one", "two"):
        assert likely(matcher, asked(value))[0] == value
    assert told(matcher, asked("one"), asked("two")) == ["one", "two"]
    assert likely(matcher, asked("three"))[1] < SERVED


@pytest.mark.parametrize(("field", "recorded", "asked"), [
    ("Prefer", "return=representation", "return=minimal"),
    ("Slug", "tea", "pot"),
    ("Upload-Offset", "0", "1"),
    ("X-Amz-Target", "Shop.Describe", "Shop.Delete"),
])  # fmt: skip
def test_a_field_by_which_a_protocol_says_what_to_do_decides_though_recorded_once(
    field: str, recorded: str, asked: str
) -> None:
    def sent(value: str) -> Request:
        return Request("PATCH", f"{A}/files/1", ((field, value),), b"tea")

    matcher = over((sent(recorded), html("done")))
    assert told(matcher, sent(recorded)) == ["done"]
    assert told(matcher, sent(asked)) == ["miss"]


def test_a_field_that_its_own_answer_repeats_decides_in_one_session() -> None:
    def made(name: str) -> Exchange:
        asked = sent("/files", {}, upload_metadata=f"filename {name}")
        return asked, Response(201, "Created", (("Location", f"/files/{name}"),), name.encode())

    matcher = over(made("north"), made("south"))
    assert likely(matcher, made("south")[0])[0] == "south"
    assert likely(over(made("north")), made("east")[0])[1] < 0.5


def test_a_year_named_timestamp_is_no_clock() -> None:
    matcher = over(*((get(f"{A}/data?timestamp={year}"), plain(year)) for year in ("2020", "2022")))
    assert told(matcher, get(f"{A}/data?timestamp=2022"))[0].rstrip("?") == "2022"
    text, confidence = likely(matcher, get(f"{A}/data?timestamp=2021"))
    assert confidence < SERVED, text


def test_a_clock_in_the_address_decides_nothing() -> None:
    first = 1735689600000  # the moment from which the store dates its captures
    asked = [get(f"{A}/data?_={first + 1000 * n}") for n in range(3)]
    matcher = over(*((one, plain("data")) for one in asked))
    assert told(matcher, get(f"{A}/data?_={first + 86_400_000}"))[0].rstrip("?") == "data"


def test_a_write_with_a_clock_of_its_own_replaces_the_one_before() -> None:
    """JupyterLab ends each address with its clock, which has no name."""
    moments = (
        f"?{moment}000" for moment in count(1735689600)
    )  # of the store, which dates a capture each second

    def saved(text: str) -> Request:
        return sent(f"/note{next(moments)}", text, "PUT")

    walk = [
        step
        for text in ("tea", "pot", "cup", "tea", "pot")
        for step in ((saved(text), data({})), (get(f"{A}/note{next(moments)}"), data(text)))
    ]
    moments = (f"?{moment}000" for moment in count(1735776000))
    for text in ("cup", "tea", "pot"):
        assert told(over(*walk), saved(text), get(f"{A}/note{next(moments)}"))[1] == f'"{text}"?'


@pytest.mark.parametrize(
    ("recorded", "anew"),
    [
        ("exp=1714557600~acl=x~hmac=" + "0a" * 20, "exp=1714559600~acl=x~hmac=" + "1b" * 20),
        (
            "bcdn_token=" + "aB3d" * 6 + "&expires=1714557600",
            "bcdn_token=" + "x9Yz" * 6 + "&expires=1714559600",
        ),
        ("0a" * 16 + "/6631a2b3", "1b" * 16 + "/6632c4d5"),
    ],
)
def test_a_file_whose_path_was_signed_anew_is_answered(recorded: str, anew: str) -> None:
    matcher = over((get(f"{A}/{recorded}/v/a.ts"), plain("a")), (get(f"{A}/{recorded}/v/b.ts"), plain("b")))
    assert [told(matcher, get(f"{A}/{anew}/v/{name}.ts")) for name in "abc"] == [["a?"], ["b?"], ["miss"]]


def test_a_nonce_that_a_page_gave_out_is_answered_as_the_recorded_one() -> None:
    def form(nonce: str) -> Response:
        return html(f'<form method="post"><input type="hidden" name="csrf_token" value="{nonce}"></form>')

    page, nonce, other = get(f"{A}/form"), "0f1e2d3c4b5a69788796a5b4c3d2e1f0", "a" * 8 + "0123456789abcdef"
    save, shown = post(f"{A}/form", f"csrf_token={nonce}&name=tea"), get(f"{A}/saved")
    matcher = over((page, form(nonce)), (shown, html("none")), (save, html("saved")), (shown, html("tea")))
    assert told(matcher, page, shown, save, shown) == [form(nonce).body.decode(), "none", "saved", "tea"]
    forged = post(f"{A}/form", f"csrf_token={other}&name=tea")
    assert likely(matcher, page, forged)[1] < SURE
    text, confidence = likely(matcher, page, shown, forged, shown)
    assert text == "tea"
    assert confidence < SURE  # the server may have refused it
    for broken in ("", "None", "undefined"):  # what a program sends that did not find the value in the page
        assert told(matcher, page, post(f"{A}/form", f"csrf_token={broken}&name=tea"))[1] == "miss"


@pytest.mark.parametrize("name", ["csrf_token", "execution"])
def test_a_form_that_was_filled_in_wrongly_once_takes_the_token_of_its_first_visit(name: str) -> None:
    """Nothing but the password beside it says that `execution` is drawn anew for each page."""
    tokens, redactor = ["q9xT2vLmZk3qP7bAW8rT5yU1", "w8rT5yU1oPsB7QcDq9xT2vLm"], Redactor(b"k" * 32)

    def page(n: int, said: str = "") -> Response:
        return html(f"{said}<form><input type=password name=password><input name={name} value={tokens[n]}>")

    def typed(n: int, password: str) -> Request:
        return post(LOGIN.url, f"user=ann&password={password}&{name}={tokens[n]}")

    walk = (
        (get(LOGIN.url), page(0)),
        (typed(0, "tea-for-2"), page(1, "wrong")),
        (typed(1, "pot-for-4"), plain("in")),
    )
    matcher = over(*((redactor.request(one), answer) for one, answer in walk))
    assert told(matcher, *(one for one, _ in walk))[-1] == "in"
    assert told(matcher, get(LOGIN.url), typed(0, "pot-for-4"))[-1] == "in?"
    assert told(matcher, get(LOGIN.url), typed(0, "an0ther-1"))[-1] == "miss"


@pytest.mark.parametrize("walk", ["0 1 2 a b c", "0 a 1 b", "0 1 b a"])
def test_jobs_that_the_site_numbered_by_chance_are_told_apart_by_which_was_given_last(walk: str) -> None:
    """An id that is drawn for each job looks like a token of a form: any of them found the next result, for sure."""
    ids = ["9d185075-6b5b-5f35-a0d3-8d5ec0573064", "75fced06-e82c-522a-aa17-6fc9bc575eda"]
    ids.append("1b4e28ba-2fa1-11d2-883f-0016d3cca427")
    exchanges = {str(n): (sent("/jobs", {"draw": "gull"}), data({"id": ids[n]}, 201)) for n in range(3)}
    exchanges |= {"abc"[n]: (sent("/result", {"id": ids[n]}), data(f"picture {n}")) for n in range(3)}
    matcher = over(*(exchanges[one] for one in walk.split()))
    assert told(matcher, *(exchanges[one][0] for one in walk.split())) == [
        exchanges[one][1].body.decode() for one in walk.split()
    ]
    for asked in ("0 1 b a", "0 1 a b", "0 a 1 a b", "0 1 2 c a b"):
        found = told(matcher, *(exchanges[one][0] for one in asked.split()))
        for one, text in zip(asked.split(), found, strict=True):
            assert text == exchanges[one][1].body.decode() or text == "miss" or text.endswith("?"), asked


@pytest.mark.parametrize("field", ["idempotency_key", "x_idempotency_key", "paypal_request_id"])
def test_a_repeated_order_is_told_from_a_second_one_by_its_key(field: str) -> None:
    """Clients draw an Idempotency-Key for each order, and send it again where they try again."""

    def order(key: str) -> Request:
        return post(f"{A}/orders", "tea=1", **{field: key})

    twice = over((order("k1"), html("order 1")), (order("k1"), html("order 1")))
    assert told(twice, order("n1"), order("n1")) == ["order 1", "order 1"]
    assert told(twice, order("n1"), order("n2"))[1] == "miss"
    two = over((order("k1"), html("order 1")), (order("k2"), html("order 2")))
    assert told(two, order("n1"), order("n2")) == ["order 1", "order 2"]
    assert told(two, order("n1"), order("n1"))[1] in ("order 1?", "miss")


def test_a_token_that_the_cookie_does_not_repeat_is_likely_refused() -> None:
    """In a double submit, the client draws both the token and the cookie."""

    def save(token: str, cookie: str, what: str = "tea") -> Request:
        return post(f"{A}/save", f"{what}=1", x_csrf_token=token, cookie=f"csrf={cookie}")

    drawn, other = "0f1e2d3c4b5a69788796a5b4c3d2e1f0", "a1b2c3d4e5f60718293a4b5c6d7e8f90"
    matcher = over((save(other, other), html("saved")))
    assert told(matcher, save(drawn, drawn)) == ["saved"]
    assert told(matcher, save(drawn, other)) == ["miss"]
    good, bad, rum = save(other, other), save(drawn, other), save(other, other, "rum")
    refused = Response(403, "Forbidden", (("Content-Type", "text/html"),), b"refused")
    seen = over((good, html("saved")), (rum, html("saved rum")), (bad, refused))
    assert told(seen, rum) == ["saved rum?"]
    assert likely(seen, rum, bad)[0] == "refused"


def test_two_cookie_jars_in_one_session_are_told_apart() -> None:
    one, two = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"

    def login(user: str) -> Request:
        return post(f"{A}/login", f"user={user}&password=x")

    def given(sid: str) -> Response:
        return redirect("/me", ("Set-Cookie", f"sid={sid}; Path=/"))

    def me(sid: str) -> Request:
        return get(f"{A}/me", cookie=f"sid={sid}")

    matcher = over(
        (login("ann"), given(one)),
        (login("bob"), given(two)),
        (me(one), html("ann")),
        (me(two), html("bob")),
        (me(one), html("ann")),
        (me(two), html("bob")),
    )
    asked = (login("ann"), login("bob"), me(two), me(one), me(one), me(two))
    found = [text.rstrip("?") for text in told(matcher, *asked)[2:]]
    assert found == ["bob", "ann", "ann", "bob"]


def test_two_jars_of_visitors_who_did_not_sign_in_are_told_apart() -> None:
    """Equal requests gave both their cookies; each got the other's basket, for sure."""
    jars = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"

    def cart(jar: int, item: str = "") -> Request:
        asked = CART if not item else sent("/cart", {"item": item})
        return replace(asked, headers=(*asked.headers, ("Cookie", f"basket={jars[jar]}")))

    came = [(HOME, html("home", 200, ("Set-Cookie", f"basket={jar}; Path=/"))) for jar in jars]
    added = [(cart(n, item), data("added")) for n, item in enumerate(("ball", "hammer"))]
    matcher = over(*came, *added, (cart(0), data(["ball"])), (cart(1), data(["hammer"])))
    before = [one[0] for one in (*came, *added)]
    for first in (0, 1):
        found = told(matcher, *before, cart(first), cart(1 - first))[-2:]
        assert [text.rstrip("?") for text in found] == [
            ('["ball"]', '["hammer"]')[n] for n in (first, 1 - first)
        ]


def test_a_cookie_that_only_a_script_sets_decides() -> None:
    def shown(theme: str) -> Request:
        return get(f"{A}/", cookie=f"theme={theme}")

    matcher = over((shown("dark"), html("black")), (shown("light"), html("white")))
    assert [likely(matcher, shown(theme))[0] for theme in ("light", "dark")] == ["white", "black"]
    assert likely(matcher, shown("blue"))[1] < SURE


def test_a_cookie_that_a_script_draws_is_known_again_and_turns_no_page_into_a_miss() -> None:
    """A cookie was compared with the pseudonym of its recorded value, so that the very walk that was recorded was missed."""
    drawn = [f"{n}b4e28ba-2fa1-41d2-883f-0016d3cca427" for n in range(6)]

    def visit(visitor: str) -> Request:
        return get(f"{A}/news", cookie=f"visitor={visitor}")

    redactor, texts = Redactor(b"k" * 32), ["one", "two", "three"]
    matcher = over(*((redactor.request(visit(drawn[n])), html(text)) for n, text in enumerate(texts)))
    assert told(matcher, *map(visit, drawn[:3])) == texts
    assert told(matcher, *map(visit, drawn[3:])) == [f"{text}?" for text in texts]


def test_a_customer_named_in_a_field_has_a_past_of_its_own() -> None:
    def order(customer: str) -> Request:
        return sent("/orders", {"id": 1}, x_tenant=customer)

    matcher = over(
        (order("north"), data({"count": 1}, 201)),
        (order("south"), data({"count": 1}, 201)),
        (order("south"), data({"count": 2}, 201)),
    )
    assert likely(matcher, order("south"), order("south"))[1] < SURE


def test_who_lacks_the_cookie_of_a_login_is_sent_away() -> None:
    """Whatever was written before a logout: the page behind the login sends its client away again."""
    sid = "0123456789abcdef0123456789abcdef"
    account = get(f"{A}/account")
    inside = get(f"{A}/account", cookie=f"sid={sid}")
    recorded: list[Exchange] = [
        (account, redirect("/login")),
        (LOGIN, redirect("/account", ("Set-Cookie", f"sid={sid}; Path=/"))),
        (inside, html("no notes")),
    ]
    for note in ("tea", "pot"):
        recorded += [(post(f"{A}/notes", f"text={note}"), redirect("/account")), (inside, html(note))]
    matcher = over(*recorded)
    walk = (LOGIN, post(f"{A}/notes", "text=cup"), account)
    assert likely(matcher, *walk)[0] == ""
    assert likely(matcher, *walk)[1] >= SERVED


def test_a_write_after_a_login_is_not_sure_without_it() -> None:
    say = post(f"{A}/wall", "say=hello")
    matcher = over((HOME, html("home")), (LOGIN, redirect("/account")), (say, redirect("/wall")))
    assert told(matcher, HOME, LOGIN, say)[-1] == ""
    assert SERVED <= likely(matcher, HOME, say)[1] < SURE


def test_a_file_that_is_packed_anew_each_time_stays_as_it_is() -> None:
    """Gzip writes the moment of packing, and Django a name drawn at random, into each answer."""
    style = get(f"{A}/style.css")

    def packed(moment: int) -> Response:
        headers = (("Content-Type", "text/css"), ("Content-Encoding", "gzip"))
        return Response(200, "OK", headers, gzip.compress(b"body { margin: 0 }", mtime=moment))

    matcher = over((style, packed(1)), (ADD, data({"count": 1})), (style, packed(2)))
    session = matcher.session("replay")
    for request in (style, ADD, ADD, style):
        lookup = matcher.lookup(request, session, min_confidence=0.0)
        session.answered(lookup)
    assert lookup.confidence >= SURE


@pytest.mark.parametrize("kind", ["paths", "actions", "tokens"])
def test_who_signs_in_again_finds_what_was_changed_before(kind: str) -> None:
    """A front controller is told by a parameter what to do; a form may send a token that a page gave, as secret as a password."""
    mine = get(f"{A}/notes")
    login = post(f"{A}/index", "action=login&user=ann") if kind == "actions" else LOGIN
    leave = post(f"{A}/index", "action=logout") if kind == "actions" else post(f"{A}/logout")
    given = [f"{PREFIX}{start}7c1e05fb92d84a63e0f1b7" if kind == "tokens" else "" for start in ("a9", "b4")]
    tea, pot = (post(f"{A}/notes", f"text={t}&edit={g}") for t, g in zip(("tea", "pot"), given, strict=True))
    into, back = redirect("/notes"), redirect("/login")
    none, one = html(f"none <i id={given[0]}>"), html(f"tea <i id={given[1]}>")
    matcher = over(
        *((mine, back), (login, into), (mine, none)),
        *((tea, into), (mine, one), (pot, into), (mine, html("tea, pot"))),
        *((leave, back), (mine, back)),
    )
    assert told(matcher, login, tea, leave, login, mine)[-1] == f"{one.body.decode()}?"


def test_who_signed_in_stays_who_he_is_when_a_write_renews_his_cookie() -> None:
    """Flask renews the cookie of a session with each message that it is to show."""
    leave, mine, back = post(f"{A}/logout"), get(f"{A}/notes"), redirect("/login")
    tea, pot = (post(f"{A}/notes", f"text={text}") for text in ("tea", "pot"))

    def to(request: Request, sid: int) -> Request:
        return replace(request, headers=(*request.headers, ("Cookie", f"sid={sid:032}")))

    def into(sid: int) -> Response:
        return redirect("/notes", ("Set-Cookie", f"sid={sid:032}"))

    matcher = over(
        *((mine, back), (LOGIN, into(1)), (to(mine, 1), html("none"))),
        *((to(tea, 1), into(2)), (to(mine, 2), html("tea")), (to(pot, 2), into(3)), (to(mine, 3), html("tea, pot"))),
        *((to(leave, 3), redirect("/login", ("Set-Cookie", "sid=; Max-Age=0"))), (mine, back)),
    )  # fmt: skip
    text, confidence = likely(matcher, LOGIN, to(tea, 1), to(leave, 2), LOGIN, to(mine, 1))
    assert text == "tea"
    assert confidence > 0.78  # 0.74 where each write's cookie is another visitor's


def test_what_a_write_changed_sends_nobody_elsewhere() -> None:
    """The way out leads where it led, though less was written before it; a list is doubted."""
    leave, notes = get(f"{A}/leave"), get(f"{A}/notes/all")
    walk = (LOGIN, redirect("/")), (post(f"{A}/notes", "text=tea"), redirect("/notes"))
    matcher = over(*walk, (notes, html("tea")), (leave, redirect("/login")))
    assert likely(matcher, LOGIN, leave)[1] > 0.9
    assert likely(matcher, LOGIN, notes)[1] < 0.7


def test_a_counter_goes_on_and_its_end_is_not_sure() -> None:
    matcher = over(*AS_RECORDED["counter"])
    assert told(matcher, *[HOME] * 5) == [f"visit {n}" for n in range(1, 6)]
    assert likely(matcher, *[HOME] * 6)[1] < SURE


def test_pages_that_show_where_one_was_are_not_sure_elsewhere() -> None:
    """A wiki's breadcrumbs: each page names those before it."""
    tea, pot, cup = (get(f"{A}/{name}") for name in ("tea", "pot", "cup"))
    matcher = over(
        (tea, html("Tea. Seen: ")),
        (pot, html("Pot. Seen: Tea")),
        (tea, html("Tea. Seen: Tea, Pot")),
        (cup, html("Cup. Seen: Tea, Pot")),
        (tea, html("Tea. Seen: Tea, Pot, Cup")),
    )
    text, confidence = likely(matcher, pot)
    assert confidence < SURE, text
    assert likely(matcher, cup, tea)[1] < SURE


def test_a_request_that_was_never_recorded_is_a_miss() -> None:
    assert told(over(*FILTERED), get(f"{A}/never")) == ["miss"]


def test_sessions_do_not_share_what_they_wrote() -> None:
    matcher = over(*FILTERED)
    one, two = matcher.session("one"), matcher.session("two")
    for request in (LIST, IN_2020, LIST):
        one.answered(matcher.lookup(request, one))
    lookup = matcher.lookup(LIST, two)
    assert lookup.capture is not None
    assert matcher.snapshot.read(lookup.capture).body == b"all"


def test_a_live_answer_counts_as_what_happened() -> None:
    """An open loop: a live server answers, and the session goes on from there."""
    matcher = over(*FILTERED)
    session = matcher.session("replay")
    for request, response in FILTERED[:2]:
        matcher.lookup(request, session)
        session.happened(request, response)
    lookup = matcher.lookup(LIST, session)
    assert lookup.capture is not None
    assert matcher.snapshot.read(lookup.capture).body == b"of 2020"


def test_what_a_page_sends_as_it_is_left_comes_or_not_by_chance() -> None:
    edit, shown = f"{A}/tea?do=edit", get(f"{A}/tea", accept="text/html")
    opened, saved = (get(edit, accept="text/html"), html("form")), (post(edit, "milk=1"), redirect("/tea"))
    milk = (shown, html("milk"))
    recorded = over((shown, html("plain")), opened, saved, milk, milk)
    asked = (shown, opened[0], saved[0], shown)
    draft = post(f"{A}/draft", "drop=tea", referer=edit)
    assert told(recorded, *asked, draft, shown)[-2:] == ["miss", "milk?"]
    draft = post(f"{A}/draft", "drop=tea", referer=shown.url)
    assert told(recorded, *asked, draft, shown)[-2:] == ["miss", "miss"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_requests_under_way_at_once_may_come_in_any_order(order: tuple[int, ...]) -> None:
    parts = [get(f"{A}/part/{name}") for name in "abc"]
    recorded = [
        Recorded(HOME, html("stranger"), events=(1, 2)),
        Recorded(LOGIN, redirect("/"), events=(3, 4)),
        *(Recorded(part, data(n), events=(5 + n, 8 + n)) for n, part in enumerate(parts)),
        Recorded(HOME, html("ann"), events=(11, 12)),
    ]
    asked = [HOME, LOGIN, *(parts[n] for n in order), HOME]
    assert told(Matcher(MemoryStore(recorded)), *asked) == ["stranger", "", *map(str, order), "ann"]


def test_what_was_under_way_at_once_one_time_came_in_turn_the_other() -> None:
    """A slow script of a page that was left was answered after the next page was asked for."""
    page, script = get(f"{A}/page"), get(f"{A}/start")
    recorded = [
        Recorded(page, html("page"), events=(1, 2)),
        Recorded(script, data(1), events=(3, 4)),
        Recorded(ADD, data({"count": 1}, 201), events=(5, 6)),
        Recorded(script, data(2), events=(7, 10)),
        Recorded(page, html("page"), events=(8, 9)),
        Recorded(script, data(3), events=(11, 12)),
    ]
    asked = [page, script, ADD, script, page, script]
    assert told(Matcher(MemoryStore(recorded)), *asked)[1::2] == ["1", "2", "3"]


@pytest.mark.parametrize("swapped", [False, True])
def test_a_draft_comes_before_or_after_the_page_that_is_saved_beside_it(swapped: bool) -> None:
    draft, save = post(f"{A}/api", "do=draft&text=milk"), post(f"{A}/save", "text=milk")
    tea, start = get(f"{A}/tea"), get(f"{A}/start")
    recorded = [
        Recorded(draft, data({"ok": 1}), events=(21, 23)),
        Recorded(save, redirect("/tea"), events=(22, 24)),
    ]
    for n, text in enumerate("abacbdaebc"):  # of which nothing tells when it changes
        at = 1 + 4 * n + 4 * (n > 4)
        recorded.append(Recorded(tea, html("milk" if n > 4 else "none"), events=(at, at + 1)))
        recorded.append(Recorded(start, html(text), events=(at + 2, at + 3)))
    recorded.sort(key=lambda one: one.events or (0, 0))
    sent = (save, draft) if swapped else (draft, save)
    found = told(Matcher(MemoryStore(recorded)), *[tea, start] * 5, *sent, *[tea, start] * 5)
    assert found[13::2] == [f"{text}?" if swapped else text for text in "daebc"]


def test_a_cookie_that_lives_for_seconds_is_sent_or_not_by_chance() -> None:
    saved = post(f"{A}/tea", "milk=1")
    fresh = redirect("/tea", ("Set-Cookie", "fresh=1; Max-Age=10; Path=/"))
    tea, more = get(f"{A}/tea", cookie="fresh=1"), get(f"{A}/pot")
    matcher = over((HOME, html("home")), (saved, fresh), (tea, html("milk")), (more, html("pot")))
    assert told(matcher, HOME, saved, tea, get(f"{A}/pot", cookie="fresh=1"))[-1] == "pot"


@pytest.mark.parametrize(
    "text",
    [
        '{{"cputime": "0.0{0}2", "walltime": "0.{0}1"}}',
        "cached at 2025010100000{0}",
        "made 20250101T00000{0}",
    ],
    ids=["how long it took", "its moment", "its moment in ISO 8601"],
)
def test_pages_that_differ_by_when_they_were_made_alone_are_equal(text: str) -> None:
    pages = [html(text.format(n), 200, ("Date", f"Wed, 01 Jan 2025 00:00:0{n} GMT")) for n in (1, 4)]
    matcher = over((HOME, pages[0]), (ADD, data({"count": 1}, 201)), (HOME, pages[1]))
    assert likely(matcher, ADD, ADD, HOME)[1] > 0.9


@pytest.mark.parametrize("order", ["abcd", "dbca", "cdab"])
def test_the_files_of_a_page_may_come_in_any_order(order: str) -> None:
    """The browser asked for those of the second visit in other pairs than for those of the first."""
    styles = {name: get(f"{A}/{name}.css") for name in "abcd"}
    css = Response(200, "OK", (("Content-Type", "text/css"), ("Vary", "Accept")), b"p {}")
    pairs = (("c", "a"), ("b", "d")), (("a", "d"), ("b", "c"))
    recorded, at = list[Recorded](), 0
    for visit, basket in zip(pairs, ("none", "one"), strict=True):
        recorded.append(Recorded(HOME, html("shop"), events=(at + 1, at + 2)))
        for number, pair in enumerate(visit):
            begin = at + 3 + 4 * number
            recorded += (Recorded(styles[one], css, events=(begin + n, begin + 2 + n)) for n, one in enumerate(pair))  # fmt: skip
        recorded.append(Recorded(CART, data(basket), events=(at + 11, at + 12)))
        recorded.append(Recorded(ADD, data({"ok": 1}), events=(at + 13, at + 14)))
        at += 14
    visited = [HOME, *(styles[one] for one in order), CART, ADD]
    found = told(Matcher(MemoryStore(recorded)), *visited, *visited)
    assert found[5::7] == ['"none"', '"one"']


@pytest.mark.parametrize("order", ["aaaa", "aabb", "abab", "baab", "bbaa", "aabc", "caab"])
def test_equal_requests_under_way_at_once_get_each_answer_once(order: str) -> None:
    """As a page's parallel `fetch` makes them, alone or among others; they were begun in turn, and ended as it came."""
    asked = {name: get(f"{A}/part/{name}") for name in "abc"}
    recorded = [
        Recorded(asked[name], data(f"{name}{n}"), events=(1 + n, 20 - n))
        for n, name in enumerate("".join(sorted(order)))
    ]
    expected: dict[str, list[str]] = {name: [] for name in "abc"}
    for n, name in enumerate(sorted(order)):
        expected[name].append(f'"{name}{n}"')
    found = told(Matcher(MemoryStore(recorded)), *(asked[name] for name in order))
    for name in "abc":
        own = [answer for answer, one in zip(found, order, strict=True) if one == name]
        assert own == expected[name]


def test_a_form_that_says_everything_replaces_what_it_said_before() -> None:
    """A visitor who sets the second of two recorded filters alone sees what the recorder saw after it."""
    first, second = (post(f"{A}/list", f"year=2012&month={month}") for month in ("01", "06"))
    recorded = (
        (LIST, html("all")),
        (first, redirect("/list")),
        (LIST, html("january")),
        (second, redirect("/list")),
        (LIST, html("june")),
    )
    assert told(over(*recorded), LIST, second, LIST) == ["all", "?", "june?"]


def test_only_a_large_sites_model_is_learnt_beside_the_requests() -> None:
    pages = tuple((get(f"{A}/page/{n}"), html(str(n))) for n in range(20))
    small, large = over(*FILTERED), over(*FILTERED, *pages)
    assert small.learnt(LIST)
    assert not large.learnt(LIST)
    assert large.evidence("a.test").learnt
    assert large.learnt(LIST)


def browsed(*more: tuple[str, str], turns: int = 1) -> Matcher:
    """Return a matcher over a walk in which no answer varied: a start page and pages that it leads back from."""
    pages = [page for n in range(turns) for page in ("", f"a{n}", f"b{n}")]
    return over(*((get(f"{A}/{page}"), html(page or "start", 200, *more)) for page in (*pages, "")))


def test_reads_in_another_order_are_presumed_where_little_was_repeated() -> None:
    start, first, second = (get(f"{A}/{page}") for page in ("", "a0", "b0"))
    walked, other = (start, first, second, start), (second, first, start)
    assert told(browsed(), *walked) == ["start", "a0", "b0", "start"]
    assert told(browsed(), *other)[0] == "b0?"
    assert told(browsed(turns=4), *other) == ["b0", "a0", "start"]
    older, newer = (("Last-Modified", f"Wed, 01 Jan 202{year} 00:00:01 GMT") for year in (4, 5))
    assert told(browsed(older), *other) == ["b0", "a0", "start"]
    assert told(browsed(newer), *other)[0] == "b0?"


def test_where_nothing_varies_only_what_has_more_than_one_answer_waits_for_the_model() -> None:
    quiet = over(*((get(f"{A}/page/{n}"), html(str(n))) for n in range(20)))
    assert not quiet.learnt(get(f"{A}/page/1"))
    assert quiet.evidence("a.test").quiet
    assert quiet.learnt(get(f"{A}/page/1"))
    assert not quiet.learnt(get(f"{A}/page/none"))


SIGNED_ANEW = [
    ("Authorization", "HMAC-SHA256 SignedHeaders=x-ms-date;host&Signature={}"),
    ("Authorization", "SharedKey birds:{}"),
    (
        "Authorization",
        "TC3-HMAC-SHA256 Credential=AK/2026-01-01/cvm/tc3_request, SignedHeaders=host, Signature={}",
    ),
    ("Authorization", "vapid t={}, k=BKey"),
    ("Authorization", "AWS AKID:{}"),
    ("DPoP", "eyJhbGciOiJFUzI1NiJ9.{}.sig"),
    ("X-WSSE", 'UsernameToken Username="a", PasswordDigest="{}", Nonce="n", Created="2026-01-01"'),
    ("X-Goog-Date", "2026010{}T101500Z"),
]


@pytest.mark.parametrize(("field", "value"), SIGNED_ANEW)
def test_what_a_client_signs_for_each_request_decides_nothing(field: str, value: str) -> None:
    one, other = (
        Request("GET", f"{A}/list", ((field, value.format(mark)),)) for mark in ("1a2b3c4d5e", "9f8e7d6c5b")
    )
    assert told(over((one, data("birds"))), other) == ['"birds"?' if field == "X-WSSE" else '"birds"']


def by_ntlm(user: str, mark: str) -> str:
    """The third message, with the domain BIRDS."""
    domain, name = "BIRDS".encode("utf-16-le"), user.encode("utf-16-le")
    places = (
        struct.pack("<HHI", len(one), len(one), at) for one, at in ((domain, 64), (name, 64 + len(domain)))
    )
    message = b"NTLMSSP\0\3\0\0\0" + bytes(16) + b"".join(places) + bytes(20) + domain + name + mark.encode()
    return base64.b64encode(message).decode()


SIGNED_BY = {
    "Digest": 'Digest username="{}", realm="r", nonce="{}", response="1"',
    "Digest, escaped": "Digest username*=UTF-8''{}, realm=r, nonce={}",
    "Hawk": 'Hawk id="{}", ts="1353832234", nonce="{}", mac="6R4rV5iE="',
    "MAC": 'MAC id="{}", nonce="{}"',
    "OAuth": 'OAuth oauth_consumer_key="app", oauth_token="{}", oauth_nonce="{}"',
    "Signature": 'Signature keyId="{}",algorithm="hs2019",signature="{}"',
    "SigV4": "AWS4-HMAC-SHA256 Credential={}/20260101/eu-west-1/s3/aws4_request, SignedHeaders=host, Signature={}",
    "SigV2": "AWS {}:{}",
    "Azure": "SharedKey {}:{}",
    "App Configuration": "HMAC-SHA256 Credential={}&SignedHeaders=host&Signature={}",
    "EdgeGrid": "EG1-HMAC-SHA256 client_token={};timestamp=20240501T10:15:00+0000;nonce={}",
    "Huawei": "SDK-HMAC-SHA256 Access={}, SignedHeaders=host, Signature={}",
    "Alibaba": "acs {}:{}",
    "Service Bus": "SharedAccessSignature sr=a.test&skn={}&sig={}",
}


@pytest.mark.parametrize("how", [*SIGNED_BY, "NTLM", "Negotiate", "WSSE"])
def test_who_signs_is_told_from_others(how: str) -> None:
    """A proof of a password that is made anew may be of another one, so that its answer is never sure."""

    def signed(user: str, mark: str) -> Request:
        if how == "WSSE":
            value = f'UsernameToken Username="{user}", PasswordDigest="{mark}", Nonce="n"'
            return Request("GET", f"{A}/mine", (("X-WSSE", value),))
        given = SIGNED_BY[how].format(user, mark) if how in SIGNED_BY else f"{how} {by_ntlm(user, mark)}"
        return get(f"{A}/mine", authorization=given)

    stored = Redactor(b"k" * 32).request(signed("ann", "1a2b3c4d5e"))
    assert "1a2b3c4d5e" not in stored.headers[0][1]
    matcher = over((stored, html("ann's")))
    password = how.startswith(("Digest", "NTLM", "Negotiate", "WSSE"))
    assert told(matcher, signed("ann", "9f8e7d6c5b")) == ["ann's?" if password else "ann's"]
    assert told(matcher, signed("bob", "9f8e7d6c5b")) == ["miss"]


@pytest.mark.parametrize("how", [name for name in SIGNED_BY if "Digest" not in name])
def test_which_key_signs_is_told_from_others(how: str) -> None:
    def signed(key: str) -> Request:
        return get(f"{A}/mine", authorization=SIGNED_BY[how].format(key, key[::-1]))

    key, other = "AKIAQYLPMN5HFIQR7XYA", "AKIAZZZPMN5HKKQR7ABC"
    stored = Redactor(b"k" * 32).request(signed(key))
    assert key not in stored.headers[0][1]
    matcher = over((stored, html("birds")))
    assert told(matcher, signed(key)) == ["birds"]
    assert told(matcher, signed(other)) == ["birds?"]


PRESIGNED = {
    "S3": "X-Amz-Credential={key}%2F2024050{n}%2Feu-west-1%2Fs3%2Faws4_request&X-Amz-Date=2024050{n}T101500Z&X-Amz-Signature={sig}",
    "S3, version 2": "AWSAccessKeyId={key}&Expires=171455760{n}&Signature={sig}",
    "Google": "GoogleAccessId={key}%40p.iam.test&Expires=171455760{n}&Signature={sig}",
    "CloudFront": "Expires=171455760{n}&Signature={sig}&Key-Pair-Id={key}",
    "Azure": "sv=2023-11-03&se=2024-05-0{n}T10%3A15%3A00Z&skoid={key}&sr=b&sp=r&sig={sig}",
    "Azure, by policy": "sv=2023-11-03&si={key}&sr=b&sig={sig}",
    "Tencent": "q-ak={key}&q-sign-time=171455760{n}&q-signature={sig}",
}


@pytest.mark.parametrize(
    ("how", "place"),
    [(how, place) for how in PRESIGNED for place in ("address", "address in an archive")]
    + [(how, "form") for how in ("S3", "S3, version 2", "Google", "Tencent")],
)
def test_who_signs_an_address_or_form_is_told_from_others(how: str, place: str) -> None:
    def signed(key: str, n: int) -> Request:
        said = PRESIGNED[how].format(key=key, n=n, sig=f"{n}a2b3c4d5e6f7a8b" * 4)
        if place != "form":
            return get(f"{A}/file?{said}")
        pairs = "".join(
            f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{unquote(value)}\r\n'
            for name, _, value in (
                pair.partition("=")
                for pair in f"key=a&policy=eyJ{n}&{said}".split("&")
                if "Expires" not in pair
            )
        )
        return post(f"{A}/file", f"{pairs}--x--\r\n", "multipart/form-data; boundary=x")

    key, other = "AKIAQYLPMN5HFIQR7XYA", "AKIAZZZPMN5HKKQR7ABC"
    stored = signed(key, 1)
    if place != "address in an archive":
        stored = Redactor(b"k" * 32).request(stored)
    matcher = over((stored, html("birds")))
    assert [told(matcher, signed(key, n)) for n in (1, 2)] == [["birds"], ["birds"]]
    assert [told(matcher, signed(other, n)) for n in (1, 2)] == [["birds?"], ["birds?"]]


BOT = "123456789:AAEhBOweik6ad9r_QXMENQjcrGbqCr4K-bc"
HELD = {
    "in a path": get(f"{A}/bot{BOT}/getMe"),
    "at a path's end": post(
        "http://hooks.slack.com/services/T00000000/B00000000/q9xT2vLmZk3qP7bAW8rT5yU1", "payload=x"
    ),
    "under a name that does not say so": get(f"{A}/k?x=AKIAQYLPMN5HFIQR7XYA"),
    "in a text": sent("/k", {"x": "my key is ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8, ok?"}),
    "in signed chunks": Request(
        "PUT",
        f"{A}/k",
        (),
        b"1a;chunk-signature=%s\r\nkey AKIAQYLPMN5HFIQR7XYA!!\r\n0;chunk-signature=%s\r\n\r\n"
        % (b"a" * 64, b"a" * 64),
    ),
    "in one of two fields of a name": post(f"{A}/k", "tag=tea&tag=ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"),
    "beside credentials": Request(
        "POST",
        f"{A}/k",
        (("Authorization", "Bearer q9xT2vLmZk3qP7bAW8rT5yU1"),),
        b'{"password": "tea4two4all"}',
    ),
    "in a packed body": Request(
        "POST", f"{A}/k", (("Content-Encoding", "gzip"),), gzip.compress(b"password=tea4two4all&u=1", mtime=0)
    ),
    "in a list": sent("/k", {"password": ["tea4two4all"]}),
    "in an object": sent("/k", {"password": {"value": "tea4two4all"}}),
    "under an escaped name": sent("/k", {"пароль": "tea4two4all"}),
    "in YAML": post(f"{A}/k", "password: tea4two4all\n", "application/yaml"),
    "in a column": post(f"{A}/k", "user,password\nann,tea4two4all\n", "text/csv"),
    "in any field": get(f"{A}/k", X_Custom="Bearer q9xT2vLmZk3qP7bAW8rT5yU1"),
    "told twice": sent("/k", {"q": "mail tea4two4all to ann", "password": "tea4two4all"}),
}


@pytest.mark.parametrize("where", HELD)
def test_a_recorded_secret_finds_its_answer_wherever_it_was_replaced(where: str) -> None:
    stored = Redactor(b"k" * 32).request(HELD[where])
    assert stored != HELD[where]
    assert told(over((stored, html("birds"))), HELD[where]) == ["birds"]


def test_credentials_in_any_field_tell_two_clients_apart() -> None:
    asked = [
        get(f"{A}/k", X_Custom=f"Bearer {key}")
        for key in ("q9xT2vLmZk3qP7bAW8rT5yU1", "w8rT5yU1oPsB7QcDq9xT2vLm")
    ]
    redactor = Redactor(b"k" * 32)
    matcher = over(
        *((redactor.request(one), html(bird)) for one, bird in zip(asked, ("owl", "jay"), strict=True))
    )
    assert [told(matcher, one)[0].rstrip("?") for one in asked] == ["owl", "jay"]


def test_sessions_that_a_page_draws_are_the_recorded_ones_in_turn() -> None:
    """Chainlit's page draws one each time it is opened."""

    def walk(*drawn: str) -> list[Exchange]:
        steps: list[Exchange] = []
        for name, item, shown in zip(drawn, (ADD, ADD_2), ([1], [2]), strict=True):
            opening = sent("/session", {"session_id": f"q9xT2vLmZk3qP7bAW8rT5y{name}"})
            steps += (
                (opening, data("opened")),
                (CART, data([])),
                (item, data("taken", 201)),
                (CART, data(shown)),
            )
        return steps

    matcher = over(*((Redactor(b"k" * 32).request(asked), answer) for asked, answer, *_ in walk("1", "2")))
    answers = [answer.body.decode() + "?" for _, answer, *_ in walk("3", "4")]
    assert told(matcher, *(asked for asked, *_ in walk("3", "4"))) == answers


SIGNED, SENT = "q9xT2vLmZk3qP7bAW8rT5yU1", "T5yU1q9xT2vLmZk3pP7bAW8r"


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_value_that_two_rules_leave_out_is_doubted_once(method: str) -> None:
    """A token in an address may be a signature or one that the site issued."""

    def asked(token: str) -> Request:
        return Request(method, f"{A}/rooms?token={token}")

    stored = Redactor(b"k" * 32).request(asked("q9xT2vLmZk3qP7bAW8rT5yU1"))
    matcher = over((stored, html("birds")))
    assert told(matcher, asked("q9xT2vLmZk3qP7bAW8rT5yU1")) == ["birds"]
    assert told(matcher, asked("w8rT5yU1oPsB7QcDq9xT2vLm")) == ["birds?"]


@pytest.mark.parametrize("other", [("w8rT5yU1oPsB7QcDq9xT2vLm", SENT), (SIGNED, "pP7bAW8rT5yU1q9xT2vLmZk3")])
def test_values_of_rules_that_overlap_in_part_are_doubted(other: tuple[str, str]) -> None:
    """A token in an address may be a signature or issued, that in a body only issued."""

    def asked(address: str, body: str) -> Request:
        return sent(f"/rooms?token={address}", {"token": body, "room": "blue"})

    stored = Redactor(b"k" * 32).request(asked(SIGNED, SENT))
    matcher = over((stored, html("birds")))
    assert told(matcher, asked(SIGNED, SENT)) == ["birds"]
    assert told(matcher, asked(*other)) == ["birds?"]


def test_another_key_in_a_path_is_a_miss() -> None:
    stored = Redactor(b"k" * 32).request(HELD["in a path"])
    assert told(over((stored, html("birds"))), get(f"{A}/bot{BOT[::-1]}/getMe")) == ["miss"]


@pytest.mark.parametrize("answer", [redirect("/"), data({"ok": True})], ids=["a form", "a call"])
def test_where_a_page_leads_is_not_sure_before_the_login_that_was_recorded(answer: Response) -> None:
    page, login = get(f"{A}/go"), post(f"{A}/login", "user=ann")
    matcher = over((login, answer), (page, redirect("/orders")))
    assert likely(matcher, login, page)[1] >= SURE
    assert likely(matcher, page)[1] < SURE


def test_a_page_read_again_and_again_is_told_apart_by_what_was_done() -> None:
    """Many readings of a few answers are no chance: an inbox shows which mail was opened, and not marked since."""
    one, two, mark = get(f"{A}/mail/1"), get(f"{A}/mail/2"), post(f"{A}/unread", "id=1")
    acts = {"1": (one, html("tea")), "2": (two, html("milk")), "u": (mark, redirect("/"))}
    walk: list[Exchange] = []
    read = set[str]()
    for act in "u1iiu1iu1i2uiu21ii2u2iiii1i2ui1iuiuiui2iui1i2uiui":
        if act == "i":
            walk.append((HOME, html(f"read {sorted(read)}")))
        else:
            walk.append(acts[act])
            read = read - {"1"} if act == "u" else read | {act}
    assert told(over(*walk), mark, one, two, mark, HOME)[-1].rstrip("?") == "read ['2']"


def test_a_number_that_is_given_out_follows_from_how_many_were() -> None:
    def made(color: str) -> Request:
        return sent("/tickets", {"color": color})

    days = ("rbbr", "brrb", "rrbb")
    walks = [(made(c), data({"ticket": n}), day) for day in days for n, c in enumerate(day, 1)]
    assert told(over(*walks), *map(made, "bgr"))[-1].rstrip("?") == '{"ticket": 3}'


def test_a_request_recorded_once_is_doubted_as_others_of_its_type_vary() -> None:
    def question(n: int) -> Request:
        return get(f"{A}/next?of={n}")

    pages = [(get(f"{A}/page/{n}"), html("still")) for n in range(4)]
    walk = [one for n in range(1, 5) for one in (*pages, (question(1), plain(f"answer {n}")))]
    matcher = over(*walk, (question(2), plain("another")))
    assert likely(matcher, question(2)) < ("another", 0.8)


def test_a_page_that_follows_from_a_doubtful_one_is_no_surer() -> None:
    """The next page may follow from the page that was shown last."""
    step, go, about = get(f"{A}/step"), post(f"{A}/go", "on=1"), get(f"{A}/about")
    turns = [
        one for n in (1, 2, 3, 1, 2, 3, 4) for one in ((step, html(f"step {n}")), (go, redirect("/step")))
    ]
    matcher = over(*turns, (step, html("end")), (about, html("about")))
    session = matcher.session("replay")
    session.answered(matcher.lookup(about, session, min_confidence=0.0))
    session.answered(replace(matcher.lookup(step, session, min_confidence=0.0), confidence=0.5))
    session.answered(matcher.lookup(go, session, min_confidence=0.0))
    assert matcher.lookup(step, session, min_confidence=0.0).confidence < 0.9


def test_an_answer_that_varies_is_found_by_a_request_with_a_cache_buster_of_its_own() -> None:
    """jQuery's tables ask so, and Django REST framework answers with `Vary: Accept`."""

    def table(drawn: str, accept: str = "application/json, */*;q=0.1") -> Request:
        return get(f"{A}/rows?draw=1&_={drawn}", accept=accept)

    plainly, varying = (
        over((table("1700000000001"), data(["kettle"], 200, *more)))
        for more in ((), (("Vary", "Accept, Cookie"),))
    )
    again = table("1700000099007")
    assert likely(varying, again) == likely(plainly, again)
    assert told(varying, table("1700000099007", "text/html")) == ["miss"]


@pytest.mark.parametrize("path", ["/makers", "/maker/7"])
def test_a_page_that_shows_what_a_write_said_is_not_served_without_it(path: str) -> None:
    """Flask-AppBuilder's list of makers, recorded once, after a maker was added."""
    page, name = get(A + path), post(f"{A}/maker/add", "name=Valley")
    recorded = over(
        (HOME, html("home")), (name, redirect("/")), (HOME, html("home")), (page, html("Hill, Valley"))
    )
    assert told(recorded, HOME, name, HOME, page) == ["home", "", "home", "Hill, Valley"]
    assert told(recorded, HOME, page) == ["home", "miss"]


def test_a_page_of_a_thing_is_not_served_as_it_was_before_the_thing_was_changed() -> None:
    """A page that shows some of the words of an untried write, and lacks others, is of the thing that was written."""
    thing, change = get(f"{A}/show/7"), post(f"{A}/edit/7", "name=Valley+kettle&price=99")
    other, text = get(f"{A}/about"), "Valley kettle costs 16"
    recorded = over(
        (HOME, html("home")), (thing, html(text)), (other, html("We sell.")), (change, redirect("/")), (HOME, html("home"))
    )  # fmt: skip
    assert told(recorded, HOME, thing) == ["home", text]
    assert told(recorded, HOME, change, thing) == ["home", "", "miss"]
    assert told(recorded, HOME, change, HOME, other)[-1] == "We sell.?"


def test_a_session_that_stays_takes_no_more_memory_and_remembers_what_it_did_once(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr("stillweb.snapshots.evidence.events.LIVED", 64)
    gc.disable()  # a gateway collects cycles so seldom that they would be memory that grows
    request.addfinalizer(gc.enable)
    sign_in, poll, page = post(f"{A}/login", "user=ann"), post(f"{A}/poll", "since=1"), get(f"{A}/me")
    recorded = over(
        (page, html("who?")), (sign_in, redirect("/me")), (page, html("ann")), (poll, plain("none")), (page, html("ann"))
    )  # fmt: skip
    session, sizes, pasts = recorded.session("replay"), [], weakref.WeakSet[History]()
    for number in range(400):
        asked = sign_in if number == 5 else poll if number % 2 else post(f"{A}/draft", f"text={number}")
        lookup = recorded.lookup(asked, session)
        session.answered(lookup)
        pasts |= {past.history for past in session.past.values()}
        if number % 50 == 49:
            sizes.append(len(pickle.dumps(session)))
    assert max(sizes[3:]) < 1.2 * max(sizes[:3])
    assert len(pasts) < 3
    lookup = recorded.lookup(page, session, min_confidence=0.0)
    assert lookup.capture
    assert recorded.snapshot.read(lookup.capture).body == b"ann"
