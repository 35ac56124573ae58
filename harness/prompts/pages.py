"""The text of a page a row names, out of a snapshot: redirects followed, and why there is none said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Text(Protocol):
    """What is read of a frozen text (see stillweb.snapshots.texts.text.FrozenText)."""

    @property
    def markdown(self) -> str: ...
    @property
    def extractor(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def warnings(self) -> Sequence[str]: ...


class Texts(Protocol):
    """What is read of a snapshot. One with a `matcher()` also has its redirects followed."""

    @property
    def id(self) -> str: ...
    def text(self, address: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class PageText:
    """A page's text, or why it has none (`dead`). `notes` say what looks wrong with it."""

    text: str = ""
    extractor: str = ""
    dead: str = ""
    notes: tuple[str, ...] = ()


class PageReader:
    """Reads pages. Every URL is asked for by a client of its own, so that no row changes another's.

    Texts are kept up to the store's limit: pass the same reader to several builds to profit from it.
    """

    def __init__(self, snapshot: Texts) -> None:
        self._snapshot = snapshot
        self.id = snapshot.id
        self._store: Any = None
        if hasattr(snapshot, "matcher"):
            from stillweb.harness.tools.store import Store

            self._store = Store(snapshot)  # type: ignore[arg-type]

    def read(self, url: str) -> PageText:
        """The page at a URL (its fragment, if any, chooses no other text)."""
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
