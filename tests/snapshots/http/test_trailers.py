"""Trailers in the head of a capture, and out of it."""

from __future__ import annotations

import pytest

from stillweb.snapshots.http.header_values import merged, parted
from stillweb.snapshots.request import Headers

HTML = ("Content-Type", "text/html")
CALL = ("Content-Type", "application/grpc")
LENGTH = ("Content-Length", "3")


@pytest.mark.parametrize("head", [(HTML,), (HTML, ("Trailer", "X-Sum")), (CALL, ("x-sum", "0"))])
def test_what_is_merged_is_parted(head: Headers) -> None:
    behind = (("X-Sum", "1"), ("Y", "2"), ("x-sum", "3"))
    stored = (*merged(head, behind), LENGTH)  # as archives write it
    assert parted(stored, 3) == ((*head, LENGTH), behind)


def test_what_has_no_place_behind_a_body_is_left_out() -> None:
    assert merged((HTML,), (("Set-Cookie", "a=1"), ("content-length", "9"))) == (HTML,)
    assert merged((HTML,), (("Set-Cookie", "a=1"), ("X", "1")))[1:] == (("Trailer", "X"), ("X", "1"))


@pytest.mark.parametrize(
    "fields",
    [
        (HTML, LENGTH),
        (HTML, ("Trailer", "X-Sum"), LENGTH),
        (("Trailer", "Expires"), ("Expires", "0"), HTML),
        (("Trailer", "X-Sum, Y"), ("X-Sum", "1")),
    ],
)
def test_a_head_of_others_stays_whole(fields: Headers) -> None:
    assert parted(fields, 3) == (fields, ())


def test_of_grpc_the_status_is_known() -> None:
    status = (("grpc-status", "0"), ("Grpc-Message", "fine"))
    assert parted((CALL, *status, LENGTH), 3) == ((CALL, LENGTH), status)
    assert parted((CALL, *status), 0) == ((CALL, *status), ())
