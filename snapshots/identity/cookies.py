"""Cookies and credentials of a request: which of them identify a client, and which hold its choices."""

from __future__ import annotations

import hashlib
import re

from stillweb.snapshots.cache import cached
from stillweb.snapshots.identity.irrelevant import irrelevant_cookie
from stillweb.snapshots.request import Headers
from stillweb.snapshots.secrets.detect import looks_random, secret_cookie, signer

# In place of a Vary field: the request's Authorization, which servers mind without naming it (RFC 9111, 3.5).
CREDENTIALS = "credentials"
SIGNED_IN = ("authorization", "x-wsse")  # the fields of credentials


@cached
def is_session(name: str, value: str) -> bool:
    """Return True if a cookie identifies its client rather than stating a choice."""
    return "stillweb-secret-" in value or secret_cookie(name, value)


_LOGIN = re.compile(
    r"sess(?!ion_?(?:start|count|time))|(?:^|[-_.])(?:sid|ssid|auth|jwt|login|remember|(?<!csrf.)(?<!xsrf.)token|sso)(?:$|[-_.\d])"
    r"|logged_?in|identity|authcookie|aspxauth|(?:access|refresh|id|user)_?token",
    re.I,
)


def logins_of(headers: Headers) -> list[str]:
    """Return the names of cookies by which a login is known, not only a counter of visits."""
    return [
        n
        for n, v in cookies_of(headers)
        if _LOGIN.search(n) and is_session(n, v) and not irrelevant_cookie(n)
    ]


_TELLING = (  # compiled where there are such cookies
    r"(?i)(?:^|[-_.])(?:lang|language|locale|i18n|currency|country|region|city|location|zip|postal|market|edition|store|shop"
    r"|cart|basket|sort|order|filters?|page_?size|per_?page|user|user_?name|uid|user_?id|account|tenant|role|member|customer"
    r"|admin|premium|plan|age|verified|group|preview)(?:$|[-_.\d])"
)


@cached
def is_telling(name: str) -> bool:
    """Return True if a cookie's name says that it tells a server what to show, or to whom."""
    return re.search(_TELLING, name) is not None


def telling_cookies(headers: Headers) -> list[tuple[str, str]]:
    """Return the cookies that by their names tell a server what to show."""
    return [(n, v) for n, v in choices_of(headers).items() if is_telling(n)]


@cached
def credentials_of(headers: Headers) -> str:
    """Return the schemes of the credentials with a hash of who they name; "" for none."""
    found = []
    for name, value in headers:
        if name.lower() in SIGNED_IN and value.strip():
            who = signer(value)
            if who is None:
                who = hashlib.sha256(value.encode(errors="surrogatepass")).hexdigest()[:8]
            found.append(f"{value.split()[0].lower()} {who}".strip())
    return ", ".join(found)


def cookies_of(headers: Headers) -> list[tuple[str, str]]:
    """Return the cookies of a request in order."""
    found = []
    for name, value in headers:
        if name.lower() == "cookie":
            for item in value.split(";"):
                cookie, equals, text = item.strip().partition("=")
                if equals and cookie:
                    found.append((cookie, text.strip('"')))
    return found


@cached
def is_choice(name: str, value: str) -> bool:
    """Return True if a cookie can be a choice that pages depend on: no tracker, no identity, no clock."""
    if not value or len(value) > 400 or irrelevant_cookie(name) or is_session(name, value):
        return False
    return re.search(r"\d{10}", value) is None and not looks_random(value) and "csrf" not in name.lower()


def choices_of(headers: Headers) -> dict[str, str]:
    """Return the cookies of a request that may be choices."""
    return dict(_choices(headers))


@cached
def _choices(headers: Headers) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in cookies_of(headers) if is_choice(name, value))
