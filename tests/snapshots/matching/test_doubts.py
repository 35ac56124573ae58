"""What makes a chosen answer unsure: the request says more than those that were recorded, or something else."""

from __future__ import annotations

import itertools

import pytest

from stillweb.snapshots.capture import Response
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.request import Headers, Request
from tests.support.memory_store import Recorded, Replay, get, html, matcher, post, redirect, stated

A = "http://a.test"
U = f"{A}/d"
KEY = "stillweb-secret-0123456789abcdef01234567"
OTHER = "stillweb-secret-0123456789abcdef01234568"
UUID, UUID2 = "3f2b8c1e-5d6a-4b7c-8d9e-0a1b2c3d4e5f", "9c1e3f2b-5d6a-4b7c-8d9e-0a1b2c3d4e5f"
# Field, the value that was recorded, and another one.
OWN = [
    ("X-Api-Key", KEY, "hunter2-and-more"),
    ("X-Auth-Token", KEY, "9f8e7d6c5b4a39281706f5e4d3c2b1a0"),
    ("X-Access-Token", KEY, OTHER),
    ("X-Tenant", "acme", "other"),
    ("X-User-Id", UUID, UUID2),
    ("X-Organization-Id", "1735689600123", "1735689600124"),
    ("Api-Version", "1", "2"),
    ("X-GitHub-Api-Version", "2022-11-28", "2026-03-10"),
    ("X-Apollo-Operation-Name", "List", "Other"),
    ("X-Amz-Target", "DynamoDB_20120810.GetItem", "DynamoDB_20120810.Scan"),
    ("CF-Access-Client-Id", "9c1e3f2b5d6a.access", "1c1e3f2b5d6a.access"),
    ("Accept-Profile", "public", "private"),
    ("Prefer", "return=minimal", "return=representation"),
    ("Depth", "0", "1"),
]
IDLE = [
    ("Sec-Fetch-Site", "none"),
    ("sec-ch-ua-mobile", "?1"),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("sentry-trace", "d4cda95b652f4a1592b449d5929fda1b-6e0c63257de34c92-1"),
    ("baggage", "sentry-environment=prod"),
    ("X-Request-Id", "7"),
    ("X-Correlation-ID", "c7"),
    ("X-Thing", UUID),
    ("X-Sent-At", "2025-01-02 03:04:05"),
    ("X-Tick", "1735689600"),
    ("X-Stainless-Retry-Count", "0"),
    ("X-Forwarded-For", "10.0.0.1"),
    ("X-Amz-Content-Sha256", "ab12"),
    ("Referer", f"{A}/x"),
    ("Cache-Control", "no-cache"),
    ("Save-Data", "on"),
    ("X-Empty", " "),
]


def with_(field: tuple[str, str], url: str = U) -> Request:
    return Request("GET", url, (field,))


def told(replay: Replay, request: Request) -> tuple[str, bool]:
    text = replay.ask(request)
    return text, bool(replay.last.ambiguous)


@pytest.mark.parametrize(("name", "value", "other"), OWN)
def test_a_field_of_an_application_that_was_not_recorded_may_decide(
    name: str, value: str, other: str
) -> None:
    replay = Replay(matcher((get(U), html("open"))))
    for request, unsure in ((get(U), False), (with_((name, value)), True), (get(U), False)) * 2:
        assert told(replay, request) == ("open", unsure)
        assert replay.last.verdict == "exact"


@pytest.mark.parametrize(("name", "value", "other"), OWN)
def test_without_a_field_or_with_another_value_the_recorded_answer_is_unsure(
    name: str, value: str, other: str
) -> None:
    replay = Replay(matcher((with_((name, value)), html("mine"))))
    for request, unsure in ((with_((name, value)), False), (with_((name, other)), True), (get(U), True)) * 2:
        assert told(replay, request) == ("mine", unsure)
        assert replay.last.verdict == (f"varies:{name.lower()}" if unsure else "exact")
    assert told(replay, with_((name.lower(), value))) == ("mine", False)


@pytest.mark.parametrize(
    ("url", "unsure"),
    [
        ("https://google.serper.dev/search", False),
        ("https://api.exa.ai/search", False),
        (f"{A}/search", True),
    ],
)
def test_a_key_of_a_service_that_answers_everybody_alike_only_says_who_pays(url: str, unsure: bool) -> None:
    replay = Replay(matcher((with_(("X-API-KEY", KEY), url), html("found"))))
    for request in (with_(("X-API-KEY", OTHER), url), with_(("X-API-KEY", "hunter2-and-more"), url)):
        assert told(replay, request) == ("found", unsure)
        assert replay.last.verdict == ("varies:x-api-key" if unsure else "exact")


@pytest.mark.parametrize("field", IDLE)
def test_fields_of_browsers_and_libraries_and_what_is_drawn_say_nothing(field: tuple[str, str]) -> None:
    for recorded, asked in ((get(U), with_(field)), (with_(field), get(U))):
        replay = Replay(matcher((recorded, html("open"))))
        assert told(replay, asked) == ("open", False)
        assert replay.last.verdict == "exact"


@pytest.mark.parametrize(
    ("recorded", "asked", "unsure"),
    [
        (["", "a"], ["", "a"], False),  # with it and without it the same
        (["", "a"], ["b"], True),
        (["", "a", "b"], ["", "a", "b", "c"], False),  # whichever it is
        (["a", "b"], ["a", "b", "c"], False),
        (["a", "b"], [""], True),
        (["", KEY], ["", KEY], False),
        (["", KEY, OTHER], ["hunter2-and-more"], True),  # of another key nobody knows that it is good
    ],
)
def test_what_was_answered_alike_does_not_decide(recorded: list[str], asked: list[str], unsure: bool) -> None:
    name = "X-Api-Key" if KEY in recorded else "X-Page"

    def sent(value: str) -> Request:
        return with_((name, value))

    over = matcher(*((sent(value), html("same")) for value in recorded))
    for value in asked:
        assert told(Replay(over), sent(value)) == ("same", unsure), value


def test_what_was_stored_as_a_secret_is_one_whatever_its_name_says() -> None:
    over = matcher(*((with_(("X-Thing", value)), html("same")) for value in (KEY, OTHER)))
    assert told(Replay(over), with_(("X-Thing", KEY))) == ("same", False)
    assert told(Replay(over), with_(("X-Thing", "abc"))) == ("same", True)


def test_with_and_without_a_field_each_gets_its_own() -> None:
    over = matcher(
        (get(U, x_page="1"), html("one")), (get(U), html("none")), (post(f"{A}/f", "a=1"), redirect("/d")), (get(U, x_page="1"), html("one, after"))
    )  # fmt: skip
    replay = Replay(over)
    assert told(replay, get(U)) == ("none", False)
    assert told(replay, get(U, x_page="1")) == ("one", False)
    assert replay.ask(get(U, x_page="2")) == "miss"
    replay.ask(post(f"{A}/f", "a=1"))
    assert told(replay, get(U, x_page="1")) == ("one, after", False)


def test_of_several_values_that_a_state_explains_any_is_served_and_another_is_unsure() -> None:
    over = matcher(
        (get(U, x_tab="1"), html("none")), (post(f"{A}/f", "a=1"), redirect("/d")), (get(U, x_tab="2"), html("some"))
    )  # fmt: skip
    replay = Replay(over)
    assert told(replay, get(U, x_tab="1")) == ("none", False)
    assert told(replay, get(U, x_tab="3")) == ("none", True)
    assert told(replay, get(U)) == ("none", True)
    assert "header x-tab: asked '', recorded '(given)'" in _differs(replay, get(U))
    replay.ask(post(f"{A}/f", "a=1"))
    assert told(replay, get(U, x_tab="2")) == ("some", False)


def _differs(replay: Replay, request: Request) -> list[str]:
    lookup = replay.matcher.lookup(request, replay.session, accept="rule+unambiguous")
    return [text for near in lookup.explain() for text in near.differs]


def test_a_token_against_forgery_must_be_there_for_what_writes() -> None:
    def write(*fields: tuple[str, str]) -> Request:
        return Request("POST", f"{A}/api/save", (("Content-Type", "application/json"), *fields), b"{}")

    mine, fresh = ("X-CSRF-Token", "k3v9q0t7m2x8b4n6"), ("X-CSRF-Token", "a8d2f6h1j5l9q3w7")
    over = matcher((write(mine), html("saved")), (Request("GET", U, (mine,)), html("read")))
    for request, unsure in (
        (write(mine), False),
        (write(fresh), False),
        (write(), True),
        (get(U), False),
        (with_(fresh), False),
    ):
        assert told(Replay(over), request)[1] is unsure
    bare = matcher((write(), html("saved")))
    assert told(Replay(bare), write(mine)) == ("saved", True)
    assert told(Replay(matcher((get(U), html("read")))), with_(mine)) == ("read", False)


def test_a_file_that_pages_are_made_with_is_everybodys() -> None:
    style = Response(200, "OK", (("Content-Type", "text/css"),), b"a{}")
    over = matcher((get(f"{A}/s.css"), style))
    sid = "PHPSESSID=k3v9q0t7m2x8b4n6c1z5r0p7d2; lang=en"
    assert told(Replay(over), get(f"{A}/s.css", x_api_key=KEY, cookie=sid)) == ("a{}", False)


# the type of a body, and the origin of a page


def test_the_same_json_as_another_type_is_not_surely_the_same() -> None:
    def patch(media: str) -> Request:
        return Request("PATCH", U, (("Content-Type", media),) if media else (), b'{"a":1}')

    merge, strict = "application/merge-patch+json", "application/json-patch+json"
    for recorded, asked, unsure in (
        (merge, merge, False),
        (merge, f"{merge}; charset=utf-8", False),
        (merge, strict, True),
        (strict, "application/json", True),
        ("application/json", "application/vnd.api+json", True),
        ("text/json", "Application/JSON", False),
    ):
        over = matcher((patch(recorded), html("patched")))
        assert told(Replay(over), patch(asked)) == ("patched", unsure), asked


@pytest.mark.parametrize(
    ("recorded", "allowed", "asked", "unsure"),
    [
        ("http://x.test", "http://x.test", "http://x.test", False),
        ("http://x.test", "http://x.test", "http://y.test", True),
        ("http://x.test", "*", "http://y.test", False),
        ("http://x.test", "", "http://x.test", False),  # it was refused to them
        ("", "", "http://y.test", True),
        ("", "", "null", True),
        ("", "", "http://a.test", False),  # its own page
        ("", "", "http://a.test.evil.test", True),
        ("", "http://y.test", "http://y.test", False),
        ("http://x.test", "http://x.test", "", False),  # no page of another origin asks
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_a_page_of_another_origin_gets(
    recorded: str, allowed: str, asked: str, unsure: bool, method: str
) -> None:
    def sent(origin: str) -> Request:
        return Request(method, U, (("Origin", origin),) if origin else ())

    answer = html("data", 200, *((("Access-Control-Allow-Origin", allowed),) if allowed else ()))
    over = matcher((sent(recorded), answer))
    for _ in range(2):
        assert told(Replay(over), sent(asked)) == ("data", unsure)


# Vary: *

ANY: tuple[str, str] = ("Vary", "*")
BROWSER: Headers = (("Host", "a.test"), ("User-Agent", "Mozilla/5.0"), ("Accept-Language", "en"))


@pytest.mark.parametrize(
    ("asked", "unsure"),
    [
        (BROWSER, False),
        (BROWSER[::-1], False),
        ((*BROWSER, ("Connection", "close"), ("Accept-Encoding", "br"), ("X-Request-Id", "9")), False),
        (BROWSER[:2], True),
        ((*BROWSER[:2], ("Accept-Language", "de")), True),
        ((*BROWSER, ("DNT", "1")), True),
        ((*BROWSER, ("Cookie", "_ga=GA1.2.3")), True),
    ],
)
@pytest.mark.parametrize("media", ["text/html", "image/png"])
def test_an_answer_for_which_anything_counts_is_for_the_very_same_request(
    asked: Headers, unsure: bool, media: str
) -> None:
    response = Response(200, "OK", (("Content-Type", media), ANY), b"for you")
    replay = Replay(matcher((Request("GET", U, BROWSER), response)))
    for _ in range(2):
        assert told(replay, Request("GET", U, asked)) == ("for you", unsure)


# cookies that a client brings

SID, ANOTHER = "PHPSESSID=k3v9q0t7m2x8b4n6c1z5r0p7d2", "PHPSESSID=a8d2f6h1j5l9q3w7e0r4t8y2u6"


@pytest.mark.parametrize(
    ("cookie", "unsure"),
    [
        (SID, True),
        ("access_token=a8d2f6h1j5l9q3w7e0r4t8y2u6", True),
        ("wordpress_logged_in_5c01=ann%7C1735689600%7Ca8d2f6h1j5l9q3w7e0r4", True),
        ("lang=de", True),
        ("user=ann", True),
        ("currency=USD", True),
        ("is_admin=1", True),
        ("cart=17", True),
        ("_ga=GA1.2.1234567890.1735689600", False),
        ("visitor=550e8400-e29b-41d4-a716-446655440000", False),
        ("XSRF-TOKEN=a8d2f6h1j5l9q3w7e0r4t8y2u6", False),
        ("theme=dark; cookieconsent=yes", False),
    ],
)
def test_a_cookie_that_tells_who_asks_or_what_for_and_was_never_recorded(cookie: str, unsure: bool) -> None:
    replay = Replay(matcher((get(U), html("open"))))
    for request, doubted in ((get(U), False), (get(U, cookie=cookie), unsure), (get(U), False)) * 2:
        assert told(replay, request) == ("open", doubted)


@pytest.mark.parametrize(
    ("cookie", "unsure"),
    [
        ("theme=dark", True),
        ("visitor=550e8400-e29b-41d4-a716-446655440000", True),
        ("_ga=GA1.2.1234567890.1735689600", False),
        ("a=1", False),
    ],
)
def test_where_the_server_says_that_cookies_decide_any_of_them_may(cookie: str, unsure: bool) -> None:
    over = matcher((get(U, cookie="a=1"), html("open", 200, ("Vary", "Accept-Encoding, Cookie"))))
    assert told(Replay(over), get(U, cookie="a=1")) == ("open", False)
    assert told(Replay(over), get(U, cookie=f"a=1; {cookie}")) == ("open", unsure)


def test_where_cookies_decide_the_one_that_this_replay_gave_is_known() -> None:
    vary = ("Vary", "Cookie")
    over = matcher(
        (get(f"{A}/"), html("home", 200, vary, ("Set-Cookie", f"{SID}; Path=/"))), (get(U), html("open", 200, vary), "another")
    )  # fmt: skip
    replay = Replay(over)
    assert told(replay, get(U, cookie=SID)) == ("open", True)
    replay.ask(get(f"{A}/"))
    assert told(replay, get(U, cookie=SID)) == ("open", False)
    assert told(replay, get(U, cookie=f"{SID}; theme=dark")) == ("open", True)


def test_a_session_that_this_replay_gave_is_known_however_long_ago() -> None:
    home, vary = get(f"{A}/"), ("Vary", "Cookie")
    recorded = []
    for sid, url in ((SID, f"{A}/e"), (ANOTHER, U)):
        given = html("home", 200, vary, ("Set-Cookie", f"{sid}; Path=/"))
        recorded += [(home, given, url), (get(url, cookie=sid), html("open", 200, vary), url)]
    replay = Replay(matcher(*recorded))
    replay.ask(home)
    assert {told(replay, get(U, cookie=SID)) for _ in range(250)} == {("open", False)}
    assert told(replay, get(U, cookie=f"{SID}; theme=dark")) == ("open", True)


def test_a_cookie_that_this_replay_gave_is_known() -> None:
    gives = tuple(("Set-Cookie", f"{pair}; Path=/") for pair in (SID, "lang=en"))
    over = matcher((get(f"{A}/"), html("home", 200, *gives)), (get(U), html("open"), "another"))
    replay = Replay(over)
    assert told(replay, get(U, cookie="lang=en")) == ("open", True)
    replay.ask(get(f"{A}/"))
    assert told(replay, get(U, cookie=f"{SID}; lang=en")) == ("open", False)
    assert told(replay, get(U, cookie=f"{SID}; lang=de")) == ("open", True)


def test_another_client_than_the_recorded_one_that_was_signed_in() -> None:
    over = matcher(
        (get(U, cookie=SID), html("Hello Ann")),
        (get(f"{A}/faq", cookie=SID), html("Questions")),
        (get(f"{A}/faq"), html("Questions")),
    )
    assert told(Replay(over), get(U, cookie=SID)) == ("Hello Ann", False)
    assert told(Replay(over), get(U, cookie=ANOTHER)) == ("Hello Ann", True)
    assert told(Replay(over), get(f"{A}/faq", cookie=SID)) == ("Questions", False)


def test_what_was_recorded_with_a_cookie_that_the_client_came_with_is_not_sure_without_it() -> None:
    over = matcher(
        (get(U, cookie="lang=de; theme=dark"), html("offen")), (get(f"{A}/e", cookie="lang=de"), html("e"))
    )
    for url, text in ((U, "offen"), (f"{A}/e", "e")):
        for cookie, unsure in (("lang=de; theme=dark", False), ("lang=de", False), ("", True)):
            request = get(url, **({"cookie": cookie} if cookie else {}))
            assert told(Replay(over), request) == (text, unsure)
        assert Replay(over).ask(get(url, cookie="lang=en")) == "miss"


def test_a_cookie_that_came_with_an_answer_may_be_missing_in_the_first_request() -> None:
    gives = ("Set-Cookie", "lang=en; Path=/")
    over = matcher((get(f"{A}/"), html("home", 200, gives)), (get(U, cookie="lang=en"), html("open")))
    assert told(Replay(over), get(U)) == ("open", False)
    both = matcher((get(U, cookie="lang=de"), html("same")), (get(U), html("same"), "another"))
    assert told(Replay(both), get(U)) == ("same", False)


def test_a_cookie_with_which_and_without_which_the_same_was_answered() -> None:
    over = matcher(*[Recorded(get(U, cookie=c), html("open")) for c in (SID, "lang=en", "lang=de", "a=1")])
    for cookie, unsure in (("lang=en", False), ("lang=fr", False), (SID, False), (ANOTHER, True)):
        assert told(Replay(over), get(U, cookie=cookie)) == ("open", unsure), cookie


# credentials as another program's archive has them

BASIC = "Basic YTpi"
SENT = (
    "",
    f"Bearer {'a' * 24}",
    f"Bearer {'b' * 24}",
    BASIC,
    "Basic YTpj",
    *(f'Digest nonce="{n}"' for n in "12"),
)


def of(who: str) -> Request:
    return get(U, **({"authorization": who} if who else {}))


@pytest.mark.parametrize("recorded", SENT)
def test_the_credentials_of_another_are_not_surely_as_good_and_another_password_never(recorded: str) -> None:
    over = matcher((of(recorded), html("page")))
    for asked in (*SENT, *SENT):
        text, unsure = told(Replay(over), of(asked))
        if asked != recorded and asked.startswith("Basic") and recorded.startswith("Basic"):
            assert text == "miss"
        else:
            assert (text, unsure) == ("page", asked != recorded), asked


@pytest.mark.parametrize("recorded", [*itertools.combinations(SENT[:6], 2)])
def test_of_those_who_were_answered_differently_each_gets_its_own_and_nobody_else_any(
    recorded: tuple[str, str],
) -> None:
    over = matcher(*((of(who), html(who)) for who in recorded))
    for asked in SENT[:6]:
        known = asked if asked in recorded else "miss"
        assert told(Replay(over), of(asked)) == (known, False), asked


def test_a_field_of_another_name_is_no_password() -> None:
    over = matcher((get(U, x_plan="basic"), html("page", 200, ("Vary", "X-Plan"))))
    assert told(Replay(over), get(U, x_plan="basic plus")) == ("page", True)


def test_of_two_values_that_vary_names_none_is_not_one() -> None:
    vary = ("Vary", "X-Tenant")
    over = matcher(*((get(U, x_tenant=value), html("same", 200, vary)) for value in ("acme", "other")))
    for value, unsure in (("acme", False), ("third", False), ("", True)):
        assert told(Replay(over), get(U, **({"X_Tenant": value} if value else {}))) == ("same", unsure)


def test_an_answer_that_changes_by_itself_is_not_sure_when_asked_for_more_often_than_ever() -> None:
    """A login that times out, say: seen after other pages, and never after none."""
    own = request_key(get(U)).canonical[:8]
    signed, out = html("account"), html("sign in", 401)
    past = [
        f"#aaaaaaaa.{place}/* %{told}:{own}" for place, told in ((0, "-"), (0, "11111111"), (1, "22222222"))
    ]
    replay = stated(*((get(U), a, state) for a, state in zip((signed, signed, out), past, strict=True)))
    assert [told(replay, get(U)) for _ in range(4)] == [("account", n > 1) for n in range(4)]
    always = stated(*((get(U), signed, state) for state in past))
    assert [told(always, get(U)) for _ in range(4)] == [("account", False)] * 4
