"""Archives that other programs really made are opened, and every payload served is the one that warcio reads.

wget and py-wacz in every run where they are; pywb's recorder and warcprox where STILLWEB_WARCPROX names the Python of
an environment with it (`pip install warcprox`) or STILLWEB_PYWB is set, since they take half a minute.
"""

import gzip
import io
import os
import shutil
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from warcio.archiveiterator import ArchiveIterator

from stillweb.proxy import Gateway
from stillweb.snapshots import Snapshot, verify
from tests.interop.readers import PEERS
from tests.proxy.origin import Answer, Asked, Origin
from tests.support.waiting import HANG, STARTS

PAGE = b"<!doctype html><title>Others</title><p>" + "caf\u00e9 ".encode() * 300


async def pieces() -> AsyncIterator[bytes]:
    for number in range(5):
        yield b"piece %d;" % number


def answer(asked: Asked) -> Answer:
    html = ("Content-Type", "text/html; charset=utf-8")
    match asked.path.partition("?")[0]:
        case "/packed":
            return Answer(headers=[html, ("Content-Encoding", "gzip")], body=gzip.compress(PAGE, mtime=0))
        case "/chunks":
            return Answer(headers=[("Content-Type", "text/plain")], body=pieces())
        case "/old":
            return Answer(302, [("Location", "/page")])
        case "/gone":
            return Answer(404, [html], b"<p>gone")
        case "/blob":
            return Answer(
                headers=[("Content-Type", "application/octet-stream")], body=bytes(range(256)) * 300
            )
    return Answer(headers=[html], body=PAGE + asked.path.encode())


PATHS = ["/page", "/page?q=a%20b&q=%C3%BC", "/packed", "/chunks", "/old", "/gone", "/blob", "/same", "/same"]


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    with Origin(answer) as running:
        yield running


def payloads(archives: list[bytes]) -> dict[str, bytes]:
    """Return the decoded bodies that warcio reads, by address; the last of each."""
    found = {}
    for data in archives:
        for item in ArchiveIterator(io.BytesIO(data)):
            if item.rec_type == "response" and (item.rec_headers.get_header("WARC-Target-URI") or "").strip(
                "<>"
            ).startswith("http"):
                found[item.rec_headers.get_header("WARC-Target-URI").strip("<>")] = (
                    item.content_stream().read()
                )
    return found


def served_as_read(path: Path, archives: list[bytes]) -> int:
    """How many payloads the gateway serves; each is the one that warcio reads."""
    wanted = payloads(archives)
    assert wanted
    with (
        Snapshot.open(path) as snapshot,
        Gateway(snapshot) as gateway,
        httpx.Client(
            proxy=gateway.url, trust_env=False, timeout=HANG, headers={"Accept-Encoding": "identity"}
        ) as client,
    ):
        assert snapshot.notes == []
        for url, body in wanted.items():
            got = client.get(url)
            assert got.headers["stillweb-verdict"] == "exact", url
            assert got.content == body, url
    return len(wanted)


def wget(folder: Path, origin: Origin, *options: str) -> Path:
    program = shutil.which("wget")
    if program is None:
        pytest.skip("wget is not installed")
    command = [
        program,
        "-q",
        "--tries=1",
        "--no-proxy",
        "--compression=auto",
        "-O",
        "/dev/null",
        f"--warc-file={folder / 'x'}",
        *options,
    ]
    subprocess.run([*command, *(origin.url + p for p in PATHS)], check=False, timeout=STARTS, cwd=folder)
    return next(folder.glob("x.warc*"))


@pytest.mark.parametrize("options", [(), ("--no-warc-compression",), ("--warc-cdx",), ("--no-warc-digests",)])
def test_wget(tmp_path: Path, origin: Origin, options: tuple[str, ...]) -> None:
    path = wget(tmp_path, origin, *options)
    assert served_as_read(path, [path.read_bytes()]) >= 8
    assert verify(path) == []


@pytest.mark.slow
def test_a_wacz_of_py_wacz(tmp_path: Path, origin: Origin) -> None:
    warc, out = wget(tmp_path, origin), tmp_path / "x.wacz"
    subprocess.run(
        [PEERS / "wacz", "create", "-o", out, "--detect-pages", warc],
        check=True,
        capture_output=True,
        timeout=STARTS,
    )
    with zipfile.ZipFile(out) as package:
        assert {"indexes/index.cdx.gz", "indexes/index.idx"} <= set(package.namelist())
    assert served_as_read(out, [warc.read_bytes()]) >= 8
    assert verify(out) == []


def test_warcio_capturing(tmp_path: Path, origin: Origin) -> None:
    path = tmp_path / "x.warc.gz"
    script = (
        "import sys\nfrom warcio.capture_http import capture_http\nimport requests\n"
        "session = requests.Session(); session.trust_env = False\n"
        "with capture_http(sys.argv[1]):\n    for url in sys.argv[2:]: session.get(url)\n"
    )
    urls = [origin.url + p for p in PATHS]
    subprocess.run([sys.executable, "-c", script, path, *urls], check=True, timeout=STARTS)
    assert served_as_read(path, [path.read_bytes()]) >= 8


@contextmanager
def program(command: list[str | Path], folder: Path, port: int) -> Iterator[None]:
    running = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        yield
    finally:
        running.terminate()
        running.wait(HANG)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetch(origin: Origin, address: Callable[[str], str], **options: str) -> None:
    with httpx.Client(trust_env=False, timeout=HANG, **options) as client:  # type: ignore[arg-type]
        for path in PATHS:
            client.get(address(origin.url + path))
    time.sleep(3)  # both write behind the answer


@pytest.mark.skipif("STILLWEB_PYWB" not in os.environ, reason="takes long; set STILLWEB_PYWB")
def test_pywb_recording(tmp_path: Path, origin: Origin) -> None:
    subprocess.run([PEERS / "wb-manager", "init", "own"], cwd=tmp_path, check=True, capture_output=True)
    port = free_port()
    with program(
        [PEERS / "wayback", "--record", "--live", "-a", "-b", "127.0.0.1", "-p", str(port)], tmp_path, port
    ):
        fetch(origin, lambda url: f"http://127.0.0.1:{port}/own/record/id_/{url}")
    archives = sorted((tmp_path / "collections" / "own" / "archive").glob("*.warc.gz"))
    assert served_as_read(archives[0].parent, [p.read_bytes() for p in archives]) >= 8


@pytest.mark.skipif("STILLWEB_WARCPROX" not in os.environ, reason="not installed; set STILLWEB_WARCPROX")
def test_warcprox(tmp_path: Path, origin: Origin) -> None:
    port = free_port()
    script = (
        "import sys, warcprox.main, warcprox.warcproxy as w\n"
        "w.WarcProxyHandler.allow_localhost = True\nwarcprox.main.main(sys.argv)"
    )
    command: list[str | Path] = [os.environ["STILLWEB_WARCPROX"], "-c", script]
    command += ["-p", str(port), "-z", "-d", tmp_path / "w", "-b", "127.0.0.1"]
    with program(command, tmp_path, port):
        fetch(origin, lambda url: url, proxy=f"http://127.0.0.1:{port}")
    archives = sorted((tmp_path / "w").glob("*.warc.gz"))
    assert served_as_read(tmp_path / "w", [p.read_bytes() for p in archives]) >= 7
