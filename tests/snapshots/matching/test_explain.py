"""A miss says what came nearest, what differs, which rule would join, and how to record it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from stillweb.snapshots.matching.lookup import Lookup
from stillweb.snapshots.request import Request
from tests.support.memory_store import Replay, get, html, matcher, post, redirect

A = "http://a.test"


def miss(recorded: list[Request], asked: Request) -> Lookup:
    over = matcher(*[(r, html("x")) for r in recorded])
    lookup = over.lookup(asked, over.session())
    assert lookup.capture is None
    return lookup


def upload(name: str, media: str, data: bytes, end: str = "") -> Request:
    disposition = f'Content-Disposition: form-data; name="f"; filename="{name}"'
    head = f"--B\r\n{disposition}\r\nContent-Type: {media}\r\n{end}\r\n"
    return post(f"{A}/f", head.encode() + data + b"\r\n--B--\r\n", "multipart/form-data; boundary=B")


@pytest.mark.parametrize(
    ("recorded", "asked", "differs"),
    [
        (get(f"{A}/p?page=2&q=a"), get(f"{A}/p?page=3&q=a"), ["query page: asked '3', recorded '2'"]),
        (get(f"{A}/p"), get(f"{A}/p?x=1"), ["query x: asked '1', not recorded"]),
        (get(f"{A}/p?x=1"), get(f"{A}/p"), ["query x: not asked, recorded '1'"]),
        (get(f"{A}/p?a"), get(f"{A}/p?a="), ["query a: asked '', recorded '(no value)'"]),
        (
            get(f"{A}/p?s=1&s=2&t=1"),
            get(f"{A}/p?t=2&s=2&s=1"),
            ["query t: asked '2', recorded '1'"],
        ),
        (get(f"{A}/p"), Request("DELETE", f"{A}/p"), ["method: asked DELETE, recorded GET"]),
        (get(f"{A}/p"), get("https://a.test/p"), ["scheme: asked https, recorded http"]),
        (get(f"{A}/p/one"), get(f"{A}/p/two"), ["path: asked /p/two, recorded /p/one"]),
        (
            post(f"{A}/api", json.dumps({"q": {"name": "cats", "n": [1, 2]}}), "application/json"),
            post(f"{A}/api", json.dumps({"q": {"name": "dogs", "n": [1, 3]}}), "application/json"),
            [
                "body member q.name: asked 'dogs', recorded 'cats'",
                "body member q.n[1]: asked '3', recorded '2'",
            ],
        ),
        (
            post(f"{A}/api", '{"n": 1, "q": "1"}', "application/json"),
            post(f"{A}/api", '{"n": "1", "q": "1"}', "application/json"),
            ["body member n: asked '\"1\"', recorded '1'"],
        ),
        (
            post(f"{A}/m", json.dumps({"said": "x" * 90 + "Tab C8BA" + "y" * 90}), "application/json"),
            post(f"{A}/m", json.dumps({"said": "x" * 90 + "Tab 24C4" + "y" * 90}), "application/json"),
            [
                f"body member said, from character 74 on: asked '{'x' * 16}Tab 24C4{'y' * 36}…', "
                f"recorded '{'x' * 16}Tab C8BA{'y' * 36}…'"
            ],
        ),
        (
            post(f"{A}/m", json.dumps({"said": "x" * 90}), "application/json"),
            post(f"{A}/m", json.dumps({"said": "x" * 90 + " and more"}), "application/json"),
            [f"body member said, from character 70 on: asked '{'x' * 20} and more', recorded '{'x' * 20}'"],
        ),
        (
            post(f"{A}/m", json.dumps({f"n{n}": 1 for n in range(40)}), "application/json"),
            post(f"{A}/m", json.dumps({f"n{n}": 2 for n in range(40)}), "application/json"),
            [*(f"body member n{n}: asked '2', recorded '1'" for n in range(5)), "35 more"],
        ),
        (post(f"{A}/f", "a=1&b=2"), post(f"{A}/f", "a=1&b=3"), ["body field b: asked '3', recorded '2'"]),
        (post(f"{A}/f", "a=1"), post(f"{A}/f"), ["body: asked no body, recorded form"]),
        (
            post(f"{A}/f", b"\x00\x01", "image/png"),
            post(f"{A}/f", b"\x00\x02x", "image/png"),
            ["body: 3 bytes asked, 2 others recorded"],
        ),
        (
            upload("a.csv", "text/csv", b"a" * 9000),
            upload("a.csv", "text/csv", b"b" * 9000),
            [
                "body field f: asked '9000 bytes, sha256:e806dc11f46b, a.csv, text/csv', "
                "recorded '9000 bytes, sha256:0598aa547681, a.csv, text/csv'"
            ],
        ),
        (
            upload("a.csv", "text/csv", b"a", end="X-Part: 1\r\n"),
            upload("a.csv", "text/csv", b"a"),
            ["body: the same fields, told in another way"],
        ),
    ],
)
def test_what_differs_is_named_with_both_values(
    recorded: Request, asked: Request, differs: list[str]
) -> None:
    near = miss([recorded], asked).explain()
    assert near[0].differs == differs


def test_a_body_of_the_same_kind_is_nearer() -> None:
    same, other = post(f"{A}/p", '{"q": 1}', "application/json"), post(f"{A}/p", "a=1")
    lookup = miss([other, same], post(f"{A}/p", '{"q": 1, "n": 2, "m": 3}', "application/json"))
    assert lookup.nearest[0].differs == [
        "body member n: asked '2', not recorded",
        "body member m: asked '3', not recorded",
    ]


def test_what_differs_late_is_nearer() -> None:
    """Of what was said to a model: the same conversation with another last answer, not another conversation."""

    def said(*texts: str) -> Request:
        return post(f"{A}/chat", json.dumps({"input": texts}), "application/json")

    lookup = miss([said("b", "same", "3"), said("a", "same", "2")], said("a", "same", "3"))
    assert lookup.nearest[0].differs == ["body member input[2]: asked '3', recorded '2'"]


def test_the_nearest_come_first_and_are_few() -> None:
    lookup = miss([get(f"{A}/p?a={n}&b=1&c={n}") for n in range(8)], get(f"{A}/p?a=1&b=1&c=3"))
    assert len(lookup.nearest) == 3
    assert lookup.nearest[0].capture.url in (f"{A}/p?a=1&b=1&c=1", f"{A}/p?a=3&b=1&c=3")


def test_the_rule_that_would_join_is_named() -> None:
    busted = [(get(f"{A}/d?_=170000000000{n}"), html(f"page {n}")) for n in range(2)]
    over = matcher(*busted)
    (near, *_) = over.lookup(get(f"{A}/d?_=1700000000009"), over.session()).explain()
    assert near.rule == "cache-buster"
    strict = matcher((get(f"{A}/p"), html("x")))
    assert strict.lookup(get(f"{A}/p?gclid=1"), accept="canonical").explain()[0].rule == "tracking"


def test_another_state_is_told_in_words() -> None:
    change = post(f"{A}/filter", "category=toys")
    over = matcher(
        (get(f"{A}/list"), html("all")), (change, redirect("/list")), (get(f"{A}/list"), html("toys"))
    )
    replay = Replay(over)
    replay.ask(post(f"{A}/filter", "category=tools"))
    replay.ask(get(f"{A}/list"))
    told = [line for near in replay.last.explain() for line in near.differs]
    assert "state: recorded before any change; this session did POST /filter" in told
    assert "state: recorded after POST /filter (category=toys); this session did POST /filter" in told


def test_a_change_that_was_not_recorded_is_not_why_it_is_a_miss_itself() -> None:
    like, note = post(f"{A}/like"), post(f"{A}/notes", "text=good")
    page = get(f"{A}/mill")
    over = matcher(
        (page, html("no likes")), (like, redirect("/mill")), (page, html("one like")),
        (note, redirect("/mill")), (page, html("one like, good")),
    )  # fmt: skip
    replay = Replay(over)
    replay.ask(page)
    assert replay.ask(note) == "miss"
    assert replay.last.explain()[0].differs == [
        "state: recorded after POST /like; this session changed nothing so far"
    ]


def test_the_very_same_request_comes_first_and_a_rule_alone_does_not_say_why() -> None:
    like, page = post(f"{A}/like"), get(f"{A}/mill?v=1")
    over = matcher((like, redirect("/mill?v=1")), (page, html("one like")), (get(f"{A}/mill"), html("none")))
    asked = over.lookup(page, over.session())
    state = "state: recorded after POST /like; this session changed nothing so far"
    assert asked.explain()[0].differs == [state]
    by_time = matcher((like, redirect("/mill")), (get(f"{A}/mill?1700000000000"), html("one like")))
    (near,) = by_time.lookup(get(f"{A}/mill?1700000012345"), by_time.session()).explain()
    assert (near.rule, near.differs[-1]) == ("bare-time", state)


def test_a_header_and_a_cookie_are_told() -> None:
    over = matcher((get(f"{A}/p", accept_language="en"), html("x", 200, ("Vary", "Accept-Language"))))
    lookup = over.lookup(get(f"{A}/p", accept_language="fr"), accept="canonical")
    assert lookup.explain()[0].differs == ["header accept-language: asked 'fr', recorded 'en'"]
    over = matcher(*[(get(f"{A}/p", cookie=f"shelf={v}"), html(v)) for v in ("upper", "lower")])
    told = over.lookup(get(f"{A}/p", cookie="shelf=third")).explain()[0].differs
    assert told == ["cookie shelf: not as recorded"]


def test_nothing_near_is_nothing_told() -> None:
    assert miss([get("http://b.test/")], get(f"{A}/p")).explain() == []


@pytest.mark.parametrize(
    ("asked", "command"),
    [
        (get(f"{A}/p?x=1&y=2"), "stillweb record -o LAYER 'http://a.test/p?x=1&y=2'"),
        (
            post(f"{A}/f", "a=it's"),
            "stillweb record -o LAYER -- curl -X POST -H 'Content-Type: application/x-www-form-urlencoded'"
            " --data-raw 'a=it'\"'\"'s' http://a.test/f",
        ),
        (
            post(f"{A}/f", b"\xff", "image/png"),
            "stillweb record -o LAYER -- curl -X POST -H 'Content-Type: image/png' --data-binary @BODY"
            " http://a.test/f",
        ),
    ],
)
def test_the_command_that_would_record_it(asked: Request, command: str) -> None:
    assert miss([], asked).remedy == command


@pytest.mark.parametrize(
    ("request_", "marked"),
    [
        (get(f"{A}/favicon.ico"), True),
        (post("https://www.google-analytics.com/g/collect?v=2"), True),
        (post(f"{A}/api/telemetry", "{}", "application/json"), True),
        (post(f"{A}/x", "", "text/ping"), True),
        (get("https://notgoogle-analytics.com/p"), False),
        (get(f"{A}/collection"), False),
        (get(f"{A}/p?x=/favicon.ico"), False),
    ],
)
def test_misses_that_do_not_matter_are_marked(request_: Request, marked: bool) -> None:
    assert miss([], request_).irrelevant is marked


def test_a_miss_that_does_not_matter_changes_no_state() -> None:
    replay = Replay(matcher((get(f"{A}/p"), html("x"))))
    replay.ask(post(f"{A}/collect", "n=1"))
    assert replay.ask(get(f"{A}/p")) == "x"
    replay.ask(post(f"{A}/order", "n=1"))
    assert replay.ask(get(f"{A}/p")) == "miss"


def form(names: int, word: str) -> Request:
    return post(f"{A}/f", "&".join(f"{word}{n:05d}=value-{n:06d}" for n in range(names)))


def one_name(names: int, word: str) -> Request:
    return post(f"{A}/f", "&".join(f"a={word}{n:012d}" for n in range(names)))


def members(names: int, word: str) -> Request:
    return post(f"{A}/f", json.dumps({f"{word}{n}": n for n in range(names)}), "application/json")


def items(names: int, word: str) -> Request:
    return post(f"{A}/f", json.dumps([f"{word}{n}" for n in range(names)]), "application/json")


def nested(names: int, word: str) -> Request:
    return post(f"{A}/f", json.dumps([{"a": [n, {"b": word}]} for n in range(names)]), "application/json")


def fields(names: int, word: str) -> Request:
    part = '--B\r\nContent-Disposition: form-data; name="{}{}"\r\n\r\nvalue\r\n'
    body = "".join(part.format(word, n) for n in range(names)) + "--B--\r\n"
    return post(f"{A}/f", body, "multipart/form-data; boundary=B")


def query(names: int, word: str) -> Request:
    return get(f"{A}/f?" + "&".join(f"{word}{n}={n}" for n in range(names)))


def text(names: int, word: str) -> Request:
    return post(f"{A}/f", json.dumps({"input": word * names * 20}), "application/json")


def spent(lookup: Lookup) -> float:
    """Return the seconds of this thread that an explanation takes."""
    begin = time.thread_time()
    lookup.explain()
    return time.thread_time() - begin


@pytest.mark.slow
@pytest.mark.parametrize("made", [form, one_name, members, items, nested, fields, query, text])
@pytest.mark.parametrize("names", [200, 5000])
def test_no_explanation_takes_long(made: Callable[[int, str], Request], names: int) -> None:
    """5,000 other names took 20 s; other requests wait meanwhile."""
    lookup = miss([made(names, "r")], made(names, "z"))
    assert spent(lookup) < 0.05
    assert lookup.nearest[0].differs


@pytest.mark.parametrize("made", [form, members, fields, query])
def test_no_explanation_takes_long_where_many_captures_come_near(
    made: Callable[[int, str], Request],
) -> None:
    lookup = miss([made(40, f"r{n}-") for n in range(150)], made(40, "z"))
    assert spent(lookup) < 0.05
    assert len(lookup.nearest) == 3


@pytest.mark.slow
def test_what_has_too_many_names_is_told_of_by_its_size() -> None:
    asked = form(5000, "z")
    assert miss([form(5000, "r")], asked).nearest[0].differs == [
        "body: 99999 bytes asked, 99999 recorded, too many names to compare them"
    ]
    other = Request("PUT", f"{A}/f?token=hush", asked.headers, b"a=1")
    assert miss([other], asked).nearest[0].differs == [
        "method: asked POST, recorded PUT",
        "query: 0 characters asked, 10 recorded, too many names to compare them",
        "body: 99999 bytes asked, 3 recorded, too many names to compare them",
    ]


def test_the_capture_that_begins_alike_is_compared_first() -> None:
    """There is work for a few long ones only."""
    recorded = [post(f"{A}/f", f"who={n:03d}&" + "&".join(f"n{i}=1" for i in range(150))) for n in range(60)]
    asked = post(f"{A}/f", "who=047&" + "&".join(f"n{i}={1 + (i == 149)}" for i in range(150)))
    assert miss(recorded, asked).nearest[0].differs == ["body field n149: asked '2', recorded '1'"]
