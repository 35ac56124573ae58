"""The demo's origin servers on loopback, over TLS: Datasette with two real data sets, and our site."""

from __future__ import annotations

import contextlib
import csv
import json
import random
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import trustme

from stillweb.snapshots.errors import MissingCapability

HERE = Path(__file__).parent
DATASETTE_HOST = "data.example"
DESK_HOST = "desk.example"
START_SECONDS = 120.0

_METADATA = {
    "title": "Open data",
    "databases": {
        "open": {
            "tables": {
                "penguins": {
                    "title": "Penguins of the Palmer Archipelago",
                    "license": "CC0 1.0",
                    "source": "palmerpenguins: Horst, Hill, Gorman (2020)",
                    "facets": ["species", "island", "sex", "year"],
                    "size": 25,
                },
                "weather": {
                    "title": "Daily weather in Seattle",
                    "license": "Public domain",
                    "source": "US National Oceanic and Atmospheric Administration",
                    "facets": ["weather"],
                    "size": 25,
                },
            }
        }
    },
}


# Without declared types SQLite would not match the number 2007 with the text of a query string.
_TYPES = {
    "INTEGER": {"flipper_length_mm", "body_mass_g", "year"},
    "REAL": {"bill_length_mm", "bill_depth_mm", "precipitation", "temp_max", "temp_min", "wind"},
}


def _declaration(column: str) -> str:
    kind = next((kind for kind, columns in _TYPES.items() if column in columns), "TEXT")
    return f'"{column}" {kind}'


def build_database(path: Path) -> None:
    """Load the committed CSV files into a SQLite database."""
    with sqlite3.connect(path) as database:
        for table, file in (("penguins", "penguins.csv"), ("weather", "seattle-weather.csv")):
            with (HERE / "data" / file).open(newline="") as source:
                reader = csv.reader(source)
                names = next(reader)
                columns = ", ".join(f'"{name}"' for name in names)
                declared = ", ".join(map(_declaration, names))
                database.execute(f'CREATE TABLE "{table}" (id INTEGER PRIMARY KEY, {declared})')
                marks = ", ".join("?" * len(names))
                database.executemany(
                    f'INSERT INTO "{table}" ({columns}) VALUES ({marks})',
                    ([None if cell in ("", "NA") else cell for cell in row] for row in reader),
                )
    database.close()


def _free_port() -> int:
    """Return a free port below the ephemeral range, so that no other process gets it by chance."""
    for port in random.sample(range(20_000, 32_768), 100):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise MissingCapability("no port between 20000 and 32768 is free for the demo's servers")


class Origin:
    """Both servers, as a context manager. `resolve` maps their names to their addresses.

    `ca` is the certificate that signed theirs; a recorder must trust it.
    """

    def __init__(self, work: Path) -> None:
        self.work = work
        self.ca = work / "origin-ca.pem"
        self.resolve: dict[str, tuple[str, int]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Origin:
        self.work.mkdir(parents=True, exist_ok=True)
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca))
        with self._stack:
            database = self.work / "open.db"
            database.unlink(missing_ok=True)
            build_database(database)
            metadata = self.work / "metadata.json"
            metadata.write_text(json.dumps(_METADATA))
            datasette = ["-m", "datasette", "serve", "-i", str(database), "--metadata", str(metadata)]
            self._start(authority, DATASETTE_HOST, "--ssl-certfile", "--ssl-keyfile", datasette)
            self._start(authority, DESK_HOST, "--certificate", "--key", ["-m", "stillweb.harness.demo.site"])
            self._stack = self._stack.pop_all()
        return self

    def _start(
        self, authority: trustme.CA, host: str, certificate_option: str, key_option: str, words: list[str]
    ) -> None:
        issued = authority.issue_cert(host, "127.0.0.1")
        certificate, key = self.work / f"{host}.pem", self.work / f"{host}.key"
        issued.cert_chain_pems[0].write_to_path(str(certificate))
        issued.private_key_pem.write_to_path(str(key))
        key.chmod(0o600)
        port = _free_port()
        log = self._stack.enter_context((self.work / f"{host}.log").open("wb"))
        words = [
            sys.executable,
            *words,
            "--port",
            str(port),
            certificate_option,
            str(certificate),
            key_option,
            str(key),
        ]
        process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self._stack.callback(_stop, process)
        self._wait(host, port, process, authority)
        self.resolve[host] = ("127.0.0.1", port)

    def _wait(self, host: str, port: int, process: subprocess.Popen[bytes], authority: trustme.CA) -> None:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
                    context.wrap_socket(raw, server_hostname=host).close()
                    return
            except OSError:
                time.sleep(0.05)
        raise MissingCapability(f"the demo's {host} did not start; see {self.work / (host + '.log')}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
