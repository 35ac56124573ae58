"""Request fields that make an answer quite another thing: a fragment for a script that swaps it in, not a page.

They count whether the answer's Vary names them or not. No capture with another value of a `HARD` one may stand in; libraries
send the others whatever they ask for, so that one may, but not surely.
"""

from __future__ import annotations

from collections.abc import Sequence

from stillweb.snapshots.request import Request

HARD = frozenset(
    {
        "hx-request",
        "x-pjax",
        "x-inertia",
        "rsc",
        "next-router-state-tree",
        "next-router-prefetch",
        "turbo-frame",
    }
)
FIELDS = HARD | {"x-requested-with"}


def fragment_fields(request: Request) -> set[str]:
    """Those that a request has."""
    return {low for name, value in request.headers if value and (low := name.lower()) in FIELDS}


def asks_for_fragment(request: Request) -> bool:
    """Whether a request has one of these fields."""
    return bool(fragment_fields(request))


def asks_for_page(request: Request) -> bool:
    """Whether a browser asks for the document of a page, and not for what one brings in."""
    place = request.header("sec-fetch-dest")  # not sent to a plain http site that is another machine's
    return (place or "document") == "document" and (request.header("accept") or "").startswith("text/html")


def decisive(requests: Sequence[Request], answers: Sequence[str]) -> list[str]:
    """The fields that part requests of one address; those with which and without which the same was answered don't."""
    found = sorted({n.lower() for r in requests for n, v in r.headers if v and n.lower() in FIELDS})
    if len(set(answers)) > 1:
        return found
    return [field for field in found if all(r.header(field) for r in requests)]
