"""Each rule joins its examples, keeps the others apart, and is off where captures speak against it."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.identity.keys import parse
from stillweb.snapshots.identity.operations import operations_of
from stillweb.snapshots.identity.rules import (
    Rule,
    apply_rules,
    builtin,
    example,
    load,
    reduce_request,
    rules_that_join,
)
from stillweb.snapshots.request import Request
from tests.support.memory_store import Replay, get, html, matcher, post, redirect

RULES = builtin().rules
EACH = [pytest.param(rule, id=rule.id) for rule in RULES]


@pytest.mark.parametrize("rule", EACH)
def test_a_rule_joins_its_examples(rule: Rule) -> None:
    for one, other in rule.join:
        assert rules_that_join(example(one), example(other), [rule], rule.issued) == rule.id, (one, other)


@pytest.mark.parametrize("rule", EACH)
def test_a_rule_and_all_rules_together_keep_its_examples_apart(rule: Rule) -> None:
    for one, other in rule.apart:
        for rules in ([rule], RULES):
            assert rules_that_join(example(one), example(other), rules, rule.issued) is None, (one, other)


URLS = [example(text).url for rule in RULES for pair in (*rule.join, *rule.apart) for text in pair]
PAIRS = sorted({pair for url in URLS for pair in url.partition("?")[2].split("&")} | {"a=1", "id=12", "b"})


@given(st.lists(st.sampled_from(PAIRS), min_size=1, max_size=4))
def test_rules_leave_a_url_as_it_is_where_its_letters_say_so(pairs: list[str]) -> None:
    asked = get(f"https://example.test/a?{'&'.join(pairs)}")
    if builtin().leaves(asked.url):
        assert reduce_request(asked, builtin().without("redacted").rules) == parse(asked)


def test_the_letters_of_a_plain_query_show_that_no_rule_changes_it() -> None:
    assert builtin().leaves("https://example.test/item.html?id=000000012&sort=name-desc&empty=")


@pytest.mark.parametrize("rule", EACH)
def test_without_the_rule_its_examples_are_apart(rule: Rule) -> None:
    others = builtin().without(rule.id).rules
    assert any(rules_that_join(example(a), example(b), others, rule.issued) is None for a, b in rule.join)


def test_the_fewest_rules_are_named() -> None:
    one = get("http://a.test/%7Ex?utm_source=a&_=1700000000000")
    assert (
        rules_that_join(one, get("http://a.test/~x?_=1700000000009"), RULES)
        == "tracking+cache-buster+encoding"
    )
    assert rules_that_join(one, one, RULES) == ""


def test_a_rule_joins_nothing_where_the_recording_shows_that_it_decides() -> None:
    busted = [(get(f"http://a.test/d?_=170000000000{n}"), html(f"page {n}")) for n in range(2)]
    replay = Replay(matcher(*busted))
    assert replay.ask(get("http://a.test/d?_=1700000000001")) == "page 1"
    assert replay.ask(get("http://a.test/d?_=1700000000009")) == "miss"
    same = [(get(f"http://a.test/d?_=170000000000{n}"), html("page")) for n in range(2)]
    assert Replay(matcher(*same)).ask(get("http://a.test/d?_=1700000000009")) == "page"


def test_answers_told_apart_by_the_state_leave_the_rule_on() -> None:
    replay = Replay(
        matcher(
            (get("http://a.test/d?_=1735689600000"), html("all")),
            (post("http://a.test/filter", "by=x"), redirect("/d")),
            (get("http://a.test/d?_=1735689600001"), html("x only")),
        )
    )
    assert replay.ask(get("http://a.test/d?_=1735689600005")) == "all"
    assert replay.last.verdict == "rule:cache-buster"
    replay.ask(post("http://a.test/filter", "by=x"))
    assert replay.ask(get("http://a.test/d?_=1735689600006")) == "x only"


def test_a_password_that_was_replaced_fits_any() -> None:
    name = "stillweb-secret-" + "0" * 24
    replay = Replay(matcher((post("http://a.test/login", f"user=ann&password={name}"), redirect("/"))))
    assert replay.ask(post("http://a.test/login", "user=ann&password=hunter2")) == ""
    assert replay.last.verdict == "rule:redacted"
    assert replay.ask(post("http://a.test/login", "user=bob&password=hunter2")) == "miss"


def test_two_passwords_that_were_replaced_are_not_mixed_up() -> None:
    names = ["stillweb-secret-" + c * 24 for c in "01"]
    over = matcher(
        (post("http://a.test/login", f"user=ann&password={names[0]}"), html("wrong password")),
        (post("http://a.test/login", f"user=ann&password={names[1]}"), redirect("/")),
    )
    assert Replay(over).ask(post("http://a.test/login", "user=ann&password=hunter2")) == "miss"
    assert Replay(over).ask(post("http://a.test/login", f"user=ann&password={names[0]}")) == "wrong password"


GOOD = '[[rule]]\nid = "x"\ndrop = [{ in = ["query"], name = "a" }]\njoin = [["GET http://a.test/?a=1", "GET http://a.test/"]]\napart = [["GET http://a.test/?b=1", "GET http://a.test/"]]\n'


def test_a_pattern_looks_at_no_text_on_which_it_could_take_long() -> None:
    """`.*a.*a.*b` took ten seconds for a value of 2,000 letters, and hours for a longer one."""
    rules = load(GOOD.replace('name = "a"', "name = '.*a.*a.*b'")).rules
    short, long = (Request("GET", f"http://a.test/?{'a' * many}b=1") for many in (50, 60_000))
    assert apply_rules(rules, parse(short)).query is None
    assert apply_rules(rules, parse(long)).query is not None
    form = (("Content-Type", "application/x-www-form-urlencoded"),)
    many = Request("POST", "http://a.test/", form, b"&".join(b"a%d" % n for n in range(15_000)))
    every = load(GOOD.replace('in = ["query"], name = "a"', "in = ['form'], name = '[^b]*a[^b]*'")).rules
    assert apply_rules(every, parse(many)).body.value == ()


def test_a_graphql_text_of_blank_lines_takes_no_time() -> None:
    body = json.dumps({"query": "query{a}" + "\n" * 200_000 + "mutation m{b}"}).encode()
    asked = Request("POST", "http://a.test/graphql", (("Content-Type", "application/json"),), body)
    begun = time.process_time()
    assert [one.changes for one in operations_of(parse(asked))] == [True]
    assert time.process_time() - begun < 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[rule]\n", "rules.toml: "),
        (GOOD.replace('"x"', '"X y"'), "lower-case words"),
        (GOOD.replace("drop", "dorp"), "unknown field 'dorp'"),
        (GOOD.replace('in = ["query"]', 'in = "query"'), "`in` must be a list"),
        (GOOD.replace('["query"]', '["query", "header"]'), "`in` must be a list"),
        (GOOD.replace('name = "a"', 'name = "("'), "rule x.drop"),
        *[
            (
                GOOD.replace('name = "a"', f'name = "{endless}"'),
                "can take exponential time; write (?>…) around the part",
            )
            for endless in (
                "(a+)+",
                "(a|aa)+",
                "(?:a{1,9}){1,9}",
                "(?:(?:x(?=y)|a)*b)*",
                "b|(?>(a*)*c)",
                "a?" * 30,
                "(.*a){9}",
            )
        ],
        (GOOD.replace("join =", 'kind = "magic"\njoin ='), "kind must be one of"),
        (GOOD.partition("apart")[0], "needs examples"),
        (GOOD + GOOD, "the same id"),
    ],
)
def test_a_bad_rule_file_is_refused_in_a_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=r"^rules\.toml") as caught:
        load(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value).strip()


@pytest.mark.parametrize("name", ["a", "(?>a+)+", "(?:a|b|cc)", ".*a.*", "(?:b++-)*a"])
def test_a_good_rule_file_is_read(name: str) -> None:
    (rule,) = load(GOOD.replace('name = "a"', f'name = "{name}"')).rules
    assert rules_that_join(example(rule.join[0][0]), example(rule.join[0][1]), [rule]) == "x"


@pytest.mark.parametrize("text", ["GET", "GET http://a.test/ form", "POST http://a.test/ yaml a"])
def test_a_bad_example_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"example|type is one of"):
        example(text)


def test_every_rule_has_a_word_about_it() -> None:
    assert all(r.about.endswith(".") for r in RULES)


@pytest.mark.parametrize("char", "!'()*+,:=@&$[]|^~")
def test_a_path_that_was_escaped_by_another_client_is_the_same_for_sure(char: str) -> None:
    plain, escaped = get(f"http://a.test/x{char}y"), get(f"http://a.test/x%{ord(char):02X}y")
    for recorded, asked in ((plain, escaped), (escaped, plain)):
        over = matcher((recorded, html("one")))
        lookup = over.lookup(asked, over.session("s"))
        assert lookup.capture is not None
        assert not lookup.ambiguous
