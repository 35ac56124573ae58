"""Whose server a URL is asked of: captures of one site share a state, those of two sites do not."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import ada_url

from stillweb.snapshots.errors import MissingCapability

# What no parser changes: a lower-case name, no port, no number at the end that could be an address.
_PLAIN = re.compile(r"https?://((?:[a-z0-9-]+\.)*[a-z][a-z-]*)(?=[/?#]|\Z)")


@lru_cache(maxsize=1)
def _rules() -> frozenset[str]:
    """The lines of the Public Suffix List as it comes with tldextract, its comments too, which match no host.

    The package itself is not imported: it brings an HTTP client along and builds a tree, ten times the work.
    """
    spec = find_spec("tldextract")
    if spec is None or spec.origin is None:
        raise MissingCapability(
            "tldextract, whose copy of the Public Suffix List is needed, is not installed"
        )
    text = Path(spec.origin).with_name(".tld_set_snapshot").read_text("utf-8")
    return frozenset(map(str.strip, text.split("\n")))


def _suffix_labels(labels: list[str]) -> int:
    """How many of the last labels of a host are a public suffix, 0 if the list has none of them.

    https://github.com/publicsuffix/list/wiki/Format: an exception goes first, then the rule with most labels.
    """
    rules = _rules()
    for start in range(len(labels)):
        tail = ".".join(labels[start:])
        if f"!{tail}" in rules:
            return len(labels) - start - 1
        parent = tail.partition(".")[2]
        if tail in rules or (parent and f"*.{parent}" in rules):
            return len(labels) - start
    return 0


def _unicode(label: str) -> str:
    """A label as the list writes it."""
    if not label.startswith("xn--"):
        return label
    try:
        return label[4:].encode("ascii").decode("punycode")
    except UnicodeError:
        return label


def host_of(url: str) -> str:
    """The `host[:port]` of a URL as WHATWG parses it, however it was written; "" where it has none."""
    plain = _PLAIN.match(url)
    if plain is not None and "xn--" not in plain[1]:
        return plain[1]
    return _parsed_host(url)


@lru_cache(maxsize=4096)
def _parsed_host(url: str) -> str:
    try:
        return str(ada_url.URL(url).host)
    except ValueError:  # no parser's URL: by its text, so that two such are not one site
        return url.partition("//")[2].partition("/")[0].lower()


@lru_cache(maxsize=4096)
def site_of_host(netloc: str) -> str:
    """The registrable domain of a host; hosts without one (addresses, localhost) are a site with their port."""
    host = netloc.partition("]")[0] + "]" if netloc.startswith("[") else netloc.partition(":")[0]
    if not host or host.startswith("[") or "." not in host or host.rpartition(".")[2].isdigit():
        return netloc
    labels = host.removesuffix(".").split(".")
    count = _suffix_labels([_unicode(label) for label in labels])
    if "" in labels or not 0 < count < len(labels):
        return netloc
    return ".".join(labels[-count - 1 :])


def site_of(url: str) -> str:
    """The site of a URL, "" where it has none."""
    return site_of_host(host_of(url))
