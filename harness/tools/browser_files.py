"""File uploads and drops: files of the session's workspace that are given to a page.

The page gets name, type and bytes, and a time of its own clock. It gets no path, because the file's own time belongs
to this machine.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
from hashlib import sha256
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import FilePayload, Locator

from stillweb.harness.tools.browser_reply import Reply
from stillweb.harness.tools.browser_session import GIVEN_MS, Browsing, Problem
from stillweb.harness.tools.browser_text import fill_string, js_string
from stillweb.harness.tools.workspace import LARGEST, ROOT, OutsideWorkspace, Workspace
from stillweb.proxy.browser.uploads import UploadedFile, put, type_of

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
