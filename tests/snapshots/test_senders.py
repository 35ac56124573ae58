"""What is found out once for all requests with the same fields."""

from __future__ import annotations

from snapshots.conditions import short
from snapshots.senders import NOBODY, sender_of

SID = "6dd72174dbb58b58f95a0c4de19913b1"


def test_a_sender_is_told_by_its_fields() -> None:
    fields = (
        ("Cookie", f"sid={SID}; theme=dark; lang=en"),
        ("Authorization", "Basic YTpi"),
        ("HX-Request", "true"),
        ("X-HTTP-Method-Override", "PUT"),
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


def test_nobody_tells_nothing() -> None:
    assert sender_of((("Accept", "*/*"),)) == NOBODY
    assert not any((NOBODY.choices, NOBODY.chosen, NOBODY.clients, NOBODY.fragment, NOBODY.overridden))
