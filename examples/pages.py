"""The pages of the examples, all made up here, and the snapshots they are kept in.

python -m examples.pages        makes sgr/ferries.wacz, sgi/papers.wacz and browsecomp/harbours.wacz anew
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.request import Request
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer

HERE = Path(__file__).parent
MOMENT = datetime(2025, 3, 1, 12, 0, 0, tzinfo=UTC)

# id, route, crossing minutes, first run, operator, season, shore, seats
FERRIES = [
    ("F-07", "Quay A, Mole", "12.5", "1998-05-02", "Harbour Lines", "winter", "north", 180),
    ("F-02", "Quay B, Mole", "14", "2003-11-20", "North Boats", "winter", "north", 90),
    ("F-11", "Quay A, Isle", "21", "2015-03-01", "Harbour Lines", "winter", "north", 240),
    ("F-15", "Quay C, Isle", "23.5", "2011-09-30", "North Boats", "winter", "north", 60),
    ("F-03", "Pier 1, Mole", "11", "1987-06-14", "Harbour Lines", "summer", "north", 120),
    ("F-09", "Pier 2, Cape", "33", "1999-04-04", "Cape Ferries", "summer", "south", 300),
    ("F-20", "Pier 2, Isle", "27.5", "2018-07-01", "Cape Ferries", "winter", "south", 150),
    ("F-21", "Pier 3, Cape", "30", "2019-01-15", "Cape Ferries", "winter", "south", 210),
    ("F-22", "Pier 3, Mole", "41", "2020-10-10", "North Boats", "winter", "south", 80),
]


def page(title: str, body: str) -> str:
    """A page."""
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>'
        f"<body><main><h1>{title}</h1>{body}</main></body></html>"
    )


def ferries() -> Iterator[tuple[str, str]]:
    """A timetable: nothing of it shows until season and shore are chosen."""
    site = "https://ferries.example"
    yield (
        f"{site}/timetable",
        page(
            "Timetable",
            "<p>Choose a season (winter, summer) and a shore (north, south), and by what to sort: "
            "crossing_min or first_run. The list is at /timetable with these as parameters, for example "
            '<a href="/timetable?season=winter&amp;shore=north">winter, north</a>.</p>',
        ),
    )
    for season in ("winter", "summer"):
        for shore in ("north", "south"):
            for order in ("", "crossing_min", "first_run"):
                chosen = [f for f in FERRIES if (f[5], f[6]) == (season, shore)]
                if order:
                    chosen.sort(key=lambda f: float(f[2]) if order == "crossing_min" else f[3])
                query = urlencode({"season": season, "shore": shore} | ({"sort": order} if order else {}))
                head = "<tr><th>ferry_id</th><th>route</th><th>crossing_min</th><th>first_run</th><th>operator</th></tr>"
                rows = "".join(f"<tr>{''.join(f'<td>{c}</td>' for c in f[:5])}</tr>" for f in chosen)
                shown = f"<p>{len(chosen)} ferries of the {shore} shore, {season} timetable.</p>"
                yield f"{site}/timetable?{query}", page("Timetable", f"{shown}<table>{head}{rows}</table>")
    for f in FERRIES:
        text = f"<p>{f[0]} is run by {f[4]} from {f[1].split(',')[0]} and carries {f[7]} passengers.</p>"
        yield f"{site}/ferry/{f[0]}", page(f"Ferry {f[0]}", text)


def papers() -> Iterator[tuple[str, str]]:
    """Two notes on water tanks, for the deep research task."""
    site = "https://tanks.example"
    yield (
        f"{site}/notes/losses",
        page(
            "Losses of open tanks",
            "<p>An open tank of the kind used at the station loses 3 % of the water it holds each day, "
            "measured over the spring of the year in question.</p>",
        ),
    )
    yield (
        f"{site}/notes/covers",
        page("Covers", "<p>With a cover the daily loss falls to 0.4 % of the water that the tank holds.</p>"),
    )


_PLACES = [
    "Alder",
    "Birch",
    "Cedar",
    "Dogwood",
    "Elm",
    "Fir",
    "Gorse",
    "Hazel",
    "Ivy",
    "Juniper",
    "Larch",
    "Maple",
]


def harbours() -> Iterator[tuple[str, str]]:
    """Harbours with long, dull descriptions, one of which answers the question; one page is gone."""
    site = "https://harbours.example"
    for number, name in enumerate(_PLACES):
        year = 1901 + 7 * number
        sentences = [
            f"{name} Harbour was opened in {year} and its mole is {200 + 13 * number} metres long.",
            f"The keeper of the light at {name} was {'Ada Quill' if name == 'Hazel' else 'not recorded'}.",
        ]
        for month in range(1, 1 + 12 * (1 + number % 4)):
            sentences.append(
                f"In month {month} of the log, {17 * month % 90} boats entered {name} Harbour and "
                f"{13 * month % 80} left it, with {(7 * month + number) % 11} days of fog."
            )
        body = "".join(f"<p>{text}</p>" for text in sentences)
        yield f"{site}/{name.lower()}", page(f"{name} Harbour", body)


Pages = Callable[[], Iterator[tuple[str, str]]]  # URL, HTML
SNAPSHOTS: Mapping[str, tuple[Pages, tuple[tuple[str, int], ...]]] = {
    "sgr/ferries.wacz": (ferries, ()),
    "sgi/papers.wacz": (papers, ()),
    "browsecomp/harbours.wacz": (harbours, (("https://harbours.example/sunken", 410),)),
}


def make(path: Path, pages: Pages, gone: tuple[tuple[str, int], ...] = ()) -> None:
    """Records the pages into a new sealed snapshot; `gone` are addresses that answered with an error."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "pages"
        with Writer.open(directory) as writer:
            answers = [(url, 200, "OK", html) for url, html in pages()]
            answers += [
                (url, status, "Gone", page("Gone", "<p>This page is gone.</p>")) for url, status in gone
            ]
            for number, (url, status, reason, html) in enumerate(answers):
                begin, end = writer.event("example"), writer.event("example")
                moment = MOMENT + timedelta(seconds=number)
                request = Request("GET", url, (), b"")
                headers = (("Content-Type", "text/html; charset=utf-8"),)
                writer.exchange(
                    Exchange(request, status, reason, headers, html.encode(), moment, "example", begin, end)
                )
        sealed = seal(directory)
        shutil.move(sealed.path, path)


if __name__ == "__main__":
    for name, (site, dead) in SNAPSHOTS.items():
        make(HERE / name, site, dead)
