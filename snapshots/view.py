"""A view: a state of a page, named by its URL and the steps that lead there."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

# one key names the action, its value the arguments: {"select": {"label": "Year", …}}
Step = Annotated[dict[str, dict[str, Any]], msgspec.Meta(min_length=1, max_length=1)]

RESOURCES = {  # kind of resource record -> its media type
    "view": "image/png",
    "dom": "text/html;charset=utf-8",
    "aria": "text/plain;charset=utf-8",
    "text": "text/plain;charset=utf-8",
    "pageinfo": "application/json",
    "files": "application/octet-stream",  # the files that its steps upload, concatenated
}


def view_id(url: str, steps: list[Step] | tuple[Step, ...]) -> str:
    """Return the id of a view: 16 hex digits of the SHA-256 of its URL and canonical steps."""
    canonical = json.dumps([url, list(steps)], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


# The fragment of a snapshot address: a view, or one of several responses (`texts.freezing.text_address`)
OF_A_URL = re.compile(r"#(view|text)=[0-9a-f]{16}$")


def id_in(address: str) -> str | None:
    """Return the view's id in an address such as `URL#view=0123456789abcdef`; None for any other fragment."""
    found = re.search(r"#view=([0-9a-f]{16})$", address)
    return found[1] if found else None


def view_address(url: str, steps: list[Step] | tuple[Step, ...]) -> str:
    """Return the address of a view: its URL, with the id in the fragment if there are steps."""
    if not steps:
        return url
    return f"{url.partition('#')[0]}#view={view_id(url, steps)}"


@dataclass(frozen=True, slots=True)
class View:
    """A stored view. Its screenshot, DOM, accessibility snapshot and text are resource records.

    `captures` are the (url, verdict or digest) of the exchanges it caused; `parent` is the address of the
    view it was reached from; `state` holds values read off the page (form values, page number, …).
    """

    address: str
    url: str  # the start page, fragment included
    final_url: str  # in the address bar after the last step
    title: str
    steps: tuple[Step, ...] = ()
    parent: str | None = None
    timestamp: str = ""
    session: str = ""
    captures: tuple[dict[str, Any], ...] = ()
    state: dict[str, Any] | None = None

    @property
    def id(self) -> str:
        return view_id(self.url, self.steps)
