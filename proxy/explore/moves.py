"""The moves of an exploration: what can be tried with a page's controls, and which are too harmful to try."""

from __future__ import annotations

import contextlib
import difflib
import functools
import hashlib
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from playwright.async_api import Error as PlaywrightError

from stillweb.proxy.browser.errors import answered
from stillweb.proxy.browser.page_snapshot import place_of
from stillweb.snapshots.view import Step

if TYPE_CHECKING:
    from playwright.async_api import Page

MOST_CONTROLS = 400


def _words(*lists: Iterable[str]) -> str:
    return "|".join(word for one in lists for word in one)


@dataclass(frozen=True, slots=True)
class _Harm:
    names: re.Pattern[str]
    links: re.Pattern[str]
    paths: re.Pattern[str]
    requests: re.Pattern[str]


@functools.cache
def _harm() -> _Harm:
    data = tomllib.loads(files("stillweb.proxy.explore").joinpath("harm.toml").read_text(encoding="utf-8"))
    anywhere = _words(*data["anywhere"].values())
    found = [rf"\b({_words(*data[kind].values())})\b|{anywhere}" for kind in ("names", "links")]
    for kind in ("links", "requests"):
        words = _words(data["addresses"][kind]).replace("-", "[-_]").replace("*", "[a-z_-]+")
        found.append(rf"/({words})(?=[/.;]|$)")
    return _Harm(*(re.compile(one, re.IGNORECASE) for one in found))


_MORE = re.compile(
    r"\b(load|show|view|see|mehr|afficher|ver) ?(more|all|anzeigen|plus|más)\b|more results|加载更多", re.I
)
_MUTATION = re.compile(r'"query"\s*:\s*"(\\n|\s)*mutation\b')  # GraphQL over HTTP
_FILTER = re.compile(
    r"\b(query|search|filter|find|lookup|facets?)(s|es)?\b|(query|search|filter)[-_]?form", re.IGNORECASE
)
_FILE = re.compile(r"\.(csv|xlsx?|ods|pdf|zip|gz|json|xml|tsv|docx?|png|jpe?g|svg|mp4|mp3)$", re.IGNORECASE)
FILE = "is a file, and no view"  # why a link whose address names a file is not followed


@dataclass(frozen=True, slots=True)
class Move:
    """Steps to try, and the same steps with CSS selectors for when the names prove ambiguous (`plain`).

    `then` is done in addition if the steps alone change nothing (the form's submit button). `href` is where a
    link leads, for the check against robots.txt.
    """

    kind: str
    steps: tuple[Step, ...]
    plain: tuple[Step, ...]
    then: tuple[Step, ...] = ()
    href: str | None = None

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Move:
        """Return the move in a JSON object; inverse of `dataclasses.asdict`."""
        steps, plain, then = (tuple(value[name]) for name in ("steps", "plain", "then"))
        return cls(value["kind"], steps, plain, then, value["href"])


@dataclass(frozen=True, slots=True)
class Choices:
    """The moves that an exploration may try.

    `links` is "near" (same path, another query), "site" or "none".
    """

    values: Sequence[str] = ()
    links: str = "near"
    most_options: int = 24
    most_words: int = 2
    clock: str = "2025-01-01"


@functools.cache
def _finder() -> str:
    return files("stillweb.proxy.explore").joinpath("controls.js").read_text(encoding="utf-8")


async def controls_of(page: Page) -> dict[str, Any]:
    """Return the controls and words of a page and its frames, in the form of controls.js."""
    await _mark_listeners(page)
    found: dict[str, Any] = await answered(page.evaluate(_finder(), MOST_CONTROLS))
    for frame in page.frames[1:]:
        with contextlib.suppress(PlaywrightError):  # the frame is gone
            where = await place_of(frame)
            if where is None:
                continue
            inner = await answered(frame.evaluate(_finder(), MOST_CONTROLS))
            for control in inner["controls"]:
                for one in (control, control.get("submit") or {}):
                    one["frame"] = where
                    if one.get("target"):
                        one["target"]["frame"] = where
            found["controls"] += inner["controls"]
            found["words"] += f" {inner['words']}"
    return found


_LISTENERS = """globalThis[Symbol.for("stillweb.clickable")] = [...document.querySelectorAll("body *")].filter((e) => getEventListeners(e).click)"""


async def _mark_listeners(page: Page) -> None:
    """Mark elements with click listeners for controls.js: only the browser's devtools know them."""
    with contextlib.suppress(PlaywrightError):  # without the marks only what looks operable is found
        tools = await page.context.new_cdp_session(page)
        try:
            await tools.send("Runtime.evaluate", {"expression": _LISTENERS, "includeCommandLineAPI": True})
        finally:
            await tools.detach()


def forbidden(control: dict[str, Any]) -> str | None:
    """Return why a control must not be operated; None if it may."""
    submit = control.get("submit") or {}
    harm = _harm()
    words = harm.links if control["kind"] == "link" else harm.names
    if found := words.search(control.get("name") or ""):
        return f"its name says {found.group()!r}"
    for url in (control.get("href"), submit.get("action")):
        if isinstance(url, str) and (found := harm.paths.search(urlsplit(url).path)):
            return f"leads to {found.group()!r}"
    if submit.get("method", "get") == "post":
        risky = [kind for kind in submit.get("texts", []) if kind != "search"]
        if _FILTER.search(submit.get("about") or "") and set(risky) <= {"text"}:
            risky = []
        if risky and not control.get("search"):
            return "belongs to a form that sends what is typed"
        if found := harm.names.search(submit.get("name") or ""):
            return f"the button of its form says {found.group()!r}"
    return None


def forbidden_request(method: str, url: str, body: str | None) -> str | None:
    """Return why a request caused by a click must be blocked; None if it may go out.

    Reading by POST (search, GraphQL queries) may.
    """
    path = urlsplit(url).path
    if method in ("PUT", "PATCH", "DELETE"):
        return f"would send {method} {path}"
    if found := _harm().requests.search(path):
        return f"would ask for {found.group()!r}"
    if method == "POST" and body and _MUTATION.search(body[:2000]):
        return f"would send a mutation to {path}"
    return None


def _samples(control: dict[str, Any], choices: Choices) -> list[str]:
    """Return plausible values for a number or date field."""
    kind, low, high = control["type"], control.get("min") or "", control.get("max") or ""
    if kind in ("number", "range"):
        values = [low or "1", high or "10"]
    else:
        day = choices.clock[:10]
        default = {"date": day, "month": day[:7], "time": "12:00", "datetime-local": f"{day}T12:00"}.get(
            kind, ""
        )
        values = [low or default, high or default]
    return [value for value in dict.fromkeys(values) if value and value != control.get("value")]


def words_of(text: str, most: int) -> list[str]:
    """Return the first `most` longer words of a page, as search terms."""
    found = dict.fromkeys(word.lower() for word in re.findall(r"[^\W\d_]{5,20}", text))
    return list(found)[:most]


def _step(action: str, control: dict[str, Any], more: dict[str, Any] | None = None) -> tuple[Step, Step]:
    plain = _by_css(control)
    target = dict(control.get("target") or plain)
    return {action: target | (more or {})}, {action: plain | (more or {})}


def _submit(control: dict[str, Any]) -> tuple[Step, ...]:
    submit = control.get("submit")
    if not submit or not submit.get("css") or _harm().names.search(submit.get("name") or ""):
        return ()
    return ({"click": submit.get("target") or _by_css(submit)},)


def _by_css(control: dict[str, Any]) -> dict[str, Any]:
    within = {"frame": control["frame"]} if control.get("frame") else {}
    return {"css": control["css"], **within}


def moves(found: dict[str, Any], choices: Choices) -> tuple[list[Move], list[tuple[str, str]]]:
    """Return the moves to try, in the page's order, and (control, reason) for each control that is left alone."""
    out: list[Move] = []
    left: list[tuple[str, str]] = []
    words = list(choices.values) or words_of(found["words"], choices.most_words)
    for control in found["controls"]:
        if why := forbidden(control):
            left.append((f"{control['kind']} {control.get('name') or control['css']}", why))
            continue
        if control["kind"] == "link" and _FILE.search(urlsplit(control["href"]).path):
            left.append((control["href"], FILE))
            continue
        out += _of(control, choices, words)
        more = len(control.get("options") or ()) - choices.most_options
        if control["kind"] == "select" and more > 0:
            left.append(
                (
                    f"select {control.get('name') or control['css']}",
                    f"the last {more} of its options are not tried",
                )
            )
    return out, left


def skipped_reason(url: str, site: str, way: str, *, pdf: bool) -> tuple[str, str] | None:
    """Return (way, reason) if a way left the site or led to a PDF; None if it led to a state of the site."""
    if urlsplit(url).netloc != urlsplit(site).netloc:
        return way, f"leaves the site for {url}"
    return (way, f"leads to a PDF, {url}: fetched, and no view") if pdf else None


def _of(control: dict[str, Any], choices: Choices, words: Sequence[str]) -> Iterable[Move]:
    kind = control["kind"]
    if kind == "select":
        for option in control["options"][: choices.most_options]:
            step, plain = _step("select", control, {"option": option})
            yield Move(kind, (step,), (plain,), _submit(control))
    elif kind in ("radio", "check", "uncheck"):
        step, plain = _step("uncheck" if kind == "uncheck" else "check", control)
        yield Move(kind, (step,), (plain,), _submit(control))
    elif kind in ("text", "value"):
        if kind == "text" and not control.get("search"):
            return
        for value in words if kind == "text" else _samples(control, choices):
            step, plain = _step("fill", control, {"value": value})
            enter, plain_enter = _step("press", control, {"key": "Enter"})
            yield Move(kind, (step, enter), (plain, plain_enter), _submit(control))
    elif kind == "link":
        if _wanted(control, choices):
            step, plain = _step("click", control)
            yield Move("page" if control["paging"] else "link", (step,), (plain,), href=control["href"])
    elif kind == "submit":
        return  # tried by `Move.then` of the fields that it sends
    else:
        step, plain = _step("click", control)
        yield Move("more" if _MORE.search(control.get("name") or "") else kind, (step,), (plain,))


def _wanted(control: dict[str, Any], choices: Choices) -> bool:
    if choices.links == "none" or not control["origin"]:
        return False
    rel = (control.get("rel") or "").split()
    return control["near"] or "next" in rel or choices.links == "site" or bool(control["paging"])


_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_FLAGS = re.compile(r" \[(selected|checked|expanded|active)\]")
_CONTENT = re.compile(r"^(\s*- (?:textbox|searchbox|spinbutton|combobox|slider)\b[^\n:]*): .*$", re.MULTILINE)
_ADDRESS = re.compile(r"^(\s*- /url: )([^?\n]*)\?(\S+)$", re.MULTILINE)


def _in_order(found: re.Match[str]) -> str:
    query, mark, fragment = found[3].partition("#")
    return f"{found[1]}{found[2]}?{'&'.join(sorted(query.split('&')))}{mark}{fragment}"


def stable_content(text: str, aria: str) -> str:
    """Return a page's text and structure, without the contents of its fields and with link queries sorted.

    Choosing a value alone makes no other view.
    """
    fields = _ADDRESS.sub(_in_order, _CONTENT.sub(r"\1", _FLAGS.sub("", aria)))
    return f"{text}\n{fields}"


def _mask(line: str) -> str:
    return _NUMBER.sub("#", line.strip())


class Noise:
    """Masks of the lines that change by themselves, such as clocks and counters."""

    def __init__(self, masks: list[str] | None = None) -> None:
        self.masks = set(masks or ())

    def learn(self, before: str, after: str) -> bool:
        """Compare two visits of one view; return True if new masks were learned."""
        if before == after:
            return False
        old, new = before.splitlines(), after.splitlines()
        known = len(self.masks)
        for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if kind == "replace" and b - a == d - c:
                for one, other in zip(old[a:b], new[c:d], strict=True):
                    if _mask(one) == _mask(other) and "#" in _mask(one):
                        self.masks.add(_mask(one))
        return len(self.masks) > known

    def look(self, text: str) -> str:
        """Return a hash of a page's content, with noise masked: equal views have equal hashes."""
        lines = (_mask(line) if _mask(line) in self.masks else line for line in text.splitlines())
        return hashlib.sha256("\n".join(lines).encode(errors="replace")).hexdigest()
