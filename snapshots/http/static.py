"""Files that pages are made with and that stay as they are, by their media type."""

from __future__ import annotations

import re

_STATIC = ("image/", "video/", "audio/", "font/", "text/css", "text/javascript", "application/javascript")
_STATIC_ALL = frozenset(
    {"application/x-javascript", "application/wasm", "application/font-woff", "application/pdf"}
)
ASSET = re.compile(r"javascript|css|image/|font|video/|audio/|wasm")  # in the media types of what pages load
# Python's `mimetypes` reads the tables of the machine, so that answers would differ by machine
_NAMED = re.compile(
    r"css|m?js|wasm|pdf|woff2?|ttf|otf|eot|svgz?|png|apng|jpe?g|jpe|jfif|gif|webp|avif|hei[cf]|jxl|bmp|ico|tiff?"
    r"|mp[34]|m4[asv]|mpe?g|web[am]|og[gav]|opus|aac|flac|wav|mov|mkv|avi|3gp",
    re.I,
)
FILE_STATUSES = (200, 206, 304)  # of answers that say what a file is


def static_mime(mime: str) -> bool:
    """Return True for the media types of scripts, styles, fonts and pictures, not those of pages or data."""
    return mime.startswith(_STATIC) or mime in _STATIC_ALL


def static_name(url: str) -> bool:
    """Return True if the path of an address ends as those of such files do."""
    return _NAMED.fullmatch(url.partition("?")[0].rpartition(".")[2]) is not None


def is_static(method: str, mime: str, status: int) -> bool:
    """Return True if an answer is a file that stays the same, provided its request never had another answer."""
    return method in ("GET", "HEAD") and static_mime(mime) and status in FILE_STATUSES
