"""Recorded pages as they were, without scripts and without a network: on an origin of their own, in a sandboxed frame.

The Content-Security-Policy does the keeping out: no script, no frame, no form, and only this origin, which answers from
the snapshot alone. Rewriting addresses to this origin only makes the page look right; a page that escapes it loads
nothing. The first part of each path is a token, so that no other page of the browser can ask for recorded contents.
"""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urljoin

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from stillweb.proxy.net.own_pages import same_token
from stillweb.snapshots.errors import StillwebError
from stillweb.snapshots.http import charsets, encodings
from stillweb.snapshots.request import Request as Asked
from stillweb.snapshots.words import whole_number

if TYPE_CHECKING:
    from stillweb.harness.view.snapshot_pool import SnapshotPool
    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.view import View

_CSS_URL = re.compile(r"""url\(\s*(?:"([^"]*)"|'([^']*)'|([^'"()\s]+))\s*\)""", re.I)
_CSS_IMPORT = re.compile(r"""@import\s+(?:"([^"]*)"|'([^']*)')""", re.I)
_DROPPED = (
    "script", "noscript", "base", "iframe", "frame", "object", "embed", "applet", "portal", "template"
)  # fmt: skip
_IMAGES = (
    "image/",
    "text/css",
    "font/",
    "application/font",
    "application/x-font",
    "application/vnd.ms-fontobject",
)
_FONT = re.compile(r"\.(woff2?|ttf|otf|eot)([?#]|$)", re.I)
MOST_FONT = 1_000_000  # bytes of a font that is put into a style sheet

Address = Callable[[str], str]


def rewrite_css(text: str, base: str, address: Address) -> str:
    """Return a style sheet whose addresses, resolved against `base`, are replaced by `address` of them."""

    def placed(match: re.Match[str]) -> str:
        found = next((group for group in match.groups() if group is not None), "")
        if not found or found.startswith(("data:", "#")):
            return match[0]
        return f'url("{address(_joined(base, found))}")'

    def imported(match: re.Match[str]) -> str:
        return f'@import url("{match[1] if match[1] is not None else match[2]}")'

    return _CSS_URL.sub(placed, _CSS_IMPORT.sub(imported, text))


def _joined(base: str, found: str) -> str:
    try:
        return urljoin(base, found.strip())
    except ValueError:  # no address at all, such as https://[
        return found


def rewrite_html(dom: bytes, base: str, address: Address) -> bytes:
    """Return a page without scripts, frames, links and forms' targets, its pictures and styles at `address` of them."""
    from lxml import etree, html

    try:
        root = html.document_fromstring(dom.decode("utf-8", "replace").replace("\0", "") or "<p>")
    except (etree.ParserError, ValueError):  # an empty page, or one that lxml can't hold
        return b"<!DOCTYPE html><title>empty</title>"
    for element in root.xpath("//base[@href]")[:1]:
        base = _joined(base, element.get("href"))
    etree.strip_elements(root, *_DROPPED, with_tail=False)
    for element in list(root.iter()):
        if not isinstance(element.tag, str):
            continue
        tag = element.tag.lower()
        if tag == "meta" and element.get("http-equiv") is not None:
            element.drop_tree()
            continue
        if tag == "link" and "stylesheet" not in (element.get("rel") or "").lower().split():
            element.drop_tree()
            continue
        if tag == "style" and element.text:
            element.text = rewrite_css(element.text, base, address)
        for name, value in list(element.attrib.items()):
            _attribute(element, tag, str(name).lower(), name, value, base, address)
    return b"<!DOCTYPE html>\n" + html.tostring(root, encoding="utf-8", doctype=None)  # type: ignore[no-any-return]


def _attribute(
    element: object, tag: str, lower: str, name: str, value: str, base: str, address: Address
) -> None:
    attrib = element.attrib  # type: ignore[attr-defined]
    if lower.startswith("on") or lower in (
        "srcset",
        "imagesrcset",
        "ping",
        "action",
        "formaction",
        "autofocus",
        "srcdoc",
        "nonce",
        "integrity",
        "crossorigin",
    ):
        del attrib[name]
    elif lower == "style":
        attrib[name] = rewrite_css(value, base, address)
    elif lower in ("src", "poster", "background", "data") or (lower == "href" and tag == "link"):
        if not value.startswith("data:image/"):
            attrib[name] = address(_joined(base, value))
    elif lower.endswith("href") and not (tag not in ("a", "area") and value.startswith(("#", "data:image/"))):
        if tag == "image":
            attrib[name] = address(_joined(base, value))
        else:
            del attrib[name]


class FrozenPages:
    """Origin of the frozen pages of a shelf. `origin` is its own, `viewer` that of the pages with the frames."""

    def __init__(self, shelf: SnapshotPool, origin: str, viewer: str) -> None:
        self._shelf, self._origin, self._viewer = shelf, origin, viewer
        self.token = secrets.token_urlsafe(16)

    def view_address(self, snapshot: str, view: str) -> str:
        return f"{self._origin}/{self.token}/{quote(snapshot, safe='')}/view/{view}"

    def capture_address(self, snapshot: str, file: str, offset: int) -> str:
        return (
            f"{self._origin}/{self.token}/{quote(snapshot, safe='')}/capture/{offset}/{quote(file, safe='')}"
        )

    def step_address(self, snapshot: str, key: str) -> str:
        """Return the address of the frozen page at an attempt's step, which is kept under `key`."""
        return f"{self._origin}/{self.token}/{quote(snapshot, safe='')}/step/{key}"

    def _fields(self) -> dict[str, str]:
        here = self._origin
        return {
            "Content-Security-Policy": f"sandbox; default-src 'none'; img-src {here} data:; style-src {here} 'unsafe-inline'; "
            f"font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors {self._viewer}",
            "X-Content-Type-Options": "nosniff",
            "X-DNS-Prefetch-Control": "off",
            "Cross-Origin-Resource-Policy": "cross-origin",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
        }

    def answer(self, request: Request) -> Response:
        raw = request.scope.get("raw_path") or request.scope["path"].encode()
        parts = [unquote(part) for part in raw.decode("latin-1").partition("?")[0].strip("/").split("/")]
        try:
            if len(parts) < 4 or not same_token(parts[0], self.token):
                return self._none("nothing is at this address. Open the page from `stillweb view` again")
            _, name, kind, *rest = parts
            snapshot = self._shelf.get(name)
            if snapshot is None:
                return self._none(f"no snapshot {name} is open")
            if kind == "view":
                return self._view(name, snapshot, rest[0])
            if kind == "step" and re.fullmatch("[0-9a-f]{64}", rest[0]):
                return self._step(name, rest[0])
            if kind == "capture" and len(rest) == 2 and (offset := whole_number(rest[0])) is not None:
                return self._capture(name, snapshot, rest[1], offset)
            if kind == "r" and len(rest) == 2:
                return self._resource(name, snapshot, rest[0], rest[1])
            return self._none("nothing is at this address")
        except (StillwebError, OSError, encodings.EncodingProblem) as error:
            return self._none(str(error))

    def _none(self, why: str) -> Response:
        return PlainTextResponse(f"Not in the snapshot: {why}.\n", 404, self._fields())

    def _addresses(self, name: str, of: str) -> Address:
        def address(url: str) -> str:
            if not url.lower().startswith(("http:", "https:")):
                return "data:,"
            return f"{self._origin}/{self.token}/{quote(name, safe='')}/r/{of}/{quote(url.partition('#')[0], safe='')}"

        return address

    def _html(self, page: bytes) -> Response:
        return Response(page, 200, {**self._fields(), "Content-Type": "text/html; charset=utf-8"})

    def _view(self, name: str, snapshot: Snapshot, id_: str) -> Response:
        view = snapshot.view(id_)
        dom = snapshot.resource("dom", view.address) if view else None
        if view is None or dom is None:
            return self._none("the view has no recorded DOM")
        return self._html(rewrite_html(dom, view.final_url or view.url, self._addresses(name, view.id)))

    def _step(self, name: str, key: str) -> Response:
        from stillweb.harness.view.step_page import kept_page

        page = kept_page(key)
        if page is None:
            return self._none("the page of this step is not made yet")
        return self._html(rewrite_html(page.html, page.address, self._addresses(name, "-")))

    def _capture(self, name: str, snapshot: Snapshot, file: str, offset: int) -> Response:
        capture = self._shelf.capture(name, file, offset)
        if capture is None:
            return self._none("the archives have no capture there")
        response = snapshot.read(capture)
        body = encodings.decode(response.body, response.header("content-encoding"))
        if capture.mime.startswith("image/"):
            return Response(body, 200, {**self._fields(), "Content-Type": capture.mime})
        text = charsets.decode(body, response.header("content-type")).text
        return self._html(
            rewrite_html(text.encode("utf-8", "replace"), capture.url, self._addresses(name, "-"))
        )

    def _resource(self, name: str, snapshot: Snapshot, of: str, url: str) -> Response:
        found = self._found(name, snapshot, snapshot.view(of) if of != "-" else None, url)
        if found is None:
            return self._none("the snapshot has no capture of this address")
        body, mime = found
        if mime.startswith("text/css"):
            return Response(
                self._css(name, snapshot, of, url, body, mime),
                200,
                {**self._fields(), "Content-Type": "text/css; charset=utf-8"},
            )
        if not mime.startswith(_IMAGES):
            return self._none("only pictures, styles and fonts are shown")
        return Response(body, 200, {**self._fields(), "Content-Type": mime})

    def _css(self, name: str, snapshot: Snapshot, of: str, url: str, body: bytes, mime: str) -> bytes:
        plain = self._addresses(name, of)
        view = snapshot.view(of) if of != "-" else None

        def address(target: str) -> str:
            if _FONT.search(target):  # a frame without an origin may load no font of another
                font = self._found(name, snapshot, view, target)
                if font is None or len(font[0]) > MOST_FONT:
                    return "data:,"
                return f"data:font/woff2;base64,{base64.b64encode(font[0]).decode()}"
            return plain(target)

        return rewrite_css(charsets.decode(body, mime).text, url, address).encode("utf-8", "replace")

    def _found(self, name: str, snapshot: Snapshot, view: View | None, url: str) -> tuple[bytes, str] | None:
        """Return body and type of the answer that a view got, else of the one that a new session would get."""
        digest = (
            next((str(c.get("digest", "")) for c in view.captures if c.get("url") == url), "") if view else ""
        )
        capture = self._shelf.capture_of(name, url, digest) if digest else None
        if capture is None:
            capture = self._shelf.lookup(name, Asked("GET", url)).capture
        if capture is None:
            return None
        response = snapshot.read(capture)
        body = encodings.decode(response.body, response.header("content-encoding"))
        return body, (response.header("content-type") or capture.mime).lower()
