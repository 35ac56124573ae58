"""The same bytes from wherever they lie."""

import io
import os
import resource
import zipfile
from pathlib import Path

import fsspec
import pytest

from stillweb.snapshots._os.random_access import (
    ByteSource,
    FileSource,
    MemorySource,
    Reader,
    SourceRange,
    chunks,
)
from stillweb.snapshots.errors import DamagedInput, MissingCapability, UsageError
from stillweb.snapshots.remote import RemoteSource, open_store
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.wacz import seal
from tests.snapshots.making import small_snapshot
from tests.snapshots.malformed import http, other, packed
from tests.snapshots.malformed import record as warc_record

DATA = bytes(range(256)) * 40


def places(tmp_path: Path) -> list[ByteSource]:
    path = tmp_path / "data"
    path.write_bytes(b"before" + DATA + b"after")
    fsspec.filesystem("memory").pipe_file("/places/data", DATA)
    whole = FileSource(path)
    return [
        FileSource(path, base=6, size=len(DATA)),
        MemorySource(DATA),
        RemoteSource(open_store("memory://places/data").files()[""]),
        SourceRange(whole, 6, len(DATA)),
    ]


def test_places_read_alike(tmp_path: Path) -> None:
    for place in places(tmp_path):
        assert place.size == len(DATA)
        assert place.read(0, 1 << 30) == DATA
        assert place.read(300, 7) == DATA[300:307]
        assert place.read(len(DATA) - 2, 9) == DATA[-2:]
        assert place.read(len(DATA) + 5, 9) == b""
        assert place.read(-3, 9) == b""  # it was a traceback in a file, and bytes before an entry of a zip
        assert b"".join(chunks(place, 3, size=100)) == DATA[3:]
        file = Reader(place)
        assert (file.seek(-5, io.SEEK_END), file.read(2), file.tell()) == (
            len(DATA) - 5,
            DATA[-5:-3],
            len(DATA) - 3,
        )
        assert file.read() == DATA[-3:]
        place.close()
        place.close()


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(DamagedInput, match="can't be opened"):
        FileSource(tmp_path / "none")
    with pytest.raises(UsageError, match="no such file"):
        Snapshot.open("memory://none.wacz")


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache"))
    small_snapshot(tmp_path / "s")
    sealed = seal(tmp_path / "s").path
    fs = fsspec.filesystem("memory")
    root = f"/{tmp_path.name}"
    fs.pipe_file(f"{root}/s.wacz", sealed.read_bytes())
    fs.pipe_file(f"{root}/x.warc.gz", packed(warc_record(http()), other()))
    for path in (tmp_path / "s").rglob("*"):
        if path.is_file():
            fs.pipe_file(f"{root}/s/{path.relative_to(tmp_path / 's').as_posix()}", path.read_bytes())
    return sealed, f"memory:/{root}"


def test_remote_snapshots_are_read_by_ranges(
    remote: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed, url = remote
    read: list[int] = []
    before = RemoteSource.read

    def counting(self: RemoteSource, offset: int, length: int) -> bytes:
        data = before(self, offset, length)
        read.append(len(data))
        return data

    monkeypatch.setattr(RemoteSource, "read", counting)
    with Snapshot.open(sealed) as local:
        for name in ("s.wacz", "s"):
            with Snapshot.open(f"{url}/{name}") as there:
                assert there.id == local.id
                assert list(there.captures()) == list(local.captures())
                assert [there.read(c) for c in there.captures()] == [local.read(c) for c in local.captures()]
                assert there.views() == local.views()
                text = there.text("http://example.test/")
                assert text is not None
                assert text.markdown == local.text("http://example.test/").markdown  # type: ignore[union-attr]
        with Snapshot.open(f"{url}/x.warc.gz") as there:
            assert len(list(there.captures())) == 2
        with Snapshot.open(f"file://{sealed}") as there:
            assert there.id == local.id
        with Snapshot.open(f"{url}/s.wacz", sealed) as layered:
            assert len(list(layered.captures())) == 3
    assert max(read) < sealed.stat().st_size


@pytest.mark.parametrize("form", ["directory", "wacz"])
def test_a_large_index_far_away_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr("stillweb.snapshots.index.blocks.LEAST", 1)
    monkeypatch.setattr("stillweb.snapshots.index.blocks.STEP", 64)
    monkeypatch.setattr("stillweb.snapshots.index.index_cache.CHECKED", 0)
    small_snapshot(tmp_path / "s")
    sealed = seal(tmp_path / "s").path
    fs = fsspec.filesystem("memory")
    root = f"/{tmp_path.name}/{form}"
    fs.pipe_file(f"{root}.wacz", sealed.read_bytes())
    for path in (tmp_path / "s").rglob("*"):
        if path.is_file():
            fs.pipe_file(f"{root}/{path.relative_to(tmp_path / 's').as_posix()}", path.read_bytes())
    size = (tmp_path / "s" / "indexes" / "index.cdxj").stat().st_size
    read: list[int] = []
    before = RemoteSource.read

    def counting(self: RemoteSource, offset: int, length: int) -> bytes:
        data = before(self, offset, length)
        read.append(len(data))
        return data

    with Snapshot.open(f"memory:/{root}" + (".wacz" if form == "wacz" else "")) as there:
        monkeypatch.setattr(RemoteSource, "read", counting)
        assert len(there.candidates("test,example)/")) == 1
    assert sum(read) < size / 4


def test_a_zip_with_bytes_before_it(tmp_path: Path) -> None:
    path = tmp_path / "x.wacz"
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("archive/a.warc.gz", packed(warc_record(http())))
    data = path.read_bytes()
    path.write_bytes(data)
    with Snapshot.open(path) as snapshot:
        assert len(list(snapshot.captures())) == 1


def test_more_files_than_the_machine_opens_at_once(tmp_path: Path) -> None:
    for number in range(64):
        (tmp_path / f"{number}.warc").write_bytes(other())
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, before[1]))
    try:
        with pytest.raises(MissingCapability, match="stillweb import FILES"):
            Snapshot.open(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
