"""Drills on three small sites, recorded here: faults, injections, a changed price, an as-of question, drift.

    python examples/drills/drills.py OUT [--injections N] [--times N]

Nothing but loopback is used. OUT gets the snapshots, the layers, and a run with its report for each drill; the table
at the end is written to OUT/drills.json, too.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx

import stillweb
from stillweb.harness.curation.drift import drift
from stillweb.harness.results.certificate import certify
from stillweb.harness.task import Task
from stillweb.harness.view.export import write_report
from stillweb.snapshots.dates import iso_date
from stillweb.snapshots.operations.mutate import injections, mutate

HERE = Path(__file__).resolve().parent
HOSTS = ("tea.example", "ink.example", "rope.example")
PRICES = {"tea.example": "£19", "ink.example": "£7", "rope.example": "£42"}
FILLER = "The shop has been here for many years and tells of its goods at some length. " * 8
FAULTS = {
    "seed": 7,
    "faults": [
        {"id": "busy", "url": "http://tea.example/*", "nth": 1, "status": 503},
        {"id": "slow", "url": "http://ink.example/*", "delay": {"uniform": [0.05, 0.2]}},
        {"id": "broken", "url": "http://rope.example/*", "nth": "1-2", "reset": True},
    ],
}


def page(host: str, price: str) -> bytes:
    """Return the page of a shop."""
    name = host.partition(".")[0]
    return f"<title>{name}</title><h1>{name}</h1><p class=price>{name} costs {price} today</p><p>{FILLER}</p>".encode()


@contextmanager
def serving(prices: dict[str, str]) -> Iterator[int]:
    """Serve the shops on a port of loopback."""

    class Shop(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers["Host"].partition(":")[0]
            body = page(host, prices[host]) if host in prices else b""
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def record(out: Path, prices: dict[str, str]) -> Path:
    """Record the three shops as they are with these prices, and seal the snapshot."""
    with (
        serving(prices) as port,
        stillweb.record(out, resolve=dict.fromkeys(HOSTS, ("127.0.0.1", port))) as recording,
    ):
        with httpx.Client(proxy=recording.recorder.proxy_url("default"), trust_env=False) as client:
            for host in HOSTS:
                client.get(f"http://{host}/")
        recording.recorder.wait_quiet(seconds=0.0, timeout=30.0)
    stillweb.seal(out, out.with_suffix(".wacz"))
    return out.with_suffix(".wacz")


def main() -> int:
    """Make all drills and print what became of each attempt."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--injections", type=int, default=len(injections()), help="How many of the library.")
    parser.add_argument("--times", type=int, default=2, help="How often each certified run is repeated.")
    given = parser.parse_args()
    out: Path = given.out.resolve()
    out.mkdir(parents=True)
    os.chdir(HERE)  # where the runs find agents.py, also when they are repeated
    sys.path.insert(0, str(HERE))
    then = record(out / "then", PRICES)
    time.sleep(1.1)
    now = record(out / "now", {"tea.example": "£23", "ink.example": "£7"})

    tasks = [
        Task(h.partition(".")[0], "What does it cost?", PRICES[h], start_url=f"http://{h}/") for h in HOSTS
    ]
    told: dict[str, Any] = {}

    def run(name: str, agent: str, *snapshots: Path, tasks: list[Task] = tasks, **more: Any) -> stillweb.Run:
        made = stillweb.run(tasks=tasks, agent=f"agents:{agent}", snapshot=snapshots, out=out / name, **more)
        write_report(made.path, out / f"{name}.html")
        return made

    def pair(name: str, plain: stillweb.Run, changed: stillweb.Run) -> None:
        found = stillweb.compare(plain, changed)
        told[name] = {**found.to_json()["drill"], "certificate": changed.certificate["hash"]}
        print(f"== {name}\n{found}\n")

    plain = {agent: run(f"plain-{agent}", agent, then) for agent in ("careful", "naive")}
    for agent in plain:
        pair(f"faults-{agent}", plain[agent], run(f"faults-{agent}", agent, then, faults=FAULTS))

    for name in list(injections())[: given.injections]:
        layer = out / f"layer-{name}"
        with stillweb.open(then) as snapshot:
            mutate(snapshot, {"id": name, "mutations": [{"inject": name}]}, layer)
        for agent in plain:
            changed = run(f"{name}-{agent}", agent, then, layer)
            pair(f"{name}-{agent}", plain[agent], changed)

    with stillweb.open(then) as snapshot:
        entry = {"url": "http://tea.example/", "css": ".price", "text": "tea costs £99 today"}
        mutate(snapshot, {"id": "dearer", "mutations": [entry]}, out / "layer-dearer")
    gold = [
        Task(t.id, t.question, "£99" if t.id == "tea" else t.reference, start_url=t.start_url) for t in tasks
    ]
    pair("dearer-careful", plain["careful"], run("dearer", "careful", then, out / "layer-dearer", tasks=gold))

    with stillweb.open(then) as snapshot:
        date = iso_date(max(capture.timestamp for capture in snapshot.captures()))
    as_of = run("as-of", "careful", then, now, at=date)
    today = run("today", "careful", then, now, at="latest")
    told["as-of"] = {"then": as_of.scores["exact"].mean, "now": today.scores["exact"].mean}
    print(f"== as of {date}: {told['as-of']}")

    with stillweb.open(then) as old, stillweb.open(now) as new:
        found = drift(old, new, tasks)
    told["drift"] = found.to_json()
    print(f"== drift\n{found}")

    told["compare"] = stillweb.compare(as_of, today).to_json()
    print(stillweb.compare(as_of, today))
    told["repeated"] = {}
    for name in ("faults-careful", f"{next(iter(injections()))}-naive", "dearer", "as-of", "today"):
        report = certify(out / name, times=given.times)
        told["repeated"][name] = report.holds
        print(
            f"== {name}, repeated {given.times} times: {'the same certificate' if report.holds else report}"
        )
    holds = all(told["repeated"].values())
    (out / "drills.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
