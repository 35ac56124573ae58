"""Messages that a web socket sent unasked reach an agent that waits, as they reached the page when recorded."""

from pathlib import Path

import pytest

from tests.harness.tools.browsed import browsed
from tests.harness.tools.frozen import Recorder

SITE = "https://news.test"
PAGE = """<h1>News</h1><p id=news>none</p><script>
new WebSocket("wss://news.test/talk").onmessage = (e) => { news.textContent = e.data; };</script>"""


def make(recorder: Recorder) -> None:
    recorder.add(f"{SITE}/", PAGE)
    said = [{"from": "server", "text": text} for text in ("welcome", "the mill is open", "the mill is shut")]
    more = {"session": "s", "begin": 9, "messages": said, "looked": 1, "looks": [[0, 1], [1, 2], [2, 3]]}
    recorder.writer.metadata(f"{SITE}/talk", {"url": f"{SITE}/talk", **more})


@pytest.mark.slow
def test_who_waits_is_told_what_time_had_brought(tmp_path: Path) -> None:
    with browsed(tmp_path / "s", make, ["playwright-mcp"]) as toolset:
        call = toolset.session()
        assert "paragraph" in (first := call("browser_navigate", url=f"{SITE}/").text)
        assert "welcome" in first
        assert "the mill is open" in call("browser_wait_for", time=1).text
        assert "the mill is shut" in call("browser_wait_for", text="shut").text
        hasty = toolset.session()
        hasty("browser_navigate", url=f"{SITE}/")
        assert "the mill is shut" in hasty("browser_wait_for", text="shut").text
