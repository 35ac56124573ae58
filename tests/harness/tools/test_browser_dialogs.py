"""A dialog that opens while a tool waits: the tool ends, and says what holds the page."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stillweb.harness.tools.contract import ToolResult
from tests.harness.tools.browsed import browsed
from tests.support.waiting import HANG

SITE = "https://late.test/"
PAGE = """<title>Late</title><p>hello</p>
<script>setTimeout(() => { alert("boo"); document.body.append("now"); }, 6000)</script>"""
BOO = '### Modal state\n- ["alert" dialog with message "boo"]: can be handled by browser_handle_dialog'


@pytest.mark.slow
def test_a_dialog_ends_what_waits_for_the_page(tmp_path: Path) -> None:
    """Both waited for ever: a page that a dialog holds answers nothing."""
    with browsed(tmp_path / "s", lambda site: site.add(SITE, PAGE), ["playwright-mcp"]) as served:
        session = served.toolset.session("s")

        def call(name: str, **given: object) -> ToolResult:
            return served.runner.run(asyncio.wait_for(session.call(name, given), HANG))

        call("browser_navigate", url=SITE)
        waits = "() => new Promise(done => setTimeout(() => { alert('hm'); done(1) }, 300))"
        evaluated = call("browser_evaluate", function=waits)
        assert not evaluated.is_error
        assert '["alert" dialog with message "hm"]' in evaluated.text
        assert not call("browser_handle_dialog", accept=True).is_error
        waited = call("browser_wait_for", text="now")
        assert waited.is_error
        assert waited.text == (
            f"### Error\nTimeoutError: browserBackend.callTool: Timeout 5000ms exceeded.\n{BOO}"
        )
        assert not call("browser_handle_dialog", accept=True).is_error
        assert "Waited for now" in call("browser_wait_for", text="now").text
