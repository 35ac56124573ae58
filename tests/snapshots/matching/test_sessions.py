"""What a session in replay holds of each site: what begins anew, what is forgotten, what is known again."""

from __future__ import annotations

from stillweb.snapshots.capture import Response
from stillweb.snapshots.matching.ladder import Matcher
from stillweb.snapshots.request import Request
from stillweb.snapshots.states.conditions import short
from tests.support.memory_store import (
    MemoryStore,
    Recorded,
    Replay,
    answers,
    get,
    html,
    matcher,
    post,
    redirect,
)

A = "http://a.test"
LIST = get(f"{A}/list")
SID = "sid=0123456789abcdef0123456789abcdef"
GIVEN = ("Set-Cookie", SID)
FONT = Response(200, "OK", (("Content-Type", "font/woff2"),), b"font")


def test_a_changing_answer_begins_anew_with_what_begins_it() -> None:
    start, poll, texts = post(f"{A}/job", "go=1"), get(f"{A}/job/state"), ["10%", "50%", "done"]
    over = matcher(
        *[x for _ in range(2) for x in ((start, redirect("/")), *((poll, html(t)) for t in texts))]
    )
    replay = Replay(over)
    for _ in range(2):
        replay.ask(start)
        for text in texts:
            assert (replay.ask(poll), replay.last.ambiguous) == (text, False)


def test_a_logout_forgets_what_was_chosen_before() -> None:
    pages = [get(f"{A}/list/{n}") for n in range(4)]
    leave, choose = post(f"{A}/logout"), post(f"{A}/filter", "by=x")

    def looked(text: str, name: str) -> list[Recorded]:
        return [Recorded(page, html(f"{text} on {page.url[-1]}"), name) for page in pages]

    recorded = [*looked("all", "s0"), Recorded(leave, redirect("/"), "s0"), *looked("all", "s0")]
    recorded += [*looked("all", "s1"), Recorded(choose, redirect("/"), "s1"), *looked("x", "s1")]
    recorded += [Recorded(leave, redirect("/"), "s1"), *looked("all", "s1")]
    replay = Replay(Matcher(MemoryStore(recorded)))
    for _ in range(2):
        for request, text in ((choose, "x on 0"), (leave, "all on 0")):
            replay.ask(request)
            assert (replay.ask(pages[0]), replay.last.ambiguous) == (text, False)


def test_a_miss_moves_nothing_that_is_known() -> None:
    over = matcher((LIST, html("all")), (post(f"{A}/filter", "by=x"), redirect("/list")), (LIST, html("x")))
    replay = Replay(over)
    replay.ask(post(f"{A}/filter", "by=x"))
    told, version = replay.session.describe("a.test"), replay.session.version
    replay.session.answered(over.lookup(get(f"{A}/none"), replay.session))
    assert (replay.session.describe("a.test"), replay.session.version) == (told, version)
    assert replay.ask(LIST) == "x"


def test_a_cookie_is_known_again_when_a_recorded_answer_sets_it() -> None:
    def look(value: str) -> Request:
        return get(LIST.url, cookie=f"shelf={value}")

    def choose(value: str) -> Request:
        return post(f"{A}/shelf", f"shelf={value}")

    store = MemoryStore(
        [
            Recorded(LIST, html("all")),
            *(x for v in ("upper", "lower") for x in (
                Recorded(choose(v), redirect("/list", ("Set-Cookie", f"shelf={v}"))), Recorded(look(v), html(v)))),
        ]
    )  # fmt: skip
    name = short("shelf")
    for number, value in ((1, "upper"), (3, "lower")):
        store.changed(number, state=f"!{name}", changes=False)  # whatever cookie the request has
        store.changed(number + 1, state=f"c.{name}={short(value)}")
    replay = Replay(Matcher(store))
    assert replay.ask(look("upper")) == "upper"
    assert replay.ask(choose("other")) == "miss"
    assert replay.ask(look("upper")) == "miss", "the answer that was not recorded may have set another one"
    assert replay.ask(choose("upper")) == ""
    assert replay.ask(look("upper")) == "upper"


def test_a_question_that_was_not_recorded_changes_nothing_where_others_like_it_did_not() -> None:
    def ask(q: str) -> Request:
        return post(f"{A}/api", f'{{"q": "{q}"}}', "application/json")

    long = Response(200, "OK", (("Content-Type", "application/json"),), b'["%s"]' % (b"x" * 300))
    saved = (post(f"{A}/save", "x=1"), redirect("/list"))
    over = matcher((LIST, html("list")), (ask("a"), long), saved, (LIST, html("saved")))
    replay = Replay(over)
    assert replay.ask(ask("b")) == "miss"
    assert (replay.ask(LIST), replay.last.ambiguous) == ("list", False)
    assert replay.ask(post(f"{A}/other", '{"q": "b"}', "application/json")) == "miss"
    replay.ask(LIST)
    assert replay.last.ambiguous, "what nobody ever asked may have changed something"


def test_a_client_that_may_have_been_met_by_an_answer_that_nobody_recorded_is_no_stranger() -> None:
    """A login without a cookie: the server would have given it one."""

    def enter(who: str, **more: str) -> Request:
        return post(f"{A}/login", f"user={who}", **more)

    gone = Response(200, "OK", (("Set-Cookie", "sid=; Max-Age=0"),), b"bye")
    over = matcher(
        (LIST, html("nobody's", 200, GIVEN)),
        (enter("ann", cookie=SID), redirect("/list")),
        (get(f"{A}/list", cookie=SID), html("Ann's")),
        (post(f"{A}/logout", cookie=SID), gone),
    )
    replay = Replay(over)
    assert replay.ask(LIST) == "nobody's"
    assert replay.ask(LIST) == "nobody's", "it threw its cookie away"
    assert replay.ask(enter("bob", cookie=SID)) == "miss"
    assert replay.ask(get(f"{A}/list", cookie=SID)) == "miss"
    assert replay.ask(LIST) == "nobody's", "and again"
    assert replay.ask(enter("bob")) == "miss"
    assert replay.ask(LIST) == "miss", "it may be Bob by now"


def test_nor_does_what_is_answered_since_make_it_one() -> None:
    about, mine, again = get(f"{A}/about"), get(LIST.url, cookie=SID), get(f"{A}/about", cookie=SID)
    recorded: list[Recorded] = []
    for name in ("ann", "cat"):
        enter = post(f"{A}/login", f"user={name}", cookie=SID)
        walk = [
            (about, html("about")), (LIST, html("nobody's", 200, GIVEN)), (again, html("about")),
            (enter, redirect("/list")), (again, html("about")), (mine, html(f"{name}'s")), (again, html("about")),
        ]  # fmt: skip
        recorded += [Recorded(*one, name) for one in walk]
    over = Matcher(MemoryStore(recorded))
    asked = LIST, post(f"{A}/login", "user=bob"), LIST, about, LIST
    assert answers(over, *asked) == ["nobody's", "miss", "miss", "about?", "miss"]


def test_a_file_that_is_asked_for_without_cookies_makes_no_stranger() -> None:
    """As pages ask for fonts."""
    mine, font = get(f"{A}/list", cookie=SID), (get(f"{A}/a.woff2", origin=A), FONT)
    enter, choose = post(f"{A}/login", "user=ann"), post(f"{A}/by", "by=x", cookie=SID)
    over = matcher(
        (LIST, html("nobody's")), (enter, redirect("/list", GIVEN)), (mine, html("Ann's")), font, font,
        (choose, redirect("/list")), (mine, html("Ann's x")),
    )  # fmt: skip
    assert answers(over, enter, mine, choose, font[0], mine) == ["", "Ann's", "", "font", "Ann's x"]
    assert answers(over, enter, mine, choose, LIST, LIST)[-1] == "nobody's"


def test_whom_an_unsure_answer_makes_it_follow_it_follows_unsurely() -> None:
    """Two visitors were shown different designs, and one of them asked for something in English."""
    texts = {name: [Recorded(LIST, html(name), name) for _ in range(2)] for name in ("one", "two")}
    hello, alone = get(f"{A}/hello", accept_language="en"), get(f"{A}/alone")
    said = html("hello", 200, ("Vary", "Accept-Language"))
    own = [*texts["one"], Recorded(hello, said, "one"), Recorded(alone, html("alone"), "one")]
    over = Matcher(MemoryStore([*own, *texts["two"]]))
    german = get(hello.url, accept_language="de")
    assert answers(over, hello, LIST) == ["hello", "one"]
    assert answers(over, german, LIST) == ["hello?", "one?"]
    assert answers(over, german, alone, LIST) == ["hello?", "alone", "one?"]
