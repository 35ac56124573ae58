"""The captures of one path, with any query, method and body: the candidates of rules."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any, TypeVar

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.dates import seconds_of
from stillweb.snapshots.identity.keys import parse, request_key, unpacked_body
from stillweb.snapshots.identity.recognising import secret_fields
from stillweb.snapshots.identity.urlkeys import POSTED, posted_pairs, query_pairs
from stillweb.snapshots.request import Request

T = TypeVar("T")
# captures, or KB of their requests, from which on to learn them takes longer than others may wait (1 ms each)
LIGHT = 8
TWINS = 200  # captures of a path that are looked through for one that differs in secrets alone
_MOMENT = re.compile(r"(?<=[?&=])[12]\d{12}(?=&|$)")
_FRACTION = re.compile(r"(?<=[?&=])0?\.\d{12,20}(?=&|$)")


def has_request_time(capture: Capture) -> bool:
    """Return True if a query holds the time of its request in milliseconds, up to an hour before, or a random fraction."""
    if _FRACTION.search(capture.url):
        return True
    asked = seconds_of(capture.timestamp)
    return asked is not None and any(
        -3600 < int(one) / 1000 - asked < 10 for one in _MOMENT.findall(capture.url)
    )


def is_light(captures: Iterable[Capture]) -> bool:
    """Return True if captures are so few, and their requests so small, that others may wait until these are read."""
    return sum(1 + max(0, c.request_length) // 1024 for c in islice(captures, LIGHT)) < LIGHT


class Group:
    """The captures of a path, and the requests that they answer."""

    def __init__(self, captures: Iterable[Capture], read_request: Callable[[Capture], Request]) -> None:
        self.captures = tuple(captures)
        self._read_request = read_request
        self.by_key: dict[str, list[Capture]] = defaultdict(list)
        for capture in self.captures:
            self.by_key[capture.key].append(capture)
        # so that to compare a request with them takes no time, or took it before
        self.compared = is_light(self.captures)
        self._requests: dict[tuple[str, int], Request] = {}
        self._derived: dict[tuple[tuple[str, int], Hashable], Any] = {}
        self._secret_fields: dict[str, set[str]] = {}

    def request(self, capture: Capture) -> Request:
        """Return the request of a capture of this path; a GET without body needs no reading."""
        found = self._requests.get(capture.place)
        if found is None:
            found = Request(capture.method, capture.url)
            if capture.method not in ("GET", "HEAD") or request_key(found).canonical != capture.key:
                found = self._read_request(capture)  # it has a body, or a field that replaces its method
            self._requests[capture.place] = found
        return found

    @cached_property
    def _posted(self) -> list[tuple[str, list[tuple[str, str]]]]:
        urls = sorted({c.url for c in self.captures if POSTED in c.url and c.method == "GET"})
        return [(url, query_pairs(url.partition("?")[2])) for url in urls]

    def posted(self, request: Request) -> str:
        """Return the address under which ArchiveWeb.page kept a request that is no GET, "" where it did not."""
        if not self._posted or request.method in ("GET", "HEAD"):
            return ""
        parsed = parse(request)
        own = posted_pairs(parsed.query or (), parsed.method, parsed.body, unpacked_body(request))
        return next((url for url, pairs in self._posted if pairs == own), "")

    def with_method(self, method: str) -> list[Capture]:
        """Return the captures with a method, as many as are looked through for one that differs in secrets alone."""
        return [c for c in self.captures if c.method == method][:TWINS]

    def secret_fields(self, method: str) -> set[str]:
        """Return the names of the form fields whose recorded values are pseudonyms, computed once for a method."""
        found = self._secret_fields.get(method)
        if found is None:
            found = set().union(
                *(secret_fields(self.request(capture)) for capture in self.with_method(method))
            )
            self._secret_fields[method] = found
        return found

    def derived(self, capture: Capture, name: Hashable, compute: Callable[[Request], T]) -> T:
        """Return `compute(request)` of a capture's request, cached by name."""
        found: T | None = self._derived.get((capture.place, name))
        if found is None:
            # of a copy, which is dropped: a large body is parsed once, and takes no memory afterwards
            request = replace(self.request(capture)).remembering()
            found = self._derived[capture.place, name] = compute(request)
        return found
