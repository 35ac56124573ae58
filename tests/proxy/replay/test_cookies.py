"""Cookies live in replay as long as they did when they were recorded, whatever the day."""

from pathlib import Path

import httpx
import pytest

from stillweb.proxy import Authority, Gateway
from stillweb.proxy.replay.response import with_ages
from stillweb.snapshots import Snapshot, Writer
from tests.snapshots.making import record
from tests.support.waiting import HANG

NOON = "20250102120000"


@pytest.mark.parametrize(
    ("value", "age"),
    [
        ("a=1; Path=/; Expires=Thu, 02 Jan 2025 13:00:00 GMT", 3600),
        ("a=1; expires=Thursday, 02-Jan-25 12:00:30 GMT; HttpOnly", 30),
        ("a=1; EXPIRES=Fri, 03-Jan-2025 12:00:00 GMT", 86400),
        ('a="x;y"; Expires=Thu, 02 Jan 2025 12:00:01 GMT', 1),
        ("a=1; Expires=Thu, 02 Jan 2025 12:00:00 GMT", None),
        ("a=; Expires=Thu, 01 Jan 1970 00:00:00 GMT", None),
        ("a=1; Expires=Thu, 02 Jan 2025 13:00:00 GMT; Max-Age=5", None),
        ("a=1; Max-Age=0; Expires=Thu, 02 Jan 2025 13:00:00 GMT", None),
        ("a=1; Expires=soon", None),
        ("a=1; Expires=Thu Jan  2 12:00:09 2025", 9),
        ("a=1; Expires=Thu, 02-Jan-69 12:00:00 GMT", 1388534400),
        ("a=; Expires=Thu, 01-Jan-70 00:00:00 GMT", None),
        ("a=; Expires=Fri, 31-Dec-99 23:59:59 GMT", None),
        ("a=1; Expires=Mon, 31 Feb 2025 12:00:00 GMT", None),
        ("a=1; Expires=Thu, 02 Jan 1600 12:00:00 GMT", None),
        ("a=1; Path=/", None),
    ],
)
def test_what_had_a_last_day_has_an_age(value: str, age: int | None) -> None:
    headers = (("Content-Type", "text/html"), ("Set-Cookie", value))
    aged = with_ages(headers, NOON)
    if age is None:
        assert aged is headers
    else:
        assert aged == (headers[0], ("Set-Cookie", f"{value}; Max-Age={age}"))
    assert with_ages(headers[:1], NOON) is headers[:1] or with_ages(headers[:1], NOON) == headers[:1]


def test_a_login_replays_when_its_day_has_passed(tmp_path: Path) -> None:
    page = ("Content-Type", "text/html")
    given = ("Set-Cookie", "sid=k3v9q0t7m2x8b4n6c1z5; Path=/; Expires=Sun, 02 Feb 2025 03:04:05 GMT")
    gone = ("Set-Cookie", "theme=; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT")
    asked = (("Host", "a.test"), ("Cookie", "sid=k3v9q0t7m2x8b4n6c1z5"))
    with Writer.open(tmp_path / "site") as writer:
        record(writer, "http://a.test/in", b"welcome", headers=(page, given, gone))
        record(writer, "http://a.test/big", b"x" * (2 << 20), headers=(page, given), request_headers=asked)
        record(writer, "http://a.test/me", b"ann", headers=(page,), request_headers=asked)
    with (
        Snapshot.open(tmp_path / "site") as snapshot,
        Gateway(snapshot, authority=Authority.load_or_create(tmp_path / "state")) as gateway,
        httpx.Client(proxy=gateway.url, trust_env=False, timeout=HANG, cookies={"theme": "dark"}) as client,
    ):
        for _ in range(2):
            answer = httpx.get("http://a.test/in", proxy=gateway.url, trust_env=False, timeout=HANG)
            assert answer.headers["Stillweb-Derived"] == "cookie-age"
            assert answer.headers.get_list("set-cookie")[1] == gone[1]
            assert "Expires=Sun, 02 Feb 2025" in answer.headers["set-cookie"]
        client.cookies.set("sid", answer.cookies["sid"])
        assert client.get("http://a.test/me").text == "ann"
        again = httpx.head("http://a.test/in", proxy=gateway.url, trust_env=False, timeout=HANG)
        assert again.headers["Stillweb-Derived"] == "head+cookie-age"
        assert client.get("http://a.test/big").headers["Stillweb-Derived"] == "cookie-age"
        derived = [e.get("derived") for e in gateway.ledger.entries()]
        assert derived == ["cookie-age", "cookie-age", None, "head+cookie-age", "cookie-age"]
