"""What a program read in the answers it was given, as text: without it nobody can say whether it saw a value.

Of a page all its words, those that its markup hides, too, since a program gets them; of a PDF its text; of JSON, CSV
and other text what stands there. Of pictures, archives, styles and scripts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from snapshots.capture import Capture
from snapshots.errors import DamagedInput
from snapshots.http import charsets
from snapshots.identity.keys import request_key
from snapshots.identity.urlkeys import path_prefix
from snapshots.request import Request
from snapshots.texts import html_text
from snapshots.texts.text import HTML, PDF, kind_of, unpacked

if TYPE_CHECKING:
    from harness.tools.store import Store

MOST = 1_000_000  # characters of an answer that are kept in a trace
_TOLD = ("text/", "application/json", "application/xml", "application/csv", "application/x-ndjson")
_CODE = ("text/css", "text/javascript", "text/ecmascript")
_HIDING = ("hidden", "aria-hidden", "style")


def given_text(store: Store, entry: Mapping[str, Any]) -> str:
    """The text that an entry of the ledger gave to its client; "" where it gave none."""
    derived = str(entry.get("derived") or "").split("+")
    if (
        not entry.get("capture")
        or entry["method"] == "HEAD"
        or {"head", "range", "conditional"} & set(derived)
    ):
        return ""
    capture = _capture(store, entry)
    if capture is None or 300 <= capture.status < 400 or capture.status == 206:
        return ""
    try:
        return _text(store, capture)[:MOST]
    except DamagedInput:  # it was answered with an error, and the ledger says so
        return ""


def _capture(store: Store, entry: Mapping[str, Any]) -> Capture | None:
    """The capture at the place that an entry names: nearly always one of the very URL, else one of its path."""
    place = entry["capture"]["file"], entry["capture"]["offset"]
    key = request_key(Request("GET", entry["url"])).urlkey
    near = store.snapshot.candidates(key)
    of_path = store.snapshot.prefix(path_prefix(entry["url"]))
    return next((one for one in chain(near, of_path) if one.place == place), None)


def _text(store: Store, capture: Capture) -> str:
    mime = capture.mime.lower()
    if mime.startswith(_CODE) or not (
        mime.startswith(_TOLD) or mime.endswith(("+json", "+xml")) or _page(mime)
    ):
        return ""
    response = store.snapshot.read(capture)
    label = response.header("content-type")
    body, _ = unpacked(response)
    kind, _ = kind_of(body, label)
    if kind == PDF:
        text = store.text_of(capture)
        return text.markdown if text else ""
    said = charsets.decode(body, label).text
    return _words(said) if kind == HTML else said


def _page(mime: str) -> bool:
    return mime in (
        "application/pdf",
        "application/xhtml+xml",
        "application/octet-stream",
        "binary/octet-stream",
        "",
    )


def _words(html: str) -> str:
    tree = html_text.parse(html)
    if tree is None:
        return ""
    for element in tree.iter():
        for name in _HIDING:
            element.attrib.pop(name, None)
    return html_text.markdown(tree) or html_text.without_tags(html)
