"""Whole pages: a wall of each kind as the web shows it, and pages that look alike and are good."""

from typing import get_args

import pytest
from bs4 import BeautifulSoup

from stillweb.proxy.browser.page_checks import Finding, Kind, examine

NAV = '<header><a href="/">Home</a> <a href="/about">About</a> <a href="/login">Log in</a> <a href="/join">Sign up</a></header>'
PROSE = "The mills along the river were built over four centuries, and most of them still stand. " * 25


def page(title: str, body: str, head: str = "") -> str:
    return f"<!DOCTYPE html><html><head><title>{title}</title>{head}</head><body>{body}</body></html>"


WALLS: dict[str, tuple[str, int, str]] = {
    "a challenge before the page": ("captcha", 403, page("Just a moment...", "<div class=main><h1>shop.example</h1>"
        "<p>Verifying you are human. This may take a few seconds.</p><div id=turnstile></div><p>shop.example needs to review the "
        "security of your connection before proceeding.</p></div>", '<script src="/cdn-cgi/challenge-platform/h/b/orchestrate"></script>')),
    "a challenge with a good status": ("captcha", 200, page("Security check", "<form><h2>Please complete the security check to go on</h2>"
        '<div class="g-recaptcha" data-sitekey="x"></div><button>Go on</button></form>')),
    "press and hold": ("captcha", 403, page("Access to this page has been denied", "<h1>Press &amp; Hold to confirm you are a human (and not a bot).</h1>"
        '<div id="px-captcha"></div><p>Reference ID 1a2b</p>')),
    "odd requests from a network": ("captcha", 429, page("Sorry", "<h1>We're sorry</h1><p>Our systems have detected unusual traffic from your "
        "computer network. This page checks to see if it's really you sending the requests, and not a robot.</p>")),
    "letters of a picture": ("captcha", 200, page("Robot check", "<h4>Enter the characters you see below</h4><p>Sorry, we just need to make sure "
        "you're not a robot.</p><img src=/c.png><input name=field><button>Continue</button>")),
    "consent before anything": ("consent", 200, page("Before you continue", "<h1>Before you continue to Search</h1><p>We use cookies and data to deliver "
        "and maintain services, track outages, and measure audience.</p><button>Reject all</button><button>Accept all</button>")),
    "a German consent wall": ("consent", 200, page("Zeitung", "<div id=sp_message_container_1><h1>Weiter mit Werbung</h1><p>Wir und unsere Partner nutzen "
        "Cookies. Mit Klick auf Alle akzeptieren stimmen Sie zu.</p><button>Alle akzeptieren</button></div>")),
    "forbidden, as servers say it": ("forbidden", 403, page("403 Forbidden", "<center><h1>403 Forbidden</h1></center><hr><center>nginx</center>")),
    "not in your country": ("forbidden", 200, page("Video", NAV + "<h1>Sorry</h1><p>This video is not available in your country.</p>")),
    "blocked, with a good status": ("forbidden", 200, page("Attention", "<h1>Sorry, you have been blocked</h1><p>You are unable to access data.example</p>")),
    "too many": ("too-many", 429, page("429", "<h1>Too Many Requests</h1>")),
    "too many, with a good status": ("too-many", 200, page("Slow down", "<p>You have made too many requests. Try again in 30 seconds.</p>")),
    "a login page": ("login", 200, page("Sign in", "<form method=post><h1>Sign in to continue</h1><label>Email <input name=e></label>"
        '<label>Password <input type="password" name=p></label><button>Sign in</button><a href=/f>Forgot your password?</a></form>')),
    "a login without words": ("login", 200, page("Intranet", '<form method=post><input name=u><input type=password name=p><button>Go</button></form>')),
    "a login with a tenant": ("login", 200, page("Intranet", '<form method=post action=/auth/check><label>Company <input name=c></label><label>User <input name=u></label>'
        "<label>Word <input type=password name=p></label><button>Go</button></form>")),
    "a login outside of a form": ("login", 200, page("App", '<div id=root><select><option>English<option>Deutsch</select><h1>Welcome back</h1><input placeholder=Email><input type="Password">'
        "<div role=button>Log in</div></div>")),
    "a login in German": ("login", 200, page("Portal", "<form><label>Kennung <input></label><label>Kennwort <input type=password></label><select><option>A</select><button>Anmelden</button></form>")),
    "a login that asks for no name": ("login", 200, page("Preview", '<p>This shop opens soon.</p><form><input type=password name=p><button>Enter</button></form>')),
    "one of the browser's own words": ("login", 200, page("Portal", '<form><input name=a><input name=b><input name=c><input type=password autocomplete="current-password"><button>OK</button></form>')),
    "members only": ("login", 200, page("Archive", NAV + "<h1>Archive</h1><p>You must be logged in to view this page.</p>")),
    "a soft 404": ("missing", 200, page("Shop", NAV + "<h1>Oops!</h1><p>We couldn't find that page. It may have moved.</p><form><input type=search></form>")),
    "a soft 404 in French": ("missing", 200, page("Mairie", NAV + "<h1>Page introuvable</h1><p>La page demandée n'existe pas.</p>")),
    "a large 404": ("missing", 200, page("Not found", "<h1>404</h1><p>Nothing lives here.</p><a href=/>Back</a>")),
    "an error of an application": ("error", 200, page("App", "<h2>Application error: a client-side exception has occurred (see the browser console).</h2>")),
    "a gateway's error": ("error", 502, page("502", "<h1>Bad gateway</h1>")),
    "an empty shell": ("empty", 200, page("App", '<div id="root"></div><script src="/static/js/main.js"></script>')),
    "a shell that wants scripts": ("empty", 200, page("App", "<noscript></noscript><p>You need to enable JavaScript to run this app.</p>")),
    "still loading": ("loading", 200, page("Dashboard", "<div class=spinner role=progressbar></div><p>Loading...</p>")),
    "a list still loading": ("loading", 200, page("Results", NAV + "<h1>Results</h1><div aria-busy=true>Please wait…</div>")),
}  # fmt: skip

GOOD: dict[str, tuple[int, str]] = {
    "an article about CAPTCHAs": (200, page("CAPTCHA", f"<h1>CAPTCHA</h1><p>A CAPTCHA asks a visitor to prove they're not a robot: enter the characters "
        f"you see, or press and hold. {PROSE}</p>")),
    "a short entry about CAPTCHAs": (200, page("captcha", NAV + "<h1>captcha</h1><p><i>noun.</i> A test by which a program tells people from "
        "other programs, such as reading bent letters.</p><p>Plural: captchas.</p>")),
    "a contact form with a captcha in it": (200, page("Contact", NAV + f'<h1>Contact</h1><p>{PROSE[:500]}</p><form><textarea name=m></textarea><div class="g-recaptcha"></div><button>Send</button></form>')),
    "a page with a link to log in": (200, page("Mills", NAV + "<h1>Mills</h1><table><tr><th>Name<th>Year</tr><tr><td>Post Mill<td>1781</tr></table>")),
    "a page with a form to log in at its side": (200, page("Forum", f'<form><input name=u><input type=password name=p><button>Log in</button></form><h1>Wheels</h1><p>{PROSE[:700]}</p>')),
    "settings with a password among them": (200, page("Settings", '<h1>Your account</h1><form method=post action=/settings><label>Name <input name=n value=Ann></label><label>Mail <input type=email></label>'
        "<label>Language <select><option>English</select></label><label>Password <input type=password name=p></label><button>Save</button></form>")),
    "a form to register": (200, page("Join", '<header><a href=/login>Log in</a></header><h1>Register</h1><form><label>Name <input></label><label>Mail <input type=email></label>'
        "<label>Password <input type=password></label><label>Once more <input type=password></label><button>Create account</button></form><p>Already a member? <a href=/login>Log in</a></p>")),
    "a form to register, of a framework": (200, page("Join", '<form><input name=email><input type=password autocomplete="new-password"><button>Create account</button></form>')),
    "an application with a password field": (200, page("Mills", '<div id=root><h1>Water mills</h1><div role=tablist><div role=tab>Table</div><div role=tab>Form</div></div><input role=combobox aria-label=Region>'
        "<label>Your name <input type=text></label><label>Password <input type=password></label><button>Greet</button></div>")),
    "a router's settings": (200, page("Wi-Fi", "<form><label>Network <input name=ssid></label><label>Channel <input type=number></label><label>Key <input type=password></label><button>Apply</button></form>")),
    "documentation of a login": (200, page("auth", NAV + f"<h1>Authentication</h1><p>Users sign in with a token. When authentication is required the server answers 401. {PROSE}</p>")),
    "a list of status codes": (200, page("Status", "<h1>HTTP status codes</h1><dl><dt>403 Forbidden<dd>The server refuses.<dt>404 Not Found<dd>There is no such page."
        f"<dt>429 Too Many Requests<dd>The client is to slow down.<dt>502 Bad Gateway<dd>The server behind gave no answer.</dl><p>{PROSE}</p>")),
    "a short legitimate page": (200, page("It works", "<h1>It works!</h1>")),
    "a page of one number": (200, page("Count", "<p>42</p>")),
    "an answer without rows": (200, page("open: penguins", NAV + "<h1>penguins</h1><p>0 rows where species = Emperor</p><table><tr><th>id<th>species</tr></table>")),
    "a search that found nothing": (200, page("Search", NAV + '<h1>Search</h1><input type=search value=zebra><p>No results found for "zebra".</p>')),
    "a picture alone": (200, page("map.png", '<img src="/map.png">')),
    "an article with a cookie banner": (200, page("Mills", f"<div id=onetrust-consent-sdk><p>We value your privacy</p><button>Accept all cookies</button></div><h1>Mills</h1><p>{PROSE}</p>")),
    "a table with the number 404": (200, page("Rooms", "<h1>Rooms</h1><table><tr><td>Room<td>404</tr><tr><td>Floor<td>4</tr></table>")),
    "a port's loading times": (200, page("Port", NAV + "<h1>Port</h1><h2>Loading</h2><p>From 8 to 17, on weekdays.</p>")),
    "a rate limit's documentation": (200, page("Limits", NAV + f"<h1>Rate limits</h1><p>When the rate limit is exceeded, an answer has status 429. {PROSE}</p>")),
    "a short note on rate limits": (200, page("Limits", NAV + "<h1>Quotas</h1><p>Each key may ask 60 times a minute.</p>")),
    "a changelog": (200, page("Changes", "<h1>1.2</h1><ul><li>Fixed: page not found after login<li>Fixed: access denied on export"
        f"<li>Fixed: something went wrong when saving</ul><p>{PROSE[:900]}</p>")),
    "a login in a title only": (200, page("Log in as a user - manual", NAV + f"<h1>login(1)</h1><p>login - begin session on the system</p><p>{PROSE[:600]}</p>")),
    "a product that is no longer made": (200, page("Lamp", NAV + f"<h1>Lamp 5</h1><p>Made from 1990 to 2004. {PROSE[:850]}</p>")),
}  # fmt: skip


def seen(status: int, html: str) -> Finding | None:
    soup = BeautifulSoup(html, "lxml")
    for one in soup(["script", "style", "noscript", "head"]):
        one.decompose()
    return examine(status, soup.get_text("\n", strip=True), html)


@pytest.mark.parametrize("name", WALLS)
def test_a_wall_is_not_stored_as_good(name: str) -> None:
    kind, status, html = WALLS[name]
    finding = seen(status, html)
    assert finding is not None
    assert (finding.kind, bool(finding.reason)) == (kind, True)


@pytest.mark.parametrize("name", GOOD)
def test_what_looks_alike_is_stored(name: str) -> None:
    assert seen(*GOOD[name]) is None


def test_every_kind_has_a_page() -> None:
    assert {kind for kind, _, _ in WALLS.values()} | {"broken"} == set(get_args(Kind))


def test_a_page_that_broke_off_is_good_for_nothing_that_it_says() -> None:
    assert examine(200, PROSE, page("Mills", PROSE), "net::ERR_X") == Finding(
        "broken", "its document ended early: net::ERR_X"
    )
