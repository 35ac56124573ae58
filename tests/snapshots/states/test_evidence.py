"""Captures as evidence: what is told from the text of a plain request is what taking it apart tells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.identity.keys import digest, parse, request_key
from stillweb.snapshots.identity.rules import reduced
from stillweb.snapshots.request import Request
from stillweb.snapshots.states.evidence import Evidence, _rules
from stillweb.snapshots.states.issued import values_of
from stillweb.snapshots.states.learning import Item
from tests.support.memory_store import Recorded, Replay, get, html, matcher, redirect

A = "http://a.test"
_NAMES = st.sampled_from(
    ["a", "page", "_", "t", "ts", "cb", "utm_source", "sid", "PHPSESSID", "nonce", "b=c", ""]
)
_VALUES = st.one_of(
    st.text("abcZ019._~-", max_size=12),
    st.sampled_from(["1700000000123", "8c1f3aa0b7d94e55", "x9Kq2Lm8Zt4Rw7Yv", "%41", "a+b", "é", "a;b=c"]),
)
_URLS = st.builds(
    lambda host, path, pairs, mark: f"https://{host}/{path}{mark if pairs or mark else ''}{'&'.join(pairs)}",
    st.sampled_from(["a.test", "www.a.test", "A.test", "a.test:8080", "1.2.3.4", "xn--a.test", "a"]),
    st.text("ab/._-~;%2e", max_size=8),
    st.lists(st.builds("{}={}".format, _NAMES, _VALUES), max_size=3),
    st.sampled_from(["?", "?", "?&", ""]),
)


def _evidence(request: Request) -> tuple[Evidence, Item]:
    key = request_key(request)
    capture = Capture(
        key.urlkey, "20250101000000", request.url, request.method, 200, "text/html", "sha256:0", "m", 0, 1,
        key=key.canonical, exact=key.exact, session="s", begin=1, end=2,
    )  # fmt: skip
    evidence = Evidence([capture], lambda _: request, lambda _: Response(200, "OK", (), b""))
    return evidence, evidence.items[capture.place]


@given(_URLS, st.sampled_from(["GET", "HEAD", "POST"]))
def test_a_plain_request_is_its_own_key(url: str, method: str) -> None:
    request = Request(method, url)
    evidence, item = _evidence(request)
    parsed = parse(request)
    assert item.key == digest(reduced(request, _rules())), "however it was found"
    if evidence._irreducible(request):
        assert reduced(request, _rules()) == parsed
    if evidence._tokenless(item):
        assert not list(values_of(parsed))


def test_most_requests_are_plain() -> None:
    for url in (
        "https://a.test/",
        "https://www.a.test/guide/chapter-3.html",
        "https://a.test/list?page=2&q=x",
    ):
        evidence, item = _evidence(Request("GET", url))
        assert evidence._irreducible(Request("GET", url)), url
        assert evidence._tokenless(item), url
    for url in ("https://a.test/?_=1700000000123", "https://a.test/a;b=1", "https://a.test/%41"):
        assert not _evidence(Request("GET", url))[0]._irreducible(Request("GET", url)), url


@pytest.mark.parametrize("known", [False, True], ids=["nobody is known", "clients are known by a cookie"])
def test_what_an_answer_shows_of_a_value_that_its_session_was_issued_means_nothing(known: bool) -> None:
    """Two sessions were issued different ones: their next pages are no answers that change by themselves."""
    recorded = []
    for token, sid in (
        ("Zk3qP9xT2vLm8Rw1", "k3v9q0t7m2x8b4n6c1z5r0p7d2"),
        ("Qw8rT5yU1oPs6Lk2", "a8d2f6h1j5l9q3w7e0r4t8y2u6"),
    ):
        cookie = f"PHPSESSID={sid}"
        form = html(f'<input name="step" value="{token}">', 200, *([("Set-Cookie", cookie)] if known else []))
        following = get(f"http://a.test/next?step={token}", **({"cookie": cookie} if known else {}))
        recorded += [
            Recorded(get("http://a.test/form"), form, sid), Recorded(following, html(f"after {token}"), sid),
        ]  # fmt: skip
    replay = Replay(matcher(*recorded))
    replay.ask(recorded[0].request)
    for one in (recorded[1], recorded[3], recorded[1]):
        sent = Request("GET", one.request.url, recorded[1].request.headers)
        assert replay.ask(sent) == one.response.body.decode()
        assert (replay.last.verdict, replay.last.ambiguous) == ("exact", False)


def tagged(number: int, text: str = "x") -> Request:
    """A write of a document, if its version is still the one that was read."""
    return Request("PUT", f"{A}/doc", (("If-Match", f'"v{number}"'),), text.encode())


def test_writes_with_other_conditions_ask_something_else() -> None:
    """That one was met after it had been refused was not by itself: another one had changed the document."""
    doc, written, refused = get(f"{A}/doc"), Response(204, "", (), b""), html("changed meanwhile", 412)
    over = matcher(
        (tagged(2), refused), (doc, html("1")), (tagged(1), written), (tagged(2), written), (doc, html("3 x")),
        (tagged(2), refused),
    )  # fmt: skip
    asked = Replay(over, "new")
    for _ in range(3):
        asked.ask(tagged(2))
        assert asked.last.capture is None or asked.last.capture.status == 412 or asked.last.ambiguous
    recorded = Replay(over, "new")
    for number, status in ((2, 412), (1, 204), (2, 204), (2, 412)):
        recorded.ask(tagged(number))
        assert recorded.last.capture is not None
        assert (recorded.last.capture.status, recorded.last.ambiguous) == (status, False)


def test_a_condition_that_was_met_is_not_surely_met_again() -> None:
    doc, written = get(f"{A}/doc"), Response(204, "", (), b"")
    asked = Replay(matcher((doc, html("1")), (tagged(1), written), (doc, html("2 x"))), "new")
    assert asked.ask(tagged(1)) == ""
    assert not asked.last.ambiguous
    asked.ask(tagged(1))
    assert asked.last.capture is None or asked.last.ambiguous


def test_a_file_that_was_refused_with_the_very_same_bytes_is_not_always_the_same() -> None:
    """A stand-in for a picture, say, as an error's body as well: who may see it depends on what was told before."""

    def picture(status: int) -> Response:
        return Response(status, "", (("Content-Type", "image/png"),), b"nobody")

    def acting_as(name: str) -> Request:
        return Request(
            "POST", f"{A}/as", (("Content-Type", "application/x-www-form-urlencoded"),), name.encode()
        )

    shown, home = get(f"{A}/picture.png"), (get(f"{A}/home"), html("hello"))
    ann, bob, cid = acting_as("who=ann"), acting_as("who=bob"), acting_as("who=cid")
    over = matcher(
        (ann, redirect("/home")), (shown, picture(200)), (bob, redirect("/home")), (shown, picture(403)),
        (cid, redirect("/home")), home,
    )  # fmt: skip
    for first, status in ((ann, 200), (bob, 403)):
        asked = Replay(over, "new")
        asked.ask(first)
        asked.ask(shown)
        assert asked.last.capture is not None
        assert asked.last.capture.status == status
    asked = Replay(over, "new")
    asked.ask(cid)
    assert asked.ask(shown) == "miss", "which of the two was never seen"
