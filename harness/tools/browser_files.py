"""Files given to a page: those of the workspace, read here, as the page of a frozen web may see them.

The page gets name, type and bytes, and a time of its own clock: what a path alone would tell it (when the file was
written) is of this machine.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import FilePayload, Locator

from stillweb.harness.tools.browser_reply import Reply
from stillweb.harness.tools.browser_session import GIVEN_MS, Browsing, Problem
from stillweb.harness.tools.browser_text import quoted, said
from stillweb.proxy.pages.uploads import Given, put, type_of

OUTPUT = ".playwright-mcp"  # where the real server writes, which it names among the allowed roots
_OPENS = """(e) => { const field = e.closest("label")?.control || e;
  return field.localName === "input" && field.type === "file" && !field.disabled; }"""


def read_files(paths: list[str], workspace: Path, folder: str) -> list[FilePayload]:
    """The files, relative to the workspace and within it. Raises Problem; `folder` is what is said of a directory."""
    full = [Path(os.path.normpath(workspace / path)) for path in paths]
    for path in full:
        if not path.is_relative_to(workspace) or not path.resolve().is_relative_to(workspace.resolve()):
            words = said("file_denied", path=path, output=workspace / OUTPUT, workspace=workspace)
            raise Problem(words, bare=True)
    found: list[FilePayload] = []
    for path in full:
        try:
            data = path.read_bytes()
        except IsADirectoryError:
            raise Problem(said(folder)) from None
        except OSError:
            raise Problem(said("no_file", path=path)) from None
        found.append({"name": path.name, "mimeType": type_of(path.name), "buffer": data})
    return found


async def opens_chooser(locator: Locator) -> bool:
    """Whether a click on the element opens a file chooser, of which the browser tells when it likes."""
    try:
        return bool(await locator.evaluate(_OPENS, timeout=GIVEN_MS))
    except PlaywrightError:
        return False  # the click will say why


async def file_upload(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """browser_file_upload."""
    paths: list[str] | None = given.get("paths")
    reply.with_snapshot = True
    shown = "undefined" if paths is None else json.dumps(paths, ensure_ascii=False, separators=(",", ":"))
    reply.code(f"await fileChooser.setFiles({shown})")
    try:
        files = await asyncio.to_thread(read_files, paths or [], session.workspace, "upload_folder")
    except Problem as problem:
        if not problem.bare:  # the real server looks for the file when the chooser is already gone
            session.tab.took()
        raise
    chooser = session.tab.took()
    assert chooser is not None
    if paths is not None:
        if len(files) > 1 and not chooser.is_multiple():
            raise Problem(said("upload_one"))
        plain = [Given(one["name"], one["mimeType"], one["buffer"]) for one in files]
        try:
            await session.until_dialog(put(chooser.element, session.page, plain))
        except PlaywrightError:
            raise Problem(said("context_lost")) from None
    await session.rest()


async def drop(session: Browsing, given: dict[str, Any], reply: Reply) -> None:
    """browser_drop."""
    paths, data = given.get("paths"), given.get("data")
    if not paths and data is None:
        raise Problem(said("drop_neither"))
    reply.with_snapshot = True
    locator, code = await session.locate(given["target"], given.get("element"))
    files = await asyncio.to_thread(read_files, paths or [], session.workspace, "drop_folder")
    await session.until_dialog(locator.drop({"files": files, "data": data}, timeout=GIVEN_MS))
    await session.rest()
    parts: dict[str, Any] = {} if data is None else {"data": data}
    if paths:
        parts["files"] = paths[0] if len(paths) == 1 else paths
    reply.code(f"await page.{code}.drop({_object(parts)});")


def _object(value: Any) -> str:
    """A value as the real server writes it in code: keys sorted and bare, nested ones not indented."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_object, value))}]"
    lines = ",\n".join(f"  {key}: {_object(value[key])}" for key in sorted(value))
    return f"{{\n{lines}\n}}" if lines else "{}"
