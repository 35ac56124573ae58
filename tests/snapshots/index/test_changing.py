"""The table of what changes a state: found by site, derived from the index, and never relied on when it is not sound."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from stillweb.snapshots.contents.package import write_package
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.index.changing import stamp_of, table_of
from stillweb.snapshots.operations.verifying import verify
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.warc.appending import write_whole
from stillweb.snapshots.warc.container import CHANGING, DIGEST, PACKAGE, open_directory
from tests.support.walks import record


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An open snapshot in which something was changed."""
    with record(tmp_path / "walks", [[("get", "/about"), ("filter", "toys"), ("contact", "hi")]]) as snapshot:
        return Path(snapshot.paths[0])


def _found(root: Path, site: str) -> set[tuple[str, str]]:
    with Snapshot.open(root) as snapshot:
        return {(c.method, c.url) for c in snapshot.changing(site)}


def _site(root: Path) -> str:
    with Snapshot.open(root) as snapshot:
        return site_of(next(snapshot.captures()).url)


def test_by_site_is_found_what_the_whole_index_tells(root: Path) -> None:
    with Snapshot.open(root) as snapshot:
        every = {(c.method, c.url) for c in snapshot.changing()}
    assert every
    assert _found(root, _site(root)) == every
    assert _found(root, "elsewhere.test") == set()
    assert verify(root) == []


def _cut(root: Path) -> None:
    (root / CHANGING).write_bytes(b"")


def _of_another(root: Path) -> None:
    (root / CHANGING).write_bytes(b"elsewhere.test test,elsewhere)/\n")


def _byte(root: Path) -> None:
    data = bytearray((root / CHANGING).read_bytes())
    data[0] ^= 1
    (root / CHANGING).write_bytes(bytes(data))


def _gone(root: Path) -> None:
    (root / CHANGING).unlink()


@pytest.mark.parametrize("damage", [_cut, _of_another, _byte, _gone])
def test_a_table_that_is_not_the_one_described_is_noticed_and_not_used(
    root: Path, damage: Callable[[Path], None]
) -> None:
    site = _site(root)
    right = _found(root, site)
    damage(root)
    assert _found(root, site) == right
    assert any(p.file == CHANGING for p in verify(root))


def test_verify_makes_the_table_again(root: Path) -> None:
    """Also where somebody wrote a wrong one and described it rightly."""
    package = json.loads((root / PACKAGE).read_bytes())
    (root / CHANGING).write_bytes(b"")
    package["stillweb"]["index"]["changing"] = stamp_of(b"")
    described = json.dumps(package).encode()
    (root / PACKAGE).write_bytes(described)
    (root / DIGEST).write_text(json.dumps({"hash": f"sha256:{sha256(described).hexdigest()}"}))
    assert any(p.file == CHANGING and p.check == "index" for p in verify(root))


def test_a_snapshot_without_a_table_answers_as_one_with_it(root: Path) -> None:
    """As they were sealed before there was one."""
    site = _site(root)
    right = _found(root, site)
    (root / CHANGING).unlink()
    package = json.loads((root / PACKAGE).read_bytes())
    del package["stillweb"]["index"]["changing"]
    package["resources"] = [r for r in package["resources"] if r["path"] != CHANGING]
    write_whole(root / PACKAGE, [json.dumps(package).encode()])
    (root / "datapackage-digest.json").unlink()
    assert _found(root, site) == right
    assert verify(root) == []
    with Snapshot.open(root) as snapshot:
        assert snapshot.matcher().changes(site)
        assert not snapshot.matcher().changes("elsewhere.test")
    write_package(root, profile=None, settings={}, software="test")
    container = open_directory(root)
    try:
        assert container.own["index"]["changing"] == stamp_of((root / CHANGING).read_bytes())
    finally:
        container.close()


def test_a_line_is_judged_by_its_entry() -> None:
    """Not by what an address happens to hold."""
    entry = {"url": 'https://a.test/?q={"kind":1}', "changes": True, "state": ">a1b2c3d4=a1b2c3d4"}
    line = b'test,a)/?q={"kind":1} 20250101000000 ' + json.dumps(entry, separators=(",", ":")).encode()
    assert table_of([line]) == b'a.test test,a)/?q={"kind":1}\n'
    rest = dict.fromkeys(("mime", "digest", "filename", "id"), "") | {"offset": "0", "length": "0"}
    text = {**entry, **rest, "kind": "conversion"}
    assert table_of([b"urn:x 20250101000000 " + json.dumps(text, separators=(",", ":")).encode()]) == b""


def test_no_site_is_a_site_too() -> None:
    entry = {"url": "!?", "changes": True}
    line = b"!? 20250101000000 " + json.dumps(entry, separators=(",", ":")).encode()
    assert table_of([line]).endswith(b" !?\n")
    assert not table_of([line]).startswith(b" ")
