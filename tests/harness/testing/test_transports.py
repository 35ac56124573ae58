"""Clients in this process hear what they would hear over a socket."""

import asyncio
from datetime import UTC, datetime

import httpx
import pytest
import requests

from stillweb.harness.testing.pytest_case import Case
from stillweb.harness.testing.shared_snapshots import SharedSnapshots
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.request import Request
from stillweb.snapshots.writer import Writer

SITE = "http://club.example"


@pytest.fixture
def case(tmp_path):
    """A site where a cookie decides what a page says."""
    said = [
        ("/me", (), 200, "OK", b"a stranger", ()),
        ("/login", (), 200, "OK", b"welcome", (("Set-Cookie", "sid=1; Path=/"), ("Set-Cookie", "lang=en"))),
        ("/me", (("Cookie", "sid=1; lang=en"),), 200, "OK", b"a member", ()),
        ("/gone", (), 404, "No Such Bird", b"", ()),
    ]
    with Writer.open(tmp_path / "site") as writer:
        for number, (path, sent, status, reason, body, fields) in enumerate(said):
            request = Request("GET", SITE + path, (("Host", "club.example"), *sent))
            headers = (("Content-Type", "text/plain"), ("Content-Length", str(len(body))), *fields)
            moment = datetime(2025, 1, 1, tzinfo=UTC)
            begin = 2 * number
            writer.exchange(
                Exchange(request, status, reason, headers, body, moment, begin=begin, end=begin + 1)
            )
    shelf = SharedSnapshots([tmp_path / "site"], "none")
    case = Case("a test", shelf)
    yield case
    case.close()
    shelf.close()


@pytest.fixture(params=["httpx", "requests"])
def client(case, request):
    with (
        httpx.Client(transport=case.transport())
        if request.param == "httpx"
        else case.mount(requests.Session()) as client
    ):
        yield client


def test_a_client_keeps_the_cookies_that_it_is_given(client):
    assert client.get(f"{SITE}/me").text == "a stranger"
    assert dict(client.get(f"{SITE}/login").cookies) == {"sid": "1", "lang": "en"}
    assert dict(client.cookies) == {"sid": "1", "lang": "en"}
    again = client.get(f"{SITE}/me")
    assert again.request.headers["cookie"] == "sid=1; lang=en"
    assert again.text == "a member"


def test_a_status_has_the_words_that_were_recorded(client):
    answer = client.get(f"{SITE}/gone")
    with pytest.raises((httpx.HTTPStatusError, requests.HTTPError), match="No Such Bird"):
        answer.raise_for_status()


def test_httpx_measures_and_streams_an_answer(case):
    with httpx.Client(transport=case.transport()) as client:
        assert client.get(f"{SITE}/gone").elapsed.total_seconds() >= 0
        with client.stream("GET", f"{SITE}/me") as answer:
            assert b"".join(answer.iter_raw()) == b"a stranger"
        with client.stream("GET", f"{SITE}/login") as answer:
            assert b"".join(answer.iter_bytes()) == b"welcome"
            assert answer.num_bytes_downloaded == len(b"welcome")


async def _read(case):
    async with (
        httpx.AsyncClient(transport=case.transport()) as client,
        client.stream("GET", f"{SITE}/me") as answer,
    ):
        body = b"".join([part async for part in answer.aiter_raw()])
    return body, answer.elapsed.total_seconds()


def test_an_asynchronous_client_does_so_too(case):
    body, seconds = asyncio.run(_read(case))
    assert (body, seconds >= 0) == (b"a stranger", True)
