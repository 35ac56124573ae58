"""A snapshot opened for reading: its captures, views, texts and index, from one path or several layers."""

from __future__ import annotations

import contextlib
import heapq
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec import structs

from stillweb.snapshots._os.random_access import MemorySource
from stillweb.snapshots.cache import Cache
from stillweb.snapshots.capture import (
    TIMING,
    Capture,
    Response,
    as_of,
    asked,
    is_seen_at,
    layer_of,
    read_timing,
)
from stillweb.snapshots.contents import failures
from stillweb.snapshots.contents.package import (
    VIEW_MEDIA,
    layered_id,
    listed_views,
    page_list_faults,
    rules_from,
    snapshot_id,
    unpack_options,
    view_from_json,
)
from stillweb.snapshots.contents.provenance import Provenance, provenance_of
from stillweb.snapshots.dates import read_at, timestamp_of
from stillweb.snapshots.errors import DamagedInput, UsageError
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.index.build import is_index_current, join_lines, open_index
from stillweb.snapshots.index.cdxj import Index, parse_line, target_of, to_capture
from stillweb.snapshots.index.index_cache import IndexBuild
from stillweb.snapshots.index.indexing import Progress, other_key
from stillweb.snapshots.notes import note
from stillweb.snapshots.opening import open_container
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.remote import is_remote
from stillweb.snapshots.request import Request
from stillweb.snapshots.view import View, id_in
from stillweb.snapshots.warc.container import Container
from stillweb.snapshots.warc.reading import Archives
from stillweb.snapshots.warc.warc import Record

if TYPE_CHECKING:
    from stillweb.snapshots.contents.failures import Failure
    from stillweb.snapshots.evidence.lookup import Lookup, NearCapture
    from stillweb.snapshots.evidence.matcher import Matcher
    from stillweb.snapshots.identity.rules import RuleSet
    from stillweb.snapshots.index.on_disk import OnDisk
    from stillweb.snapshots.text.text import FrozenText


MUTATION = "urn:stillweb:mutation:"  # a metadata record that tells of a mutation
DROPPABLE = ("view", "dom", "aria", "text")  # resources that a layer may drop by an empty record


@dataclass(slots=True)
class Layer:
    """A layer of a snapshot. `prefix` sets its file names apart from those of other archives; the lowest has none.

    The layers of a cut of several snapshots lie in one container, and differ in the names of its files.
    """

    container: Container
    index: Index
    known: IndexBuild
    prefix: str = ""
    shared: bool = False  # True if other layers lie in the container, too

    def named(self, capture: Capture) -> Capture:
        """Return a capture of this layer with the layer's prefix on its file names."""
        if not self.prefix:
            return capture
        original = capture.original
        if original is not None:
            original = (self.prefix + original[0], original[1], original[2])
        return structs.replace(capture, filename=self.prefix + capture.filename, original=original)


class Snapshot:
    """A snapshot opened for reading with `Snapshot.open`.

    It is safe for concurrent reads from threads and after a fork.
    """

    def __init__(self, paths: tuple[str, ...], layers: list[Layer]) -> None:
        self.paths = paths
        self._layers = layers
        files = {layer.prefix + n: p for layer in layers for n, p in layer.container.archives.items()}
        self._archives = Archives(files)
        self._found = Cache[str, tuple[Capture, ...]](self._look)
        self._matcher: Matcher | None = None
        self._closed = False
        self.at = ""  # "latest", or the 17 digits of the last moment that is seen; "" for as recorded

    @classmethod
    def open(
        cls,
        *paths: str | os.PathLike[str],
        progress: Progress | None = None,
        checked: bool = False,
        spill: OnDisk | None = None,
        at: str = "",
    ) -> Snapshot:
        """Open one or more paths or fsspec URLs; later ones lie over earlier ones.

        A path is a WACZ file, an open snapshot directory (also while it is being recorded), a WARC or ARC, a
        HAR or a mitmproxy flow file. A foreign index is rebuilt from the records; `progress` is called with
        the bytes done and the bytes in all. `checked`: see `open_index`. `spill` receives all captures; for a
        large archive they are then kept nowhere else. `at` is a date, after which nothing is seen, or "latest": of
        several answers to a request the newest one then counts. Raises UsageError and DamagedInput.
        """
        if not paths:
            raise UsageError("no snapshot named")
        limit = read_at(at) if at else ""
        layers: list[Layer] = []
        try:
            for path in paths:
                prefix = f"layer{len(layers) + 1}/" if layers else ""
                layers += _open_layers(path, prefix, progress, checked, spill, limit)
        except BaseException:
            for layer in layers:
                layer.container.close()
            raise
        opened = cls(tuple(str(p) for p in paths), layers)
        opened.at = limit
        return opened

    # -- identity and settings

    @cached_property
    def id(self) -> str:
        """Return the hex SHA-256 over records, rules and profile.

        It doesn't depend on the order and split of the files. The order of layers counts, since it decides
        which capture is served.
        """
        ids = [_id_of([*same]) for _, same in groupby(self._layers, key=lambda layer: id(layer.container))]
        found = ids[0] if len(ids) == 1 else layered_id(ids)
        return sha256(f"{found} at {self.at}".encode()).hexdigest() if self.at else found

    @property
    def layers(self) -> Sequence[Layer]:
        """Return the layers, the lowest first."""
        return self._layers

    @property
    def profile(self) -> Profile | None:
        """Return the profile of the first layer that has one; None for foreign archives."""
        return next((layer.known.profile for layer in self._layers if layer.known.profile), None)

    @cached_property
    def began(self) -> str:
        """Return the timestamp of the earliest capture, "" without captures."""
        return min((capture.timestamp for capture in self.captures()), default="")

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings used while recording."""
        return {k: v for layer in self._layers for k, v in layer.known.settings.items()}

    @property
    def provenance(self) -> list[Provenance]:
        """Return the recordings of all layers: what recorded, with which settings, when, from where.

        Raises DamagedInput if an archive tells of them in a form that can't be read.
        """
        try:
            return [one for layer in self._layers for one in provenance_of(layer.known.settings)]
        except ValueError as error:
            raise DamagedInput(
                f"{', '.join(self.paths)}: its list of recordings can't be read: {error}"
            ) from error

    @property
    def notes(self) -> list[str]:
        """Return notes on the faults that did not keep the archives from being read."""
        return [note for layer in self._layers for note in layer.known.notes]

    # -- captures

    def captures(self) -> Iterator[Capture]:
        """Yield all captures, by urlkey and time."""
        if len(self._layers) == 1:
            yield from self._layers[0].index
            return
        hidden = self._hidden()
        layers = [_tagged(number, layer) for number, layer in enumerate(self._layers)]
        # drop a capture if a higher layer has the same request
        for number, capture in heapq.merge(*layers, key=lambda one: (one[1].urlkey, one[1].timestamp)):
            if hidden.get(asked(capture), number) <= number:
                yield capture

    def _hidden(self) -> dict[tuple[Any, ...], int]:
        """Map each request in a layer above the first to the highest layer that has it."""
        highest: dict[tuple[Any, ...], int] = {}
        for number, layer in enumerate(self._layers[1:], 1):
            for capture in layer.index:
                highest.update(dict.fromkeys(_answered(capture), number))
        return highest

    def candidates(self, urlkey: str) -> tuple[Capture, ...]:
        """Return the captures with this index key, oldest first."""
        return self._found[urlkey]

    def _look(self, urlkey: str) -> tuple[Capture, ...]:
        if len(self._layers) == 1:
            return tuple(self._layers[0].index.candidates(urlkey))
        return _overlaid([[layer.named(c) for c in layer.index.candidates(urlkey)] for layer in self._layers])

    def capture_at(self, place: tuple[str, int], url: str | None = None) -> Capture | None:
        """Return the capture at a file and offset, None if there is none.

        Captures of `url` are tried first, as nearly every answer is one of them. Only another one walks the whole
        index, once.
        """
        near = () if url is None else self.candidates(request_key(Request("GET", url)).urlkey)
        found = next((one for one in near if one.place == place), None)
        if found is None and (urlkey := self._urlkeys.get(place)) is not None:
            found = next((one for one in self.candidates(urlkey) if one.place == place), None)
        return found

    @cached_property
    def _urlkeys(self) -> dict[tuple[str, int], str]:
        return {one.place: one.urlkey for one in self.captures()}

    def prefix(self, start: str) -> Iterator[Capture]:
        """Yield the captures whose index key begins with `start`."""
        if len(self._layers) == 1:
            yield from self._layers[0].index.prefix(start)
            return
        parts = [[layer.named(c) for c in layer.index.prefix(start)] for layer in self._layers]
        yield from sorted(_overlaid(parts), key=lambda c: (c.urlkey, c.timestamp))

    def speaks(self, protocol: str, start: str) -> bool:
        """Return True if a capture whose index key begins with `start` used the protocol. Parses no line."""
        mark = f'"protocol":"{protocol}"'.encode()
        return any(mark in line for layer in self._layers for line in layer.index.lines(start, prefix=True))

    def read(self, capture: Capture) -> Response:
        """Return a capture's response, whole in memory.

        Raises DamagedInput, and TooLarge if it does not fit.
        """
        return self._archives.read(capture)

    def read_start(self, capture: Capture, size: int) -> Response:
        """Return a capture's response; a body too large for memory is cut to its first `size` bytes.

        Raises DamagedInput.
        """
        return self._archives.read_start(capture, size)

    def cut_short(self, capture: Capture) -> str:
        """Return why the body of a capture is incomplete, "" if nothing says so. Raises DamagedInput."""
        return self._archives.cut_short(capture)

    def empty_archives(self) -> list[str]:
        """Return the names of empty archive files of foreign snapshots.

        Our own archive files start empty, so an empty one after a killed recording has lost nothing.
        """
        files = (
            item
            for layer in self._layers
            if not layer.container.own
            for item in layer.container.archives.items()
        )
        return sorted(name for name, place in files if place.size == 0)

    def timing(self, capture: Capture) -> tuple[float, float] | None:
        """Return seconds to a capture's first byte, and from it to the last; None if they were not recorded."""
        return read_timing(self._archives.fields(capture).get(TIMING.lower()))

    def read_request(self, capture: Capture) -> Request:
        """Return a capture's request. Raises DamagedInput."""
        return self._archives.read_request(capture)

    def head(self, capture: Capture) -> Response:
        """Return a capture's response without its body, which may be too large for memory."""
        return self._archives.head(capture)

    def open_body(self, capture: Capture) -> BinaryIO:
        """Open the body of a capture as a stream: transfer-decoded, content-encoded as stored."""
        return self._archives.open_body(capture)

    # -- views and texts

    def views(self) -> list[View]:
        """Return all views in page list order; the highest layer wins for each address."""
        return list(self._views.values())

    @cached_property
    def _views(self) -> dict[str, View]:
        found: dict[str, View] = {}
        for layer in self._layers:
            container = layer.container
            others = not (container.own or container.doubted)
            listed = others or (is_index_current(container) and not layer.shared)
            pages = listed_views(container, layer.known.notes) if listed else []
            if not pages:
                pages = list(self._recorded_views(layer))
            found |= {v.address: v for v in pages if is_seen_at(timestamp_of(v.timestamp), self.at)}
        return found

    def _recorded_views(self, layer: Layer) -> Iterator[View]:
        """Yield the views in the metadata records, the source of the page list."""
        views = []
        for line in layer.index.lines("urn:metadata:", prefix=True):
            entry = parse_line(line)[2]
            if entry["mime"] == VIEW_MEDIA:
                try:
                    views.append(view_from_json(json.loads(self._entry_record(layer, entry).block)))
                except (ValueError, RecursionError, DamagedInput) as error:
                    where = f"{entry['filename']}: offset {entry['offset']}"
                    note(layer.known.notes, f"{where}: a view that can't be read: {error}")
        yield from sorted(views, key=lambda v: (v.timestamp, v.address))

    def view(self, address_or_id: str) -> View | None:
        """Return the view with this address or id; None if there is none.

        The address of a view without steps is its URL. It is also found by `URL#view=<id>`, the address of
        its text, and by any equivalent spelling of that URL.
        """
        found = self._views.get(address_or_id)
        if found is not None:
            return found
        id_ = id_in(address_or_id)
        found = next((v for v in self._views.values() if v.id == (id_ or address_or_id)), None)
        if found is None or id_ is None:
            return found
        asked, url = (Request("GET", one.partition("#")[0]) for one in (address_or_id, found.url))
        return found if request_key(asked).canonical == request_key(url).canonical else None

    def resource(self, kind: str, address: str) -> bytes | None:
        """Return a view's resource: its screenshot, DOM, … (kinds are those of `view.RESOURCES`).

        An empty one in a layer says that a mutation dropped the one below.
        """
        record = self.record_of("resource", f"urn:{kind}:{address}")
        return record.block if record is not None and (record.block or kind not in DROPPABLE) else None

    @cached_property
    def mutated(self) -> dict[tuple[str, int], str]:
        """Place of each answer that a mutation changed -> the id of the mutation."""
        found: dict[tuple[str, int], str] = {}
        for layer in self._layers:
            for one in _mutations(layer, self._entry_record):
                found |= {(layer.prefix + c["file"], c["offset"]): one["id"] for c in one["changed"]}
        return found

    def verdict_of(self, lookup: Lookup) -> str:
        """Return the verdict of a lookup, `mutated:<id>` for an answer that a mutation changed."""
        mutation = self.mutated.get(lookup.capture.place) if lookup.capture is not None else None
        return lookup.verdict if mutation is None else f"mutated:{mutation}"

    @cached_property
    def mutations(self) -> list[dict[str, Any]]:
        """The provenance of each mutation: id, spec, base, changed, asked_for. Lowest layer first."""
        return [one for layer in self._layers for one in _mutations(layer, self._entry_record)]

    def metadata(self, uri: str) -> Any:
        """Return the JSON value of a URI's last metadata record; None if there is none.

        Raises DamagedInput.
        """
        record = self.record_of("metadata", uri)
        try:
            return None if record is None else json.loads(record.block)
        except (ValueError, RecursionError) as error:
            raise DamagedInput(f"{uri}: its metadata record is not JSON: {error}") from error

    def all_metadata(self, uri: str) -> list[Any]:
        """Return the distinct JSON values of a URI's metadata records, in recorded order.

        They come from the highest layer that has any. Records that are no JSON are skipped.
        """
        found: list[Any] = []
        for layer in reversed(self._layers):
            entries = layer.index.entries(other_key("metadata", uri))
            for entry in {e.get("id", e.get("offset")): e for _, _, e in entries}.values():
                if entry.get("kind") == "metadata":
                    # crawlers also write metadata records that are no JSON
                    with contextlib.suppress(ValueError, RecursionError):
                        found.append(json.loads(self._entry_record(layer, entry).block))
            if found:
                break
        return found

    def metadata_addresses(self, start: str, *, views: bool = True) -> list[str]:
        """Return the distinct URIs of metadata records that begin with `start`.

        With `views=False`, URIs that only have records of views are left out.
        """
        wanted = other_key("metadata", start)
        lines = (line for layer in self._layers for line in layer.index.lines(wanted, prefix=True))
        entries = (parse_line(line)[2] for line in lines)
        return list(dict.fromkeys(target_of(one) for one in entries if views or one["mime"] != VIEW_MEDIA))

    def not_captures(self) -> Iterator[tuple[str, str]]:
        """Yield kind and URI of the resource and conversion records, and of the metadata of answers, which answer no request."""
        for layer in self._layers:
            for line in layer.index.lines("urn:", prefix=True):
                entry = parse_line(line)[2]
                kind, uri = entry.get("kind"), target_of(entry)
                is_record = kind == "metadata" and uri.startswith("http") and entry["mime"] != VIEW_MEDIA
                if is_record or kind in ("resource", "conversion"):
                    yield entry["kind"], uri

    def conversations(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield web socket conversations (docs/snapshot.md) with their addresses, each in recorded order."""
        return (
            (uri, conversation)
            for uri in self.metadata_addresses("http", views=False)
            for conversation in self.said_at(uri)
        )

    def said_at(self, uri: str) -> list[dict[str, Any]]:
        """Return the web socket conversations of an address, in recorded order."""
        found = self.all_metadata(uri)
        return [one for one in found if isinstance(one, dict) and isinstance(one.get("messages"), list)]

    def failures(self, address: str | None = None) -> Iterator[Failure]:
        """Yield the requests that failed while recording, ordered by address.

        With `address` (a URL without its query), only the failures of that address. Records that can't be
        read are skipped with a note.
        """
        wanted = other_key("metadata", failures.START + (address or ""))
        for layer in self._layers:
            for line in layer.index.lines(wanted, prefix=True):
                _, timestamp, entry = parse_line(line)
                named = target_of(entry).removeprefix(failures.START)
                if entry["mime"] == failures.MEDIA and address in (None, named.partition("?")[0]):
                    where = f"{entry['filename']}: offset {entry['offset']}"
                    try:
                        yield failures.failure_of(self._entry_record(layer, entry).block, timestamp, where)
                    except DamagedInput as error:  # a damaged record must not hide the others
                        note(layer.known.notes, f"{error}")

    def count_failures(self) -> int:
        """Count distinct failed requests, from the index only; a request may have been retried many times."""
        lines = (one for layer in self._layers for one in layer.index.lines(failures.START, prefix=True))
        entries = (parse_line(line)[2] for line in lines)
        return len({(target_of(e), e["digest"]) for e in entries if e["mime"] == failures.MEDIA})

    def record_of(self, kind: str, uri: str) -> Record | None:
        """Return the last record of a kind with a target URI; None if there is none.

        Kinds are "resource", "metadata" and "conversion".
        """
        for layer in reversed(self._layers):
            entries = [e for _, _, e in layer.index.entries(other_key(kind, uri)) if e.get("kind") == kind]
            if entries:
                return self._entry_record(layer, entries[-1])
        return None

    def _entry_record(self, layer: Layer, entry: dict[str, Any]) -> Record:
        return self._archives.entry(layer.prefix + entry["filename"], entry)

    def conversions(self) -> Iterator[Record]:
        """Yield the last conversion record of each address, by address."""
        for number, entry in _conversions([layer.index for layer in self._layers]):
            yield self._entry_record(self._layers[number], entry)

    def count_texts(self) -> int:
        """Count the `texts`, from the index only."""
        return sum(1 for _ in _conversions([layer.index for layer in self._layers]))

    def text(self, address: str) -> FrozenText | None:
        """Return the frozen text of a page, PDF or view; None if there is none. Raises DamagedInput."""
        record = self.record_of("conversion", address)
        try:
            return None if record is None else frozen_text(record)
        except ValueError as error:
            raise DamagedInput(f"{address}: its frozen text can't be read: {error}") from error

    def texts(self) -> Iterator[FrozenText]:
        """Yield all frozen texts; unreadable ones are skipped with a note."""
        for number, entry in _conversions([layer.index for layer in self._layers]):
            try:
                yield frozen_text(self._entry_record(self._layers[number], entry))
            except (ValueError, DamagedInput) as error:
                where = f"{entry['filename']}: offset {entry['offset']}"
                note(self._layers[number].known.notes, f"{where}: a text that can't be read: {error}")

    # -- matching

    @cached_property
    def rules(self) -> RuleSet:
        """Return the rules in force, refusals included.

        They are those of sealing, or the built-in ones while the snapshot is open.
        """
        return rules_from([layer.container.rules for layer in self._layers])

    def add_rules(self, path: Path) -> None:
        """Apply a user's own rules, too, before the first request. Raises UsageError for a file that is none."""
        from stillweb.snapshots.identity.rules import own_text

        assert self._matcher is None
        self.rules = self.rules.with_own(own_text(path), str(path))

    def matcher(self) -> Matcher:
        if self._matcher is None:
            from stillweb.snapshots.evidence.matcher import Matcher

            self._matcher = Matcher(self)
        return self._matcher

    def lookup(self, request: Request | str, *, accept: str = "rule") -> Hit:
        """Return the capture that answers a request (a string is the URL of a GET) of a new session, and how sure it is.

        `accept` is the lowest verdict that counts: exact, canonical, varies or rule. Raises UsageError for another, and
        for the address of a view, which is not a request: `view` returns it.
        """
        self.must_be_open()
        if isinstance(request, str) and id_in(request) is not None:
            raise UsageError(
                f"{request}: a view is not a request; read it by Snapshot.view or stillweb.fetch"
            )
        asked = Request.of(request).remembering()
        matcher = self.matcher()
        return Hit(self, matcher.lookup(asked, matcher.session(), accept=accept))

    def must_be_open(self) -> None:
        """Raise UsageError if the snapshot was closed."""
        if self._closed:
            raise UsageError(f"{', '.join(self.paths)}: the snapshot was closed; open it again")

    def close(self) -> None:
        self._closed = True
        for layer in self._layers:
            layer.index.close()
            layer.container.close()

    def __enter__(self) -> Snapshot:
        self.must_be_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Hit:
    """Result of `Snapshot.lookup`: verdict, confidence and the recorded response, or the nearest captures of a miss."""

    def __init__(self, snapshot: Snapshot, lookup: Lookup) -> None:
        self._snapshot = snapshot
        self._lookup = lookup

    def __repr__(self) -> str:
        return f"<Hit {self.verdict} {self._lookup.request.method} {self._lookup.request.url}>"

    @property
    def verdict(self) -> str:
        """The way in which the request was matched: exact, canonical, varies:…, rule:…, mutated:…, failed:… or miss."""
        return self._snapshot.verdict_of(self._lookup)

    @property
    def confidence(self) -> float | None:
        """Chance (0 to 1, rounded down to hundredths) that the live server would have given this response.

        None for a miss.
        """
        confidence = self._lookup.reported_confidence
        return confidence.value if confidence is not None else None

    @property
    def ambiguous(self) -> bool:
        """True if the recording does not decide between several responses."""
        return self._lookup.ambiguous

    @property
    def capture(self) -> Capture | None:
        """The capture that answers; None for a miss and for a request that failed while recording."""
        return self._lookup.capture

    @cached_property
    def response(self) -> Response | None:
        """The recorded response, read on first use: status, headers, body. None without a capture."""
        return None if self.capture is None else self._snapshot.read(self.capture)

    @property
    def grounds(self) -> list[str]:
        """Why the confidence is what it is, in words; empty for a miss."""
        return self._lookup.grounds() if self._lookup.grounds is not None and self.capture else []

    @property
    def nearest(self) -> list[NearCapture]:
        """Captures that come nearest to the request, each with what differs and the rule that would join them."""
        return self._lookup.explain()


def _open_layers(
    path: str | os.PathLike[str],
    prefix: str,
    progress: Progress | None,
    checked: bool,
    spill: OnDisk | None,
    at: str = "",
) -> list[Layer]:
    """Open one path of a snapshot, as one layer unless it is a cut of several. For the parameters see `Snapshot.open`."""
    writer = None
    if not is_remote(path):
        from stillweb.snapshots.writer import LIVE

        writer = LIVE.get(str(Path(path).resolve()))
    container = open_container(path)
    if writer is not None and not is_index_current(container):  # it has written records since it was opened
        container.close()
        # take the lines before opening the files, so that the files hold every record that the lines name
        index, known = Index(MemorySource(join_lines(writer.lines()))), IndexBuild(profile=writer.profile)
        container = open_container(path)
    else:
        index, known = open_index(container, progress, checked=checked, spill=spill)
        known.notes += page_list_faults(container)
    known.notes += container.left_out
    if at:
        index = _index_as_of(index, at)
    if spill is not None:
        spill.add(index.lines())
    numbers = sorted({layer_of(name) for name in container.archives})
    parts = [index] if len(numbers) < 2 else [_index_of(index, number) for number in numbers]
    return [Layer(container, part, known, prefix, len(parts) > 1) for part in parts]


def _index_of(index: Index, layer: int) -> Index:
    lines = (x for x in index.lines() if layer_of(parse_line(x)[2]["filename"]) == layer)
    return Index(MemorySource(join_lines(lines)))


def _index_as_of(index: Index, at: str) -> Index:
    lines = [line for line in index.lines() if is_seen_at(line.split(b" ", 2)[1].decode(), at)]
    captures = {n: to_capture(*parse_line(x)) for n, x in enumerate(lines) if not x.startswith(b"urn:")}
    kept = {id(capture) for capture in as_of(captures.values(), at)}
    shown = [x for n, x in enumerate(lines) if n not in captures or id(captures[n]) in kept]
    return Index(MemorySource(join_lines(shown)))


def _overlaid(parts: list[list[Capture]]) -> tuple[Capture, ...]:
    """Merge captures of layers, lowest first: the highest layer answers a request."""
    kept: list[Capture] = []
    hidden: set[tuple[Any, ...]] = set()
    for captures in reversed(parts):
        kept += [c for c in captures if asked(c) not in hidden]
        hidden.update(one for c in captures for one in _answered(c))
    return tuple(sorted(kept, key=lambda c: (c.urlkey, c.timestamp)))


def _answered(capture: Capture) -> tuple[tuple[Any, ...], ...]:
    """Return the `asked` tuples that a capture hides in lower layers.

    A whole response hides partial ones, too, but not the reverse.
    """
    found = asked(capture)
    return (found,) if found[-1] else (found, (*found[:-1], True))


def _mutations(layer: Layer, read: Callable[[Layer, dict[str, Any]], Record]) -> Iterator[dict[str, Any]]:
    for line in layer.index.lines(other_key("metadata", MUTATION), prefix=True):
        entry = parse_line(line)[2]
        if entry["kind"] != "metadata":
            continue
        try:
            one = json.loads(read(layer, entry).block)
            yield {**one, "id": str(one["id"]), "changed": [dict(c) for c in one["changed"]]}
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedInput(
                f"{entry['filename']}: the record of a mutation can't be read: {error}"
            ) from error


def _id_of(layers: list[Layer]) -> str:
    known, own = layers[0].known, layers[0].container.own
    if not known.notes and isinstance(own.get("id"), str) and is_index_current(layers[0].container):
        return str(own["id"])
    lines = (line for layer in layers for line in layer.index.lines())
    return snapshot_id(lines, known.profile, rules_from([own.get("rules")]).to_json())


def _tagged(number: int, layer: Layer) -> Iterator[tuple[int, Capture]]:
    for capture in layer.index:
        yield number, layer.named(capture)


# of a frozen text: sort key, number of the index, index entry
Listed = tuple[tuple[bytes, str], int, dict[str, Any]]


def _conversions(indexes: Sequence[Index]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the last entry of each address, in order of addresses, with the number of its index.

    If several indexes have the address, the one with the highest number wins.
    """
    found = heapq.merge(
        *(_last_conversions(number, index) for number, index in enumerate(indexes)), key=itemgetter(0)
    )
    for _, same in groupby(found, key=itemgetter(0)):
        *_, (_, number, entry) = same
        yield number, entry


def _last_conversions(number: int, index: Index) -> Iterator[Listed]:
    lines = index.lines("urn:conversion:", prefix=True)
    for key, same in groupby(lines, key=lambda line: line.split(b" ", 1)[0]):
        last: dict[str, dict[str, Any]] = {}
        for line in same:
            entry = parse_line(line)[2]
            last[target_of(entry)] = entry
        for url in sorted(last):
            yield (key, url), number, last[url]


def frozen_text(record: Record) -> FrozenText:
    """Return the text in a conversion record. Records of other tools have no options. Raises ValueError."""
    from stillweb.snapshots.text.text import FrozenText

    extractor, _, version = record.fields.get("warc-stillweb-extractor", "").partition("/")
    text = record.block.decode(errors="replace")
    options = unpack_options(record.fields.get("warc-stillweb-options", "{}"))
    return FrozenText.from_record(record.uri, text, extractor, version, options)
