"""Every check of `verify` is seen to fail when what it checks is broken, and none fails on what is sound."""

import base64
import gzip
import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from stillweb.snapshots.contents.package import digest_of
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.index.indexing import Findings
from stillweb.snapshots.operations import verifying
from stillweb.snapshots.operations.verifying import Problem, verify
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.warc import warc
from stillweb.snapshots.warc.warc import same_digest
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import record, small_snapshot
from tests.snapshots.malformed import record as warc_record

Files = dict[str, bytes]
ARCHIVE = "archive/data-00000.warc.gz"
INDEX = "indexes/index.cdxj"
PACKAGE = "datapackage.json"
DIGEST = "datapackage-digest.json"


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sealed")
    small_snapshot(root / "s")
    with Writer.open(root / "s", profile=Profile(seed=5)) as writer:
        record(writer, "http://example.test/late", b"late")
    return seal(root / "s").path


def test_a_sound_snapshot_has_no_problems(sealed: Path) -> None:
    seen: list[tuple[int, int]] = []
    assert verify(sealed, progress=lambda done, total: seen.append((done, total))) == []
    assert verify(sealed.with_name("s")) == []
    assert seen[-1][0] == seen[-1][1] > 0
    with pytest.raises(UsageError, match="no such file"):
        verify(sealed.with_name("missing"))


def test_a_second_reader_finds_the_same_records(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert verify(sealed, second_reader=True) == []
    path = tmp_path / "wrong.warc.gz"
    packed = [
        one.replace(b"\r\nlate", b"\r\ndead")
        for one in members((sealed.with_name("s") / ARCHIVE).read_bytes())
    ]
    path.write_bytes(b"".join(map(gzip.compress, packed)))
    assert {problem.check for problem in verify(path, second_reader=True)} == {"digest", "warcio"}
    monkeypatch.setattr(verifying, "find", lambda *_, **__: Findings())
    assert {problem.check for problem in verify(sealed, second_reader=True)} >= {"warcio"}


def members(data: bytes) -> list[bytes]:
    """The gzip members of an archive, unpacked."""
    import zlib

    found = []
    while data:
        unpacker = zlib.decompressobj(31)
        found.append(unpacker.decompress(data))
        data = unpacker.unused_data
    return found


def edit_record(files: Files, number: int, old: bytes, new: bytes) -> None:
    """Replaces bytes in a record; its length stays right when both are as long."""
    records = members(files[ARCHIVE])
    assert old in records[number], records[number][:600]
    records[number] = records[number].replace(old, new, 1)
    files[ARCHIVE] = b"".join(gzip.compress(r, mtime=0) for r in records)


def index_of(files: Files, kind: bytes, containing: bytes = b"") -> int:
    records = members(files[ARCHIVE])
    return next(i for i, r in enumerate(records) if b"WARC-Type: " + kind in r and containing in r)


def settle(files: Files, *, index: bool = False) -> None:
    """Makes the package agree with the files again, so that only the broken thing is reported."""
    package = json.loads(files[PACKAGE])
    for resource in package["resources"]:
        data = files.get(resource["path"])
        if data is not None:
            resource["bytes"] = len(data)
            resource["hash"] = "sha256:" + hashlib.sha256(data).hexdigest()
    if index:
        import zlib

        stamp = package["stillweb"]["index"]
        stamp["bytes"] = len(files[INDEX])
        stamp["crc32"] = zlib.crc32(files[INDEX])
        stamp["archives"] = {n[8:]: len(d) for n, d in files.items() if n.startswith("archive/")}
    files[PACKAGE] = json.dumps(package).encode()
    files[DIGEST] = json.dumps(
        {"path": PACKAGE, "hash": "sha256:" + hashlib.sha256(files[PACKAGE]).hexdigest()}
    ).encode()


def edit_package(files: Files, change: Callable[[dict], None]) -> None:
    package = json.loads(files[PACKAGE])
    change(package)
    files[PACKAGE] = json.dumps(package).encode()
    files[DIGEST] = digest_of(files[PACKAGE])


def as_frictionless_4(package: dict) -> None:
    """Lists sizes and hashes as packages of WACZ 1.0.0 do."""
    for resource in package["resources"]:
        algorithm, _, told = resource.pop("hash").partition(":")
        resource |= {"stats": {"bytes": resource.pop("bytes"), "hash": told}, "hashing": algorithm}


def problems_after(sealed: Path, tmp_path: Path, breaking: Callable[[Files], None]) -> list[Problem]:
    with zipfile.ZipFile(sealed) as source:
        files = {name: source.read(name) for name in source.namelist()}
    breaking(files)
    path = tmp_path / "broken.wacz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as out:
        for name, data in files.items():
            out.writestr(name, data)
    return verify(path)


def edit_index(change: Callable[[list[bytes]], None]) -> Callable[[Files], None]:
    def breaking(files: Files) -> None:
        lines = files[INDEX].split(b"\n")
        change(lines)
        files[INDEX] = b"\n".join(lines)
        settle(files, index=True)

    return breaking


def with_record(kind: bytes, old: bytes, new: bytes, containing: bytes = b"") -> Callable[[Files], None]:
    def breaking(files: Files) -> None:
        edit_record(files, index_of(files, kind, containing or old), old, new)
        settle(files)

    return breaking


def drop_request(files: Files) -> None:
    records = members(files[ARCHIVE])
    number = index_of(files, b"request", b"POST /api")
    files[ARCHIVE] = b"".join(gzip.compress(r, mtime=0) for i, r in enumerate(records) if i != number)
    settle(files)


def drop_original(files: Files) -> None:
    records = members(files[ARCHIVE])
    number = index_of(files, b"response", b"WARC-Target-URI: http://example.test/\r\n")
    files[ARCHIVE] = b"".join(gzip.compress(r, mtime=0) for i, r in enumerate(records) if i != number)
    settle(files)


def flip_last_byte(files: Files) -> None:
    files[ARCHIVE] = files[ARCHIVE][:-7] + bytes([files[ARCHIVE][-7] ^ 0xFF]) + files[ARCHIVE][-6:]
    settle(files)


def cut(files: Files) -> None:
    files[ARCHIVE] = files[ARCHIVE][:-20]
    settle(files)


def garble_digest(files: Files) -> None:
    files[DIGEST] = b"{}"


def wrong_digest(files: Files) -> None:
    files[DIGEST] = b'{"hash":"sha256:00"}'


def unlisted(files: Files) -> None:
    files["logs/x.txt"] = b"x"


def repeat_id(files: Files) -> None:
    records = members(files[ARCHIVE])
    ids = [r.split(b"WARC-Record-ID: ")[1].split(b"\r\n")[0] for r in records]
    records[3] = records[3].replace(ids[3], ids[1])
    files[ARCHIVE] = b"".join(gzip.compress(r, mtime=0) for r in records)
    settle(files)


def swap(lines: list[bytes]) -> None:
    lines[0], lines[1] = lines[1], lines[0]


def drop_line(lines: list[bytes]) -> None:
    del lines[0]


def garble_line(lines: list[bytes]) -> None:
    lines[0] = lines[0][:40]


def cut_line(lines: list[bytes]) -> None:
    del lines[-1]


def replace_in_index(old: bytes, new: bytes) -> Callable[[Files], None]:
    def change(lines: list[bytes]) -> None:
        number = next(i for i, line in enumerate(lines) if old in line)
        lines[number] = lines[number].replace(old, new)

    return edit_index(change)


def stale_crc(files: Files) -> None:
    edit_package(files, lambda p: p["stillweb"]["index"].update(crc32=1))


def stale_stamp(files: Files) -> None:
    edit_package(files, lambda p: p["stillweb"]["index"].update(bytes=1))


BROKEN: list[tuple[str, Callable[[Files], None], str, str]] = [
    ("package missing", lambda f: f.pop(PACKAGE), "package", "is missing"),
    ("package garbled", lambda f: f.update({PACKAGE: b"{"}), "package", "not a JSON object"),
    ("no resources", lambda f: edit_package(f, lambda p: p.pop("resources")), "package", "no list of resources"),
    ("no path", lambda f: edit_package(f, lambda p: p["resources"][0].pop("path")), "package", "has no path"),
    ("wrong size", lambda f: edit_package(f, lambda p: p["resources"][0].update(bytes=1)), "package", "bytes, not 1"),
    ("wrong hash", lambda f: edit_package(f, lambda p: p["resources"][1].update(hash="sha256:00")), "package", "another hash than"),
    ("no hash", lambda f: edit_package(f, lambda p: p["resources"][1].pop("hash")), "package", "has no hash"),
    ("listed and absent", lambda f: f.pop("pages/pages.jsonl"), "package", "but not there"),
    ("unlisted", unlisted, "package", "not listed"),
    ("digest wrong", wrong_digest, "package", "datapackage.json has another hash"),
    ("digest garbled", garble_digest, "package", "has no hash"),
    ("page is not JSON", lambda f: f.update({"pages/pages.jsonl": f["pages/pages.jsonl"] + b"{\n"}), "pages", "is not JSON"),
    ("no page header", lambda f: f.update({"pages/pages.jsonl": f["pages/pages.jsonl"].split(b"\n", 1)[1]}), "pages", "is not a header"),
    ("page without url", lambda f: f.update({"pages/pages.jsonl": f["pages/pages.jsonl"] + b'{"ts":"2025"}\n'}), "pages", "no url"),
    ("payload changed", with_record(b"response", b'{"ok":true}', b'{"ok":null}'), "digest", "payload digest is wrong"),
    ("block changed", with_record(b"response", b"Vary: Accept", b"Vary: Cookie"), "digest", "block digest is wrong"),
    ("request changed", with_record(b"request", b'{"a":1}', b'{"a":2}'), "digest", "block digest is wrong"),
    ("view changed", with_record(b"resource", b"Hello there, more", b"Hello there, less"), "digest", "block digest is wrong"),
    ("no digest", with_record(b"response", b"WARC-Block-Digest:", b"WARC-Block-Digestx:", b"/api"), "digest", "has no block digest"),
    ("length too large", with_record(b"response", b"\r\n\r\nHTTP", b"0\r\n\r\nHTTP", b"/api"), "record", "Content-Length is too large"),
    ("length too small", with_record(b"response", b"late\r\n\r\n", b"late and more\r\n\r\n"), "record", "Content-Length is too small"),
    ("no end", with_record(b"response", b"late\r\n\r\n", b"late\r\n"), "record", "two line breaks"),
    ("no type", with_record(b"response", b"WARC-Type: response", b"WARC-Tipe: response"), "record", "no WARC-Type"),
    ("no uri", with_record(b"response", b"WARC-Target-URI", b"WARC-Target-URL"), "record", "no WARC-Target-URI"),
    ("no date", with_record(b"response", b"WARC-Date", b"WARC-Dote"), "record", "no WARC-Date"),
    ("id twice", repeat_id, "record", "has the same id as the record"),
    ("flipped byte", flip_last_byte, "record", "damaged compressed data"),
    ("cut short", cut, "record", "cut short"),
    ("request lost", drop_request, "pair", "the request of this response is missing"),
    ("original lost", drop_original, "revisit", "is in none of the files"),
    ("index unsorted", edit_index(swap), "index", "out of order"),
    ("index line lost", edit_index(drop_line), "index", "is not in the index"),
    ("index line garbled", edit_index(garble_line), "index", "can't be read"),
    ("index cut", edit_index(cut_line), "index", "ends within a line"),
    ("index offset", replace_in_index(b'"offset":"', b'"offset":"1'), "index", "no such record"),
    ("index url", replace_in_index(b'"url":"http://example.test/late"', b'"url":"http://example.test/soon"'), "index", "differs from its record in url"),
    ("index status", replace_in_index(b'"status":"200"', b'"status":"404"'), "index", "differs from its record in status"),
    ("index key", replace_in_index(b'"method":"POST"', b'"method":"GET"'), "index", "differs from its record in method"),
    ("index checksum", stale_crc, "index", "another checksum"),
    ("index stamp", stale_stamp, "index", "does not fit"),
    ("snapshot id", lambda f: edit_package(f, lambda p: p["stillweb"].update(id="00")), "id", "the snapshot's id"),
    ("profile", lambda f: edit_package(f, lambda p: p["stillweb"].update(profile=None)), "id", "the profile is not"),
    ("name leads out", lambda f: f.update({"archive/../../x": b""}), "zip", "leads out"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "breaking", "check", "message"), BROKEN, ids=[b[0] for b in BROKEN])
def test_what_is_broken_is_reported(
    sealed: Path, tmp_path: Path, name: str, breaking: Callable[[Files], None], check: str, message: str
) -> None:
    problems = problems_after(sealed, tmp_path, breaking)
    assert any(p.check == check and message in p.message for p in problems), [str(p) for p in problems]
    assert all(str(p).startswith(p.file) for p in problems)


def test_the_package_of_an_early_wacz_is_read(sealed: Path, tmp_path: Path) -> None:
    def harmed(files: Files) -> None:
        edit_package(files, as_frictionless_4)
        edit_package(files, lambda p: p["resources"][0]["stats"].update(bytes=1, hash="00"))

    assert problems_after(sealed, tmp_path, lambda files: edit_package(files, as_frictionless_4)) == []
    said = [problem.message for problem in problems_after(sealed, tmp_path, harmed)]
    assert said[0].endswith("bytes, not 1")
    assert said[1:] == ["has another hash than datapackage.json says"]


def test_an_index_of_another_version_is_neither_read_nor_a_problem(sealed: Path, tmp_path: Path) -> None:
    def older(files: Files) -> None:
        replace_in_index(b'"status":"200"', b'"status":"404"')(files)
        edit_package(files, lambda p: p["stillweb"]["index"].update(version="1.1"))

    assert problems_after(sealed, tmp_path, older) == []
    with Snapshot.open(tmp_path / "broken.wacz") as snapshot:
        assert {capture.status for capture in snapshot.captures()} == {200}


def test_zip_damage_is_reported(sealed: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.wacz"
    with zipfile.ZipFile(sealed) as source, zipfile.ZipFile(path, "w") as out:
        for name in source.namelist():
            way = zipfile.ZIP_DEFLATED if name == ARCHIVE else zipfile.ZIP_STORED
            out.writestr(name, source.read(name), way)
    found = [(p.check, p.message) for p in verify(path)]
    assert ("zip", "is compressed; archives must be stored to be read in place") in found
    data = bytearray(sealed.read_bytes())
    data[data.index(b"json-pages-1.0")] ^= 1
    path.write_bytes(data)
    assert any(p.check == "zip" and "CRC" in p.message for p in verify(path))


def test_what_cant_be_opened_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "x.wacz"
    path.write_bytes(b"PK nothing")
    problems = verify(path)
    assert [p.check for p in problems] == ["open"]
    assert "the zip is damaged" in str(problems[0])


def test_after_a_kill_the_tail_is_reported_until_it_is_mended(tmp_path: Path) -> None:
    small_snapshot(tmp_path / "s")
    archive = tmp_path / "s" / ARCHIVE
    archive.write_bytes(archive.read_bytes()[:-7])
    problems = verify(tmp_path / "s")
    assert {p.check for p in problems} >= {"record", "package", "index"}
    writer = Writer.open(tmp_path / "s")
    assert "cut off" in writer.repairs[0]
    writer.close()
    assert verify(tmp_path / "s") == []


def test_a_text_that_does_not_fit_its_pages(tmp_path: Path) -> None:
    with Writer.open(tmp_path / "s") as writer:
        capture = record(writer, "http://example.test/x.pdf", b"%PDF-1.4")
        options = {"media": "application/pdf", "pages": [1, 2, 3]}
        writer.conversion(
            capture.url, "too long a text", refers_to=capture, extractor="x", version="1", options=options
        )
    assert [p.check for p in verify(tmp_path / "s")] == ["text"]


def test_a_text_whose_options_cant_be_unpacked(tmp_path: Path) -> None:
    options = b"WARC-Stillweb-Options: zlib:AAAA\r\n"
    (tmp_path / "x.warc").write_bytes(warc_record(b"text", kind=b"conversion", fields=options))
    assert "text" in [p.check for p in verify(tmp_path / "x.warc")]


def test_a_wrong_index_of_others_is_reported(tmp_path: Path) -> None:
    small_snapshot(tmp_path / "s")
    root = tmp_path / "s"
    (root / PACKAGE).unlink()
    (root / DIGEST).unlink()
    lines = (root / INDEX).read_bytes().split(b"\n")
    (root / INDEX).unlink()
    wrong = [line.replace(b'"offset":"', b'"offset":"1') for line in lines]
    elsewhere = [line.replace(b"data-00000", b"data-00009") for line in lines]
    other = [line.replace(b'"url":"http', b'"url":"ftp') for line in lines]
    for content in (wrong, elsewhere, other, [b"garbled line {"]):
        (root / "indexes" / "index.cdx.gz").write_bytes(gzip.compress(b"\n".join(content)))
        assert {p.check for p in verify(root)} == {"index"}, content
    (root / "indexes" / "index.cdx.gz").write_bytes(gzip.compress(b"\n".join(lines)))
    assert verify(root) == []


@pytest.mark.parametrize(
    "entry", ['{"filename": ["x"], "offset": "0"}', '{"filename": "x", "offset": null}', "[1]"]
)
def test_an_index_line_of_others_of_another_form_is_reported(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "s.wacz"
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("archive/x.warc", b"")
        out.writestr("indexes/index.cdxj", f"test,example)/ 20250102030405 {entry}\n")
    assert any(p.check == "index" and "line 1" in p.message for p in verify(path))


def test_a_sealed_snapshot_is_checked_behind_a_url(sealed: Path) -> None:
    with fsspec.filesystem("memory").open("/checked.wacz", "wb") as out:
        out.write(sealed.read_bytes())
    assert verify("memory://checked.wacz") == []


def test_digests_are_compared_in_every_encoding() -> None:
    value = hashlib.sha1(b"x")
    raw = value.digest()
    for text in (
        raw.hex(),
        raw.hex().upper(),
        base64.b32encode(raw).decode(),
        base64.b64encode(raw).decode(),
    ):
        assert same_digest(f"sha1:{text}", value)
        assert not same_digest(f"sha1:{text[1:]}", value)
    assert warc.digest(b"") == "sha256:" + hashlib.sha256(b"").hexdigest()


def test_a_bit_of_what_the_digest_is_of_is_told(tmp_path: Path) -> None:
    small_snapshot(tmp_path / "s")
    digest = tmp_path / "s" / "datapackage-digest.json"
    whole = digest.read_bytes()
    for wanted in (b'"path"', b"datapackage.json"):
        at = whole.index(wanted) + 2
        digest.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert [p.file for p in verify(tmp_path / "s")] == ["datapackage-digest.json"]


def test_of_an_index_of_nothing_but_faults_some_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying, "MOST", 3)
    archive = gzip.compress(b"WARC/1.1\r\nWARC-Type: warcinfo\r\nContent-Length: 0\r\n\r\n\r\n\r\n")
    with zipfile.ZipFile(tmp_path / "x.wacz", "w") as z:
        z.writestr("archive/a.warc.gz", archive)
        z.writestr("indexes/index.cdx", b"a 2 {}\n" * 50)
    found = [problem.message for problem in verifying.verify(tmp_path / "x.wacz") if problem.check == "index"]
    assert found == [
        *(f"line {number} can't be read" for number in (1, 2, 3)),
        "line 4 and those after it are not checked",
    ]
