"""Ours and nginx, each started in processes of its own and ended by the benchmark. Others' are in `peers`."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks import corpus

HOST = "bench.example"
ORIGIN = "127.0.0.2"  # for recording: warcprox refuses 127.0.0.1


@dataclass
class Server:
    """Address of a running server, as `load.run` wants it."""

    name: str
    base: str
    ca: str
    through: tuple[str, int] | None = None
    connect: str | None = None
    pid: int = 0
    start_seconds: float = 0.0
    fresh: bool = False  # it keeps no connection: each request has its own
    alters: bool = False  # it changes the pages, so that their lengths are not known
    more: dict[str, float] = field(default_factory=dict)

    def target(self) -> dict[str, object]:
        """Arguments for `load.run`."""
        return {"base": self.base, "ca": self.ca, "through": self.through, "connect": self.connect}


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def wait_port(port: int, process: subprocess.Popen[bytes], address: str, seconds: float = 90.0) -> None:
    """Returns when the port accepts connections."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        try:
            socket.create_connection((address, port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"{process.args!r} does not listen")


def tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for child in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(child.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if parent == pid:
            found += tree(int(child.parent.name))
    return found


def memory(pid: int) -> float:
    """Resident MB of a process and its descendants; a page that several share is counted once, in parts."""
    total = 0.0
    for one in tree(pid):
        for name, field_name in (
            ("smaps_rollup", "Pss:"),
            ("status", "VmRSS:"),
        ):  # not all may read the first
            try:
                lines = Path(f"/proc/{one}/{name}").read_text().splitlines()
            except OSError:
                continue
            total += sum(int(line.split()[1]) / 1024 for line in lines if line.startswith(field_name))
            break
    return total


def cpu(pid: int) -> float:
    """CPU seconds used by a process and its descendants so far."""
    total = 0.0
    for one in tree(pid):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


@contextmanager
def running(
    command: list[str],
    port: int,
    *,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    address: str = "127.0.0.1",
) -> Iterator[tuple[int, float]]:
    """A server while it runs: its process id, and how many seconds it took to listen."""
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_port(port, process, address)
        yield process.pid, time.monotonic() - began
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def record(work: Path, root: Path, urls: list[tuple[str, int]], name: str) -> Path:
    """A snapshot of the files under `root`, as if fetched from the bench host."""
    from stillweb.snapshots.capture import Exchange
    from stillweb.snapshots.request import Request
    from stillweb.snapshots.writer import Writer

    path = work / name
    shutil.rmtree(path, ignore_errors=True)
    started = datetime(2025, 1, 1, tzinfo=UTC)
    with Writer.open(path) as writer:
        for number, (url, size) in enumerate(urls):
            headers = (
                ("Server", "nginx"),
                ("Date", "Wed, 01 Jan 2025 00:00:00 GMT"),
                ("Content-Type", corpus.media(Path(url))),
                ("Content-Length", str(size)),
                ("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT"),
                ("ETag", f'"{number:x}-{size:x}"'),
                ("Accept-Ranges", "bytes"),
            )
            request = Request("GET", f"https://{HOST}{url}", (("Host", HOST), ("Accept", "*/*")))
            writer.exchange(
                Exchange(
                    request,
                    200,
                    "OK",
                    headers,
                    (root / url[1:]).read_bytes(),
                    started + timedelta(seconds=number),
                    "default",
                    2 * number + 1,
                    2 * number + 2,
                )
            )
    return path


def authority(work: Path) -> object:
    """The authority that signs for nginx and the gateway."""
    from stillweb.proxy.net.ca import Authority

    os.environ["STILLWEB_STATE"] = str(work / "state")
    return Authority.load_or_create(work / "state")


OURS = "stillweb"


@contextmanager
def gateway(work: Path, snapshot: Path) -> Iterator[Server]:
    """Ours, in replay."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.serve", str(snapshot), str(port)]
    env = os.environ | {"STILLWEB_STATE": str(work / "state")}
    with running(command, port, env=env) as (pid, took):
        ca = str(work / "state" / "stillweb-ca.pem")
        yield Server(OURS, f"https://{HOST}", ca, ("127.0.0.1", port), None, pid, took)


@contextmanager
def replay(work: Path, snapshot: Path) -> Iterator[Server]:
    """Ours as `stillweb replay` starts it, with a ledger."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("stillweb")), "replay", str(snapshot), "--port", str(port)]
    env = os.environ | {"STILLWEB_STATE": str(work / "state")}
    with running([*command, "--ledger", str(snapshot.with_suffix(".ledger"))], port, env=env) as (pid, took):
        ca = str(work / "state" / "stillweb-ca.pem")
        yield Server("stillweb replay", f"https://{HOST}", ca, ("127.0.0.1", port), None, pid, took)


@contextmanager
def nginx(work: Path, root: Path, workers: int = 2, host: str = HOST) -> Iterator[Server]:
    """nginx serving the files directly over TLS, as fast as it is configured: no log, open files kept."""
    address = "127.0.0.1" if host == HOST else host
    port = free_port()
    signer = authority(work)
    leaf = work / f"leaf-{host}.pem"
    leaf.write_bytes(signer.mint(host) + signer._key_pem)  # type: ignore[attr-defined]
    leaf.chmod(0o600)
    config = work / f"nginx-{host}.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    config.write_text(
        f"{user} worker_processes {workers}; pid {work}/nginx-{host}.pid; error_log {work}/nginx.log; daemon off;\n"
        "events { worker_connections 4096; }\n"
        "http { access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; "
        "open_file_cache max=10000; open_file_cache_valid 600s; include /etc/nginx/mime.types;\n"
        f"server {{ listen {address}:{port} ssl reuseport backlog=4096; ssl_certificate {leaf}; "
        f"ssl_certificate_key {leaf}; ssl_session_cache shared:S:10m; root {root}; }} }}\n"
    )
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    with running([program, "-c", str(config)], port, address=address) as (pid, took):
        ca = str(work / "state" / "stillweb-ca.pem")
        yield Server("nginx", f"https://{host}:{port}", ca, None, address, pid, took)


@contextmanager
def recorder(work: Path, snapshot: Path) -> Iterator[Server]:
    """Ours, recording into a new snapshot from origins that the benchmark's authority vouches for."""
    shutil.rmtree(snapshot, ignore_errors=True)
    port = free_port()
    ca = str(work / "state" / "stillweb-ca.pem")
    command = [sys.executable, "-m", "benchmarks.serve", "--record", str(snapshot), str(port), ca]
    with running(command, port, env=os.environ | {"STILLWEB_STATE": str(work / "state")}) as (pid, took):
        yield Server("stillweb", "", ca, ("127.0.0.1", port), None, pid, took)
