"""Sites (registrable domains) of URLs. Server state is tracked per site."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import ada_url

from stillweb.snapshots.cache import cached

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

LONGEST = 253  # characters of a host that has a domain (RFC 1035, 2.3.4, without the last dot)
# URLs that no parser changes: a lower-case name, no port, no trailing number that could be part of an
# address.
_PLAIN = re.compile(r"https?://((?:[a-z0-9-]+\.)*[a-z][a-z-]*)(?=[/?#]|\Z)")


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    from publicsuffixlist import PublicSuffixList  # slow to import: it reads the whole list, about 50 ms

    return PublicSuffixList()


def host_of(url: str) -> str:
    """Return the `host[:port]` of a URL as WHATWG parses it, or "" if it has none."""
    plain = _PLAIN.match(url)
    if plain is not None and "xn--" not in plain[1]:
        return plain[1]
    return _parsed_host(url)


@cached
def _parsed_host(url: str) -> str:
    try:
        return str(ada_url.URL(url).host)
    except ValueError:  # not a valid URL: use its text, so that two such URLs don't share a site
        return url.partition("//")[2].partition("/")[0].lower()


@cached
def site_of_host(netloc: str) -> str:
    """Return the registrable domain of `host[:port]`, or all of it if it has none (an address, localhost).

    A top-level domain that the Public Suffix List does not have counts as a suffix, as its algorithm says and browsers do.
    """
    host = netloc.partition("]")[0] + "]" if netloc.startswith("[") else netloc.partition(":")[0]
    if (
        not 0 < len(host) <= LONGEST
        or host.startswith("[")
        or "." not in host
        or host.rpartition(".")[2].isdigit()
    ):
        return netloc
    return _suffixes().privatesuffix(host) or netloc


def site_of(url: str) -> str:
    """Return the site of a URL, or "" if it has none."""
    return site_of_host(host_of(url))
