"""A view: a state of a page, named by its URL and the steps that lead there."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

Step = dict[str, Any]  # one key names the action, its value the arguments: {"select": {"label": "Year", …}}

RESOURCES = {  # kind of resource record -> its media type
    "view": "image/png",
    "dom": "text/html;charset=utf-8",
    "aria": "text/plain;charset=utf-8",
    "text": "text/plain;charset=utf-8",
    "pageinfo": "application/json",
    "files": "application/octet-stream",  # what its steps upload, one after the other
}


def view_id(url: str, steps: list[Step] | tuple[Step, ...]) -> str:
    """The id of a view: 16 hex digits of the SHA-256 of its URL and canonical steps."""
    canonical = json.dumps([url, list(steps)], sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


# what an address of a snapshot says beside its URL: a view, or one of several answers (`texts.freezing.text_address`)
OF_A_URL = re.compile(r"#(view|text)=[0-9a-f]{16}$")


def id_in(address: str) -> str | None:
    """The view's id in an address such as `URL#view=0123456789abcdef`; None where a fragment is a page's own."""
    found = re.search(r"#view=([0-9a-f]{16})$", address)
    return found[1] if found else None


def view_address(url: str, steps: list[Step] | tuple[Step, ...]) -> str:
    """The address of a view: its URL, with a fragment naming the id when there are steps."""
    if not steps:
        return url
    return f"{url.partition('#')[0]}#view={view_id(url, steps)}"


@dataclass(frozen=True, slots=True)
class View:
    """A stored view. Its screenshot, DOM, accessibility snapshot and text are resource records.

    `captures` are the (url, verdict or digest) of the exchanges it caused; `parent` is the address of the view
    it was reached from; `state` is what could be read off the page (form values, page number, …).
    """

    address: str
    url: str  # where it starts, fragment included
    final_url: str  # what the address bar said
    title: str
    steps: tuple[Step, ...] = ()
    parent: str | None = None
    timestamp: str = ""
    session: str = ""
    captures: tuple[dict[str, Any], ...] = ()
    state: dict[str, Any] | None = None

    @property
    def id(self) -> str:
        """See `view_id`."""
        return view_id(self.url, self.steps)
