"""`python -m benchmarks.damaging.neighbours [--seconds N]`: the longest wait of one client while others ask for what is hard to refuse.

`stillweb replay` serves one page. Two clients, each a process, send misses without a pause: forms and queries of thousands of names,
deep JSON. A third asks for the page a hundred times a second; its waits are measured, before that load and during it.
"""

from __future__ import annotations

import multiprocessing
import random
import socket
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import click
import httpx

from benchmarks.servers import replay
from tests.proxy.frozen import Site

URL = "http://a.test/"
TYPES = {"form": "application/x-www-form-urlencoded", "query": "text/plain", "json": "application/json"}


def hard(chance: random.Random) -> tuple[str, str, str, bytes]:
    """Return kind, method, URL and body of a request that is a miss with much to explain."""
    names = "&".join(f"n{chance.randrange(10**6)}={chance.randrange(10**6)}" for _ in range(5000))
    kind = chance.choice(["form", "query", "json"])
    if kind == "form":
        return kind, "POST", f"{URL}form", names.encode()
    if kind == "query":
        return kind, "GET", f"{URL}?{names[:60_000]}", b""
    return kind, "POST", f"{URL}json", b'{"a":' * 900 + b"1" + b"}" * 900


@click.command()
@click.option("--seconds", default=60.0, show_default=True, help="How long the load lasts.")
@click.option("--seed", default=1, show_default=True)
def main(seconds: float, seed: int) -> None:
    """Measure the longest wait of a neighbour."""
    with tempfile.TemporaryDirectory(prefix="stillweb-neighbours-") as folder:
        site = Site(Path(folder) / "site")
        site.add(URL, b"<p>page</p>")
        form = (("Content-Type", "application/x-www-form-urlencoded"),)
        body = "&".join(f"m{number}={number}" for number in range(5000)).encode()
        site.add(f"{URL}form", b"done", method="POST", request_headers=form, request_body=body)
        site.add(f"{URL}?{body.decode()[:60_000]}", b"found")
        with site.open():
            pass
        with replay(Path(folder), site.path) as server:
            assert server.through is not None
            port = server.through[1]
            click.echo(f"alone: {told(ask(port, seconds / 4))}")
            with multiprocessing.Pool(2) as pool:
                counts = pool.starmap_async(
                    disturb, [(port, seconds, f"{seed} {number}") for number in range(2)]
                )
                waits = ask(port, seconds)
                asked = sum(counts.get(), Counter())
    misses = ", ".join(f"{count} by {kind}" for kind, count in sorted(asked.items()))
    click.echo(f"beside misses ({misses}): {told(waits)}")


def told(waits: list[float]) -> str:
    """Return the waits in words."""
    waits = sorted(waits)
    at = lambda share: waits[int(share * (len(waits) - 1))] * 1000  # noqa: E731
    return f"{len(waits)} answers, median {at(0.5):.2f} ms, p95 {at(0.95):.2f} ms, p99 {at(0.99):.2f} ms, longest {at(1):.1f} ms"


def disturb(port: int, seconds: float, seed: str) -> Counter[str]:
    """Send misses for some time; return how many of each kind were answered."""
    chance = random.Random(seed)
    some = [hard(chance) for _ in range(20)]
    asked: Counter[str] = Counter()
    end = time.monotonic() + seconds
    with httpx.Client(proxy=f"http://{seed.replace(' ', '-')}:x@127.0.0.1:{port}", timeout=60) as client:
        while time.monotonic() < end:
            kind, method, url, body = chance.choice(some)
            client.request(method, url, content=body, headers={"Content-Type": TYPES[kind]})
            asked[kind] += 1
    return asked


def ask(port: int, seconds: float) -> list[float]:
    """Ask for the page again and again on one connection; return the wait for each answer, in seconds."""
    waits = []
    request = f"GET {URL} HTTP/1.1\r\nHost: a.test\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begun, answer = time.perf_counter(), b""
            client.sendall(request)
            while b"page</p>" not in answer:
                answer += client.recv(1 << 16)
            waits.append(time.perf_counter() - begun)
            time.sleep(0.01)
    return waits


if __name__ == "__main__":
    sys.exit(main())
