"""`python -m benchmarks.damaging.neighbours [--seconds N]`: the longest wait of one client while others ask for what is hard to refuse.

`stillweb replay` serves one page. Two clients send misses without a pause: forms and queries of thousands of names, deep JSON. A third
asks for the page a hundred times a second; its waits are what is measured, from this process.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
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
            waits, asked = load(f"http://{{}}:x@127.0.0.1:{server.through[1]}", seconds, seed)
    waits.sort()
    at = lambda share: waits[int(share * (len(waits) - 1))] * 1000  # noqa: E731
    misses = ", ".join(f"{count} by {kind}" for kind, count in sorted(asked.items()))
    click.echo(
        f"{seconds:g} s, misses: {misses}. {len(waits)} answers to the neighbour: "
        f"median {at(0.5):.2f} ms, p99 {at(0.99):.2f} ms, longest {at(1):.1f} ms"
    )


def load(proxy: str, seconds: float, seed: int) -> tuple[list[float], Counter[str]]:
    """Return the neighbour's waits in seconds, and how many misses of each kind were answered meanwhile."""
    asked: Counter[str] = Counter()
    end = time.monotonic() + seconds

    def disturb(number: int) -> None:
        chance = random.Random(f"{seed} {number}")
        some = [
            hard(chance) for _ in range(20)
        ]  # made before, so that this process is idle while it measures
        with httpx.Client(proxy=proxy.format(f"load{number}"), timeout=60) as client:
            while time.monotonic() < end:
                kind, method, url, body = chance.choice(some)
                client.request(method, url, content=body, headers={"Content-Type": TYPES[kind]})
                asked[kind] += 1

    threads = [threading.Thread(target=disturb, args=(number,)) for number in range(2)]
    waits = []
    with httpx.Client(proxy=proxy.format("neighbour"), timeout=60) as client:
        client.get(URL).raise_for_status()
        for thread in threads:
            thread.start()
        while time.monotonic() < end:
            begun = time.perf_counter()
            client.get(URL).raise_for_status()
            waits.append(time.perf_counter() - begun)
            time.sleep(0.01)
    for thread in threads:
        thread.join()
    return waits, asked


if __name__ == "__main__":
    sys.exit(main())
