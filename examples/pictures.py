"""The pictures of the documentation, taken anew in Chromium.

stillweb demo -o /tmp/demo
python -m examples.endpoint examples/sgr/model.yaml -- stillweb run …      as examples/sgr/README.md says
python -m examples.pictures /tmp/demo/run /tmp/sgr docs/pictures
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from stillweb.harness.report import write_report
from stillweb.harness.review.page import ReviewServer
from tests.support.pages import chromium

SIZE = {"width": 1180, "height": 860}


def take(demo: Path, tables: Path, out: Path) -> list[Path]:
    """Writes report.png, report-steps.png (of `demo`), review.png and review-form.png (of `tables`)."""
    with tempfile.TemporaryDirectory() as folder:
        page_of_demo = write_report(demo, Path(folder) / "report.html").as_uri()
        with chromium(viewport=SIZE, color_scheme="light") as page:
            page.goto(page_of_demo)
            page.screenshot(path=out / "report.png")
            _shown(page, "details.attempt[open]", out / "report-steps.png")
    with ReviewServer(tables) as server, chromium(viewport=SIZE, color_scheme="light") as page:
        page.goto(server.url)
        form = page.locator("form.review").first
        form.locator("[name=reviewer]").fill("ada")
        form.locator("[name=class]").select_option("final answer composition error")
        _shown(page, "details.attempt[open]", out / "review.png")
        page.locator("details.attempt[open] h3", has_text="Hints").first.scroll_into_view_if_needed()
        page.evaluate(
            "document.querySelector('details.attempt[open] form').scrollIntoView({block: 'center'})"
        )
        page.screenshot(path=out / "review-form.png")
    return [out / f"{name}.png" for name in ("report", "report-steps", "review", "review-form")]


def _shown(page: Any, selector: str, path: Path) -> None:
    page.evaluate("s => document.querySelector(s).scrollIntoView()", selector)
    page.screenshot(path=path)


if __name__ == "__main__":
    demo, tables, out = map(Path, sys.argv[1:4])
    take(demo, tables, out)
