"""Captures as evidence: what is told from the text of a plain request is what taking it apart tells."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from snapshots.capture import Capture, Response
from snapshots.identity.keys import digest, parse, request_key
from snapshots.identity.rules import reduced
from snapshots.request import Request
from snapshots.states.evidence import Evidence, _rules
from snapshots.states.issued import values_of
from snapshots.states.learning import Item

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
