"""What a browser asks for of its own accord is told from what pages ask for."""

from __future__ import annotations

import pytest

from snapshots.identity.irrelevant import errand, irrelevant_url


@pytest.mark.parametrize(
    ("url", "own", "marked"),
    [
        ("http://clients2.google.com/time/1/current?cup2key=1", True, True),
        ("https://update.googleapis.com/", True, True),
        ("https://sub.safebrowsing.googleapis.com:443/v4", True, True),
        ("http://www.gstatic.com/generate_204", True, True),
        ("https://shop.example/.well-known/appspecific/com.chrome.devtools.json", True, True),
        ("https://accounts.google.com/ListAccounts?gpsia=1", True, True),
        ("https://accounts.google.com/", True, False),  # a tunnel, perhaps
        ("https://accounts.google.com/signin", False, False),
        ("https://google.com/", False, False),
        ("https://www.google-analytics.com/g/collect", False, True),
        ("https://shop.example/favicon.ico", False, True),
        ("https://shop.example/static/favicon.ico", False, True),  # named by a page, wanted by its tab
        ("https://shop.example/docs/favicon.ico.html", False, False),
        ("https://shop.example/?to=https://update.googleapis.com/", False, False),
        ("recorder", False, False),
    ],
)
def test_errands(url: str, own: bool, marked: bool) -> None:
    assert (errand(url), irrelevant_url(url)) == (own, marked)
