"""Frozen text of a page or PDF: extracted once, and stored with its extractor, version and options.

HTML is written as markdown by `html_text`; trafilatura judges which menus, headers and footers are left out. Where it
finds no text, nothing is left out, and the extractor is named `stillweb-plain`. PDFs are extracted by pypdfium2 page by page, or by pypdf
where that fails. The same bytes give the same text under the same versions; replay reads the stored text.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.decompression import IN_MEMORY
from stillweb.snapshots.http import charsets, encodings
from stillweb.snapshots.shapes import convert
from stillweb.snapshots.text import pdf_text
from stillweb.snapshots.words import pluralize

HTML = "text/html"
PDF = "application/pdf"
OPTIONS: dict[str, Any] = {  # trafilatura's, whose text judges what is boilerplate
    "output_format": "txt",
    "include_tables": True,
    "include_comments": True,
    "favor_recall": True,  # a missing fact costs more here than a superfluous menu; it is quicker, too
}
MOST_ELEMENTS, MOST_INLINE, DEEPEST = 100_000, 10_000, 200  # see `_too_much`; 15 s and 300 MB at worst
READ = 1 << 25  # bytes of a page from which its text is extracted
LARGE = 6_000_000  # characters of HTML above which trafilatura takes minutes; `stillweb-plain` is used
LOST_NAMED = 8  # lost words that a warning names
BROKEN = "content encoding: "  # start of a warning: the body could not be decoded to its end
PAGE_BREAK = "\n\n"

_HTML_START = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b",
    re.I | re.S,
)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class FrozenText:
    """Text of one address.

    `markdown` is the whole text; `pages` are a PDF's pages in order, None for anything else. `media` is the actual
    type of the bytes (`text/html` or `application/pdf`), whatever Content-Type said. `options` are the extractor's.
    `warnings` are for people: scanned, encrypted, mislabelled, badly encoded. `meta` holds `url`, `digest` (of the
    payload) and further facts: `encoding` for pages; `info`, `num_pages`, `encrypted`, `scanned`, `xmp` for PDFs.
    """

    address: str
    markdown: str
    pages: tuple[str, ...] | None = None
    title: str = ""
    media: str = HTML
    extractor: str = ""
    version: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)

    def to_record(self) -> dict[str, Any]:
        """Return the dict that `Writer.conversion` stores as `options`; `from_record` reads it."""
        record: dict[str, Any] = {"media": self.media, "options": dict(self.options)}
        if self.title:
            record["title"] = self.title
        if self.warnings:
            record["warnings"] = list(self.warnings)
        if self.meta:
            record["meta"] = dict(self.meta)
        if self.pages is not None:
            record["pages"] = [len(page) for page in self.pages]  # code points
        return record

    @classmethod
    def from_record(
        cls, address: str, text: str, extractor: str, version: str, record: Mapping[str, Any]
    ) -> FrozenText:
        """Return the frozen text in a conversion record. Raises ValueError if the page lengths don't fit the text.

        Records of other tools have no `media`: their text is kept whole.
        """
        convert(dict(record), _Stored)
        if "media" not in record:
            return cls(address, text, None, "", "text/plain", extractor, version, dict(record))
        pages: tuple[str, ...] | None = None
        if "pages" in record:
            parts: list[str] = []
            at = 0
            for length in record["pages"]:
                parts.append(text[at : at + length])
                at += length + len(PAGE_BREAK)
            if at and at - len(PAGE_BREAK) != len(text):
                raise ValueError(f"{address}: the page lengths don't add up to the text")
            pages = tuple(parts)
        return cls(
            address,
            text,
            pages,
            record.get("title", ""),
            record["media"],
            extractor,
            version,
            record.get("options", {}),
            tuple(record.get("warnings", ())),
            record.get("meta", {}),
        )


class _Stored(msgspec.Struct):
    """Types of the members in `FrozenText.to_record`, checked on reading."""

    media: str = ""
    title: str = ""
    options: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
    meta: dict[str, Any] = {}
    pages: list[int] | None = None


def sniff(body: bytes) -> str | None:
    """Return `application/pdf` or `text/html` if the (content-decoded) bytes plainly are that; None if not.

    A PDF has its header in the first 1024 bytes, as readers allow (ISO 32000-1, implementation note 13).
    """
    head = body[:1024]
    if head.startswith(_UTF16):
        head = head.decode("utf-16", "ignore").encode()
    if _HTML_START.match(head):
        return HTML
    return PDF if b"%PDF-" in head else None


def kind_of(body: bytes, content_type: str | None) -> tuple[str | None, str | None]:
    """Return the type of the bytes (`text/html`, `application/pdf` or None), and a warning if mislabelled."""
    label = (content_type or "").partition(";")[0].strip().lower()
    seen = sniff(body)
    labelled = HTML if label in (HTML, "application/xhtml+xml") else PDF if label == PDF else None
    if seen and labelled and seen != labelled:
        what = "a PDF" if seen == PDF else "HTML"
        return seen, f"labelled {label}, but the bytes are {what}"
    if labelled == PDF and seen is None:
        return PDF, "labelled application/pdf, but the bytes are no PDF"
    if (
        seen
        and labelled is None
        and label in ("", "application/octet-stream", "binary/octet-stream", "application/download")
    ):
        return seen, None
    return labelled, None


@functools.cache
def _versions() -> tuple[str, str]:
    import lxml.etree
    import trafilatura

    _hash_stop_words_once()
    return trafilatura.__version__, ".".join(map(str, lxml.etree.LXML_VERSION[:3]))


def _hash_stop_words_once() -> None:
    """Give trafilatura its stop words as a frozenset, when it first needs them.

    justext looks all 154,000 words up by their hash for each short page. A tuple computes it each time: 5 of 6 ms a page.
    """
    external: Any = importlib.import_module("trafilatura.external")
    made = external.jt_stoplist_init

    def stop_words() -> frozenset[str]:
        external.JT_STOPLIST = words = frozenset(made())
        return words

    external.jt_stoplist_init = stop_words


def extract(capture: Capture | None, response: Response, *, address: str | None = None) -> FrozenText | None:
    """Extract the text of a response; return None if it is neither HTML nor PDF.

    `address` defaults to the capture's URL; relative links are resolved against it. Damaged pages don't raise:
    `warnings` say what is wrong.
    """
    url = address or (capture.url if capture else "")
    meta: dict[str, Any] = {"url": url.partition("#")[0]}
    if capture is not None:
        meta["digest"] = capture.digest
    warnings: list[str] = []
    body, problem = unpack_body(response)
    if problem:
        warnings.append(f"{BROKEN}{problem}")
    label = response.header("content-type")
    kind, warning = kind_of(body, label)
    if warning:
        warnings.append(warning)
    if kind == PDF:
        return _pdf(url, body, warnings, meta)
    if kind == HTML:
        return _html(url, body, label, warnings, meta)
    return None


def unpack_body(response: Response) -> tuple[bytes, str]:
    """Return a body without its content encoding, and a description of its damage, "" if there is none.

    A broken body is decoded up to the error. Bodies are cut to the first `READ` bytes, except PDFs, which can't be read
    without their end.
    """
    found, problem = _as_far_as_it_goes(response)
    if len(found) > READ and sniff(found) != PDF:
        return found[:READ], f"only the first {READ >> 20} MB are read"
    return found, problem


def _as_far_as_it_goes(response: Response) -> tuple[bytes, str]:
    """Return the part of a body that can be decoded, and the error, else "".

    The raw body is returned if it plainly was never encoded.
    """
    found = bytearray()
    try:
        for piece in encodings.decode_pieces(
            [response.body], response.header("content-encoding"), most=IN_MEMORY
        ):
            found += piece
            if len(found) > READ and sniff(bytes(found[:1024])) != PDF:
                break
    except encodings.EncodingProblem as error:
        if not found and sniff(response.body):
            return response.body, str(error)
        return bytes(found), str(error)
    return bytes(found), ""


def extract_html(
    address: str, html: str, *, warnings: tuple[str, ...] = (), meta: Mapping[str, Any] | None = None
) -> FrozenText:
    """Extract the text of decoded HTML, such as a view's DOM."""
    import trafilatura

    # imported late: frozen texts are also read where lxml is not installed
    from stillweb.snapshots.text import html_text

    notes = list(warnings)
    filter_version, lxml_version = _versions()
    options: dict[str, Any] = {"lxml": lxml_version}
    known = dict(meta or {})

    def result(markdown: str, title: str, extractor: str = html_text.PLAIN) -> FrozenText:
        if not markdown.strip():
            notes.append("no text in it")
        version = html_text.VERSION
        if extractor == html_text.NAME:
            version += f"+trafilatura-{filter_version}"
        return FrozenText(
            address, markdown, None, title, HTML, extractor, version, options, tuple(notes), known
        )

    if (tags := html.count("<") - html.count("</")) > html_text.MOST_TAGS:
        notes.append(f"too many tags to be parsed ({tags}): tags removed")
        return result(html_text.without_tags(html), "")
    tree = html_text.parse(html)
    if tree is None:
        return result("", "")
    title = html_text.title_of(tree)
    if open_shadows(tree):
        options["shadow_trees"] = "opened"
    base = address.partition("#")[0]
    if base.startswith(("http://", "https://")):
        html_text.make_links_absolute(tree, base)
    kept = None
    if cost := f"{len(html)} characters" if len(html) > LARGE else _too_much(tree):
        notes.append(f"too large for trafilatura ({cost}): plain text")
    else:
        kept = trafilatura.extract(tree, **OPTIONS) or None
        if kept is not None:
            options |= OPTIONS
    page = html_text.page_markdown(tree, kept)
    if not page.markdown:
        plain = html_text.without_tags(html)
        if plain:
            notes.append("too deeply nested to be parsed: tags removed")
        return result(plain, title)
    if kept is None and not cost:
        notes.append("trafilatura found no text: plain text")
    if lost := html_text.lost_words(tree, page):
        named = ", ".join(lost[:LOST_NAMED]) + (", …" if len(lost) > LOST_NAMED else "")
        notes.append(f"{pluralize(len(lost), 'word')} of the page not in its text: {named}")
    if page.left_out:
        known["left_out"] = sum(len(line.split()) for line in page.left_out)
    return result(page.markdown, title, html_text.NAME if kept is not None else html_text.PLAIN)


def _too_much(tree: Any) -> str:
    """Return why trafilatura would take too long or too much memory for a page, or fail; else "".

    It recurses into elements; its time and memory grow with the square of the inline elements in one parent, and it
    lays tables out cell by cell.
    """
    from lxml import etree

    from stillweb.snapshots.text import html_text

    elements = inline = deepest = depth = 0
    for event, element in etree.iterwalk(tree, events=("start", "end")):
        if event == "end":
            depth -= 1
            continue
        depth += 1
        deepest = max(deepest, depth)
        elements += 1
        inline += sum(1 for child in element if child.tag not in html_text.BREAK) ** 2
    if elements > MOST_ELEMENTS:
        return f"{elements} elements"
    if deepest > DEEPEST:
        return f"{deepest} levels of elements"
    if inline > MOST_INLINE**2:
        return "too many inline elements together"
    cells = sum(map(html_text.count_cells, tree.iter("table")))
    return f"{cells} cells of tables, as they span" if cells > html_text.MOST_CELLS else ""


def _html(url: str, body: bytes, label: str | None, warnings: list[str], meta: dict[str, Any]) -> FrozenText:
    decoded = charsets.decode(body, label)
    meta["encoding"] = decoded.encoding
    return extract_html(url, decoded.text, warnings=(*warnings, *decoded.warnings), meta=meta)


def _pdf(url: str, body: bytes, warnings: list[str], meta: dict[str, Any]) -> FrozenText:
    found = pdf_text.extract_pdf(body)
    meta["info"] = found.info
    meta["num_pages"] = len(found.pages)
    if found.encrypted:
        meta["encrypted"] = True
    if not found.readable:
        meta["readable"] = False
    if found.images:
        meta["scanned"] = found.images
    if found.labels:
        meta["labels"] = found.labels
    if found.tagged:
        meta["tagged"] = True
    if found.xmp:
        meta["xmp"] = True
    return FrozenText(
        url,
        PAGE_BREAK.join(found.pages),
        tuple(found.pages),
        found.title,
        PDF,
        found.extractor,
        found.version,
        {},
        (*warnings, *found.warnings),
        meta,
    )


Element = Any  # lxml.etree._Element; lxml has no types of its own


def open_shadows(tree: Element) -> bool:
    """Replace shadow trees by plain children of their hosts and fill their slots, in place.

    The trees, open or closed in the recorded page, are `<template shadowrootmode>` as `page.js` writes them.

    Return True if there was one. Children of a host that no slot takes stay after the tree, like other hidden markup.
    """
    found = [one for one in tree.iter("template") if one.get("shadowrootmode") in ("open", "closed")]
    for template in found:  # outer trees first
        host = template.getparent()
        template.tag = "div"
        template.attrib.clear()
        if host[0] is not template:  # after children that its slots may take: move it to the front
            _say_before(template, template.tail or "")
            template.tail = None
            host.insert(0, template)
        for slot in list(template.iter("slot")):
            # skip the slots of inner trees, which are still in their templates
            if not any(one in found for one in slot.iterancestors("template")):
                _fill(slot, host, template)
        template.tail, host.text = (host.text or "") + (template.tail or "") or None, None
    return bool(found)


def _fill(slot: Element, host: Element, shadow: Element) -> None:
    """Move the host's matching children into the slot; keep the slot's fallback content if none match."""
    name = slot.get("name") or ""
    slot.tag = "span"
    taken: list[Element | str] = []
    if not name:
        taken.append(host.text or "")
        host.text = None
    for child in list(host):
        mine = child is not shadow and (child.get("slot") or "") == name
        after = child.tail or ""
        if mine:
            taken.append(child)
        if not name:
            taken.append(after)
            child.tail = None
        elif mine:
            child.tail = None
            _say_before(child, after)
    if not any(not isinstance(one, str) or one.strip() for one in taken):
        return
    slot.text = None
    for child in list(slot):
        slot.remove(child)
    for one in taken:
        if not isinstance(one, str):
            slot.append(one)
        elif len(slot):
            slot[-1].tail = (slot[-1].tail or "") + one
        else:
            slot.text = (slot.text or "") + one


def _say_before(element: Element, text: str) -> None:
    before = element.getprevious()
    if before is not None:
        before.tail = (before.tail or "") + text
    else:
        parent = element.getparent()
        parent.text = (parent.text or "") + text
