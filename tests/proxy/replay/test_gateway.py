"""The gateway through real sockets and real clients: what it answers."""

import pytest

from stillweb.proxy.replay.gateway import Gateway
from tests.proxy.gateways import BIG, PAGE, client


def test_a_page_is_what_was_recorded_and_says_how_it_was_matched(gateway: Gateway) -> None:
    with client(gateway) as c:
        answer = c.get("https://site.example/")
    assert (answer.status_code, answer.content) == (200, PAGE)
    assert answer.headers["stillweb-verdict"] == "exact"
    assert ":" in answer.headers["stillweb-capture"]
    assert answer.headers["date"] == "Sat, 01 Mar 2025 12:00:00 GMT"
    assert "stillweb-derived" not in answer.headers


def test_plain_http_and_another_order_of_the_query(gateway: Gateway) -> None:
    with client(gateway) as c:
        assert c.get("http://site.example/plain?b=2&a=1").headers["stillweb-verdict"] == "exact"
        other = c.get("http://site.example/plain?a=1&b=2")
    assert (other.content, other.headers["stillweb-verdict"]) == (b"plain", "canonical")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_url_within_a_url_stays_within(gateway: Gateway, scheme: str) -> None:
    with client(gateway) as c:
        assert c.get(f"{scheme}://site.example/go?to=https://other.example/").content == b"gone"
        assert c.get(f"{scheme}://site.example/https://other.example/").content == b"read"


def test_a_miss_is_a_504_of_one_line_and_a_ledger_entry(gateway: Gateway) -> None:
    with client(gateway, "misser") as c:
        answer = c.get("https://site.example/plain?a=1&b=3")
        posted = c.post("https://forms.example/form", data={"a": "1", "b": "3"})
    assert answer.status_code == posted.status_code == 504
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["stillweb-verdict"] == "miss"
    assert answer.text.startswith("stillweb: miss: GET https://site.example/plain?a=1&b=3")
    assert answer.text.count("\n") == 1
    first, second = [e for e in gateway.ledger.misses() if e["session"] == "misser"]
    assert (first["seq"], first["method"], first["status"], first["capture"]) == (0, "GET", 504, None)
    assert (second["body"], second["type"]) == ("a=1&b=3", "application/x-www-form-urlencoded")
    assert "nearest" in second


@pytest.mark.parametrize(
    "fields",
    [
        {"Sec-Fetch-Dest": "document"},
        {"Sec-Fetch-Dest": "iframe"},
        {"Accept": "text/html,application/xhtml+xml"},
    ],
)
def test_a_browser_that_opens_a_missing_page_gets_links_to_recorded_ones(
    gateway: Gateway, fields: dict[str, str]
) -> None:
    with client(gateway, "visitor") as c:
        answer = c.get("https://site.example/<nowhere>", headers=fields)
    assert (answer.status_code, answer.headers["stillweb-verdict"]) == (504, "miss")
    assert answer.headers["content-type"].startswith("text/html")
    assert '<a href="https://site.example/">' in answer.text
    assert "<nowhere>" not in answer.text


def test_a_script_whose_request_is_missing_gets_json(gateway: Gateway) -> None:
    with client(gateway, "script") as c:
        answer = c.get("https://site.example/nowhere", headers={"Sec-Fetch-Dest": "empty"})
    assert answer.json()["error"].startswith("stillweb: miss: GET https://site.example/nowhere")


def test_the_nearest_capture_is_named(gateway: Gateway) -> None:
    with client(gateway, "near") as c:
        text = c.post("https://forms.example/form", data={"a": "1", "b": "3"}).text
    assert "nearest is POST https://forms.example/form" in text
    assert "b" in text.partition("differs in")[2]


def test_a_post_with_the_same_fields_and_a_put(gateway: Gateway) -> None:
    with client(gateway) as c:
        form = c.post(
            "https://forms.example/form",
            content=b"b=2&a=1",
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
        put = c.put("https://forms.example/api", json={"x": 1})
        other = c.put("https://forms.example/api", json={"x": 2})
    assert (form.status_code, form.headers["location"], form.headers["stillweb-verdict"]) == (
        303,
        "/",
        "canonical",
    )
    assert (put.json(), other.status_code) == ({"ok": 1}, 504)


def test_head_range_and_condition(gateway: Gateway) -> None:
    with client(gateway) as c:
        head = c.head("https://site.example/")
        part = c.get("https://site.example/", headers={"Range": "bytes=5-9"})
        both = c.get("https://site.example/", headers={"Range": "bytes=0-1,5-6"})
        none = c.get("https://site.example/", headers={"Range": "bytes=99999-"})
        same = c.get("https://site.example/", headers={"If-None-Match": '"p"'})
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(PAGE)))
    assert head.headers["stillweb-derived"] == "head"
    assert (part.status_code, part.content) == (206, PAGE[5:10])
    assert part.headers["content-range"] == f"bytes 5-9/{len(PAGE)}"
    assert both.headers["content-type"].startswith("multipart/byteranges")
    assert (none.status_code, same.status_code, same.content) == (416, 304, b"")


def test_a_recorded_part_is_no_whole(gateway: Gateway) -> None:
    with client(gateway) as c:
        whole = c.get("https://site.example/part")
        part = c.get("https://site.example/part", headers={"Range": "bytes=0-4"})
    assert (whole.status_code, whole.headers["stillweb-verdict"]) == (504, "miss")
    assert "a 206 to a conditional or range request" in whole.text
    assert (part.status_code, part.content) == (206, b"01234")


def test_an_encoding_is_kept_or_undone(gateway: Gateway) -> None:
    with client(gateway) as c:
        kept = c.get("https://site.example/packed", headers={"Accept-Encoding": "gzip"})
        undone = c.get("https://site.example/packed", headers={"Accept-Encoding": "identity"})
    assert kept.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in undone.headers
    assert kept.content == undone.content == PAGE
    assert undone.headers["content-length"] == str(len(PAGE))


@pytest.mark.parametrize("host", ["site.example", "two.example"])
def test_a_large_body_is_streamed(gateway: Gateway, host: str) -> None:
    with client(gateway, http2=host == "two.example") as c:
        assert c.get(f"https://{host}/big").content == BIG
        part = c.get(f"https://{host}/big", headers={"Range": "bytes=2000000-2000009"})
        head = c.head(f"https://{host}/big")
    assert (part.status_code, part.content) == (206, BIG[2000000:2000010])
    assert head.headers["content-length"] == str(len(BIG))


def test_a_large_encoded_body_is_decoded_as_it_goes(gateway: Gateway) -> None:
    url, plain = "https://site.example/big-packed", BIG + bytes(1_000_000)
    with client(gateway) as c:
        plainly = {"Accept-Encoding": "identity"}
        answer = c.get(url, headers=plainly)
        assert answer.headers["content-length"] == str(len(plain))
        assert answer.content == plain
        assert c.get(url, headers=plainly | {"Range": "bytes=-3"}).content == plain[-3:]
        assert c.head(url, headers=plainly).headers["content-length"] == str(len(plain))
        assert c.get(url).content == plain


def test_a_web_socket_is_a_miss(gateway: Gateway) -> None:
    fields = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "x",
        "Sec-WebSocket-Version": "13",
    }
    with client(gateway) as c:
        answer = c.get("https://site.example/", headers=fields)
    assert answer.status_code == 504
    assert "web socket" in answer.text
