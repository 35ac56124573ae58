"""Parts of a file (206), recorded from a server and asked again otherwise: what the server would have sent, or a miss."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.response import join, multipart
from stillweb.snapshots.http.spans import covered_range, parse
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.proxy.origin import Answer, Asked, Origin
from tests.support.waiting import HANG

SIZE = 24
BODY = bytes(range(65, 65 + SIZE))
DATE = ("Last-Modified", "Mon, 03 Mar 2025 00:00:00 GMT")


@dataclass
class File:
    """A file that is sent in parts. `told` are the validators it has."""

    body: bytes = BODY
    told: list[tuple[str, str]] = field(default_factory=lambda: [("ETag", '"one"')])
    heeds: bool = True  # whether it looks at Range

    def __call__(self, asked: Asked) -> Answer:
        kind = ("Content-Type", "application/octet-stream")
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", asked.header("Range") or "") if self.heeds else None
        named = asked.header("If-Range")
        if self.heeds and "," in (asked.header("Range") or ""):
            parts = multipart(parse(asked.header("Range") or "", SIZE) or [], SIZE, kind[1], "mark")
            several = ("Content-Type", "multipart/byteranges; boundary=mark")
            return Answer(206, [several, *self.told], join(parts, self.body))
        if found is None or (named is not None and named not in [value for _, value in self.told]):
            return Answer(headers=[kind, *self.told], body=self.body)
        first, last = found.groups()
        start = int(first) if first else max(0, SIZE - int(last))
        stop = min(SIZE, int(last) + 1) if first and last else SIZE
        if start >= stop:
            return Answer(416, [("Content-Range", f"bytes */{SIZE}")])
        place = ("Content-Range", f"bytes {start}-{stop - 1}/{SIZE}")
        return Answer(206, [kind, place, ("Content-MD5", "of the part"), *self.told], self.body[start:stop])


@contextmanager
def recording(path: Path, authority: Authority, file: File) -> Iterator[tuple[str, httpx.Client]]:
    """A client of a recorder, and the file's URL."""
    with (
        Origin(file) as origin,
        Writer.open(path) as writer,
        Recorder(writer, authority=authority) as recorder,
        httpx.Client(proxy=recorder.proxy_url(), trust_env=False, timeout=HANG) as client,
    ):
        yield f"{origin.url}/file", client


@contextmanager
def replaying(path: Path, authority: Authority) -> Iterator[tuple[Gateway, httpx.Client]]:
    with (
        Snapshot.open(path) as snapshot,
        Gateway(snapshot, authority=authority) as gateway,
        httpx.Client(proxy=gateway.url, trust_env=False, timeout=HANG) as client,
    ):
        yield gateway, client


def test_a_part_answers_what_lies_in_it_and_nothing_else(tmp_path: Path, authority: Authority) -> None:
    asked = [f"bytes={a}-{b}" for a in range(6, 16) for b in ("", *range(a, 18))]
    asked += [f"bytes=-{n}" for n in (1, 9, 10, 24)] + ["bytes=30-", "bytes=9-10,12-13", "lines=9-10"]
    with Origin(File()) as live, httpx.Client(trust_env=False, timeout=HANG) as direct:
        with recording(tmp_path / "s", authority, File()) as (url, client):
            assert client.get(url, headers={"Range": "bytes=8-15"}).status_code == 206
        with replaying(tmp_path / "s", authority) as (gateway, client):
            for text in asked:
                answer = client.get(url, headers={"Range": text})
                entry = gateway.ledger.entries()[-1]
                if covered_range(text, f"bytes 8-15/{SIZE}") is None:
                    assert entry["verdict"] == "miss", text
                    continue
                right = direct.get(f"{live.url}/file", headers={"Range": text})
                assert (answer.status_code, answer.content) == (206, right.content), text
                for name in ("Content-Range", "Content-Length", "ETag"):
                    assert answer.headers[name] == right.headers[name]
                assert (entry["verdict"], entry["ambiguous"]) == ("exact", False)
                whole = text == "bytes=8-15"
                assert entry.get("derived") == (None if whole else "range")
                assert ("Content-MD5" in answer.headers) is whole
            assert client.get(url).status_code == 504
            for conditions in ({"If-Range": '"two"'}, {"If-Match": '"two"'}, {"If-None-Match": '"one"'}):
                assert client.get(url, headers={"Range": "bytes=9-10", **conditions}).status_code == 504
            named = client.get(url, headers={"Range": "bytes=9-10", "If-Range": '"one"'})
            assert (named.status_code, named.content) == (206, BODY[9:11])


def test_a_part_to_the_end_answers_the_last_bytes(tmp_path: Path, authority: Authority) -> None:
    with recording(tmp_path / "s", authority, File()) as (url, client):
        client.get(url, headers={"Range": "bytes=8-"})
    with replaying(tmp_path / "s", authority) as (_, client):
        for text in ("bytes=-3", "bytes=21-", "bytes=21-99"):
            assert client.get(url, headers={"Range": text}).content == BODY[21:]


@pytest.mark.parametrize(
    ("first", "then", "sure"),
    [
        ([("ETag", '"one"')], [("ETag", '"one"')], True),
        ([DATE], None, True),
        ([("ETag", '"one"')], [("ETag", '"two"')], False),
        ([("ETag", 'W/"one"')], [("ETag", 'W/"one"')], False),  # alike in meaning, not in bytes
        ([("ETag", 'W/"one"'), DATE], None, True),
        ([("ETag", 'W/"one"'), DATE], [("ETag", 'W/"two"'), DATE], False),  # changed twice in a second
        ([DATE, ("Date", DATE[1])], None, False),  # and may have, here
        ([], [], False),
    ],
)
def test_a_part_among_several_answers_if_they_are_of_one_representation(
    first: list[tuple[str, str]],
    then: list[tuple[str, str]] | None,
    sure: bool,
    tmp_path: Path,
    authority: Authority,
) -> None:
    file = File(told=first)
    with recording(tmp_path / "s", authority, file) as (url, client):
        client.get(url, headers={"Range": "bytes=0-11"})
        file.told = first if then is None else then
        client.get(url, headers={"Range": "bytes=12-23"})
        client.get(url, headers={"Range": "bytes=8-15"})
    with replaying(tmp_path / "s", authority) as (gateway, client):
        for text in ("bytes=13-14", "bytes=2-3", "bytes=9-10", "bytes=9-10"):
            answer = client.get(url, headers={"Range": text})
            entry = gateway.ledger.entries()[-1]
            if sure:
                assert answer.content == BODY[int(text[6:].partition("-")[0]) :][:2]
                assert (entry["verdict"], entry["ambiguous"]) == ("exact", False)
            else:
                assert entry["verdict"] == "miss"
        for text in ("bytes=8-15", "bytes=0-11", "bytes=12-23"):  # recorded ones, in another order
            answer = client.get(url, headers={"Range": text})
            assert answer.headers["Content-Range"] == f"{text.replace('=', ' ')}/{SIZE}"
            assert gateway.ledger.entries()[-1]["verdict"] == "exact"
        if then != [("ETag", '"two"')]:
            return
        for tag, text, status in (
            ('"one"', "bytes=2-3", 206),
            ('"two"', "bytes=2-3", 504),
            ('"two"', "bytes=9-10", 206),
        ):
            answer = client.get(url, headers={"Range": text, "If-Range": tag})
            assert answer.status_code == status
            assert status == 504 or answer.content == BODY[int(text[6:].partition("-")[0]) :][:2]


@pytest.mark.parametrize("changed", [False, True])
def test_several_ranges_beside_a_part_tell_whether_the_file_changed(
    changed: bool, tmp_path: Path, authority: Authority
) -> None:
    file, several = File(), {"Range": "bytes=0-1,4-5"}
    with recording(tmp_path / "s", authority, file) as (url, client):
        client.get(url, headers={"Range": "bytes=8-15"})
        file.told = [("ETag", '"two"')] if changed else file.told
        right = client.get(url, headers=several)
        assert right.headers["Content-Type"].startswith("multipart/byteranges")
    with replaying(tmp_path / "s", authority) as (gateway, client):
        for text in ("bytes=9-10", "bytes=8-15", "bytes=9-10"):
            answer = client.get(url, headers={"Range": text})
            entry = gateway.ledger.entries()[-1]
            if changed:
                assert (entry["verdict"] == "miss") is (text != "bytes=8-15")
            else:
                assert answer.content == BODY[int(text[6:].partition("-")[0]) :][: len(answer.content)]
                assert (answer.status_code, entry["verdict"], entry["ambiguous"]) == (206, "exact", False)
        assert told(client.get(url, headers=several)) == told(right)


def told(answer: httpx.Response) -> tuple[int, bytes, dict[str, str]]:
    names = ("Content-Type", "Content-Range", "Content-Length", "ETag")
    return answer.status_code, answer.content, {n: answer.headers[n] for n in names if n in answer.headers}


ASKED: list[tuple[str, dict[str, str], str]] = [  # and what it is called in the ledger
    ("GET", {}, "whole"),
    ("HEAD", {}, "head"),
    ("GET", {"Range": "bytes=0-"}, ""),
    ("GET", {"Range": "bytes=2-3"}, "range"),
    ("GET", {"Range": "bytes=2-3", "If-Range": '"two"'}, "whole"),
    ("GET", {"If-Match": '"one"'}, "whole"),
]


def test_a_part_that_is_all_of_the_file_is_the_file(tmp_path: Path, authority: Authority) -> None:
    """As a browser asks for a film: all of it, but from a place on."""
    with recording(tmp_path / "s", authority, File()) as (url, client):
        client.get(url, headers={"Range": "bytes=0-"})
    with (
        Origin(
            lambda a: File()(Asked(a.method, "", [] if a.method == "HEAD" else a.headers, b"", ""))
        ) as live,
        httpx.Client(trust_env=False, timeout=HANG) as direct,
        replaying(tmp_path / "s", authority) as (gateway, client),
    ):
        for method, headers, derived in ASKED:
            right = direct.request(method, f"{live.url}/file", headers=headers)
            assert told(client.request(method, url, headers=headers)) == told(right), headers
            entry = gateway.ledger.entries()[-1]
            assert (entry["verdict"], entry.get("derived", "")) == ("exact", derived)
        assert client.get(url, headers={"If-None-Match": '"one"'}).status_code == 304
        assert client.get(url, headers={"If-Match": '"two"'}).status_code == 412
        several = client.get(url, headers={"Range": "bytes=0-1,4-5"})
        assert several.headers["Content-Type"].startswith("multipart/byteranges")


@pytest.mark.parametrize("how", ["another", "if-range", "cut short"])
def test_a_part_that_may_not_be_all_of_the_file_is_not_the_file(
    how: str, tmp_path: Path, authority: Authority
) -> None:
    """The parts are of another version, of no named kind, or not all of them came."""
    file = File(BODY[:-1] if how == "cut short" else BODY)
    with recording(tmp_path / "s", authority, file) as (url, client):
        client.get(url, headers={"Range": "bytes=0-", **({"If-Range": '"one"'} if how == "if-range" else {})})
        if how == "another":
            file.told = [("ETag", '"two"')]
            client.get(url, headers={"Range": "bytes=1-2"})
    with replaying(tmp_path / "s", authority) as (_, client):
        for method in ("GET", "HEAD"):
            assert client.request(method, url).status_code == 504


def test_a_server_that_heeds_no_range_and_no_condition_does_not_in_a_replay(
    tmp_path: Path, authority: Authority
) -> None:
    asked = [{"Range": "bytes=2-3"}, {"If-None-Match": '"one"'}, {"Range": "bytes=0-", "If-Range": '"one"'}]
    for first in ([{}], []):  # whether the file was asked for as it is, too
        path = tmp_path / f"{len(first)}"
        with recording(path, authority, File(heeds=False)) as (url, client):
            for headers in (*first, *asked):
                client.get(url, headers=headers)
        with replaying(path, authority) as (gateway, client):
            for headers in (*asked, *asked):
                answer = client.get(url, headers=headers)
                assert (answer.status_code, answer.content) == (200, BODY)
                assert "derived" not in gateway.ledger.entries()[-1]
            for other in ({"Range": "bytes=4-5"}, {"If-None-Match": "*"}):
                assert client.get(url, headers=other).status_code == 200


def test_a_range_asked_by_head_is_answered_as_it_was(tmp_path: Path, authority: Authority) -> None:
    """Some servers say what they would send, though it has no meaning there (RFC 9110, 14.2)."""
    with recording(tmp_path / "s", authority, File()) as (url, client):
        right = client.head(url, headers={"Range": "bytes=2-3"})
    assert right.status_code == 206
    with replaying(tmp_path / "s", authority) as (_, client):
        assert told(client.head(url, headers={"Range": "bytes=2-3"})) == told(right)
        assert client.head(url).status_code == 504


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_range_that_was_never_asked_by_head_is_not_sure(
    method: str, tmp_path: Path, authority: Authority
) -> None:
    with recording(tmp_path / "s", authority, File()) as (url, client):
        client.request(method, url)
    with replaying(tmp_path / "s", authority) as (gateway, client):
        client.head(url, headers={"Range": "bytes=2-3"})
        entry = gateway.ledger.entries()[-1]
        assert entry["verdict"] == "miss" or entry["ambiguous"]
        client.head(url)
        assert not gateway.ledger.entries()[-1]["ambiguous"]
