"""Files that a browser keeps: told in the words of Playwright MCP 0.0.79, and the page stays."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.harness.tools.browsed import Browsed, browsed
from tests.harness.tools.frozen import Recorder
from tests.support.waiting import until

SITE = "https://files.test"
PAGE = "<title>Files</title><a href=/data.csv>data</a> <a href=/page.html>page</a>"
DATA = f"{uuid4()},b\n1,2\n"
TOLD = "### Events\n- Downloading file birds.csv ..."


def make(site: Recorder) -> None:
    site.add(f"{SITE}/", PAGE)
    site.add(f"{SITE}/page.html", "<title>Page</title><p>a page</p>")
    attached = (("Content-Disposition", "attachment; filename=birds.csv"),)
    site.add(f"{SITE}/data.csv", DATA, "text/csv", headers=attached)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browsed]:
    with browsed(tmp_path_factory.mktemp("downloads") / "s", make, ["playwright-mcp"]) as found:
        yield found


@pytest.mark.slow
def test_a_file_is_told_by_the_call_that_caused_it_and_no_other(served: Browsed) -> None:
    call = served.session()
    call("browser_navigate", url=f"{SITE}/")
    clicked = call("browser_click", target="text=data")
    assert clicked.text.endswith(TOLD)
    assert f"- Page URL: {SITE}/\n" in clicked.text
    assert "### Events" not in call("browser_snapshot").text
    gone_to = call("browser_navigate", url=f"{SITE}/data.csv")
    assert not gone_to.is_error
    assert gone_to.text.startswith(
        f"### Ran Playwright code\n```js\nawait page.goto('{SITE}/data.csv');\n```"
    )
    assert gone_to.text.endswith(TOLD)
    assert gone_to.meta["verdict"] == "exact"
    went = call("browser_click", target="text=page")
    assert "- Page Title: Page" in went.text
    assert "### Events" not in went.text


def kept() -> list[Path]:
    """The files with the data in the folders of all browsers of this machine."""
    return [
        path
        for path in Path(tempfile.gettempdir()).glob("playwright-artifacts-*/*")
        if path.is_file() and path.stat().st_size == len(DATA) and path.read_text() == DATA
    ]


@pytest.mark.slow
def test_files_take_no_room_while_the_attempt_goes_on(served: Browsed) -> None:
    """A page that saved 100 MB again and again filled the disk."""
    call = served.session()
    call("browser_navigate", url=f"{SITE}/")
    for _ in range(3):
        assert call("browser_click", target="text=data").text.endswith(TOLD)
    assert until(lambda: not kept())
