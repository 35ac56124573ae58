"""What is found out once for all requests with the same fields."""

from __future__ import annotations

import pytest

from stillweb.snapshots.request import Headers
from stillweb.snapshots.states.conditions import short
from stillweb.snapshots.states.senders import NOBODY, SIGNED, SILENT, TELLING, bearing, sender_of

SID = "6dd72174dbb58b58f95a0c4de19913b1"


def test_a_sender_is_told_by_its_fields() -> None:
    fields = (
        ("Cookie", f"sid={SID}; theme=dark; lang=en"),
        ("Authorization", "Basic YTpi"),
        ("HX-Request", "true"),
        ("X-HTTP-Method-Override", "PUT"),
        ("X-Tenant", "acme"),
    )
    sender = sender_of(fields)
    assert sender.choices == {"theme": "dark", "lang": "en"}
    assert sender.chosen == short("lang=en", "theme=dark")
    assert sender.hashes == (
        ("lang", short("lang"), short("en")),
        ("theme", short("theme"), short("dark")),
    )
    assert sender.clients == [SID]
    assert sender.logins == ["sid"]
    assert sender.cookies == {"sid", "theme", "lang"}
    assert sender.credentials.startswith("basic ")
    assert sender.fragment
    assert sender.overridden
    assert sender.own == {"x-tenant": "acme"}


def test_nobody_tells_nothing() -> None:
    assert sender_of((("Accept", "*/*"),)) == NOBODY
    assert not any((NOBODY.choices, NOBODY.chosen, NOBODY.clients, NOBODY.fragment, NOBODY.overridden))


@pytest.mark.parametrize(
    ("fields", "borne"),
    [
        ((), SILENT),
        ((("Accept", "*/*"), ("Cookie", "_ga=GA1.2.3; theme=dark"), ("Authorization", "")), SILENT),
        ((("Cookie", f"sid={SID}"), ("Sec-Fetch-Site", "none")), SIGNED),
        ((("Cookie", f"sid={SID}; lang=en"),), TELLING),
        ((("Cookie", f"sid={SID}"), ("X-Tenant", "acme")), TELLING),
        ((("HX-Request", "true"),), TELLING),
        ((("authorization", "Basic YTpi"),), TELLING),
        ((("X-Api-Key", "k"),), TELLING),
        ((("Origin", "http://a.test"),), TELLING),
    ],
)
def test_what_a_request_bears(fields: Headers, borne: int) -> None:
    assert bearing(fields) == borne
