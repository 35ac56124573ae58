"""A snapshot in memory, for matching without files: exchanges in, a matcher's store out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from msgspec import structs

from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.contents.failures import Failure
from stillweb.snapshots.evidence.matcher import Matcher
from stillweb.snapshots.identity.header_fields import has_client_fields
from stillweb.snapshots.identity.keys import request_key
from stillweb.snapshots.identity.rules import RuleSet, builtin
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.warc.messages import set_cookies, vary_of, vary_values

START = datetime(2025, 1, 1)


@dataclass
class Recorded:
    """An exchange: who asked, what, and the answer."""

    request: Request
    response: Response
    session: str = "s"
    layer: int = 1
    events: tuple[int, int] | None = None  # of its session, where it was under way beside others


def html(text: str, status: int = 200, *more: tuple[str, str]) -> Response:
    """A page."""
    body = text.encode()
    headers: Headers = (("Content-Type", "text/html"), ("Content-Length", str(len(body))), *more)
    return Response(status, "OK", headers, body)


def plain(text: str) -> Response:
    """Text that is no page, as scripts ask for it again and again."""
    return Response(200, "OK", (("Content-Type", "text/plain"),), text.encode())


def redirect(location: str, *more: tuple[str, str]) -> Response:
    """A redirect that says nothing else."""
    return Response(303, "See Other", (("Location", location), *more), b"")


def get(url: str, **headers: str) -> Request:
    """A GET; `accept_language="en"` makes a header field."""
    return Request("GET", url, tuple((n.replace("_", "-"), v) for n, v in headers.items()))


def post(
    url: str, body: str | bytes = b"", media: str = "application/x-www-form-urlencoded", **headers: str
) -> Request:
    """A POST, of a form unless told otherwise."""
    data = body.encode() if isinstance(body, str) else body
    return Request(
        "POST", url, (("Content-Type", media), *((n.replace("_", "-"), v) for n, v in headers.items())), data
    )


class MemoryStore:
    """Captures as an index has them."""

    def __init__(self, recorded: list[Recorded], rules: RuleSet | None = None) -> None:
        self.rules = rules or builtin()
        self.talks: list[tuple[str, dict[str, Any]]] = []  # what was said over web sockets, by address
        self._recorded: dict[tuple[str, int], Recorded] = {}
        captures = []
        events: dict[str, int] = {}
        for number, one in enumerate(recorded):
            begin = events.get(one.session, 0) + 1
            begin, end = one.events or (begin, begin + 1)
            events[one.session] = max(events.get(one.session, 0), end)
            key = request_key(one.request)
            capture = Capture(
                urlkey=key.urlkey,
                timestamp=(START + timedelta(seconds=number)).strftime("%Y%m%d%H%M%S"),
                url=one.request.url,
                method=one.request.method,
                status=one.response.status,
                mime=(one.response.header("content-type") or "unk").partition(";")[0],
                digest="sha256:" + hashlib.sha256(one.response.body).hexdigest(),
                filename="memory" if one.layer == 1 else f"layer{one.layer}/memory",
                offset=number,
                length=1,
                key=key.canonical,
                exact=key.exact,
                session=one.session,
                begin=begin,
                end=end,
                vary=vary_values(vary_of(one.response.headers), one.request.headers),
                personal=bool(set_cookies(one.response.headers)) or has_client_fields(one.request.headers),
            )
            self._recorded[capture.place] = one
            captures.append(capture)
        self._captures = sorted(captures, key=lambda c: (c.urlkey, c.timestamp))

    def captures(self) -> Iterator[Capture]:
        return iter(self._captures)

    def said_at(self, uri: str, /) -> Iterator[dict[str, Any]]:
        return (talk for address, talk in self.talks if address == uri)

    def candidates(self, urlkey: str, /) -> tuple[Capture, ...]:
        return tuple(c for c in self._captures if c.urlkey == urlkey)

    def failures(self, address: str | None = None, /) -> tuple[Failure, ...]:
        return ()

    def metadata_addresses(self, start: str, /) -> Iterable[str]:
        return dict.fromkeys(address for address, _ in self.talks if address.startswith(start))

    def prefix(self, start: str, /) -> Iterator[Capture]:
        return (c for c in self._captures if c.urlkey.startswith(start))

    def read_start(self, capture: Capture, size: int) -> Response:
        return self.read(capture)

    def read(self, capture: Capture, /) -> Response:
        return self._recorded[capture.place].response

    def cut_short(self, capture: Capture) -> str:
        return ""

    def head(self, capture: Capture, /) -> Response:
        return replace(self.read(capture), body=b"")

    def read_request(self, capture: Capture, /) -> Request:
        return self._recorded[capture.place].request

    def changed(self, number: int, **what: object) -> None:
        """Alters the capture of an exchange by its number."""
        self._captures = [structs.replace(c, **what) if c.offset == number else c for c in self._captures]


def matcher(*recorded: Recorded | tuple[Request, Response] | tuple[Request, Response, str]) -> Matcher:
    """A matcher over exchanges given in order."""
    return Matcher(MemoryStore([r if isinstance(r, Recorded) else Recorded(*r) for r in recorded]))


def spoken(event: int, *recorded: tuple[Request, Response], text: str = '{"add": "tea"}') -> Matcher:
    """A matcher over exchanges of one session, which after its so-manieth event said something over a web socket."""
    store = MemoryStore([Recorded(*r) for r in recorded])
    messages = [{"from": "server", "text": "[]"}, {"from": "client", "text": text}]
    store.talks = [
        ("http://a.test/ws", {"session": "s", "begin": 0, "messages": messages, "events": [0, event]})
    ]
    return Matcher(store)


class Replay:
    """A session that asks and is told that it was answered."""

    def __init__(self, over: Matcher, name: str = "replay", accept: str = "rule") -> None:
        self.matcher = over
        self.session = over.session(name)
        self.accept = accept

    def ask(self, request: Request) -> str:
        """The text of the answer, or `miss`."""
        lookup = self.matcher.lookup(request, self.session, accept=self.accept)
        self.last = lookup
        if lookup.capture is None:
            return "miss"
        self.session.answered(lookup)
        return self.matcher.snapshot.read(lookup.capture).body.decode()


def answers(over: Matcher, *asked: Request) -> list[str]:
    """The texts of the answers of one session; `?` marks what is not sure."""
    replay = Replay(over)
    found = []
    for request in asked:
        text = replay.ask(request)
        found.append(f"{text}?" if replay.last.ambiguous and text != "miss" else text)
    return found
