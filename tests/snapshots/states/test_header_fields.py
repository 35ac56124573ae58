"""Header fields that an application made up: where they explain what was answered, they decide."""

from __future__ import annotations

import pytest

from stillweb.snapshots.evidence.lookup import Lookup
from stillweb.snapshots.evidence.matcher import Matcher
from stillweb.snapshots.request import Request
from stillweb.snapshots.states.header_fields import PRESENT, all_of, own_fields, own_of
from tests.support.memory_store import get, html, matcher

A = "http://a.test"
SECRET = "stillweb-secret-0123456789abcdef01234567"


def said(over: Matcher, request: Request) -> tuple[str, str | None]:
    lookup: Lookup = over.lookup(request, over.session())
    return lookup.verdict, None if lookup.capture is None else over.snapshot.read(
        lookup.capture
    ).body.decode()


def test_who_asks_decides_in_whatever_order() -> None:
    over = matcher(
        (get(f"{A}/me", x_user="ann"), html("ann's")),
        (get(f"{A}/me", x_user="bob"), html("bob's")),
    )
    assert said(over, get(f"{A}/me", x_user="bob")) == ("exact", "bob's")
    assert said(over, get(f"{A}/me", x_user="ann")) == ("exact", "ann's")
    for other in (get(f"{A}/me", x_user="cyd"), get(f"{A}/me")):
        assert said(over, other) == ("miss", None)


def test_a_key_that_was_replaced_is_told_from_none_and_from_no_other() -> None:
    over = matcher(
        (get(f"{A}/data", x_api_key=SECRET), html("data")),
        (get(f"{A}/data"), html("no key", 401)),
    )
    assert said(over, get(f"{A}/data")) == ("exact", "no key")
    assert said(over, get(f"{A}/data", x_api_key="hunter2")) == ("varies:x-api-key", "data")
    assert over.lookup(get(f"{A}/data", x_api_key="hunter2")).ambiguous
    two = matcher(
        (get(f"{A}/data", x_api_key=SECRET), html("data")),
        (get(f"{A}/data", x_api_key=SECRET[:-1] + "8"), html("other data")),
    )
    lookup = two.lookup(get(f"{A}/data", x_api_key="hunter2"), two.session())
    assert (lookup.verdict, lookup.ambiguous) == ("varies:x-api-key", True)


def test_what_a_program_that_asks_a_model_says_of_its_run_is_none_of_its_fields() -> None:
    over = matcher((get(f"{A}/data", x_claude_code_session_id=SECRET, x_user="ann"), html("data")))
    for run in ("hunter2-and-more", ""):
        lookup = over.lookup(get(f"{A}/data", x_claude_code_session_id=run, x_user="ann"), over.session())
        assert (lookup.verdict, lookup.ambiguous) == ("exact", False)


def test_a_secret_is_not_told_by_a_miss() -> None:
    over = matcher(
        (get(f"{A}/data", x_api_key=SECRET, x_user="ann"), html("data", 200, ("Vary", "X-Api-Key, X-User"))),
        (get(f"{A}/data", x_api_key=SECRET, x_user="bob"), html("more", 200, ("Vary", "X-Api-Key, X-User"))),
    )
    lookup = over.lookup(get(f"{A}/data", x_api_key="hunter2-and-more", x_user="cyd"), over.session())
    assert lookup.capture is None
    assert "hunter2" not in str(lookup.explain())
    assert "header x-user: asked 'cyd', recorded 'ann'" in lookup.explain()[0].differs


def test_what_is_drawn_for_each_request_leaves_a_changing_answer_in_its_order() -> None:
    over = matcher(
        (get(f"{A}/job", x_request_id="1f0c", x_tick="1735689600"), html("queued")),
        (get(f"{A}/job", x_request_id="99ab", x_tick="1735689601"), html("done")),
    )
    session = over.session()
    found = []
    for tick in ("1790000000", "1790000001"):
        lookup = over.lookup(get(f"{A}/job", x_request_id=tick, x_tick=tick), session)
        assert lookup.capture is not None
        session.answered(lookup)
        found.append(over.snapshot.read(lookup.capture).body)
    assert found == [b"queued", b"done"]


@pytest.mark.parametrize(
    ("name", "value", "own"),
    [
        ("X-User", "ann", True),
        ("X-Page", "2", True),
        ("X-Api-Key", SECRET, True),
        ("Accept", "text/html", False),  # among those that are known to decide
        ("Referer", "http://a.test/x", False),
        ("Sec-Fetch-Site", "none", False),
        ("X-Request-ID", "7", False),
        ("traceparent", "00-a-b-01", False),
        ("grpc-timeout", "14998m", False),
        ("Connect-Timeout-Ms", "5000", False),
        ("X-Nonce", "1", False),
        ("X-Thing", "3f2b8c1e-5d6a-4b7c-8d9e-0a1b2c3d4e5f", False),
        ("X-Sent-At", "2025-01-02 03:04:05", False),
        ("X-Org-Id", "3f2b8c1e-5d6a-4b7c-8d9e-0a1b2c3d4e5f", True),  # drawn once, and kept
        ("X-CSRF-Token", "k3v9q0t7m2x8b4n6", True),
        ("Accept-Version", "2", True),
        ("Accept-Encoding", "br", False),
        ("X-Forwarded-User", "ann", True),
        ("X-Forwarded-For", "10.0.0.1", False),
        (":authority", "a.test", False),  # as HAR files have it
    ],
)
def test_which_fields_count(name: str, value: str, own: bool) -> None:
    assert own_fields([Request("GET", A, ((name, value),))]) == ([name.lower()] if own else [])


def test_what_an_application_says_in_its_fields() -> None:
    sent = (
        ("X-Tag", "a"),
        ("Accept", "*/*"),
        ("x-tag", "b"),
        ("X-XSRF-Token", "k3v9q0t7m2x8b4n6"),
        ("X-Tick", "1735689600"),
        ("X-Empty", ""),
    )
    assert own_of(sent) == {"x-tag": "a, b", "x-xsrf-token": PRESENT}


def test_all_that_a_request_says() -> None:
    sent = (("Host", "a.test"), ("X-B3-TraceId", "1"), ("Accept", "*/*"), ("Cookie", "a=1"))
    assert all_of(sent) == (("accept", "*/*"), ("cookie", "a=1"))


def test_an_accept_in_several_lines_is_one() -> None:
    """Go's registry clients send a line for each kind: the same request was told from itself."""
    kinds = [("Accept", f"application/vnd.{name}+json") for name in ("b", "c", "a")]
    ask = Request("GET", A, tuple(kinds))
    lookup = (over := matcher((ask, html("one")), (ask, html("one")))).lookup(ask, over.session())
    assert (lookup.verdict, lookup.ambiguous) == ("exact", False)
    over = matcher((ask, html("c")), (Request("GET", A, tuple(kinds[1:])), html("b")))
    assert said(over, ask) == ("exact", "c")
