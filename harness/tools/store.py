"""The one store behind all tools: a snapshot asked as an HTTP client would ask the web, and its frozen texts."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from stillweb.harness.tools.alike import first_alike
from stillweb.harness.tools.cookies import Cookies
from stillweb.harness.tools.going_on import AUTHORIZATION, redirected, signed_in, wrong_location
from stillweb.harness.tools.httpx_text import text_codec
from stillweb.harness.tools.workspace import Workspace
from stillweb.snapshots.capture import PARTIAL, Capture, Response
from stillweb.snapshots.http import encodings
from stillweb.snapshots.http.charsets import header_charset
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.texts.freezing import text_address, view_text_address
from stillweb.snapshots.texts.text import READ, FrozenText, extract, extract_html

if TYPE_CHECKING:
    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.texts.search import SearchIndex

REDIRECTS = frozenset({301, 302, 303, 307, 308})
MOST_REDIRECTS = 20  # httpx and requests stop after 20 and 30
NEAREST = 3  # captures named in a miss
KEPT = 64_000_000  # characters of texts kept in memory
VERDICTS = ("exact", "canonical", "varies", "rule", "rendered", "synthetic", "failed", "miss")  # best first


@dataclass(slots=True)
class Found:
    """What a snapshot has for a request: the last capture of a chain of redirects, or (`capture` None) a miss or a failure."""

    url: str
    verdict: str = "miss"
    capture: Capture | None = None
    chain: list[Capture] = field(default_factory=list)
    nearest: list[dict[str, Any]] = field(default_factory=list)
    redirects: bool = False  # more redirects than a client follows
    view: str | None = None
    ambiguous: bool = False
    uploads: list[dict[str, Any]] = field(default_factory=list)  # files that were read: name and digest
    error: str | None = None  # while recording: what went wrong, in the HTTP client's words

    def meta(self, **more: Any) -> dict[str, Any]:
        """The machine-readable mark of a result."""
        out: dict[str, Any] = {"verdict": self.verdict, "captures": [place(c) for c in self.chain]}
        if self.url:
            out["url"] = self.url
        if self.view:
            out["view"] = self.view
        if self.nearest:
            out["nearest"] = self.nearest
        if self.ambiguous:
            out["ambiguous"] = True
        out.update(more)
        return out


def place(capture: Capture) -> dict[str, Any]:
    """Where a capture lies, for traces and evidence."""
    return {"file": capture.filename, "offset": capture.offset, "digest": capture.digest, "url": capture.url}


def worse(one: str, other: str) -> str:
    """The weaker of two verdicts; `varies:…` and `rule:…` count by their kind."""

    def rank(verdict: str) -> int:
        kind = verdict.partition(":")[0]
        return VERDICTS.index(kind) if kind in VERDICTS else len(VERDICTS)

    return other if rank(other) > rank(one) else one


class Store:
    """A snapshot and what tools derive from it, shared by all sessions. Safe for use from many threads."""

    def __init__(self, snapshot: Snapshot, *, accept: str = "rule", matcher: Any = None) -> None:
        self.snapshot = snapshot
        self.accept = accept
        if matcher is None:
            from stillweb.snapshots.matching.ladder import Matcher

            matcher = Matcher(
                snapshot
            )  # not the snapshot's own: a gateway may be asking that one on its thread
        self.matcher: Any = matcher
        self._lock = threading.Lock()
        self.asking = threading.Lock()  # a matcher is asked by one thread at a time
        self._texts: OrderedDict[tuple[str, str], FrozenText | None] = OrderedDict()
        self._size = 0
        self._index: SearchIndex | None = None

    def session(self, name: str) -> Visit:
        """A client of its own."""
        return Visit(self, self.matcher.session(name))

    def text_of(self, capture: Capture) -> FrozenText | None:
        """The frozen text of a capture's answer; extracted now, and so marked, where none was frozen."""
        key = (capture.url if capture.method == "GET" else text_address(capture), capture.digest)
        return self._kept(key, lambda: self._made(capture))

    def frozen_of(self, capture: Capture) -> FrozenText | None:
        """The text that was frozen of a capture's own answer; None where there is none."""
        for address_of in (attrgetter("url"), text_address):  # the second is seldom needed
            text = self.snapshot.text(address_of(capture))
            if text is not None and text.meta.get("digest", capture.digest) == capture.digest:
                return text
        return None

    def _made(self, capture: Capture) -> FrozenText | None:
        return self.frozen_of(capture) or extract(capture, self.snapshot.read_start(capture, READ + 1))

    def text_at(self, address: str) -> FrozenText | None:
        """The frozen text with this address."""
        return self._kept((address, ""), lambda: self.snapshot.text(address))

    def _kept(self, key: tuple[str, str], make: Callable[[], FrozenText | None]) -> FrozenText | None:
        with self._lock:
            if key in self._texts:
                self._texts.move_to_end(key)
                return self._texts[key]
        made = make()
        with self._lock:
            if key not in self._texts:
                self._texts[key] = made
                self._size += len(made.markdown) if made else 0
                while self._size > KEPT and len(self._texts) > 1:
                    _, dropped = self._texts.popitem(last=False)
                    self._size -= len(dropped.markdown) if dropped else 0
        return made

    def view_text(self, address: str) -> tuple[FrozenText, str] | None:
        """The text of a view by its address (`URL#view=<id>`), and the view's own address."""
        view = self.snapshot.view(address)
        if view is None:
            return None
        text = self.text_at(view_text_address(view))
        if text is None:
            dom = self.snapshot.resource("dom", view.address)
            if dom is None:
                return None
            text = extract_html(view_text_address(view), dom.decode("utf-8", "replace"))
        return text, view.address

    def index(self) -> SearchIndex:
        """The search index over all frozen texts: the kept one, or made at first use."""
        with self._lock:
            if self._index is None:
                from stillweb.snapshots.searching import index_of

                self._index = index_of(self.snapshot)
            return self._index

    def close(self) -> None:
        """Frees the index. The snapshot stays open; it is its owner's."""
        with self._lock:
            if self._index is not None:
                self._index.close()
                self._index = None


class Visit:
    """One client's line of requests: its replay state, and what it asked for.

    `live` visits ask the real web and store what it says (`tools.recording`).
    """

    live = False
    workspace = Workspace()  # whose files its tools may read; an empty one

    def __init__(self, store: Store, session: Any) -> None:
        self.store = store
        self._session = session

    def look(self, request: Request) -> Found:
        """What the snapshot has for one request, no redirect followed."""
        with self.store.asking:
            lookup = self.store.matcher.lookup(request, self._session, accept=self.store.accept)
            alone = self._alone(request, lookup.key) if lookup.capture is None else None
            if alone is not None:
                verdict = "exact" if alone.exact == lookup.key.exact else "canonical"
                return Found(request.url, verdict, alone, [alone], ambiguous=True)
            found = Found(request.url, lookup.verdict, lookup.capture)
            if lookup.failed is not None:
                return found
            if lookup.capture is None:
                found.nearest = [
                    {
                        "url": n.capture.url,
                        "method": n.capture.method,
                        "differs": list(n.differs),
                        "rule": n.rule,
                    }
                    for n in lookup.explain()[:NEAREST]
                ]
                return found
            self._session.answered(lookup)
        found.chain.append(first_alike(self.store.snapshot, lookup.capture))
        found.ambiguous = bool(lookup.ambiguous)
        return found

    def _alone(self, request: Request, key: Any) -> Capture | None:
        """The one answer that was ever recorded for a GET without cookies, whatever had happened before it.

        The real tools use a new client without cookies for each call, so that a server has nothing to know them by,
        and what is frozen is to be had in any order. Where a URL had several answers, the matcher's miss stands. The
        result is marked as ambiguous, for `accept` to refuse.
        """
        accept = self.store.accept
        known_by = (request.header(name) for name in ("cookie", AUTHORIZATION))
        if request.method != "GET" or any(known_by) or "+" in accept:
            return None
        candidates = [c for c in self.store.snapshot.candidates(key.urlkey) if c.method == "GET"]
        known = [c for c in candidates if c.exact == key.exact]
        if not known and accept != "exact":
            known = [c for c in candidates if c.key == key.canonical]
        # a URL whose answer depends on what the request says of itself is no single answer, nor is a part the whole
        if not known or any(c.vary or c.status in PARTIAL for c in known):
            return None
        if len({(c.digest, c.status) for c in known}) > 1:
            return None
        if known[0].status in REDIRECTS and len({self._location(c) for c in known}) > 1:
            return None
        return known[0]

    def _location(self, capture: Capture) -> str | None:
        return self.store.snapshot.read(capture).header("location")

    def follow(self, url: str, headers: Headers = ()) -> Found:
        """What a GET of `url` ends at, redirects followed as clients do."""
        whole: Found | None = None
        cookies = Cookies()
        url, headers = signed_in(url, headers)
        for _ in range(MOST_REDIRECTS + 1):
            here = self._step(url.partition("#")[0], headers, cookies)
            if whole is None:
                whole = here
            else:
                whole.url, whole.capture = here.url, here.capture
                whole.chain += here.chain
                whole.verdict = worse(whole.verdict, here.verdict)
                whole.nearest, whole.error = here.nearest, here.error
                whole.ambiguous = whole.ambiguous or here.ambiguous
            if here.capture is None or here.capture.status not in REDIRECTS:
                return whole
            answer = self.read(here)
            location = answer.header("location")
            if location is None:
                return whole
            cookies.take(here.url, answer.headers)
            location = header_text(location)
            error = wrong_location(location)
            url, headers = redirected(here.url, location, headers)
            if error or not url:
                whole.capture, whole.error = None, error
                return whole
        assert whole is not None
        whole.redirects = True
        return whole

    def _step(self, url: str, headers: Headers, cookies: Cookies) -> Found:
        """One request on the way, with the cookies that were set there; where those lead to nothing, without."""
        sent = () if self.live else cookies.fields(url)  # a live client has its own
        if sent:
            found = self.look(Request("GET", url, (*headers, *sent)))
            if found.capture is not None:
                return found
        return self.look(Request("GET", url, headers))

    def read(self, found: Found) -> Response:
        """The answer found."""
        assert found.capture is not None
        return self.store.snapshot.read(found.capture)


def header_text(value: str) -> str:
    """A header field as httpx reads it: UTF-8 where it can be."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def client_text(response: Response) -> str:
    """A body as httpx gives it: the charset of Content-Type if Python knows it, else UTF-8; never an error.

    Raises EncodingProblem where httpx would not be able to decode the content encoding.
    """
    body = encodings.decode(response.body, response.header("content-encoding"))
    name = text_codec(header_charset(response.header("content-type")))
    return body.decode(name, "replace")
