"""No call of a model ends the browser, the tools or the wait of other attempts: what would is refused within bounds."""

import asyncio
import gc
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.tools import Toolset, browser, browser_session, browser_text
from stillweb.harness.tools.contract import ToolResult
from stillweb.harness.tools.toolset import ToolSession
from stillweb.proxy.browser import settle
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.snapshot import Snapshot
from tests.support.every_tool import WIDGETS, make_every_tool_site
from tests.support.waiting import HANG

pytestmark = pytest.mark.own_driver  # which is killed, and given very large messages
LONG = "([1]+)+$"  # takes for ever for a line of ones with another end
ONES = "() => { document.body.innerHTML = `<p>${'1'.repeat(60)}x</p>`; return fetch('/' + '1'.repeat(60) + 'x').catch(() => 0); }"
TALL = "() => { document.body.style.height = '9000000px'; }"
CALLS: dict[str, tuple[list[tuple[str, dict[str, Any]]], str]] = {
    "a result that is too long": (
        [("browser_evaluate", {"function": "() => 'x'.repeat(300 << 20)"})],
        "RangeError: Invalid string length",
    ),
    "a window that is too large": (
        [("browser_resize", {"width": 1e9, "height": 1e9})],
        "1e+09 x 1e+09 pixels are more than can be drawn",
    ),
    "a window that is too wide": (
        [("browser_resize", {"width": 9e6, "height": 1})],
        "9e+06 x 1 pixels are more than can be drawn",
    ),
    "a page that is too tall": (
        [("browser_evaluate", {"function": TALL}), ("browser_take_screenshot", {"fullPage": True})],
        "pixels are more than can be drawn",
    ),
    "an element that is too tall": (
        [("browser_evaluate", {"function": TALL}), ("browser_take_screenshot", {"target": "body"})],
        "pixels are more than can be drawn",
    ),
    "files that are too many": (
        [("browser_drop", {"target": "#to", "paths": ["own.txt"] * 60})],
        "EFBIG: file too large",
    ),
    "a pattern that takes for ever": (
        [("browser_evaluate", {"function": ONES}), ("browser_find", {"regex": LONG})],
        "Timeout 1000ms exceeded",
    ),
    "a filter that takes for ever": (
        [("browser_evaluate", {"function": ONES}), ("browser_network_requests", {"filter": LONG + "x"})],
        "Timeout 1000ms exceeded",
    ),
    "a pattern that nests too deeply": (
        [("browser_find", {"regex": "(" * 5000 + ")" * 5000})],
        "Invalid regular expression",
    ),
    "a pattern that repeats too often": (
        [("browser_network_requests", {"filter": "a{99999999999}"})],
        "Invalid regular expression",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def sessions(tools: tuple[Toolset, asyncio.Runner, Path]) -> Iterator[tuple[ToolSession, ToolSession]]:
    """A session for hostile calls, and one beside it with an open page."""
    toolset, runner, folder = tools
    one, other = toolset.session("one", folder), toolset.session("other")
    assert not runner.run(other.call("browser_navigate", {"url": WIDGETS})).is_error
    yield one, other
    for session in (one, other):
        runner.run(session.close())


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Toolset, asyncio.Runner, Path]]:
    folder = tmp_path_factory.mktemp("hostile")
    make_every_tool_site(folder / "site")
    (folder / "own.txt").write_bytes(b"x" * 1_000_000)
    with Snapshot.open(folder / "site") as snapshot, asyncio.Runner() as runner:
        toolset = Toolset(snapshot, ["playwright-mcp"])
        yield toolset, runner, folder
        runner.run(toolset.close())


def text_of(result: ToolResult) -> str:
    return "\n".join(str(part.get("text", "")) for part in result.content)


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_would_end_or_hold_up_all_is_refused(
    tools: tuple[Toolset, asyncio.Runner, Path],
    sessions: tuple[ToolSession, ToolSession],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    one, other = sessions
    calls, told = CALLS[name]
    if name.endswith("for ever"):
        for module in (browser_text, browser):
            monkeypatch.setattr(module, "MATCHING_SECONDS", 1.0)

    async def play() -> str:
        assert not (await one.call("browser_navigate", {"url": WIDGETS})).is_error
        *before, last = calls
        for tool, arguments in before:
            await one.call(tool, arguments)
        hostile = asyncio.ensure_future(one.call(*last))
        await asyncio.sleep(0.2)
        assert not (await asyncio.wait_for(other.call("browser_snapshot", {}), HANG)).is_error
        said = text_of(await hostile)
        assert not (await one.call("browser_snapshot", {})).is_error
        return said

    assert told in tools[1].run(play())


@pytest.mark.slow
@pytest.mark.parametrize("ended", ["driver", "browser"])
def test_a_browser_that_ends_costs_its_attempts_and_no_later_one(
    tools: tuple[Toolset, asyncio.Runner, Path], ended: str
) -> None:
    toolset, runner, folder = tools

    async def play() -> None:
        sessions = [toolset.session(f"{ended}-{name}", folder) for name in ("one", "two")]
        for session in sessions:
            assert not (await session.call("browser_navigate", {"url": WIDGETS})).is_error
        await asyncio.sleep(1)  # a spare page is made
        driver = children(os.getpid(), "run-driver")
        for process in driver if ended == "driver" else children(driver[0]):
            os.kill(process, signal.SIGKILL)
        await asyncio.sleep(0.5)
        for session in sessions:
            for _ in range(2):  # not in a new window, without the cookies of before
                with pytest.raises(StillwebError, match="the browser has ended"):
                    await session.call("browser_snapshot", {})
            await session.close()
        later = toolset.session(f"{ended}-later", folder)
        assert not (await later.call("browser_navigate", {"url": WIDGETS})).is_error
        await later.close()

    runner.run(play())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "tool"),
    [
        (
            "() => { for (let n = 0; n < 2; n++) console.log('x'.repeat(4 << 20)); }",
            "browser_console_messages",
        ),
        ("() => { document.title = 'x'.repeat(4 << 20); }", "browser_snapshot"),
    ],
)
def test_what_a_page_says_without_end_is_cut(
    tools: tuple[Toolset, asyncio.Runner, Path], function: str, tool: str
) -> None:
    toolset, runner, folder = tools

    async def play() -> str:
        session = toolset.session(tool, folder)
        await session.call("browser_navigate", {"url": WIDGETS})
        await session.call("browser_evaluate", {"function": function})
        said = text_of(await session.call(tool, {"level": "debug"} if "console" in tool else {}))
        await session.close()
        return said

    said = runner.run(play())
    assert "(4194304 characters)" in said
    assert len(said) < 1 << 20


@pytest.mark.slow
def test_no_value_of_a_message_is_kept_after_it(tools: tuple[Toolset, asyncio.Runner, Path]) -> None:
    toolset, runner, folder = tools

    async def play() -> int:
        session = toolset.session("values", folder)
        await session.call("browser_navigate", {"url": WIDGETS})
        logs = "() => { for (let n = 0; n < 50; n++) console.log('a value of a message', {n}); }"
        await session.call("browser_evaluate", {"function": logs})
        left = -1
        for _ in range(100):  # the driver forgets them while the page goes on
            gc.collect()
            handles = [one for one in gc.get_objects() if type(one).__name__ == "JSHandle"]
            if not (left := sum("a value of a message" in str(one) for one in handles)):
                break
            await asyncio.sleep(0.1)
        await session.close()
        return left

    assert runner.run(play()) == 0


FLOODS: dict[str, tuple[str, list[str]]] = {
    "messages": (
        "() => { for (let n = 0; n < 1200; n++) console.log(n); console.error('last'); }",
        ["Total messages: 1201 (Errors: 1, Warnings: 0)", "Left out: 201 older messages", "[ERROR] last"],
    ),
    "long messages": (
        "() => { for (let n = 0; n < 40; n++) console.warn('x'.repeat(1 << 16)); }",
        ["Total messages: 40 (Errors: 0, Warnings: 40)", "Left out: 25 older messages"],
    ),
    "errors": (
        "() => { for (let n = 0; n < 1100; n++) setTimeout(() => { throw new Error('x'); }, 1); }",
        ["Total messages: 1100 (Errors: 1100, Warnings: 0)", "Left out: 100 older messages"],
    ),
    "windows": (  # by turns in three ways, so that one without a bound would go over it
        "() => { const a = Object.assign(document.createElement('a'), { href: 'about:blank', target: '_blank' }); document.body.append(a);"
        " for (let n = 0; n < 15; n++) { open('about:blank'); open('about:blank', '', 'noopener'); a.click(); } }",
        [],
    ),
    "forms": (  # which the context's bound stops, and no script of the document's
        "() => { const f = Object.assign(document.createElement('form'), { action: 'about:blank', target: '_blank' });"
        " document.body.append(f); let n = 0; const i = setInterval(() => { f.submit(); if (++n > 18) clearInterval(i); }, 20); }",
        [],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_messages_or_windows_is_bounded_and_told(
    tools: tuple[Toolset, asyncio.Runner, Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    most = 10 if name == "forms" else 20  # each takes a fifth of a second; a document's scripts may open 20
    monkeypatch.setattr(settle, "MOST_PAGES", 10 if name == "forms" else 40)
    toolset, runner, folder = tools
    function, told = FLOODS[name]

    async def play() -> list[str]:
        session = toolset.session(f"flood of {name}", folder)
        await session.call("browser_navigate", {"url": WIDGETS})
        calls = [
            ("browser_evaluate", {"function": function}),
            ("browser_console_messages", {"level": "debug"}),
            ("browser_tabs", {"action": "list"}),
        ]
        said = [text_of(await session.call(*one)) for one in calls]
        await session.close()
        return said

    evaluated, console, tabs = runner.run(play())
    assert "### Error" not in evaluated
    assert len(console) < 2 << 20
    assert all(line in console for line in told)
    if not told:
        assert "Left out: windows" in evaluated
        assert most / 5 < tabs.count("](about:blank") <= most


REQUESTS = "() => Promise.all([...Array(90).keys()].map((n) => fetch('/?' + n).catch(() => 0)))"
DOWNLOADS = (
    "async () => { const a = Object.assign(document.createElement('a'), {href: 'data:text/plain,x', download: 'x.txt'});"
    " for (let n = 0; n < 30; n++) { a.click(); await new Promise((done) => setTimeout(done, 20)); } }"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "tool", "told"),
    [
        (
            REQUESTS,
            "browser_network_requests",
            r"- Left out: \d+ requests of the page, which sends too many"
            r"(?s:.*)Left out: (5\d|6\d) older requests\n(5\d|6\d)\. \[GET\]",
        ),
        (DOWNLOADS, "browser_snapshot", r"- Left out: \d+ older downloads"),
    ],
)
def test_what_a_page_does_in_a_loop_is_bounded_and_told(
    tools: tuple[Toolset, asyncio.Runner, Path],
    monkeypatch: pytest.MonkeyPatch,
    function: str,
    tool: str,
    told: str,
) -> None:
    monkeypatch.setattr(settle, "MOST_REQUESTS", 40)
    monkeypatch.setattr(browser_session, "MOST_REQUESTS", 40)
    monkeypatch.setattr(browser_session, "MOST_DOWNLOADS", 5)
    toolset, runner, folder = tools

    async def play() -> str:
        session = toolset.session(f"loop {tool}", folder)
        await session.call("browser_navigate", {"url": WIDGETS})
        said = text_of(await session.call("browser_evaluate", {"function": function}))
        await asyncio.sleep(1)
        said += "\n" + text_of(await session.call(tool, {"static": True} if "network" in tool else {}))
        await session.close()
        return said

    assert re.search(told, runner.run(play()))


def children(process: int, words: str = "") -> list[int]:
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    return [int(pid) for pid, parent, *args in rows if int(parent) == process and words in " ".join(args)]
