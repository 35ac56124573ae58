"""WACZs, directories and profiles as other tools and older versions leave them."""

import gzip
import json
import shutil
import zipfile
from pathlib import Path

import fsspec
import pytest

from stillweb.snapshots.errors import DamagedInput, MissingCapability, UsageError
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer, reindex
from tests.snapshots.making import small_snapshot
from tests.snapshots.malformed import NEXT, PAGE, arc, bodies, http, other, packed, record


def wacz(path: Path, files: dict[str, bytes], way: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", way) as out:
        for name, data in files.items():
            out.writestr(name, data)
    return path


PAGES = (
    b'{"format":"json-pages-1.0","id":"pages"}\n'
    b'{"id":"1","url":"http://example.test/","ts":"2020-01-02T03:04:05Z","title":"A page"}\n'
)


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"datapackage.json": b'{"profile":"data-package"}'},
        {"datapackage.json": b'{"resources":null}', "pages/pages.jsonl": PAGES},
        {"indexes/index.cdx.gz": gzip.compress(b"lies"), "indexes/index.idx": b"lies"},
        {"indexes/index.cdxj": b"lies", "datapackage.json": b"no json"},
    ],
)
@pytest.mark.parametrize("way", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_wacz_of_others(tmp_path: Path, extra: dict[str, bytes], way: int) -> None:
    files = {
        "archive/a.warc.gz": packed(record(http())),
        "archive/b.warc": other(),
        "archive/c.arc.gz": arc(gz=True),
        **extra,
    }
    with Snapshot.open(wacz(tmp_path / "x.wacz", files, way)) as snapshot:
        found = sorted((c.url, c.filename, snapshot.read(c).body) for c in snapshot.captures())
        assert [f[1] for f in found] == ["a.warc.gz", "c.arc.gz", "c.arc.gz", "b.warc"]
        assert [v.title for v in snapshot.views()] == (["A page"] if "pages/pages.jsonl" in extra else [])
        assert len(snapshot.id) == 64


def test_a_lying_index_of_ours_is_not_believed_after_a_change(tmp_path: Path) -> None:
    small_snapshot(tmp_path / "s")
    archive = tmp_path / "s" / "archive" / "data-00000.warc.gz"
    archive.write_bytes(archive.read_bytes() + packed(other()))
    with Snapshot.open(tmp_path / "s") as snapshot:
        assert NEXT in {c.url for c in snapshot.captures()}


def test_a_directory_of_warcs(tmp_path: Path) -> None:
    (tmp_path / "a.warc.gz").write_bytes(packed(record(http())))
    (tmp_path / "b.warc").write_bytes(other())
    with Snapshot.open(tmp_path) as snapshot:
        assert bodies(snapshot) == {"http://example.test/": PAGE, NEXT: b"the next page"}


def test_a_directory_behind_a_url(tmp_path: Path) -> None:
    root = small_snapshot(tmp_path / "s")
    files = fsspec.filesystem("memory")
    files.put(f"{root}/", "/opening/", recursive=True)
    with Snapshot.open(root) as here, Snapshot.open("memory://opening") as there:
        assert there.id == here.id
        assert [there.read(c).body for c in there.captures()] == [here.read(c).body for c in here.captures()]
    files.rm("/opening", recursive=True)
    with pytest.raises(UsageError, match="no such file"):
        Snapshot.open("memory://opening")


def test_a_folder_of_a_snapshot_may_be_a_link(tmp_path: Path) -> None:
    """To a disk with more room: what is in it must not be overlooked."""
    snapshot, disk = tmp_path / "s", tmp_path / "disk"
    small_snapshot(snapshot)
    expected = [c.url for c in Snapshot.open(str(snapshot)).captures()]
    (snapshot / "archive").rename(disk)
    (snapshot / "archive").symlink_to(disk, target_is_directory=True)
    assert expected
    assert [c.url for c in Snapshot.open(str(snapshot)).captures()] == expected
    assert reindex(snapshot) == len(expected)


@pytest.mark.parametrize("field", ["flags", "method", "data", "place"])
def test_a_zip_that_cant_be_read_is_told_in_a_line(tmp_path: Path, field: str) -> None:
    path = wacz(tmp_path / "s.wacz", {"archive/x.warc": record(http()), "datapackage.json": b"{} " * 99}, 8)
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    if field == "flags":
        data[entry + 8] |= 1  # encrypted
    elif field == "method":
        data[entry + 10] = 9  # a deflate that nobody has
    elif field == "place":
        start = data.index(b"PK\x01\x02")
        del data[start - 9 : start - 1]  # so that all places are moved
    else:
        local = data.rindex(b"PK\x03\x04")
        data[local + 46 : local + 60] = bytes(14)
    path.write_bytes(data)
    with pytest.raises(DamagedInput, match=r"s\.wacz"):
        Snapshot.open(path)


def test_damage_is_told_of_an_archive_that_cant_be_read_by_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    member = bytearray(gzip.compress(record(http()) + record(http(), uri=NEXT.encode(), number=2)))
    member[-8] ^= 0xFF  # its check sum
    (tmp_path / "x.warc.gz").write_bytes(bytes(member) + gzip.compress(record(http(), number=3)))
    with Snapshot.open(tmp_path / "x.warc.gz") as snapshot:
        assert snapshot.notes


def test_one_damaged_record_at_the_start_hides_no_others(tmp_path: Path) -> None:
    first, second = bytearray(gzip.compress(record(http()))), gzip.compress(other())
    first[-8] ^= 0xFF
    (tmp_path / "x.warc.gz").write_bytes(bytes(first) + second)
    with Snapshot.open(tmp_path / "x.warc.gz") as snapshot:
        assert len(list(snapshot.captures())) == 1
        assert snapshot.notes


def test_metadata_that_is_no_json_is_passed_over(tmp_path: Path) -> None:
    uri = b"http://example.test/"
    (tmp_path / "x.warc").write_bytes(
        record(http()) + record(b"via: x\r\n", kind=b"metadata", uri=uri, number=2)
    )
    with Snapshot.open(tmp_path / "x.warc") as snapshot:
        assert snapshot.all_metadata("http://example.test/") == []
        assert list(snapshot.conversations()) == []


def test_metadata_of_a_higher_layer_hides_that_of_a_lower_one(tmp_path: Path) -> None:
    address = "http://example.test/live"
    for name, session in (("below", "a"), ("above", "b")):
        with Writer.open(tmp_path / name) as writer:
            writer.metadata(address, {"url": address, "session": session, "messages": []})
    with Snapshot.open(tmp_path / "below", tmp_path / "above") as snapshot:
        assert [said["session"] for said in snapshot.all_metadata(address)] == ["b"]
        assert [said["session"] for _, said in snapshot.conversations()] == ["b"]
    with Snapshot.open(tmp_path / "above", tmp_path / "below") as snapshot:
        assert [said["session"] for said in snapshot.all_metadata(address)] == ["a"]


@pytest.mark.parametrize("byte", [b"\xff", b"x"])
def test_an_index_of_ours_that_is_damaged_is_made_anew(tmp_path: Path, byte: bytes) -> None:
    small_snapshot(tmp_path / "s")
    sealed = seal(tmp_path / "s").path
    with Snapshot.open(sealed) as snapshot:
        before, known = list(snapshot.captures()), snapshot.id
        assert snapshot.notes == []
    data = sealed.read_bytes()
    at = data.index(b'"key":"') + 7
    sealed.write_bytes(data[:at] + byte + data[at + 1 :])
    with Snapshot.open(sealed) as snapshot:
        assert (list(snapshot.captures()), snapshot.id) == (before, known)
        assert snapshot.notes == ["indexes/index.cdxj: is damaged; rebuilt from the records"]


def test_a_place_that_another_package_reads_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(url: str, **options: object) -> None:
        raise ImportError("it needs a package that is not here")

    monkeypatch.setattr(fsspec.core, "url_to_fs", lacks)
    with pytest.raises(MissingCapability, match=r"https://a\.test/site\.wacz: .* needs a package"):
        Snapshot.open("https://a.test/site.wacz")


def test_a_zip_of_archives_is_one_snapshot(tmp_path: Path) -> None:
    for name, way in (("a.warc", zipfile.ZIP_STORED), ("deep/b.warc.gz", zipfile.ZIP_DEFLATED)):
        small_snapshot(tmp_path / "site")
        (warc,) = (tmp_path / "site" / "archive").iterdir()
        data = warc.read_bytes()
        with zipfile.ZipFile(tmp_path / "x.zip", "a", way) as out:
            out.writestr(name, gzip.decompress(data) if name == "a.warc" else data)
            out.writestr(f"notes of {name}.txt", b"crawled by hand")
        shutil.rmtree(tmp_path / "site")
        assert verify(tmp_path / "x.zip") == [] or name != "a.warc"
    with Snapshot.open(tmp_path / "x.zip") as snapshot:
        assert {c.filename for c in snapshot.captures()} == {"a.warc", "deep/b.warc.gz"}


def test_a_zip_that_lacks_its_end_says_so(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.wacz", "w") as out:
        out.writestr("archive/a.warc", b"WARC/1.1" * 1000)
    (tmp_path / "x.wacz").write_bytes((tmp_path / "x.wacz").read_bytes()[:4000])
    with pytest.raises(DamagedInput, match="cut short: the list of its files, at its end, is missing"):
        Snapshot.open(tmp_path / "x.wacz")


# as snapshots had it before pages drew by the code that asks
OLD = {
    "user_agent": "",
    "viewport": [1280, 800],
    "locale": "en-US",
    "timezone": "UTC",
    "clock": "2025-01-01T00:00:00Z",
    "seed": 1,
    "browser": "",
    "reduced_motion": True,
}


@pytest.mark.parametrize("profile", [Profile(), Profile(chance=1), Profile(seed=7, viewport=(800, 600))])
def test_a_profile_comes_back_as_it_was(profile: Profile) -> None:
    assert Profile.from_json(json.loads(json.dumps(profile.to_json()))) == profile


def test_an_older_profile_keeps_its_chance_and_its_form() -> None:
    """A profile's form is a part of the snapshot's id."""
    assert Profile.from_json(OLD) == Profile(chance=1)
    assert Profile.from_json(OLD).to_json() == OLD
