"""`python -m benchmarks.damaging.hours [--minutes N] [--rate R]`: memory of a gateway whose sessions come and go.

`stillweb replay` serves a page and a form. Each session asks for both and for two addresses that were never recorded,
and doesn't return. The resident memory of the gateway's processes is told each fifth minute.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import click
import httpx

from benchmarks.servers import memory, replay
from tests.proxy.frozen import Site

URL = "http://a.test/"
TOLD = 300.0  # seconds between two lines


@click.command()
@click.option("--minutes", default=60.0, show_default=True, help="How long the load lasts.")
@click.option("--rate", default=5.0, show_default=True, help="New sessions a second.")
def main(minutes: float, rate: float) -> None:
    """Measure a gateway's memory under new sessions."""
    with tempfile.TemporaryDirectory(prefix="stillweb-hours-") as folder:
        site = Site(Path(folder) / "site")
        site.add(URL, b"<p>page</p>" * 1000)
        site.add(f"{URL}form", b"done", method="POST", request_body=b"a=1")
        with site.open():
            pass
        with replay(Path(folder), site.path) as server:
            assert server.through is not None
            begun, sessions, told = time.monotonic(), 0, 0.0
            while (now := time.monotonic() - begun) < minutes * 60:
                if now >= told:
                    click.echo(f"{now / 60:.0f} min, {sessions} sessions: {memory(server.pid):.1f} MB")
                    told += TOLD
                ask(server.through[1], f"session-{sessions}")
                sessions += 1
                time.sleep(max(0.0, begun + sessions / rate - time.monotonic()))
            click.echo(f"{minutes:g} min, {sessions} sessions: {memory(server.pid):.1f} MB")


def ask(port: int, session: str) -> None:
    """Send the requests of one session, on a connection that is closed afterwards."""
    with httpx.Client(proxy=f"http://{session}:x@127.0.0.1:{port}", timeout=60) as client:
        assert client.get(URL).status_code == 200
        assert client.post(f"{URL}form", content=b"a=1").status_code == 200
        client.get(f"{URL}never?{session}")
        client.post(f"{URL}form", content=f"a={session}")


if __name__ == "__main__":
    sys.exit(main())
