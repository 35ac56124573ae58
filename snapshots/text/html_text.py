"""Simple markdown of HTML, every visible word in document order: the fallback where trafilatura finds no text.

Tables become pipe tables, list items get dashes and headings hashes. Nothing is dropped as boilerplate.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from html import unescape
from typing import Any
from urllib.parse import urljoin

from lxml import etree
from lxml import html as lxml_html

NAME = "stillweb-plain"
VERSION = "3"

MOST_TAGS = 700_000  # opening tags of the largest page that is parsed, which takes some 150 MB
MOST_CELLS = 500_000  # cells of the largest table that is laid out as a rectangle

Element = Any  # lxml.etree._Element; lxml has no types of its own

SKIP = frozenset(
    {"script", "style", "template", "noscript", "head", "svg", "math", "iframe", "object", "canvas"}
)
_IN_HEAD = frozenset({"base", "link", "meta", "noscript", "script", "style", "template", "title"})
BREAK = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "center",
        "dd",
        "details",
        "dialog",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hr",
        "html",
        "legend",
        "li",
        "main",
        "nav",
        "ol",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "tbody",
        "tfoot",
        "thead",
        "tr",
        "ul",
    ]
)
_PARAGRAPH = frozenset(
    ["p", "h1", "h2", "h3", "h4", "h5", "h6", "table", "pre", "blockquote", "ul", "ol", "dl"]
)
SPACE = re.compile(r"[ \t\r\n\f\u00a0]+")
_EMPTY_LINES = re.compile(r"\n{3,}")
_BAD = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


# lxml.html looks up the class of each element in Python, because forms have their own; a fixed class is faster
_CLASSES = etree.ElementDefaultClassLookup(
    element=lxml_html.HtmlElement,
    comment=lxml_html.HtmlComment,
    pi=lxml_html.HtmlProcessingInstruction,
    entity=lxml_html.HtmlEntity,
)


def parse(text: str) -> Element | None:
    """Parse a page into a tree; return None if it has no element."""
    text = _BAD.sub("", text)
    if text.lstrip().startswith("<?xml"):
        text = re.sub(r"\A\s*<\?xml[^>]*>", "", text)  # lxml rejects a `str` with a declared encoding
    if not text.strip():
        return None
    parser = etree.HTMLParser(huge_tree=True, remove_comments=True, remove_pis=True, collect_ids=False)
    parser.set_element_class_lookup(_CLASSES)
    try:
        tree = lxml_html.document_fromstring(text, parser=parser)
    except etree.ParserError:  # only white space or comments
        return None
    _leave_head(tree)
    return tree if len(tree) else None


def _leave_head(tree: Element) -> None:
    """Move elements that can't be in a head into the body, in place.

    Without a `<body>` tag, libxml2 leaves elements that it doesn't know (`main`, `nav`, custom ones) in the head.
    """
    head = tree.find("head")
    if head is None or not (strays := [one for one in head if one.tag not in _IN_HEAD]):
        return
    first = head.index(strays[0])
    body = tree.find("body")
    if body is None:
        body = head.makeelement("body")
        head.addnext(body)
    before, body.text = body.text, None
    for place, element in enumerate(list(head)[first:]):
        body.insert(place, element)
    if before:
        element.tail = (element.tail or "") + before


def make_links_absolute(tree: Element, address: str) -> None:
    """Resolve the links and sources of a page against its `base` element or its address, in place.

    lxml's method of this name takes a tenth of the time of the whole extraction, most of it for links that no text
    shows.
    """
    for number, element in enumerate(tree.xpath("//base[@href]")):
        if number == 0:  # the first `base` counts (HTML, 4.2.3)
            with contextlib.suppress(ValueError):
                address = urljoin(address, element.get("href").strip())
        element.drop_tree()
    joined = Joiner(address)
    for element in tree.xpath("//*[@href or @src]"):
        for name in ("href", "src"):
            link = element.get(name)
            if link is not None and (absolute := joined(link)) != link:
                element.set(name, absolute)


# no empty segment, and none that begins with a dot
_SEGMENTS = r"(?:[A-Za-z0-9_~%-][A-Za-z0-9_.~%-]*/)*(?:[A-Za-z0-9_~%-][A-Za-z0-9_.~%-]*)?"
_BELOW = re.compile(_SEGMENTS)
_FROM_ROOT = re.compile(f"/{_SEGMENTS}")
_WHOLE = re.compile(rf"https?://[A-Za-z0-9.-]+/{_SEGMENTS}")


class Joiner:
    """Fast `urljoin(address, link.strip())` for many links of one page.

    Common links (fragments, plain paths) are joined by string concatenation. A link that is no URL (`http://[`) is
    returned stripped.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._known: dict[str, str] = {}
        folder, root = self._join("x"), self._join("/x")
        plain = folder.endswith("/x") and root.endswith("/x") and address.startswith(("http://", "https://"))
        self._folder, self._root = (folder[:-1], root[:-2]) if plain else ("", "")

    def __call__(self, link: str) -> str:
        """Return the absolute form of a link."""
        known = self._known.get(link)
        if known is None:
            known = self._known[link] = self._made(link.strip())
        return known

    def _made(self, link: str) -> str:
        path, mark, fragment = link.partition("#")
        if mark and not (fragment and fragment.isprintable()):
            return self._join(link)
        tail = mark + fragment
        if self._folder and path:
            if _BELOW.fullmatch(path):
                return self._folder + path + tail
            if _FROM_ROOT.fullmatch(path):
                return self._root + path + tail
            if _WHOLE.fullmatch(path):
                return link
        if not mark:
            return self._join(link)
        one = path + "#x"  # join a path once for all of its fragments
        if one not in self._known:
            self._known[one] = self._join(one)
        return self._known[one][:-1] + fragment

    def _join(self, link: str) -> str:
        try:
            return urljoin(self._address, link)
        except ValueError:
            return link


def title_of(tree: Element) -> str:
    """Return the page's title with its white space collapsed; "" if it has none."""
    node = next(tree.iterdescendants("title"), None)
    return SPACE.sub(" ", "".join(node.itertext())).strip() if node is not None else ""


def markdown(tree: Element) -> str:
    """Return all visible words of a tree as simple markdown."""
    return _tidy("".join(_walk(tree)))


_HIDDEN = re.compile(
    r"<(script|style|template|noscript|head|svg)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)", re.I | re.S
)
_TAG = re.compile(r"<[/!?a-zA-Z][^>]*>?")


def without_tags(text: str) -> str:
    """Return the words of a page whose tags nest too deeply for the parser (2,048 levels), by regular expression.

    Return "" for a page with fewer than 2,000 tags.
    """
    if text.count("<") < 2000:
        return ""
    return _tidy(unescape(SPACE.sub(" ", _TAG.sub("\n", _HIDDEN.sub(" ", text)))))


def _tidy(text: str) -> str:
    lines = (line.strip(" ") for line in text.split("\n"))
    return _EMPTY_LINES.sub("\n\n", "\n".join(lines)).strip()


def hidden(element: Element) -> bool:
    if element.get("hidden") is not None or element.get("aria-hidden") == "true":
        return True
    style = element.get("style")
    return (
        style is not None
        and re.search(r"display\s*:\s*none|visibility\s*:\s*hidden", style, re.I) is not None
    )


def _walk(root: Element) -> Iterator[str]:
    """Yield the pieces of markdown in document order. Not recursive: pages nest deeper than Python's limit."""
    stack: list[tuple[Element, bool]] = [(root, False)]
    while stack:
        element, leaving = stack.pop()
        tag = element.tag if isinstance(element.tag, str) else ""
        if leaving:
            if tag in BREAK:
                yield "\n\n" if tag in _PARAGRAPH else "\n"
            if element.tail and element is not root:
                yield SPACE.sub(" ", element.tail)
            continue
        if not tag or tag in SKIP or hidden(element):
            if element.tail and element is not root:
                yield SPACE.sub(" ", element.tail)
            continue
        if tag == "table" and is_data_table(element):
            yield "\n\n" + table_markdown(element) + "\n\n"
            if element.tail and element is not root:
                yield SPACE.sub(" ", element.tail)
            continue
        if tag in BREAK:
            yield "\n\n" if tag in _PARAGRAPH else "\n"
        if tag == "br":
            yield "\n"
        elif tag == "li":
            yield "- "
        elif tag in ("td", "th"):
            yield " "
        elif tag[0] == "h" and tag[1:] in ("1", "2", "3", "4", "5", "6"):
            yield "#" * int(tag[1:]) + " "
        elif tag == "img" and element.get("alt"):
            yield SPACE.sub(" ", element.get("alt") or "")
        elif (
            tag == "input"
            and element.get("type", "text") not in ("hidden", "password")
            and element.get("value")
        ):
            yield SPACE.sub(" ", element.get("value") or "") + " "
        if element.text:
            yield element.text if tag == "pre" else SPACE.sub(" ", element.text)
        stack.append((element, True))
        stack.extend((child, False) for child in reversed(element))


def is_data_table(table: Element) -> bool:
    """Return True if a table holds data, not layout: two rows of two cells or more, and no table within."""
    if next(table.iterdescendants("table"), None) is not None:
        return False
    full = 0
    for row in table.iter("tr"):
        if sum(1 for _ in row.iterchildren("td", "th")) >= 2:
            full += 1
            if full == 2:
                return True
    return False


def _words(element: Element) -> str:
    if not len(element) and element.tag in ("td", "th"):  # most cells; the result is that of `_walk`
        return "" if hidden(element) else SPACE.sub(" ", element.text or "").strip()
    return SPACE.sub(" ", "".join(_walk(element))).strip()


def _span(cell: Element, name: str, most: int) -> int:
    value = cell.get(name, "1")
    return max(1, min(int(value), most)) if len(value) < 10 and value.isascii() and value.isdigit() else 1


def laid_out(table: Element) -> int:
    """Return the number of cells of a table as a rectangle, with spanning cells repeated in all their places."""
    own = [[cell for cell in row if cell.tag in ("td", "th")] for row in table.iter("tr")]
    height = len(own)
    areas = [[_span(c, "colspan", 1000) * _span(c, "rowspan", height) for c in row] for row in own]
    widths = (sum(_span(c, "colspan", 1000) for c in row) for row in own)
    return max(height * max(widths, default=0), sum(map(sum, areas)))


def rows(table: Element) -> list[list[str]]:
    """Return the texts of a table's cells, by row; empty cells follow one that spans columns, within bounds."""
    out: list[list[str]] = []
    room = MOST_CELLS
    for row in table.iter("tr"):
        cells: list[str] = []
        for cell in row:
            if cell.tag not in ("td", "th"):
                continue
            cells.append(_words(cell))
            more = min(_span(cell, "colspan", 100) - 1, room)
            cells += [""] * more
            room -= more
        if any(cells):
            out.append(cells)
    return out


def table_markdown(table: Element) -> str:
    """Return a pipe table; the first row is its head. "" for a table without words."""
    cells = rows(table)
    if not cells:
        return ""
    width = max(map(len, cells))
    if width * len(cells) > MOST_CELLS:  # don't pad rows to the longest one
        width = len(cells[0])
    lines = [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row + [""] * (width - len(row))) + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "---|" * width)
    return "\n".join(lines)
