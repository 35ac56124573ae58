"""Walls are told from pages, and pages that speak of walls are not."""

from typing import get_args

import pytest

from stillweb.proxy.browser.page_checks import Kind, examine

ARTICLE = "The history of the river and its mills, told in many sentences. " * 60

WALLS = [
    ("captcha", 200, "Verifying you are human. This may take a few seconds.", "<div id=cf-chl-widget></div>"),
    ("captcha", 403, "", '<script src="https://challenges.cloudflare.com/turnstile/v0/api.js"></script>'),
    ("captcha", 200, "Our systems have detected unusual traffic from your computer network.", "<p>"),
    ("consent", 200, "Before you continue to Example\nWe use cookies. Reject all Accept all", "<form>"),
    ("forbidden", 403, "Forbidden", "<h1>Forbidden</h1>"),
    ("forbidden", 200, "Access denied. Reference #18.2f", "<h1>Access denied</h1>"),
    ("forbidden", 451, "Unavailable", "<p>"),
    ("too-many", 429, "", ""),
    ("too-many", 200, "Rate limit exceeded, try later", "<p>"),
    ("login", 401, "", ""),
    ("login", 200, "Please log in\nUser\nPassword", '<input name=u><input type="password" name=p>'),
    ("login", 200, "User name Password Remember me", "<input type=password>"),
    ("missing", 404, "Nothing here", "<p>"),
    ("missing", 200, "Sorry, the page you requested was not found.", "<p>"),
    ("missing", 200, "404\nGo home", "<p>"),
    ("error", 502, "", ""),
    ("error", 200, "Application error: a client-side exception has occurred", "<p>"),
    ("empty", 200, "", '<div id="root"></div><script src="/app.js"></script>'),
    ("empty", 200, "You need to enable JavaScript to run this app.", "<noscript>"),
    ("loading", 200, "Results\nLoading…", "<div class=spinner></div>"),
    ("loading", 200, "", '<div aria-busy="true"></div>'),
]

GOOD = [
    (200, ARTICLE, "<p>"),
    (200, ARTICLE + " Then the page was not found, and access denied. Verify you are human.", "<p>"),
    (200, "Year 2019 Population 404 Region North", "<table>"),
    (200, "", '<canvas id="map"></canvas>'),
    (200, "Results: 3 rows\nA\nB\nC", '<script>grecaptcha="google.com/recaptcha/"</script>' + "<p>"),
    (200, "Loading dock hours: 8 to 17", "<p>"),
    (200, ARTICLE, '<header><form><input type="password"></form></header>'),
    (0, "A page from a file", "<p>"),
]


@pytest.mark.parametrize(("kind", "status", "text", "html"), WALLS)
def test_a_wall_is_told(kind: str, status: int, text: str, html: str) -> None:
    finding = examine(status, text, html)
    assert finding is not None
    assert finding.kind == kind
    assert finding.reason


@pytest.mark.parametrize(("status", "text", "html"), GOOD)
def test_a_page_is_left_alone(status: int, text: str, html: str) -> None:
    finding = examine(status, text, html)
    if "recaptcha" in html:
        assert finding is None or finding.kind == "captcha"
    else:
        assert finding is None


def test_every_kind_has_an_example() -> None:
    # that one broke off is no page's own word
    assert {wall[0] for wall in WALLS} | {"broken"} == set(get_args(Kind))
