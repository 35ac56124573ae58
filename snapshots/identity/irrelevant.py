"""Requests, cookies and messages that no answer depends on: favicons, telemetry, requests of the browser itself, pings."""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from stillweb.snapshots.cache import cached
from stillweb.snapshots.identity.sites import host_of
from stillweb.snapshots.request import Request

# Programs send traces, metrics and logs to an OTLP collector on any host:
# https://opentelemetry.io/docs/specs/otlp/
OTLP = "application/x-protobuf"
_SIGNALS = re.compile(r"/v1/(?:traces|metrics|logs)\Z")
_IN_JSON = re.compile(rb'\s*\{\s*"resource(?:Spans|Metrics|Logs)"\s*:')


class _Lists:
    def __init__(self) -> None:
        data: dict[str, Any] = tomllib.loads(Path(__file__).with_name("irrelevant.toml").read_text("utf-8"))
        self.errands = _by_host(data["errands"])
        self.hosts = _by_host(data["hosts"] + data["errands"])
        self.services = frozenset(data["services"])
        self.dots = max(host.count(".") for host in (*self.hosts, *self.services))
        self.errand_paths = _Patterns(data["errand_paths"])
        self.paths = _Patterns(data["paths"] + data["errand_paths"])
        self.cookies = _Patterns(data["cookies"])
        self.life = frozenset(data["signs_of_life"])
        self.receipts = frozenset(data["receipts"])
        self.received = frozenset(data["received"])
        self.beside_life = self.life | frozenset(data["beside_signs_of_life"])
        self.wordless_receipts = re.compile("|".join(data["wordless_receipts"]), re.S)
        self.wordless_life = re.compile("|".join(data["wordless_signs_of_life"]))


def _by_host(listed: list[str]) -> dict[str, set[str]]:
    """Map hosts to path prefixes, from items such as `example.org` and `example.org/start`."""
    found: dict[str, set[str]] = {}
    for host, _, start in (item.partition("/") for item in listed):
        found.setdefault(host, set()).add(start)
    return found


@lru_cache(maxsize=1)
def _lists() -> _Lists:
    return _Lists()


class _Patterns:
    """A set of patterns; `text in patterns` searches them.

    Patterns that are anchored at the start are tried only there.
    """

    def __init__(self, patterns: list[str]) -> None:
        starting = [f"(?:{p})" for p in patterns if p.startswith("^") and "|^" not in p]
        others = [f"(?:{p})" for p in patterns if f"(?:{p})" not in starting]
        self._start = re.compile("|".join(starting) or r"(?!)", re.IGNORECASE)
        self._anywhere = re.compile("|".join(others) or r"(?!)", re.IGNORECASE)

    def __contains__(self, text: str) -> bool:
        return self._start.match(text) is not None or self._anywhere.search(text) is not None


def irrelevant_url(url: str) -> bool:
    """Return True if `irrelevant.toml` lists a URL, by host, parent domain, path prefix or path."""
    path, starts = _path(url), _starts(host_of(url), False)
    return (bool(starts) and _under(path, starts)) or path in _lists().paths


def errand(url: str) -> bool:
    """Return True if a URL is requested by the browser itself, not by a page.

    The root path of a listed host counts as well: of a failed tunnel, only the host is known.
    """
    starts = _starts(host_of(url), True)
    path = _path(url)
    return (bool(starts) and (path == "/" or _under(path, starts))) or path in _lists().errand_paths


def _under(path: str, starts: frozenset[str]) -> bool:
    """Return True if a path equals one of the prefixes or lies below it."""
    return any(not start or f"{path}/".startswith(f"/{start}/") for start in starts)


def _path(url: str) -> str:
    return "/" + url.partition("//")[2].partition("/")[2].partition("?")[0]


@cached
def _starts(netloc: str, errands: bool) -> frozenset[str]:
    """Return the path prefixes that are listed for a host; "" lists the whole host."""
    listed = _lists().errands if errands else _lists().hosts
    return frozenset(start for host in _parents(netloc) for start in listed.get(host, ()))


@cached
def irrelevant_key(url: str) -> bool:
    """Return True if the host of a URL answers all clients alike, whatever API key they send."""
    return not _lists().services.isdisjoint(_parents(host_of(url)))


def _parents(netloc: str) -> set[str]:
    """Return a host without its port, and its parent domains as far as any may be listed: one of 100 kB has 1.6 GB of them."""
    labels = netloc.partition(":")[0].rsplit(".", _lists().dots)
    return {".".join(labels[start:]) for start in range(len(labels))}


def irrelevant(request: Request) -> bool:
    """Return True if no page content depends on the answer to this request."""
    if request.method == "POST" and (
        request.header("ping-to") or request.header("content-type") == "text/ping"
    ):
        return True
    if request.method == "POST" and _SIGNALS.search(request.url) and _handed_over(request):
        return True
    return irrelevant_url(request.url.partition("?")[0])


def _handed_over(request: Request) -> bool:
    """Return True if a request carries OTLP data, as protobuf or as JSON."""
    return request.header("content-type") == OTLP or _IN_JSON.match(request.body) is not None


def irrelevant_cookie(name: str) -> bool:
    """Return True if a cookie of this name belongs to a tracker, a load balancer or the like."""
    return name in _lists().cookies


_UUID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")  # of the client or its page


def is_sign_of_life(message: str) -> bool | None:
    """Return True if a web socket message is only a ping or pong, None if it may also acknowledge messages."""
    if len(message) > 200:
        return False
    words, lists = set(re.findall("[a-z]+", _UUID.sub("", message.lower()))), _lists()
    if words <= lists.beside_life and not words.isdisjoint(lists.life):
        return True
    if words <= lists.beside_life | lists.receipts and words & lists.receipts and words & lists.received:
        return None
    # Centrifugo's, but it may be a question without parameters
    if message.strip() == "{}" or lists.wordless_receipts.fullmatch(message):
        return None
    return lists.wordless_life.fullmatch(message) is not None
