"""The records of requests that came to no answer: written, read back, and counted into the snapshot's id."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stillweb.snapshots.contents.failures import (
    KEPT,
    MEDIA,
    START,
    TUNNEL,
    Failure,
    ProxyResponse,
    address_of,
    reason_of,
)
from stillweb.snapshots.operations import late_secrets
from stillweb.snapshots.operations.cut import Needs, cut
from stillweb.snapshots.operations.importing import import_files
from stillweb.snapshots.operations.upgrading import accept
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.redact import Redactor
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.snapshots import making

URL = "http://dead.test/a?b=1&a=%7E"
GIVEN = ProxyResponse(502, "text/html", "<h1>502</h1> caf\xe9")
FAILURE = Failure(Request("GET", URL, (("X", "caf\xe9"),)), "dns", "no such name", making.START, "one", GIVEN)


def written(path: Path, *failures: Failure) -> Path:
    with Writer.open(path) as writer:
        making.record(writer, "http://example.test/", b"<p>page</p>")
        for failure in failures:
            failure.write(writer)
    return path


def found(path: Path, address: str | None = None) -> list[Failure]:
    with Snapshot.open(path) as snapshot:
        return [replace(one, key="") for one in snapshot.failures(address)]


def snapshot_id(path: Path) -> str:
    with Snapshot.open(path) as snapshot:
        return snapshot.id


@pytest.mark.parametrize(
    "failure",
    [
        FAILURE,
        replace(FAILURE, proxy_response=None, is_whole=False),
        replace(FAILURE, request=Request("POST", URL, (), b"\x00\xff q=1")),
        replace(
            FAILURE,
            request=Request(TUNNEL, "https://dead.test:8443/"),
            proxy_response=ProxyResponse(502, "", ""),
        ),
    ],
)
def test_what_is_written_is_read_back_open_and_sealed(tmp_path: Path, failure: Failure) -> None:
    written(tmp_path / "s", failure)
    assert found(tmp_path / "s") == [failure]
    report = seal(tmp_path / "s")
    assert report.failures == 1
    assert found(report.path) == [failure]
    assert verify(report.path) == []


def test_of_a_long_body_size_and_key_are_kept(tmp_path: Path) -> None:
    long = replace(FAILURE, request=Request("POST", URL, (), b"x" * (KEPT + 1)))
    (one,) = found(written(tmp_path / "s", long))
    assert (one.request.body, one.left_out) == (b"", KEPT + 1)
    with Snapshot.open(tmp_path / "s") as snapshot, Writer.open(tmp_path / "t") as writer:
        (read,) = snapshot.failures()
        read.write(writer)  # as importing does
    with Snapshot.open(tmp_path / "t") as snapshot:
        assert list(snapshot.failures()) == [read]


def test_it_is_no_capture_and_counts_for_the_id(tmp_path: Path) -> None:
    plain, more = written(tmp_path / "a"), written(tmp_path / "b", FAILURE)
    other = written(tmp_path / "c", replace(FAILURE, reason="refused"))
    assert len({snapshot_id(path) for path in (plain, more, other)}) == 3
    with Snapshot.open(more) as snapshot:
        assert [capture.url for capture in snapshot.captures()] == ["http://example.test/"]
        assert list(snapshot.conversations()) == []
    assert found(plain) == []


def test_those_of_an_address_are_found_whatever_its_query_and_no_longer_ones(tmp_path: Path) -> None:
    urls = [
        URL,
        "http://DEAD.test:80/a",
        "http://dead.test/ab",
        "http://dead.test/a/b",
        "http://dead.test/a?c",
    ]
    path = written(tmp_path / "s", *(replace(FAILURE, request=Request("GET", url)) for url in urls))
    here = found(path, "http://dead.test/a")
    assert sorted(one.request.url for one in here) == sorted([urls[0], urls[1], urls[4]])
    assert len(found(path)) == 5


def test_trying_again_is_counted_once(tmp_path: Path) -> None:
    path = written(tmp_path / "s", FAILURE, replace(FAILURE, moment=None), replace(FAILURE, session="two"))
    with Snapshot.open(path) as snapshot:
        assert (len(list(snapshot.failures())), snapshot.count_failures()) == (3, 2)


def test_failures_alone_can_be_sealed(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        FAILURE.write(writer)
    assert found(seal(tmp_path / "s").path) == [FAILURE]


def test_they_go_along_with_an_import_a_cut_and_new_texts(tmp_path: Path) -> None:
    sealed = seal(written(tmp_path / "s", FAILURE)).path
    assert import_files([sealed], tmp_path / "imported").failures == 1
    report = cut(sealed, Needs(), tmp_path / "part")
    assert report.failures == 1
    assert "1 request failed" in report.text()
    accept(sealed, [], tmp_path / "texts")
    accept(sealed, [], tmp_path / "layer", layer=True)
    assert [found(tmp_path / name) for name in ("imported", "part", "texts", "layer")] == [[FAILURE]] * 3 + [
        []
    ]
    with Snapshot.open(sealed, tmp_path / "layer") as layered:
        assert layered.count_failures() == 1


@pytest.mark.parametrize(
    "failure",
    [
        replace(FAILURE, message="no way to late-secret-1234"),
        replace(FAILURE, request=Request("POST", URL, (), b"x=late-secret-1234")),
        replace(FAILURE, request=Request("GET", URL, (("X", "late-secret-1234"),))),
        replace(FAILURE, proxy_response=ProxyResponse(502, "", "late-secret-1234")),
    ],
)
def test_a_secret_that_became_known_late_is_found_in_it(tmp_path: Path, failure: Failure) -> None:
    redactor = Redactor(b"k" * 32)
    with Snapshot.open(written(tmp_path / "s", failure)) as snapshot:
        assert late_secrets.find(snapshot, redactor) == []
        redactor.learn("late-secret-1234")
        (known,) = late_secrets.find(snapshot, redactor)
    assert str(known).endswith("in the request that failed of http://dead.test/a")


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        {**FAILURE.to_json(), "body_base64": "?"},
        {**FAILURE.to_json(), "given": 1},
        {**FAILURE.to_json(), "reason": "dns\r\nSet-Cookie: a=b"},
        {**FAILURE.to_json(), "given": {"status": 502, "type": "text/html\r\nSet-Cookie: a=b", "body": ""}},
        {**FAILURE.to_json(), "given": {"status": 200, "type": "text/html", "body": "an answer"}},
    ],
)
def test_a_record_that_is_none_hides_no_other_one_and_is_named(tmp_path: Path, value: object) -> None:
    with Writer.open(tmp_path / "s") as writer:
        writer.metadata(START + URL, value, MEDIA)
        FAILURE.write(writer)
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert [failure.request.url for failure in snapshot.failures()] == [FAILURE.request.url]
    named = [problem for problem in verify(tmp_path / "s") if problem.check == "record"]
    assert [problem.file for problem in named] == ["data-00000.warc.gz"]
    assert "is not a record of a failed request" in named[0].message


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("[Errno -2] Name or service not known", "dns"),
        ("[Errno -3] Temporary failure in name resolution", "dns"),
        ("net::ERR_NAME_NOT_RESOLVED", "dns"),
        ("NS_ERROR_UNKNOWN_HOST", "dns"),
        ("[Errno 111] Connection refused", "refused"),
        ("[Errno 111] Connect call failed ('127.0.0.1', 9)", "refused"),
        ("net::ERR_CONNECTION_REFUSED", "refused"),
        ("[Errno 101] Network is unreachable", "unreachable"),
        ("net::ERR_ADDRESS_UNREACHABLE", "unreachable"),
        ("[Errno 110] Connection timed out", "timeout"),
        ("net::ERR_CONNECTION_TIMED_OUT", "timeout"),
        ("Certificate verify failed: self-signed certificate", "tls"),
        ("The remote server does not speak TLS.", "tls"),
        ("net::ERR_CERT_DATE_INVALID", "tls"),
        ("server closed connection", "reset"),
        ("net::ERR_EMPTY_RESPONSE", "reset"),
        ("HTTP/1 protocol error: peer closed connection without sending complete message body", "incomplete"),
        ("its answer is not HTTP/1: it has no status line", "protocol"),
        ("what nobody has said before", "other"),
    ],
)
def test_reasons(told: str, reason: str) -> None:
    assert reason_of(told) == reason


def test_addresses_are_canonical_but_for_their_query() -> None:
    assert address_of("HTTP://Dead.test:80/a/../b?z=1&a=2#c") == "http://dead.test/b?z=1&a=2"
    assert json.dumps(FAILURE.to_json())
