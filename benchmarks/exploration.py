"""Explorations of real applications: how many hand-listed states they find, and how many views come back the same.

    python -m benchmarks.exploration [datasette] [trac] [luigi] [--depth 2] [--seconds 1500] [--keep DIRECTORY]

Each application runs on loopback with data of its own. Its list (benchmarks/applications/*.yaml) was written by hand;
each way in it is walked in the running application, and counts as found if a stored view shows the same. Then every
view is replayed offline and compared (`stillweb check`). With the same --keep, an exploration that ran out of time goes
on (`--seconds 0` only walks and compares), one that is done is not done again, and what was walked is kept.
Exit code 1 below 95 % found, 98 % of texts, 90 % of pictures.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import click

from benchmarks.applications.servers import HERE, NAMES, present, serving
from benchmarks.applications.states import States, load, missing, named, walk
from stillweb.proxy.browser.browser import BrowserHost, complete
from stillweb.proxy.browser.settle import SettleTimeouts
from stillweb.proxy.check.check import CheckReport, check
from stillweb.proxy.explore.explorer import Explorer, Limits
from stillweb.proxy.explore.graph import Graph, graph_uri
from stillweb.proxy.explore.moves import Choices, Noise, stable_content
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.record.recorder import Recorder
from stillweb.proxy.replay.gateway import Gateway
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer

FOUND, TEXT, PIXELS = 0.95, 0.98, 0.90
PATIENCE = SettleTimeouts(
    real=180.0, stuck=90.0
)  # nothing here hangs for ever; a busy machine may be slow to answer


@dataclass
class Outcome:
    """What one application gave. `lost` are listed states that no view shows."""

    name: str
    listed: int = 0
    lost: list[str] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)
    seconds: float = 0.0
    report: CheckReport | None = None

    @property
    def found(self) -> float:
        """Share of the listed states."""
        return 1 - len(self.lost) / max(1, self.listed)

    @property
    def passed(self) -> bool:
        """Return True if the outcome holds the bars."""
        report = self.report
        return (
            report is not None
            and self.found >= FOUND
            and report.share("text") >= TEXT
            and report.share("pixels") >= PIXELS
        )


def explore(name: str, states: States, work: Path, depth: int, seconds: float, parallel: int = 4) -> Outcome:
    """Explore, walk the list, check."""
    states = states.within(depth)
    outcome = Outcome(name, states.count)
    kept = Kept(work / "kept.json")
    authority = Authority.load_or_create(work / "state")
    profile = complete(Profile())
    with serving(name, work / "application") as port:
        places = {f"{name}.test": ("127.0.0.1", port)}
        limits = Limits(states.views, depth, seconds, delay=0.0, parallel=parallel)
        outcome.graphs = _explore(work / "snap", profile, authority, places, name, states, limits, kept)
        outcome.seconds = kept.seconds
        with (
            Writer.open(work / "walks", profile=profile) as writer,
            Recorder(writer, authority=authority, resolve=places) as recorder,
        ):
            asyncio.run(_walk(recorder, profile, f"http://{name}.test", states, kept, parallel))
    with Snapshot.open(work / "snap") as snapshot:
        for page, graph in zip(states.pages, outcome.graphs, strict=True):
            stored = [
                stable_content(_text(snapshot, "text", node.address), _text(snapshot, "aria", node.address))
                for node in graph.views
            ]
            walked = {named(way): kept.walks[page.url][named(way)] for way in page.states}
            outcome.lost += [f"{page.url}: {one}" for one in missing(walked, stored, Noise(graph.noise))]
        with Gateway(snapshot, authority=authority) as gateway:
            outcome.report = check(snapshot, gateway, parallel=parallel, patience=PATIENCE)
    return outcome


class Kept:
    """What a run leaves to the next beside its snapshot: seconds of exploring, and what each walked way showed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds = 0.0
        self.walks: dict[str, dict[str, str]] = {}
        if path.exists():
            known = json.loads(path.read_text(encoding="utf-8"))
            self.seconds, self.walks = known["seconds"], known["walks"]

    def save(self) -> None:
        """Write it down."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps({"seconds": self.seconds, "walks": self.walks}), encoding="utf-8")


def _explore(
    place: Path,
    profile: Profile,
    authority: Authority,
    places: dict[str, tuple[str, int]],
    name: str,
    states: States,
    limits: Limits,
    kept: Kept,
) -> list[Graph]:
    done: dict[str, Graph] = {}
    if (place / "datapackage.json").exists():
        with Snapshot.open(place) as snapshot:
            for page in states.pages:
                known = snapshot.metadata(graph_uri(f"http://{name}.test{page.url}"))
                if known and not known["ended"].endswith(" s"):
                    done[page.url] = Graph.from_json(known)
    with (
        Writer.open(place, profile=profile) as writer,
        Recorder(writer, authority=authority, resolve=places) as recorder,
    ):
        explorer = Explorer(
            recorder, writer, profile, limits=limits, choices=Choices(states.values), patience=PATIENCE
        )
        for page in states.pages:
            if page.url in done:
                continue
            began = time.monotonic()

            def tell(count: int, address: str, began: float = began) -> None:
                if count % 50 == 0:
                    click.echo(f"  {count} views, {time.monotonic() - began:.0f} s", err=True)

            graph = done[page.url] = explorer.explore(f"http://{name}.test{page.url}", tell)
            kept.seconds += time.monotonic() - began
            kept.save()
            click.echo(f"  {page.url}: {len(graph.views)} views, {graph.ended}", err=True)
    return [done[page.url] for page in states.pages]


async def _walk(
    recorder: Recorder, profile: Profile, base: str, states: States, kept: Kept, parallel: int
) -> None:
    """Walk the ways that are not kept yet, some at a time."""
    few = asyncio.Semaphore(parallel)
    async with BrowserHost(ca=recorder.ca_path) as host:

        async def one(number: int, url: str, way: tuple) -> None:  # type: ignore[type-arg]
            async with few:
                session = f"hand-{number}"
                kept.walks.setdefault(url, {})[named(way)] = await walk(
                    host, session, recorder.proxy_url(session), profile, base + url, way, PATIENCE
                )
                kept.save()

        ways = [(page.url, way) for page in states.pages for way in page.states]
        left = [(url, way) for url, way in ways if named(way) not in kept.walks.get(url, {})]
        await asyncio.gather(*(one(number, url, way) for number, (url, way) in enumerate(left)))


def _text(snapshot: Snapshot, kind: str, address: str) -> str:
    return (snapshot.resource(kind, address) or b"").decode("utf-8", "replace")


def table(outcomes: list[Outcome]) -> str:
    """The outcomes as a Markdown table."""
    lines = [
        "| application | listed states | found | views stored | views/s | text equal | pixels equal | check, views/s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in outcomes:
        views = sum(len(graph.views) for graph in one.graphs)
        report = one.report
        assert report is not None
        lines.append(
            f"| {one.name} | {one.listed} | {one.found:.1%} | {views} | {views / max(1.0, one.seconds):.1f} | "
            f"{report.share('text'):.1%} | {report.share('pixels'):.1%} | {len(report.views) / report.seconds:.1f} |"
        )
    return "\n".join(lines)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option("--depth", default=2, show_default=True)
@click.option("--seconds", default=1500.0, show_default=True, help="Most time for one page.")
@click.option("--parallel", default=4, show_default=True, help="Browser sessions at a time.")
@click.option("--keep", type=click.Path(path_type=Path), help="Where the snapshots are to stay.")
def main(names: tuple[str, ...], depth: int, seconds: float, parallel: int, keep: Path | None) -> None:
    """Explores, counts, checks, prints."""
    outcomes = []
    for name in names or NAMES:
        if not present(name):
            raise click.ClickException(f"{name} is not installed: ./setup.sh --peers")
        with tempfile.TemporaryDirectory() as temporary:
            work = (keep / name) if keep else Path(temporary)
            outcome = explore(name, load(HERE / f"{name}.yaml"), work, depth, seconds, parallel)
        outcomes.append(outcome)
        for one in outcome.lost:
            click.echo(f"  not found: {one}", err=True)
        assert outcome.report is not None
        for view in outcome.report.views:
            if not view.same:
                click.echo(f"  not the same: {view.address} {' > '.join(view.steps)}: text {view.text:.3f}, "
                           f"pixels {view.pixels:.4f}, {view.error or view.missed or view.text_changes[:4]}", err=True)  # fmt: skip
    click.echo(table(outcomes))
    sys.exit(not all(one.passed for one in outcomes))


if __name__ == "__main__":
    main()
