"""A sealed snapshot is the open one: the same id, captures, views and texts, in one file that is read in place."""

import errno
import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest

from stillweb.snapshots.errors import DamagedInput, StillwebError, UsageError
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.warc.appending import AppendFile
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import record, small_snapshot
from tests.support.room import room_for


def test_sealing_keeps_everything_and_is_read_in_place(tmp_path: Path) -> None:
    small_snapshot(tmp_path / "s")
    report = seal(tmp_path / "s")
    assert (report.path, report.captures, report.views) == (tmp_path / "s.wacz", 3, 1)
    assert report.texts >= 1
    with zipfile.ZipFile(report.path) as listing:
        assert {e.compress_type for e in listing.infolist()} == {zipfile.ZIP_STORED}
        assert listing.testzip() is None
    with Snapshot.open(tmp_path / "s") as loose, Snapshot.open(report.path) as sealed:
        assert sealed.id == loose.id == report.id
        assert list(sealed.captures()) == list(loose.captures())
        assert [sealed.read(c) for c in sealed.captures()] == [loose.read(c) for c in loose.captures()]
        assert sealed.views() == loose.views()
        text = sealed.text("http://example.test/")
        assert text is not None
        assert "Hello there" in text.markdown
        assert sorted(t.address for t in sealed.texts()) == sorted(t.address for t in loose.texts())
    assert verify(report.path) == []


def test_sealing_tells_how_far_it_is_with_index_texts_and_packing(tmp_path: Path) -> None:
    small_snapshot(tmp_path / "s")
    (tmp_path / "s" / "indexes" / "index.cdxj").unlink()
    size = sum(path.stat().st_size for path in (tmp_path / "s" / "archive").iterdir())
    seen: list[tuple[int, int]] = []
    report = seal(tmp_path / "s", progress=lambda done, total: seen.append((done, total)))
    ends = [one for one, after in zip(seen, [*seen[1:], (0, 0)], strict=True) if after[1] != one[1]]
    assert ends[0] == (size, size)
    assert ends[1] == (report.texts, report.texts)
    assert ends[2][0] == ends[2][1] > size
    assert len(ends) == 3


def test_sealing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    small_snapshot(tmp_path / "s")
    first = seal(tmp_path / "s").path.read_bytes()
    again = seal(tmp_path / "s", tmp_path / "again.wacz")
    assert again.path.read_bytes() == first


@pytest.mark.parametrize("rotate", [1 << 30, 600])
def test_sealing_two_copies_of_a_directory_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rotate: int
) -> None:
    """Whenever it is done, and though it says in an archive file who goes on with it, or with the next."""
    monkeypatch.setattr("stillweb.snapshots.writer.ROTATE", rotate)
    small_snapshot(tmp_path / "s")
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    assert seal(tmp_path / "copy").path.read_bytes() == seal(tmp_path / "s").path.read_bytes()


def test_the_id_does_not_depend_on_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = set()
    for name, order, rotate in (("a", (1, 2, 3), 1 << 30), ("b", (3, 1, 2), 1 << 30), ("c", (2, 3, 1), 600)):
        monkeypatch.setattr("stillweb.snapshots.writer.ROTATE", rotate)
        with Writer.open(tmp_path / name, profile=Profile(seed=3)) as writer:
            for number in order:
                record(
                    writer,
                    f"http://example.test/{number}",
                    b"same" if number < 3 else b"other",
                    session=f"s{number}",
                )
        with Snapshot.open(tmp_path / name) as snapshot:
            ids.add(snapshot.id)
    assert len(ids) == 1
    renamed = tmp_path / "d"
    shutil.copytree(tmp_path / "c", renamed)
    for number, path in enumerate(sorted((renamed / "archive").iterdir(), reverse=True)):
        path.rename(path.with_name(f"x{number}.warc.gz"))
    with Snapshot.open(renamed) as snapshot:
        assert {snapshot.id} == ids
    with Writer.open(tmp_path / "e", profile=Profile(seed=4)) as writer:
        for number in (1, 2, 3):
            record(
                writer,
                f"http://example.test/{number}",
                b"same" if number < 3 else b"other",
                session=f"s{number}",
            )
    with Snapshot.open(tmp_path / "e") as snapshot:
        assert snapshot.id not in ids


def test_what_cant_be_sealed_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not an open snapshot"):
        seal(tmp_path)
    small_snapshot(tmp_path / "s")
    with pytest.raises(UsageError, match="is a directory"):
        seal(tmp_path / "s", tmp_path)
    with Writer.open(tmp_path / "s"), pytest.raises(UsageError, match="being recorded"):
        seal(tmp_path / "s")


def test_a_file_that_is_no_wacz(tmp_path: Path) -> None:
    path = tmp_path / "x.wacz"
    path.write_bytes(b"PK\x03\x04 and nothing more")
    with pytest.raises(DamagedInput, match=r"x\.wacz: the zip is damaged"):
        Snapshot.open(path)
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("hello.txt", "x")
    with pytest.raises(DamagedInput, match="a zip without WACZ, WARC"):
        Snapshot.open(path)
    path.write_bytes(b"<html>")
    with pytest.raises(DamagedInput, match="is not a WACZ, WARC, ARC, HAR"):
        Snapshot.open(path)
    path.write_bytes(b"")
    with pytest.raises(DamagedInput, match="is empty"):
        Snapshot.open(path)
    with pytest.raises(UsageError, match="no such file"):
        Snapshot.open(tmp_path / "missing")
    (tmp_path / "folder").mkdir()
    with pytest.raises(DamagedInput, match="no snapshot"):
        Snapshot.open(tmp_path / "folder")


def test_a_cut_wacz_is_damaged(tmp_path: Path) -> None:
    small_snapshot(tmp_path / "s")
    path = seal(tmp_path / "s").path
    whole = path.read_bytes()
    for part in (3, 2):
        path.write_bytes(whole[: len(whole) * (part - 1) // part])
        with pytest.raises(DamagedInput, match="the zip is damaged"):
            Snapshot.open(path)


def test_of_many_texts_to_be_told_of_the_first_are_told(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        for number in range(23):
            record(writer, f"http://example.test/{number:02}", b"<html><body></body></html>")
    report = seal(tmp_path / "s")
    told = [line for line in report.text().splitlines() if line.startswith("text: ")]
    assert (len(told), told[0]) == (21, "text: http://example.test/00: no text in it")
    assert told[-1] == "text: 3 more; --json tells all of them"
    assert len(report.to_json()["warnings"]) == 23


def test_a_full_disk_while_sealing_leaves_no_half_file(tmp_path: Path) -> None:
    small_snapshot(tmp_path / "s")
    seal(tmp_path / "s")
    (tmp_path / "s.wacz").unlink()
    with room_for(6000), pytest.raises(Exception, match="free some space"):
        seal(tmp_path / "s")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s"]
    assert verify(tmp_path / "s") == []
    assert seal(tmp_path / "s").path.exists()


def test_layers_lie_over_each_other(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "low") as writer:
        record(writer, "http://example.test/1", b"old")
        record(writer, "http://example.test/2", b"two")
    with Writer.open(tmp_path / "high") as writer:
        record(writer, "http://example.test/1", b"new")
        record(writer, "http://example.test/3", b"new")
    with Snapshot.open(tmp_path / "low", tmp_path / "high") as snapshot:
        answers = {c.url[-1]: snapshot.read(c).body for c in snapshot.captures()}
        assert answers == {"1": b"new", "2": b"two", "3": b"new"}
        for capture in snapshot.captures():
            assert capture in snapshot.candidates(capture.urlkey)
            assert len(snapshot.candidates(capture.urlkey)) == 1
        assert len(list(snapshot.prefix("test,example)/"))) == 3
        one = snapshot.id
    with Snapshot.open(tmp_path / "high", tmp_path / "low") as snapshot:
        assert {snapshot.read(c).body for c in snapshot.captures() if c.url[-1] == "1"} == {b"old"}
        assert snapshot.id != one  # it serves other things


def test_a_layer_hides_only_what_it_answers_itself(tmp_path: Path) -> None:
    def asking(**fields: str) -> Request:
        return Request(
            "GET", "http://example.test/p", tuple((n.replace("_", "-"), v) for n, v in fields.items())
        )

    def answers(path: Path, *recorded: tuple[Request, int, bytes]) -> None:
        with Writer.open(path) as writer:
            for request, status, body in recorded:
                record(
                    writer,
                    request.url,
                    body,
                    status=status,
                    request_headers=request.headers,
                    headers=(("Vary", "Accept-Language"),),
                )

    english, french = asking(accept_language="en"), asking(accept_language="fr")
    start = asking(accept_language="en", range="bytes=0-1")
    answers(tmp_path / "low", (english, 200, b"english"))
    answers(tmp_path / "high", (french, 200, b"french"), (start, 206, b"en"))
    answers(tmp_path / "top", (english, 200, b"British"))

    def said(snapshot: Snapshot, request: Request) -> bytes:
        capture = snapshot.matcher().lookup(request).capture
        assert capture is not None
        return snapshot.read(capture).body

    with Snapshot.open(tmp_path / "low", tmp_path / "high") as snapshot:
        assert [said(snapshot, r) for r in (english, french, start)] == [b"english", b"french", b"en"]
        assert len(list(snapshot.captures())) == 3
    with Snapshot.open(tmp_path / "low", tmp_path / "high", tmp_path / "top") as snapshot:
        assert [said(snapshot, r) for r in (english, french, start)] == [b"British", b"french", b"British"]
        assert len(list(snapshot.captures())) == 2


def test_a_changing_answer_is_the_layers_own(tmp_path: Path) -> None:
    for name, bodies in (("low", (b"1", b"2", b"3")), ("high", (b"new",))):
        with Writer.open(tmp_path / name) as writer:
            for body in bodies:
                record(writer, "http://example.test/clock", body)
    with Snapshot.open(tmp_path / "low", tmp_path / "high") as snapshot:
        capture = snapshot.matcher().lookup(Request("GET", "http://example.test/clock")).capture
        assert capture is not None
        assert snapshot.read(capture).body == b"new"


@pytest.mark.parametrize(
    ("old", "new"), [(b'"refused"', b'"refuses"'), (b'"stillweb"', b'"stillwet"'), (b"{", b"[")]
)
def test_no_rule_is_in_force_where_what_was_refused_may_be_damaged(
    tmp_path: Path, old: bytes, new: bytes
) -> None:
    with Writer.open(tmp_path / "s") as writer:
        for number in (1700000000001, 1700000000002):
            record(writer, f"http://example.test/list?_={number}", b"<p>Answer %d</p>" % number)
    seal(tmp_path / "s")
    path = tmp_path / "s" / "datapackage.json"
    asked = Request("GET", "http://example.test/list?_=1700000000003")
    for damaged in (False, True):
        with Snapshot.open(tmp_path / "s") as snapshot:
            assert snapshot.matcher().lookup(asked, snapshot.matcher().session()).verdict == "miss"
            assert len(list(snapshot.captures())) == 2
            assert (snapshot.rules.rules == ()) == damaged
            assert [note.partition(":")[0] for note in snapshot.notes] == ["datapackage.json"] * damaged
        path.write_bytes(path.read_bytes().replace(old, new, 1))


def test_an_empty_recording_is_not_sealed(tmp_path: Path) -> None:
    """A program that asked for nothing, or past the proxy, left a sealed file and exit code 0."""
    with Writer.open(tmp_path / "s"):
        pass
    with pytest.raises(UsageError, match="nothing was recorded; there is nothing to seal") as refused:
        seal(tmp_path / "s")
    assert refused.value.exit_code == 2
    assert not (tmp_path / "s.wacz").exists()


def test_a_recording_of_what_web_sockets_said_alone_is_sealed(tmp_path: Path) -> None:
    url = "http://a.test/live"
    with Writer.open(tmp_path / "s") as writer:
        writer.metadata(url, {"url": url, "messages": [{"from": "server", "text": "hello"}]})
    with Snapshot.open(seal(tmp_path / "s").path) as snapshot:
        assert [address for address, _ in snapshot.conversations()] == [url]


@pytest.mark.parametrize(
    ("number", "code"), [(errno.EROFS, 4), (errno.ENOSPC, 4), (errno.EACCES, 2), (errno.ENOTDIR, 2)]
)
def test_a_place_that_cannot_be_written_has_one_exit_code_wherever_it_is_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(tmp_path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(StillwebError) as refused:
        Writer.open(tmp_path / "s")
    assert refused.value.exit_code == code
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StillwebError) as refused:
        AppendFile(tmp_path / "x")
    assert refused.value.exit_code == code


def test_a_damaged_page_list_changes_no_view(tmp_path: Path) -> None:
    root = small_snapshot(tmp_path / "s")
    path = seal(root).path
    with Snapshot.open(path) as snapshot:
        views = snapshot.views()
    for file in (root / "pages/pages.jsonl", path):
        data = file.read_bytes()
        at = data.index(b'"title":"', data.index(b"json-pages-1.0") + 60) + 9
        file.write_bytes(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :])
    for one in (root, path):
        with Snapshot.open(one) as snapshot:
            assert snapshot.views() == views
        assert any("pages.jsonl" in problem.file for problem in verify(one))


def test_a_damaged_page_list_of_others_is_told(tmp_path: Path) -> None:
    root = small_snapshot(tmp_path / "s")
    package = json.loads((root / "datapackage.json").read_text())
    del package["stillweb"]
    (root / "datapackage.json").write_text(json.dumps(package))
    (root / "datapackage-digest.json").unlink()
    with Snapshot.open(root) as snapshot:
        assert snapshot.notes == []
        assert len(snapshot.views()) == 1
    pages = root / "pages/pages.jsonl"
    pages.write_bytes(pages.read_bytes().replace(b"example", b"exbmple"))
    with Snapshot.open(root) as snapshot:
        assert [note for note in snapshot.notes if "pages.jsonl: its hash is not the one in" in note]


def test_a_link_is_followed_to_another_wacz_and_to_nothing_else(tmp_path: Path) -> None:
    small_snapshot(tmp_path / "s")
    (tmp_path / "disk").mkdir()
    there, link = tmp_path / "disk" / "big.wacz", tmp_path / "s.wacz"
    link.symlink_to(there)
    first = seal(tmp_path / "s")  # nothing is there yet
    assert (link.is_symlink(), there.stat().st_size) == (True, first.size)
    seal(tmp_path / "s")
    assert link.is_symlink()
    there.write_text("a diary")
    with pytest.raises(UsageError, match=r"is a link to .*big\.wacz, which is not a WACZ; name another"):
        seal(tmp_path / "s")
    assert there.read_text() == "a diary"


def test_what_is_sealed_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_snapshot(tmp_path / "s")
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        done.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def replaced(old: Path, new: Path) -> None:
        done.append(f"move to {new}")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    with Writer.open(tmp_path / "s") as writer:
        writer.metadata("urn:x", {})
    archive = str(tmp_path / "s" / "archive" / "data-00000.warc.gz")
    assert done.index(archive) < done.index(f"move to {tmp_path / 's' / 'datapackage.json'}")
    done.clear()
    seal(tmp_path / "s")
    assert done[-3:] == [str(tmp_path / ".s.wacz.new"), f"move to {tmp_path / 's.wacz'}", str(tmp_path)]
