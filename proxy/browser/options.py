"""Browser options as people write them, on the command line and at the head of a steps file."""

from __future__ import annotations

import json
import re
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict
from urllib.parse import urlsplit

import msgspec

from stillweb.proxy.browser.browser import complete, new_profile
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.profile import Profile
from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT, secret_header
from stillweb.snapshots.shapes import convert
from stillweb.snapshots.words import did_you_mean

if TYPE_CHECKING:
    from stillweb.snapshots.secrets.redact import Redactor

_LOCALE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*")
_SIZE = re.compile(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4})")
_FIELD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")  # RFC 9110, 5.5
# fields that Chromium lets nobody set (services/network/public/cpp/header_util.cc)
_OWN = re.compile(
    r"(?i)content-length|host|trailer|te|upgrade|cookie2|keep-alive|transfer-encoding|connection|proxy-.*"
)
LONGEST = 8192  # pixels on a side of the page; one of 16384 x 16384 takes a gigabyte, and minutes


@dataclass(frozen=True, slots=True)
class BrowserOptions:
    """The browser that a recording uses: its profile's `settings`, and what no snapshot keeps.

    `host` holds arguments of a BrowserHost: a window, a running browser, cookies and storage, headers with
    secrets.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    host: Mapping[str, Any] = field(default_factory=dict)

    def with_defaults(self, other: BrowserOptions) -> BrowserOptions:
        """Return these options with those of `other` before them."""
        begin = {**self.host.get("begin", {}), **other.host.get("begin", {})}
        launch = {**self.host, **other.host, **({"begin": begin} if begin else {})}
        return BrowserOptions({**self.settings, **other.settings}, launch)

    def profile(self, continued: Profile | None, where: Path) -> Profile:
        """Return the profile of a recording; `continued` is that of the snapshot in `where`, if it has one.

        Raises UsageError if they differ: a snapshot has one profile.
        """
        if continued is None:
            return new_profile(**self.settings)
        for name, value in self.settings.items():
            known = getattr(continued, name)
            if name == "headers":
                known = tuple(pair for pair in known if not PSEUDONYM_TEXT.search(pair[1]))
            if known != value:
                raise UsageError(
                    f"{where}: was recorded with {name} {_shown(known)}, not {_shown(value)}. "
                    "Record into another directory"
                )
        return complete(continued)

    def stored_profile(self, profile: Profile, redactor: Redactor) -> Profile:
        """Return the profile with what else the browser begins with, secrets replaced by pseudonyms.

        So a replay sends what the recording sent.
        """
        begin = self.host.get("begin", {})
        headers = dict(profile.headers) | begin.get("extra_http_headers", {})
        origins = begin.get("storage_state", {}).get("origins", [])
        storage = [
            (
                str(one["origin"]),
                str(item["name"]),
                _redacted(str(item["name"]), str(item["value"]), redactor),
            )
            for one in origins
            for item in one.get("localStorage", [])
        ]
        return replace(
            profile,
            headers=redactor.headers(tuple(sorted(headers.items()))),
            storage=tuple(sorted(storage)) or profile.storage,
        )


def browser_options(given: Mapping[str, Any], where: str, folder: Path | None = None) -> BrowserOptions:
    """Return the options written as `given`; missing and empty ones are left to the defaults.

    `where` names their place in messages, and `folder` is where a storage state is looked for. Raises
    UsageError.
    """
    settings: dict[str, Any] = {}
    launch: dict[str, Any] = {}
    begin: dict[str, Any] = {}
    chosen = {name: value for name, value in given.items() if value not in (None, (), "", {})}
    unknown = [name for name in chosen if name not in _OPTIONS]
    if unknown:
        raise UsageError(
            f"{where}: unknown browser option {unknown[0]!r}{did_you_mean(unknown[0], list(_OPTIONS))}"
        )
    for name, value in chosen.items():
        kind = {"headers": dict, "headful": bool}.get(name, str)
        if isinstance(value, date) and name == "clock":  # YAML reads a time as one
            chosen[name] = value.isoformat()
        elif not isinstance(value, kind):
            shown = str(value).lower() if isinstance(value, bool) else repr(value)
            raise UsageError(f"{where}: {name} {shown} must be {_KINDS[kind]}")
    if "device" in chosen:
        settings |= _device(chosen["device"], where)
    for name in ("locale", "timezone", "viewport", "user_agent", "clock"):
        if name in chosen:
            settings[name] = _READ[name](chosen[name], where)
    public: dict[str, str] = {}
    secret: dict[str, str] = {}
    for name, value in chosen.get("headers", {}).items():
        if not (isinstance(name, str) and _FIELD.fullmatch(name) and _is_value(value)):
            raise UsageError(f"{where}: header {name!r}: is not a header's name and value; write NAME: VALUE")
        if _OWN.fullmatch(name):
            raise UsageError(f"{where}: header {name!r}: the browser sets it itself. Leave it out")
        (secret if secret_header(name.lower(), str(value)) else public)[name.lower()] = str(value)
    if public:
        settings["headers"] = tuple(sorted(public.items()))
    if secret:
        begin["extra_http_headers"] = secret
    if "storage_state" in chosen:
        begin["storage_state"] = _storage((folder or Path()) / chosen["storage_state"])
    if begin:
        launch["begin"] = begin
    if chosen.get("headful"):
        launch["headless"] = False
    if "cdp" in chosen:
        if not _is_place(chosen["cdp"]):
            raise UsageError(f"{where}: cdp {chosen['cdp']!r}: write http://HOST:PORT or ws://…")
        if chosen.get("headful"):
            raise UsageError(f"{where}: headful has no effect on a browser that runs already. Leave it out")
        launch["cdp"] = chosen["cdp"]
    return BrowserOptions(settings, launch)


def _redacted(name: str, value: str, redactor: Redactor) -> str:
    """Return a value of local storage with pseudonyms in place of secrets, also within JSON."""
    try:
        known = json.loads(value)
    except ValueError:
        known = value
    if not isinstance(known, dict | list):
        return str(redactor.value(value, name))
    found = redactor.value(known, name)
    return value if found == known else json.dumps(found, ensure_ascii=False, separators=(",", ":"))


_KINDS = {str: "text", bool: "true or false", dict: "a mapping of names to values"}
_OPTIONS = (
    "locale", "timezone", "viewport", "device", "user_agent", "headers", "storage_state", "headful",
    "clock", "cdp"
)  # fmt: skip


def _shown(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else repr(value)


def is_locale(text: str) -> bool:
    """Return True for a language tag such as de or zh-CN."""
    return bool(_LOCALE.fullmatch(text))


def _locale(text: str, where: str) -> str:
    if not is_locale(text):
        raise UsageError(f"{where}: locale {text!r}: is not a locale; write it as de-DE")
    return text.replace("_", "-")


def _timezone(text: str, where: str) -> str:
    try:
        zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(
            f"{where}: timezone {text!r}: is not a time zone; write it as Europe/Berlin"
        ) from None
    return text


def _viewport(text: str, where: str) -> tuple[int, int]:
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UsageError(f"{where}: viewport {text!r}: write WIDTHxHEIGHT, as 1280x800")
    width, height = int(found[1]), int(found[2])
    if max(width, height) > LONGEST:
        raise UsageError(f"{where}: viewport {text!r}: is too large. Take at most {LONGEST} pixels on a side")
    return width, height


def _user_agent(text: str, where: str) -> str:
    if not _is_value(text):
        raise UsageError(f"{where}: user_agent {text!r}: has characters that a header may not have")
    return text


def _is_value(value: Any) -> bool:
    """Return True for a text or number that a header's value may be."""
    return (
        isinstance(value, str | int | float)
        and not isinstance(value, bool)
        and bool(_VALUE.fullmatch(str(value)))
    )


def _is_place(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https", "ws", "wss") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _clock(text: str, where: str) -> str:
    from stillweb.proxy.browser.freeze import start_of

    try:
        start_of(Profile(clock=text))
    except UsageError:
        raise UsageError(
            f"{where}: clock {text!r}: is not a time; write it as 2026-11-24T10:00:00Z"
        ) from None
    return text


_READ = {
    "locale": _locale,
    "timezone": _timezone,
    "viewport": _viewport,
    "user_agent": _user_agent,
    "clock": _clock,
}


def _device(name: str, where: str) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        devices = dict(playwright.devices)
    if name not in devices:
        raise UsageError(f"{where}: device {name!r} is unknown{did_you_mean(name, list(devices))}")
    found = devices[name]
    return {
        "user_agent": found["user_agent"],
        "viewport": (found["viewport"]["width"], found["viewport"]["height"]),
        "scale": float(found["device_scale_factor"]),
        "mobile": found["is_mobile"],
        "touch": found["has_touch"],
    }


class _Cookie(TypedDict):
    name: str
    value: str
    domain: str
    path: str
    expires: NotRequired[float]
    httpOnly: NotRequired[bool]
    secure: NotRequired[bool]
    sameSite: NotRequired[Literal["Strict", "Lax", "None"]]


class _Item(TypedDict):
    name: str
    value: str


class _Origin(TypedDict):
    origin: Annotated[str, msgspec.Meta(pattern="^https?://[^/]+$")]
    localStorage: list[_Item]


class _State(TypedDict):
    """A storage state, as Playwright's `context.storage_state(path=…)` writes it."""

    cookies: list[_Cookie]
    origins: NotRequired[list[_Origin]]


def _storage(path: Path) -> dict[str, Any]:
    """Return a storage state as Playwright's `context.storage_state(path=…)` wrote it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        state = convert(value, _State)
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror or error}") from None
    except ValueError as error:
        raise UsageError(
            f"{path}: is not a storage state: {error}. Write it with Playwright's context.storage_state(path=…)"
        ) from None
    # as written: newer Playwrights add members (partitionKey, indexedDB)
    return {"cookies": value["cookies"], "origins": value["origins"] if "origins" in state else []}
