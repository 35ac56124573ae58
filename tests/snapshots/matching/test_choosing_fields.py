"""The choice among captures that differ in several fields of their requests: which stands in for another, and for whom."""

from __future__ import annotations

import pytest

from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request
from tests.support.memory_store import Recorded, Replay, get, html, matcher

URL = "http://a.test/p"
BOTH = ("Vary", "Accept-Language, User-Agent")
LANGUAGE = ("Vary", "Accept-Language")
ANN, BOB, EVE = (f"Bearer {name}-0123456789" for name in ("ann", "bob", "eve"))


def asked(language: str, agent: str) -> Request:
    return get(URL, accept_language=language, user_agent=agent)


def of(who: str, language: str = "en") -> Request:
    """A request of somebody; of nobody where no name is given."""
    return get(URL, accept_language=language, **({"authorization": who} if who else {}))


@pytest.mark.parametrize("recorded", [(ANN, BOB), (ANN, ""), ("", ANN)])
@pytest.mark.parametrize("language", ["en", "en-GB", "fr"])
def test_a_stranger_is_none_of_those_who_were_answered_differently(
    recorded: tuple[str, str], language: str
) -> None:
    """Whoever was recorded first, and whatever else differs."""
    over = matcher(*[(of(who), html(f"for {who}", 200, LANGUAGE)) for who in recorded])
    for who in recorded:
        assert Replay(over).ask(of(who)) == f"for {who}"
    replay = Replay(over)
    assert replay.ask(of(EVE, language)) == "miss"
    assert replay.last.why == ("header",)


@pytest.mark.parametrize("vary", [(), (("Vary", "X-Tenant"),)])
@pytest.mark.parametrize(("status", "told"), [(200, "page"), (403, "miss"), (404, "miss")])
def test_the_same_text_with_another_status_is_another_answer(
    vary: tuple[tuple[str, str], ...], status: int, told: str
) -> None:
    """As with an empty body: one tenant was let in, the other was not, and nobody knows about a third."""
    over = matcher(
        *[
            (get(URL, x_tenant=name), html("page", code, *vary))
            for name, code in (("one", 200), ("two", status))
        ]
    )
    for name, code in (("one", 200), ("two", status)):
        found = over.lookup(get(URL, x_tenant=name))
        assert found.capture is not None
        assert (found.capture.status, found.ambiguous) == (code, False)
    assert Replay(over).ask(get(URL, x_tenant="three")) == told


def test_what_differs_in_fewer_fields_stands_in() -> None:
    over = matcher(
        (asked("en", "curl/8"), html("page", 200, BOTH)), (asked("fr", "wget/1"), html("page", 200, BOTH))
    )
    for request, field in ((asked("fr", "curl/9"), "user-agent"), (asked("en", "Wget/2"), "user-agent")):
        assert Replay(over).ask(request) == "page"
        found = over.lookup(request)
        assert found.verdict == f"varies:{field}"
        assert found.capture is not None
        sent = over.snapshot.read_request(found.capture)
        assert sent.header("accept-language") == request.header("accept-language")


def test_the_verdict_names_a_field_in_which_the_served_capture_differs() -> None:
    """Also where another capture, that differs in another field, is nearer to what was served before."""
    mark = get("http://a.test/mark")
    over = matcher(
        Recorded(asked("en", "curl/8"), html("page", 200, BOTH), "s1"),
        Recorded(mark, html("mark"), "s2"),
        Recorded(asked("fr", "wget/1"), html("page", 200, BOTH), "s2"),
    )
    replay = Replay(over)
    replay.ask(mark)
    for language, agent in (("en", "wget/1"), ("fr", "curl/8")):
        request = asked(language, agent)
        assert replay.ask(request) == "page"
        found = replay.last
        assert found.capture is not None
        named = found.verdict.removeprefix("varies:")
        sent = over.snapshot.read_request(found.capture)
        assert sent.header(named) != request.header(named)


def test_the_beginning_of_another_field_is_not_its_value() -> None:
    """As the scheme of an Authorization is, of which the secret was not kept."""
    over = matcher((get(URL, user_agent="curl/8"), html("page", 200, ("Vary", "User-Agent"))))
    replay = Replay(over)
    assert replay.ask(get(URL, user_agent="curl/8 (X11)")) == "page"
    assert replay.last.verdict == "varies:user-agent"
    assert replay.ask(get(URL, user_agent="curl/8")) == "page"
    assert replay.last.verdict == "exact"


def test_that_any_origin_may_read_one_of_two_answers_is_not_sure_of_a_third() -> None:
    def recorded(origin: str, reader: str) -> tuple[Request, object]:
        vary = (("Vary", "Origin"), ("Access-Control-Allow-Origin", reader))
        return get(URL, origin=origin), html("data", 200, *vary)

    one, two = "https://one.test", "https://two.test"
    for second, unsure in ((two, True), ("*", False)):
        over = matcher(recorded(one, "*"), recorded(two, second))  # type: ignore[arg-type]
        replay = Replay(over)
        assert replay.ask(get(URL, origin="https://three.test")) == "data"
        assert (replay.last.verdict, replay.last.ambiguous) == ("varies:origin", unsure)


@pytest.mark.parametrize("asked", ["", "https://one.test", "https://three.test"])
@pytest.mark.parametrize("reader", ["*", "each"])
def test_an_origin_counts_where_answers_let_different_ones_read_them(reader: str, asked: str) -> None:
    over = matcher(
        *[
            (
                get(URL, origin=o),
                html("data", 200, ("Access-Control-Allow-Origin", o if reader == "each" else "*")),
            )
            for o in ("https://one.test", "https://two.test")
        ]
    )
    replay = Replay(over)
    assert replay.ask(get(URL, **({"origin": asked} if asked else {}))) == "data"
    other = reader == "each" and "three" in asked
    assert (replay.last.verdict, replay.last.ambiguous) == ("varies:origin" if other else "exact", other)


def test_which_origins_may_read_an_answer_matters_to_those_that_ask_from_one() -> None:
    def recorded(agent: str, origin: str) -> tuple[Request, Response]:
        reader = (("Access-Control-Allow-Origin", origin),) if origin else ()
        sent = get(URL, user_agent=agent, **({"origin": origin} if origin else {}))
        return sent, html("page", 200, ("Vary", "User-Agent"), *reader)

    over = matcher(recorded("curl/8", "https://one.test"), recorded("wget/1", ""))
    replay = Replay(over)
    assert replay.ask(get(URL, user_agent="curl/9")) == "page"
    assert (replay.last.verdict, replay.last.ambiguous) == ("varies:user-agent", False)


@pytest.mark.parametrize(
    ("recorded", "other", "unsure"),
    [
        ("s=1&utm_source=a&utm_source=b", "s=1&utm_source=c&utm_source=d", False),
        ("s=1&s=2&utm_source=a", "s=1&utm_source=b&utm_source=c&s=2", False),
        ("s=1&s=2", "s=2&s=1", True),
    ],
)
def test_the_order_of_what_a_rule_takes_away_says_nothing(recorded: str, other: str, unsure: bool) -> None:
    replay = Replay(matcher((get(f"{URL}?{recorded}"), html("page"))))
    assert replay.ask(get(f"{URL}?{other}")) == "page"
    assert replay.last.ambiguous is unsure


def test_answers_that_say_the_same_but_for_a_drawn_value_are_sure() -> None:
    drawn = [f"page 123e4567-e89b-12d3-a456-42661417400{letter}" for letter in "ab"]
    replay = Replay(matcher(*[(get(URL), html(text)) for text in drawn]))
    for _ in range(3):
        assert replay.ask(get(URL)) in drawn
        assert not replay.last.ambiguous


@pytest.mark.parametrize("host", ["a.test", "b.test"])
def test_a_cookie_that_another_site_gave_is_none_that_this_one_gave(host: str) -> None:
    home = get(f"http://{host}/")
    replay = Replay(matcher((home, html("home", 200, ("Set-Cookie", "lang=fr"))), (get(URL), html("page"))))
    replay.ask(home)
    assert replay.ask(get(URL, cookie="lang=fr")) == "page"
    assert replay.last.ambiguous is (host != "a.test")


@pytest.mark.parametrize("media", ["", "text/plain", "application/octet-stream"])
def test_bytes_of_no_type_are_the_same_whichever_of_those_they_are_sent_as(media: str) -> None:
    replay = Replay(matcher((Request("POST", URL, (), b"ping"), html("pong"))))
    assert replay.ask(Request("POST", URL, (("Content-Type", media),), b"ping")) == "pong"
    assert not replay.last.ambiguous
