"""Values of a request field that ask for the same in other words, and those that are known to get the same."""

from __future__ import annotations

import pytest

from stillweb.snapshots.matching.ladder import Matcher
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.redact import PREFIX, Redactor
from tests.support.memory_store import Replay, answers, get, html, matcher

URL = "http://a.test/page"
KEYS = tuple(f"live-4f9a8b7c6d5e4f3a2b1{digit}" for digit in "abc")


def varying(field: str, recorded: dict[str, str]) -> Matcher:
    """A page by the value of a field that its answers name in Vary; "" where a request has none."""
    return matcher(
        *[(sent(field, value), html(text, 200, ("Vary", field))) for value, text in recorded.items()]
    )


def sent(field: str, value: str, url: str = URL) -> Request:
    return get(url, **({field: value} if value else {}))


def test_each_kind_of_client_gets_what_another_of_its_kind_got() -> None:
    recorded = {"Mozilla/5.0 Chrome": "wide", "Mozilla/5.0 Mobile/1": "narrow", "curl/8": "text"}
    for agent, text in (("Mozilla/5.0 Edge", "wide"), ("Mozilla/5.0 Mobile/2", "narrow"), ("wget/1", "text")):
        assert answers(varying("User-Agent", recorded), sent("User-Agent", agent)) == [text]
        others = {a: t for a, t in recorded.items() if t != text}
        assert answers(varying("User-Agent", others), sent("User-Agent", agent)) == ["miss"]


def test_another_user_gets_the_page_of_the_language_and_of_no_other_scheme() -> None:
    vary = ("Vary", "Accept-Language, Authorization")
    languages = {"en": "hello", "fr": "bonjour"}
    over = matcher(
        *[
            (get(URL, authorization="Bearer ann-0123456789", accept_language=tag), html(text, 200, vary))
            for tag, text in languages.items()
        ]
    )
    for tag, text in languages.items():
        assert answers(over, get(URL, authorization="Bearer eve-0123456789", accept_language=tag)) == [
            f"{text}?"
        ]
        assert answers(over, get(URL, authorization="Digest eve", accept_language=tag)) == ["miss"]


@pytest.mark.parametrize("proven", [True, False])
def test_a_key_that_was_not_recorded_gets_nothing_where_keys_were_answered_differently(proven: bool) -> None:
    """But for older snapshots, whose pseudonyms prove nothing: any key may be a recorded one."""
    names = [Redactor(b"k" * 32).pseudonym(key) for key in KEYS[:2]]
    if not proven:
        names = [PREFIX + letter * 24 for letter in "ab"]
    over = varying("X-Api-Key", {names[0]: "one", names[1]: "two"})
    replay = Replay(over)
    assert (replay.ask(sent("X-Api-Key", KEYS[2])) == "miss") is proven
    assert proven or replay.last.ambiguous
    assert Replay(over).ask(get(URL)) == "miss", "none is no key"
    if proven:
        assert [answers(over, sent("X-Api-Key", key)) for key in KEYS[:2]] == [["one"], ["two"]]


def test_a_key_that_was_recorded_in_another_language_is_unsure() -> None:
    """It may be the same user's, renewed."""
    vary = ("Vary", "Accept-Language, X-Api-Key")
    redactor = Redactor(b"k" * 32)
    asked = {(key, tag): get(URL, x_api_key=key, accept_language=tag) for key in KEYS for tag in ("en", "fr")}
    recorded = {(KEYS[0], "en"): "hello", (KEYS[0], "fr"): "bonjour", (KEYS[1], "en"): "hi"}
    over = matcher(*[(redactor.request(asked[one]), html(text, 200, vary)) for one, text in recorded.items()])
    assert [answers(over, asked[one])[0] for one in recorded] == list(recorded.values())
    assert answers(over, asked[KEYS[1], "fr"]) == ["bonjour?"]
    assert answers(over, asked[KEYS[2], "fr"]) == ["miss"]


def test_a_key_may_be_one_of_an_older_snapshot_beside_keys_that_it_is_not() -> None:
    names = {PREFIX + "a" * 24: "old", Redactor(b"k" * 32).pseudonym(KEYS[0]): "new"}
    assert answers(varying("X-Api-Key", names), sent("X-Api-Key", KEYS[1])) == ["old?"]
    assert answers(varying("X-Api-Key", names), sent("X-Api-Key", KEYS[0])) == ["new"]


@pytest.mark.parametrize("redacted", [True, False])
@pytest.mark.parametrize("vary", ["X-Api-Key", "Accept"])
def test_two_keys_that_were_answered_alike_prove_no_other_as_good(vary: str, redacted: bool) -> None:
    """Whether the server names the field or not, and also as other programs record it: with the keys."""
    redactor = Redactor(b"k" * 32)
    requests = [sent("X-Api-Key", key) for key in KEYS]
    recorded = [redactor.request(r) if redacted else r for r in requests[:2]]
    over = matcher(*[(r, html("data", 200, ("Vary", vary))) for r in recorded])
    assert [answers(over, r) for r in requests] == [["data"], ["data"], ["data?"]]
    assert answers(over, get(URL)) == ["data?"]


@pytest.mark.parametrize(
    ("field", "recorded", "asked", "sure"),
    [
        ("User-Agent", ("curl/8",), "", True),
        ("User-Agent", ("Mozilla/5.0",), "", False),
        ("User-Agent", ("Mozilla/5.0 Chrome", "Mozilla/5.0 Edge"), "Mozilla/5.0 Mobile/1", False),
        ("User-Agent", ("Mozilla/5.0 Chrome", "curl/8"), "Mozilla/5.0 Mobile/1", True),
        ("X-Tenant", ("one", "two"), "three", True),
        ("X-Api-Key", ("none", "null"), KEYS[0], False),
        ("X-Api-Key", KEYS[:2], "none", False),
        ("X-Tenant", ("one", "two"), "", False),
        ("X-Tenant", ("one", ""), "two", False),
        ("X-Tenant", ("one",), "two", False),
        ("Accept-Language", ("en,fr;q=0.5",), "en,fr;q=0.4", True),
        ("Accept-Language", ("en",), "", False),
        ("Accept-Language", ("en", "fr"), "", True),
    ],
)
def test_what_is_known_to_get_what_others_got(
    field: str, recorded: tuple[str, ...], asked: str, sure: bool
) -> None:
    over = varying(field, dict.fromkeys(recorded, "page"))
    assert answers(over, sent(field, asked)) == ["page" if sure else "page?"]
