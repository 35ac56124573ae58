"""Index keys are those of the surt package."""

import base64
import json
import time
import tracemalloc

import ada_url
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from surt import surt as reference

from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.identity.urlkeys import surt
from stillweb.snapshots.request import Request

HOSTS = [
    "example.com",
    "www.example.com",
    "www2.example.com",
    "www.com",
    "a.b.c.example.co",
    "10.0.0.1",
    "wwwx.example.com",
    "1.2.3.com",
    "localhost",
    "example.com:8080",
    "www.example.com:8443",
    "example.com:80",
    "example.com:443",
    "127.0.0.2:44444",
    "255.25.249.0",
]
PAIRS = [
    "sid=0123456789abcdef0123456789abcdef",
    "PHPSESSID=0123456789abcdef0123456789abcdef",
    "cfid=1&cftoken=2",
    "a",
    "a=",
    "a=1",
    "A=1",
    "b==",
    "q=%20x",
    "",
]
SEGMENTS = ["(S(0123456789abcdefghijklmn))", "(0123456789abcdefghijklmn)", "x.aspx", "..", "%2e%2E", "%2525"]
segments = st.text("aAzZ09._~-%(é ", max_size=6) | st.sampled_from(SEGMENTS)
paths = st.lists(segments, max_size=4).map(lambda parts: "/" + "/".join(parts))
queries = st.none() | st.lists(st.text("aB09._~-=%é#", max_size=6) | st.sampled_from(PAIRS), max_size=4).map(
    "&".join
)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.sampled_from(["http", "https"]), st.sampled_from(HOSTS), paths, queries)
def test_keys_are_those_of_the_surt_package(scheme: str, host: str, path: str, query: str | None) -> None:
    url = ada_url.normalize_url(f"{scheme}://{host}{path}" + ("" if query is None else f"?{query}"))
    assert surt(url) == reference(url)


def test_a_text_that_was_escaped_ten_thousand_times_takes_no_time() -> None:
    begin = time.thread_time()
    assert surt("http://a.test/p?a=%" + "25" * 60_000 + "41") == "test,a)/p?a=a"
    assert time.thread_time() - begin < 0.5


def test_addresses_that_never_come_again_leave_memory() -> None:
    tracemalloc.start()
    try:
        for number in range(15_000):
            surt(f"http://a.test/never?session-{number:06}")
        assert tracemalloc.get_traced_memory()[0] < 1_200_000
    finally:
        tracemalloc.stop()


PARTS = "".join(f'--x\r\nContent-Disposition: form-data; name="n{n}"\r\n\r\né {n}\r\n' for n in range(1000))


@pytest.mark.parametrize(
    ("media", "body", "query"),
    [
        ("application/x-www-form-urlencoded", "a=%F0%9F%98%80+&" * 1000, "a=\U0001f600 &" * 1000),
        (
            "application/json",
            json.dumps([{"b": {}, "a": ["é", None]}] * 1000),
            "a=%C3%A9&a.2_=null&" + "&".join(f"a.{n}_=%C3%A9&a.{n + 1}_=null" for n in range(3, 1000, 2)),
        ),
        ("application/json", json.dumps({"a": "é" * 5000}), "a=" + "%C3%A9" * 5000),
        (
            "multipart/form-data; boundary=x",
            f"{PARTS}--x--\r\n",
            "&".join(f"n{n}=%C3%A9+{n}" for n in range(1000)),
        ),
        ("text/plain", "x" * 9000, "__wb_post_data=" + base64.b64encode(b"x" * 9000).decode()),
    ],
)
def test_a_key_holds_the_first_4096_characters_of_a_body(media: str, body: str, query: str) -> None:
    key = request_key(Request("POST", "http://a.test/", (("Content-Type", media),), body.encode()))
    assert key.urlkey == surt(f"http://a.test/?__wb_method=POST&{query[:4096]}")
