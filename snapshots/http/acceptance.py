"""Comparison of an answer's media type with a request's `Accept` (RFC 9110, 12.5.1), as far as it bears on identity.

Many servers choose between HTML and JSON by Accept and send no Vary. So an answer of a kind that a client did not ask
for is not surely the one it would have got, unless it was recorded for the same Accept.
"""

from __future__ import annotations

from stillweb.snapshots.cache import cached
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.http.header_values import items_of
from stillweb.snapshots.http.static import static_mime
from stillweb.snapshots.request import Request


def accepts(request: Request, capture: Capture) -> bool:
    """Return True if an answer's media type alone shows that it fits the `Accept`, whatever it was recorded for.

    So is a page for who wants one, or anything, and data for who asks for its very kind first; a file is anybody's.
    """
    wanted = request.header("accept")
    if wanted is None and capture.mime == "text/html":
        return True
    if capture.status not in _CHOSEN:
        return wanted is None or capture.status in _ANYBODYS or not _clash(wanted, capture.mime)
    return _plainly(wanted, capture.mime, _still(capture))


_CHOSEN = (200, 206)
_ANYBODYS = (301, 304, 308)  # what is told to whoever asks
_NEW = frozenset({"image/webp", "image/avif", "image/jxl"})  # sent in place of an older kind


def _still(capture: Capture) -> bool:
    """Return True if an answer is a static file, and not a substitute for another one at its address."""
    return static_mime(capture.mime) and (capture.mime not in _NEW or capture.mime[6:] in capture.url)


@cached
def _plainly(accept: str | None, mime: str, still: bool) -> bool:
    if still or not mime:
        return not accept or not mime or _within(accept, mime)
    kind = mime.lower()
    if accept is None or not accept.strip():
        return _is_page(kind)
    return _within(accept, mime) and (_is_page(kind) or first_kind(accept) == kind)


@cached
def _within(accept: str, mime: str) -> bool:
    if not accept.strip():
        return True
    kind = mime.lower()
    main, _, sub = kind.partition("/")
    fits = {
        "*/*",
        "*",
        kind,
        f"{main}/*",
        f"{main}/{sub.rpartition('+')[2]}",
        f"application/{sub.rpartition('+')[2]}",
    }
    first = first_kind(accept).partition(";")[0]
    return any(item.weight and item.name in fits for item in items_of(accept)) and not (
        (_is_page(first) and _is_data(kind)) or (_is_data(first) and _is_page(kind))
    )


@cached
def _clash(accept: str, mime: str) -> bool:
    """Return True if a refusal or redirect is of a page and data is asked for, or the reverse."""
    first, kind = first_kind(accept).partition(";")[0], mime.lower()
    return (_is_page(first) and _is_data(kind)) or (_is_data(first) and not _is_data(kind))


def special(kind: str) -> bool:
    """Return True if a media type is a variant or version of another: `application/json;odata=verbose`, `application/vnd.x+json`."""
    return (
        ";" in kind
        or "/vnd." in kind
        or ("+" in kind and not _is_page(kind) and not kind.startswith("image/"))
    )


def first_kind(accept: str) -> str:
    """Return the kind that an Accept asks for first, with its parameters."""
    # the first of those that weigh most
    best = max(items_of(accept), key=lambda item: item.weight, default=None)
    if best is None or not best.weight:
        return "*/*"
    kept = sorted(p for p in best.parameters if not p.startswith("charset="))
    return ";".join((registered_type(best.name), *kept))


def registered_type(media: str) -> str:
    """Return the registered name of a media type that is also sent under others (JSON)."""
    return "application/json" if media in ("text/json", "application/x-json") else media


def _is_page(kind: str) -> bool:
    return kind in ("text/html", "application/xhtml+xml")


def _is_data(kind: str) -> bool:
    return kind == "application/json" or kind.endswith("+json")
