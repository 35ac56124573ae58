"""Rows of replay: against nginx, against peers, with many connections, new hosts, and starting."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from benchmarks import peers, servers
from benchmarks.bench import TURN, Bench, NotRun, Row, told
from benchmarks.servers import HOST, Server

COUNTS = (1, 8, 32, 128, 500)


def client_limit(bench: Bench) -> list[Row]:
    """The load client beside wrk, on the same nginx."""
    wrk = shutil.which("wrk")
    name = "the load client against wrk, on nginx"
    if wrk is None:
        raise NotRun("wrk is not installed")
    with servers.nginx(bench.work, bench.work / "small") as server:
        mine = bench.load(server, "small")
        command = [wrk, "-t2", "-c8", f"-d{max(2, int(bench.seconds))}s", "-H", f"Host: {HOST}"]
        port = server.base.rpartition(":")[2]
        out = subprocess.run(
            [*command, f"https://127.0.0.1:{port}{bench.small[0][0]}"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    rate = float(next(line.split()[1] for line in out.splitlines() if line.startswith("Requests/sec")))
    note = f"its 8 processes used {mine.client_cpu:.2f} of {os.cpu_count()} cores; this is in what both sides below cost"
    return [Row(name, f"{mine.rate:,.0f}/s", f"wrk {rate:,.0f}/s", mine.rate / rate, note=note)]


def against_nginx(bench: Bench, which: str, bar: float) -> list[Row]:
    """Side by side with nginx serving the same files directly. The bar is for what `stillweb replay` starts."""
    snapshot = bench.work / f"{which}.snapshot"
    with ExitStack() as up:
        nginx = up.enter_context(servers.nginx(bench.work, bench.work / which))
        ours = [up.enter_context(servers.replay(bench.work, snapshot))]
        for server in (nginx, *ours):
            bench.load(server, which)
        found = bench.turns([nginx, *ours], which, bench.rounds)
    rows = []
    theirs = found["nginx"]
    for server in ours:
        mine = found[server.name]
        ratio = mine.against(theirs)
        pairs = list(zip(mine.loads, theirs.loads, strict=True))
        tail = statistics.median(a.p99 / b.p99 for a, b in pairs if b.p99)
        effort = statistics.median(b / a for a, b in zip(mine.cpu, theirs.cpu, strict=True) if a)
        best = max(r.rate for r in mine.loads) / max(r.rate for r in theirs.loads)
        note = f"best turns {best:.2f} ×; for each CPU second {effort:.2f} × nginx; client used {mine.middle.client_cpu:.2f} cores"
        label = f"{which} pages, 8 connections: {server.name}"
        held = effort >= bar and not mine.errors
        rows.append(
            Row(
                label,
                mine.told(),
                f"nginx {theirs.told()}",
                ratio,
                f"≥ {bar} for each CPU second",
                held,
                note,
            )
        )
        label = f"{which} pages, for each CPU second: {server.name}"
        rows.append(Row(label, "", "nginx", effort, f"≥ {bar}", held))
        label = f"{which} pages, p99 at 8: {server.name}"
        rows.append(Row(label, f"{mine.middle.p99 * 1e3:.2f} ms", "nginx", tail, "≤ 3", tail <= 3))
    return rows


def against_peers(bench: Bench) -> list[Row]:
    """Other tools that replay, on the same pages, in turns with ours."""
    work, first = bench.work, bench.small[0][0]
    snapshot = work / "small.snapshot"
    each: list[tuple[str, int, Callable[[], AbstractContextManager[Server]]]] = [
        ("mitmproxy server replay", 20, lambda: peers.replaying_mitmproxy(work, work / "small", bench.small)),
        ("pywb as shipped", 90, lambda: peers.pywb(work, snapshot, first)),
        ("pywb with two uWSGI processes", 18, lambda: peers.pywb_uwsgi(work, snapshot, first)),
    ]
    rows = []
    with servers.gateway(work, snapshot) as ours:
        bench.load(ours, "small")
        for name, bar, start in each:
            try:
                with start() as theirs:
                    rows.append(beside(bench, ours, theirs, bar))
            except (NotRun, RuntimeError, OSError) as error:
                rows.append(not_run(f"small pages, 8 connections, against {name}", f"≥ {bar}", error))
    return rows


def beside(bench: Bench, ours: Server, theirs: Server, bar: float) -> Row:
    """The row of one peer that is up."""
    bench.load(theirs, "small", warm=False, seconds=TURN)
    found = bench.turns([theirs, ours], "small", 3 if bench.quick else 7, seconds=TURN)
    mine, other = found[ours.name], found[theirs.name]
    ratio = mine.against(other)
    return Row(
        f"small pages, 8 connections, against {theirs.name}",
        mine.told(),
        other.told(),
        ratio,
        f"≥ {bar}",
        ratio is not None and ratio >= bar,
        "it keeps no connections, so each of its requests has a new tunnel and handshake"
        if theirs.fresh
        else "",
    )


def not_run(name: str, bar: str, error: Exception) -> Row:
    """The row of a peer that can't be had here."""
    return Row(name, f"not run: {error}", bar=bar)


def connections(bench: Bench) -> list[Row]:
    """From 1 to 500 connections: no errors."""
    rows = []
    counts = (1, 32, 500) if bench.quick else COUNTS
    name = "stillweb replay"
    rates: dict[str, list[tuple[int, float]]] = {"nginx": [], name: []}
    with (
        servers.nginx(bench.work, bench.work / "small") as nginx,
        servers.replay(bench.work, bench.work / "small.snapshot") as ours,
    ):
        for count in counts:
            result = bench.load(ours, "small", count)
            beside = bench.load(nginx, "small", count)
            rates[name].append((count, result.rate))
            rates["nginx"].append((count, beside.rate))
            ratio = result.rate / beside.rate if beside.rate else None
            text, other = told(result, ours), f"nginx {told(beside, nginx)}"
            rows.append(Row(f"{count} connections", text, other, ratio, "no errors", not result.errors))
        rows.append(Row(f"memory of {name}, after that", f"{servers.memory(ours.pid):.0f} MB"))
    rows[0].data["rates"] = rates
    return rows


def new_hosts(bench: Bench, hosts: int = 200) -> list[Row]:
    """New TLS connections to hosts whose certificates were not minted yet, each with a request."""
    with servers.replay(bench.work, bench.work / "small.snapshot") as server:
        assert server.through is not None
        through = server.through
        context = ssl.create_default_context(cafile=server.ca)
        name = base64.b64encode(b"hosts:x").decode()

        def one(host: str) -> None:
            with socket.create_connection(through) as sock:
                sock.sendall(
                    f"CONNECT {host}:443 HTTP/1.1\r\nProxy-Authorization: Basic {name}\r\n\r\n".encode()
                )
                sock.recv(4096)
                with context.wrap_socket(sock, server_hostname=host) as tls:
                    tls.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                    if b"504" not in tls.recv(4096):
                        raise RuntimeError(f"{host}: no miss was answered")

        def rate(kind: str, how: Callable[[list[str]], object]) -> float:
            best = 0.0
            for turn in range(3):
                before, began = servers.cpu(server.pid), time.perf_counter()
                how([f"{kind}-{turn}-{number}.example" for number in range(hosts)])
                took = time.perf_counter() - began
                if hosts / took > best:
                    best = hosts / took
                    costs[kind] = (servers.cpu(server.pid) - before) / hosts * 1e3
            return best

        costs: dict[str, float] = {}
        for number in range(20):  # what is loaded at the first of all is no matter of certificates
            one(f"first-{number}.example")
        alone = rate("alone", lambda names: list(map(one, names)))
        with ThreadPoolExecutor(8) as pool:
            together = rate("together", lambda names: list(pool.map(one, names)))
    label = f"new TLS connections to {hosts} hosts not yet minted"
    rows = []
    for how, found, cost in (
        ("one after the other", alone, costs["alone"]),
        ("eight at a time", together, costs["together"]),
    ):
        note = f"best of 3; {cost:.1f} ms CPU of ours each, a miss answered in each"
        rows.append(Row(f"{label}, {how}", f"{found:,.0f}/s", bar="≥ 300/s", held=found >= 300, note=note))
    return rows


def starting(bench: Bench) -> list[Row]:
    """The commands, as a person starts them. The least of several, for other work on the machine counts too."""
    stillweb = str(Path(sys.executable).with_name("stillweb"))
    env = os.environ | {"STILLWEB_STATE": str(bench.work / "state")}

    def least(run: Callable[[], object]) -> float:
        took = []
        for _ in range(5):
            began = time.perf_counter()
            run()
            took.append(time.perf_counter() - began)
        return min(took)

    def replay() -> float:
        port = servers.free_port()
        command = [stillweb, "replay", str(bench.work / "small.snapshot"), "--port", str(port)]
        began = time.perf_counter()
        with (
            servers.running(command, port, env=env),
            socket.create_connection(("127.0.0.1", port)) as sock,
        ):
            sock.sendall(b"GET http://stillweb.local/ca.pem HTTP/1.0\r\n\r\n")
            if not sock.recv(100).startswith(b"HTTP/1.1 200"):
                raise RuntimeError("the replay does not answer")
            return time.perf_counter() - began

    start = min(replay() for _ in range(5))
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "env": env}
    helped = least(lambda: subprocess.run([stillweb, "--help"], **quiet))  # type: ignore[call-overload]
    empty = least(lambda: subprocess.run([sys.executable, "-c", "pass"], **quiet))  # type: ignore[call-overload]
    note = f"an empty Python takes {empty:.2f} s here"
    name = "starting `stillweb replay` until it answers"
    return [
        Row(name, f"{start:.2f} s", bar="≤ 0.5 s", held=start <= 0.5, note=note),
        Row("`stillweb --help`", f"{helped:.2f} s", bar="≤ 0.2 s", held=helped <= 0.2),
    ]
