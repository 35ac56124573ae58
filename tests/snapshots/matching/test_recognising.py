"""Replayed secrets find what was recorded with them, and nothing else."""

from __future__ import annotations

import base64
import json

import pytest

from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.matching.ladder import Matcher
from stillweb.snapshots.matching.recognising import Recogniser, other_secrets, pseudonyms_in
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets import keystore
from stillweb.snapshots.secrets.redact import MASK, PREFIX, Redactor
from tests.support.memory_store import MemoryStore, Recorded, Replay, get, html, matcher, post

A = "http://a.test"
KEY = "live-4f9a8b7c6d5e4f3a2b1c"
PART = '--b\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'


def recorded(*requests: Request, texts: tuple[str, ...] = ("one", "two", "three")) -> Matcher:
    """A matcher of a recording of these requests, redacted as the recorder does."""
    redactor = Redactor(b"k" * 32)
    answers = (html(text, 200 + 201 * number) for number, text in enumerate(texts))
    return matcher(*((redactor.request(r), a) for r, a in zip(requests, answers, strict=False)))


def verdict(over: Matcher, request: Request) -> tuple[str, bool]:
    found = over.lookup(request, over.session())
    return found.verdict, found.ambiguous


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"ann:{password}".encode()).decode()


TYPED = {
    "form": lambda word: post(f"{A}/in", f"user=ann&password={word}"),
    "form, decoded": lambda word: post(f"{A}/in", f"user=ann&pwd=%26{word}+x"),
    "json": lambda word: post(f"{A}/in", json.dumps({"user": "ann", "password": word}), "application/json"),
    "multipart": lambda word: post(
        f"{A}/in",
        PART.format("user", "ann") + PART.format("password", word) + "--b--\r\n",
        "multipart/form-data; boundary=b",
    ),
    "query": lambda word: get(f"{A}/in?user=ann&passwd={word}"),
    "user info": lambda word: get(f"http://ann:{word}@a.test/in"),
    "basic": lambda word: get(f"{A}/in", authorization=basic(word)),
}


@pytest.mark.parametrize("kind", TYPED)
def test_what_is_typed_must_be_what_was_recorded(kind: str) -> None:
    ask = TYPED[kind]
    over = recorded(ask("apple-pie-7"))
    assert verdict(over, ask("apple-pie-7")) == ("exact", False)
    assert verdict(over, ask("apple-pie-8")) == ("miss", False)
    missed = over.lookup(ask("apple-pie-8"))
    told = repr([near.differs for near in missed.explain()]) + missed.remedy
    assert "apple-pie" not in told
    assert all(near.rule is None for near in missed.explain())
    # two attempts that were answered differently are told apart too
    both = recorded(ask("apple-pie-8"), ask("apple-pie-7"))
    for word, text in (("apple-pie-7", "two"), ("apple-pie-8", "one")):
        replay = Replay(both)
        assert replay.ask(ask(word)) == text
        assert replay.last.verdict == "exact"
    assert verdict(both, ask("apple-pie-9")) == ("miss", False)


def test_the_right_password_is_not_told_that_it_is_wrong() -> None:
    """Recorded after a wrong one, with the next page's token, and now typed into the first page."""

    def form(word: str, token: str) -> Request:
        return post(f"{A}/in", f"user=ann&password={word}&csrfmiddlewaretoken={token}")

    tokens = ("W2sswrfVpfondMCkOkpn0fZcKkmGUrhd", "CxpWUUjLuNKImGVa0RBdpxgmPvqI3v3r")
    pages = [html(f'<input type="hidden" name="csrfmiddlewaretoken" value="{token}">') for token in tokens]
    redactor = Redactor(b"k" * 32)
    over = matcher(
        (get(f"{A}/in"), pages[0]),
        (redactor.request(form("apple-pie-8", tokens[0])), pages[1]),
        (redactor.request(form("apple-pie-7", tokens[1])), html("welcome")),
    )
    assert tokens[1] in Replay(over).ask(form("apple-pie-8", tokens[0]))
    assert Replay(over).ask(form("apple-pie-7", tokens[0])) == "miss"
    assert Replay(over).ask(form("apple-pie-8", tokens[1])) == "miss"


KEYS = {
    "query": (lambda key: get(f"{A}/v1?q=1&api_key={key}"), "rule:redacted"),
    "json": (lambda key: post(f"{A}/v1", json.dumps({"api_key": key}), "application/json"), "rule:redacted"),
    "header": (lambda key: get(f"{A}/v1", authorization=f"Bearer {key}"), "varies:credentials"),
}


@pytest.mark.parametrize("kind", KEYS)
def test_another_key_is_served_but_said_to_be_another(kind: str) -> None:
    ask, other = KEYS[kind]
    over = recorded(ask(KEY))
    assert verdict(over, ask(KEY)) == ("exact", False)
    assert verdict(over, ask("test-000000000000000000")) == (other, True)
    both = recorded(ask(KEY), ask("live-0011223344556677889a"))
    assert verdict(both, ask(KEY)) == ("exact", False)
    assert verdict(both, ask("test-000000000000000000")) == ("miss", False)


@pytest.mark.parametrize(
    "scheme", ["Digest", "Negotiate", "AWS4-HMAC-SHA256", "Hawk", "Signature", "OAuth", "NTLM"]
)
def test_credentials_that_are_made_anew_for_each_request_fit_and_are_unsure(scheme: str) -> None:
    """Digest's are out of a number that the client draws: who was challenged got a miss, whoever it was."""

    def ask(number: int) -> Request:
        made = f'{scheme} username="ann", response="{number:032x}"'
        return get(f"{A}/v1", authorization=made)

    walk, answers = (get(f"{A}/v1"), ask(0xA1), ask(0xB2)), (html("no", 401), html("yes"), html("yes"))
    redactor = Redactor(b"k" * 32)
    over = matcher(*((redactor.request(r), a) for r, a in zip(walk, answers, strict=True)))
    assert verdict(over, walk[0]) == verdict(over, walk[2]) == ("exact", False)
    assert verdict(over, ask(0xC3)) == ("varies:credentials", True)
    assert verdict(over, get(f"{A}/v1", authorization="Basic YW5uOnBpZQ==")) == ("miss", False)
    # which of two that were answered differently it is nobody knows
    assert verdict(recorded(*walk), ask(0xC3)) == ("miss", False)


def test_credentials_made_anew_stand_back_where_what_was_written_tells_the_answers_apart() -> None:
    """Who signs each request (S3, Digest) read back what they had written, and got a miss for it."""

    def signed(method: str, number: int, body: bytes = b"") -> Request:
        made = (("Authorization", f"AWS4-HMAC-SHA256 Credential=me/{number}, Signature={number:032x}"),)
        return Request(method, f"{A}/bucket/key", made, body)

    def walk(number: int) -> list[Request]:
        written = (
            (signed("PUT", number + n, word), signed("GET", number + n + 1))
            for n, word in ((0, b"a"), (2, b"b"))
        )
        return [request for pair in written for request in pair]

    redactor = Redactor(b"k" * 32)
    texts = (html("put", 200), html("a"), html("put too"), html("b"))
    over = matcher(*((redactor.request(r), t) for r, t in zip(walk(0xA0), texts, strict=True)))
    replay = Replay(over)
    for request, text in zip(walk(0xB0), ("put", "a", "put too", "b"), strict=True):
        assert replay.ask(request) == text
        assert (replay.last.verdict, replay.last.ambiguous) == ("varies:credentials", True)


def test_older_pseudonyms_prove_nothing_and_so_fit_any_secret() -> None:
    stored = post(f"{A}/in", f"user=ann&password={PREFIX}{'a' * 24}")
    assert verdict(matcher((stored, html("in"))), TYPED["form"]("apple-pie-8")) == ("rule:redacted", True)
    assert other_secrets(TYPED["form"](MASK), stored) == ([], False)


def test_a_token_that_the_site_gave_in_replay_is_a_pseudonym_already() -> None:
    over = recorded(get(f"{A}/me", authorization=f"Bearer {KEY}"))
    name = Redactor(b"k" * 32).pseudonym(KEY)
    assert verdict(over, get(f"{A}/me", authorization=f"Bearer {name}")) == ("exact", False)
    # one of another login, which the site gave as well
    assert verdict(over, get(f"{A}/me", authorization=f"Bearer {PREFIX}{'b' * 24}")) == ("exact", False)


def test_what_a_session_has_proven_is_known_wherever_it_sends_it() -> None:
    word = "a long apple-pie-7"
    ask = post(f"{A}/in", json.dumps({"password": word}), "application/json")
    again = post(f"{A}/check", json.dumps({"repeat": word}), "application/json")
    over = recorded(ask, again)
    replay = Replay(over)
    assert [replay.ask(ask), replay.ask(again)] == ["one", "two"]
    assert replay.last.verdict == "exact"
    assert verdict(over, again) == ("miss", False)  # no field says here that it is one


def test_proofs_depend_on_the_secret_and_on_the_snapshot() -> None:
    one, two = Redactor(b"1" * 32), Redactor(b"2" * 32)
    assert one.pseudonym("apple") == one.pseudonym("apple") != one.pseudonym("apples")
    first, second = keystore.split(one.pseudonym("apple")), keystore.split(two.pseudonym("apple"))
    assert first is not None
    assert second is not None
    assert first[0] != second[0]
    assert keystore.proof_of("apple", first[0]) == first[1]
    assert keystore.split(MASK) is None
    x, y, z = (one.pseudonym(word) for word in "xyz")
    request = post(f"{A}/in?token={x}", f"password={y}&otp={MASK}", cookie=f"sid={z}")
    assert pseudonyms_in(request, headers=False) == {x, y}
    assert pseudonyms_in(request, headers=True) == {x, y, z}


def test_two_that_prove_alike_are_not_told_apart() -> None:
    known = Recogniser()
    name = Redactor(b"1" * 32).pseudonym("apple")
    known.know({name: 1})
    assert known.learn("apple") == name
    twin = Recogniser()
    twin.know({name: 1, name.replace(PREFIX + name[16:20], PREFIX + "ffff"): 1})
    assert twin.learn("apple") == MASK


def test_a_layer_has_its_own_name_for_a_secret() -> None:
    ask = TYPED["form"]
    low, high = Redactor(b"1" * 32), Redactor(b"2" * 32)
    other = post(f"{A}/other", "password=apple-pie-7")
    over = Matcher(
        MemoryStore(
            [
                Recorded(low.request(ask("apple-pie-7")), html("low"), "s"),
                Recorded(low.request(other), html("other"), "s"),
                Recorded(high.request(ask("apple-pie-7")), html("high"), "t", 2),
                Recorded(high.request(ask("apple-pie-8")), html("no", 401), "t", 2),
            ]
        )
    )
    for word, text in (("apple-pie-7", "high"), ("apple-pie-8", "no"), ("apple-pie-9", "miss")):
        assert Replay(over).ask(ask(word)) == text
    replay = Replay(over)
    assert replay.ask(other) == "other"
    assert (
        over.lookup(ask("apple-pie-7"), replay.session).key.canonical
        == request_key(high.request(ask("apple-pie-7"))).canonical
    )
