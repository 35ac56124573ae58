"""Random walks on the stateful site: the same actions by a client of the live site and by one of a snapshot."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin

from stillweb.snapshots.capture import Exchange, Response
from stillweb.snapshots.evidence.lookup import Session
from stillweb.snapshots.evidence.matcher import Matcher
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.writer import Writer
from tests.support.stateful_media import ALLOWED, CHANGED, TAG
from tests.support.stateful_site import (
    CATEGORIES,
    GREETINGS,
    HOST,
    PASSWORDS,
    YEARS,
    Site,
    hidden_fields,
    text_of_page,
)

Send = Callable[[Request], Response | None]
START = datetime(2025, 1, 1, tzinfo=UTC)


class Text(str):
    """Text of an answer, with the number of its request, from 0."""

    number = -1


class Client:
    """A plain HTTP client: a cookie jar, redirects followed one by one, hidden fields sent back."""

    def __init__(self, send: Send, language: str = "en") -> None:
        self._send = send
        self.language = language
        self.jar: dict[str, str] = {}
        self.page: Response | None = None
        self.asked = 0

    def ask(
        self, method: str, path: str, body: bytes = b"", media: str = "", more: Headers = ()
    ) -> list[str]:
        """The texts of all answers up to the page; "miss" ends them."""
        texts: list[str | Text] = []
        url = urljoin(HOST, path)
        for _ in range(6):
            headers: list[tuple[str, str]] = [("Accept-Language", self.language), *more]
            if media:
                headers.append(("Content-Type", media))
            if self.jar:
                headers.append(("Cookie", "; ".join(f"{k}={v}" for k, v in self.jar.items())))
            response = self._send(Request(method, url, tuple(headers), body))
            self.asked += 1
            if response is None:
                self.page = None
                return [*texts, "miss"]
            self.page = response
            for name, value in response.headers:
                if name.lower() == "set-cookie":
                    cookie, _, text = value.partition(";")[0].partition("=")
                    self.jar[cookie] = text
                    if not text or "max-age=0" in value.lower():
                        self.jar.pop(cookie)
            location = response.header("location")
            text = text_of_page(response) + f" -> {location}" * bool(location)
            if method == "HEAD":
                text += f" {response.header('content-type')} of {response.header('content-length')}"
            if (spoken := response.header("x-spoken")) is not None:
                text += f" over {spoken}"
            texts.append(Text(text))
            texts[-1].number = self.asked - 1
            if response.status not in (301, 302, 303, 307) or not location:
                return texts
            url, method, body, media = urljoin(url, location), "GET", b"", ""
        return texts

    def get(self, path: str) -> list[str]:
        return self.ask("GET", path)

    def form(self, path: str, **fields: str) -> list[str]:
        return self.ask("POST", path, urlencode(fields).encode(), "application/x-www-form-urlencoded")

    def json(self, path: str, value: Any, method: str = "POST") -> list[str]:
        return self.ask(method, path, json.dumps(value).encode(), "application/json")


Action = tuple[str, str]  # what and with which argument


def perform(client: Client, action: Action, noise: str) -> list[str]:
    """The texts that an action shows. `noise` is different for every call, as a beacon's payload is."""
    what, value = action
    if what == "get":
        return client.get(value)
    if what in ("ticker", "secure"):
        return client.get(f"/{what}")
    if what == "whole":
        return client.get("/file")
    if what == "filter":
        return client.form("/filter", category=value)
    if what == "period":
        return client.form("/period", year=value)
    if what == "login":
        user, _, password = value.partition(":")
        return client.form("/login", user=user, password=password)
    if what == "post":
        return client.form(value)
    if what == "job":
        texts = client.form("/jobs")
        for _ in value:
            texts += client.get("/jobs")
        return texts
    if what == "cart":
        return client.form("/cart", item=value)
    if what == "shelf":
        first = client.get("/shelf")
        client.jar["shelf"] = value
        return first + client.get("/shelf")
    if what == "beacon":
        client.ask("POST", "/hit", f'{{"t":{noise}}}'.encode(), "text/plain;charset=UTF-8")
        return []
    if what == "keepalive":
        client.json("/touch-session", {"n": noise})
        return []
    if what == "ping":
        return client.get(f"/ping?_=17{noise.replace('.', '')}00000000000"[:22])
    if what == "analytics":
        client.get(f"/collect?v=2&t=pageview&z={noise}")
        return []
    if what == "menu":
        return client.ask("GET", "/menu", more=(("Accept", value),))
    if what == "head":
        return client.ask("HEAD", value)
    if what == "range":
        return client.ask("GET", "/file", more=(("Range", value),))
    if what == "fresh":
        return client.ask("GET", "/file", more=(("If-None-Match", value),))
    if what == "since":
        return client.ask("GET", "/file", more=(("If-Modified-Since", value),))
    if what == "foreign":
        return _foreign(client, value)
    if what == "search":
        return client.json("/api/search", {"q": value, "step": 2})
    if what == "graphql":
        query = "query Item($id: ID!) { item(id: $id) { name } }"
        return client.json("/graphql", {"operationName": "Item", "query": query, "variables": {"id": value}})
    if what == "notes":
        return client.json(
            "/graphql", {"operationName": "Notes", "query": "query Notes { notes }", "variables": {}}
        )
    if what == "note":
        query = "mutation Note($text: String!) { note(text: $text) }"
        return client.json(
            "/graphql", {"operationName": "Note", "query": query, "variables": {"text": value}}
        )
    if what == "put":
        return client.json(f"/things/{value[0]}", {"name": value}, "PUT")
    if what == "patch":
        return client.json(f"/things/{value[0]}", {"suffix": value[1:]}, "PATCH")
    if what == "delete":
        return client.ask("DELETE", f"/things/{value}")
    if what == "contact":
        first = client.get("/contact")
        token = hidden_fields(client.page).get("csrf", "none") if client.page else "none"
        return first + client.form("/contact", text=value, csrf=token)
    if what == "grid":
        texts = client.get("/grid.aspx")
        for step in value:
            fields = hidden_fields(client.page) if client.page else {"__VIEWSTATE": "bm9uZQ=="}
            texts += client.form("/grid.aspx", __EVENTTARGET="next" if step == "n" else "previous", **fields)
            if texts[-1] == "miss":
                break
        return texts
    raise AssertionError(what)


def _foreign(client: Client, path: str) -> list[str]:
    """Return the answers that a page of another origin reads when it sends JSON: a preflight, then the request, if permitted."""
    origin = ("Origin", ALLOWED)
    wanted = (("Access-Control-Request-Method", "POST"), ("Access-Control-Request-Headers", "content-type"))
    if client.ask("OPTIONS", path, more=(origin, *wanted)) == ["miss"] or client.page is None:
        return ["miss"]
    if client.page.status >= 300 or client.page.header("access-control-allow-origin") not in (ALLOWED, "*"):
        return ["blocked"]
    body = json.dumps({"q": "toys", "step": 3}).encode()
    texts = client.ask("POST", path, body, "application/json", (origin,))
    if texts != ["miss"] and client.page and client.page.header("access-control-allow-origin") is None:
        return ["blocked"]
    return texts


ACTIONS: dict[str, list[str]] = {
    "get": ["/", "/about", "/list", "/list", "/list?page=2", "/account", "/hello", "/greeting", "/cart", "/count",
            "/old", "/things", "/things/1", "/language?to=fr", "/language?to=de", "/sort?by=name", "/sort?by=year", "/shelf"],
    "filter": CATEGORIES,
    "period": YEARS,
    "login": [*(f"{u}:{p}" for u, p in PASSWORDS.items()), "ann:wrong-guess-1"],
    "post": ["/logout", "/count", "/cart/clear"],
    "job": ["xx", "xxx", "xxxx"],
    "cart": ["ball", "hammer"],
    "shelf": ["upper", "lower"],
    "beacon": [""],
    "keepalive": [""],
    "search": ["tools", "2020"],
    "graphql": ["1", "2"],
    "notes": [""],
    "note": ["milk"],
    "put": ["1x", "2y"],
    "patch": ["1!"],
    "delete": ["1"],
    "contact": ["hi"],
    "grid": ["n", "nn", "np"],
    "menu": ["application/json", "text/html", "text/plain"],
    "ticker": [""],
    "ping": [""],
    "analytics": [""],
}  # fmt: skip
# What only the wire answers, derived from captures of other requests.
WIRE: dict[str, list[str]] = {
    "head": ["/about", "/list", "/file", "/"],
    "range": ["bytes=0-7", "bytes=392-", "bytes=-4", "bytes=0-3,8-11", "bytes=4000-", "bytes=0-"],
    "fresh": [TAG, '"file-0"'],
    "since": [CHANGED, "Mon, 01 Jan 2024 00:00:00 GMT"],
    "foreign": ["/api/search", "/api/nothing"],
    "secure": [""],
    "whole": [""],
}
ALL = ACTIONS | WIRE


def random_walk(seed: int, length: int, among: list[str] | None = None) -> list[Action]:
    """A walk; most of the time it stays with two or three kinds of action, as people do."""
    draw = random.Random(seed)
    kinds = draw.sample(sorted(among or ACTIONS), 3 if not among or len(among) > 3 else len(among))
    walk: list[Action] = []
    while len(walk) < length:
        what = draw.choice([*kinds, "get", "get", "beacon"])
        walk.append((what, draw.choice(ALL[what])))
        if what in ("filter", "period") or (what == "get" and walk[-1][1].startswith("/sort")):
            walk.append(("get", "/list"))
        if what == "login":
            walk.append(("get", "/account"))
    return walk


class Tape:
    """Records exchanges straight into a writer, as the recorder would."""

    def __init__(self, writer: Writer, site: Site) -> None:
        self.writer = writer
        self.site = site
        self.clock = START

    def send(self, session: str) -> Send:
        def one(request: Request) -> Response:
            begin = self.writer.event(session)
            response = self.site.handle(request)
            self.clock += timedelta(milliseconds=7)
            self.writer.exchange(
                Exchange(
                    request,
                    response.status,
                    response.reason,
                    response.headers,
                    response.body,
                    self.clock,
                    session=session,
                    begin=begin,
                    end=self.writer.event(session),
                )
            )
            return response

        return one


def record(path: Path, walks: list[list[Action]], sessions: int = 8) -> Snapshot:
    """Walks recorded in turn by several sessions at once, each walk by a new client; the snapshot of it."""
    site = Site()
    with Writer.open(path) as writer:
        tape = Tape(writer, site)
        lines = [walks[n::sessions] for n in range(sessions)]
        running: list[list[tuple[Client, Action]]] = []
        for n, line in enumerate(lines):
            steps: list[tuple[Client, Action]] = []
            for walk in line:
                client = Client(tape.send(f"s{n}"), list(GREETINGS)[n % 3])
                steps += [(client, action) for action in walk]
            running.append(steps)
        for turn in range(max(map(len, running), default=0)):
            for n, steps in enumerate(running):
                if turn < len(steps):
                    perform(*steps[turn], noise=f"{turn}.{n}")
    return Snapshot.open(path)


@dataclass
class Result:
    """Result of a replay: answers compared, right ones, misses, wrong ones."""

    right: int = 0
    missed: int = 0
    unsure: int = 0
    wrong: list[str] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)  # wrong, and called ambiguous
    missing: Counter[str] = field(default_factory=Counter)  # by kind of action

    @property
    def rate(self) -> float:
        return self.right / max(1, self.right + self.missed + len(self.wrong) + len(self.doubtful))

    def compare(
        self, walk: list[Action], expected: list[str], found: list[str], unsure: Collection[int] = ()
    ) -> None:
        """Counts the answers to the last action of a walk; `unsure` are the requests whose answer was ambiguous."""
        for want, have in zip(expected, found, strict=False):
            if have == "miss":
                self.missed += 1
                self.missing[walk[-1][0]] += 1
                break
            if want == have:
                self.right += 1
            elif isinstance(have, Text) and have.number in unsure:
                self.doubtful.append(f"{walk}\n  expected {want}\n  got {have}")
            else:
                self.wrong.append(f"{walk}\n  expected {want}\n  got {have}")

    def told(self) -> str:
        """The figures in a line."""
        most = ", ".join(f"{what} {count}" for what, count in self.missing.most_common(6))
        doubtful = f", {len(self.doubtful)} wrong and called ambiguous" if self.doubtful else ""
        return f"{self.right} right, {self.missed} missed, {len(self.wrong)} wrong{doubtful} ({self.rate:.1%}; misses: {most})"


def replaying(
    matcher: Matcher,
    session: Session,
    snapshot: Snapshot,
    result: Result,
    accept: str = "rule",
    unsure: set[int] | None = None,
) -> Send:
    numbers = count()

    def one(request: Request) -> Response | None:
        number = next(numbers)
        lookup = matcher.lookup(request, session, accept=accept)
        if lookup.capture is None:
            return None
        result.unsure += lookup.ambiguous
        if lookup.ambiguous and unsure is not None:
            unsure.add(number)
        session.answered(lookup)
        return snapshot.read(lookup.capture)

    return one


def replay(snapshot: Snapshot, walks: list[list[Action]], sessions: int = 8, accept: str = "rule") -> Result:
    """Walks by a client of the live site and one of the snapshot, step by step; every text is compared."""
    site = Site()
    matcher = snapshot.matcher()
    result = Result()
    lines = []
    for number, walk in enumerate(walks):
        language = list(GREETINGS)[number % 3]
        session = matcher.session(f"r{number}")
        live = Client(site.handle, language)
        unsure: set[int] = set()
        frozen = Client(replaying(matcher, session, snapshot, result, accept, unsure), language)
        lines.append((walk, live, frozen, unsure))
    for first in range(0, len(lines), sessions):
        together = lines[first : first + sessions]
        for turn in range(max(len(walk) for walk, *_ in together)):
            for walk, live, frozen, unsure in together:
                if turn >= len(walk):
                    continue
                expected = perform(live, walk[turn], noise=f"{first}.{turn}9")
                found = perform(frozen, walk[turn], noise=f"{first}.{turn}8")
                result.compare(walk[: turn + 1], expected, found, unsure)
    return result
