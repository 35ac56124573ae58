"""Markdown of HTML: every visible word in document order, boilerplate aside, with a check for lost words.

Tables become pipe tables, list items get dashes or the numbers that a browser shows, headings hashes, links their
targets; checked boxes and chosen options are marked `[x]`. Characters are never escaped and emphasis is not marked, so that words can be copied letter by letter. Only `|`
in a cell of a table is escaped.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from itertools import repeat
from typing import Any
from urllib.parse import urljoin

from lxml import etree
from lxml import html as lxml_html

from stillweb.snapshots.text.scripts import lowered_mark, raised_mark

NAME = "stillweb"
PLAIN = "stillweb-plain"  # without a filter for boilerplate
VERSION = "10"

MOST_TAGS = 700_000  # opening tags of the largest page that is parsed, which takes some 150 MB
MOST_ROWS = 65_534  # rows that a cell spans at most (HTML, 4.9.11)
MOST_CELLS = 500_000  # cells of the largest table that is laid out as a rectangle

Element = Any  # lxml.etree._Element; lxml has no types of its own

SKIP = frozenset(
    {
        "script", "style", "template", "noscript", "head", "iframe", "object", "canvas", "video", "audio",
        "datalist", "title", "desc", "defs", "metadata"
    }
)  # fmt: skip
_IN_HEAD = frozenset({"base", "link", "meta", "noscript", "script", "style", "template", "title"})
BREAK = frozenset(
    [
        "address", "article", "aside", "blockquote", "body", "center", "dd", "details", "dialog", "dir",
        "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4",
        "h5", "h6", "header", "hgroup", "hr", "html", "legend", "li", "listing", "main", "marquee", "nav",
        "ol", "p", "plaintext", "pre", "search", "section", "summary", "table", "tbody", "tfoot", "thead",
        "tr", "ul", "xmp"
    ]
)  # fmt: skip
_PARAGRAPH = frozenset(
    ["p", "h1", "h2", "h3", "h4", "h5", "h6", "table", "pre", "blockquote", "ul", "ol", "dl"]
)
SPACE = re.compile(r"[ \t\r\n\f\u00a0]+")
_EMPTY_LINES = re.compile(r"\n{3,}")
_BAD = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
# A tag and what comes after its thousandth attribute: libxml2 compares each with all before it, 13 s for 40,000.
_CROWDED = re.compile(
    r"""(<[a-zA-Z][^\s<>]*+(?:\s++[^\s<>"'=]++(?>(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"']*+))?)){1000})[^>]*+"""
)


# lxml.html looks up the class of each element in Python, because forms have their own; a fixed class is faster
_CLASSES = etree.ElementDefaultClassLookup(
    element=lxml_html.HtmlElement,
    comment=lxml_html.HtmlComment,
    pi=lxml_html.HtmlProcessingInstruction,
    entity=lxml_html.HtmlEntity,
)


def parse(text: str) -> Element | None:
    """Parse a page into a tree; return None if it has no element."""
    text = _CROWDED.sub(r"\1", _BAD.sub("", text))
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
    _open_frames(tree)
    _show_formulas(tree)
    return tree if len(tree) else None


def _open_frames(tree: Element) -> None:
    """Put pages that stand in the page itself (`srcdoc`), and what objects without data show, in place."""
    for element in list(tree.iter("iframe", "object")):
        if element.tag == "object":
            if element.get("data") is None:
                element.tag = "span"
            continue
        inner = element.attrib.pop("srcdoc", "")
        body = None
        if inner.count("<") - inner.count("</") <= MOST_TAGS and (page := parse(inner)) is not None:
            body = page.find("body")
        if body is not None:
            element.tag, element.text = "div", body.text
            for child in list(element):
                element.remove(child)
            element.extend(body)


def _show_formulas(tree: Element) -> None:
    """Let each formula stand in the text once, in place.

    MathML that is shown replaces the hidden copy beside it (KaTeX, MathJax), and hidden MathML leaves its place to its
    picture (Wikipedia, which hides both from screen readers). What MathJax 2 reads from a script is text unless MathML
    shows it already.
    """
    for formula in list(tree.iter("math")):
        holder = formula
        while (
            holder.getprevious() is None
            and holder.getnext() is None
            and (around := holder.getparent()) is not None
            and around.tag not in _APART
        ):
            holder = around
        for beside in (holder.getprevious(), holder.getnext()):
            if beside is None or not is_marked_hidden(beside):
                continue
            if not is_marked_hidden(holder):
                beside.drop_tree()
            elif beside.tag == "img":
                beside.attrib.pop("aria-hidden", None)
    for script in tree.iter("script"):
        if (script.get("type") or "").lower().startswith("math/tex"):
            before = script.getprevious()
            if before is None or next(before.iter("math"), None) is None:
                script.tag = "span"


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

    Common links (fragments, plain paths) are joined by string concatenation. A link that is not a URL (`http://[`) is
    returned stripped.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._known: dict[str, str] = {}
        folder, root = self._join("x"), self._join("/x")
        plain = folder.endswith("/x") and root.endswith("/x") and address.startswith(("http://", "https://"))
        self._folder, self._root = (folder[:-1], root[:-2]) if plain else ("", "")

    def __call__(self, link: str) -> str:
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
    """Return all visible words of a tree as simple markdown, without link targets."""
    return _Renderer(links=False).render(tree)


@dataclass(slots=True)
class PageText:
    """Markdown of a page, and the words that were left out as parts of the site around it."""

    markdown: str
    left_out: list[str]


def page_markdown(tree: Element, kept: str | None) -> PageText:
    """Return a page as markdown with links: every visible word in document order, boilerplate aside.

    `kept` is the text that a boilerplate filter kept. Hidden elements, and menus, sidebars, headers and footers outside
    of the main content, are kept if at least half of their words stand in it. If it is None, all but hidden elements
    are kept.
    """
    renderer = _Renderer(links=True, judge=None if kept is None else _Judge(kept))
    return PageText(renderer.render(tree), renderer.left_out)


def lost_words(tree: Element, text: PageText) -> list[str]:
    """Return the visible words of a page that are neither in its text nor left out on purpose, in document order.

    The words are read by a walk of its own, so that a fault of the renderer shows.
    """
    pieces: list[str] = []
    stack: list[Element | str] = [tree]
    while stack:
        element = stack.pop()
        if isinstance(element, str):
            pieces.append(element)
            continue
        if element.tail and element is not tree:
            stack.append(element.tail)
        if not isinstance(element.tag, str) or element.tag in _UNREAD or is_marked_hidden(element):
            pieces.append(" ")
            continue
        apart = element.tag in _APART or element.get("role") in _CELLS
        if apart or (_script(element) and _script_mark(element)):
            pieces.append(" ")
            stack.append(" ")
        if element.tag == "option" and element.get("label"):
            stack.append(element.get("label"))
            continue
        stack.extend(reversed(element))
        if element.text:
            stack.append(element.text)
    counts = Counter(_words_in(text.markdown))
    counts.update(_words_in("\n".join(text.left_out)))
    missing = Counter(_words_in("".join(pieces).translate(_INVISIBLE))) - counts
    return list(missing)


_WORD = re.compile(r"[^\W_]+")
_BRACKETS = {ord("["): None, ord("]"): None}


def _words_in(text: str) -> list[str]:
    """Return the words of a text without link targets; brackets don't part words, since links may not either."""
    return _WORD.findall(_TARGET.sub("", text).translate(_BRACKETS))


_INVISIBLE = {0xAD: None, 0x200B: None, 0xFEFF: None}  # soft hyphen, zero-width space, byte order mark
_UNREAD = SKIP | {"math", "svg", "rp"}  # not compared: rendered from other parts than their text nodes
_APART = BREAK | {
    "br", "td", "th", "caption", "option", "optgroup", "button", "rt", "input", "textarea", "select"
}  # fmt: skip
_LANDMARKS = frozenset({"nav", "aside", "footer", "header", "search"})
_ROLES = frozenset({"navigation", "banner", "contentinfo", "complementary", "search"})
_NAMES = frozenset(
    {"nav", "navbar", "navigation", "menu", "sidebar", "breadcrumb", "breadcrumbs", "footer", "toolbar"}
)
_NAME_PARTS = re.compile(r"[a-z]+")
_STYLED = re.compile(r"vertical-align\s*:\s*(super|sub)\b", re.I)
_CELLS = frozenset({"cell", "gridcell", "columnheader", "rowheader", "option", "tab"})  # roles
_ICONS = frozenset({"a", "button", "svg"})
_AROUND = {"del": "~~", "s": "~~", "strike": "~~", "q": '"'}  # marks around what is struck out or quoted
_UNNAMED = {"submit": "Submit", "reset": "Reset"}  # what browsers write on a button without a value
_NO_VALUE = frozenset({"hidden", "password", "checkbox", "radio", "file", "image", "range", "color"})


class _Judge:
    """A judge of elements outside of the content: kept or not, by the text that a boilerplate filter kept."""

    def __init__(self, kept: str) -> None:
        self._kept = f" {' '.join(_WORD.findall(kept))} "

    def keeps(self, lines: list[str]) -> bool:
        """Return True if at least half of the words stand in the kept text, in lines as they are."""
        found = total = 0
        for line in lines:
            words = _WORD.findall(_TARGET.sub("]", line))
            total += len(words)
            if words and f" {' '.join(words)} " in self._kept:
                found += len(words)
        return total > 0 and 2 * found >= total


_TARGET = re.compile(r"\]\((?:[^()\s]|\([^()\s]*\))*\)")


def _is_boilerplate(element: Element, tag: str) -> bool:
    """Return True if an element outside of the main content looks like a part of the site around it."""
    if tag in ("header", "footer") and next(element.iterancestors("section"), None) is not None:
        return False  # of that section, not of the page (HTML, 4.3.8)
    if tag == "header" or element.get("role") == "banner":
        return next(element.iterdescendants("h1"), None) is None
    if tag in _LANDMARKS or element.get("role") in _ROLES:
        return True
    names = f"{element.get('class') or ''} {element.get('id') or ''}"
    if len(names) < 2 or tag in ("html", "body") or _NAMES.isdisjoint(_NAME_PARTS.findall(names.lower())):
        return False
    linked = sum(len("".join(link.itertext()).split()) for link in element.iterdescendants("a"))
    return 2 * linked > len("".join(element.itertext()).split())


def _script(element: Element) -> str:
    """Return "sup" or "sub" for a raised or lowered element, also for a span that is so by its style, else ""."""
    if element.tag in ("sup", "sub"):
        return str(element.tag)
    style = element.get("style") if element.tag == "span" else None
    styled = _STYLED.search(style) if style else None
    return styled[1].lower()[:3] if styled else ""


def _script_mark(element: Element) -> str:
    """Return the mark before a raised or lowered element (`snapshots/text/scripts.py`)."""
    text = "".join("".join(element.itertext()).split())
    before = element.getprevious()
    if before is None:
        beside = element.getparent().text or ""
    else:
        beside = before.tail or "".join(before.itertext())
    mark = raised_mark if _script(element) == "sup" else lowered_mark
    return mark(text, beside, element.tail or "")


def _touches(first: Element | None, second: Element | None) -> bool:
    """Return True if one of two siblings with no text between them is an `rp`, the bracket of a reading."""
    if first is None or second is None or (first.tail or "").strip():
        return False
    return "rp" in (first.tag, second.tag)


def _is_icon(element: Element) -> bool:
    """Return True if an element shows no words and no picture that has a name."""
    return not any(
        ((one.text or "").strip() and one.tag not in SKIP)
        or one.get("alt")
        or (one is not element and (one.tail or "").strip())
        for one in element.iter()
    )


def _name(element: Element) -> str:
    """Return the name of an element without words, as browsers tell it to who can't see it (accname 1.2, 4.3.2)."""
    pictures = (one.get("title") for one in element.iter("img"))
    return next(filter(None, (element.get("aria-label"), element.get("title"), *pictures)), "")


class _Renderer:
    """A writer of a tree as lines of markdown. Not recursive, except into hidden elements, boilerplate and cells."""

    def __init__(self, *, links: bool, judge: _Judge | None = None, in_cell: bool = False) -> None:
        self._links, self._judge, self._in_cell = links, judge, in_cell
        self.left_out: list[str] = []
        self._lines: list[str] = []
        self._line: list[str] = []
        self._prefix = ""  # heading or list mark of the line that begins with the next word
        self._gap = False  # an empty line is due
        self._target: str | None = None  # link whose text is next
        self._open = False  # the link's bracket is open in this line
        self._lists: list[Iterator[str]] = []  # marks of the items of the open lists
        self._selected: list[Element] = []  # options of the open `select`
        self._scripts: list[str] = []  # marks of the open `sup` and `sub` elements
        self._main = 0  # open elements of main content
        self._pre = 0

    def render(self, tree: Element) -> str:
        self._walk(tree, judged=True)
        return "\n".join(self._lines)

    def _walk(self, root: Element, *, judged: bool = False) -> None:
        stack: list[tuple[Element, bool]] = [(root, False)]
        while stack:
            element, leaving = stack.pop()
            tag = element.tag if isinstance(element.tag, str) else ""
            if leaving:
                self._leave(element, tag)
            elif (
                tag
                and tag not in SKIP
                and ((element is root and judged) or not self._apart(element, tag))
                and self._enter(element, tag)
            ):
                stack.append((element, True))
                stack.extend((child, False) for child in reversed(element))
                continue
            if element.tail and element is not root:
                self._say(element.tail)
        self._end_line()

    def _apart(self, element: Element, tag: str) -> bool:
        """Handle hidden elements and boilerplate; return True if the element is done with."""
        is_hidden = is_marked_hidden(element)
        if is_hidden and (self._judge is None or next(element.iterdescendants("math"), None) is not None):
            return True
        if not is_hidden and (self._judge is None or self._main or not _is_boilerplate(element, tag)):
            return False
        assert self._judge is not None
        part = _Renderer(links=self._links, judge=self._judge if is_hidden else None, in_cell=self._in_cell)
        part._main = 1  # so that only hidden elements are judged within
        part._walk(element, judged=True)
        if not self._judge.keeps(part._lines):
            if not is_hidden:
                self.left_out += part._lines
            return True
        self.left_out += part.left_out
        if tag in BREAK:
            self._break(tag)
            self._put_gap()
            self._lines += part._lines
            self._gap = tag in _PARAGRAPH
        else:
            self._say(" ".join(part._lines))
        return True

    def _enter(self, element: Element, tag: str) -> bool:
        """Write what begins with an element; return False if the element is done with."""
        if tag == "table" and is_data_table(element) and not self._in_cell:
            self._table(element)
            return False
        if tag == "math":
            self._say(math_text(element))
            return False
        role = element.get("role")
        if tag in BREAK:
            self._break(tag)
        elif role in _CELLS:
            self._say(" ")
        if tag in ("main", "article") or role == "main":
            self._main += 1
        if tag == "br":
            self._end_line()
        elif tag in ("ol", "ul", "menu"):
            self._lists.append(_marks(element, tag))
        elif tag == "li":
            self._item()
        elif tag == "option":
            self._say(" [x] " if any(one is element for one in self._selected) else " ")
            if element.get("label"):  # shown in place of its text
                self._say(f"{element.get('label')} ")
                return False
        elif tag == "optgroup":
            self._say(f" {element.get('label') or ''} ")
        elif tag in ("td", "th", "button", "textarea", "select", "text", "caption"):
            if tag == "select":
                self._selected = _chosen(element)
            empty = tag == "textarea" and not (element.text or "").strip()
            self._say(f" {element.get('placeholder') or ''}" if empty else " ")
        elif tag == "pre":
            self._pre += 1
        elif tag == "img":
            self._say(element.get("alt") or "")
        elif tag in _AROUND:
            self._say(_AROUND[tag])
        elif tag == "input":
            self._say(_value(element))
        elif tag in ("a", "area"):
            href = element.get("href") or ""
            if self._links and href and not href.lower().startswith(("javascript:", "data:")):
                self._close()
                self._target = href.replace(" ", "%20").replace("\n", "")
            if tag == "area":
                self._say(f" {element.get('alt') or ''} ")
        elif tag in ("progress", "meter") and not (element.text or "").strip() and element.get("value"):
            self._say(" " + "/".join(filter(None, (element.get("value"), element.get("max")))))
        elif _script(element):
            mark = _script_mark(element)
            self._scripts.append(mark)
            self._say(mark)
        elif tag in _HEADINGS:
            self._prefix += "" if self._in_cell else "#" * int(tag[1:]) + " "
        elif tag == "rt" and not _touches(element.getprevious(), element):
            self._say("(")
        if (tag in _ICONS or role == "img") and (name := _name(element)) and _is_icon(element):
            self._say(f" {name} ")
        if element.text:
            self._say(element.text)
        return True

    def _leave(self, element: Element, tag: str) -> None:
        if tag in ("a", "area"):
            self._close()
            self._target = None
        elif tag in ("ol", "ul", "menu") and self._lists:
            self._lists.pop()
        elif tag == "pre":
            self._fence()
            self._pre -= 1
        elif tag == "rt" and not _touches(element, element.getnext()):
            self._say(")")
        elif tag in _AROUND:
            self._say(_AROUND[tag])
        elif _script(element):
            mark = self._scripts.pop()
            self._say(")" * mark.count("("))
            if mark and (element.tail or "")[:1].isalnum():
                self._say(" ")
        elif tag in ("option", "button", "textarea", "select", "progress", "meter", "text"):
            self._say(" ")
        if tag in ("main", "article") or element.get("role") == "main":
            self._main -= 1
        if tag in _HEADINGS or tag == "li":
            self._end_line()
            self._prefix = ""
        if tag in BREAK:
            self._break(tag)
        elif element.get("role") in _CELLS:
            self._say(" ")

    def _say(self, text: str) -> None:
        if not text:
            return
        text = text.translate(_INVISIBLE)
        if self._pre and not self._in_cell:
            self._line.append(text)
            return
        if self._target is not None and not self._open and text.strip():
            words = text.lstrip()
            self._line.append(text[: len(text) - len(words)] + "[")
            self._open = True
            text = words
        self._line.append(text)

    def _close(self) -> None:
        """End the link that is open in this line; further lines of the same element are plain."""
        if not self._open:
            return
        last = self._line[-1]
        self._line[-1] = last.rstrip()
        self._line.append(f"]({self._target})" + (" " if last != self._line[-1] else ""))
        self._open, self._target = False, None

    def _end_line(self) -> None:
        if self._pre and not self._in_cell:
            self._line.append("\n")
            return
        self._close()
        text = SPACE.sub(" ", "".join(self._line)).strip(" ")
        self._line.clear()
        if text:
            self._put_gap()
            self._lines.append(self._prefix + text)
            self._prefix = ""

    def _put_gap(self) -> None:
        if self._gap and self._lines and self._lines[-1]:
            self._lines.append("")
        self._gap = False

    def _put_mark(self) -> None:
        """Write the number of a list item that begins with a block on a line of its own."""
        if self._prefix.strip() not in ("", "-"):
            self._put_gap()
            self._lines.append(self._prefix.rstrip())
        self._prefix = ""

    def _break(self, tag: str) -> None:
        self._end_line()
        if tag in _PARAGRAPH and not (self._lists and (tag in ("p", "ul", "ol"))):
            self._gap = True

    def _item(self) -> None:
        if self._in_cell:
            self._prefix = "; " if self._lines else ""
            return
        self._put_mark()
        mark = next(self._lists[-1]) if self._lists else "- "
        self._prefix = "  " * (len(self._lists) - 1) + mark

    def _fence(self) -> None:
        """Write the block of code that ends here."""
        if self._pre > 1 or self._in_cell:
            return
        lines = "".join(self._line).replace("\xa0", " ").strip("\n").split("\n")
        self._line.clear()
        if any(line.strip() for line in lines):
            self._put_mark()
            self._gap = True
            self._put_gap()
            self._lines += ["```", *(line.rstrip() for line in lines), "```"]

    def _table(self, element: Element) -> None:
        self._end_line()
        for caption in element.iterchildren("caption"):
            self._walk(caption)
        made = table_markdown(element, links=self._links)
        if made:
            self._put_mark()
            self._gap = True
            self._put_gap()
            self._lines += made.split("\n")
        self._gap = True

    def cell(self, element: Element) -> str:
        """Return the words of a table's cell on one line; the items of its lists are parted by semicolons."""
        self._walk(element, judged=True)
        return " ".join(filter(None, self._lines)).replace(" ; ", "; ")


_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})


def _marks(element: Element, tag: str) -> Iterator[str]:
    """Yield the marks of a list's items as a browser numbers them (HTML, 4.4.5 and 4.4.8)."""
    if tag != "ol":
        yield from repeat("- ")
    items = [one for one in element.iterchildren("li") if not is_marked_hidden(one)]
    back = element.get("reversed") is not None
    number = _integer(element.get("start"), len(items) if back else 1)
    styled = _LIST_STYLE.search(element.get("style") or "")
    kind = _LIST_KINDS.get(styled[1].lower(), "1") if styled else element.get("type") or "1"
    for item in items:
        number = _integer(item.get("value"), number)
        yield f"{_numeral(number, kind)}. " if kind else "- "
        number += -1 if back else 1
    yield from repeat("- ")


_LIST_STYLE = re.compile(
    r"list-style(?:-type)?\s*:[^;]*?\b((?:lower|upper)-(?:alpha|latin|roman)|decimal|none|disc|circle|square)\b",
    re.I,
)
_LIST_KINDS = {
    "lower-alpha": "a", "lower-latin": "a", "upper-alpha": "A", "upper-latin": "A", "lower-roman": "i",
    "upper-roman": "I", "none": "", "disc": "", "circle": "", "square": "",
}  # fmt: skip


def _integer(value: str | None, default: int) -> int:
    """Return the number that an attribute begins with (HTML, 2.3.4.1), or the default."""
    found = re.match(r"\s*([-+]?[0-9]{1,9})(?![0-9])", value or "")
    return int(found[1]) if found else default


def _numeral(number: int, kind: str) -> str:
    """Return the number of a list item in the form of the list's `type` (1, a, A, i, I)."""
    if kind in ("a", "A") and number > 0:
        letters = ""
        while number:
            number, rest = divmod(number - 1, 26)
            letters = chr(ord(kind) + rest) + letters
        return letters
    if kind in ("i", "I") and 0 < number < 4000:
        out = ""
        for value, letters in _ROMAN:
            out += letters * (number // value)
            number %= value
        return out if kind == "i" else out.upper()
    return str(number)


_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
    (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip


def _chosen(field: Element) -> list[Element]:
    """Return the selected options of a `select` element: of a drop-down list always one (HTML, 4.10.7)."""
    options = list(field.iterdescendants("option"))
    marked = [one for one in options if one.get("selected") is not None]
    if field.get("multiple") is not None:
        return marked
    if not marked and _integer(field.get("size"), 1) <= 1:
        return [one for one in options if one.get("disabled") is None][:1]
    return marked[-1:]


def _value(element: Element) -> str:
    """Return the words that an `input` element shows: its value or placeholder, or a cross for a checked box."""
    kind = (element.get("type") or "text").strip().lower()
    if kind in ("checkbox", "radio"):
        return " [x] " if element.get("checked") is not None else ""
    if kind in _NO_VALUE:
        return f" {element.get('alt') or ''} " if kind == "image" else ""
    return f" {element.get('value') or element.get('placeholder') or _UNNAMED.get(kind, '')} "


def math_text(element: Element) -> str:
    """Return a MathML formula on one line: its TeX where the page has it, else as `a^b`, `a_b` and `(a)/(b)`."""
    for note in element.iter("annotation"):
        if "tex" in (note.get("encoding") or "") and (note.text or "").strip():
            return f" {note.text.strip()} "
    return f" {element.get('alttext') or _formula(element)} "


def _formula(element: Element, depth: int = 0) -> str:
    name = element.tag.rpartition(":")[2]
    if name in ("annotation", "annotation-xml", "mphantom"):
        return ""
    if depth > DEEPEST_FORMULA:
        return " ".join("".join(element.itertext()).split())
    children = [child for child in element if isinstance(child.tag, str)]
    if not children:
        return _token(name, " ".join((element.text or "").translate(_UNSEEN_OPERATORS).split()))
    if name == "maction":  # one of its children is shown at a time
        children = children[_integer(element.get("selection"), 1) - 1 :][:1] or children[:1]
    if name == "mmultiscripts":
        return _with_scripts_before(children, depth)
    parts = [_formula(child, depth + 1) for child in children]
    marks = {"msup": "^", "mover": "^", "msub": "_", "munder": "_"}
    if name in marks and len(parts) == 2:
        return parts[0] + marks[name] + _group(parts[1])
    if name in ("msubsup", "munderover") and len(parts) == 3:
        return f"{parts[0]}_{_group(parts[1])}^{_group(parts[2])}"
    if name == "mfrac" and len(parts) == 2:
        return f"{_group(parts[0])}/{_group(parts[1])}"
    if name == "msqrt" or (name == "menclose" and element.get("notation", "longdiv") == "radical"):
        return f"sqrt({_row(children, parts)})"
    if name == "mroot" and len(parts) == 2:
        return f"root({parts[0]}, {parts[1]})"
    if name == "mtable":
        return f"[{'; '.join(parts)}]"
    if name in ("mtr", "mlabeledtr"):
        return ", ".join(parts)
    if name == "mfenced":
        marks_between = "".join(element.get("separators", ",").split())
        inner = parts[0]
        for number, part in enumerate(parts[1:]):
            inner += f"{marks_between[min(number, len(marks_between) - 1)]} " if marks_between else " "
            inner += part
        return f"{element.get('open', '(')}{inner}{element.get('close', ')')}"
    return _row(children, parts)


def _token(name: str, text: str) -> str:
    """Return the text of a leaf of a formula, with blanks where it must not touch its neighbours."""
    if name == "mspace":
        return " "
    if name == "ms":
        return f' "{text}" '
    return f" {text} " if name == "mtext" or (name == "mo" and text in _SPACED) else text or " "


def _row(children: list[Element], parts: list[str]) -> str:
    """Return parts beside each other, with a blank where two of them would read as one word or number."""
    out, last = "", None
    for child, part in zip(children, parts, strict=True):
        name = child.tag.rpartition(":")[2]
        if name == "mo" and (last is None or last == "mo") and out.rstrip()[-1:] not in _CLOSING:
            part = part.strip() or " "  # a sign, not an operator between two terms
        if out[-1:].isalnum() and part[:1].isalnum():
            is_word = (name == "mi" and len(part) > 1) or (
                last == "mi" and out[-2:].isalpha() and len(out) > 1
            )
            if is_word or name == last == "mn" or _SCRIPT.search(out):
                out += " "
        out += part
        last = name if part.strip() else last
    return out


def _with_scripts_before(children: list[Element], depth: int) -> str:
    """Return the base of `mmultiscripts` with its scripts, those before it first: `_6^14 C`."""
    base, before, after = _formula(children[0], depth + 1), "", ""
    is_before, is_raised = False, False
    for child in children[1:]:
        if child.tag.rpartition(":")[2] == "mprescripts":
            is_before, is_raised = True, False
            continue
        text = _formula(child, depth + 1).strip()
        script = ("^" if is_raised else "_") + _group(text) if text else ""
        if is_before:
            before += script
        else:
            after += script
        is_raised = not is_raised
    return f"{before} {base}{after}" if before else base + after


_UNSEEN_OPERATORS = dict.fromkeys((0x2061, 0x2062, 0x2063, 0x2064), " ")
_CLOSING = (")", "]", "}", "|", "!", "%")
_SCRIPT = re.compile(r"[\^_][\w.−-]+\Z")
DEEPEST_FORMULA = 100  # levels of MathML below which only the words are read
_SPACED = frozenset("=<>≤≥≈≠±×·+−-→∈")


def _group(text: str) -> str:
    text = text.strip()
    return text if re.fullmatch(r"[\w.]+|[-−]\w+", text) else f"({text})"


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


def is_marked_hidden(element: Element) -> bool:
    """Return True if markup says that an element isn't shown."""
    if element.tag == "dialog" and element.get("open") is None:
        return True
    if element.get("hidden") is not None or element.get("aria-hidden") == "true":
        return True
    style = element.get("style")
    return (
        style is not None
        and re.search(r"display\s*:\s*none|visibility\s*:\s*hidden", style, re.I) is not None
    )


def is_data_table(table: Element) -> bool:
    """Return True if a table holds data, not layout: two rows of two cells or more, and no table within.

    A cell of a row above that spans into a row counts there, too.
    """
    if next(table.iterdescendants("table"), None) is not None:
        return False
    full = 0
    below: list[int] = []  # rows that cells of the rows above still span
    for row in table.iter("tr"):
        own = list(row.iterchildren("td", "th"))
        if len(own) + len(below) >= 2:
            full += 1
            if full == 2:
                return True
        below = [left - 1 for left in below if left > 1]
        below += [height - 1 for cell in own if (height := _span(cell, "rowspan", MOST_ROWS)) > 1]
    return False


def _words(element: Element, links: bool) -> str:
    if not len(element):  # most cells; the result is that of the renderer
        text = (element.text or "").translate(_INVISIBLE)
        return "" if is_marked_hidden(element) else SPACE.sub(" ", text).strip()
    return "" if is_marked_hidden(element) else _Renderer(links=links, in_cell=True).cell(element).strip()


def _span(cell: Element, name: str, most: int) -> int:
    value = cell.get(name, "1")
    if value == "0" and name == "rowspan":  # to the end of the row group
        return most
    return max(1, min(int(value), most)) if len(value) < 10 and value.isascii() and value.isdigit() else 1


def count_cells(table: Element) -> int:
    """Return the number of cells of a table as a rectangle, with spanning cells repeated in all their places."""
    own = [[cell for cell in row if cell.tag in ("td", "th")] for row in table.iter("tr")]
    height = len(own)
    areas = [[_span(c, "colspan", 1000) * _span(c, "rowspan", height) for c in row] for row in own]
    widths = (sum(_span(c, "colspan", 1000) for c in row) for row in own)
    return max(height * max(widths, default=0), sum(map(sum, areas)))


def rows(table: Element, *, links: bool = False) -> list[list[str]]:
    """Return the texts of a table's cells, by row; empty cells stand in the further places of one that spans.

    The number of such empty cells is bounded.
    """
    out: list[list[str]] = []
    room = MOST_CELLS
    group: Element | None = None
    above: dict[int, int] = {}  # column -> rows that a cell of a row above still spans
    for row in table.iter("tr"):
        if row.getparent() is not group:
            group, above = row.getparent(), {}
        cells: list[str] = []
        below = {column: left - 1 for column, left in above.items() if left > 1}
        for cell in row:
            if cell.tag not in ("td", "th"):
                continue
            while len(cells) in above:
                cells.append("")
                room -= 1
            width = 1 + max(0, min(_span(cell, "colspan", 100) - 1, room))
            height = _span(cell, "rowspan", MOST_ROWS)
            if height > 1 and room > 0:
                below.update(dict.fromkeys(range(len(cells), len(cells) + width), height - 1))
            cells += [_words(cell, links), *[""] * (width - 1)]
            room -= width - 1
        above = below if room > 0 else {}
        if any(cells):
            out.append(cells)
    return out


def table_markdown(table: Element, *, links: bool = False) -> str:
    """Return a pipe table; the first row is its head. "" for a table without words."""
    cells = rows(table, links=links)
    if not cells:
        return ""
    width = max(map(len, cells))
    if width * len(cells) > MOST_CELLS:  # short rows stay short
        width = 0
    lines = [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in row + [""] * (width - len(row))) + " |"
        for row in cells
    ]
    lines.insert(1, "|" + "---|" * max(width, len(cells[0])))
    return "\n".join(lines)
