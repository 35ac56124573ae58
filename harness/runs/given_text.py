"""Text of the responses that a program received, so that scorers can tell if it saw a value.

Of HTML, all words count, hidden ones too, since a program reads the markup. PDF gives its extracted text;
JSON, CSV and other text formats give their content. Images, archives, styles and scripts give no text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stillweb.harness.tools.store import first_alike
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.http import charsets
from stillweb.snapshots.text import html_text
from stillweb.snapshots.text.text import HTML, PDF, READ, kind_of, unpack_body

if TYPE_CHECKING:
    from stillweb.harness.tools.store import Store

MOST = 1_000_000  # characters of a response that are kept in a trace
_TOLD = ("text/", "application/json", "application/xml", "application/csv", "application/x-ndjson")
_CODE = ("text/css", "text/javascript", "text/ecmascript")
_IN_PART = {"head", "range", "conditional"}
_HIDING = ("hidden", "aria-hidden", "style")


class GivenText:
    """Texts of the responses that the client of one ledger received, and the captures to cite for them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        # by place of a capture: a program may ask for one again and again
        self._texts: dict[tuple[str, int], str] = {}

    def __call__(self, entry: Mapping[str, Any]) -> str:
        """Return the text of the response in a ledger entry, "" if it has none."""
        derived = str(entry.get("derived") or "").split("+")
        if not entry.get("capture") or entry["method"] == "HEAD" or _IN_PART & set(derived):
            return ""
        capture = self._capture(entry)
        if capture is None or 300 <= capture.status < 400 or capture.status == 206:
            return ""
        if capture.place not in self._texts:
            try:
                self._texts[capture.place] = _text(self._store, capture)[:MOST]
            except DamagedInput:  # the client got an error, as the ledger says
                self._texts[capture.place] = ""
        return self._texts[capture.place]

    def evidence(self, entry: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return a reference to the first capture with the content of the entry's, or None."""
        named: Mapping[str, Any] | None = entry.get("capture")
        capture = self._capture(entry) if named else None
        if named is None or capture is None:
            return named
        first = first_alike(self._store.snapshot, capture)
        return {**named, "file": first.filename, "offset": first.offset}

    def _capture(self, entry: Mapping[str, Any]) -> Capture | None:
        place = entry["capture"]["file"], entry["capture"]["offset"]
        return self._store.snapshot.capture_at(place, entry["url"])


def _text(store: Store, capture: Capture) -> str:
    mime = capture.mime.lower()
    if mime.startswith(_CODE) or not (
        mime.startswith(_TOLD) or mime.endswith(("+json", "+xml")) or _page(mime)
    ):
        return ""
    response = store.snapshot.read_start(capture, READ + 1)
    label = response.header("content-type")
    body, _ = unpack_body(response)
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
