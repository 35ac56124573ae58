"""Request fields with which a server answers a fragment for a script instead of a whole page.

They count whether or not Vary names them. A capture with another value of a `HARD` field never matches.
Libraries send the other fields with every request, so a capture with another value may match, but marked as
unsure.
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
    """Return the names of the fragment fields of a request, in lower case."""
    return {low for name, value in request.headers if value and (low := name.lower()) in FIELDS}


def asks_for_page(request: Request) -> bool:
    """Return True if a browser requests the document of a page, not a subresource."""
    place = request.header("sec-fetch-dest")  # absent on requests to a remote host over plain http
    return (place or "document") == "document" and (request.header("accept") or "").startswith("text/html")


def decisive(requests: Sequence[Request], answers: Sequence[str]) -> list[str]:
    """Return the fragment fields that may decide the answer, among requests of one address.

    If all got the same answer, a field that only some of them have decides nothing.
    """
    found = sorted({n.lower() for r in requests for n, v in r.headers if v and n.lower() in FIELDS})
    if len(set(answers)) > 1:
        return found
    return [field for field in found if all(r.header(field) for r in requests)]
