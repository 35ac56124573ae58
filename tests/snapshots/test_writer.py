"""The writer keeps what it was given, in any shape and through any end."""

import gzip
import io
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillweb.snapshots.errors import DamagedInput, MissingCapability, UsageError
from stillweb.snapshots.index import indexing
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import View
from stillweb.snapshots.writer import Writer, reindex
from tests.snapshots.making import exchange, freeze_texts, record, small_snapshot
from tests.snapshots.malformed import PAGE, http
from tests.snapshots.malformed import record as warc_record
from tests.support.room import room_for
from tests.support.waiting import HANG


def test_reads_back_what_was_recorded(tmp_path: Path) -> None:
    small_snapshot(tmp_path / "s")
    with Snapshot.open(tmp_path / "s") as snapshot:
        captures = {(c.method, c.url): c for c in snapshot.captures()}
        post = captures["POST", "http://example.test/api"]
        assert snapshot.read_request(post).body == b'{"a":1}'
        assert snapshot.read(post).body == b'{"ok":true}'
        assert (post.protocol, post.vary, post.begin, post.end) == ("h2", (("accept", ""),), 5, 6)
        again = captures["GET", "http://example.test/again"]
        assert again.original is not None
        assert snapshot.read(again).body == b"<html><title>Home</title><p>Hello there</html>"
        view = snapshot.views()[0]
        assert snapshot.view(view.id) == view
        assert snapshot.resource("text", view.address) == b"Hello there, more"


def test_transfer_encoding_is_dropped_and_the_length_is_right(tmp_path: Path) -> None:
    packed = gzip.compress(b"page")
    with Writer.open(tmp_path / "s") as writer:
        record(
            writer,
            "http://example.test/",
            packed,
            headers=(
                ("Transfer-Encoding", "chunked"),
                ("Content-Encoding", "gzip"),
                ("Set-Cookie", "a=1"),
                ("Set-Cookie", "b=2"),
                ("content-length", "7"),
            ),
        )
        head = record(writer, "http://example.test/h", method="HEAD", headers=(("Content-Length", "99"),))
        fresh = record(writer, "http://example.test/f", status=304, headers=(("ETag", '"x"'),))
    with Snapshot.open(tmp_path / "s") as snapshot:
        answer = snapshot.read(next(c for c in snapshot.captures() if c.url.endswith("/")))
        assert answer.body == packed
        assert answer.headers == (
            ("Content-Encoding", "gzip"),
            ("Set-Cookie", "a=1"),
            ("Set-Cookie", "b=2"),
            ("content-length", str(len(packed))),
        )
        assert snapshot.read(head).headers == (("Content-Length", "99"),)
        assert snapshot.read(fresh).headers == (("ETag", '"x"'),)


def test_a_large_body_comes_from_a_file_and_is_read_as_a_stream(tmp_path: Path) -> None:
    data = os.urandom(1 << 16) * 60
    with Writer.open(tmp_path / "s") as writer:
        first = record(writer, "http://example.test/1", io.BytesIO(data))
        again = record(writer, "http://example.test/2", io.BytesIO(data))
        assert again.original == (first.filename, first.offset, first.length)
    with Snapshot.open(tmp_path / "s") as snapshot, snapshot.open_body(again) as body:
        assert body.read(10) == data[:10]
        assert body.read() == data[10:]
        assert snapshot.read(first).body == data


def test_an_open_snapshot_can_be_read_while_it_is_recorded(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s", profile=Profile(seed=7)) as writer:
        record(writer, "http://example.test/1", b"one")
        with Snapshot.open(tmp_path / "s") as snapshot:
            assert [snapshot.read(c).body for c in snapshot.captures()] == [b"one"]
            assert snapshot.profile == Profile(seed=7)
            before = snapshot.id
        record(writer, "http://example.test/2", b"two")
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert len(list(snapshot.captures())) == 2
        assert snapshot.id != before
        assert snapshot.profile == Profile(seed=7)


def test_going_on_with_a_closed_snapshot(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s", profile=Profile(seed=7), keep_text=False) as writer:
        first = record(writer, "http://example.test/1", b"same")
        writer.view(View("http://example.test/1", "u", "u", "T", timestamp="20250101000000"), {"text": b"x"})
    with Writer.open(tmp_path / "s") as writer:
        assert writer.repairs == []
        assert writer.event("default") == 3
        assert not writer.keep_text
        second = record(writer, "http://example.test/2", b"same")
        assert second.original == (first.filename, first.offset, first.length)
        assert writer.profile == Profile(seed=7)
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert len(list(snapshot.captures())) == 2
        assert [v.title for v in snapshot.views()] == ["T"]


@settings(max_examples=30)
@given(st.integers(0, 4000))
def test_a_cut_at_any_byte_of_the_last_record_keeps_all_before(
    tmp_path_factory: pytest.TempPathFactory, place: int
) -> None:
    root = tmp_path_factory.mktemp("cut")
    with Writer.open(root / "s") as writer:
        record(writer, "http://example.test/1", b"one")
        archive = root / "s" / "archive" / "data-00000.warc.gz"
        before = archive.stat().st_size
        record(writer, "http://example.test/2", b"two", method="POST", sent=b"a=1")
        after = archive.stat().st_size
    cut = before + place % (after - before)
    os.truncate(archive, cut)
    with Snapshot.open(root / "s") as snapshot:  # reading needs no repair
        assert [snapshot.read(c).body for c in snapshot.captures()] == [b"one"]
    writer = Writer.open(root / "s")
    assert (writer.repairs == []) == (cut == archive.stat().st_size)
    assert all("cut off at offset" in repair for repair in writer.repairs)
    record(writer, "http://example.test/3", b"three")
    writer.close()
    with Snapshot.open(root / "s") as snapshot:
        assert sorted(snapshot.read(c).body for c in snapshot.captures()) == [b"one", b"three"]
        assert snapshot.notes == []


@pytest.mark.slow
def test_every_cut_is_mended(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        record(writer, "http://example.test/1", b"one")
        archive = tmp_path / "s" / "archive" / "data-00000.warc.gz"
        before = archive.stat().st_size
        record(writer, "http://example.test/2", b"two")
    whole = archive.read_bytes()
    for cut in range(before, len(whole)):
        archive.write_bytes(whole[:cut])
        with Snapshot.open(archive) as snapshot:
            assert [c.url for c in snapshot.captures()] == ["http://example.test/1"], cut


def test_one_gzip_around_all_records_that_ends_within_one_is_left_as_it_is(tmp_path: Path) -> None:
    small_snapshot(tmp_path / "s")
    other = tmp_path / "s" / "archive" / "other.warc.gz"
    page = warc_record(http())
    other.write_bytes(gzip.compress(page + warc_record(http(), uri=b"http://example.test/cut")[:-40]))
    before = other.read_bytes()
    assert reindex(tmp_path / "s") == 4
    assert other.read_bytes() == before
    with Snapshot.open(tmp_path / "s") as snapshot:
        found = [c for c in snapshot.captures() if c.filename == other.name]
        assert [snapshot.read(c).body for c in found] == [PAGE]


def test_threads_may_record_at_once(tmp_path: Path) -> None:
    def run(number: int) -> None:
        for i in range(25):
            record(writer, f"http://example.test/{number}/{i}", b"x" * i, session=f"s{number}")

    with Writer.open(tmp_path / "s") as writer:
        threads = [threading.Thread(target=run, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert writer.captures == 150
    with Snapshot.open(tmp_path / "s") as snapshot:
        found = list(snapshot.captures())
        assert len(found) == 150
        assert all(len(snapshot.read(c).body) == int(c.url.rpartition("/")[2]) for c in found)


def test_archives_are_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stillweb.snapshots.writer.ROTATE", 2000)
    with Writer.open(tmp_path / "s") as writer:
        for i in range(12):
            record(writer, f"http://example.test/{i}", b"the same page" if i % 2 else os.urandom(50))
    assert len(list((tmp_path / "s" / "archive").iterdir())) > 3
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert sum(snapshot.read(c).body == b"the same page" for c in snapshot.captures()) == 6


def test_a_full_disk_is_said_and_the_archive_stays_whole(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        record(writer, "http://example.test/1", b"one")
        archive = tmp_path / "s" / "archive" / "data-00000.warc.gz"
        size = archive.stat().st_size
        with room_for(size + 900):
            with pytest.raises(
                MissingCapability, match=r"data-00000.warc.gz: File too large.*free some space"
            ):
                record(writer, "http://example.test/2", os.urandom(5000))
            assert archive.stat().st_size == size
            with pytest.raises(MissingCapability, match="free some space"):
                record(writer, "http://example.test/2", io.BytesIO(os.urandom(2 << 20)))
            assert archive.stat().st_size == size
        record(writer, "http://example.test/3", b"three")
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert sorted(c.url for c in snapshot.captures()) == [
            "http://example.test/1",
            "http://example.test/3",
        ]


@pytest.mark.parametrize("more", [False, True])
def test_a_record_that_was_stored_as_ctrl_c_came_is_in_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: bool
) -> None:
    real, came = indexing.record_line, []

    def interrupted(*arguments: Any) -> bytes:
        if not came:
            came.append(True)
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(indexing, "record_line", interrupted)
    with Writer.open(tmp_path / "s") as writer:
        record(writer, "http://a.test/", b"<p>One")
        with pytest.raises(KeyboardInterrupt):
            writer.metadata("urn:test:one", {"n": 1})
        if more:
            writer.metadata("urn:test:two", {"n": 2})
    assert verify(tmp_path / "s") == []
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert len(list(snapshot.captures())) == 1
        assert snapshot.record_of("metadata", "urn:test:one") is not None
        assert (snapshot.record_of("metadata", "urn:test:two") is not None) is more


def test_wrong_places_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is a file"):
        Writer.open(tmp_path / "file")
    with pytest.raises(UsageError, match="no snapshot"):
        Writer.open(tmp_path)
    with Writer.open(tmp_path / "s") as writer:
        with pytest.raises(UsageError, match="is being recorded"):
            Writer.open(tmp_path / "s")
        with pytest.raises(UsageError, match="no kind of resource"):
            writer.resource("nothing", "x", b"")
    with pytest.raises(UsageError, match="is closed"):
        writer.exchange(exchange("http://example.test/"))


def test_line_breaks_in_fields_cannot_forge_records(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        record(
            writer,
            "http://example.test/",
            b"x",
            headers=(("X-A", "1\r\nX-Forged: 1"),),
            session="a\r\nWARC-Type: metadata",
        )
    with Snapshot.open(tmp_path / "s") as snapshot:
        capture = next(snapshot.captures())
        assert snapshot.read(capture).header("x-forged") is None
        assert capture.status == 200


def test_archives_of_other_names_are_left_as_they_are(tmp_path: Path) -> None:
    """Only files of the writer's own kind are gone on with."""
    with Writer.open(tmp_path / "s") as writer:
        writer.exchange(exchange("https://a.test/"))
    archive = tmp_path / "s" / "archive"
    for name in ("data-foreign.warc.gz", "data-1.warc.gz", "data-000001.warc.gz"):
        (archive / name).write_bytes((archive / "data-00000.warc.gz").read_bytes())
    before = {p.name: p.read_bytes() for p in archive.iterdir()}
    with Writer.open(tmp_path / "s") as writer:
        writer.exchange(exchange("https://a.test/2"))
    after = {p.name: p.read_bytes() for p in archive.iterdir()}
    assert [n for n in after if after[n] != before.get(n)] == ["data-00000.warc.gz"]


def test_an_event_number_does_not_wait_for_a_record_that_is_written(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        with writer._lock:  # as while a large body is appended
            thread = threading.Thread(target=writer.event, args=("s",))
            thread.start()
            thread.join(timeout=HANG)
            assert not thread.is_alive()
        assert writer.event("s") == 2


def test_sessions_go_on_where_they_were(tmp_path: Path) -> None:
    """The captures of an index are taken up when they are needed, and not before."""
    with Writer.open(tmp_path / "s") as writer:
        writer.exchange(exchange("https://a.test/", b"x" * 500))
        last = writer.last_event("default")
    with Writer.open(tmp_path / "s") as writer:
        assert writer.last_event("default") == last
        assert writer.event("default") == last + 1
        assert writer.exchange(exchange("https://b.test/", b"x" * 500)).original is not None, (
            "a body that was stored"
        )
        assert len([line for line in writer.lines() if b"urn:" not in line[:4]]) == 2


def test_the_index_comes_from_the_records_alone(tmp_path: Path) -> None:
    root = small_snapshot(tmp_path / "s")
    before = (root / "indexes" / "index.cdxj").read_bytes()
    pages = (root / "pages" / "pages.jsonl").read_bytes()
    package = json.loads((root / "datapackage.json").read_bytes())
    for name in ("indexes/index.cdxj", "pages/pages.jsonl", "datapackage.json", "datapackage-digest.json"):
        (root / name).unlink()
    seen: list[tuple[int, int]] = []
    assert reindex(root, progress=lambda done, total: seen.append((done, total))) == 3
    assert seen[-1][0] == seen[-1][1] > 0
    assert (root / "indexes" / "index.cdxj").read_bytes() == before
    assert (root / "pages" / "pages.jsonl").read_bytes() == pages
    assert json.loads((root / "datapackage.json").read_bytes())["stillweb"]["id"] == package["stillweb"]["id"]
    with pytest.raises(UsageError, match="not an open snapshot"):
        reindex(tmp_path)
    with Snapshot.open(root) as snapshot:
        assert len(list(snapshot.captures())) == 3


def test_index_lines_that_are_sorted_on_disk_make_the_same_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a revisit, views and texts, an unfinished record, and a recording that goes on afterwards."""
    root = small_snapshot(tmp_path / "memory")
    with Writer.open(root) as writer:
        writer.exchange(exchange("https://a.test/1", b"x" * 500))
        assert writer.exchange(exchange("https://a.test/2", b"x" * 500)).original is not None
        freeze_texts(writer)
        writer.exchange(exchange("https://a.test/3", b"last"))
    (root / "indexes" / "index.cdxj").unlink()
    (archive,) = (root / "archive").iterdir()
    os.truncate(archive, archive.stat().st_size - 3)
    shutil.copytree(root, tmp_path / "disk")
    told = []
    for name, large in (("memory", 1 << 30), ("disk", 0)):
        monkeypatch.setattr("stillweb.snapshots.writer.LARGE", large)
        with Writer.open(tmp_path / name) as writer:
            repairs = writer.repairs
            seen = writer.lines()
            if name == "disk":
                with Snapshot.open(tmp_path / name) as live:
                    assert len(list(live.captures())) == 5
        with Writer.open(tmp_path / name) as writer:
            event = writer.last_event("default")
            again = writer.exchange(exchange("https://a.test/4", b"x" * 500)).original
        told.append((repairs, seen, event, again, (tmp_path / name / "indexes" / "index.cdxj").read_bytes()))
    assert told[0][0]
    assert told[0] == told[1]


def test_a_method_is_what_was_sent(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        record(writer, "http://example.test/", b"x", method="patch")
    reindex(tmp_path / "s")
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert [c.method for c in snapshot.captures()] == ["patch"]
        assert [
            snapshot.matcher().lookup(Request(m, "http://example.test/")).verdict for m in ("patch", "PATCH")
        ] == ["exact", "miss"]
    assert verify(tmp_path / "s") == []


def test_a_directory_is_not_made_under_the_name_of_a_sealed_snapshot(tmp_path: Path) -> None:
    """`record -o site.wacz` made a directory of that name, and `seal` a site.wacz.wacz."""
    with pytest.raises(
        UsageError, match=r"site\.wacz: recording needs a directory; name it .*site, and seal it"
    ):
        Writer.open(tmp_path / "site.wacz")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("what", ["session", "url"])
def test_what_no_record_can_hold_is_refused_and_nothing_of_it_written(tmp_path: Path, what: str) -> None:
    """Half a surrogate pair, as the JSON of an index or a HAR may have it."""
    with Writer.open(tmp_path / "s") as writer:
        record(writer, "http://example.test/", b"tea")
        odd: dict[str, str] = {
            "url": "http://example.test/2",
            "session": "default",
            what: "http://e.test/\ud800",
        }
        with pytest.raises(DamagedInput, match="no record can hold half a surrogate pair"):
            writer.exchange(exchange(odd["url"], session=odd["session"]))
        record(writer, "http://example.test/3", b"pot")
    assert verify(tmp_path / "s") == []
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert [capture.url[-1] for capture in snapshot.captures()] == ["/", "3"]
