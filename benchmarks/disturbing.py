"""Cost of the possibility of faults where there are none, in turns: `python -m benchmarks.disturbing [pairs]`.

The same requests are answered as a replay without `--faults` answers them, with the branch of faults and timing cut
out of the code, and with a fault file that no request meets. No reply is remembered, so that each request takes the
branch. CPU time counts, since the machine may be busy; ratios are medians over the turns.
"""

from __future__ import annotations

import inspect
import statistics
import sys
import tempfile
import textwrap
import time
from datetime import UTC, datetime
from pathlib import Path

import click

from stillweb.proxy.replay import answering
from stillweb.proxy.replay.answering import Answerer
from stillweb.proxy.replay.faults import Faults
from stillweb.proxy.replay.ledger import Ledger
from stillweb.snapshots import Snapshot
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.request import Request
from stillweb.snapshots.writer import Writer

PAGES, ROUNDS = 200, 10
IDLE = {"seed": 1, "faults": [{"id": "never", "url": "https://other.test/*", "status": 503}]}
BRANCH = "if self.faults is None and not self.timing:"


class Undisturbed(Answerer):
    """An answerer without the branch of faults and timing."""


def cut_out() -> None:
    """Give `Undisturbed` the code of `Answerer.answer` without its branch."""
    source = textwrap.dedent(inspect.getsource(Answerer.answer))
    if BRANCH not in source:
        sys.exit(f"benchmarks.disturbing: Answerer.answer has no line {BRANCH!r}. Name the present one")
    space = vars(answering).copy()
    exec(source.replace(BRANCH, "if True:"), space)
    Undisturbed.answer = space["answer"]  # type: ignore[method-assign]


def seconds(answerer: Answerer, urls: list[str]) -> float:
    """Return the CPU seconds of one request."""
    line = answerer.state("s")
    started = time.process_time()
    for _ in range(ROUNDS):
        for url in urls:
            answerer.answer(Request("GET", url), line)
    return (time.process_time() - started) / ROUNDS / len(urls)


def main(pairs: int) -> None:
    """Measure in turns and print."""
    cut_out()
    with tempfile.TemporaryDirectory() as folder:
        urls = [f"https://a.test/{number}" for number in range(PAGES)]
        with Writer.open(Path(folder) / "s") as writer:
            for number, url in enumerate(urls):
                media, body = (("Content-Type", "text/plain"),), b"%d " % number * 200
                began = datetime(2026, 1, 1, tzinfo=UTC)
                writer.exchange(Exchange(Request("GET", url), 200, "OK", media, body, began, "s", 1, 2))
        with Snapshot.open(Path(folder) / "s") as snapshot, Ledger() as ledger:
            made = {
                "plain": Answerer(snapshot, ledger),
                "cut out": Undisturbed(snapshot, ledger),
                "idle faults": Answerer(snapshot, ledger, faults=Faults(IDLE)),
            }
            turns = [{name: seconds(one, urls) for name, one in made.items()} for _ in range(pairs + 1)][1:]
    for name in made:
        ratios = sorted(turn[name] / turn["cut out"] for turn in turns)
        middle = statistics.median(turn[name] for turn in turns) * 1e6
        told = f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"
        click.echo(f"{name}: {middle:.1f} us a request, {told} x cut out, {pairs} turns")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
