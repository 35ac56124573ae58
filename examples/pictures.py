"""The pictures of the documentation, taken anew in Chromium: of the demo, and of three agents on its snapshot.

stillweb demo -o /tmp/demo     (a folder without your name in it: its path is drawn)
python -m examples.pictures /tmp/demo docs/pictures

The three agents are functions, without a model. Each makes 200 attempts (50 penguins of the demo's open data, four
times): `careful` reads the page of the species, too, `hasty` the first page only, and `swapped` takes the neighbouring
column for birds of the second page.
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path
from typing import Any

from PIL import Image

import stillweb as sw
from stillweb.harness.agents.attempt import Attempt
from stillweb.harness.demo import site as demo_site
from stillweb.harness.task import Task
from stillweb.harness.view.server import ViewServer
from stillweb.harness.view.site import Site
from tests.support.pages import chromium

SIZE = {"width": 1100, "height": 760}
MOST = 150_000  # bytes of a picture
FIRST = "https://data.example/open/penguins"
PAGES = (FIRST, f"{FIRST}?species=Chinstrap")
BIRDS = (*range(1, 26), *range(277, 303))
RUN = "/run/run"
SHOWN = {
    "run": RUN,
    "attempt": f"{RUN}/attempt/electricity_001.1",
    "compare": "/compare?run=run&run=run-again&show=all",
    "snapshot": "/snapshot/site.wacz",
    "map": "/snapshot/site.wacz/map",
    "200": "/run/hasty?k=4",
    "three-runs": "/compare?run=careful&run=hasty&run=swapped",
    "divergence": "/divergence/careful/penguin_290.1/hasty/penguin_290.1",
}


def tasks() -> list[Task]:
    """Return a task for each of 50 penguins, with the measurements of the open data as its reference."""
    with (Path(demo_site.__file__).parent / "data" / "penguins.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    rubric = {
        "columns": ["id", "flipper", "mass"],
        "row_key": ["id"],
        "fields": {"flipper": {"type": "integer"}, "mass": {"type": "integer"}},
    }
    return [
        Task(
            f"penguin_{bird:03}",
            f"How long is the flipper of penguin {bird} of the open database, in mm, and how heavy is the bird, in g? Answer with one row id|flipper|mass.",
            f"{bird}|{rows[bird - 1]['flipper_length_mm']}|{rows[bird - 1]['body_mass_g']}",
            "table",
            options={"rubric": rubric},
        )
        for bird in BIRDS
        if rows[bird - 1]["body_mass_g"].isdecimal()
    ]


async def _rows(attempt: Attempt, url: str) -> list[list[str]]:
    """Fetch a page and return the rows of its tables."""
    result = await attempt.call("fetch", {"url": url, "max_length": 100_000})
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", str(result.content[0]["text"]))
    return [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]


async def _look_up(attempt: Attempt, pages: tuple[str, ...], column: int = 5) -> str:
    """Answer from the first page that has the bird; from the last row that was read if none has it."""
    bird = attempt.task.id.rpartition("_")[2].lstrip("0")
    row: list[str] = []
    for number, url in enumerate(pages):  # noqa: B007 -- the page that was read last
        rows = await _rows(attempt, url)
        row = next((row for row in rows if row[0] == bird), rows[-1])
        if row[0] == bird:
            break
    flipper = row[column if number else 5]
    return f"{bird}|{flipper}|{row[6]}"


async def careful(attempt: Attempt) -> str:
    return await _look_up(attempt, PAGES)


async def hasty(attempt: Attempt) -> str:
    return await _look_up(attempt, PAGES[:1])


async def swapped(attempt: Attempt) -> str:
    return await _look_up(attempt, PAGES, 4)


def make_runs(demo: Path) -> list[Path]:
    """Run the three agents on the demo's snapshot, and return the directories of the runs."""
    made = []
    for agent in (careful, hasty, swapped):
        out = demo / agent.__name__
        sw.run(
            tasks=tasks(),
            agent=agent,
            snapshot=demo / "site.wacz",
            out=out,
            contracts=["mcp-fetch"],
            epochs=4,
        )
        made.append(out)
    return made


def take(demo: Path, out: Path) -> list[Path]:
    """Write view-NAME.png for each page of SHOWN, the page that a step saw, that page made again, and a review's form."""
    site = Site([demo / "run", demo / "run-again", *make_runs(demo)])
    taken: list[Path] = []

    def picture(page: Any, name: str) -> None:
        path = out / f"view-{name}.png"
        page.screenshot(path=path)
        Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)
        if path.stat().st_size > MOST:
            raise SystemExit(f"{path}: has more than {MOST:,} bytes. Show less of the page")
        taken.append(path)

    for table in site.tables.values():
        table.refresh(None)
    with ViewServer(site) as server, chromium(viewport=SIZE, color_scheme="light") as page:
        page.set_default_timeout(120_000)
        home = server.url.rstrip("/")
        for name, path in SHOWN.items():
            page.goto(home + path)
            page.locator("[hx-trigger*=load]").first.wait_for(state="detached")  # all is worked out
            page.wait_for_load_state("networkidle")
            picture(page, name)
        page.goto(f"{home}{SHOWN['attempt']}#step-3")
        page.locator("form.review").scroll_into_view_if_needed()
        picture(page, "review")
        page.locator("#step-3").get_by_role("link", name="Page it saw").click()
        page.wait_for_load_state("networkidle")
        page.locator("iframe.page").scroll_into_view_if_needed()
        picture(page, "page")
        page.goto(f"{home}{SHOWN['attempt']}/page/3")
        page.get_by_role("button", name="Make the page").click()
        page.get_by_role("heading", name="Its text").wait_for()
        picture(page, "made-again")
    return taken


if __name__ == "__main__":
    take(*map(Path, sys.argv[1:3]))
