"""The open loop: the requests of a walk recorded as truth, asked of another walk's recording in the truth's own history.

The truth holds its secrets and tokens; the recording holds pseudonyms. So each request is asked as a client of the replay would have
sent it: a token that the live server had drawn becomes the one that the replayed answer held in its place.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from urllib.parse import quote_plus

from bs4 import BeautifulSoup

from benchmarks.applications.application import Application
from benchmarks.states import Engine, Step
from stillweb.snapshots.capture import Response
from stillweb.snapshots.http.encodings import decode
from stillweb.snapshots.identity.cookies import is_session
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.keystore import state_dir
from stillweb.snapshots.secrets.redact import Redactor
from stillweb.snapshots.snapshot import Snapshot

ASSET = re.compile(r"javascript|text/css|image/|font|wasm|octet-stream")
SHORTEST = 8  # characters of a value that is drawn
Exchange = tuple[Request, Response]


class Drawn:
    """The values of an application that are drawn anew in each run."""

    def __init__(self, app: Application) -> None:
        name = f"(?:{app.drawn})"
        self._cookie = re.compile(rf"^({name})=([^;]+)")
        self._fields = [
            re.compile(rf'name=["\']({name})["\'][^>]*?value=["\']([^"\']+)["\']'),
            re.compile(rf'"({name})"\s*:\s*"([^"]+)"'),
        ]
        self._sent = [
            re.compile(rf"((?:^|[?&;]){name}=)[^&;\s]+"),
            re.compile(rf'(name="{name}"\r\n\r\n)[^\r\n]*'),
            re.compile(rf'("{name}"\s*:\s*")[^"]+'),
        ]
        self._moving = [re.compile(one) for one in app.moving]

    def given(self, response: Response) -> dict[str, str]:
        """Return the drawn values that an answer hands out, by name; an address with a part that moves is one."""
        found: dict[str, str] = {}
        for name, value in response.headers:
            if name.lower() == "set-cookie" and (match := self._cookie.match(value)):
                found["cookie " + match[1]] = match[2]
            elif name.lower() == "location" and self.still(value) != value:
                found["location " + self.still(value)] = value
        text = _text(response)
        for pattern in self._fields:
            for name, value in pattern.findall(text):
                found.setdefault(name, unescape(value))
        return {name: value for name, value in found.items() if len(value) >= SHORTEST}

    def asked(self, request: Request) -> str:
        """Return what two requests that ask for the same have in common."""
        headers = tuple((n, v) for n, v in request.headers if n.lower() == "content-type")
        url, body = request.url, request.body.decode("latin1")
        for pattern in self._sent:
            url, body = pattern.sub(r"\1drawn", url), pattern.sub(r"\1drawn", body)
        key = request_key(Request(request.method, url, headers, body.encode("latin1"))).canonical
        return f"{key} {request.conditional()}"

    def visible(self, response: Response) -> tuple[object, ...]:
        """Return what a client sees of an answer, of a page its text and fields, without what is drawn or moves with time."""
        headers = []
        for name, value in response.headers:
            if name.lower() in ("location", "content-type"):
                headers.append((name.lower(), self.still(value)))
            elif name.lower() == "set-cookie":
                cookie, _, given = self._cookie.sub(r"\1=drawn", value.partition(";")[0]).partition("=")
                headers.append((cookie, "drawn" if is_session(cookie, given) else given))
        text = _text(response)
        if "html" in (response.header("content-type") or ""):
            text = _page(text)
        for pattern in self._fields:
            text = pattern.sub(lambda match: match[0].replace(match[2], "drawn"), text)
        return response.status, tuple(sorted(headers)), self.still(text)

    def still(self, text: str) -> str:
        """Return a text without what moves with time."""
        for pattern in self._moving:
            text = pattern.sub("moving", text)
        return text


def _text(response: Response) -> str:
    return decode(response.body, response.header("content-encoding")).decode("utf8", "replace")


def _page(html: str) -> str:
    """Return the text of a page, and the values of the fields that are shown."""
    soup = BeautifulSoup(html, "lxml")
    for tag in soup(["script", "style", "template"]):
        tag.decompose()
    fields = (
        f"{tag.get('name')}={tag.get('value')} {tag.has_attr('checked')}"
        for tag in soup("input")
        if tag.get("type") != "hidden"
    )
    return " ".join([*soup.get_text(" ").split(), *fields])


def exchanges(snapshot: Snapshot) -> list[Exchange]:
    """Return what a snapshot holds, in the order in which it was asked."""
    captures = sorted(snapshot.captures(), key=lambda capture: (capture.begin, capture.end))
    return [(snapshot.read_request(capture), snapshot.read(capture)) for capture in captures]


def _substituted(text: str, values: dict[str, str]) -> str:
    for theirs, ours in values.items():
        if theirs in text:
            text = text.replace(theirs, ours)
        elif (quoted := quote_plus(theirs)) in text:
            text = text.replace(quoted, quote_plus(ours))
    return text


def _with(values: dict[str, str], request: Request) -> Request:
    body = _substituted(request.body.decode("latin1"), values).encode("latin1")
    headers = tuple((name, _substituted(value, values)) for name, value in request.headers)
    return Request(request.method, _substituted(request.url, values), headers, body)


def _seen(values: dict[str, str], response: Response) -> Response:
    headers = tuple((name, _substituted(value, values)) for name, value in response.headers)
    if response.header("content-encoding") or ASSET.search(response.header("content-type") or ""):
        return replace(response, headers=headers)
    body = _substituted(response.body.decode("latin1"), values).encode("latin1")
    return replace(response, headers=headers, body=body)


def asked(
    app: Application, recording: Path, truth: Path, engine: Engine, assets: bool = True
) -> Iterator[tuple[bool, Step]]:
    """Ask each request of the truth; yield whether it is an asset (script, style, picture), and what came of it.

    Without `assets` they happen, but are not asked for, which takes a fifth of the time.
    """
    drawn = Drawn(app)
    redactor = Redactor.for_snapshot(recording, state_dir(), keep=True)
    with Snapshot.open(recording) as snapshot, Snapshot.open(truth) as lived:
        answers: dict[str, set[tuple[object, ...]]] = defaultdict(set)
        for request, response in exchanges(snapshot):
            answers[drawn.asked(request)].add(drawn.visible(response))
        session = engine(snapshot)()
        values: dict[str, str] = {}
        for request, response in exchanges(lived):
            sent = _with(values, request)
            asset = bool(ASSET.search(response.header("content-type") or ""))
            if asset and not assets:
                session.happened(sent, response)
                continue
            given, confidence = session.ask(sent)
            if given is not None:
                ours = drawn.given(given)
                values |= {
                    theirs: ours[name] for name, theirs in drawn.given(response).items() if name in ours
                }
            recorded = answers.get(drawn.asked(redactor.request(sent)), set())
            live = drawn.visible(response)
            right = given is not None and drawn.visible(given) == live
            what = f"{request.method} {request.url} {request.body[:60]!r} -> {response.status}"
            yield asset, Step(confidence, right, live in recorded, len(recorded) > 1, what)
            session.happened(sent, _seen(values, response))
