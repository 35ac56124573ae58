"""Reader of a row's pages from a snapshot: follows redirects, and says why a page has no text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Text(Protocol):
    """Frozen text, as far as prompts use it (see stillweb.snapshots.text.text.FrozenText)."""

    @property
    def markdown(self) -> str: ...
    @property
    def extractor(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def warnings(self) -> Sequence[str]: ...


class Texts(Protocol):
    """Snapshot, as far as prompts use it. If it has a `matcher()`, redirects are followed."""

    @property
    def id(self) -> str: ...
    def text(self, address: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class PageText:
    """Text of a page, or the reason why it has none (`dead`). `notes` say what looks wrong with it."""

    text: str = ""
    extractor: str = ""
    dead: str = ""
    notes: tuple[str, ...] = ()


class PageReader:
    """Reader of pages. Every URL is requested by a new client, so that no row affects another.

    Texts are cached up to the store's limit: pass the same reader to several builds to profit from it.
    """

    def __init__(self, snapshot: Texts) -> None:
        self._snapshot = snapshot
        self.id = snapshot.id
        self._store: Any = None
        if hasattr(snapshot, "matcher"):
            from stillweb.harness.tools.store import Store

            self._store = Store(snapshot)  # type: ignore[arg-type]

    def read(self, url: str) -> PageText:
        """Return the page at a URL; its fragment is ignored where the snapshot resolves requests."""
        page = url.partition("#")[0]
        if self._store is None:
            text = self._snapshot.text(url) or self._snapshot.text(page)
            return _page(text, [])
        found = self._store.session("prompts").follow(page)
        if found.redirects:
            return PageText(dead="it redirects without end")
        if found.capture is None:
            return PageText(
                dead="not in the snapshot" if found.url == page else f"it redirects to {found.url}, not in it"
            )
        if found.capture.status >= 400:
            return PageText(dead=f"recorded with status {found.capture.status}")
        notes = [f"answered by {found.verdict}"] if found.verdict not in ("exact", "canonical") else []
        if found.ambiguous:
            notes.append("the recording does not decide that it is this answer")
        return _page(self._store.text_of(found.capture), notes)


def _page(text: Text | None, notes: list[str]) -> PageText:
    if text is None:
        return PageText(dead="no text in the snapshot", notes=tuple(notes))
    said = (*notes, *text.warnings)
    if not text.markdown.strip():
        return PageText(dead="its text is empty", notes=said)
    return PageText(text.markdown, f"{text.extractor} {text.version}".strip(), notes=said)
