"""Generator of the demo's two PDFs, with Chromium: `python -m stillweb.harness.demo.make_pdfs`.

The PDFs are committed; this program documents how they were made.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean

from playwright.sync_api import sync_playwright

from stillweb.harness.demo.site import HERE, rows
from stillweb.proxy.browser.browser import find_browser

STYLE = """<style>body { font: 12pt/1.5 "DejaVu Serif", serif } table { border-collapse: collapse; width: 100% }
td, th { border-bottom: 1px solid #999; text-align: left; padding: 2pt 6pt } section { break-after: page }</style>"""


def _table(heads: list[str], body: list[list[str]]) -> str:
    def line(tag: str, cells: list[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"

    return f"<table>{line('th', heads)}{''.join(line('td', row) for row in body)}</table>"


def _section(title: str, body: str, level: int = 2) -> str:
    return f"<section><h{level}>{title}</h{level}>{body}</section>"


def penguin_report() -> str:
    """Return one page per species: mean sizes by island and year, of the birds that were weighed."""
    groups: dict[str, dict[tuple[str, str], list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows("penguins"):
        if row["body_mass_g"] not in ("", "NA"):
            groups[row["species"]][row["island"], row["year"]].append(row)
    intro = "<p>Counts and mean sizes, 2007 to 2009, one page for each species. Birds never weighed are left out.</p>"
    pages = [_section("Penguins of the Palmer Archipelago", intro, level=1)]
    heads = ["Island", "Year", "Birds", "Mean body mass (g)", "Mean flipper length (mm)"]
    for species in sorted(groups):
        body = []
        for (island, year), birds in sorted(groups[species].items()):
            mass = fmean(float(bird["body_mass_g"]) for bird in birds)
            flipper = fmean(float(bird["flipper_length_mm"]) for bird in birds)
            body.append([island, year, str(len(birds)), f"{mass:.0f}", f"{flipper:.1f}"])
        pages.append(_section(species, _table(heads, body)))
    return "".join([STYLE, *pages])


def weather_report() -> str:
    """Return one page per year: wet days, precipitation and the highest temperature of each month."""
    intro = "<p>A wet day is one with any precipitation. One page for each year, 2012 to 2015.</p>"
    pages = [_section("Seattle weather in review", intro, level=1)]
    heads = ["Month", "Wet days", "Precipitation (mm)", "Highest (°C)"]
    for year in ("2012", "2013", "2014", "2015"):
        body = []
        for month in range(1, 13):
            days = [row for row in rows("seattle-weather") if row["date"].startswith(f"{year}/{month:02d}")]
            rain = [float(day["precipitation"]) for day in days]
            highest = max(float(day["temp_max"]) for day in days)
            body.append(
                [f"{month:02d}", str(sum(mm > 0 for mm in rain)), f"{sum(rain):.1f}", f"{highest:.1f}"]
            )
        pages.append(_section(year, _table(heads, body)))
    return "".join([STYLE, *pages])


REPORTS = (
    ("penguins-in-review", "Penguins of the Palmer Archipelago", penguin_report()),
    ("seattle-in-review", "Seattle weather in review", weather_report()),
)


def main() -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(find_browser()), args=["--no-sandbox"])
        page = browser.new_page()
        for name, title, html in REPORTS:
            page.set_content(f"<!doctype html><html lang=en><title>{title}</title>{html}")
            page.pdf(path=HERE / "pdf" / f"{name}.pdf", format="A4", tagged=True, outline=True)
        browser.close()


if __name__ == "__main__":
    main()
