"""The statements of docs/snapshot.md hold."""

import hashlib
import json
import re
import zipfile
from pathlib import Path

from warcio.archiveiterator import ArchiveIterator

from stillweb.snapshots.contents.package import snapshot_id
from stillweb.snapshots.index.cdxj import parse_line
from stillweb.snapshots.index.index_cache import INDEX_VERSION
from stillweb.snapshots.operations import late_secrets
from stillweb.snapshots.secrets.keystore import LEARNED
from stillweb.snapshots.secrets.redact import Redactor
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.snapshots.making import record, small_snapshot

TEXT = (Path(__file__).parents[2] / "docs" / "snapshot.md").read_text()


def test_the_page_of_format_versions_has_that_of_the_index() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    assert re.search(rf"\n\| index [^\n]*\| {re.escape(INDEX_VERSION)} \|", page)


def test_the_example_line_has_the_form_of_a_real_one(tmp_path: Path) -> None:
    example = re.search(r"<!-- example: index -->\n```\n(.*)\n```", TEXT)
    assert example is not None
    with Writer.open(tmp_path / "s") as writer:
        capture = record(writer, "http://example.test/", b"hello")
    line = (tmp_path / "s" / "indexes" / "index.cdxj").read_bytes().split(b"\n")[0]
    key, time, entry = parse_line(line)
    wanted_key, wanted_time, wanted = parse_line(example[1].encode())
    assert (key, time) == (wanted_key, wanted_time)
    assert list(entry) == list(wanted)
    changing = ("length", "offset", "req", "key", "exact", "id")
    assert {k: v for k, v in entry.items() if k not in changing} == {
        k: v for k, v in wanted.items() if k not in changing
    }
    assert capture.url == entry["url"]


def test_every_member_and_field_that_is_written_is_described(tmp_path: Path) -> None:
    path = seal(small_snapshot(tmp_path / "s")).path
    with zipfile.ZipFile(path) as listing:
        for name in listing.namelist():
            assert name in TEXT
        for line in listing.read("indexes/index.cdxj").split(b"\n")[:-1]:
            for member in parse_line(line)[2]:
                assert f"`{member}`" in TEXT, member
        for member in json.loads(listing.read("datapackage.json"))["stillweb"]:
            assert f"`{member}`" in TEXT, member
        with listing.open("archive/data-00000.warc.gz") as data:
            for item in ArchiveIterator(data):
                for name, _ in item.rec_headers.headers:
                    assert not name.startswith("WARC-Stillweb") or f"`{name}`" in TEXT, name


def test_what_is_beside_an_open_snapshot_is_described_and_only_what_is_told_is_sealed(tmp_path: Path) -> None:
    path = small_snapshot(tmp_path / "s")
    redactor = Redactor.for_snapshot(path, tmp_path / "state", keep=True)
    redactor.learn("tok-9d8f7a6s5d4f3a2s1d0f")
    late_secrets.add_late_secrets(
        path, [late_secrets.LateSecret("http://a.test/", "data-00000.warc.gz:0", "url")]
    )
    assert {f"stillweb/{file.name}" for file in (path / "stillweb").iterdir()} == set(
        re.findall(r"^\| `(stillweb/[^`]+)`", TEXT, re.M)
    )
    with zipfile.ZipFile(seal(path, keep_secrets=True).path) as listing:
        assert LEARNED not in listing.namelist()
    assert (path / LEARNED).exists()


def test_the_id_is_made_as_described(tmp_path: Path) -> None:
    path = seal(small_snapshot(tmp_path / "s")).path
    with zipfile.ZipFile(path) as listing:
        lines = listing.read("indexes/index.cdxj").split(b"\n")[:-1]
        own = json.loads(listing.read("datapackage.json"))["stillweb"]
    identities = sorted(parse_line(line)[2]["id"] for line in lines)
    rest = json.dumps(
        {"profile": own["profile"], "rules": own["rules"]}, sort_keys=True, separators=(",", ":")
    )
    text = "stillweb snapshot 1\n" + "".join(f"{i}\n" for i in identities) + rest
    assert hashlib.sha256(text.encode()).hexdigest() == own["id"] == snapshot_id(lines, None, own["rules"])
    with Snapshot.open(path) as snapshot:
        assert snapshot.id == own["id"]
        capture = next(c for c in snapshot.captures() if c.method == "POST")
        answer = snapshot._archives.record(capture.filename, capture.offset, capture.length)
        asked = snapshot._archives.record(capture.filename, capture.request_offset, capture.request_length)
    head = answer.block.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    parts = [
        b"capture",
        capture.url.encode(),
        answer.fields["warc-date"].encode(),
        capture.digest.encode(),
        head,
        asked.block,
        b"default",
        b"5-6",
        b"h2",
    ]
    identity = hashlib.sha256(b"".join(b"%d:%b," % (len(p), p) for p in parts)).hexdigest()
    assert identity in identities
