"""Applications that we did not write, started on loopback with data of their own, to explore them.

Datasette comes with our `demo` extra; Trac and Luigi with `./setup.sh --peers`.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

import stillweb.harness.demo
from benchmarks.servers import free_port

HERE = Path(__file__).parent
PEERS = HERE.parent.parent / ".venv-peers" / "bin"
NAMES = ("datasette", "trac", "luigi")


def present(name: str) -> bool:
    """Return True if the application is installed."""
    return name == "datasette" or (PEERS / ("tracd" if name == "trac" else "luigid")).exists()


def _run(*words: str | Path) -> None:
    subprocess.run([str(w) for w in words], check=True, capture_output=True, env=_quiet(), timeout=120)


def _quiet(work: Path = HERE) -> dict[str, str]:
    return os.environ | {
        "PYTHONWARNINGS": "ignore",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "LUIGI_CONFIG_PATH": str(work / "luigi.cfg"),
    }


def _penguins(work: Path) -> None:
    """A table of six columns, three of them facets, of the data set that our demo carries."""
    with (Path(stillweb.harness.demo.__file__).parent / "data" / "penguins.csv").open(newline="") as source:
        rows = [
            (
                r["species"],
                r["island"],
                *(None if r[k] in ("", "NA") else r[k] for k in ("body_mass_g", "sex", "year")),
            )
            for r in csv.DictReader(source)
        ]
    with sqlite3.connect(work / "open.db") as database:
        database.execute(
            "CREATE TABLE penguins (id INTEGER PRIMARY KEY, species TEXT, island TEXT, body_mass_g INTEGER, sex TEXT, year INTEGER)"
        )
        database.executemany(
            "INSERT INTO penguins (species, island, body_mass_g, sex, year) VALUES (?, ?, ?, ?, ?)", rows
        )
    database.close()
    table = {"facets": ["species", "island", "sex"], "size": 25}
    (work / "metadata.json").write_text(json.dumps({"databases": {"open": {"tables": {"penguins": table}}}}))


@contextmanager
def serving(name: str, work: Path) -> Iterator[int]:
    """The application on a free port, which it gives. Its files are in `work`, its process ends with the block.

    What an earlier call filled stays: some of it is dated by the moment, and an exploration that goes on must meet it again.
    """
    filled = work / "filled"
    if not filled.exists():
        shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    words: list[str | Path]
    if name == "datasette":
        if not filled.exists():
            _penguins(work)
        words = [sys.executable, "-m", "datasette", "serve", "-i", work / "open.db", "--metadata", work / "metadata.json",
                 "--port", str(port)]  # fmt: skip
    elif name == "trac":
        env = work / "project"
        if not filled.exists():
            _run(PEERS / "trac-admin", env, "initenv", "Rivers", "sqlite:db/trac.db")
            _run(PEERS / "python", HERE / "fill_trac.py", env)
        words = [PEERS / "tracd", "-s", "--hostname", "127.0.0.1", "--port", str(port), "--http11", env]
    else:
        words = [
            PEERS / "luigid",
            "--address",
            "127.0.0.1",
            "--port",
            str(port),
            "--state-path",
            work / "state.pickle",
        ]
        (work / "luigi.cfg").write_text(
            "[scheduler]\nworker_disconnect_delay=100000000\nremove_delay=100000000\nretry_delay=100000000\n"
        )  # else its running tasks end after a minute, and failed ones wait again after a quarter of an hour
        if not filled.exists():
            with _running(words, work, port):  # it keeps its tasks when it ends
                _run(PEERS / "python", HERE / "fill_luigi.py", base)
    filled.touch()
    with _running(words, work, port):
        httpx.get(base, follow_redirects=True, timeout=60)
        yield port


@contextmanager
def _running(words: list[str | Path], work: Path, port: int) -> Iterator[None]:
    with (work / "log.txt").open("ab") as log:
        process = subprocess.Popen([str(w) for w in words], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=_quiet(work))  # fmt: skip
        try:
            _wait(process, port, work)
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, work: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"the application did not start: {(work / 'log.txt').read_text()[-2000:]}")
