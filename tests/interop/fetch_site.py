"""A site of all kinds of pages, what a fetch tool is asked of them, and what of its answers is the tool's own."""

import random
import re
from http.server import BaseHTTPRequestHandler
from typing import Any

WORDS = [
    "the",
    "penguins",
    "of",
    "this",
    "island",
    "weigh",
    "more",
    "than",
    "those",
    "that",
    "live",
    "further",
    "north",
    "where",
    "winters",
    "are",
    "mild",
]


def page(number: int) -> tuple[int, str | None, bytes]:
    """Status, content type and body of a page: HTML of all sizes, other media, charsets, errors."""
    rng = random.Random(number)
    text = "".join(
        f"<p>{' '.join(rng.choices(WORDS, k=rng.randrange(5, 120)))} ü {n}</p>"
        for n in range(rng.randrange(1, 30))
    )
    html = f"<!DOCTYPE html><html><head><title>P{number}</title></head><body><article><h1>Page {number}</h1>{text}</article></body></html>"
    kind = number % 10
    if kind == 4:
        return (
            200,
            "application/json",
            b'{"n": %d, "list": [%s]}' % (number, b"1," * rng.randrange(4000) + b"1"),
        )
    if kind == 5:
        return 200, "text/plain; charset=iso-8859-1", (text * 2).encode("latin-1")
    if kind == 6:
        return (404, 410, 500, 503)[number // 10 % 4], "text/html", b"<html>gone</html>"
    if kind == 7:
        return 200, None, html.encode()
    if kind == 8:
        return 200, "text/plain", html.encode() if number % 20 == 8 else ("\n" * 200 + html).encode()
    if kind == 9:
        return 200, "text/html; charset=utf-8", b"" if number % 20 == 9 else html.encode()
    return 200, "text/html; charset=utf-8", html.encode()


class Origin(BaseHTTPRequestHandler):
    """The site. No robots.txt (404: fetching is allowed)."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        name = self.path.strip("/")
        status, media, body = page(int(name)) if name.isdigit() else (404, "text/plain", b"no")
        self.send_response(status)
        if media:
            self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def calls(origin: str, pages: int) -> list[dict[str, Any]]:
    """Return the calls made to both servers: whole pages, slices, raw ones, and wrong arguments."""
    out: list[dict[str, Any]] = []
    for n in range(pages):
        url = f"{origin}/{n}"
        out += [
            {"url": url},
            {"url": url, "raw": True},
            {"url": url, "raw": True, "start_index": 40, "max_length": 60},
        ]
        out += [{"url": url, "max_length": 1}, {"url": url, "start_index": 999_999}]
    out += [
        {},
        {"url": ""},
        {"url": "nope"},
        {"url": "http://a b/"},
        {"url": "ftp://x.test/"},
        {"url": origin, "more": 1},
    ]
    out += [{"url": origin, "max_length": v} for v in (0, -1, 1_000_000, "a", 1.5, None)]
    out += [{"url": origin, "start_index": v} for v in (-1, "x")] + [
        {"url": origin, "raw": "yes"},
        {"url": 5},
    ]
    signed = origin.replace("//", "//ann:p%40ss@")
    out += [{"url": f"{origin}/never"}, {"url": f"{signed}/0"}, {"url": f"{signed}/5", "raw": True}]
    return out


_HEAD = re.compile(
    r"\A((?:Content type .*? raw content:\n)?Contents of \S+:\n)(.*?)(\n\n<error>Content truncated\. .*</error>)?\Z",
    re.S,
)


def envelope(text: str, arguments: dict[str, Any]) -> str:
    """A result without the words that extraction chose."""
    match = _HEAD.match(text)
    if match is None or match[1].startswith("Content type"):
        return text
    inner = match[2] if match[2].startswith("<error>") else "…"
    # whether text remains after a whole slice depends on how much was extracted
    tail = (match[3] or "") if arguments.get("max_length") == 1 else ""
    return match[1] + inner + tail
