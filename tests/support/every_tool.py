"""A frozen site on which every tool of every contract has something to do, and a call of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stillweb.snapshots.writer import Writer
from tests.harness.tools.frozen import BIRDS, REPORT, SEARCH_BODY, SITE, Recorder, make_site

WIDGETS = f"{SITE}/widgets"
PAGE = """<!DOCTYPE html><title>Widgets</title><h1>Widgets</h1><button id=ask onclick="confirm('Sure?')">Ask</button>
<input aria-label=Name><select aria-label=Pick><option>A</option><option>B</option></select>
<input type=file id=file><div id=from draggable=true>from</div><div id=to ondragover="event.preventDefault()">to</div><a href=/birds/index.html>birds</a>"""

Call = tuple[str, dict[str, Any]]
CALLS: dict[str, list[Call]] = {
    "mcp-fetch": [
        ("fetch", {"url": BIRDS}),
        ("fetch", {"url": BIRDS, "max_length": 20, "start_index": 7}),
        ("fetch", {"url": f"{SITE}/data.json", "raw": True}),
        ("fetch", {"url": "https://never.test/"}),
        ("fetch", {"url": BIRDS, "max_length": 0}),
    ],
    "serper-mcp": [
        ("google_search", dict(SEARCH_BODY)),
        ("google_search", {"q": "never asked", "gl": "us", "hl": "en"}),
        ("scrape", {"url": BIRDS, "includeMarkdown": True}),
    ],
    "pdf-reader": [
        ("read_pdf", {"sources": [{"url": REPORT, "pages": "1-2"}], "include_metadata": True}),
        ("read_pdf", {"sources": [{"url": BIRDS}]}),
    ],
    "playwright-mcp": [
        ("browser_resize", {"width": 900, "height": 700}),
        ("browser_navigate", {"url": WIDGETS}),
        ("browser_snapshot", {}),
        ("browser_find", {"text": "pick"}),
        ("browser_hover", {"target": "#to"}),
        ("browser_drag", {"startTarget": "#from", "endTarget": "#to"}),
        ("browser_type", {"target": "role=textbox", "text": "Ada"}),
        ("browser_press_key", {"key": "Tab"}),
        ("browser_select_option", {"target": "role=combobox", "values": ["B"]}),
        ("browser_fill_form", {"fields": [{"target": "role=textbox", "name": "Name", "type": "textbox", "value": "Bo"}]}),
        ("browser_drop", {"target": "#to", "data": {"text/plain": "dropped"}}),
        ("browser_click", {"target": "#file"}),
        ("browser_file_upload", {}),
        ("browser_evaluate", {"function": "() => 6 * 7"}),
        ("browser_click", {"target": "#ask"}),
        ("browser_handle_dialog", {"accept": True}),
        ("browser_wait_for", {"text": "Widgets"}),
        ("browser_console_messages", {"level": "info"}),
        ("browser_network_requests", {"static": True}),
        ("browser_network_request", {"index": 1, "part": "response-body"}),
        ("browser_take_screenshot", {"scale": "css"}),
        ("browser_tabs", {"action": "list"}),
        ("browser_click", {"target": "text=birds"}),
        ("browser_navigate_back", {}),
        ("browser_close", {}),
    ],
}  # fmt: skip


def make_every_tool_site(path: Path) -> Path:
    """The tools' site with a page of widgets."""
    make_site(path).close()
    with Writer.open(path) as writer:
        Recorder(writer).add(WIDGETS, PAGE, session="browser")
    return path
