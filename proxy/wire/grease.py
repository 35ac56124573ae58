"""Browsers told from other clients by how they begin TLS."""

from __future__ import annotations

from collections.abc import Sequence


def browsers_suites(suites: Sequence[int]) -> tuple[int, ...]:
    """The cipher suites that a browser's ClientHello names, which tell one from another; () of one that is no browser's.

    Chromium is known by a suite of GREASE (RFC 8701), a different one each time, which is left out.
    """
    known = tuple(suite for suite in suites if suite >> 8 != suite & 255 or suite & 15 != 10)
    return known if len(known) < len(suites) else ()
