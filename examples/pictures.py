"""The pictures of the documentation, taken anew in Chromium.

stillweb demo -o /tmp/demo
python -m examples.pictures /tmp/demo docs/pictures
"""

from __future__ import annotations

import sys
from pathlib import Path

from stillweb.harness.view.server import ViewServer
from stillweb.harness.view.site import Site
from tests.support.pages import chromium

SIZE = {"width": 1100, "height": 760}
RUN = "/run/run"
SHOWN = {
    "run": RUN,
    "attempt": f"{RUN}/attempt/electricity_001.1",
    "step": f"{RUN}/attempt/electricity_001.1#step-3",
    "compare": "/compare?show=all",
    "divergence": "/divergence/run/penguins_001.1/run/weather_001.1",
    "snapshot": "/snapshot/site.wacz",
    "map": "/snapshot/site.wacz/map",
}


def take(demo: Path, out: Path) -> list[Path]:
    """Write view-NAME.png for each page of SHOWN, and for the page that a step saw and the form of a review."""
    site = Site([demo / "run", demo / "run-again"])
    with ViewServer(site) as server, chromium(viewport=SIZE, color_scheme="light") as page:
        taken = []
        for name, path in SHOWN.items():
            page.goto(server.url.rstrip("/") + path)
            page.wait_for_load_state("networkidle")
            taken.append(out / f"view-{name}.png")
            page.screenshot(path=taken[-1])
        page.goto(server.url.rstrip("/") + SHOWN["step"])
        page.locator("form.review").scroll_into_view_if_needed()
        taken.append(out / "view-review.png")
        page.screenshot(path=taken[-1])
        page.locator("#step-3").get_by_role("link", name="Page it saw").click()
        page.wait_for_load_state("networkidle")
        page.locator("iframe.page").scroll_into_view_if_needed()
        taken.append(out / "view-page.png")
        page.screenshot(path=taken[-1])
    return taken


if __name__ == "__main__":
    take(*map(Path, sys.argv[1:3]))
