"""Runs and snapshots that are open, and the making of pages from them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from stillweb.harness.console import UNSEEN, decimals
from stillweb.harness.view.snapshot_pool import SnapshotPool
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from types import CodeType

    from jinja2.bccache import Bucket

    from stillweb.harness.trace import Trace
    from stillweb.harness.view.frozen_page import FrozenPages
    from stillweb.harness.view.run_table import RunTable

_HERE = Path(__file__).parent
P = TypeVar("P", Path, Path | str)
PATIENT = 0.05  # seconds that a page waits for a result that is worked out in a thread
_UNSEEN = re.compile(f"[{UNSEEN}]")
MOST_TITLE = 200  # characters of a title
MOST_SHOWN = 200_000  # characters of a text: a browser takes seconds for one word of so many
REMEMBERED = 64  # results that are kept


@dataclass(frozen=True, slots=True)
class Page:
    """A page as HTML, or another answer to a request."""

    body: bytes
    media: str = "text/html; charset=utf-8"
    status: int = 200


class NotFound(StillwebError):
    """No page has this address."""


class _Compiled(BytecodeCache):
    """The templates' code, which all libraries of a process share: to compile those of a report takes 0.2 s."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        if bucket.code is not None:
            self._codes[bucket.key, bucket.checksum] = bucket.code


_COMPILED = _Compiled()


@dataclass
class Linker:
    """Spelling of addresses in one page. The server's are those of the site; an export has its own."""

    static: bool = False
    embedded: bool = False  # True if all pages lie in one file
    policy: str = ""  # Content-Security-Policy of a page that no server sends

    def link(self, path: str, anchor: str = "") -> str:
        """Return the `href` for a page of the site, and a place in it."""
        return f"{path}#{anchor}" if anchor else path

    def anchor(self, name: str) -> str:
        """Return the `id` of a place in the page that is being made."""
        return name

    def here(self, name: str) -> str:
        """Return the `href` of a place in the page that is being made."""
        return f"#{name}"

    def asset(self, path: str) -> str:
        """Return the `src` for a picture, a style or a script of the site."""
        return path


def short_names(paths: Sequence[P]) -> dict[str, P]:
    """Return short, unique names for paths and addresses: their last parts, numbered if they are the same."""
    found: dict[str, P] = {}
    places: set[str] = set()
    for path in paths:
        place = path if isinstance(path, str) else str(path.resolve())
        if place in places:
            continue
        places.add(place)
        base = re.sub(r"[^\w.-]", "_", place.rstrip("/").rpartition("/")[2]) or "unnamed"
        name, count = base, 1
        while name in found:
            count += 1
            name = f"{base}-{count}"
        found[name] = path
    return found


@dataclass
class Library:
    """Runs and snapshots that are looked at. `token` is in the forms of the pages; "" for pages without forms."""

    runs: Sequence[Path] = ()
    snapshots: Sequence[Path | str] = ()
    token: str = ""
    frames: FrozenPages | None = None  # origin of the frozen pages, if there is one
    linker: Linker = field(default_factory=Linker)

    def __post_init__(self) -> None:
        self.tables: dict[str, RunTable] = {}
        if self.runs:
            from stillweb.harness.view.run_table import RunTable

            self.tables = {name: RunTable(path) for name, path in short_names(self.runs).items()}
        self.shelf = SnapshotPool(short_names(self.snapshots))
        self._of_run: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="stillweb-view")
        self._results: dict[Any, Future[Any]] = {}  # the longest unasked first
        self._lock = threading.Lock()
        self.browsing = threading.Lock()  # one browser at a time
        for name, table in self.tables.items():
            table.refresh()
            self._of_run[name] = self._snapshot_of(table)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self.shelf.close()

    def snapshot_of(self, run: str) -> str:
        """Return the name of a run's snapshot; "" if it has none."""
        return self._of_run[run]

    def frame_of_view(self, snapshot: str, view: str) -> str:
        """Return the address of a view's frozen page; "" without an origin for it."""
        return self.frames.view_address(snapshot, view) if self.frames else ""

    def frame_of_capture(self, snapshot: str, file: str, offset: int) -> str:
        """Return the address of a capture's frozen page; "" without an origin for it."""
        return self.frames.capture_address(snapshot, file, offset) if self.frames else ""

    def soon(self, key: Any, work: Callable[[], Any]) -> Any:
        """Return the result of `work`, or None while it is not there. Raise its error."""
        with self._lock:
            found = self._results.pop(key, None) or self._pool.submit(work)
            if len(self._results) >= REMEMBERED:
                del self._results[next(iter(self._results))]
            self._results[key] = found
        try:
            return found.result(None if self.linker.static else PATIENT)
        except NotYet:
            return None

    def prepare(self, template: str) -> None:
        """Compile a template now, so that the work of `soon` does not slow it down."""
        self._environment.get_template(template)

    def _snapshot_of(self, table: RunTable) -> str:
        """Return the name of a run's snapshot, which is put on the shelf; "" if the run has none."""
        from stillweb.harness.runs.run_files import snapshots_now

        try:
            settings, _ = table.files.manifest()
        except (StillwebError, OSError):  # the table's problems say so
            return ""
        paths = snapshots_now(table.path, settings.snapshots)
        return self.shelf.put(paths, settings.at) if paths else ""

    def render(self, template: str, title: str, **names: Any) -> Page:
        text = self._environment.get_template(template).render(site=self, title=short(title), **names)
        return Page(_UNSEEN.sub(_seen, text).encode("utf-8", "replace"))

    @cached_property
    def _environment(self) -> Environment:
        environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            bytecode_cache=_COMPILED,
        )
        environment.filters |= {
            "number": number,
            "counted": pluralize,
            "marked": mark_values,
            "when": format_timestamp,
            "short": short,
            "titled": titled,
            "clipped": clipped,
        }
        linker = self.linker
        environment.globals |= {
            "link": lambda path, anchor="": linker.link(path, anchor),
            "anchor": lambda name: linker.anchor(name),
            "here": lambda name: linker.here(name),
            "asset": lambda path: linker.asset(path),
            "static": linker.static,
            "policy": linker.policy,
            "embedded": linker.embedded,
            "q": lambda text: quote(str(text), safe=""),
            "query": lambda base, **more: urlencode({k: v for k, v in {**base, **more}.items() if v != ""}),
        }
        return environment

    def table(self, name: str) -> RunTable:
        """Return the table of a run. Raise NotFound for another name."""
        found = self.tables.get(name)
        if found is None:
            raise NotFound(f"{name}: no run of this name is open. Give its directory to `stillweb view`")
        return found

    def read(self, name: str, attempt: str) -> tuple[Trace | None, str]:
        """Return the readable part of an attempt's trace, and why the rest can't be read ("" if all can)."""
        table = self.table(name)
        if re.search(r"[/\\\0]", attempt) or attempt.startswith("."):
            raise NotFound(f"{attempt}: no attempt of {name}")
        path = table.files.traces / f"{attempt}.jsonl"
        part = path.with_name(path.name + ".part")
        if not path.exists() and not part.exists():
            if table.find(attempt) is None:
                raise NotFound(f"{attempt}: no attempt of {name}")
            return None, "the attempt has not begun"
        return readable_trace(path if path.exists() else part)


def readable_trace(path: Path) -> tuple[Trace | None, str]:
    """Return a trace up to its first line that can't be read, and what is wrong with that line ("" if none)."""
    from stillweb.harness.trace import Trace, check_event, read_json

    events: list[dict[str, Any]] = []
    why = ""
    for number_, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line:
            continue
        try:
            event = read_json(line)
            fault = check_event(event)
        except (ValueError, RecursionError) as error:
            fault = f"not JSON: {error}"
        if not fault and (event["event"] == "header") != (not events):
            fault = "the header must be the first line and no other"
        if fault:
            why = f"{path.name}:{number_}: {fault}"
            break
        events.append(event)
    if not events:
        return None, why or f"{path.name}: the trace is empty"
    trace = Trace(path, events[0], tuple(events[1:]))
    if not why and trace.last("score") is None:
        why = (
            "the attempt is under way"
            if path.suffix == ".part"
            else f"{path.name}: the trace ends without a score"
        )
    return trace, why


def _seen(unseen: re.Match[str]) -> str:
    """Return a visible sign for a control character of recorded text."""
    code = ord(unseen[0])
    return chr(0x2400 + code) if code < 32 else f"⟨U+{code:04X}⟩"


def short(text: str) -> str:
    """Return the beginning of a text for a heading or a line of a list."""
    return text if len(text) <= MOST_TITLE else f"{text[:MOST_TITLE]}…"


def clipped(text: str) -> str:
    """Return a text for display, cut if it is too long for a browser."""
    more = len(text) - MOST_SHOWN
    return text if more <= 0 else f"{text[:MOST_SHOWN]}\n… {more:,} more characters"


def titled(page: Any) -> str:
    """Return the title of a view, a text or a change for display; its address if it has none."""
    return short(str(page.title or page.address))


def number(value: float | None, digits: int = 3) -> str:
    """Return a figure for display: three decimals, more if it would look whole; a dash for None."""
    if value is None:
        return "–"
    if value == int(value):
        return str(int(value))
    return decimals(value, digits).rstrip("0").rstrip(".")


def mark_values(text: str, values: Sequence[str]) -> Markup:
    """Return a text as HTML with the values marked where they stand as words."""
    if not values:
        return escape(text)
    forms = "|".join(re.escape(one) for one in sorted(set(values), key=lambda v: (-len(v), v)))
    parts = re.split(rf"(?<!\w)({forms})(?!\w)", text)
    return Markup("").join(
        Markup("<mark>{}</mark>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    )


def format_timestamp(timestamp: str) -> str:
    """Return a timestamp of 14 or 17 digits as a date and a time in UTC."""
    t = timestamp
    if len(t) < 14 or not t[:14].isdecimal():
        return t
    return f"{t[:4]}-{t[4:6]}-{t[6:8]} {t[8:10]}:{t[10:12]}:{t[12:14]} UTC"
