"""`python -m benchmarks.damaging.hours [--minutes N] [--rate R] [--staying N]`: memory of a gateway under load.

`stillweb replay` serves a page and a form. Each session has a connection, a name and a cookie of its own, and asks for both
and for two addresses that were never recorded. It doesn't return, or some sessions stay and ask in turn. The resident memory of the gateway's processes is told
ten times; at the end, the slope of a straight line through what was measured after the first third, the warm-up.
"""

from __future__ import annotations

import base64
import sys
import tempfile
import time
from http.client import HTTPConnection
from pathlib import Path
from statistics import linear_regression

import click

from benchmarks.servers import memory, replay
from tests.proxy.frozen import Site

URL = "http://a.test/"
RECORDED = 5  # times that page and form were recorded, the same each time
TOLD = 10  # lines
MEASURED = 120  # times


@click.command()
@click.option("--minutes", default=60.0, show_default=True, help="How long the load lasts.")
@click.option("--rate", default=5.0, show_default=True, help="Sessions a second.")
@click.option("--staying", metavar="N", help="So many sessions stay; without it each is new.", type=int)
def main(minutes: float, rate: float, staying: int | None) -> None:
    """Measure a gateway's memory under sessions that come and go, or stay."""
    with tempfile.TemporaryDirectory(prefix="stillweb-hours-") as folder:
        site = Site(Path(folder) / "site")
        for _ in range(RECORDED):
            site.add(URL, b"<p>page</p>" * 1000)
            site.add(f"{URL}form", b"done", method="POST", request_body=b"a=1")
        with site.open():
            pass
        with replay(Path(folder), site.path) as server:
            assert server.through is not None
            clients = [
                HTTPConnection("127.0.0.1", server.through[1], timeout=60) for _ in range(staying or 1)
            ]
            begun, sessions, measured = time.monotonic(), 0, list[tuple[int, float]]()
            while (now := time.monotonic() - begun) < minutes * 60:
                if now >= len(measured) * minutes * 60 / MEASURED:
                    measured.append((sessions, memory(server.pid)))
                    if len(measured) % (MEASURED // TOLD) == 1:
                        click.echo(f"{now / 60:.1f} min, {sessions} sessions: {measured[-1][1]:.1f} MB")
                client = clients[sessions % len(clients)]
                ask(client, f"session-{sessions % staying if staying else sessions}", str(sessions))
                if staying is None:
                    client.close()
                sessions += 1
                time.sleep(max(0.0, begun + sessions / rate - time.monotonic()))
            click.echo(f"{minutes:g} min, {sessions} sessions: {memory(server.pid):.1f} MB")
            warm = measured[len(measured) // 3 :]
            slope, _ = linear_regression([one for one, _ in warm], [held for _, held in warm])
            click.echo(f"after {warm[0][0]} sessions: {slope * 1e6:+.0f} kB per 1,000 sessions")


def ask(client: HTTPConnection, session: str, value: str) -> None:
    """Send the requests of one session."""
    fields = {
        "Proxy-Authorization": "Basic " + base64.b64encode(f"{session}:x".encode()).decode(),
        "Cookie": f"sid={session}",
    }

    def status(method: str, url: str, body: str | None = None) -> int:
        client.request(method, url, body, fields)
        answer = client.getresponse()
        answer.read()
        return answer.status

    assert status("GET", URL) == 200
    assert status("POST", f"{URL}form", "a=1") == 200
    status("GET", f"{URL}never?{value}")
    status("POST", f"{URL}form", f"a={value}")


if __name__ == "__main__":
    sys.exit(main())
