"""Requests and cookies that make no difference to what is read: favicons, telemetry, a browser's own errands."""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from snapshots.request import Request
from snapshots.sites import host_of


@lru_cache(maxsize=1)
def _lists() -> tuple[frozenset[str], _Patterns, _Patterns]:
    data: dict[str, Any] = tomllib.loads(Path(__file__).with_name("irrelevant.toml").read_text("utf-8"))
    return frozenset(data["hosts"]), _Patterns(data["paths"]), _Patterns(data["cookies"])


class _Patterns:
    """Whether one of some patterns is in a text; those for its start are not tried at each place of it."""

    def __init__(self, patterns: list[str]) -> None:
        starting = [f"(?:{p})" for p in patterns if p.startswith("^") and "|^" not in p]
        others = [f"(?:{p})" for p in patterns if f"(?:{p})" not in starting]
        self._start = re.compile("|".join(starting) or r"(?!)", re.IGNORECASE)
        self._anywhere = re.compile("|".join(others) or r"(?!)", re.IGNORECASE)

    def __contains__(self, text: str) -> bool:
        return self._start.match(text) is not None or self._anywhere.search(text) is not None


@lru_cache(maxsize=4096)
def irrelevant_url(url: str) -> bool:
    """Whether a URL is in the list: its host or a parent of it, host and start of path, or its path."""
    starts = _starts(host_of(url))
    path = "/" + url.partition("//")[2].partition("/")[2].partition("?")[0]
    return "" in starts or (bool(starts) and path.split("/", 2)[1] in starts) or path in _lists()[1]


@lru_cache(maxsize=4096)
def _starts(netloc: str) -> frozenset[str]:
    """What paths of a host in the list begin with; "" where all of it is in the list."""
    labels = netloc.partition(":")[0].split(".")
    parents = {".".join(labels[start:]) for start in range(len(labels))}
    found = (host.partition("/") for host in _lists()[0])
    return frozenset(start for host, _, start in found if host in parents)


def irrelevant(request: Request) -> bool:
    """Whether nothing that is read depends on the answer to this request."""
    if request.method == "POST" and (
        request.header("ping-to") or request.header("content-type") == "text/ping"
    ):
        return True
    return irrelevant_url(request.url.partition("?")[0])


def irrelevant_cookie(name: str) -> bool:
    """Whether a cookie of this name belongs to a tracker, a load balancer or the like."""
    return name in _lists()[2]
