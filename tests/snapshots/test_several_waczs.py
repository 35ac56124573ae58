"""Several WACZs in one: in a zip, as Browsertrix gives collections, and in a list beside them."""

import json
import zipfile
from pathlib import Path

import pytest

from stillweb.snapshots import Snapshot, seal, verify
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.operations.importing import import_files
from tests.snapshots.making import small_snapshot
from tests.snapshots.malformed import PAGE, http, other, packed, record

NEXT = "http://example.test/next"


def one(path: Path, data: bytes, title: str, name: str = "data.warc.gz") -> Path:
    page = {"id": title, "url": f"http://example.test/{title}", "ts": "2020-01-02T03:04:05Z", "title": title}
    with zipfile.ZipFile(path, "w") as out:
        out.writestr(f"archive/{name}", data)
        out.writestr(
            "pages/pages.jsonl", json.dumps({"format": "json-pages-1.0"}) + "\n" + json.dumps(page) + "\n"
        )
        out.writestr("indexes/index.cdxj", "lies")
    return path


def parts(folder: Path) -> list[Path]:
    return [
        one(folder / "one.wacz", packed(record(http())), "first"),
        one(folder / "two.wacz", packed(other()), "second"),
    ]


def nested(folder: Path, way: int = zipfile.ZIP_STORED) -> Path:
    path = folder / "all.wacz"
    with zipfile.ZipFile(path, "w", way) as out:
        found = parts(folder)
        resources = [{"name": p.name, "path": p.name} for p in found]
        out.writestr(
            "datapackage.json", json.dumps({"profile": "multi-wacz-package", "resources": resources})
        )
        for part in found:
            out.write(part, part.name)
    return path


def listing(folder: Path, prefix: str = "") -> Path:
    resources = [{"name": p.name, "path": prefix + p.name} for p in parts(folder)]
    path = folder / "collection.json"
    path.write_text(json.dumps({"profile": "multi-wacz-package", "resources": resources}))
    return path


@pytest.mark.parametrize("form", ["zip", "packed zip", "list", "list of addresses"])
def test_several_waczs_are_one_snapshot(tmp_path: Path, form: str) -> None:
    path = {
        "zip": lambda: nested(tmp_path),
        "packed zip": lambda: nested(tmp_path, zipfile.ZIP_DEFLATED),
        "list": lambda: listing(tmp_path),
        "list of addresses": lambda: listing(tmp_path, "https://cdn.example.test/files/"),
    }[form]()
    with Snapshot.open(path) as snapshot:
        found = {c.url: (snapshot.read(c).body, c.filename) for c in snapshot.captures()}
        assert found == {
            "http://example.test/": (PAGE, "one.wacz/data.warc.gz"),
            NEXT: (b"the next page", "two.wacz/data.warc.gz"),
        }
        assert sorted(v.title for v in snapshot.views()) == ["first", "second"]
    import_files([path], tmp_path / "taken")
    with Snapshot.open(seal(tmp_path / "taken").path) as snapshot:
        assert len(list(snapshot.captures())) == 2


def test_files_of_one_name_in_two_folders_are_both_read(tmp_path: Path) -> None:
    for folder, data in (("a", record(http())), ("b", other())):
        (tmp_path / folder).mkdir()
        one(tmp_path / folder / "x.wacz", packed(data), folder)
    path = tmp_path / "collection.json"
    resources = [{"path": f"{folder}/x.wacz"} for folder in "ab"]
    path.write_text(json.dumps({"profile": "multi-wacz-package", "resources": resources}))
    with Snapshot.open(path) as snapshot:
        assert {c.url for c in snapshot.captures()} == {"http://example.test/", NEXT}


def test_ours_among_them_is_read_too(tmp_path: Path) -> None:
    small_snapshot(tmp_path / "s")
    sealed = seal(tmp_path / "s").path
    with Snapshot.open(sealed) as snapshot:
        expected = sorted(c.url for c in snapshot.captures())
    path = tmp_path / "both.wacz"
    with zipfile.ZipFile(path, "w") as out:
        out.write(sealed, "ours.wacz")
        out.write(one(tmp_path / "x.wacz", packed(other()), "x"), "x.wacz")
    with Snapshot.open(path) as snapshot:
        assert sorted(c.url for c in snapshot.captures()) == sorted([*expected, NEXT])


@pytest.mark.parametrize(
    "resources", [[], None, [{"name": "gone.wacz"}], [{}], [{"path": "../one.wacz/"}], ["one.wacz"]]
)
def test_a_list_of_what_is_not_there_fails_in_a_line(tmp_path: Path, resources: object) -> None:
    parts(tmp_path)
    path = tmp_path / "collection.json"
    path.write_text(json.dumps({"profile": "multi-wacz-package", "resources": resources}))
    with pytest.raises(DamagedInput, match=r"lists no WACZ|is not beside it"):
        Snapshot.open(path)


def test_a_damaged_part_is_found(tmp_path: Path) -> None:
    path = nested(tmp_path)
    data = bytearray(path.read_bytes())
    at = data.index(b"\x1f\x8b", data.index(b"two.wacz"))
    data[at + 12] ^= 0xFF
    path.write_bytes(data)
    assert verify(path) != []
