"""Other people's programs that are compared with, in an environment of their own (`.venv-bench`).

What can't be installed or started is no end of the run: its rows say "not run" and why.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import corpus, load
from benchmarks.bench import NotRun
from benchmarks.load import Mismatch
from benchmarks.servers import HOST, Server, free_port, running

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".venv-bench"
LOCK = Path(__file__).with_name("peers.lock")
BIN = HOME / "bin"

_why: dict[str, str] = {}  # program -> why it could not be installed


def install() -> None:
    """Makes the environment, or brings it up to date. Never raises: see `program`."""
    stamp = HOME / "stillweb-setup"
    want = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == want:
        return
    try:
        venv.create(HOME, clear=True, with_pip=True)
        failure = _pip(LOCK)
        if failure:  # most likely there is no compiler for uWSGI
            _why["uwsgi"] = failure
            lean = HOME / "lean.lock"
            lean.write_text(_without(LOCK.read_text(), "uwsgi"))
            failure = _pip(lean)
            _why.update(dict.fromkeys(("wayback", "warcprox", "cdxj-indexer"), failure) if failure else {})
        else:
            stamp.write_text(want)
    except (OSError, subprocess.SubprocessError) as error:
        _why.update(dict.fromkeys(("uwsgi", "wayback", "warcprox", "cdxj-indexer"), str(error)))


def _pip(lock: Path) -> str:
    command = [str(BIN / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--require-hashes"]  # fmt: skip
    done = subprocess.run(
        [*command, "-r", str(lock)], capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode == 0:
        return ""
    errors = [line for line in done.stderr.splitlines() if "rror" in line]
    return (errors or ["pip failed"])[-1].strip()[:200]


def _without(lock: str, name: str) -> str:
    kept, keep = [], True
    for line in lock.splitlines():
        if line and not line[0].isspace():
            keep = not line.startswith(f"{name}==")
        if keep:
            kept.append(line)
    return "\n".join(kept) + "\n"


def program(name: str) -> str:
    """The path of a peer's program. Raises NotRun when it could not be installed."""
    path = BIN / name
    if not path.exists():
        raise NotRun(f"{name} is not installed ({_why.get(name, 'no reason known')})")
    return str(path)


def versions(names: tuple[str, ...]) -> dict[str, str]:
    """The versions of those packages that are installed."""
    code = (
        "import sys\nfrom importlib.metadata import version, PackageNotFoundError\n"
        "for n in sys.argv[1:]:\n    try: print(n, version(n))\n    except PackageNotFoundError: pass"
    )
    if not (BIN / "python").exists():
        return {}
    done = subprocess.run(
        [str(BIN / "python"), "-c", code, *names], capture_output=True, text=True, check=False
    )
    return dict(line.split() for line in done.stdout.splitlines())


def _probe(server: Server, path: str) -> Server:
    """Sees whether it answers at all, and whether it keeps connections. Raises NotRun."""
    last: Exception | None = None
    for _ in range(3):
        try:
            server.fresh = not load.keeps_alive(path=path, **server.target())  # type: ignore[arg-type]
            return server
        except (OSError, Mismatch) as error:
            last = error
    raise NotRun(f"{server.name} does not answer: {last}")


def _mitmdump() -> str:
    return str(Path(sys.executable).with_name("mitmdump"))


@contextmanager
def replaying_mitmproxy(work: Path, root: Path, urls: list[tuple[str, int]]) -> Iterator[Server]:
    """mitmproxy's server replay, with what it needs to answer more than once and not to go live."""
    from mitmproxy import http
    from mitmproxy.io import FlowWriter
    from mitmproxy.test import tflow

    flows = work / "replay.flows"
    with open(flows, "wb") as file:
        writer = FlowWriter(file)  # type: ignore[no-untyped-call]
        for url, _ in urls:
            flow = tflow.tflow(resp=True)
            flow.request = http.Request.make("GET", f"https://{HOST}{url}")
            flow.response = http.Response.make(
                200, (root / url[1:]).read_bytes(), {"Content-Type": corpus.media(Path(url))}
            )
            writer.add(flow)
    port, state = free_port(), work / "mitmproxy"
    command = [_mitmdump(), "-q", "-p", str(port), "--listen-host", "127.0.0.1", "--set", f"confdir={state}",
               "--server-replay", str(flows), "--set", "server_replay_reuse=true", "--set", "server_replay_extra=kill",
               "--set", "connection_strategy=lazy", "--set", "server_replay_refresh=false"]  # fmt: skip
    with running(command, port) as (pid, took):
        ca = str(state / "mitmproxy-ca-cert.pem")
        server = Server(
            "mitmproxy server replay", f"https://{HOST}", ca, ("127.0.0.1", port), None, pid, took
        )
        yield _probe(server, urls[0][0])


@contextmanager
def bare_mitmdump(work: Path, base: str, path: str) -> Iterator[Server]:
    """mitmdump with nothing attached: it passes on and keeps nothing."""
    port, state = free_port(), work / "mitmproxy"
    command = [_mitmdump(), "-q", "-p", str(port), "--listen-host", "127.0.0.1", "--set", f"confdir={state}", "--ssl-insecure"]  # fmt: skip
    with running(command, port) as (pid, took):
        ca = str(state / "mitmproxy-ca-cert.pem")
        server = Server("mitmdump with nothing attached", base, ca, ("127.0.0.1", port), None, pid, took)
        yield _probe(server, path)


def _collection(work: Path, snapshot: Path) -> Path:
    """A pywb collection of the same WARCs."""
    folder = work / "pywb"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    manager = program("wb-manager")
    for more in (
        ["init", "bench"],
        *(["add", "bench", str(p)] for p in sorted((snapshot / "archive").iterdir())),
    ):
        done = subprocess.run([manager, *more], cwd=folder, capture_output=True, check=False, timeout=120)
        if done.returncode:
            raise NotRun(
                f"wb-manager {more[0]} failed: {done.stderr.decode(errors='replace')[-200:].strip()}"
            )
    (folder / "config.yaml").write_text("proxy:\n  coll: bench\n")
    return folder


@contextmanager
def pywb(work: Path, snapshot: Path, path: str) -> Iterator[Server]:
    """pywb's proxy mode as shipped."""
    folder, port = _collection(work, snapshot), free_port()
    command = [program("wayback"), "--proxy", "bench", "-b", "127.0.0.1", "-p", str(port)]
    with running(command, port, cwd=folder) as (pid, took):
        ca = str(folder / "proxy-certs" / "pywb-ca.pem")
        server = Server(
            "pywb as shipped", f"https://{HOST}", ca, ("127.0.0.1", port), None, pid, took, alters=True
        )
        yield _probe(server, path)


@contextmanager
def pywb_uwsgi(work: Path, snapshot: Path, path: str) -> Iterator[Server]:
    """pywb at its best: two uWSGI processes with gevent, as its documentation recommends."""
    uwsgi = program("uwsgi")
    folder, port = _collection(work, snapshot), free_port()
    certificates = folder / "proxy-certs"
    certificates.mkdir()
    # else each process makes an authority of its own at the same moment
    make = [program("certauth"), "-c", "pywb HTTPS Proxy CA", str(certificates / "pywb-ca.pem")]
    subprocess.run(make, cwd=folder, capture_output=True, check=False, timeout=60)
    command = [uwsgi, "--http-socket", f"127.0.0.1:{port}", "--master", "--processes", "2", "--gevent", "100",
               "--buffer-size", "65536", "--die-on-term", "--disable-logging", "--venv", str(HOME),
               "--wsgi", "pywb.apps.wayback", "--env", "PYWB_CONFIG_FILE=./config.yaml"]  # fmt: skip
    with running(command, port, cwd=folder) as (pid, took):
        ca = str(folder / "proxy-certs" / "pywb-ca.pem")
        server = Server("pywb with two uWSGI processes", f"https://{HOST}", ca, ("127.0.0.1", port), None, pid, took, alters=True)  # fmt: skip
        yield _probe(server, path)


@contextmanager
def warcprox(work: Path, base: str, path: str) -> Iterator[tuple[Server, Server]]:
    """warcprox recording, and its playback of what it has recorded so far."""
    command = [program("warcprox")]
    folder = work / "warcprox"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    port, playback = free_port(), free_port()
    ca = folder / "ca.pem"
    command += [
        "-b",
        "127.0.0.1",
        "-p",
        str(port),
        "-P",
        str(playback),
        "-d",
        "warcs",
        "-c",
        str(ca),
        "--gzip",
    ]
    with running(command, port, cwd=folder) as (pid, took):
        recording = Server("warcprox", base, str(ca), ("127.0.0.1", port), None, pid, took)
        replaying = Server("warcprox playback", base, str(ca), ("127.0.0.1", playback), None, pid, took)
        yield _probe(recording, path), replaying
