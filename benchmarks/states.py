"""`python -m benchmarks.states [--seeds N]`: servers that remember, walked at random while recording, and otherwise in replay.

Each walk is by a client of its own. In replay each request is also asked of a live server that has been asked the same
ones, which tells whether an answer is right. A wrong answer that is not said to be unsure is the worst that can be; how many
are unsure, or misses, is the price. Where the request had only ever been answered in one way, nothing recorded could have
told: those are counted apart.
"""

from __future__ import annotations

import random
import sys
from collections import Counter, defaultdict
from pathlib import Path
from urllib.parse import urljoin

import click

from benchmarks.mini_services import SITES
from benchmarks.mini_sites import Memory, Mini, asked_of
from stillweb.snapshots.capture import Response
from stillweb.snapshots.matching.ladder import Matcher
from stillweb.snapshots.request import Request
from tests.support.memory_store import MemoryStore, Recorded

HERE = Path(__file__).parent
RECORDED, OTHER = "as recorded", "other walks"
RIGHT, WRONG, UNTOLD, UNSURE, MISS = "right", "wrong", "wrong, untold", "unsure", "miss"
COLUMNS = [(kind, what) for kind in (RECORDED, OTHER) for what in (RIGHT, WRONG, UNTOLD, UNSURE, MISS)]
Figures = Counter[tuple[str, str]]


def walk(mini: Mini, draw: random.Random, length: int) -> list[Request]:
    """Requests at random, most of them of a few kinds, as a visitor makes them."""
    few = draw.sample(mini.requests, min(len(mini.requests), draw.randint(3, 5)))
    return [draw.choice(few if draw.random() < 0.8 else mini.requests) for _ in range(length)]


def followed(request: Request, response: Response) -> Request | None:
    """What a client asks next of its own accord."""
    to = response.header("location")
    return Request("GET", urljoin(request.url, to)) if to else None


def measure(mini: Mini, seed: int) -> Figures:
    """One recording of one to three sessions, its own walks again, and two others."""
    draw = random.Random(f"{mini.name} {seed}")
    walks = [walk(mini, draw, draw.choice((6, 10, 16, 25))) for _ in range(1 + seed % 3)]
    recorded: list[Recorded] = []
    for number, requests in enumerate(walks):
        memory: Memory = {}
        for first in requests:
            request: Request | None = first
            while request is not None:
                response = mini.answer(memory, asked_of(request))
                recorded.append(Recorded(request, response, f"s{number}"))
                request = followed(request, response)
    over = Matcher(MemoryStore(recorded))
    said: dict[Request, set[bytes]] = defaultdict(set)
    for one in recorded:
        said[one.request].add(b"%d %s" % (one.response.status, one.response.body))
    found: Figures = Counter()
    for requests in walks:
        found.update(
            {(RECORDED, what): count for what, count in replayed(mini, over, requests, said).items()}
        )
    for _ in range(2):
        told = replayed(mini, over, walk(mini, draw, 10), said)
        found.update({(OTHER, what): count for what, count in told.items()})
    return found


def replayed(
    mini: Mini, over: Matcher, requests: list[Request], said: dict[Request, set[bytes]]
) -> Counter[str]:
    """What a walk is answered with, beside a live server that is asked the same."""
    session, memory = over.session("replay"), Memory()
    found: Counter[str] = Counter()
    for first in requests:
        request: Request | None = first
        while request is not None:
            expected = mini.answer(memory, asked_of(request))
            lookup = over.lookup(request, session)
            if lookup.capture is None:
                found[MISS] += 1
                break
            session.answered(lookup)
            given = over.snapshot.read(lookup.capture)
            if lookup.ambiguous:
                found[UNSURE] += 1
            elif (given.status, given.headers, given.body) == (
                expected.status,
                expected.headers,
                expected.body,
            ):
                found[RIGHT] += 1
            else:
                found[WRONG if len(said[request]) > 1 else UNTOLD] += 1
            request = followed(request, given)
    return found


def table(seeds: int) -> str:
    """A row for each server, as Markdown."""
    lines = [
        f"| | {' | '.join(f'{kind}: {what}' for kind, what in COLUMNS)} |",
        f"|---|{'---|' * len(COLUMNS)}",
    ]
    total: Figures = Counter()
    for mini in SITES:
        click.echo(f"walking {mini.name}", err=True)
        found: Figures = Counter()
        for seed in range(seeds):
            found.update(measure(mini, seed))
        total.update(found)
        lines.append(_row(mini.name.replace("_", " "), found))
    return "\n".join([*lines, _row("all", total)])


def _row(name: str, found: Figures) -> str:
    return f"| {name} | {' | '.join(str(found[column]) for column in COLUMNS)} |"


ABOUT = """# States: servers that remember

Written by `python -m benchmarks.states --keep`; see there how it is measured, and `mini_sites.py` and `mini_services.py` for the servers. "Wrong" is
a wrong answer that was not said to be unsure, where the recording had another one to the same request; "wrong, untold" is one
where it had not, so that nothing recorded could tell.

"""


@click.command()
@click.option("--seeds", default=60, show_default=True, help="Recordings of each server.")
@click.option("--keep", is_flag=True, help="Write STATES.md.")
def main(seeds: int, keep: bool) -> None:
    """Prints the table of right, wrong, unsure and missing answers."""
    text = table(seeds)
    click.echo(text)
    if keep:
        (HERE / "STATES.md").write_text(ABOUT + text + "\n")


if __name__ == "__main__":
    sys.exit(main())
