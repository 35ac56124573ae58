"""Archives taken into a snapshot keep what they hold."""

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from stillweb.snapshots._os.random_access import FilePlace
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.operations.importing import import_files
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.warc.scan import Scanned, scan
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
    records = [item for item in scan(FilePlace(archive)) if isinstance(item, Scanned)]
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
    whole = FilePlace.__init__

    def opening(place: FilePlace, path: Path, **how: Any) -> None:
        opened.append(Path(path).name.rpartition("-")[2])
        whole(place, path, **how)

    monkeypatch.setattr(FilePlace, "__init__", opening)
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
    whole = FilePlace.read

    def reading(place: FilePlace, offset: int, length: int) -> bytes:
        if place.path.parent.parent.name == "site":
            read.append(offset)
        return whole(place, offset, length)

    monkeypatch.setattr(FilePlace, "read", reading)
    assert import_files([tmp_path / "site"], tmp_path / "taken").captures == 1
    assert read.count(capture.offset) == 1
    with Snapshot.open(tmp_path / "taken") as snapshot:
        (taken,) = snapshot.captures()
        assert snapshot.read(taken).body == b"<p>hello"
