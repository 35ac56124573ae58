"""A cut answers what it keeps as the whole does, record for record."""

import gzip
import os
import shutil
import warnings
import zipfile
from pathlib import Path

import pytest

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.errors import DamagedInput, UsageError
from stillweb.snapshots.operations.cut import ORIGIN, Needs, cut
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.request import Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.view import View, view_address
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.warc.container import SMALL
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import record
from tests.support.command_line import stillweb

SITE = "http://mill.test"
TWIN = "http://twin.test"
STEPS = ({"click": {"text": "More"}},)
VIEW = view_address(f"{SITE}/view", STEPS)
FORM = (("Host", "mill.test"), ("Content-Type", "application/x-www-form-urlencoded"))


def page(text: str) -> bytes:
    return f"<html><title>Mills</title><p>{text} are the mills of this valley.</p></html>".encode()


def site(path: Path, *, sealed: bool = True) -> Path:
    """A filter that the server remembers, a repeated payload, a view, and pages that nobody needs."""
    with Writer.open(path, profile=Profile(locale="en-GB")) as writer:
        record(writer, f"{TWIN}/twin", page("Twins"))
        record(writer, f"{SITE}/rows", page("All"))
        for year in ("2011", "2012", "2013"):
            sent = f"year={year}".encode()
            record(writer, f"{SITE}/filter", b"", method="POST", sent=sent, status=303,
                   headers=(("Location", "/rows"),), request_headers=FORM)  # fmt: skip
            record(writer, f"{SITE}/rows", page(year))
        record(writer, f"{TWIN}/again", page("Twins"))
        for number in range(5):
            record(writer, f"http://other.test/{number}", page(f"Number {number}"))
        api = record(writer, f"{SITE}/api?view=1", b"[1]", headers=(("Content-Type", "application/json"),))
        caused = ({"url": api.url, "method": "GET", "status": 200, "digest": api.digest},)
        view = View(
            VIEW, f"{SITE}/view", f"{SITE}/view", "Mills", STEPS, timestamp="20250102030405", captures=caused
        )
        writer.view(view, {"text": b"More mills", "dom": page("More"), "view": b"\x89PNG"})
        writer.view(
            View("http://other.test/", "http://other.test/", "http://other.test/", "Other"), {"text": b"x"}
        )
    return seal(path, workers=1).path if sealed else path


def places(path: Path, *urls: str) -> frozenset[tuple[str, int]]:
    with Snapshot.open(path) as snapshot:
        return frozenset(c.place for c in snapshot.captures() if c.url in urls)


def known(snapshot: Snapshot) -> dict[tuple[str, str, str], tuple[object, ...]]:
    return {
        (c.method, c.url, c.timestamp): (c.vary, c.session, c.begin, c.digest) for c in snapshot.captures()
    }


@pytest.mark.parametrize("name", ["part", "part.wacz"])
def test_what_is_kept_is_sound_and_says_the_same(tmp_path: Path, name: str) -> None:
    whole = site(tmp_path / "site")
    report = cut(whole, Needs(places(whole, f"{TWIN}/again", "http://other.test/3")), tmp_path / name)
    assert verify(tmp_path / name) == []
    with Snapshot.open(whole) as old, Snapshot.open(tmp_path / name) as new:
        assert report.id == new.id != old.id
        assert {c.url for c in new.captures()} == {f"{TWIN}/again", f"{TWIN}/twin", "http://other.test/3"}
        assert new.profile == old.profile
        assert new.rules.to_json() == old.rules.to_json()
        assert new.metadata(ORIGIN) == {"cut_from": old.id}
        again = next(c for c in new.captures() if c.url == f"{TWIN}/again")
        assert again.original is not None  # a revisit still, its payload is here
        assert new.read(again).body == page("Twins")
        assert new.text("http://other.test/3") == old.text("http://other.test/3")
        assert new.text("http://other.test/4") is None
        assert known(new).items() <= known(old).items()
    assert report.captures == (3, 15)


def rows_after(path: Path, year: str) -> tuple[str, bytes, bool]:
    """Return the rows that a session gets after it filtered by a year."""
    with Snapshot.open(path) as snapshot:
        matcher = snapshot.matcher()
        session = matcher.session("s")
        for request in (
            Request("POST", f"{SITE}/filter", FORM, f"year={year}".encode()),
            Request("GET", f"{SITE}/rows"),
        ):
            found = matcher.lookup(request, session, min_confidence=0)
            session.answered(found)
        assert found.capture is not None
        return found.verdict, snapshot.read(found.capture).body, found.ambiguous


def test_what_decided_between_answers_decides_as_in_the_whole(tmp_path: Path) -> None:
    whole = site(tmp_path / "site")
    with Snapshot.open(whole) as snapshot:
        one = next(
            c
            for c in snapshot.captures()
            if c.url == f"{SITE}/rows" and snapshot.read(c).body == page("2012")
        )
    report = cut(whole, Needs(frozenset({one.place})), tmp_path / "part.wacz")
    assert report.widened == ["mill.test"]
    with Snapshot.open(tmp_path / "part.wacz") as part:
        assert not any("other.test" in c.url for c in part.captures())
    for year in ("2011", "2012", "2013"):
        assert rows_after(tmp_path / "part.wacz", year) == rows_after(whole, year)


def test_a_view_keeps_its_resources_its_text_and_what_it_loaded(tmp_path: Path) -> None:
    whole = site(tmp_path / "site")
    report = cut(whole, Needs(addresses=frozenset({VIEW})), tmp_path / "part")
    with Snapshot.open(whole) as old, Snapshot.open(tmp_path / "part") as new:
        assert [v.address for v in new.views()] == [VIEW]
        assert new.view(VIEW) == old.view(VIEW)
        for kind in ("text", "dom", "view"):
            assert new.resource(kind, VIEW) == old.resource(kind, VIEW) is not None
        assert new.text(VIEW) == old.text(VIEW) is not None
        assert {c.url for c in new.captures()} == {f"{SITE}/api?view=1", f"{SITE}/filter", f"{SITE}/rows"}
    assert report.views == (1, 2)


def test_a_missed_path_keeps_all_that_comes_near(tmp_path: Path) -> None:
    whole = site(tmp_path / "site")
    cut(whole, Needs(paths=frozenset({f"{SITE}/api?view=2"})), tmp_path / "part")
    asked = Request("GET", f"{SITE}/api?view=2")
    with Snapshot.open(whole) as old, Snapshot.open(tmp_path / "part") as new:
        nearest = [s.matcher().lookup(asked).explain()[0] for s in (old, new)]
        assert [n.capture.url for n in nearest] == [f"{SITE}/api?view=1"] * 2
        assert nearest[0].differs == nearest[1].differs


def test_all_texts_on_request(tmp_path: Path) -> None:
    whole = site(tmp_path / "site")
    report = cut(whole, Needs(all_texts=True), tmp_path / "part")
    assert report.texts[0] == report.texts[1] > 5
    with Snapshot.open(whole) as old, Snapshot.open(tmp_path / "part") as new:
        assert list(new.texts()) == list(old.texts())


def test_the_same_cut_has_the_same_bytes_from_the_directory_too(tmp_path: Path) -> None:
    whole = site(tmp_path / "site")
    needs = Needs(places(whole, f"{SITE}/rows"), frozenset({VIEW}))
    cut(whole, needs, tmp_path / "one.wacz")
    cut(whole, needs, tmp_path / "two.wacz")
    cut(tmp_path / "site", needs, tmp_path / "three.wacz")
    assert len({(tmp_path / f"{name}.wacz").read_bytes() for name in ("one", "two", "three")}) == 1


def test_a_plain_warc_of_another_tool(tmp_path: Path) -> None:
    folder = site(tmp_path / "site", sealed=False)
    plain = tmp_path / "crawl.warc"
    plain.write_bytes(gzip.decompress((folder / "archive" / "data-00000.warc.gz").read_bytes()))
    cut(plain, Needs(places(plain, f"{TWIN}/again")), tmp_path / "part.wacz")
    assert verify(tmp_path / "part.wacz") == []
    with Snapshot.open(tmp_path / "part.wacz") as part:
        found = {c.url: c for c in part.captures()}
        assert part.read(found[f"{TWIN}/again"]).body == page("Twins")
        assert found[f"{TWIN}/again"].filename == "crawl.warc.gz"
    cut(plain, Needs(places(plain, f"{TWIN}/again")), tmp_path / "again.wacz")
    assert (tmp_path / "part.wacz").read_bytes() == (tmp_path / "again.wacz").read_bytes()


def test_a_cut_has_the_index_that_its_records_make(tmp_path: Path) -> None:
    """Also of a revisit."""
    with Writer.open(tmp_path / "s") as writer:
        for user in ("ann", "bob", "ann"):
            told = (("Host", "mill.test"), ("Accept-Language", "de"), ("X-User", user))
            record(writer, f"{SITE}/mine", page(user), request_headers=told)
            record(writer, f"{SITE}/{user}", page(user), request_headers=told)
            record(
                writer,
                f"{SITE}/all",
                page("All"),
                request_headers=told,
                headers=(("Vary", "Accept-Language"),),
            )
    needs = Needs(places(tmp_path / "s", f"{SITE}/mine", f"{SITE}/all"), frozenset(), frozenset())
    cut(tmp_path / "s", needs, tmp_path / "part")
    file = tmp_path / "part" / "indexes" / "index.cdxj"
    written = file.read_bytes()
    file.unlink()
    assert stillweb("index", tmp_path / "part").code == 0
    assert file.read_bytes() == written


def test_a_capture_that_is_not_there_is_named(tmp_path: Path) -> None:
    whole = site(tmp_path / "site")
    with pytest.raises(UsageError, match=r"has no capture at data-00000\.warc\.gz: 1;"):
        cut(whole, Needs(frozenset({("data-00000.warc.gz", 1)})), tmp_path / "part")
    assert not (tmp_path / "part").exists()


def test_nothing_lies_beside_a_cut_once_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill in between left `.cut.new` behind for good: the next command is refused, as the result exists."""
    path, seen = site(tmp_path / "s"), []
    replace = os.replace

    def replaced(source: object, target: object) -> None:
        replace(source, target)  # type: ignore[call-overload]
        seen.append(sorted(one for one in os.listdir(tmp_path) if "cut" in one))

    monkeypatch.setattr(os, "replace", replaced)
    for out in ("cut.wacz", "cut"):
        seen.clear()
        cut(path, Needs(captures=places(path, f"{SITE}/rows")), tmp_path / out)
        assert seen[-1] == [out]
        shutil.rmtree(tmp_path / out) if out == "cut" else (tmp_path / out).unlink()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    whole = site(tmp_path / "site")
    (tmp_path / "there.wacz").write_text("mine")
    with pytest.raises(UsageError, match=r"there\.wacz: exists"):
        cut(whole, Needs(), tmp_path / "there.wacz")
    assert (tmp_path / "there.wacz").read_text() == "mine"


def test_a_cut_that_would_answer_otherwise_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from msgspec.structs import replace

    from stillweb.snapshots.errors import DamagedInput
    from stillweb.snapshots.operations import cut as module

    whole = site(tmp_path / "site")
    before = module.select

    def other(*words: object, **more: object) -> tuple[list[Capture], list[str]]:
        kept, widened = before(*words, **more)  # type: ignore[arg-type]
        return [replace(c, session="another") for c in kept], widened

    monkeypatch.setattr(module, "select", other)
    with pytest.raises(DamagedInput, match="would give other answers"):
        cut(whole, Needs(places(whole, f"{TWIN}/again")), tmp_path / "part")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["site", "site.wacz"]


def test_what_was_said_over_web_sockets_is_kept(tmp_path: Path) -> None:
    said = {"url": f"{SITE}/live", "messages": [{"from": "server", "text": "hello"}]}
    with Writer.open(tmp_path / "s") as writer:
        record(writer, f"{SITE}/1", page("One"))
        record(writer, f"{SITE}/2", page("Two"))
        writer.metadata(said["url"], said)
    cut(tmp_path / "s", Needs(places(tmp_path / "s", f"{SITE}/1")), tmp_path / "part")
    with Snapshot.open(tmp_path / "part") as part:
        assert [c.url for c in part.captures()] == [f"{SITE}/1"]
        assert part.all_metadata(f"{SITE}/live") == [said]


@pytest.mark.parametrize("climbs", ["../../../", "/", "down/../../../../", "down/" * 1500])
def test_an_archive_whose_name_no_copy_can_have_is_refused(tmp_path: Path, climbs: str) -> None:
    """A zip of somebody else's may name its files as it likes: nothing is written elsewhere."""
    source, hostile = site(tmp_path / "site"), tmp_path / "hostile.wacz"
    elsewhere = str(tmp_path / "elsewhere").lstrip("/") if climbs == "/" else "elsewhere"
    with zipfile.ZipFile(source) as given, zipfile.ZipFile(hostile, "w") as made:
        name = next(one for one in given.namelist() if one.startswith("archive/"))
        made.writestr(f"archive/{climbs}{elsewhere}.warc.gz", given.read(name))
    found = places(hostile, f"{TWIN}/twin")
    before = {*tmp_path.iterdir()}
    with pytest.raises(
        DamagedInput, match=r"elsewhere\.warc\.gz: no file of a copy's folder archive/ can have its name"
    ):
        cut(hostile, Needs(found), tmp_path / "cut")
    assert {*tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", [".warc.gz", "down/.hidden.warc.gz"])
def test_an_archive_with_the_name_of_a_hidden_file_is_cut(tmp_path: Path, name: str) -> None:
    source, odd = site(tmp_path / "site"), tmp_path / "odd.wacz"
    with zipfile.ZipFile(source) as given, zipfile.ZipFile(odd, "w") as made:
        made.writestr(
            f"archive/{name}", given.read(next(one for one in given.namelist() if one.startswith("archive/")))
        )
    cut(odd, Needs(places(odd, f"{TWIN}/twin")), tmp_path / "cut")
    with Snapshot.open(tmp_path / "cut") as part:
        assert part.lookup(Request("GET", f"{TWIN}/twin", ())).capture is not None


@pytest.mark.parametrize("way", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_of_a_name_that_stands_twice_the_last_file_counts_and_it_is_told(tmp_path: Path, way: int) -> None:
    address, path = "http://example.test/", tmp_path / "twice.wacz"
    with zipfile.ZipFile(path, "w", way) as out:
        for text in ("first", "second"):
            with Writer.open(tmp_path / text) as writer:
                record(writer, address, page(text) + os.urandom(SMALL))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with zipfile.ZipFile(seal(tmp_path / text, workers=1).path) as given:
                    for name in given.namelist():
                        out.writestr(name, given.read(name))
    for _ in range(2):
        with Snapshot.open(path) as whole:
            body = whole.read(next(whole.captures())).body
            assert body.startswith(page("second"))
            assert any(
                "archive/data-00000.warc.gz and 4 more: stands more than once" in note for note in whole.notes
            )
    assert any("stands more than once in the zip: only the last is read" in p.message for p in verify(path))
    cut(path, Needs(places(path, address)), tmp_path / "cut")
    with Snapshot.open(tmp_path / "cut") as part:
        assert part.read(next(part.captures())).body == body
