"""The key: lossless, the same for the same request, and found by its index key."""

import json
import random
import socket
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from stillweb.snapshots.http.bodies import (
    BYTES,
    FORM,
    JSON,
    MAX_FIELDS,
    MAX_VALUES,
    MULTIPART,
    Body,
    canonical_json,
    typed_body,
)
from stillweb.snapshots.http.encodings import encode
from stillweb.snapshots.identity import keys
from stillweb.snapshots.identity.keys import canonical_url, group_prefix, parsed_key, plain_key, request_key
from stillweb.snapshots.request import Request
from tests.proxy.frozen import Site
from tests.support.hard_set import multipart
from tests.support.memory_store import get, post


def same(one: Request, other: Request) -> bool:
    return request_key(one).canonical == request_key(other).canonical


def json_body(text: str | bytes, media: str = "application/json") -> Request:
    return post("http://a.test/x", text, media)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://A.test:80/x/../y?b=2&a=1#f", "http://a.test/y?a=1&b=2"),
        ("https://a.test", "https://a.test/"),
        ("http://a.test/é?ü=1", "http://a.test/%C3%A9?%C3%BC=1"),
        ("http://BÜCHER.test/", "http://xn--bcher-kva.test/"),
        ("http://127.1/", "http://127.0.0.1/"),
        ("http://u:p@a.test/", "http://a.test/"),
        ("http://u@a.test:8080/x?q=c@d", "http://a.test:8080/x?q=c@d"),
    ],
)
def test_urls_that_are_the_same(one: str, other: str) -> None:
    assert same(get(one), get(other))
    assert request_key(get(one)).exact != request_key(get(other)).exact


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://a.test/?", "http://a.test/"),
        ("http://a.test/?a", "http://a.test/?a="),
        ("http://a.test/?a=b%26c=d", "http://a.test/?a=b&c=d"),
        ("http://a.test/?a=1&&b=2", "http://a.test/?a=1&b=2"),
        ("http://a.test/a%2Fb", "http://a.test/a/b"),
        ("http://a.test/A", "http://a.test/a"),
        ("http://no url/1", "http://no url/2"),
    ],
)
def test_urls_that_are_not(one: str, other: str) -> None:
    assert not same(get(one), get(other))


def test_the_exact_key_knows_the_text_without_its_fragment() -> None:
    assert request_key(get("http://a.test/x#1")).exact == request_key(get("http://a.test/x#2")).exact
    assert request_key(get("http://a.test/x?")).exact != request_key(get("http://a.test/x")).exact


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"a":1,"a":2}', "a member twice"),
        (b'{"a":NaN}', "no JSON number"),
        (b'{"a":1e400}', "beyond doubles"),
        (b'{"a":0.10000000000000000001}', "more digits than a double holds"),
        (b'{"a":9007199254740993}', "an integer that no double holds"),
        (b'{"a":"\\ud800"}', "half a surrogate pair"),
        ('{"a":1}'.encode("utf-16"), "another charset"),
        (b"\xef\xbb\xbf{}", "a byte order mark"),
        (b"[" * 70 + b"]" * 70, "too deep"),
        (b"[" * 100_000 + b"]" * 100_000, "far too deep"),
        (b'{"a":1} x', "something after it"),
        (b"not json", "none at all"),
    ],
)
def test_odd_json_is_bytes(body: bytes, why: str) -> None:
    assert typed_body(body, "application/json").kind == BYTES, why


@pytest.mark.parametrize(
    ("media", "item", "ends", "most"),
    [
        ("application/json", b"[],", (b"[", b"0]"), MAX_VALUES),
        ("application/json", b"0,", (b"[", b"0]"), MAX_VALUES),
        ("application/x-www-form-urlencoded", b"a&", (b"", b""), MAX_FIELDS),
        (
            "multipart/form-data; boundary=a",
            b"\r\n--a\r\nb:\r\n\r\n",
            (b"--a\r\nb:\r\n\r\n", b"\r\n--a--"),
            MAX_FIELDS,
        ),
        ("multipart/form-data; boundary=a", b"a:\r\n", (b"--a\r\n", b"\r\n\r\n--a--"), 256),
    ],
)
def test_more_values_than_memory_or_a_neighbour_bears_are_bytes(
    media: str, item: bytes, ends: tuple[bytes, bytes], most: int
) -> None:
    few, many = (ends[0] + count * item + ends[1] for count in (100, most + 1))
    assert typed_body(few, media).kind != BYTES
    assert typed_body(many, media).kind == BYTES


def test_json_in_another_charset_is_bytes() -> None:
    assert typed_body(b"{}", "application/json; charset=iso-8859-1").kind == BYTES
    assert typed_body(b"{}", 'application/problem+json; charset="UTF-8"').kind == JSON


@pytest.mark.parametrize(
    "body", [b'{"q":"a+b"}', b"a=1\n", b"a=b c", b"a=<x>", b'a="1"', "ä=1".encode("latin-1")]
)
def test_what_no_form_looks_like_is_bytes(body: bytes) -> None:
    assert typed_body(body, "application/x-www-form-urlencoded").kind == BYTES


def test_a_form_in_unescaped_utf_8_is_the_form_that_it_escapes() -> None:
    raw, escaped = "q=größe+1&ä=\u00a0x".encode(), b"%C3%A4=%C2%A0x&q=gr%C3%B6%C3%9Fe%201"
    assert same(post("http://a.test/", raw), post("http://a.test/", escaped))
    assert not same(
        post("http://a.test/", "q=gro\u0308ße+1&ä=\u00a0x".encode()), post("http://a.test/", escaped)
    )
    latin = "application/x-www-form-urlencoded; charset=iso-8859-1"
    assert typed_body(raw, latin).kind == BYTES  # what its bytes stand for is another question there


def test_a_bad_escape_stays_apart_from_the_text_it_looks_like() -> None:
    assert not same(post("http://a.test/", "a=%zz"), post("http://a.test/", "a=%25zz"))


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b.replace(b"--B--", b"--B"),
        lambda b: b"preamble\r\n" + b,
        lambda b: b + b"epilogue",
        lambda b: b.replace(b"\r\n\r\n", b"\n\n", 1),
        lambda b: b.replace(b"Content-Disposition:", b"Content-Disposition"),
        lambda b: b.replace(b"--B\r\n", b"--B \r\n", 1),
    ],
)
def test_malformed_multipart_is_bytes(change: Any) -> None:
    body, media = multipart([("a", "", "1"), ("b", "f.txt", "2")], "B")
    assert typed_body(body, media).kind == MULTIPART
    assert typed_body(change(body), media).kind == BYTES


def test_a_form_without_fields_is_one_whatever_its_boundary() -> None:
    """Browsers send `new FormData()` so; WebKit and Chromium end it with a line end."""

    def empty(boundary: str, end: str = "\r\n") -> str:
        media = f"multipart/form-data; boundary={boundary}"
        return request_key(
            Request("POST", "http://a.test/", (("Content-Type", media),), f"--{boundary}--{end}".encode())
        ).canonical

    assert empty("----WebKitFormBoundaryA") == empty("----WebKitFormBoundaryB") == empty("C", "")
    nothing = request_key(Request("POST", "http://a.test/", (("Content-Type", "multipart/form-data"),), b""))
    assert empty("C") != nothing.canonical


def test_multipart_without_boundary_is_bytes() -> None:
    assert typed_body(b"--B\r\n", "multipart/form-data").kind == BYTES


def test_a_line_break_before_the_first_boundary_says_nothing() -> None:
    """Axis and WCF begin their messages with attachments so."""
    (one, media), (other, drawn) = (multipart([("a", "", "1")], boundary) for boundary in "BC")
    assert same(post("http://a.test/", one, media), post("http://a.test/", b"\r\n" + other, drawn))


def test_in_multipart_related_the_order_counts() -> None:
    one, _ = multipart([("a", "", "1"), ("b", "", "2")], "B")
    two, _ = multipart([("b", "", "2"), ("a", "", "1")], "B")
    media = "multipart/related; boundary=B"
    assert not same(post("http://a.test/", one, media), post("http://a.test/", two, media))
    media = "multipart/form-data; boundary=B"
    assert same(post("http://a.test/", one, media), post("http://a.test/", two, media))


@pytest.mark.parametrize("media", ["text/plain", "text/xml", "application/x-www-form-urlencoded"])
def test_the_same_bytes_in_another_charset_are_another_text(media: str) -> None:
    def ask(charset: str) -> Request:
        return post("http://a.test/x", "a=%E9", f"{media};charset={charset}")

    assert same(ask("latin1"), ask('"Latin1"'))
    assert not same(ask("latin1"), ask("utf-8"))
    assert not same(ask("latin1"), ask("latin2"))
    assert same(ask("UTF-8"), post("http://a.test/x", "a=%E9", media))


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate", "br", "zstd", "gzip, br"])
@pytest.mark.parametrize(
    ("media", "body"),
    [
        ("application/json", b'{"q": 1}'),
        ("application/x-www-form-urlencoded", b"q=1&r=2"),
        ("text/csv", b"q,1"),
    ],
)
def test_a_packed_body_is_the_body_that_it_holds(coding: str, media: str, body: bytes) -> None:
    plain, packed = (
        post("http://a.test/", body, media),
        post("http://a.test/", encode(body, coding), media, content_encoding=coding),
    )
    assert same(plain, packed)
    assert request_key(plain).urlkey == request_key(packed).urlkey
    assert request_key(plain).exact != request_key(packed).exact
    assert not same(
        packed, post("http://a.test/", encode(body + b" x", coding), media, content_encoding=coding)
    )


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
@pytest.mark.parametrize("media", ["application/json", "text/plain"])
def test_a_body_that_is_packed_without_saying_so_is_the_body_that_it_holds(coding: str, media: str) -> None:
    """Scripts of PostHog, Datadog and others send such bodies."""
    body = b'{"event": "penguin", "n": 42}'
    packed = post("http://a.test/", encode(body, coding), media)
    assert same(packed, post("http://a.test/", body, media))
    assert not same(packed, post("http://a.test/", encode(body[:-1] + b" }", coding)[:-1], media))


def test_chunks_that_were_signed_otherwise_are_the_body_that_they_hold() -> None:
    def chunked(signature: str, *parts: bytes, trailer: bytes = b"") -> Request:
        body = b"".join(
            b"%x;chunk-signature=%s\r\n%s\r\n" % (len(part), signature.encode(), part) for part in parts
        )
        body += b"0;chunk-signature=%s\r\n%s\r\n" % (signature.encode(), trailer)
        return post("http://a.test/b/k", body, "text/csv", content_encoding="aws-chunked")

    plain, one = post("http://a.test/b/k", b"q,1\r\nr,2", "text/csv"), chunked("a1", b"q,1\r\n", b"r,2")
    assert same(plain, one)
    assert same(one, chunked("b2", b"q,1\r\nr,2", trailer=b"x-amz-checksum-crc32:AAAAAA==\r\n"))
    assert not same(one, chunked("a1", b"q,1\r\n", b"r,3"))
    cut = post("http://a.test/b/k", one.body[:-20], "text/csv", content_encoding="aws-chunked")
    assert not same(one, cut)
    # MinIO's clients do not tell the coding
    whole = chunked("c3" * 32, b"q,1\r\nr,2")
    assert same(replace(whole, headers=plain.headers), plain)


def test_a_changeset_in_a_batch_is_the_same_whatever_its_boundary() -> None:
    def batch(outer: str, inner: str, row: str = "1") -> Request:
        body = (
            f"--{outer}\r\nContent-Type: multipart/mixed; boundary={inner}\r\n\r\n"
            f"--{inner}\r\nContent-Type: application/http\r\n\r\nPOST /rows HTTP/1.1\r\n\r\n{row}\r\n--{inner}--\r\n"
            f"\r\n--{outer}--\r\n"
        )
        return post("http://a.test/$batch", body.encode(), f"multipart/mixed; boundary={outer}")

    assert same(batch("batch_a", "changeset_a"), batch("batch_b", "changeset_b"))
    assert not same(batch("batch_a", "changeset_a"), batch("batch_a", "changeset_a", "2"))


def test_methods_differ_in_case() -> None:
    assert not same(Request("patch", "http://a.test/"), Request("PATCH", "http://a.test/"))


def test_a_body_that_only_claims_a_coding_is_compared_as_it_was_sent() -> None:
    plain = post("http://a.test/", b"{}", "application/json")
    coded = post("http://a.test/", b"{}", "application/json", content_encoding="gzip")
    assert not same(plain, coded)
    assert same(plain, post("http://a.test/", b"{}", "application/json", content_encoding="identity"))


def test_media_types_that_say_nothing_are_one() -> None:
    kinds = ["", "text/plain", "text/plain;charset=UTF-8", "application/octet-stream"]
    assert len({request_key(post("http://a.test/", "x", kind)).canonical for kind in kinds}) == 1
    assert not same(post("http://a.test/", "x", "text/plain"), post("http://a.test/", "x", "text/xml"))


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(values)
def test_canonical_json_is_rfc_8785(value: Any) -> None:
    try:
        expected = rfc8785.dumps(value)
    except ValueError:  # a lone surrogate
        return
    assert canonical_json(value) == expected


@pytest.mark.slow
@given(
    st.dictionaries(st.text(max_size=5), values, min_size=1, max_size=4), st.randoms(use_true_random=False)
)
def test_json_is_the_same_in_any_order_and_spacing(value: dict[str, Any], draw: random.Random) -> None:
    names = list(value)
    draw.shuffle(names)
    mixed = json.dumps({n: value[n] for n in names}, indent=1)
    try:
        mixed.encode()
    except UnicodeEncodeError:
        return
    one = request_key(json_body(json.dumps(value)))
    assert one.canonical == request_key(json_body(mixed)).canonical


pairs = st.lists(st.tuples(st.text(max_size=6), st.text(max_size=6)), min_size=1, max_size=5)


@given(pairs, pairs)
def test_forms_are_the_same_exactly_when_their_pairs_are(
    one: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    try:
        first, second = urlencode(one), urlencode(other)
    except UnicodeEncodeError:
        return
    a, b = post("http://a.test/", first), post("http://a.test/", second)
    assert typed_body(a.body, "application/x-www-form-urlencoded").kind == FORM
    assert same(a, b) == (sorted(one) == sorted(other))
    shuffled = list(reversed(one))
    assert same(a, post("http://a.test/", urlencode(shuffled)))


urls = st.one_of(
    st.text(max_size=40),
    st.builds(
        "{}://{}{}?{}#x".format,
        st.sampled_from(["http", "https", "HTTP", "ws", "data", "urn"]),
        st.sampled_from(["a.test", "A.test:80", "[::1]:8080", "1.2.3.4", "256.1.1.1", "0x7f.1", "www3.a.test", "u:p@a.test", "xn--", "a..b", "%41.test"]),
        st.text(st.characters(codec="utf-8"), max_size=12).map(lambda t: "/" + t),
        st.text(max_size=20),
    ),
)  # fmt: skip


@given(urls, st.randoms(use_true_random=False))
def test_any_url_has_a_key_and_is_found_by_it(url: str, draw: random.Random) -> None:
    """Equal canonical keys have equal index keys, and every index key of a path begins alike."""
    request = Request("GET", url)
    key = request_key(request)
    assert all("\x20" < char < "\x7f" for char in key.urlkey)
    base, mark, query = url.partition("#")[0].partition("?")
    shuffled = query.split("&")
    draw.shuffle(shuffled)
    twin = request_key(Request("GET", base + mark + "&".join(shuffled)))
    if twin.canonical == key.canonical:
        assert twin.urlkey == key.urlkey
    again = request_key(Request("GET", canonical_url(url).removeprefix("!")))
    assert again.canonical == key.canonical
    for method in ("GET", "POST", "DELETE"):
        found = request_key(Request(method, url, (), b"" if method == "GET" else b"x")).urlkey
        start = group_prefix(url)
        assert found == start or found.startswith((start + "?", start + ";"))


def test_no_name_is_ever_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("asked for a name")

    for name in ("gethostbyname", "gethostbyname_ex", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)
    for host in ("256.1.1.1", "1.2.3", "08.1.1.1", "1", "a.test", "999999999999"):
        request_key(get(f"http://{host}/x?y"))


@pytest.mark.parametrize(
    ("request_", "urlkey"),
    [
        (get("http://www.A.test/B?y=1&x=2"), "test,a)/b?x=2&y=1"),
        (post("http://a.test/x", "b=1&a=c%20d"), "test,a)/x?__wb_method=post&a=c%20d&b=1"),
        (
            json_body('{"a":{"x":true},"b":{"x":null},"c":44.0}'),
            "test,a)/x?__wb_method=post&c=44&x=true&x.2_=null",
        ),
        (post("http://a.test/x", b"\x00\xff", "image/png"), "test,a)/x?__wb_method=post&__wb_post_data=ap8="),
        (Request("DELETE", "http://a.test/x?y"), "test,a)/x?__wb_method=delete&y"),
    ],
)
def test_index_keys_follow_the_dialect_of_others(request_: Request, urlkey: str) -> None:
    assert request_key(request_).urlkey == urlkey


def test_a_long_body_is_cut_in_the_index_key_only() -> None:
    one = post("http://a.test/", "a=" + "x" * 9000 + "1")
    two = post("http://a.test/", "a=" + "x" * 9000 + "2")
    assert request_key(one).urlkey == request_key(two).urlkey
    assert len(request_key(one).urlkey) < 4200
    assert not same(one, two)


PIECES = [
    "a",
    "Z",
    "0",
    "..",
    ".",
    "%2e",
    "%2E",
    "%",
    "/",
    "//",
    "?",
    "&",
    "=",
    "'",
    "#",
    "@",
    ":",
    ";",
    "é",
    " ",
    "\\",
    "|",
    "xn--",
    "-",
]
NAMES = ["a.test", "a", "A.test", "1.2.3.4", "a.0x1", "a.1", "xn--bcher-kva.test", "a.xn--p1ai", "-a.test", "a..test", "a.test.", "ab--c.d", "x_y.test", "a.test:443",
    "a.test:80", "a.test:8080", "a.test:080", "a.test:65536", "a.test:59999", "a.test:0", "127.0.0.1:8000", "255.255.255.255",
    "256.0.0.1", "01.2.3.4", "1.2.3", "1.2.3.4.", "1.2.3.4.5", "0.0.0.0:443"]  # fmt: skip


@given(
    st.sampled_from(["http://", "https://", "HTTP://", "ws://", "urn:"]),
    st.sampled_from(NAMES),
    st.lists(st.sampled_from(PIECES) | st.text("abcdefghijklmnopqrstuvwxyz-_.~!$&'()*+,;=:@%^`{}\"<>", max_size=6), max_size=9),
)  # fmt: skip
def test_the_quick_key_is_the_parsed_one(scheme: str, host: str, rest: list[str]) -> None:
    url = f"{scheme}{host}/{''.join(rest)}"
    quick = plain_key(url)
    assert quick is None or quick == parsed_key(get(url))


@pytest.mark.parametrize(
    "url",
    ["http://a.test/", "https://www.a.test/B/c-_~!$&'()*+,;=:@", "https://a.test/?b=2&a=1&&=", "http://a/b%zz?/?", "http://0x1.b/",
     "http://a.test:8080/", "https://127.0.0.2:44444/a?b", "http://10.200.255.0/"],
)  # fmt: skip
def test_the_quick_key_is_there_for_plain_urls(url: str) -> None:
    assert plain_key(url) == parsed_key(get(url))


@pytest.mark.parametrize(
    "url",
    ["http://a.test", "http://a.test/../b", "http://a.test/%2e/b", "http://A.test/", "http://a.test/?'", "http://a.1/", "http://é.test/", "http://a.test/#b", "http://a.test:80/", "http://a.xn--p1ai/",
     "https://a.test:443/", "http://01.2.3.4/", "http://1.2.3.256/", "http://1.2.3/", "http://a.test:/", "http://a.test:65536/"],
)  # fmt: skip
def test_there_is_none_for_what_must_be_parsed(url: str) -> None:
    assert plain_key(url) is None


def test_a_handshake_is_another_request_than_one_for_a_page() -> None:
    page = get("http://a.test/live")
    asks = [
        Request("GET", page.url, ((name, value),))
        for name, value in (("Upgrade", "websocket"), ("upgrade", "WebSocket"), ("Upgrade", "h2c"))
    ]
    one, other, newer = map(request_key, asks)
    assert one == other != request_key(page) == newer
    assert one.urlkey == newer.urlkey


def test_a_copy_of_a_remembering_request_is_derived_anew() -> None:
    request = Request("POST", "https://a.test/", (), b"a=1").remembering()
    assert request_key(request) is request_key(request)
    other = replace(request, body=b"a=2")
    assert other != request
    assert request_key(other) == request_key(Request("POST", "https://a.test/", (), b"a=2"))


def test_a_lookup_parses_the_body_that_it_is_asked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And each of those that are recorded a few times: of bodies of 1 MB, each time took half a second."""
    typed, parsed = keys.typed_body, Counter[bytes]()

    def counted(body: bytes, *more: str | None) -> Body:
        parsed[body] += 1
        return typed(body, *more)

    site, fields = Site(tmp_path / "s"), (("Content-Type", "application/json"),)
    bodies = [
        json.dumps({f"n{number}": number + given for number in range(9)}).encode() for given in (0, 100, 200)
    ]
    for body in bodies[:2]:
        site.add("http://a.test/", b"found", method="POST", request_headers=fields, request_body=body)
    with site.open() as snapshot:
        monkeypatch.setattr(keys, "typed_body", counted)
        assert snapshot.lookup(Request("POST", "http://a.test/", fields, bodies[2])).verdict == "miss"
    assert parsed[bodies[2]] == 1
    assert max(parsed[body] for body in bodies[:2]) <= 4
