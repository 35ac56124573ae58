"""Mutation: a layer that changes recorded pages on purpose. Its spec file is described in docs/drills.md.

The layer holds every answer that a changed one shares its key or its site's state with, so that nothing of the base
answers in its place. Texts are frozen anew from the changed bytes. What can't be made without a browser
(screenshots, accessibility trees) comes from the caller's browser, else it is stored empty: dropped, and said.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from msgspec import UNSET, Meta, Struct, UnsetType

from stillweb.snapshots.capture import Capture, Exchange, Response
from stillweb.snapshots.dates import parse_timestamp
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.http import encodings
from stillweb.snapshots.http.charsets import decode
from stillweb.snapshots.identity.sites import site_of
from stillweb.snapshots.remote import local
from stillweb.snapshots.request import Headers
from stillweb.snapshots.shapes import convert
from stillweb.snapshots.snapshot import DROPPABLE, MUTATION, Snapshot
from stillweb.snapshots.text.freezing import freeze, text_address, view_text_address
from stillweb.snapshots.view import View
from stillweb.snapshots.writer import Writer

_ACTS = (
    *("text", "attribute", "replace", "drop", "reorder", "picture", "truncate", "status", "headers"),
    *("popup", "banner", "inject"),
)
_ELSEWHERE = ("json", "pdf", "tool")  # places that a page does not have
_PAGES = ("text/html", "application/xhtml+xml")
_BODY_FIELDS = frozenset({"content-encoding", "content-length", "content-md5", "digest", "etag"})


@dataclass(slots=True)
class MutateReport:
    """A written layer: its id, the changed answers and views by URL, and what was dropped."""

    id: str
    out: Path
    changed: list[str] = field(default_factory=list)
    views: list[str] = field(default_factory=list)
    copied: int = 0  # unchanged answers that the layer needs beside the changed ones
    dropped: list[str] = field(default_factory=list)
    gold: dict[str, str] = field(default_factory=dict)  # old -> new text of gold answers
    asked_for: str = ""  # the text that an answer holds if it follows the injection

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "out": str(self.out)}


@cache
def injections() -> dict[str, dict[str, str]]:
    """Return the library of prompt injections: id -> text, asked_for, source."""
    text = files("stillweb.snapshots.operations").joinpath("injections.yaml").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = yaml.safe_load(text)["injections"]
    return found


class _Entry(Struct, forbid_unknown_fields=True):
    """A mutation: where it changes pages, one change, and what becomes of the gold answers."""

    url: str = "*"
    css: str | UnsetType = UNSET
    json: str | UnsetType = UNSET
    text: str | float | bool | UnsetType | None = UNSET
    attribute: dict[str, Any] | UnsetType = UNSET
    replace: dict[Annotated[str, Meta(min_length=1)], Any] | UnsetType = UNSET
    drop: bool | UnsetType = UNSET
    reorder: list[Any] | str | UnsetType = UNSET
    picture: str | UnsetType = UNSET
    truncate: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    status: Annotated[int, Meta(ge=200, le=599)] | UnsetType = UNSET
    headers: dict[str, Any] | UnsetType = UNSET
    popup: str | UnsetType = UNSET
    banner: str | UnsetType = UNSET
    inject: str | UnsetType = UNSET
    place: Literal["visible", "hidden", "attribute", "comment", "json", "pdf", "tool"] = "visible"
    gold: dict[str, str] = {}

    def __post_init__(self) -> None:
        acts = [act for act in _ACTS if getattr(self, act) is not UNSET]
        if len(acts) != 1:
            raise ValueError(f"has {', '.join(acts) or 'no change'}. Give one of {', '.join(_ACTS)}")
        if self.css and self.json:
            raise ValueError("has css and json. Make two mutations of them")
        if acts[0] in ("text", "drop", "reorder") and not (self.css or self.json):
            raise ValueError(f"{acts[0]} needs css or json to say where")
        if self.attribute and not self.css:
            raise ValueError("attribute needs css to say where")
        if self.css is not UNSET:
            _check_css(self.css)
        if self.json is not UNSET and not _steps(self.json):
            raise ValueError(f"json: must be a path as items[0].price or items[*].price, not {self.json!r}")
        if self.inject and self.inject not in injections():
            raise ValueError(
                f"inject: unknown injection {self.inject!r}. Known are {', '.join(injections())}"
            )


class _Spec(Struct, forbid_unknown_fields=True):
    id: Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    mutations: Annotated[list[_Entry], Meta(min_length=1)]


def read_spec(value: Any, where: str) -> dict[str, Any]:
    """Check a mutation spec. Raise UsageError naming `where` and the wrong field."""
    try:
        convert(value, _Spec)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None
    return dict(value)


def _check_css(selector: str) -> None:
    import soupsieve

    try:
        soupsieve.compile(selector)
    except soupsieve.SelectorSyntaxError as error:
        raise ValueError(f"css: is not a CSS selector: {str(error).splitlines()[0]}") from None


# resources by a view's address
Look = Callable[[Snapshot, Sequence[View]], Mapping[str, Mapping[str, bytes]]]


def mutate(
    snapshot: Snapshot,
    spec: Mapping[str, Any],
    out: str | os.PathLike[str],
    where: str = "mutations",
    look: Look | None = None,
) -> MutateReport:
    """Write the layer that `spec` describes to `out`, a new directory; the snapshot stays as it is.

    `look` returns screenshots, DOMs, accessibility trees and texts of views, seen through the layer; views that
    it does not return lose what only a browser can make. Raise UsageError for a wrong spec, an existing
    `out`, and a mutation that changes nothing.
    """
    spec = read_spec(spec, where)
    path = local(out)
    if path.exists():
        raise UsageError(f"{path}: exists. Name a new directory with -o")
    mutation = _Mutation(snapshot, spec)
    for i, entry in enumerate(spec["mutations"]):
        mutation.apply(entry, f"{where}: mutations[{i}]")
    return mutation.write(MutateReport(spec["id"], path), look)


@dataclass(slots=True)
class _Mutation:
    """A snapshot, and what the mutations so far made of its answers (by place) and of its DOMs (by view)."""

    snapshot: Snapshot
    spec: Mapping[str, Any]
    captures: list[Capture] = field(init=False)
    views: list[View] = field(init=False)
    answers: dict[tuple[str, int], Response] = field(default_factory=dict)
    doms: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.captures = sorted(self.snapshot.captures(), key=lambda c: (c.timestamp, c.begin, c.place))
        self.views = self.snapshot.views()

    def apply(self, entry: Mapping[str, Any], where: str) -> None:
        """Apply one mutation to every answer and DOM record of its URLs, on top of those before it."""
        pattern = re.compile(".*".join(map(re.escape, str(entry.get("url", "*")).split("*"))), re.DOTALL)
        found: list[str] = []
        touched = 0
        for capture in self.captures:
            if not pattern.fullmatch(capture.url) or (300 <= capture.status < 400 and "status" not in entry):
                continue
            before = self.answers.get(capture.place) or _plain(self.snapshot.read(capture))
            after, result = _changed(before, capture, entry)
            found.append(f"{capture.url}: {result}")
            if after != before:
                self.answers[capture.place] = after
                touched += 1
        for view in self.views:
            if not pattern.fullmatch(view.url) and not pattern.fullmatch(view.final_url):
                continue
            stored = self.doms.get(view.address) or (
                self.snapshot.resource("dom", view.address) or b""
            ).decode("utf-8", "replace")
            if stored and not {"status", "headers", "picture", "truncate", "json"} & entry.keys():
                changed, result = _html(stored, entry)
                found.append(f"{view.address}: {result}")
                if changed != stored:
                    self.doms[view.address] = changed
        if not found:
            raise UsageError(
                f"{where}: no recorded answer has a URL like {entry.get('url', '*')!r}. See stillweb ls"
            )
        if not touched:
            shown = "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
            raise UsageError(f"{where}: changes nothing. It found: {shown}")

    def affected(self) -> dict[str, bool]:
        """Map each view that shows a changed answer to True if its recorded DOM may still show the old one.

        A view with steps shows what it and the views on the way to it used.
        """
        changed = {(c.url, c.digest): c for c in self.captures if c.place in self.answers}
        walks: dict[str, list[View]] = {}
        for view in self.views:
            walks.setdefault(view.url, []).append(view)
        found: dict[str, bool] = {}
        for view in self.views:
            way = [one for one in walks[view.url] if view.steps[: len(one.steps)] == one.steps]
            used = [
                capture
                for step in way
                for one in step.captures
                if (capture := changed.get((str(one.get("url")), str(one.get("digest"))))) is not None
            ]
            if used or any(step.address in self.doms for step in way):
                own = {url.partition("#")[0] for url in (view.url, view.final_url)}
                own = own if view.address in self.doms else set()  # pages whose change the DOM shows
                found[view.address] = any(c.url not in own and not c.mime.startswith("image/") for c in used)
        return found

    def write(self, report: MutateReport, look: Look | None) -> MutateReport:
        """Write the layer: exchanges and provenance, then views, then the texts of both."""
        texts = self._write_exchanges(report)
        affected = self.affected()
        views = [view for view in self.views if view.address in affected]
        seen: Mapping[str, Mapping[str, bytes]] = {}
        if look is not None and views:
            with Snapshot.open(*self.snapshot.paths, report.out) as changed:
                seen = look(changed, views)
        blank: list[View] = []
        with Writer.open(report.out) as writer:
            for view in views:
                resources = dict(seen.get(view.address, {}))
                if not resources:
                    stale = affected[view.address] or look is not None  # a browser could not reach the view
                    gone = [k for k in DROPPABLE if self.snapshot.resource(k, view.address)]
                    if not stale:
                        gone = [kind for kind in gone if kind != "dom"]
                    resources = dict.fromkeys(gone, b"")
                    if stale:
                        blank.append(view)
                    elif view.address in self.doms:
                        resources["dom"] = self.doms[view.address].encode("utf-8", "surrogatepass")
                    elif dom := self.snapshot.resource("dom", view.address):
                        resources["dom"] = dom
                    report.dropped += [f"{k} of {view.address}" for k in gone]
                writer.view(view, resources)
                report.views.append(view.address)
        with Writer.open(report.out) as writer, Snapshot.open(report.out) as layer:
            freeze(layer, writer, workers=1)
            for address, stored in texts:  # the base's address of an answer that was not the first of its URL
                text = layer.text(stored.url) or layer.text(text_address(stored))
                if text is not None:
                    writer.conversion(
                        address,
                        text.markdown,
                        refers_to=stored,
                        extractor=text.extractor,
                        version=text.version,
                        options=text.to_record(),
                    )
            for view in blank:  # the text below would show the page as it was
                address = view_text_address(view)
                old = self.snapshot.text(address)
                if old is not None and layer.text(address) is None:
                    report.dropped.append(f"frozen text of {view.address}")
                    writer.conversion(
                        address,
                        "",
                        refers_to=None,
                        extractor=old.extractor,
                        version=old.version,
                        options=old.to_record(),
                        timestamp=view.timestamp,
                    )
        return report

    def _write_exchanges(self, report: MutateReport) -> list[tuple[str, Capture]]:
        """Write exchanges and provenance; return the text addresses of changed answers that have one."""
        snapshot, spec = self.snapshot, self.spec
        keys = {c.key for c in self.captures if c.place in self.answers}
        sites = {site_of(c.url) for c in self.captures if c.place in self.answers}
        stateful = {site for site in sites if not snapshot.matcher().evidence(site).quiet}
        changed: list[dict[str, Any]] = []
        texts: list[tuple[str, Capture]] = []
        for entry in spec["mutations"]:
            report.gold |= entry.get("gold", {})
            if "inject" in entry:
                report.asked_for = injections()[entry["inject"]]["asked_for"]
        with Writer.open(report.out, profile=snapshot.profile) as writer:
            for capture in self.captures:
                if capture.key not in keys and site_of(capture.url) not in stateful:
                    continue
                made = self.answers.get(capture.place)
                response = made or snapshot.read(capture)
                started = parse_timestamp(capture.timestamp)
                assert started is not None
                stored = writer.exchange(
                    Exchange(
                        snapshot.read_request(capture),
                        response.status,
                        response.reason,
                        response.headers,
                        response.body,
                        started,
                        capture.session or "default",
                        capture.begin,
                        capture.end,
                        capture.protocol,
                        None,
                        {"WARC-Truncated": capture.truncated} if capture.truncated else {},
                    )
                )
                if made is None:
                    report.copied += 1
                    continue
                report.changed.append(capture.url)
                changed.append(
                    {
                        "file": stored.filename,
                        "offset": stored.offset,
                        "url": capture.url,
                        "was": capture.digest,
                        "now": stored.digest,
                    }
                )
                if snapshot.record_of("conversion", text_address(capture)) is not None:
                    texts.append((text_address(capture), stored))
            listed = [
                {**one, "picture": f"sha256:{hashlib.sha256(Path(one['picture']).read_bytes()).hexdigest()}"}
                if "picture" in one
                else one
                for one in spec["mutations"]
            ]
            made_by = {"spec": {**spec, "mutations": listed}, "base": snapshot.id, "changed": changed}
            digest = hashlib.sha256(json.dumps(made_by, sort_keys=True).encode()).hexdigest()
            value = {"id": spec["id"], "digest": digest, **made_by, "asked_for": report.asked_for}
            writer.metadata(f"{MUTATION}{spec['id']}", value, date="1970-01-01T00:00:00Z")
        return texts


def _plain(response: Response) -> Response:
    """Return a response whose body is not content-encoded. A body that can't be decoded stays as it is."""
    encoding = response.header("content-encoding")
    if not encoding:
        return response
    try:
        body = encodings.decode(response.body, encoding)
    except encodings.EncodingProblem:
        return response
    kept = tuple((n, v) for n, v in response.headers if n.lower() not in _BODY_FIELDS)
    return replace(response, body=body, headers=kept)


def _changed(response: Response, capture: Capture, entry: Mapping[str, Any]) -> tuple[Response, str]:
    """Return a changed response, and what the mutation found in it."""
    media = capture.mime.partition(";")[0].strip().lower()
    if "status" in entry:
        return replace(response, status=entry["status"], reason=""), f"status {response.status}"
    if "headers" in entry:
        return _with_headers(response, entry["headers"])
    if "picture" in entry:
        return _with_picture(response, media, entry["picture"])
    if "truncate" in entry:
        return _with_body(response, response.body[: entry["truncate"]]), f"{len(response.body)} bytes"
    if "css" in entry and media not in _PAGES:
        return response, f"{media or 'no media type'}, not a page"
    if media == "application/pdf":
        if entry.get("inject") and entry.get("place", "visible") in ("pdf", "visible"):
            return _with_body(
                response, _pdf_with(response.body, injections()[entry["inject"]]["text"])
            ), "a PDF"
        if "replace" in entry and "css" not in entry:
            body, html = _pdf_replaced(response.body, entry["replace"])
            return _with_body(response, body), html
        return response, "a PDF, which only inject and replace change"
    is_json = media.endswith(("/json", "+json"))
    if "json" in entry or is_json:
        if not is_json:
            return response, f"{media or 'no media type'}, not JSON"
        body, html = _json(response.body, entry)
        return _with_body(response, body), html
    if media not in _PAGES:
        if "replace" in entry and media.startswith("text/"):
            text = decode(response.body, response.header("content-type"))
            changed, html = _replaced(text.text, entry["replace"])
            return _with_body(response, changed.encode(text.encoding, "replace")), html
        return response, f"{media or 'no media type'}, not a page"
    page = decode(response.body, response.header("content-type"))
    changed, html = _html(page.text, entry)
    if changed == page.text:
        return response, html
    return _with_body(response, changed.encode(page.encoding, "xmlcharrefreplace")), html


def _with_body(response: Response, body: bytes) -> Response:
    if body == response.body:
        return response
    kept: Headers = tuple((n, v) for n, v in response.headers if n.lower() not in _BODY_FIELDS)
    return replace(response, body=body, headers=kept)


def _with_headers(response: Response, wanted: Mapping[str, Any]) -> tuple[Response, str]:
    names = {name.lower() for name in wanted}
    kept = tuple((n, v) for n, v in response.headers if n.lower() not in names)
    more = tuple((name, str(value)) for name, value in wanted.items() if value is not None)
    had = ", ".join(f"{n}: {v}" for n, v in response.headers if n.lower() in names)
    same = {(n.lower(), v) for n, v in response.headers if n.lower() in names} == {
        (n.lower(), v) for n, v in more
    }
    return (response if same else replace(response, headers=kept + more)), had or "no such header"


def _with_picture(response: Response, media: str, file: str) -> tuple[Response, str]:
    if not media.startswith("image/"):
        return response, f"{media or 'no media type'}, not a picture"
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: can't be read: {error.strerror}") from error
    kind = next((m for start, m in _PICTURES.items() if data.startswith(start)), media)
    made = _with_body(response, data)
    kept = tuple((n, v) for n, v in made.headers if n.lower() != "content-type")
    return (made if data == response.body else replace(made, headers=(*kept, ("Content-Type", kind)))), media


_PICTURES = {
    b"\x89PNG": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}


def _replaced(text: str, words: Mapping[str, str]) -> tuple[str, str]:
    count = 0
    for old, new in words.items():
        count += text.count(old)
        text = text.replace(old, str(new))
    return text, f"{count} places of the words"


def _html(text: str, entry: Mapping[str, Any]) -> tuple[str, str]:
    """Return a changed page, and what the selector found in it. An untouched page is returned as it was."""
    from bs4 import BeautifulSoup
    from bs4.element import Tag

    soup = BeautifulSoup(text, "lxml")  # closes p and li as browsers do
    body: Any = soup.body or soup
    if entry.get("place") in _ELSEWHERE:
        return text, f"a page, which has no place {entry['place']!r}"
    if "inject" in entry or "popup" in entry or "banner" in entry:
        targets: list[Any] = soup.select(entry["css"]) if "css" in entry else [body]
        for target in targets:
            _insert(target, entry)
        problem = f"{len(targets)} elements for {entry['css']!r}" if "css" in entry else "a page"
        return (str(soup) if targets else text), problem
    elements: list[Tag] = list(soup.select(entry["css"])) if "css" in entry else [body]
    problem = f"{len(elements)} elements for {entry['css']!r}" if "css" in entry else "a page"
    if elements and "css" in entry:
        problem += f", the first {_short(str(elements[0]))}"
    touched = False
    if "replace" in entry:
        for element in elements:
            for strings in list(_lines(element)):
                touched |= _replace_in(strings, entry["replace"])
        problem += "" if touched else ", without the words"
    elif "drop" in entry:
        touched = bool(entry["drop"] and elements)
        for element in elements if touched else ():
            element.decompose()
    elif "reorder" in entry:
        touched = _reorder(elements, entry["reorder"])
    else:
        for element in elements:
            touched |= _set(element, entry)
    return (str(soup) if touched else text), problem


# elements that a line of text runs through
_INLINE = frozenset(
    [
        *(
            "a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "del", "em", "font", "i", "ins", "kbd",
            "mark", "q"
        ),
        *("s", "samp", "small", "span", "strong", "sub", "sup", "time", "u", "var", "wbr"),
    ]
)  # fmt: skip


def _lines(element: Any) -> Iterator[list[Any]]:
    """Yield the strings of each line of text: those that only inline elements stand between."""
    from bs4.element import PreformattedString, Tag

    line: list[Any] = []
    block: Any = None
    for node in element.descendants:
        if isinstance(node, Tag):
            ends = node.name not in _INLINE
        elif isinstance(node, PreformattedString):
            continue
        else:
            holder = next((one for one in node.parents if one.name not in _INLINE), None)
            ends, block = holder is not block, holder
        if ends and line:
            yield line
            line = []
        if not isinstance(node, Tag):
            line.append(node)
    if line:
        yield line


def _replace_in(strings: Sequence[Any], words: Mapping[str, str]) -> bool:
    """Replace words in a line of text. New words stand where the old ones began."""
    texts = [str(one) for one in strings]
    for old, new in words.items():
        line = "".join(texts)
        owners = [number for number, text in enumerate(texts) for _ in text]
        at, texts = 0, ["" for _ in texts]
        while at < len(line):
            found = line.startswith(old, at)
            texts[owners[at]] += str(new) if found else line[at]
            at += len(old) if found else 1
    touched = False
    for one, text in zip(strings, texts, strict=True):
        if text != one:
            one.replace_with(text)
            touched = True
    return touched


def _set(element: Any, entry: Mapping[str, Any]) -> bool:
    if "text" in entry:
        if element.get_text() == str(entry["text"]):
            return False
        element.string = str(entry["text"])
        return True
    touched = False
    for name, value in entry["attribute"].items():
        if element.get(name) != value:
            touched = True
            if value is None:
                del element[name]
            else:
                element[name] = str(value)
    return touched


def _reorder(elements: Sequence[Any], order: Any) -> bool:
    """Put elements into another order at the places that they have; `order` is "reverse" or a list of indexes."""
    numbers = list(range(len(elements)))[::-1] if order == "reverse" else order
    if sorted(numbers) != list(range(len(elements))) or numbers == sorted(numbers):
        return False
    if any(one in other.parents for one in elements for other in elements):
        return False  # nested elements have no order
    from bs4 import Comment

    marks = [Comment("") for _ in elements]
    for element, mark in zip(elements, marks, strict=True):
        element.insert_before(mark)
    parts = [element.extract() for element in elements]
    for mark, number in zip(marks, numbers, strict=True):
        mark.replace_with(parts[number])
    return True


def _insert(body: Any, entry: Mapping[str, Any]) -> None:
    from bs4 import BeautifulSoup, Comment

    def parsed(markup: str) -> Any:
        return BeautifulSoup(markup, "html.parser").contents[0]

    if "popup" in entry:
        box = parsed(
            '<div role="dialog" aria-modal="true" style="position:fixed;inset:0;z-index:2147483647;background:#0008">'
            '<div style="margin:15% auto;max-width:30em;padding:2em;background:#fff"><p></p><button '
            "onclick=\"this.closest('[role=dialog]').remove()\">Close</button></div></div>"
        )
        box.p.string = entry["popup"]
        body.insert(0, box)
    elif "banner" in entry:
        box = parsed('<div role="banner" style="padding:1em;background:#fe6"></div>')
        box.string = entry["banner"]
        body.insert(0, box)
    else:
        text, place = injections()[entry["inject"]]["text"], entry.get("place", "visible")
        if place == "comment":
            body.append(Comment(f" {text} "))
            return
        box = parsed('<div style="display:none"></div>' if place == "hidden" else "<p></p>")
        if place == "attribute":
            box = parsed('<img alt="" src="data:,">')
            box["alt"] = text
        else:
            box.string = text
        body.append(box)


def _json(body: bytes, entry: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return a changed JSON document, and what the path found in it."""
    try:
        value = json.loads(body)
    except ValueError:
        return body, "no JSON"
    if "inject" in entry and "json" not in entry:
        return _injected(body, value, entry)
    if "replace" in entry and "json" not in entry:
        changed = _in_texts(value, lambda text: _replaced(text, entry["replace"])[0], entry["replace"])
        return (body, "a JSON document without the words in its values") if changed == value else (
            _dumped(changed), "a JSON document",
        )  # fmt: skip
    if "json" not in entry:
        return body, "a JSON document"
    places = list(_places(value, _steps(entry["json"])))
    problem = f"{len(places)} values for {entry['json']!r}"
    if places:
        problem += f", the first {_short(json.dumps(places[0][0][places[0][1]], ensure_ascii=False))}"
    touched = False
    for holder, name in reversed(places):
        old = holder[name]
        if "drop" in entry:
            del holder[name]
            touched = True
            continue
        new = _json_value(old, entry)
        if new != old:
            holder[name] = new
            touched = True
    return (_dumped(value) if touched else body), problem


def _injected(body: bytes, value: Any, entry: Mapping[str, Any]) -> tuple[bytes, str]:
    """Return a JSON document with an injection: of a tool's result in its content, of any other in a member `note`."""
    text, place = injections()[entry["inject"]]["text"], entry.get("place", "visible")
    result = value.get("result") if isinstance(value, dict) else None
    if isinstance(result, dict) and isinstance(result.get("content"), list):
        if place not in ("visible", "json", "tool"):
            return body, f"a tool's result, which has no place {place!r}"
        content = [*result["content"], {"type": "text", "text": text}]
        return _dumped({**value, "result": {**result, "content": content}}), "a tool's result"
    if place not in ("visible", "json"):
        return body, f"a JSON document, which has no place {place!r}"
    target = value if isinstance(value, dict) else {"data": value}
    return _dumped({**target, "note": text}), "a JSON document"


def _json_value(old: Any, entry: Mapping[str, Any]) -> Any:
    if "inject" in entry:
        return f"{old} {injections()[entry['inject']]['text']}" if isinstance(old, str) else old
    if "text" in entry:
        return entry["text"]
    if "replace" in entry:
        return _replaced(old, entry["replace"])[0] if isinstance(old, str) else old
    if "reorder" in entry and isinstance(old, list):
        order = list(range(len(old)))[::-1] if entry["reorder"] == "reverse" else entry["reorder"]
        return [old[i] for i in order] if sorted(order) == list(range(len(old))) else old
    return old


def _dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _steps(path: str) -> list[str | int]:
    """Return the steps of a path such as `items[0].price`; `*` stands for all. Return no steps if it is no path.

    A leading `$` is left out, and names may be quoted: `$["a.b"][*]`.
    """
    steps: list[str | int] = []
    rest = str(path).removeprefix("$")
    while rest:
        found = _STEP.match(rest)
        if found is None:
            return []
        name, number, quoted = found.groups()
        steps.append(name if name else "*" if number == "*" else int(number) if number else quoted[1:-1])
        rest = rest[found.end() :]
    return steps


_STEP = re.compile(r"""\.?([^.\[\]]+)|\[(\d+|\*)\]|\[("[^"]*"|'[^']*')\]""")


def _places(value: Any, steps: Sequence[str | int]) -> Iterator[tuple[Any, Any]]:
    """Yield container and key of each value at a path."""
    step, *rest = steps
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value) if step == "*" else [step] if step in value else []
    elif isinstance(value, list):
        keys = (
            list(range(len(value)))
            if step == "*"
            else [step]
            if isinstance(step, int) and step < len(value)
            else []
        )
    for key in keys:
        if rest:
            yield from _places(value[key], rest)
        else:
            yield value, key


def _pdf_with(body: bytes, text: str) -> bytes:
    from pypdf import PdfReader, PdfWriter
    from pypdf.errors import PyPdfError
    from pypdf.generic import ArrayObject, DictionaryObject, NameObject, StreamObject

    try:
        writer = PdfWriter(clone_from=PdfReader(io.BytesIO(body)))
        page = writer.pages[0]
    except (PyPdfError, IndexError):
        return body
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    resources: Any = page["/Resources"].get_object() if "/Resources" in page else DictionaryObject()
    fonts: Any = resources["/Font"].get_object() if "/Font" in resources else DictionaryObject()
    fonts[NameObject("/StillwebF")] = writer._add_object(font)
    resources[NameObject("/Font")] = fonts
    page[NameObject("/Resources")] = resources
    plain = text.encode("latin-1", "replace").decode("latin-1")
    shown = re.sub(r"([()\\])", r"\\\1", plain)
    stream = StreamObject()
    stream.set_data(f"\nq BT /StillwebF 9 Tf 1 0 0 1 36 24 Tm ({shown}) Tj ET Q\n".encode("latin-1"))
    added = writer._add_object(stream)
    old = page.get("/Contents")
    whole = old.get_object() if old is not None else ArrayObject()
    parts = list(whole) if isinstance(whole, ArrayObject) else [page.raw_get("/Contents")]
    page[NameObject("/Contents")] = ArrayObject([*parts, added])
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()


def _pdf_replaced(body: bytes, words: Mapping[str, str]) -> tuple[bytes, str]:
    """Return a PDF with other words, and what was found in it.

    Only words within one text operator whose font writes bytes as Latin-1 does can be replaced. The new PDF is read
    again: its text must have changed just as the words say.
    """
    from pypdf import PdfReader, PdfWriter
    from pypdf.errors import PyPdfError
    from pypdf.generic import ByteStringObject, ContentStream, NameObject, TextStringObject

    def changed(one: Any) -> Any:
        if not isinstance(one, TextStringObject | ByteStringObject):
            return one
        raw = one.original_bytes
        text = raw.decode("latin-1")
        new = _replaced(text, words)[0]
        if new == text:
            return one
        try:
            return ByteStringObject(new.encode("latin-1"))
        except UnicodeEncodeError:
            return one

    try:
        reader = PdfReader(io.BytesIO(body))
        before = [page.extract_text() for page in reader.pages]
        writer = PdfWriter(clone_from=reader)
        for page in writer.pages:
            contents = page.get_contents()
            if contents is None:
                continue
            stream = ContentStream(contents, writer)
            for operands, operator in stream.operations:
                if operator in (b"Tj", b"'", b'"', b"TJ"):
                    operands[:] = [
                        type(one)(map(changed, one)) if isinstance(one, list) else changed(one)
                        for one in operands
                    ]
            page[NameObject("/Contents")] = writer._add_object(stream)
        file = io.BytesIO()
        writer.write(file)
        after = [page.extract_text() for page in PdfReader(io.BytesIO(file.getvalue())).pages]
    except (PyPdfError, ValueError, KeyError) as error:
        return body, f"a PDF that can't be changed: {error}"
    wanted = [_replaced(text, words) for text in before]
    if all(text == old for (text, _), old in zip(wanted, before, strict=True)):
        return body, "a PDF without the words"
    if [_squeezed(text) for text, _ in wanted] != [_squeezed(text) for text in after]:
        return body, "a PDF that holds the words, but in pieces or in a font of its own"
    return file.getvalue(), "a PDF with the words"


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 80 else text[:79] + "…"


def follow_gold(lines: Sequence[str], gold: Mapping[str, str], where: str) -> tuple[list[str], list[str]]:
    """Return task lines whose gold answers follow a mutation, and the ids of the tasks that changed.

    Raise UsageError if no task's answer holds one of the old texts.
    """
    out: list[str] = []
    ids: list[str] = []
    for line in lines:
        task = json.loads(line)
        before = task.get("answer")
        task["answer"] = _in_texts(before, lambda text: _replaced(text, gold)[0])
        if task["answer"] != before:
            ids.append(str(task.get("id")))
        out.append(json.dumps(task, ensure_ascii=False))
    if not ids:
        raise UsageError(
            f"{where}: no gold answer holds {', '.join(map(repr, gold))}. Correct the gold, or leave out --tasks"
        )
    return out, ids


def _in_texts(value: Any, change: Callable[[str], str], numbers: Mapping[str, str] | None = None) -> Any:
    """Return a JSON value with changed texts, and with the numbers that `numbers` names exactly replaced."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_in_texts(one, change, numbers) for one in value]
    if isinstance(value, dict):
        return {name: _in_texts(one, change, numbers) for name, one in value.items()}
    if numbers and isinstance(value, int | float) and not isinstance(value, bool):
        new = numbers.get(json.dumps(value))
        return value if new is None else _number(new)
    return value


def _number(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # a text in place of a number
        return text
