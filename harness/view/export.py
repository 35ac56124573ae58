"""Exports of the pages: a folder of files, or one file, that need no server.

Pages are asked of a `Site` with another spelling of addresses. Whatever a page links to is exported, too: attempts,
the views that their steps saw, comparisons. Pages with forms of search are the server's alone.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit

from markupsafe import Markup

from stillweb.harness.view.library import Linker
from stillweb.harness.view.site import Site
from stillweb.snapshots._os.atomic_write import atomic_folder
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.warc.appending import write_text

if TYPE_CHECKING:
    from stillweb.proxy.check.check import CheckReport

MOST_PICTURES = 40_000_000  # bytes of screenshots in one file
MOST_ATTEMPTS = 400  # told in full in one file; its table has all
_STATIC = Path(__file__).parent / "static"
FILES_POLICY = "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file: data:; form-action 'none'; base-uri 'none'"


class _Queue(Linker):
    """Linker that notes each page that is linked to."""

    def __init__(self) -> None:
        super().__init__(static=True)
        self.names: dict[str, str] = {}  # path -> its name in the export
        self.todo: list[str] = []
        self._taken: set[str] = set()

    def name(self, path: str) -> str:
        """Return the name of a page, and put a new page into the queue."""
        if path not in self.names:
            base = re.sub(r"[^\w.-]+", "-", path.strip("/"))[:120] or "index"
            if base.casefold() in self._taken:
                base = f"{base}-{sha256(path.encode()).hexdigest()[:8]}"
            self._taken.add(base.casefold())
            self.names[path] = base
            self.todo.append(path)
        return self.names[path]


class _Folder(_Queue):
    """Addresses as files of a folder spell them."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = FILES_POLICY

    def link(self, path: str, anchor: str = "") -> str:
        return f"{self.name(path)}.html" + (f"#{anchor}" if anchor else "")

    def asset(self, path: str) -> str:
        name = self.name(path)
        return name if path.startswith("/static/") else f"{name}.png"


class _File(_Queue):
    """Spelling of addresses in one file, in which each page is a section."""

    def __init__(self, most_attempts: int) -> None:
        super().__init__()
        self.embedded = True
        self.page = ""
        self.site: Site | None = None
        self.pictures = self.left_out = 0
        self.most_attempts = most_attempts
        self.attempts = 0

    def link(self, path: str, anchor: str = "") -> str:
        if "/attempt/" in path and path not in self.names:
            self.attempts += 1
            if self.attempts > self.most_attempts:
                return ""  # the cell is no link
        return f"#p-{self.name(path)}" + (f"-{anchor}" if anchor else "")

    def anchor(self, name: str) -> str:
        return f"p-{self.page}-{name}" if name else f"p-{self.page}"

    def here(self, name: str) -> str:
        return f"#{self.anchor(name)}"

    def asset(self, path: str) -> str:
        assert self.site is not None
        page = self.site.page(path)
        if page.status != 200 or self.pictures + len(page.body) > MOST_PICTURES:
            self.left_out += 1
            return "data:,"
        self.pictures += len(page.body)
        return f"data:{page.media};base64,{base64.b64encode(page.body).decode()}"


def export_folder(runs: Sequence[Path], snapshots: Sequence[Path | str], out: Path) -> Path:
    """Write the pages into the new or empty folder `out`, and return the path of the first.

    They are written aside first, so that a failed export leaves no half folder. Raise UsageError if `out` has files.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: is there and not empty. Name a new folder")
    linker = _Folder()
    site = Site(runs, snapshots, linker=linker)
    with closing(site), atomic_folder(out) as folder:
        for table in site.tables.values():
            table.refresh(None)
        linker.link("/")
        while linker.todo:
            path = linker.todo.pop()
            page = site.page(*_asked(path))
            suffix = (
                "" if path.startswith("/static/") else ".png" if page.media.startswith("image/") else ".html"
            )
            (folder / f"{linker.names[path]}{suffix}").write_bytes(page.body)
    return out / "index.html"


def write_report(run: Path, out: Path | None = None) -> Path:
    """Write the report of a run (default: report.html in it) as one file, and return its path.

    Raise DamagedInput for a run that can't be read as a whole: its figures would be of a part.
    """
    from stillweb.harness.view.figures import figures_of

    figures_of(run)
    return export_file([run], out or run / "report.html")


def export_file(runs: Sequence[Path], out: Path, *, start: str = "", title: str = "") -> Path:
    """Write pages on runs into one file, from the page `start` on: by default the table of the first run.

    It holds figures, attempts and the views that they saw; the rest of the snapshot is left to an export of a folder.
    """
    linker = _File(MOST_ATTEMPTS)
    site = Site(runs, linker=linker)
    for table in site.tables.values():
        table.refresh(None)
    name = next(iter(site.tables))
    return _write_file(
        linker, site, out, start or f"/run/{quote(name, safe='')}", title or f"Stillweb: {name}"
    )


def _write_file(linker: _File, site: Site, out: Path, start: str, title: str) -> Path:
    linker.site = site
    sections = []
    try:
        linker.link(start)
        while linker.todo:
            path = linker.todo.pop(0)
            linker.page = linker.names[path]
            page = site.page(*_asked(path))
            # of a template, which escapes all that it is given
            sections.append(Markup(page.body.decode("utf-8")))
        whole, _ = _one_file(
            site, title, sections, left_out=linker.left_out, untold=max(0, linker.attempts - MOST_ATTEMPTS)
        )
    finally:
        site.close()
    write_text(out, whole)
    return out


def _one_file(
    site: Site, title: str, sections: Sequence[Markup], *, left_out: int = 0, untold: int = 0
) -> tuple[str, str]:
    """Return pages as one file of HTML, and the Content-Security-Policy that it needs."""
    css, script = ((_STATIC / one).read_text(encoding="utf-8") for one in ("view.css", "view.js"))
    policy = f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(css)}'; img-src data:; form-action 'none'; base-uri 'none'"
    page = site.render(
        "file.html",
        title=title,
        css=Markup(css),
        script=Markup(script),
        only=policy,
        sections=sections,
        left_out=left_out,
        untold=untold,
    )
    return page.body.decode("utf-8"), policy


def _alone(template: str, title: str, **names: Any) -> tuple[str, str]:
    """Return one page, made from a template, as a file, and the policy that it needs."""
    linker = _File(0)
    site = Site([], [], linker=linker)
    try:
        linker.page = template.partition(".")[0]
        body = site.render(template, title=title, **names).body.decode("utf-8")
        return _one_file(site, title, [Markup(body)])  # of a template, which escapes all that it is given
    finally:
        site.close()


def check_page(report: CheckReport, name: str, snapshot_id: str = "") -> str:
    """Return the report of a check as one file without external links; `name` is what was checked."""

    def picture(png: bytes) -> str:
        media, data = small_screenshot(png)
        return f"data:{media};base64,{base64.b64encode(data).decode()}"

    from stillweb.proxy.check.check import small_screenshot

    title = "Views replayed and compared"
    return _alone("check.html", title, report=report, of=name, id=snapshot_id, picture=picture)[0]


def status_page(status: Mapping[str, Any], misses: Sequence[Mapping[str, Any]]) -> tuple[bytes, str]:
    """Return the page on a gateway's state and its last misses, and the policy that it needs."""
    page, policy = _alone("status.html", "Stillweb replay", status=status, misses=misses)
    return page.encode("utf-8", "replace"), policy


def export_views(snapshots: Sequence[Path | str], out: Path) -> Path:
    """Write the map of a snapshot's views, and the views themselves, into one file. Later paths are layers on top."""
    linker = _File(0)
    site = Site([], [], linker=linker)
    name = site.shelf.put([str(path) for path in snapshots])
    return _write_file(linker, site, out, f"/snapshot/{quote(name, safe='')}/map", f"Views of {name}")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"


def _asked(path: str) -> tuple[str, dict[str, str]]:
    parts = urlsplit(path)
    return parts.path, dict(parse_qsl(parts.query))
