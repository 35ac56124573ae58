"""Archives taken into a snapshot keep what they hold."""

import base64
import errno
import hashlib
import io
import os
import random
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from stillweb.snapshots._os.random_access import FileSource
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.errors import DamagedInput, UsageError
from stillweb.snapshots.operations.importing import import_files
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.warc.scan import ScannedRecord, scan
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import record, small_snapshot
from tests.snapshots.malformed import PAGE, http, other, packed
from tests.snapshots.malformed import record as warc_record


def test_a_snapshot_taken_into_another_is_the_same(tmp_path: Path) -> None:
    small_snapshot(tmp_path / "a")
    seen: list[tuple[int, int]] = []
    report = import_files([tmp_path / "a"], tmp_path / "b", progress=lambda *done: seen.append(done))
    assert (report.captures, report.views, report.notes) == (3, 1, [])
    size = sum(file.stat().st_size for file in (tmp_path / "a").rglob("*") if file.is_file())
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {size}
    assert seen[-1] == (size, size)
    with Snapshot.open(tmp_path / "a") as a, Snapshot.open(tmp_path / "b") as b:
        assert a.id == b.id
        assert a.views() == b.views()
        assert [a.read(c) for c in a.captures()] == [b.read(c) for c in b.captures()]
    assert verify(tmp_path / "b") == []


def test_several_archives_of_others_become_one(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: br\r\n"
    (tmp_path / "a.warc.gz").write_bytes(packed(warc_record(http(head=head, length=False))))
    (tmp_path / "b.warc").write_bytes(other())
    report = import_files([tmp_path / "a.warc.gz", tmp_path / "b.warc"], tmp_path / "s")
    assert report.captures == 2
    sealed = seal(tmp_path / "s").path
    assert verify(sealed) == []
    with Snapshot.open(sealed) as snapshot:
        answers = {c.url: snapshot.read(c) for c in snapshot.captures()}
        assert answers["http://example.test/"].body == PAGE
        assert answers["http://example.test/"].headers == (("Content-Length", str(len(PAGE))),)


def test_sessions_of_one_name_follow_each_other(tmp_path: Path) -> None:
    for name in "ab":
        with Writer.open(tmp_path / name) as writer:
            record(writer, f"http://example.test/{name}", b"x")
    import_files([tmp_path / "a", tmp_path / "b"], tmp_path / "s")
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert sorted((c.begin, c.end) for c in snapshot.captures()) == [(1, 2), (3, 4)]


def test_a_damaged_file_among_several_keeps_what_was_taken(tmp_path: Path) -> None:
    (tmp_path / "a.warc").write_bytes(other())
    (tmp_path / "b.warc").write_bytes(b"nothing of the kind")
    report = import_files([tmp_path / "a.warc", tmp_path / "b.warc"], tmp_path / "s")
    assert [str(tmp_path / "b.warc") in note for note in report.damaged] == [True]
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert len(list(snapshot.captures())) == 1


def test_what_was_said_over_web_sockets_is_taken_too(tmp_path: Path) -> None:
    address = "http://example.test/live"
    said = {"url": address, "session": "default", "messages": [{"from": "server", "text": "hello"}]}
    for name in "ab":
        with Writer.open(tmp_path / name) as writer:
            record(writer, f"http://example.test/{name}", b"x")
            writer.metadata(address, {**said, "begin": 3, "end": 4})
    import_files([tmp_path / "a", tmp_path / "b"], tmp_path / "s")
    with Snapshot.open(tmp_path / "s") as snapshot:
        moved = [{**said, "begin": 3, "end": 4}, {**said, "begin": 5, "end": 6}]
        assert snapshot.all_metadata(address) == moved
        assert list(snapshot.conversations()) == [(address, one) for one in moved]


def test_an_answer_that_was_cut_short_stays_marked(tmp_path: Path) -> None:
    data = warc_record(http(), fields=b"WARC-Truncated: length\r\n")
    (tmp_path / "a.warc.gz").write_bytes(packed(data))
    import_files([tmp_path / "a.warc.gz"], tmp_path / "s")
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert [c.truncated for c in snapshot.captures()] == ["length"]


def test_the_profile_is_taken_too(tmp_path: Path) -> None:
    for name, locale in (("a", "en-GB"), ("b", "fr-FR")):
        with Writer.open(tmp_path / name, profile=Profile(locale=locale)) as writer:
            record(writer, f"http://example.test/{name}", b"x")
    assert import_files([tmp_path / "a"], tmp_path / "s").notes == []
    with Snapshot.open(tmp_path / "a") as a, Snapshot.open(tmp_path / "s") as s:
        assert (s.profile, s.id) == (Profile(locale="en-GB"), a.id)
    (note,) = import_files([tmp_path / "b"], tmp_path / "s").notes
    assert "another profile" in note
    with Snapshot.open(tmp_path / "s") as s:
        assert s.profile == Profile(locale="en-GB")
    assert verify(tmp_path / "s") == []


@pytest.mark.parametrize("form", ["plain", "gz", "not by offset"])
def test_damage_in_an_archive_is_told_apart_from_what_is_odd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("stillweb.snapshots.index.build.SMALL", 0)
    whole, cut = warc_record(http()), other()[:-30]
    odd = whole[:-2]  # one line break at the end instead of two
    data = {
        "plain": (odd + other(), whole + cut),
        "gz": (packed(odd, other()), packed(whole, other())[:-30]),
        "not by offset": (packed(odd + other()), packed(whole + cut)),
    }[form]
    (tmp_path / "odd.warc.gz").write_bytes(data[0])
    (tmp_path / "cut.warc.gz").write_bytes(data[1])
    report = import_files([tmp_path / "odd.warc.gz"], tmp_path / "s")
    assert (report.captures, len(report.notes), report.damaged) == (2, 1, [])
    for _ in range(2):  # the second time from the cache
        report = import_files([tmp_path / "cut.warc.gz"], tmp_path / "s")
        assert report.captures == 1
        assert report.damaged
        assert set(report.damaged) <= set(report.notes)


def test_damage_is_not_lost_among_many_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("stillweb.snapshots.index.build.SMALL", 0)
    monkeypatch.setattr("stillweb.snapshots.index.index_cache.MOST", 3)
    odd = [warc_record(http(), number=n)[:-2] for n in range(5)]
    (tmp_path / "x.warc.gz").write_bytes(packed(*odd, other())[:-30])
    report = import_files([tmp_path / "x.warc.gz"], tmp_path / "s")
    assert (len(report.notes), len(report.damaged)) == (4, 1)


def test_damage_on_the_way_from_other_processes(tmp_path: Path) -> None:
    body = http(random.Random(1).randbytes(1 << 20))
    (tmp_path / "x.warc.gz").write_bytes(
        packed(warc_record(body), warc_record(body, number=2), other())[:-30]
    )
    report = import_files([tmp_path / "x.warc.gz"], tmp_path / "s")
    assert (report.captures, len(report.damaged)) == (2, 1)


def test_what_of_a_view_is_damaged_keeps_nothing_else_back(tmp_path: Path) -> None:
    small_snapshot(tmp_path / "small")
    sealed = seal(tmp_path / "small").path
    archive = next((tmp_path / "small" / "archive").iterdir())
    whole = sealed.read_bytes()
    base = whole.index(archive.read_bytes())
    records = [item for item in scan(FileSource(archive)) if isinstance(item, ScannedRecord)]
    places = [(r.kind, r.offset, r.length) for r in records if r.kind in ("resource", "metadata")]
    assert len(places) == 4
    for number, (kind, offset, length) in enumerate(places):
        data = bytearray(whole)
        data[base + offset + length // 2] ^= 0x55
        sealed.write_bytes(data)
        report = import_files([sealed], tmp_path / f"s{number}")
        assert (report.captures, report.views, len(report.damaged)) == (3, 1, 1), kind
        assert f"offset {offset}" in report.damaged[0]
        assert verify(tmp_path / f"s{number}") == []


REPEATS = (
    b"WARC-Profile: http://netpreserve.org/warc/1.0/revisit/identical-payload-digest\r\n"
    b"WARC-Refers-To-Target-URI: %b\r\nWARC-Refers-To-Date: 2020-01-02T03:04:05Z"
)


@pytest.mark.parametrize("turned", [False, True])
def test_a_revisit_finds_its_payload_in_another_file_that_is_taken(tmp_path: Path, turned: bool) -> None:
    """As crawlers write them that know what they have, into one file after the other."""
    again = [
        warc_record(http(b""), kind=b"revisit", uri=uri, number=number, fields=REPEATS % of)
        for number, (uri, of) in enumerate(
            [
                (b"http://example.test/again", b"http://example.test/"),
                (b"http://example.test/lost", b"http://example.test/gone"),
            ],
            2,
        )
    ]
    for folder, data in (("a", packed(warc_record(http()))), ("b", packed(*again, other()))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.warc.gz").write_bytes(data)
    files = [tmp_path / "a" / "x.warc.gz", tmp_path / "b" / "x.warc.gz"]
    report = import_files(reversed(files) if turned else files, tmp_path / "s")
    assert (report.captures, len(report.notes), report.damaged) == (3, 1, [])
    assert "http://example.test/lost is in none of the files" in report.notes[0]
    with Snapshot.open(tmp_path / "s") as snapshot:
        served = {capture.url: snapshot.read(capture).body for capture in snapshot.captures()}
    assert served["http://example.test/again"] == served["http://example.test/"] == PAGE
    assert verify(tmp_path / "s") == []


def test_files_whose_revisits_repeat_others_are_opened_beside_each_other_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of one file a page: with each of them opened beside all others, the work would grow with the square."""
    files = [tmp_path / f"{number:02d}.warc.gz" for number in range(12)]
    files[0].write_bytes(packed(warc_record(http())))
    for number, file in enumerate(files[1:], 2):
        fields, uri = REPEATS % b"http://example.test/", b"http://example.test/%d" % number
        again = warc_record(http(b""), kind=b"revisit", uri=uri, number=number, fields=fields)
        file.write_bytes(packed(again))
    opened: list[str] = []
    whole = FileSource.__init__

    def opening(place: FileSource, path: Path, **how: Any) -> None:
        opened.append(Path(path).name.rpartition("-")[2])
        whole(place, path, **how)

    monkeypatch.setattr(FileSource, "__init__", opening)
    report = import_files(files, tmp_path / "s")
    assert (report.captures, report.notes) == (12, [])
    assert max(opened.count(file.name) for file in files) <= 2


def test_a_small_answer_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = datetime(2025, 1, 1, tzinfo=UTC)
    with Writer.open(tmp_path / "site") as writer:
        media = (("Content-Type", "text/html"),)
        request = Request("GET", "https://a.example/")
        capture = writer.exchange(Exchange(request, 200, "OK", media, b"<p>hello", moment, "one", 1, 2))
    read: list[int] = []
    whole = FileSource.read

    def reading(place: FileSource, offset: int, length: int) -> bytes:
        if place.path.parent.parent.name == "site":
            read.append(offset)
        return whole(place, offset, length)

    monkeypatch.setattr(FileSource, "read", reading)
    assert import_files([tmp_path / "site"], tmp_path / "taken").captures == 1
    assert read.count(capture.offset) == 1
    with Snapshot.open(tmp_path / "taken") as snapshot:
        (taken,) = snapshot.captures()
        assert snapshot.read(taken).body == b"<p>hello"


COUNT, PAGES = 24, 4
BAD = 10  # the number of the file that a case spoils


def crawl(folder: Path) -> list[Path]:
    """Files of a few pages each, as warcio writes them."""
    folder.mkdir()
    for number in range(COUNT):
        with open(folder / f"{number:03d}.warc.gz", "wb") as out:
            writer = WARCWriter(out, gzip=True)
            for page in range(PAGES):
                url = f"http://site{number % 3}.test/{number}/{page}"
                told = {"WARC-Date": f"2020-01-01T00:{number:02d}:{page:02d}Z"}
                asked = StatusAndHeaders(
                    f"GET /{number}/{page} HTTP/1.1",
                    [("Host", f"site{number % 3}.test")],
                    is_http_request=True,
                )
                head = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
                body = io.BytesIO(b"<p>%d</p>" % (number * 100 + page) * 50)
                answer = writer.create_warc_record(
                    url, "response", payload=body, http_headers=head, warc_headers_dict=told
                )
                told["WARC-Concurrent-To"] = answer.rec_headers.get_header("WARC-Record-ID")
                writer.write_record(
                    writer.create_warc_record(url, "request", http_headers=asked, warc_headers_dict=told)
                )
                writer.write_record(answer)
    return sorted(folder.iterdir())


def starts(path: Path) -> list[int]:
    """Where its gzip members begin."""
    return [found.start() for found in re.finditer(rb"\x1f\x8b\x08[\x00\x04]\0{4}", path.read_bytes())]


def damaged(path: Path) -> str:
    offset = starts(path)[3]  # the second page's answer
    data = bytearray(path.read_bytes())
    data[offset + 40 : offset + 60] = bytes(20)
    path.write_bytes(data)
    return f": offset {offset}: damaged compressed data"


def cut_short(path: Path) -> str:
    offset = starts(path)[3]
    os.truncate(path, offset + 50)
    return f": offset {offset}: the record is cut short"


def of_another_kind(path: Path) -> str:
    path.write_bytes(b"%PDF-1.7 nothing of the kind\n" * 100)
    return ": is not a WACZ, WARC, ARC, HAR or mitmproxy flow file"


def empty(path: Path) -> str:
    path.write_bytes(b"")
    return ": is empty"


def half_a_zip(path: Path) -> str:
    path.write_bytes(b"PK\x03\x04" + b"junk" * 300)
    return ": the zip is damaged: it is cut short"


def half_a_har(path: Path) -> str:
    path.write_bytes(b'{"log": {"entries": [')
    return ": is not a HAR"


def a_folder(path: Path) -> str:
    path.unlink()
    path.mkdir()
    return ": no snapshot: it has no archive/ and no WARC files"


SPOILING = {
    damaged: PAGES - 1,
    cut_short: 1,
    of_another_kind: 0,
    empty: 0,
    half_a_zip: 0,
    half_a_har: 0,
    a_folder: 0,
}


def pages(path: Path) -> list[str]:
    with Snapshot.open(path) as snapshot:
        return sorted(capture.url for capture in snapshot.captures())


@pytest.mark.parametrize("spoil", SPOILING, ids=lambda spoil: spoil.__name__)
def test_nothing_else_is_lost(tmp_path: Path, spoil: Callable[[Path], str]) -> None:
    files = crawl(tmp_path / "crawl")
    said = f"{files[BAD]}{spoil(files[BAD])}"
    first = import_files(files, tmp_path / "s")
    assert [note for note in first.damaged if note.startswith(said)] == first.damaged != []
    assert [note for note in first.notes if not note.startswith(str(files[BAD]))] == []
    found = pages(tmp_path / "s")
    of_others = {f"http://site{n % 3}.test/{n}/{k}" for n in range(COUNT) for k in range(PAGES) if n != BAD}
    assert of_others <= set(found)
    assert len(found) == first.captures == len(of_others) + SPOILING[spoil]
    again = import_files(files, tmp_path / "again")
    assert again.notes == first.notes
    with Snapshot.open(tmp_path / "s") as one, Snapshot.open(tmp_path / "again") as other:
        assert one.id == other.id
    made = [tmp_path / out / "archive" / "data-00000.warc.gz" for out in ("s", "again")]
    # but for the first record, which says when it was made
    assert made[0].read_bytes()[starts(made[0])[1] :] == made[1].read_bytes()[starts(made[1])[1] :]


def test_each_of_several_is_named(tmp_path: Path) -> None:
    files = crawl(tmp_path / "crawl")
    said = [f"{path}{spoil(path)}" for spoil, path in zip(SPOILING, files[3:], strict=False)]
    report = import_files(files, tmp_path / "s")
    assert [note.startswith(wanted) for note, wanted in zip(report.damaged, said, strict=True)] == [True] * 7
    assert report.captures == PAGES * (COUNT - len(SPOILING)) + sum(SPOILING.values())


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    files = crawl(tmp_path / "a")
    other = shutil.copytree(tmp_path / "a", tmp_path / "b") / files[BAD].name
    said = damaged(other)
    assert import_files([files[BAD], other], tmp_path / "s").damaged == [f"{other}{said}"]


def test_revisits_find_their_payloads_beside_bad_files(tmp_path: Path) -> None:
    files = crawl(tmp_path / "crawl")
    url, date = "http://site1.test/1/0", "2020-01-01T00:01:00Z"
    with open(tmp_path / "revisit.warc.gz", "wb") as out:
        writer = WARCWriter(out, gzip=True)
        head = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
        payload = hashlib.sha1(b"<p>100</p>" * 50).digest()
        digest = "sha1:" + base64.b32encode(payload).decode()
        writer.write_record(
            writer.create_revisit_record(f"{url}?again", digest, url, date, http_headers=head)
        )
    bad = [f"{path}{spoil(path)}" for spoil, path in zip(SPOILING, files[3:], strict=False)]
    report = import_files([tmp_path / "revisit.warc.gz", *files], tmp_path / "s")
    assert len(report.damaged) == len(bad)
    assert f"{url}?again" in pages(tmp_path / "s")


def test_where_nothing_can_be_taken_nothing_is_made(tmp_path: Path) -> None:
    files = crawl(tmp_path / "crawl")[:2]
    empty(files[0])
    of_another_kind(files[1])
    with pytest.raises(DamagedInput, match=rf"nothing could be taken: {files[0]}: is empty \(and 1 more\)"):
        import_files(files, tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_pipe_is_told_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.warc.gz")
    with pytest.raises(UsageError, match=r"pipe\.warc\.gz: is not a file but a pipe or device"):
        import_files([tmp_path / "pipe.warc.gz"], tmp_path / "s")


def test_an_empty_file_in_a_folder_is_named(tmp_path: Path) -> None:
    files = crawl(tmp_path / "crawl")
    empty(files[BAD])
    report = import_files([tmp_path / "crawl"], tmp_path / "s")
    assert report.damaged == [f"{tmp_path / 'crawl'}: {files[BAD].name}: is empty"]
    assert report.captures == (COUNT - 1) * PAGES


@pytest.mark.parametrize("as_folder", [False, True])
def test_where_the_disk_fails_is_named_and_nothing_else_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_folder: bool
) -> None:
    """A read that touches a bad place fails, as it does on a disk; the third page's answer lies on it."""
    files = crawl(tmp_path / "crawl")
    files[BAD].write_bytes(
        files[BAD].read_bytes() * 3
    )  # no bad place at the beginning, where its kind is looked for
    inode, bad = files[BAD].stat().st_ino, starts(files[BAD])[2 * 2 * PAGES + 5] + 100
    really = os.pread

    def pread(fd: int, length: int, offset: int) -> bytes:
        if os.fstat(fd).st_ino == inode and offset <= bad < offset + length:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return really(fd, length, offset)

    monkeypatch.setattr(os, "pread", pread)
    report = import_files([tmp_path / "crawl"] if as_folder else files, tmp_path / "s")
    [said] = report.damaged
    assert files[BAD].name in said
    assert f"offset {starts(files[BAD])[2 * 2 * PAGES + 5]}: nothing from here on is taken" in said
    assert "Input/output error" in said
    assert (
        report.captures == COUNT * PAGES + PAGES + 2
    )  # of the spoilt one ten: two copies, and two pages of the third
