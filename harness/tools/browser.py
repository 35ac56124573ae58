"""Playwright MCP's browser tools on a snapshot: one browser context for each session, connected to the gateway.

Names, schemas, sections and error texts are the real server's (contracts/playwright-mcp.json). The real server
writes the page's snapshot into a file named by the clock; here the snapshot itself is in the result.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import functools
import json
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import FilePayload, Locator
from playwright.async_api import TimeoutError as PlaywrightTimeout

from stillweb.harness.tools.browser_session import (
    ACTION_MS,
    GIVEN_MS,
    Browsing,
    Problem,
    Reply,
    of_verdict,
    tab_lines,
)
from stillweb.harness.tools.browser_shared import SharedBrowser
from stillweb.harness.tools.browser_text import (
    MATCHING_SECONDS,
    EndlessPattern,
    Sections,
    argument_error,
    contract,
    fill_string,
    find,
    full_url,
    js_string,
)
from stillweb.harness.tools.contract import ToolResult
from stillweb.harness.tools.store import weaker_verdict
from stillweb.harness.tools.workspace import LARGEST, ROOT, OutsideWorkspace, Workspace
from stillweb.proxy.browser.browser import profile_of
from stillweb.proxy.browser.freeze import begin_step, pass_time, step
from stillweb.proxy.browser.page_snapshot import STILL, PageSnapshot, accessible_root, read_page, state_of
from stillweb.proxy.browser.settle import BrowserResponse
from stillweb.proxy.browser.uploads import UploadedFile, put, type_of
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.profile import Profile

if TYPE_CHECKING:
    from stillweb.harness.tools.toolset import Toolset
    from stillweb.proxy.replay.gateway import Gateway


OUTPUT = ROOT / ".playwright-mcp"  # the real server's output folder, which it lists among the allowed roots
_OPENS = """(e) => { const field = e.closest("label")?.control || e;
  return field.localName === "input" && field.type === "file" && !field.disabled; }"""


def outside_roots_error(outside: OutsideWorkspace) -> Problem:
    """Return the real server's refusal of a path outside of its roots."""
    words = fill_string("file_denied", path=outside.path, output=OUTPUT, workspace=ROOT)
    return Problem(words, bare=True)


def read_files(paths: list[str], workspace: Workspace, folder: str) -> list[FilePayload]:
    """Return the files with these paths, of LARGEST bytes together. Raise Problem.

    `folder` is the key of the error text for a directory.
    """
    found: list[FilePayload] = []
    left = LARGEST
    try:
        full = [workspace.resolve(path) for path in paths]
        for path in full:
            try:
                data = workspace.read(str(path), left)
                left -= len(data)
            except IsADirectoryError:
                raise Problem(fill_string(folder)) from None
            except OSError as error:
                code = errno.errorcode.get(error.errno or errno.EIO, "EIO")
                reason = os.strerror(error.errno or errno.EIO).lower()
                raise Problem(fill_string("no_file", code=code, reason=reason, path=path)) from None
            found.append({"name": path.name, "mimeType": type_of(path.name), "buffer": data})
    except OutsideWorkspace as outside:
        raise outside_roots_error(outside) from None
    return found


def file_digests(files: list[FilePayload]) -> list[dict[str, Any]]:
    """Return name and digest of each file, for the trace."""
    return [{"name": one["name"], "digest": f"sha256:{sha256(one['buffer']).hexdigest()}"} for one in files]


async def opens_chooser(locator: Locator) -> bool:
    """Return True if a click on the element opens a file chooser; the browser may report the chooser late."""
    try:
        return bool(await locator.evaluate(_OPENS, timeout=GIVEN_MS))
    except PlaywrightError:
        return False  # the click will report the error


async def file_upload(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """Give files to the open file chooser, or cancel it: `browser_file_upload`."""
    paths: list[str] | None = given.get("paths")
    reply.with_snapshot = True
    shown = "undefined" if paths is None else json.dumps(paths, ensure_ascii=False, separators=(",", ":"))
    reply.code(f"await fileChooser.setFiles({shown})")
    try:
        files = await asyncio.to_thread(read_files, paths or [], session.workspace, "upload_folder")
    except Problem as problem:
        if not problem.bare:  # the real server closes the chooser before it looks for the file
            session.tab.take_chooser()
        raise
    chooser = session.tab.take_chooser()
    assert chooser is not None
    if paths is not None:
        if len(files) > 1 and not chooser.is_multiple():
            raise Problem(fill_string("upload_one"))
        plain = [UploadedFile(one["name"], one["mimeType"], one["buffer"]) for one in files]
        try:
            await session.until_dialog(put(chooser.element, session.page, plain))
            reply.files = file_digests(files)
        except PlaywrightError:
            raise Problem(fill_string("context_lost")) from None
    await session.wait_until_quiet()


async def drop(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """Drop files or data onto an element: `browser_drop`."""
    paths, data = given.get("paths"), given.get("data")
    if not paths and data is None:
        raise Problem(fill_string("drop_neither"))
    reply.with_snapshot = True
    locator, code = await session.locate(given["target"], given.get("element"))
    files = await asyncio.to_thread(read_files, paths or [], session.workspace, "drop_folder")
    await session.until_dialog(locator.drop({"files": files, "data": data}, timeout=GIVEN_MS))
    reply.files = file_digests(files)
    await session.wait_until_quiet()
    parts: dict[str, Any] = {} if data is None else {"data": data}
    if paths:
        parts["files"] = paths[0] if len(paths) == 1 else paths
    reply.code(f"await page.{code}.drop({_object(parts)});")


def _object(value: Any) -> str:
    """Write a value as the real server does in its code: keys sorted, without quotes, nested ones not indented."""
    if isinstance(value, str):
        return js_string(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_object, value))}]"
    lines = ",\n".join(f"  {key}: {_object(value[key])}" for key in sorted(value))
    return f"{{\n{lines}\n}}" if lines else "{}"


Action = Callable[[Browsing, dict[str, Any], Reply], Awaitable[None]]
CLEARS = {"browser_handle_dialog": "dialog", "browser_file_upload": "chooser"}  # tool -> the Tab's member
# tools that run despite an open dialog or chooser, since the real server binds them to no tab
NOT_HELD = {"browser_close", "browser_tabs", "browser_navigate"}
EVALUATE_SECONDS = 30.0
# key combinations that copy, cut or paste
_CLIPS = re.compile(r"(?:\w+\+)+(?:Key[CVX]|[CVX]|Insert|Delete|Numpad0|NumpadDecimal)", re.I)
# modifiers as the real server writes them in its code lines, in its order
_MODIFIERS = (
    ({"Alt"}, "Alt"),
    ({"Control", "ControlOrMeta"}, "ControlOrMeta"),
    ({"Meta"}, "ControlOrMeta"),
    ({"Shift"}, "Shift"),
)


MOST_PIXELS = 1 << 26  # of the viewport or a screenshot: 4 bytes each
LONGEST_SIDE = 1 << 16
_FULL_SIZE = """() => [document.documentElement, document.body].reduce(
  ([width, height], e) => e ? [Math.max(width, e.scrollWidth), Math.max(height, e.scrollHeight)] : [width, height], [0, 0])"""


async def navigate(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """Load a URL or a view: `browser_navigate`."""
    url = full_url(given["url"])
    reply.address = await session.navigate(url)
    reply.with_snapshot = True
    reply.code(f"await page.goto({js_string(url)});")


async def navigate_back(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """Go back in the history: `browser_navigate_back`."""
    await session.page.go_back(wait_until="commit")
    await session.wait_until_quiet()
    reply.with_snapshot = True
    reply.code("await page.goBack();")


async def snapshot(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """Show the accessibility snapshot of the page or an element: `browser_snapshot`."""
    root = (await session.locate(given["target"]))[0] if given.get("target") else None
    await session.wait_until_quiet()
    depth = int(given["depth"]) if "depth" in given else None
    reply.explicit = (root, depth, given.get("boxes"))


async def click(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """Click or double-click an element: `browser_click`."""
    locator, code = await session.locate(given["target"], given.get("element"))
    button, modifiers = given.get("button"), given.get("modifiers")
    options: dict[str, Any] = {"timeout": GIVEN_MS}
    shown = []
    if button:
        options["button"] = button
        shown += [f"button: {js_string(button)}"] if button != "left" else []
    if modifiers:
        options["modifiers"] = modifiers
        keys = [word for names, word in _MODIFIERS if names & set(modifiers)]
        shown.append(f"modifiers: [{', '.join(map(js_string, keys))}]")
    verb = "dblclick" if given.get("doubleClick") else "click"
    reply.with_snapshot = True
    more = "{\n  " + ",\n  ".join(shown) + "\n}" if shown else ""
    reply.code(f"await page.{code}.{verb}({more});")
    action = locator.dblclick if given.get("doubleClick") else locator.click
    chooses = await opens_chooser(locator)
    await session.until_dialog(action(**options))
    if chooses:
        await session.tab.wait_for_chooser()
    await session.wait_until_quiet()


async def hover(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """Move the mouse over an element: `browser_hover`."""
    locator, code = await session.locate(given["target"], given.get("element"))
    reply.with_snapshot = True
    reply.code(f"await page.{code}.hover();")
    await session.until_dialog(locator.hover(timeout=GIVEN_MS))
    await session.wait_until_quiet()


async def drag(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """Drag one element onto another: `browser_drag`."""
    start, start_code = await session.locate(given["startTarget"], given.get("startElement"))
    end, end_code = await session.locate(given["endTarget"], given.get("endElement"))
    reply.with_snapshot = True
    await session.until_dialog(start.drag_to(end, timeout=GIVEN_MS))
    await session.wait_until_quiet()
    reply.code(f"await page.{start_code}.dragTo(page.{end_code});")


async def type_text(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    locator, code = await session.locate(given["target"], given.get("element"))
    text = given["text"]
    if given.get("slowly"):
        reply.with_snapshot = True
        reply.code(f"await page.{code}.pressSequentially({js_string(text)});")
        await session.until_dialog(locator.press_sequentially(text, timeout=GIVEN_MS))
    else:
        reply.code(f"await page.{code}.fill({js_string(text)});")
        await session.until_dialog(locator.fill(text, timeout=GIVEN_MS))
    if given.get("submit"):
        reply.with_snapshot = True
        reply.code(f"await page.{code}.press('Enter');")
        await session.until_dialog(locator.press("Enter", timeout=GIVEN_MS))
    await session.wait_until_quiet()


async def press_key(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """Press a key; lend the session's clipboard for keys that copy, cut or paste: `browser_press_key`."""
    key = given["key"]
    reply.code(f"// Press {key}")
    reply.code(f"await page.keyboard.press({js_string(key)});")
    reply.with_snapshot = key == "Enter"
    pressing = session.until_dialog(session.page.keyboard.press(key))
    if _CLIPS.fullmatch(key):
        session.clipboard = await session.shared.clipboard.during(pressing, session.clipboard)
    else:
        await pressing
    await session.wait_until_quiet()


async def select_option(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    locator, code = await session.locate(given["target"], given.get("element"))
    values = given["values"]
    shown = js_string(values[0]) if len(values) == 1 else f"[{', '.join(map(js_string, values))}]"
    reply.with_snapshot = True
    reply.code(f"await page.{code}.selectOption({shown});")
    await session.until_dialog(locator.select_option(values, timeout=GIVEN_MS))
    await session.wait_until_quiet()


async def fill_form(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """Fill several form fields: `browser_fill_form`."""
    for one in given["fields"]:
        locator, code = await session.locate(one["target"], one["name"])
        kind, value = one["type"], one["value"]
        if kind in ("textbox", "slider"):
            await session.until_dialog(locator.fill(value, timeout=GIVEN_MS))
            reply.code(f"await page.{code}.fill({js_string(value)});")
        elif kind in ("checkbox", "radio"):
            await session.until_dialog(locator.set_checked(value == "true", timeout=GIVEN_MS))
            reply.code(f"await page.{code}.{'check' if value == 'true' else 'uncheck'}();")
        else:
            await session.until_dialog(locator.select_option(label=value, timeout=GIVEN_MS))
            reply.code(f"await page.{code}.selectOption({js_string(value)});")
    await session.wait_until_quiet()


async def wait_for(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """Wait for a time or a text, by the page's clock and not the machine's: `browser_wait_for`."""
    assert session.traffic is not None
    time, text, gone = given.get("time"), given.get("text"), given.get("textGone")
    if not time and not text and not gone:
        raise Problem(fill_string("wait_none"))
    await begin_step(session.page, session.traffic)
    if time:
        reply.code(f"await new Promise(f => setTimeout(f, {_number(time)} * 1000));")
        await session.until_dialog(
            pass_time(session.page, session.traffic, min(30.0, time), session.patience)
        )
    for wanted, state in ((gone, "hidden"), (text, "visible")):
        if not wanted:
            continue
        shown = '"' + js_string(wanted)[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
        reply.code(f"await page.getByText({shown}).first().waitFor({{ state: '{state}' }});")
        for _ in range(ACTION_MS // 250):
            seen = await session.until_dialog(session.page.get_by_text(wanted).first.is_visible())
            if seen == (state == "visible"):
                break
            await session.until_dialog(pass_time(session.page, session.traffic, 0.25, session.patience))
            if session.tab.dialog is not None:  # the page does not change behind a dialog
                raise Problem(fill_string("timeout", ms=ACTION_MS))
            await begin_step(session.page, session.traffic)
        else:
            raise Problem(fill_string("timeout", ms=ACTION_MS))
    reply.result(fill_string("waited", what=text or gone or _number(time)))
    await session.wait_until_quiet()
    reply.with_snapshot = True


def _number(value: Any) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


async def find_in(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """Search the page's accessibility snapshot for a text or pattern: `browser_find`."""
    text, regex = given.get("text"), given.get("regex")
    if not text and not regex:
        reply.error(fill_string("find_neither"))
    elif text and regex:
        reply.error(fill_string("find_both"))
    else:
        where = await accessible_root(session.page)
        seen = "" if where is None else await where.aria_snapshot(mode="ai", timeout=GIVEN_MS)
        reply.result(await _found("browser_find", "regex", asyncio.to_thread(find, seen, text, regex)))


async def _found(tool: str, argument: str, work: Awaitable[str | None]) -> str:
    """Return the result of a search by a pattern. Raise Problem for an invalid pattern, and for one that takes too long."""
    try:
        found = await work
    except EndlessPattern:
        raise Problem(fill_string("timeout", ms=int(MATCHING_SECONDS * 1000))) from None
    if found is None:
        problem = fill_string("problem", message="Invalid regular expression", path=argument)
        raise Problem(fill_string("invalid", name=tool, problems=problem))
    return found


async def tabs(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """List, open, select or close tabs: `browser_tabs`."""
    action, index = given["action"], given.get("index")
    if action == "new":
        await session.new_tab()
        if given.get("url"):
            await navigate(session, given, reply)
    elif action == "select":
        if index is None:
            raise Problem("Error: Tab index is required")
        session.current = _index(session, index)
    elif action == "close":
        place = session.current if index is None else _index(session, index)
        await session.tabs[place].page.close()
        reply.closed = not session.tabs
    reply.result("\n".join(await tab_lines(session)))


def _index(session: Browsing, index: float) -> int:
    if index != int(index) or not 0 <= index < len(session.tabs):
        raise Problem(fill_string("no_tab", index=_number(index)))
    return int(index)


async def evaluate(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """Evaluate JavaScript, while the page's clock goes on: `browser_evaluate`."""
    assert session.traffic is not None
    expression = given["function"]
    wrapper = """async (%s) => {
      const value = eval(`(${expression})`);
      const called = typeof value === "function";
      const text = JSON.stringify(await (called ? value(element) : value), null, 2) ?? "undefined";
      if (text.length > MOST) throw new RangeError("Invalid string length");
      return [text, called];
    }""".replace("MOST", str(LARGEST))
    locator, code = (
        await session.locate(given["target"], given.get("element")) if given.get("target") else (None, "")
    )
    if locator is not None:
        work = locator.evaluate(wrapper % "element, expression", expression)
    else:
        work = session.page.evaluate(wrapper.replace("value(element)", "value()") % "expression", expression)
    task = asyncio.ensure_future(session.until_dialog(work))
    deadline = asyncio.get_running_loop().time() + EVALUATE_SECONDS
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=0.03)
            if not task.done() and session.tab.dialog is None:
                passing = step(
                    session.page, session.traffic, 50, session.patience, "whole: true, through: true"
                )
                await session.until_dialog(passing)
            if asyncio.get_running_loop().time() > deadline:
                raise Problem(fill_string("timeout", ms=int(EVALUATE_SECONDS * 1000)))
        answer = task.result()
    except PlaywrightError as error:
        text = error.message
        reply.error(re.sub(r"^(Page|Locator)\.evaluate: ", "", text).splitlines()[0])
        return
    finally:
        task.cancel()
    await session.wait_until_quiet()
    if answer is None:
        return  # a dialog blocks the evaluation
    text, called = answer
    shown = expression if called else f"() => ({expression})"
    reply.code(
        f"await page.{code}.evaluate({js_string(shown)});"
        if code
        else f"await page.evaluate({js_string(shown)});"
    )
    reply.result(text)


async def network_requests(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """List the tab's requests: `browser_network_requests`."""
    listed = session.tab.network(bool(given.get("static")), given.get("filter"))
    reply.result(await _found("browser_network_requests", "filter", listed))


async def network_request(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """Show one request of the list: `browser_network_request`."""
    text = await session.tab.request(int(given["index"]), given.get("part"))
    if text is None:
        reply.error(fill_string("no_request", index=int(given["index"])))
    elif text:
        reply.result(text)


async def console_messages(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    reply.result(session.tab.console(given.get("level", "info"), bool(given.get("all"))))


def _refuse_area(width: float, height: float) -> None:
    """Raise Problem for more pixels than one attempt may use of the browser that it shares with others."""
    if abs(width * height) > MOST_PIXELS or max(width, height) > LONGEST_SIDE:
        raise Problem(f"Error: {width:g} x {height:g} pixels are more than can be drawn.")


async def take_screenshot(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """Take a screenshot, which is in the result under a name without a time: `browser_take_screenshot`."""
    if given.get("fullPage") and given.get("target"):
        raise Problem("Error: fullPage cannot be used with element screenshots.")
    kind = given.get("type") or ("jpeg" if re.search(r"\.jpe?g$", given.get("filename") or "") else "png")
    options: dict[str, Any] = {"type": kind, "scale": given.get("scale", "css"), "animations": "disabled"}
    options |= {"style": STILL}
    options |= {"quality": 90} if kind == "jpeg" else {}
    label = "full page" if given.get("fullPage") else "viewport"
    place = "page"
    if given.get("target"):
        locator, place = await session.locate(given["target"], given.get("element"))
        label = given.get("element") or "element"
        box = await locator.bounding_box(timeout=GIVEN_MS)
        _refuse_area(*((box["width"], box["height"]) if box else (0, 0)))
        data = await locator.screenshot(**options, timeout=GIVEN_MS)
        place = f"page.{place}"
    else:
        if given.get("fullPage"):
            _refuse_area(*await session.page.evaluate(_FULL_SIZE))
        data = await session.page.screenshot(**options, full_page=bool(given.get("fullPage")), timeout=15_000)
    name = given.get("filename") or f"screenshot.{'jpeg' if kind == 'jpeg' else 'png'}"
    reply.result(f"- [Screenshot of {label}]({name})")
    reply.code(f"// Screenshot {label} and save it as {name}")
    reply.code(
        f"await {place}.screenshot({{\n  path: {js_string(name)},\n  scale: 'css',\n  type: {js_string(kind)}\n}});"
    )
    reply.images.append(
        {"type": "image", "data": base64.b64encode(data).decode(), "mimeType": f"image/{kind}"}
    )


async def handle_dialog(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """Accept or dismiss the dialog: `browser_handle_dialog`."""
    dialog = session.tab.dialog
    assert dialog is not None
    session.tab.forget_dialog()
    if given["accept"]:
        await dialog.accept(given.get("promptText") or "")
    else:
        await dialog.dismiss()
    await session.wait_until_quiet()


async def resize(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """Set the size of the viewport: `browser_resize`."""
    width, height = int(given["width"]), int(given["height"])
    _refuse_area(width, height)
    reply.code(f"await page.setViewportSize({{ width: {width}, height: {height} }});")
    await session.page.set_viewport_size({"width": width, "height": height})
    await session.wait_until_quiet()


async def close(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    await session._close()
    reply.closed = True
    reply.result(fill_string("no_tabs"))
    reply.code("await page.close()")


ACTIONS: dict[str, Action] = {
    "browser_close": close,
    "browser_resize": resize,
    "browser_console_messages": console_messages,
    "browser_handle_dialog": handle_dialog,
    "browser_evaluate": evaluate,
    "browser_file_upload": file_upload,
    "browser_drop": drop,
    "browser_find": find_in,
    "browser_fill_form": fill_form,
    "browser_press_key": press_key,
    "browser_type": type_text,
    "browser_navigate": navigate,
    "browser_navigate_back": navigate_back,
    "browser_network_requests": network_requests,
    "browser_network_request": network_request,
    "browser_take_screenshot": take_screenshot,
    "browser_snapshot": snapshot,
    "browser_click": click,
    "browser_drag": drag,
    "browser_hover": hover,
    "browser_select_option": select_option,
    "browser_tabs": tabs,
    "browser_wait_for": wait_for,
}


CONTRACT = "playwright-mcp@0.0.79"


@dataclass(eq=False)
class BrowserSession(Browsing):
    """Browser of one agent, with its tools.

    `call` and `close` may be awaited in any event loop. The calls of a session run one after the other.
    """

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a tool. Every failure is a result with `is_error`; only a missing browser and one that has ended raise."""
        return await self.shared.run(self._call(name, dict(arguments)))

    async def _call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        if not await self.is_lost():
            try:
                result = await self._answered_call(name, arguments)
            except PlaywrightError:
                if not await self.is_lost():
                    raise
            else:
                if not (result.is_error and await self.is_lost()):
                    return result
        raise StillwebError(
            "the browser has ended, and the pages of all attempts with it. Make the attempts again: --retry-failed"
        )

    async def _answered_call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        self._lock = self._lock or asyncio.Lock()
        async with self._lock:
            schema = next((tool["inputSchema"] for tool in contract()["tools"] if tool["name"] == name), None)
            if schema is None or name not in ACTIONS:
                return ToolResult([{"type": "text", "text": fill_string("unknown_tool", name=name)}], True)
            arguments = _renamed(arguments)
            if problem := argument_error(name, arguments, schema):
                return self._error(problem)
            for key, one in schema.get("properties", {}).items():
                if "default" in one:
                    arguments.setdefault(key, one["default"])
            await self._tab_ready()
            assert self.traffic is not None
            since = self.answers_reported
            reply, lacks, failed = Reply(self), None, None
            try:
                self._refuse_outside(arguments.get("filename"))
                self._refuse_held(name)
                await ACTIONS[name](self, arguments, reply)
                self._refuse_missed_page(since)
                await self.leave_forbidden()
            except Problem as problem_found:
                reply.sections = Sections(
                    errors=[str(problem_found)], modal=[] if problem_found.bare else self.modal()
                )
                reply.images.clear()
                lacks, failed = problem_found.miss, problem_found.failed
                reply.address = lacks
            except PlaywrightTimeout:
                reply.sections = Sections(errors=[fill_string("timeout", ms=ACTION_MS)])
            except PlaywrightError as error:
                reply.sections = Sections(errors=[f"Error: browserBackend.callTool: {_plain(error)}"])
            else:
                await reply.finish()
            missed = self.new_misses()
            reply.add_misses(missed)
            return await self._answer(reply, since, [one.url for one in missed], lacks, failed)

    async def look(self) -> PageSnapshot | None:
        """Return what the current tab shows; None without a page, or while a dialog covers it."""
        return await self.shared.run(self._look())

    async def _look(self) -> PageSnapshot | None:
        if not self.tabs or self.tab.dialog is not None or self.tab.page.is_closed():
            return None
        return await read_page(self.tab.page)

    def _error(self, text: str) -> ToolResult:
        sections = Sections(errors=[text])
        return ToolResult([{"type": "text", "text": sections.text()}], True, {"contract": CONTRACT})

    async def _answer(
        self, reply: Reply, since: int, missed: list[str], lacks: str | None, failed: str | None
    ) -> ToolResult:
        assert self.traffic is not None
        answers = self.traffic.answers[since:]
        verdicts = [_told(one.verdict) for one in answers if one.verdict] + self.new_faults()
        worst = functools.reduce(weaker_verdict, sorted(verdicts)) if verdicts else None
        is_error = bool(reply.sections.errors)
        meta: dict[str, Any] = {
            "contract": CONTRACT,
            "verdict": failed or ("miss" if lacks or (missed and is_error) else worst),
            "captures": [place for one in answers if (place := self._place(one))],
            "state": await self._state(),
        }
        if reply.address or (self.tabs and self.tab.url != "about:blank"):
            meta["address"] = reply.address or self.tab.url
        if self.doubted:
            meta["ambiguous"] = True
            self.doubted = False
        if self.unsure is not None:
            meta |= self.unsure.members()
            self.unsure = None
        if missed:
            meta["missed"] = missed
        if reply.files:
            meta["uploads"] = reply.files
        return ToolResult([{"type": "text", "text": reply.sections.text()}, *reply.images], is_error, meta)

    def _place(self, answer: BrowserResponse) -> dict[str, Any] | None:
        """Return the file, offset and payload digest of the capture that an answer names, or None."""
        name, _, offset = answer.capture.rpartition(":")
        if not name or not offset.isdigit():
            return None
        place: dict[str, Any] = {"file": name, "offset": int(offset)}
        if self.snapshot is not None:
            capture = self.snapshot.capture_at((name, int(offset)), answer.url)
            if capture is not None:
                place["digest"] = capture.digest
        return place

    async def _state(self) -> dict[str, Any] | None:
        """Return the retrieval state: URL, fragment, form values, chosen filters, page number, sort."""
        if not self.tabs or self.tab.dialog is not None or self.tab.page.is_closed():
            return None
        try:
            return await asyncio.wait_for(state_of(self.tab.page), 60)
        except (PlaywrightError, TimeoutError):
            return None

    def _refuse_held(self, name: str) -> None:
        """Raise Problem if a dialog or file chooser must be answered before this tool may run."""
        if name in CLEARS:
            if getattr(self.tab, CLEARS[name]) is None:
                raise Problem(fill_string("no_modal", name=name))
            return
        # a dialog stops navigation, a file chooser does not
        held = self.tab.dialog is not None and name not in NOT_HELD - {"browser_navigate"}
        if held or (self.tab.chooser is not None and name not in NOT_HELD):
            raise Problem(fill_string("modal", name=name))

    def _refuse_outside(self, filename: str | None) -> None:
        """Raise Problem if a `filename` leads out of the workspace. No file is written in any case."""
        try:
            self.workspace.resolve(filename or "", OUTPUT)
        except OutsideWorkspace as outside:
            raise outside_roots_error(outside) from None

    def _refuse_missed_page(self, since: int) -> None:
        """Raise Problem (a network error) if the tab's document was missed or failed while recording."""
        assert self.traffic is not None
        for one in self.traffic.answers[since:]:
            reason = (
                of_verdict(one.verdict) if one.kind == "document" and _same(one.url, self.tab.url) else ""
            )
            if reason:
                raise Problem(fill_string("network", reason=reason, url=one.url), verdict=one.verdict)


def _plain(error: PlaywrightError) -> str:
    text = error.message
    head, _, rest = text.partition(": ")
    return rest if "." in head and " " not in head else text


def _same(one: str, other: str) -> bool:
    return one.partition("#")[0] == other.partition("#")[0]


def _renamed(arguments: dict[str, Any]) -> dict[str, Any]:
    """Rename arguments from before April 2026 (`ref`) to today's names."""
    names = {"ref": "target", "startRef": "startTarget", "endRef": "endTarget"}
    for old, new in names.items():
        if old in arguments and new not in arguments:
            arguments[new] = arguments.pop(old)
    if isinstance(arguments.get("fields"), list):
        arguments["fields"] = [
            _renamed(dict(one)) if isinstance(one, dict) else one for one in arguments["fields"]
        ]
    return arguments


def _told(verdict: str) -> str:
    """Return a request's verdict as a call's: its kind, with the name of what was changed on purpose."""
    kind = verdict.partition(":")[0]
    return verdict if kind in ("fault", "mutated") else kind


class BrowserTool:
    """Tools of the contract for one toolset.

    The toolset's options may have a `gateway` and a `browser` (SharedBrowser). A missing one is started when first
    needed and closed with the tool.
    """

    def __init__(self, toolset: Toolset) -> None:
        self._toolset = toolset
        self._gateway: Gateway | None = toolset.options.get("gateway")
        self._browser: SharedBrowser | None = toolset.options.get("browser")
        self._own = contextlib.ExitStack()
        self._profile: Profile | None = None

    def open(self, session: str) -> BrowserSession:
        """Return the browser of a session; its context opens with the first call."""
        from stillweb.harness.tools.service_hosts import http_hosts
        from stillweb.proxy.replay.gateway import Gateway

        snapshot = self._toolset.snapshot
        if self._gateway is None:
            accept = getattr(self._toolset.store, "accept", "rule")
            hosts = http_hosts(self._toolset)
            faults = self._toolset.store.faults
            gateway = Gateway(
                snapshot,
                accept=accept,
                min_confidence=self._toolset.store.min_confidence,
                virtual_hosts=hosts,
                own_pages=False,
                faults=faults,
                timing=self._toolset.store.timing,
            )
            self._gateway = self._own.enter_context(gateway)
        if self._browser is None:
            self._browser = SharedBrowser(ca=self._gateway.ca_path)
            self._own.callback(self._browser.close)
        self._profile = self._profile or profile_of(snapshot)
        return BrowserSession(self._browser, self._gateway, snapshot, session, self._profile)

    async def call(self, name: str, arguments: dict[str, Any], visit: object) -> ToolResult:
        """Raise NotImplementedError: calls go to the BrowserSession that `open` returned."""
        raise NotImplementedError(name)

    async def close(self) -> None:
        """Close the gateway and the browser that this tool started."""
        await asyncio.to_thread(self._own.close)


def make_tool(toolset: Toolset) -> BrowserTool:
    """Return the tool; named in `toolset.MAKERS`."""
    return BrowserTool(toolset)
