"""Detection of browsers by their TLS ClientHello."""

from __future__ import annotations

from collections.abc import Sequence


def browsers_suites(suites: Sequence[int]) -> tuple[int, ...]:
    """Return the cipher suites of a browser's ClientHello without GREASE; () for other clients.

    Chromium adds a suite of GREASE (RFC 8701), a different one each time. The other suites tell browsers
    apart.
    """
    known = tuple(suite for suite in suites if suite >> 8 != suite & 255 or suite & 15 != 10)
    return known if len(known) < len(suites) else ()
