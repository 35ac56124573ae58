"""The short way of a lookup gives what all the steps give, whatever was recorded and whoever asks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.capture import Response
from stillweb.snapshots.identity.keys import is_plain, request_key
from stillweb.snapshots.matching import ladder
from stillweb.snapshots.matching.evident import evident
from stillweb.snapshots.matching.ladder import Matcher
from stillweb.snapshots.matching.lookup import Lookup
from stillweb.snapshots.request import Headers, Request
from tests.support.memory_store import MemoryStore, Recorded, get, html

URLS = [
    "http://a.test/p",
    "http://a.test/p?x=1&y=2",
    "http://a.test/q",
    "http://b.test/p",
    "http://a.test/beacon",
]
FIELDS: list[Headers] = [
    (),
    (("Accept", "text/html"),),
    (("Accept", "application/json"),),
    (("Cookie", "session=0123456789abcdef0123456789abcdef"),),
    (("Accept-Language", "en"),),
    (("HX-Request", "true"),),
    (("X-Tenant", "acme"),),
    (("Origin", "http://x.test"),),
    (("Cookie", "lang=en"),),
    (("X-HTTP-Method-Override", "DELETE"),),
    (("Range", "bytes=0-1"),),
]
MORE: list[Headers] = [
    (),
    (("Vary", "Accept-Language"),),
    (("Vary", "*"),),
    (("Set-Cookie", "session=0123456789abcdef0123456789abcdef"),),
    (("Location", "/q"),),
]
requests = st.builds(
    lambda method, url, headers, body: Request(method, url, headers, body if method == "POST" else b""),
    st.sampled_from(["GET"] * 6 + ["POST", "HEAD", "DELETE"]),
    st.sampled_from([*URLS, "http://a.test/p?y=2&x=1", "http://A.test/p", "http://a.test/none"]),
    st.sampled_from(FIELDS),
    st.sampled_from([b"", b"a=1"]),
)
answers = st.builds(
    lambda status, text, more: Response(status, "", html(text, status, *more).headers, text.encode()),
    st.sampled_from([200, 200, 200, 206, 303, 404]),
    st.sampled_from(["one", "two"]),
    st.sampled_from(MORE),
)
recordings = st.lists(st.builds(Recorded, requests, answers, st.sampled_from(["s", "t"])), max_size=7)
alterations = st.dictionaries(
    st.integers(0, 6),
    st.sampled_from([{"state": "any"}, {"state": "any b"}, {"state": "k n"}, {"state": "never"}, {"truncated": "length"}]),
    max_size=2,
)  # fmt: skip
TOLD = ("verdict", "capture", "rule", "ambiguous", "state", "key", "irrelevant", "timeless", "inert", "site", "why", "settled")  # fmt: skip


def told(lookup: Lookup) -> dict[str, Any]:
    return {name: getattr(lookup, name) for name in TOLD}


def walk(over: Matcher, asked: list[tuple[Request, str, str]]) -> list[Any]:
    sessions = {name: over.session(name) for name in ("s", "u")}
    found: list[Any] = []
    for request, name, accept in asked:
        session = sessions[name]
        lookup = over.lookup(request, session, accept=accept)
        session.answered(lookup)
        known = {site: str(state) for site, state in session.sites.items()}
        found.append((told(lookup), known, session.followed.copy(), [*session.given]))
    return found


@pytest.mark.slow
@given(
    recordings,
    alterations,
    st.lists(
        st.tuples(requests, st.sampled_from(["s", "u"]), st.sampled_from(["rule", "rule", "exact", "rule+unambiguous"])),
        min_size=1,
        max_size=10,
    ),
)  # fmt: skip
def test_the_short_way_and_the_long_one_say_the_same(
    recorded: list[Recorded],
    altered: dict[int, dict[str, str]],
    asked: list[tuple[Request, str, str]],
) -> None:
    store = MemoryStore(recorded)
    for number, what in altered.items():
        store.changed(number, **what)
    asked = [(one.request, "s", "rule") for one in recorded] + asked
    short = walk(Matcher(store), asked)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ladder, "evident", lambda *_: False)
        assert short == walk(Matcher(store), asked)


@pytest.mark.parametrize(
    ("request_", "what"),
    [
        (get(URLS[0]), {"state": "0123abcd=4567cdef"}),
        (get(URLS[0]), {"exact": "other"}),
        (get(URLS[0]), {"vary": (("accept", ""),)}),
        (get(URLS[0]), {"truncated": "length"}),
        (get(URLS[0]), {"status": 206}),
        (get(URLS[0], accept="image/png"), {}),
        (get(URLS[0], x_http_method="PUT"), {}),
        (get(URLS[0], hx_request="true"), {}),
        (get(URLS[0], x_tenant="acme"), {}),
        (get(URLS[0], cookie="session=0123456789abcdef0123456789abcdef"), {}),
        (get(URLS[0], cookie="lang=en"), {}),
    ],
)
def test_what_takes_the_long_way(request_: Request, what: dict[str, Any]) -> None:
    store = MemoryStore([Recorded(get(URLS[0]), html("x"))])
    key = request_key(get(URLS[0]))
    assert evident(get(URLS[0]), key, *store.captures())
    store.changed(0, **what)
    assert not (is_plain(request_) and evident(request_, key, *store.captures()))
