"""A bad file among many: it is named, with the offset where there is one, and nothing else is lost."""

from __future__ import annotations

import base64
import errno
import hashlib
import io
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from stillweb.snapshots.errors import DamagedInput, UsageError
from stillweb.snapshots.operations.importing import import_files
from stillweb.snapshots.snapshot import Snapshot

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
    return ": is no WACZ, WARC, ARC, HAR or mitmproxy flow file"


def empty(path: Path) -> str:
    path.write_bytes(b"")
    return ": is empty"


def half_a_zip(path: Path) -> str:
    path.write_bytes(b"PK\x03\x04" + b"junk" * 300)
    return ": the zip is damaged: it is cut short"


def half_a_har(path: Path) -> str:
    path.write_bytes(b'{"log": {"entries": [')
    return ": is no HAR"


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
    with pytest.raises(UsageError, match=r"pipe\.warc\.gz: is no file but a pipe or device"):
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
