"""What the choice says beside its answer: why there is none, and when the evidence does not decide."""

from __future__ import annotations

import itertools
import json
from urllib.parse import urlencode

import pytest

from stillweb.snapshots.capture import Response
from stillweb.snapshots.matching.ladder import Matcher
from stillweb.snapshots.request import Request
from tests.support.memory_store import MemoryStore, Recorded, Replay, get, html, matcher, post, redirect

A = "http://a.test"
LIST = get(f"{A}/list")


def test_a_miss_says_what_left_nothing_and_nothing_else() -> None:
    vary = ("Vary", "Accept-Language")
    pages = [(get(f"{A}/p", accept_language=value), html(value, 200, vary)) for value in ("en", "fr")]
    replay = Replay(matcher(*pages))
    assert replay.ask(get(f"{A}/p", accept_language="de")) == "miss"
    assert replay.last.why == ("header",)


def test_of_a_body_that_another_recorder_cut_short_more_would_have_come() -> None:
    store = MemoryStore([Recorded(get(f"{A}/p"), html("the beginn"))])
    store.changed(0, truncated="length")
    for _ in range(2):  # what a replay remembers of an address changes nothing
        replay = Replay(Matcher(store))
        assert replay.ask(get(f"{A}/p")) == "the beginn"
        assert (replay.last.verdict, replay.last.ambiguous) == ("exact", True)


def test_a_file_is_the_same_for_a_script_that_asks_for_a_fragment() -> None:
    css = Response(200, "OK", (("Content-Type", "text/css"),), b"p {}")
    replay = Replay(matcher((get(f"{A}/a.css"), css)))
    assert replay.ask(get(f"{A}/a.css", hx_request="true")) == "p {}"
    assert (replay.last.verdict, replay.last.ambiguous) == ("exact", False)


@pytest.mark.parametrize("before", [True, False])
def test_what_was_asked_while_a_change_was_under_way_is_never_sure(before: bool) -> None:
    """Whether the list that was asked for beside the filter was made before or after it, nobody knows."""
    recorded = [
        Recorded(post(f"{A}/filter", "by=x"), redirect("/list"), events=(3, 6)),
        Recorded(LIST, html("between"), events=(4, 5)),
        Recorded(LIST, html("x")),
    ]
    if before:
        recorded.insert(0, Recorded(LIST, html("all"), events=(1, 2)))
    over = Matcher(MemoryStore(recorded))
    for _ in range(2):
        replay = Replay(over)
        assert replay.ask(LIST) == ("all" if before else "between")
        assert replay.last.ambiguous is not before
    replay = Replay(over)
    replay.ask(post(f"{A}/filter", "by=x"))
    assert [replay.ask(LIST) for _ in range(2)] == ["x"] * 2


@pytest.mark.parametrize("seen", ["x", "xy"])
def test_what_was_the_same_for_some_choices_is_not_known_for_another(seen: str) -> None:
    """Three values that made no difference (none counts) make another one likely, two do not."""
    about, recorded = (
        get(f"{A}/about"),
        [Recorded(LIST, html("all")), Recorded(get(f"{A}/about"), html("about us"))],
    )
    for value in "xyz":
        recorded += [
            Recorded(post(f"{A}/filter", f"by={value}"), redirect("/list")),
            Recorded(LIST, html(value)),
        ]
        if value in seen:
            recorded.append(Recorded(about, html("about us")))
    over = Matcher(MemoryStore(recorded))
    for value in ("", *seen, "z"):
        replay = Replay(over)
        if value:
            replay.ask(post(f"{A}/filter", f"by={value}"))
        known = value != "z"
        assert replay.ask(about) == ("about us" if known or seen == "xy" else "miss")
        assert replay.last.ambiguous is (not known and seen == "xy")


def _steps(*names: str) -> list[Request]:
    return [post(f"{A}/{name}", f"{name}=1") for name in names]


@pytest.mark.parametrize("order", [("sort", "group"), ("group", "sort")])
def test_in_which_order_two_choices_were_made_counts_where_it_was_not_seen_to_be_indifferent(
    order: tuple[str, str],
) -> None:
    recorded = [Recorded(LIST, html("plain"), "s1")]
    for session, names in (("s1", ("sort", "group")), ("s2", ("group", "sort"))):
        recorded += [Recorded(step, redirect("/list"), session) for step in _steps(*names)]
        recorded.append(Recorded(LIST, html(" then ".join(names)), session))
    replay = Replay(Matcher(MemoryStore(recorded)))
    for step in _steps(*order):
        replay.ask(step)
    assert replay.ask(LIST) == " then ".join(order)
    alone = Replay(Matcher(MemoryStore([r for r in recorded if r.session == "s1"])))
    for step in _steps(*order):
        alone.ask(step)
    assert alone.ask(LIST) == ("sort then group" if order == ("sort", "group") else "miss")


# A method in place of another one: in a header field, or in the form.

OVERRIDES = ["X-HTTP-Method-Override", "X-Http-Method", "X-METHOD-OVERRIDE"]


@pytest.mark.parametrize("field", OVERRIDES)
def test_a_field_that_replaces_the_method_makes_another_request(field: str) -> None:
    thing = f"{A}/things/1"
    deleting, plain = Request("GET", thing, ((field, "DELETE"),)), get(thing)
    for recorded, asked in ((deleting, plain), (plain, deleting)):
        over = matcher((recorded, html("told")))
        for _ in range(2):  # nor does what is remembered of an address speak for the other
            assert Replay(over).ask(recorded) == "told"
            assert Replay(over).ask(asked) == "miss"
        tagged = Request("GET", f"{thing}?utm_source=x", asked.headers)
        assert Replay(over).ask(tagged) == "miss", "nor by a rule"
        assert Replay(over).ask(Request("GET", tagged.url, recorded.headers)) == "told"


def _replaced(how: str) -> Request:
    if how == "form":
        return post(f"{A}/things/1", "_method=delete")
    if how == "get":
        return Request("GET", f"{A}/things/1", ((OVERRIDES[0], "DELETE"),))
    return Request("POST", f"{A}/things/1", ((how, "DELETE"), ("Content-Type", "application/json")), b"{}")


@pytest.mark.parametrize("how", [*OVERRIDES, "form", "get"])
def test_what_deletes_under_another_method_changes_the_state(how: str) -> None:
    thing = get(f"{A}/things/1")
    long = Response(200, "OK", (("Content-Type", "application/json"),), b'{"done": "%s"}' % (b"x" * 300))
    gone = (thing, html("gone", 404))
    replay = Replay(matcher((thing, html("there")), (_replaced(how), long), gone))
    assert [replay.ask(thing) for _ in range(2)] == ["there"] * 2
    replay.ask(_replaced(how))
    assert replay.ask(thing) == "gone"
    other = Replay(matcher((thing, html("there")), gone, (post(f"{A}/x", "x=1"), redirect("/"))))
    assert other.ask(thing) == "there"
    assert other.ask(_replaced(how)) == "miss"
    assert other.ask(thing) == "miss", (
        "what was deleted by a request that was not recorded is not known to be there"
    )


def test_a_long_question_that_is_posted_in_place_of_a_get_changes_nothing() -> None:
    search = post(f"{A}/search", "q=tools", x_http_method_override="GET")
    other = post(f"{A}/search", "q=toys", x_http_method_override="GET")
    replay = Replay(matcher((LIST, html("all")), (search, html("tools")), (other, html("toys"))))
    for request, text in ((other, "toys"), (LIST, "all"), (search, "tools"), (LIST, "all")):
        assert replay.ask(request) == text
        assert not replay.last.ambiguous
    assert replay.ask(post(f"{A}/search", "q=tools")) == "miss"


# Queries of GraphQL that the server knows by their hash, asked for by GET.

HASHED = (
    '{"persistedQuery":{"version":1,"sha256Hash":"'
    + "ecf4edb46db40b5132295c0291d62fb65d6759a9eedfa4d5d612dd5ec54a6b38"
    + '"}}'
)


def _known(variables: str, extensions: str = HASHED, name: str = "Item") -> Request:
    return get(
        f"{A}/graphql?" + urlencode({"operationName": name, "variables": variables, "extensions": extensions})
    )


def test_a_query_known_by_its_hash_is_the_same_however_its_json_is_written() -> None:
    replay = Replay(
        matcher(
            (_known('{"id":"1","first":10}'), html("one")), (_known('{"id":"2","first":10}'), html("two"))
        )
    )
    for variables, text, verdict in (
        ('{"id":"1","first":10}', "one", "exact"),
        ('{"first": 10, "id": "2"}', "two", "rule:json-query"),
        ('{"id":"3","first":10}', "miss", "miss"),
        ('{"id":"1","first":"10"}', "miss", "miss"),
        ('{"id":"1"}', "miss", "miss"),
        ('{"id":"1","first":10,"first":10}', "miss", "miss"),
        ('{"id":"1","first":10', "miss", "miss"),
    ):
        assert replay.ask(_known(variables)) == text
        assert (replay.last.verdict, replay.last.ambiguous) == (verdict, False)
    assert replay.ask(_known('{"id":"1","first":10}', HASHED.replace("ecf4", "0000"))) == "miss"
    assert replay.ask(_known('{"id":"1","first":10}', name="Items")) == "miss"


def test_a_hash_that_the_server_does_not_know_yet_is_told_and_then_known() -> None:
    variables = '{"id":"1"}'
    told = post(
        f"{A}/graphql",
        '{"operationName":"Item","variables":{"id":"1"},"extensions":'
        + HASHED
        + ',"query":"query Item { a }"}',
        "application/json",
    )
    unknown = Response(
        200, "OK", (("Content-Type", "application/json"),), b'{"errors":["PersistedQueryNotFound"]}'
    )
    found = Response(200, "OK", (("Content-Type", "application/json"),), b'{"data":1}')
    over = matcher((_known(variables), unknown), (told, found), (_known(variables), found))
    replay = Replay(over)
    assert [replay.ask(r) for r in (_known(variables), told, _known(variables))] == [
        '{"errors":["PersistedQueryNotFound"]}', '{"data":1}', '{"data":1}',
    ]  # fmt: skip
    assert replay.ask(_known('{"id":"2"}')) == "miss"


# Session ids in URLs, and whose they are.

IDS = ["k3v9q0t7m2x8b4n6c1z5r0p7d2", "a8d2f6h1j5l9q3w7e0r4t8y2u6", "z9x8c7v6b5n4m3a2s1d0f9g8h7"]


def _as(page: str, number: int) -> Request:
    return get(f"{A}/{page}?sid={IDS[number]}")


def test_a_session_id_in_a_url_may_be_somebody_elses() -> None:
    over = matcher(
        (_as("home", 0), html("hello ann"), "s1"),
        (_as("cart", 0), html("ann's cart"), "s1"),
        (_as("home", 1), html("hello bob"), "s2"),
    )
    for request, text, verdict, ambiguous in (
        (_as("home", 1), "hello bob", "exact", False),
        (_as("cart", 0), "ann's cart", "exact", False),
        (_as("cart", 1), "ann's cart", "rule:session-id", True),  # bob's was not recorded
        (_as("cart", 2), "ann's cart", "rule:session-id", True),
        (get(f"{A}/cart"), "ann's cart", "rule:session-id", True),
        (_as("home", 2), "miss", "miss", False),
    ):
        replay = Replay(over)
        assert replay.ask(request) == text
        assert (replay.last.verdict, replay.last.ambiguous) == (verdict, ambiguous)
    assert Replay(over, accept="rule+unambiguous").ask(_as("cart", 1)) == "miss"


def test_a_session_id_that_was_seen_not_to_matter_is_anybodys() -> None:
    def page(number: int, tag: str = "") -> tuple[Request, Response]:
        return get(f"{A}/home?sid={IDS[number]}{tag}"), html("welcome")

    replay = Replay(matcher(page(0), page(1)))
    replay.ask(_as("home", 2))
    assert (replay.last.verdict, replay.last.ambiguous) == ("rule:session-id", False)
    replay = Replay(matcher(page(0), page(0, "&utm_source=x")))  # one id, twice
    replay.ask(_as("home", 2))
    assert (replay.last.verdict, replay.last.ambiguous) == ("rule:session-id", True)


def test_a_time_alone_in_the_query_may_name_a_version() -> None:
    def at(time: int, *more: str) -> Request:
        return get(f"{A}/list?{'&'.join([*more, str(time)])}")

    now = 1735689600441
    once = matcher(
        (at(now - 9000), html("three mills"), "s1"), (at(now - 9000, "all=1"), html("ten mills"), "s1")
    )
    twice = matcher(*((at(now - age), html("three mills"), "s1") for age in (9000, 8000)))
    other = matcher(*((at(now - age), html(f"{age} mills"), "s1") for age in (9000, 8000)))
    for over, request, text, verdict, ambiguous in (
        (once, at(now - 9000), "three mills", "exact", False),
        (once, at(now), "three mills", "rule:bare-time", True),
        (once, at(now, "all=1"), "ten mills", "rule:bare-time", True),
        (twice, at(now), "three mills", "rule:bare-time", False),  # it was seen not to matter
        (other, at(now), "miss", "miss", False),  # and to matter
        (other, at(now - 8000), "8000 mills", "exact", False),
    ):
        replay = Replay(over)
        assert replay.ask(request) == text
        assert (replay.last.verdict, replay.last.ambiguous) == (verdict, ambiguous)


# Values that the site issued, and secrets.

TOKENS = ["Zk3qP9xT2vLm8Rw1", "Qw8rT5yU1oPs6Lk2"]


def _contact(number: int, tag: str = "") -> list[Recorded]:
    page = html(f'<input type="hidden" name="csrf" value="{TOKENS[number]}">')
    sent = post(f"{A}/contact{tag}", f"text=hi&csrf={TOKENS[number]}")
    name = f"s{number}"
    return [Recorded(get(f"{A}/contact"), page, name), Recorded(sent, html("thanks"), name)]


def test_where_nobody_was_given_a_value_a_capture_that_does_not_need_it_may_answer() -> None:
    over = Matcher(MemoryStore([*_contact(0), *_contact(1, "?utm_source=x")]))
    asked = post(f"{A}/contact", f"text=hi&csrf={TOKENS[1]}")
    for session in (over.session(), None):
        assert over.lookup(asked, session).verdict == "rule:tracking"
    made_up = post(f"{A}/contact", "text=hi&csrf=Made7Up8By9Me0abc")
    for session in (over.session(), None):
        assert over.lookup(made_up, session).verdict == "miss"


def test_a_miss_for_another_password_says_so() -> None:
    stored = f"stillweb-secret-{'a' * 24}k{'0' * 11}"  # with a proof
    replay = Replay(matcher((post(f"{A}/login", f"user=ann&password={stored}"), html("in"))))
    assert replay.ask(post(f"{A}/login", "user=ann&password=something-else")) == "miss"
    assert "password" in replay.last.why


def test_what_was_asked_for_by_nobody_is_not_surely_the_answer_for_one_who_says_who_it_is() -> None:
    css = Response(200, "OK", (("Content-Type", "text/css"),), b"p {}")
    over = matcher((get(f"{A}/p"), html("public")), (get(f"{A}/a.css"), css))
    mine = {"authorization": "Bearer one"}
    for order in ((mine, {}), ({}, mine)):  # what a replay remembers of an address changes nothing
        replay = Replay(over)
        for fields in order:
            assert replay.ask(get(f"{A}/p", **fields)) == "public"
            assert (replay.last.verdict, replay.last.ambiguous) == ("exact", bool(fields))
            assert replay.ask(get(f"{A}/a.css", **fields)) == "p {}"
            assert not replay.last.ambiguous, "a file that was always the same"
    both = matcher((get(f"{A}/p"), html("public")), (get(f"{A}/p", **mine), html("public")))
    lookup = both.lookup(get(f"{A}/p", **mine), both.session())
    assert (lookup.verdict, lookup.ambiguous) == ("exact", False)


def test_what_a_page_brings_in_is_of_one_recorded_visit_in_whatever_order_it_is_asked_for() -> None:
    """Files and data of a page are asked for at once: their order may not move the choice to a later visit."""
    page = get(f"{A}/", accept="text/html,*/*;q=0.8")
    style = get(f"{A}/a.css", accept="text/css")
    data = [get(f"{A}/{name}", accept="*/*") for name in ("one.json", "two.json")]
    css = Response(200, "OK", (("Content-Type", "text/css"),), b"p {}")
    told = Response(200, "OK", (("Content-Type", "application/json"),), b"[1]")
    visit = [(page, html("a page")), (style, css), *((request, told) for request in data)]
    over = matcher(*visit, (get(f"{A}/other", accept="text/html"), html("another")), *visit)
    seen = []
    for order in itertools.permutations([style, *data]):
        replay = Replay(over)
        for url in (page, get(f"{A}/other", accept="text/html"), page):
            replay.ask(url)
            visited = [replay.last.capture]
            for request in order if url is page else ():
                assert replay.ask(request) != "miss"
                visited.append(replay.last.capture)
            seen.append(sorted(c.place for c in visited if c is not None))
    assert all(one == seen[at % 3] for at, one in enumerate(seen))
    assert seen[0] != seen[2]  # the second visit has what was recorded at the second
    assert not replay.last.ambiguous


@pytest.mark.parametrize("turned", [False, True])
def test_what_a_page_computes_on_its_server_changes_nothing(turned: bool) -> None:
    """A callback that is told all that it depends on: its address says `update`, and many are called at once."""

    def call(output: str, *values: int) -> Request:
        body = {
            "output": output,
            "outputs": {"id": output},
            "inputs": [{"id": "n", "value": value} for value in values],
            "changedPropIds": ["n"] if values else [],
        }
        return post(f"{A}/_update-component", json.dumps(body), "application/json")

    asked = [call("rows"), call("clock"), call("rows", 1), call("clock", 1)]
    told = [Response(200, "OK", (("Content-Type", "application/json"),), b"[%d]" % n) for n in range(4)]
    over = matcher((LIST, html("a page")), *zip(asked, told, strict=True))
    replay = Replay(over)
    order = [1, 0, 3, 2] if turned else [2, 3]
    assert [replay.ask(asked[n]) for n in order] == [f"[{n}]" for n in order]
    assert replay.ask(LIST) == "a page"
    assert not replay.last.ambiguous
