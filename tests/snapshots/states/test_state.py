"""States: the right answer in the state that a session is in, or a miss."""

from __future__ import annotations

import json
from dataclasses import replace

from stillweb.snapshots.capture import Response
from stillweb.snapshots.request import Request
from stillweb.snapshots.states.conditions import read
from stillweb.snapshots.states.state import assign_states
from tests.support.memory_store import MemoryStore, Recorded, Replay, get, html, matcher, post, redirect

A = "http://a.test"
SID = "0123456789abcdef0123456789abcdef"


def flt(value: str) -> Request:
    return post(f"{A}/filter", f"by={value}")


def data(text: str) -> Response:
    return Response(200, "OK", (("Content-Type", "application/json"),), text.encode())


LIST = get(f"{A}/list")
FILTERED = [
    (LIST, html("all")),
    (flt("x"), redirect("/list")),
    (LIST, html("x")),
    (flt("y"), redirect("/list")),
    (LIST, html("y")),
]


def test_a_filter_in_the_recorded_order_and_in_another() -> None:
    over = matcher(*FILTERED)
    one = Replay(over)
    assert [one.ask(r) for r, _ in FILTERED] == ["all", "", "x", "", "y"]
    two = Replay(over)
    two.ask(flt("y"))
    assert two.ask(LIST) == "y"
    two.ask(flt("x"))
    assert two.ask(LIST) == "x"
    assert two.last.ambiguous, "that a second filter replaces the first is only presumed"
    assert Replay(over).ask(LIST) == "all"


def test_a_miss_says_that_it_was_the_state() -> None:
    over = matcher(*FILTERED[1:3])
    replay = Replay(over)
    assert replay.ask(LIST) == "miss"
    assert replay.last.why == ("state",)


def test_going_back_to_an_earlier_filter_proves_that_filters_replace_each_other() -> None:
    back = [
        *FILTERED,
        (flt("x"), redirect("/list")),
        (LIST, html("x")),
        (flt("y"), redirect("/list")),
        (LIST, html("y")),
    ]
    asked = Replay(matcher(*back))
    for value in "yxyx":
        asked.ask(flt(value))
        assert asked.ask(LIST) == value
        assert not asked.last.ambiguous


def test_before_any_post_there_is_nothing_if_it_was_not_recorded() -> None:
    over = matcher(*FILTERED[1:3])
    assert Replay(over).ask(LIST) == "miss"
    after = Replay(over)
    after.ask(flt("x"))
    assert after.ask(LIST) == "x"


def test_after_a_post_that_was_not_recorded_nothing_is_known() -> None:
    asked = Replay(matcher(*FILTERED))
    assert asked.ask(LIST) == "all"
    assert asked.ask(flt("unheard-of")) == "miss"
    assert asked.ask(LIST) == "miss"
    asked.ask(flt("x"))
    assert asked.ask(LIST) == "x"


def test_sessions_do_not_disturb_each_other() -> None:
    over = matcher(*FILTERED)
    one, two = Replay(over, "one"), Replay(over, "two")
    one.ask(flt("x"))
    two.ask(flt("y"))
    assert (one.ask(LIST), two.ask(LIST), Replay(over).ask(LIST)) == ("x", "y", "all")


def test_two_filters_combine() -> None:
    size = post(f"{A}/size", "is=L")
    over = matcher(*FILTERED[:3], (size, redirect("/list")), (LIST, html("x in L")))
    asked = Replay(over)
    asked.ask(flt("x"))
    asked.ask(size)
    assert asked.ask(LIST) == "x in L"
    alone = Replay(over)
    assert alone.ask(size) == "miss"
    assert alone.ask(LIST) == "miss"


def test_a_counter_counts() -> None:
    count = post(f"{A}/count")
    over = matcher(*[(count, html(f"now {n}")) for n in (1, 2, 3)])
    asked = Replay(over)
    assert [asked.ask(count) for _ in range(4)] == ["now 1", "now 2", "now 3", "miss"]


def test_what_is_added_is_not_replaced() -> None:
    cart = get(f"{A}/cart")
    add = [post(f"{A}/cart/add", f"item={name}") for name in "ab"]
    over = matcher(
        (cart, html("empty")), (add[0], redirect("/cart")), (cart, html("a")), (add[1], redirect("/cart")), (cart, html("a, b"))
    )  # fmt: skip
    other = Replay(over)
    other.ask(add[1])
    assert other.ask(cart) == "miss"


def test_wrong_password_then_the_right_one_then_logout() -> None:
    account = get(f"{A}/account", cookie=f"sid={SID}")
    wrong, right = (
        post(f"{A}/login", f"user=a&password={p}", cookie=f"sid={SID}") for p in ("bad-guess", "good-word")
    )
    leave = post(f"{A}/logout", "", cookie=f"sid={SID}")
    recorded = [
        (account, redirect("/login")), (wrong, html("wrong")), (account, redirect("/login")),
        (right, redirect("/account")), (account, html("you")), (leave, redirect("/")), (account, redirect("/login")),
    ]  # fmt: skip
    over = matcher(*recorded)
    asked = Replay(over)
    assert [asked.ask(r) for r, _ in recorded] == ["", "wrong", "", "", "you", "", ""]
    direct = Replay(over)
    direct.ask(right)
    assert direct.ask(account) == "you"
    only = Replay(over)
    only.ask(wrong)
    assert only.ask(account) == ""
    assert only.last.capture is not None
    assert only.last.capture.status == 303


def test_a_filter_in_a_cookie() -> None:
    asked = [
        get(f"{A}/shelf"),
        get(f"{A}/shelf", cookie="shelf=upper"),
        get(f"{A}/shelf", cookie="shelf=lower"),
    ]
    over = matcher(*[(r, html(text)) for r, text in zip(asked, ["all", "upper", "lower"], strict=True)])
    fresh = Replay(over)
    assert [fresh.ask(r) for r in reversed(asked)] == ["lower", "upper", "all"]
    assert fresh.ask(get(f"{A}/shelf", cookie="shelf=third")) == "miss"


def test_a_cookie_of_another_value_is_never_answered_for() -> None:
    over = matcher((get(f"{A}/shelf", cookie="shelf=upper"), html("upper")))
    assert Replay(over).ask(get(f"{A}/shelf", cookie="shelf=lower")) == "miss"
    assert Replay(over).ask(get(f"{A}/shelf")) == "upper"


def test_trackers_and_session_cookies_do_not_matter() -> None:
    over = matcher((get(f"{A}/p", cookie=f"_ga=GA1.2.3.4; sid={SID}; csrftoken=abc"), html("x")))
    assert Replay(over).ask(get(f"{A}/p", cookie="_ga=GA1.9.9.9; csrftoken=def")) == "x"


def test_a_view_state_in_the_body_decides() -> None:
    pages = [post(f"{A}/grid.aspx", f"__VIEWSTATE=dDwt{n}MTA2NDk0NTQ&__EVENTTARGET=next") for n in "12"]
    over = matcher((get(f"{A}/grid.aspx"), html("1")), (pages[0], html("2")), (pages[1], html("3")))
    asked = Replay(over)
    assert [asked.ask(r) for r in (pages[1], pages[0], get(f"{A}/grid.aspx"))] == ["3", "2", "1"]


def test_questions_as_json_and_graphql_disturb_nothing() -> None:
    def search(q: str) -> Request:
        return post(f"{A}/api", json.dumps({"q": q}), "application/json")

    def item(name: str) -> Request:
        body = json.dumps({"query": "query I($i: ID!) { item(id: $i) { name } }", "variables": {"i": name}})
        return post(f"{A}/graphql", body, "application/json")

    long = "x" * 300
    over = matcher(
        (LIST, html("list")), (search("a"), data(f'["a{long}"]')), (item("1"), data('{"data":1}')),
        (search("b"), data(f'["b{long}"]')), (get(f"{A}/other"), html("other")),
    )  # fmt: skip
    asked = Replay(over)
    for request in (search("b"), item("1"), search("a"), get(f"{A}/other"), LIST, search("b")):
        assert asked.ask(request) != "miss"
        assert not asked.last.ambiguous
    assert asked.ask(search("c")) == "miss"
    assert asked.ask(item("2")) == "miss"


def test_resources_are_put_patched_and_deleted() -> None:
    thing, url = get(f"{A}/things/1"), f"{A}/things/1"
    put = [Request("PUT", url, (("Content-Type", "application/json"),), b'{"n":%d}' % n) for n in (1, 2)]
    patch = Request("PATCH", url, (("Content-Type", "application/json"),), b'{"add":1}')
    delete = Request("DELETE", url)
    ok = Response(204, "No Content", (), b"")
    over = matcher(
        (thing, data("old")), (put[0], ok), (thing, data("1")), (patch, data("1+")), (thing, data("1+")),
        (put[1], ok), (thing, data("2")), (delete, ok), (thing, Response(404, "Not Found", (), b"gone")),
    )  # fmt: skip
    asked = Replay(over)
    for request, expected in (
        (thing, "old"),
        (put[1], ""),
        (thing, "2"),
        (delete, ""),
        (thing, "gone"),
        (put[0], ""),
        (thing, "1"),
    ):
        assert asked.ask(request) == expected
    assert asked.ask(patch) == "1+"
    assert asked.ask(patch) == "miss"


def test_beacons_disturb_nothing() -> None:
    def beacon(n: int) -> Request:
        return post(f"{A}/collect", f"n={n}")

    over = matcher(
        *[x for n, pair in enumerate(FILTERED) for x in ((beacon(n), Response(204, "", (), b"")), pair)]
    )
    asked = Replay(over)
    for request, response in FILTERED:
        asked.ask(beacon(99))
        assert asked.ask(request) == response.body.decode()
        assert not asked.last.ambiguous


def test_an_unlisted_keep_alive_is_cleared_by_the_evidence() -> None:
    def alive(n: int) -> Request:
        return post(f"{A}/session-alive", f"n={n}")

    pages = [get(f"{A}/{name}") for name in "abcdef"]
    recorded = [
        x for n, page in enumerate(pages * 3) for x in ((alive(n), html("ok")), (page, html(page.url)))
    ]
    recorded += [(LIST, html("1")), (flt("x"), redirect("/list")), (LIST, html("2"))]
    over = matcher(*recorded)
    asked = Replay(over)
    asked.ask(alive(3))
    for page in reversed(pages):
        assert asked.ask(page) == page.url


def test_a_get_that_sets_something() -> None:
    by = [get(f"{A}/sort?by={name}") for name in "ab"]
    over = matcher(
        (LIST, html("unsorted")),
        (by[0], redirect("/list")),
        (LIST, html("a")),
        (by[1], redirect("/list")),
        (LIST, html("b")),
    )
    asked = Replay(over)
    asked.ask(by[1])
    assert asked.ask(LIST) == "b"
    asked.ask(get(f"{A}/sort?by=c"))
    assert asked.ask(LIST) == "miss"


def test_a_client_without_its_cookie_is_a_new_one() -> None:
    def own(url: str) -> Request:
        return get(url, cookie=f"sid={SID}")

    change = post(f"{A}/filter", "by=x", cookie=f"sid={SID}")
    over = matcher(
        (LIST, html("all", 200, ("Set-Cookie", f"sid={SID}"))), (change, redirect("/list")), (own(f"{A}/list"), html("x"))
    )  # fmt: skip
    asked = Replay(over)
    assert asked.ask(LIST) == "all"
    assert asked.ask(change) == ""
    assert asked.ask(own(f"{A}/list")) == "x"
    assert asked.ask(LIST) == "all", "its cookies were cleared"
    assert asked.ask(own(f"{A}/list")) == "all", "and it was met anew"


def test_files_are_served_in_every_state() -> None:
    css = Response(200, "OK", (("Content-Type", "text/css"),), b"p {}")
    over = matcher(*FILTERED, (get(f"{A}/a.css"), css))
    assert over.lookup(get(f"{A}/a.css"), over.session()).settled
    asked = Replay(over)
    asked.ask(flt("unheard-of"))
    assert asked.ask(get(f"{A}/a.css")) == "p {}"


def test_other_sites_have_other_states() -> None:
    over = matcher(*FILTERED, (get("http://b.test/p"), html("b")))
    asked = Replay(over)
    assert asked.ask(get("http://b.test/p")) == "b"
    asked.ask(flt("unheard-of"))
    assert asked.ask(get("http://b.test/p")) == "b"


def test_what_was_recorded_during_a_change_is_surely_in_no_state() -> None:
    store = MemoryStore([Recorded(r, a) for r, a in FILTERED])
    captures = list(store.captures())
    posted = next(c for c in captures if c.offset == 1)
    under_way = [_moved(c, posted.begin, posted.end) if c.offset == 2 else c for c in captures]
    states = {c.offset: read(c.state) for c in assign_states(under_way, store.read_request, store.read)}
    assert [number for number, told in states.items() if told.during] == [2]


def _moved(capture: object, begin: int, end: int) -> object:
    from dataclasses import replace

    return replace(capture, begin=begin, end=end + 1)  # type: ignore[type-var]


def test_states_do_not_depend_on_the_order_of_captures() -> None:
    store = MemoryStore([Recorded(r, a, f"s{n % 2}") for n, (r, a) in enumerate(FILTERED * 2)])
    captures = list(store.captures())
    found = assign_states(captures, store.read_request, store.read)
    assert assign_states(list(reversed(captures)), store.read_request, store.read) == list(reversed(found))


def test_a_file_that_was_written_is_not_the_one_before() -> None:
    """Though it was read but once, and a picture is the same in every state else."""
    picture = Response(200, "OK", (("Content-Type", "image/png"),), b"one")
    put = Request("PUT", f"{A}/logo.png", (), b"two")
    other = replace(put, url=f"{A}/other.png")
    over = matcher(
        *((get(f"{A}/{name}.png"), picture) for name in ("logo", "mark")),
        (put, Response(204, "", (), b"")),
        (other, Response(204, "", (), b"")),
    )
    replay = Replay(over)
    asked = [get(f"{A}/logo.png"), put, get(f"{A}/logo.png"), get(f"{A}/mark.png")]
    assert [replay.ask(request) for request in asked] == ["one", "", "miss", "one"]
    assert not replay.last.ambiguous
