"""Responses made of a stored answer: HEAD, ranges, conditions, encodings; and refusals."""

import gzip
import re
import zlib
from email.parser import BytesParser
from typing import Any

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from stillweb.proxy.replay import response
from stillweb.proxy.replay.response import Refusal, accepts_coding
from stillweb.snapshots.capture import Response
from stillweb.snapshots.http import encodings
from stillweb.snapshots.http.spans import recorded_span
from stillweb.snapshots.request import Request

WHOLE = bytes(range(256)) * 4
TAG = '"v1"'
DATE = "Wed, 21 Oct 2015 07:28:00 GMT"


def stored(body: bytes = WHOLE, status: int = 200, **fields: str) -> Response:
    headers = [("Content-Type", "text/plain"), ("ETag", TAG), ("Last-Modified", DATE)]
    headers += [(name.replace("_", "-"), value) for name, value in fields.items()]
    return Response(status, "OK", (*headers, ("Content-Length", str(len(body)))), body)


def get(method: str = "GET", **fields: str) -> Request:
    return Request(method, "https://a.example/x", tuple((n.replace("_", "-"), v) for n, v in fields.items()))


def answer(stored: Response, request: Request, recorded: Request | None = None) -> Response:
    """Return the response made of a stored answer to a request; `recorded` is the request that it answered, if known."""
    body = stored.body
    decoded = not accepts_coding(stored, request)
    if decoded:
        try:
            body = encodings.decode(body, stored.header("content-encoding"))
        except encodings.EncodingProblem:
            decoded = False  # damaged at the origin already: as it came
    made = response.plan(stored, len(body), request, recorded, decoded=decoded)
    return Response(made.status, made.reason, made.headers, response.join(made.parts, body))


def test_a_plain_get_is_the_capture_itself() -> None:
    made = answer(stored(Set_Cookie="a=1"), get())
    assert (made.status, made.body) == (200, WHOLE)
    assert made.headers == stored(Set_Cookie="a=1").headers


def test_hop_by_hop_fields_and_what_is_no_header_are_dropped() -> None:
    kept = response.clean(
        (
            ("Connection", "keep-alive, X-Own, Set-Cookie"),
            ("X-Own", "1"),
            ("Keep-Alive", "timeout=5"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
            ("Proxy-Authenticate", "Basic"),
            ("bad name", "1"),
            ("Stillweb-Verdict", "exact"),
            ("X-Split", "a\r\nSet-Cookie: b"),
            ("Set-Cookie", "a=1"),
            ("Set-Cookie", "b=2"),
        )
    )
    # what Connection names is no hop's for that: clients heed it, and got it while recording
    assert kept == (
        ("X-Own", "1"),
        ("X-Split", "a Set-Cookie: b"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
    )


def test_content_length_is_that_of_the_body_whatever_was_recorded() -> None:
    wrong = Response(200, "OK", (("Content-Length", "7"), ("Content-Length", "9")), b"four")
    assert answer(wrong, get()).headers == (("Content-Length", "4"),)
    assert answer(Response(200, "OK", (), b"four"), get()).headers == (("Content-Length", "4"),)


def test_head_of_a_captured_get_has_its_headers_and_no_body() -> None:
    made = answer(stored(), get("HEAD"))
    assert (made.status, made.body, made.header("content-length")) == (200, b"", "1024")


def test_a_recorded_head_keeps_the_length_of_the_body_that_was_not_sent() -> None:
    recorded = Response(200, "OK", (("Content-Length", "777"),), b"")
    assert answer(recorded, get("HEAD"), get("HEAD")).header("content-length") == "777"


@pytest.mark.parametrize("status", [204, 304])
def test_bodiless_answers_have_no_length(status: int) -> None:
    request = get(If_None_Match=TAG)
    made = answer(stored(b"", status), request)
    assert (made.status, made.body, made.header("content-length")) == (status, b"", None)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("bytes=0-9", WHOLE[:10]),
        ("bytes=1000-", WHOLE[1000:]),
        ("bytes=-24", WHOLE[1000:]),
        ("bytes=-5000", WHOLE),
        ("bytes=1023-9999", WHOLE[1023:]),
        ("BYTES= 3-3", WHOLE[3:4]),
    ],
)
def test_a_range_of_a_captured_whole(asked: str, expected: bytes) -> None:
    made = answer(stored(), get(Range=asked))
    first = WHOLE.find(expected) if len(expected) > 256 else None
    assert (made.status, made.body) == (206, expected)
    assert made.header("content-length") == str(len(expected))
    told = recorded_span(made.header("content-range"))
    assert told is not None
    assert WHOLE[told[0] : told[1]] == expected
    assert told[2] == 1024
    assert first is None or first >= 0


@pytest.mark.parametrize("asked", ["bytes=1024-", "bytes=5000-6000", "bytes=-0"])
def test_a_range_beyond_the_end_cant_be_satisfied(asked: str) -> None:
    made = answer(stored(), get(Range=asked))
    assert (made.status, made.body, made.header("content-range")) == (416, b"", "bytes */1024")
    assert made.header("content-length") == "0"


@pytest.mark.parametrize(
    "asked", ["lines=0-9", "bytes=9-0", "bytes", "bytes=a-b", "bytes=", "bytes=0-900,1-1000"]
)
def test_a_range_that_makes_no_sense_is_answered_with_the_whole(asked: str) -> None:
    assert answer(stored(), get(Range=asked)).status == 200


def test_several_ranges_are_a_multipart_with_a_boundary_that_never_changes() -> None:
    made = answer(stored(), get(Range="bytes=0-1,10-12,-2"))
    assert made.status == 206
    kind = made.header("content-type") or ""
    assert re.fullmatch(r"multipart/byteranges; boundary=\w+", kind)
    assert made.header("content-length") == str(len(made.body))
    parsed = BytesParser().parsebytes(b"Content-Type: " + kind.encode() + b"\r\n\r\n" + made.body)
    parts: list[Any] = list(parsed.get_payload())
    assert [part["Content-Range"] for part in parts] == [
        "bytes 0-1/1024",
        "bytes 10-12/1024",
        "bytes 1022-1023/1024",
    ]
    assert [part.get_payload(decode=True) for part in parts] == [WHOLE[:2], WHOLE[10:13], WHOLE[-2:]]
    assert answer(stored(), get(Range="bytes=0-1,10-12,-2")) == made


def test_an_origin_that_refused_ranges_still_does() -> None:
    assert answer(stored(Accept_Ranges="none"), get(Range="bytes=0-1")).status == 200


@pytest.mark.parametrize(
    ("condition", "status"),
    [(TAG, 206), ('"v2"', 200), (f"W/{TAG}", 200), (DATE, 206), ("Wed, 21 Oct 2016 07:28:00 GMT", 200)],
)
def test_if_range(condition: str, status: int) -> None:
    assert answer(stored(), get(Range="bytes=0-1", If_Range=condition)).status == status


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"If_None_Match": TAG}, 304),
        ({"If_None_Match": f'"a", W/{TAG}'}, 304),
        ({"If_None_Match": "*"}, 304),
        ({"If_None_Match": '"v2"'}, 200),
        ({"If_None_Match": '"v2"', "If_Modified_Since": DATE}, 200),
        ({"If_Modified_Since": DATE}, 304),
        ({"If_Modified_Since": "Thu, 22 Oct 2015 07:28:00 GMT"}, 304),
        ({"If_Modified_Since": "Tue, 20 Oct 2015 07:28:00 GMT"}, 200),
        ({"If_Modified_Since": "yesterday"}, 200),
        ({"If_Match": TAG}, 200),
        ({"If_Match": '"v2"'}, 412),
        ({"If_Unmodified_Since": "Tue, 20 Oct 2015 07:28:00 GMT"}, 412),
        ({"If_Unmodified_Since": DATE}, 200),
    ],
)
def test_conditions(fields: dict[str, str], status: int) -> None:
    for method in ("GET", "HEAD"):
        made = answer(stored(Cache_Control="max-age=1"), get(method, **fields))
        assert made.status == status
        if status == 304:
            assert made.body == b""
            assert made.header("etag") == TAG
            assert made.header("cache-control") == "max-age=1"
            assert made.header("content-length") is made.header("content-type") is None


def test_tags_that_come_in_several_lines_are_one_list() -> None:
    for name, status in (("If-None-Match", 304), ("If-Match", 200)):
        lines = tuple((name, tag) for tag in ('"other"', TAG))
        assert answer(stored(), Request("GET", "https://a.example/x", lines)).status == status


def test_without_a_validator_there_is_no_304() -> None:
    bare = Response(200, "OK", (), b"x")
    assert answer(bare, get(If_None_Match=TAG)).status == 200
    assert answer(bare, get(If_Modified_Since=DATE)).status == 200


def test_only_a_200_has_conditions_and_ranges() -> None:
    made = answer(stored(status=404), get(Range="bytes=0-1", If_None_Match=TAG))
    assert (made.status, made.body) == (404, WHOLE)


PACK = {
    "gzip": lambda b: gzip.compress(b, mtime=0),
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": lambda b: zstandard.ZstdCompressor().compress(b),
    "identity": lambda b: b,
    "gzip, br": lambda b: brotli.compress(gzip.compress(b, mtime=0)),
}


@pytest.mark.parametrize("coding", sorted(PACK))
@pytest.mark.parametrize(
    "accepted", [None, "", "identity", "gzip", "gzip, deflate, br, zstd", "*", "*;q=0", "br;q=0, *"]
)
def test_an_encoding_is_served_as_stored_or_decoded_and_the_headers_agree(
    coding: str, accepted: str | None
) -> None:
    packed = PACK[coding](WHOLE)
    request = get() if accepted is None else get(Accept_Encoding=accepted)
    made = answer(stored(packed, Content_Encoding=coding, Content_MD5="x"), request)
    names = [n for n in coding.split(", ") if n != "identity"]
    can = {"gzip": {"gzip"}, "gzip, deflate, br, zstd": {"gzip", "deflate", "br", "zstd"}}.get(
        accepted or "", set()
    )
    if accepted == "*":
        can = {"gzip", "deflate", "br", "zstd"}
    if accepted == "br;q=0, *":
        can = {"gzip", "deflate", "zstd"}
    if set(names) <= can:
        assert (made.body, made.header("content-encoding")) == (packed, coding)
    else:
        assert (made.body, made.header("content-encoding"), made.header("content-md5")) == (WHOLE, None, None)
    assert made.header("content-length") == str(len(made.body))


def test_a_range_is_of_what_the_client_gets() -> None:
    packed = gzip.compress(WHOLE, mtime=0)
    source = stored(packed, Content_Encoding="gzip")
    assert answer(source, get(Range="bytes=2-5")).body == WHOLE[2:6]
    assert answer(source, get(Range="bytes=2-5", Accept_Encoding="gzip")).body == packed[2:6]


@pytest.mark.parametrize("coding", ["gzip", "x-unheard-of"])
def test_what_cant_be_decoded_goes_as_it_came(coding: str) -> None:
    made = answer(stored(b"no gzip at all", Content_Encoding=coding), get())
    assert (made.body, made.header("content-encoding")) == (b"no gzip at all", coding)


PART = Response(
    206, "Partial Content", (("Content-Range", "bytes 100-199/1024"), ("ETag", TAG)), WHOLE[100:200]
)


def test_a_recorded_part_answers_what_lies_in_it() -> None:
    for asked, body in {"bytes=100-199": WHOLE[100:200], "bytes=150-160": WHOLE[150:161]}.items():
        made = answer(PART, get(Range=asked))
        assert (made.status, made.body) == (206, body)
        assert made.header("content-range") == asked.replace("=", " ") + "/1024"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"Range": "bytes=0-99"},
        {"Range": "bytes=150-250"},
        {"Range": "bytes=100-"},
        {"Range": "bytes=-10"},
        {"Range": "bytes=100-110,120-130"},
        {"Range": "bytes=100-199", "If_Range": '"other"'},
        {"Range": "nonsense"},
    ],
)
def test_a_recorded_part_is_never_served_as_anything_else(fields: dict[str, str]) -> None:
    with pytest.raises(Refusal):
        answer(PART, get(**fields))


def test_a_recorded_part_of_unknown_place_is_refused() -> None:
    for value in ("bytes 100-250/1024", "lines 1-2/3", "bytes 9-1/10"):
        broken = Response(206, "Partial Content", (("Content-Range", value),), WHOLE[100:200])
        with pytest.raises(Refusal):
            answer(broken, get(Range="bytes=100-110"))


@pytest.mark.parametrize(
    ("place", "asked"),
    [
        ("bytes 0-99/1024", {"Range": "bytes=0-"}),  # a server that sends little at once
        ("bytes 0-99/*", {"Range": "bytes=0-"}),  # or does not know the end
        ("bytes 0-99/1024", {"Range": "bytes=0-99", "If_Range": 'W/"v1"'}),  # or takes a weak tag
        (None, {"Range": "bytes=0-9,50-59"}),
    ],
)
def test_the_very_same_range_gets_what_was_recorded(place: str | None, asked: dict[str, str]) -> None:
    kind = "Content-Type", "multipart/byteranges; boundary=b"
    fields = (kind, ("Content-Length", "100")) if place is None else (("Content-Range", place),)
    recorded = Response(206, "Partial Content", (*fields, ("ETag", 'W/"v1"')), WHOLE[:100])
    made = answer(recorded, get(**asked), get(**asked))
    assert (made.status, made.body, made.header("content-range")) == (206, WHOLE[:100], place)
    for other in ({}, {"Range": "bytes=1-"}, {"Range": "bytes=0-9,51-59"}, {**asked, "If_Range": DATE}):
        with pytest.raises(Refusal):
            answer(recorded, get(**other), get(**asked))
    cut_short = Response(206, "Partial Content", (("Content-Range", "bytes 0-199/1024"),), WHOLE[:100])
    with pytest.raises(Refusal):
        answer(cut_short, get(**asked), get(**asked))


def test_a_recorded_304_is_for_who_has_that_copy() -> None:
    recorded = Response(304, "Not Modified", (("ETag", TAG),), b"")
    assert answer(recorded, get(If_None_Match=TAG)).status == 304
    for request in (get(), get(If_None_Match='"v2"'), get(If_Modified_Since=DATE), get(Range="bytes=0-1")):
        with pytest.raises(Refusal):
            answer(recorded, request)
    bare = Response(304, "Not Modified", (), b"")
    asked = get(If_Modified_Since=DATE)
    assert answer(bare, asked, asked).status == 304
    with pytest.raises(Refusal):
        answer(bare, get(), asked)


def test_a_recorded_416_is_for_the_same_range() -> None:
    recorded = Response(416, "Range Not Satisfiable", (), b"no")
    asked = get(Range="bytes=9999-")
    assert answer(recorded, asked, asked).body == b"no"
    for request in (get(), get(Range="bytes=0-1")):
        with pytest.raises(Refusal):
            answer(recorded, request, asked)


@given(st.binary(max_size=200), st.text(alphabet="bytes=0123456789-, ", max_size=30))
def test_any_range_gives_bytes_of_the_whole_and_a_right_length(body: bytes, spec: str) -> None:
    made = answer(stored(body), get(Range=spec))
    assert made.header("content-length") == str(len(made.body))
    if made.status == 206 and (told := recorded_span(made.header("content-range"))):
        assert made.body == body[told[0] : told[1]] != b""
    elif made.status == 200:
        assert made.body == body
    else:
        assert made.status in (206, 416)


@pytest.mark.parametrize("body", [b"", b"odd"])
def test_a_205_says_what_follows(body: bytes) -> None:
    """Nothing should (RFC 9110, 15.3.6), and yet some servers send what clients read; they wait until they are told."""
    made = answer(stored(body, status=205), get())
    assert (made.status, made.body, made.header("content-length")) == (205, body, str(len(body)))


@pytest.mark.parametrize("status", [100, 101, 103])
def test_an_interim_answer_answers_nothing(status: int) -> None:
    with pytest.raises(Refusal, match="interim"):
        answer(stored(b"", status=status), get())


@pytest.mark.parametrize(
    ("recorded", "asked", "status"),
    [
        ({"Range": "bytes=0-1"}, {"Range": "bytes=2-3"}, 200),
        ({"Range": "bytes=0-1"}, {"Range": "bytes=2-3,5-6"}, 200),
        ({"Range": "bytes=0-1,5-6"}, {"Range": "bytes=2-3,5-6"}, 200),
        ({"Range": "bytes=0-1,5-6"}, {"Range": "bytes=2-3"}, 206),  # which more servers know
        ({"Range": "bytes=0-1", "If_Range": '"v2"'}, {"Range": "bytes=2-3"}, 206),  # it was heeded
        ({"Range": "nonsense"}, {"Range": "bytes=2-3"}, 206),
        ({"Range": "bytes=0-1"}, {"If_None_Match": TAG}, 304),
        ({"If_None_Match": TAG}, {"If_None_Match": "*"}, 200),
        ({"If_None_Match": '"v2"'}, {"If_None_Match": TAG}, 304),
        ({"If_None_Match": TAG}, {"If_Modified_Since": DATE}, 304),
        ({"If_Modified_Since": DATE}, {"If_Modified_Since": "Wed, 21 Oct 2020 07:28:00 GMT"}, 200),
        ({"If_Match": '"v2"'}, {"If_Match": '"v3"'}, 200),
        ({"If_Match": '"v2"'}, {"If_Match": '"v3"', "If_None_Match": TAG}, 304),
        ({"If_Unmodified_Since": "Tue, 20 Oct 2015 07:28:00 GMT"}, {"If_Match": '"v3"'}, 412),
        ({"If_Match": '"v2"', "If_None_Match": TAG}, {"If_None_Match": TAG}, 200),
    ],
)
def test_what_a_server_was_seen_not_to_heed_it_does_not_heed(
    recorded: dict[str, str], asked: dict[str, str], status: int
) -> None:
    assert answer(stored(), get(**asked), get(**recorded)).status == status
