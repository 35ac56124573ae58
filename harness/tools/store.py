"""Store behind all tools: HTTP look-ups in a snapshot, and its frozen texts."""

from __future__ import annotations

import codecs
import re
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from stillweb.harness.tools.workspace import Workspace
from stillweb.proxy.replay.faults import older, read_pace
from stillweb.snapshots import Snapshot
from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.decompression import DEFLATE, GZIP, IN_MEMORY, ZLIB, Inflate, bounded_parts, too_large
from stillweb.snapshots.evidence.confidence import SERVED, Confidence, combine
from stillweb.snapshots.evidence.lookup import confidence_of
from stillweb.snapshots.http import encodings
from stillweb.snapshots.http.encodings import EncodingProblem
from stillweb.snapshots.request import Headers, Request, with_authorization
from stillweb.snapshots.text.freezing import text_address, view_text_address
from stillweb.snapshots.text.text import READ, FrozenText, extract, extract_html
from stillweb.snapshots.warc.messages import set_cookies

if TYPE_CHECKING:
    from stillweb.proxy.replay.faults import Faults, FaultSession
    from stillweb.snapshots.text.search import SearchIndex


REDIRECTS = frozenset({301, 302, 303, 307, 308})
MOST_REDIRECTS = 20  # httpx and requests stop after 20 and 30
NEAREST = 3  # captures named in a miss
KEPT = 64_000_000  # characters of frozen texts cached in memory
# best first
VERDICTS = (
    "exact", "canonical", "varies", "rule", "rendered", "synthetic", "mutated", "fault", "failed", "miss"
)  # fmt: skip


@dataclass(slots=True)
class FoundPage:
    """Result of a look-up: the last capture of a chain of redirects; a miss or failure if `capture` is None."""

    url: str
    verdict: str = "miss"
    capture: Capture | None = None
    chain: list[Capture] = field(default_factory=list)
    nearest: list[dict[str, Any]] = field(default_factory=list)
    redirects: bool = False  # True if there are more redirects than a client follows
    view: str | None = None
    ambiguous: bool = False
    confidence: Confidence | None = None  # None where there is no doubt
    uploads: list[dict[str, Any]] = field(default_factory=list)  # files that were read: name and digest
    error: str | None = None  # the HTTP client's error message
    generated: Response | None = None  # the response of a fault, which is in no capture
    fault: dict[str, Any] | None = None  # the fault that changed the answer

    def meta(self, **more: Any) -> dict[str, Any]:
        """Return the members of a tool result's `meta`."""
        out: dict[str, Any] = {"verdict": self.verdict, "captures": [place(c) for c in self.chain]}
        if self.url:
            out["url"] = self.url
        if self.view:
            out["view"] = self.view
        if self.nearest:
            out["nearest"] = self.nearest
        if self.ambiguous:
            out["ambiguous"] = True
        if self.confidence is not None:
            out |= self.confidence.members()
        if self.fault:
            out["fault"] = self.fault
        out.update(more)
        return out


def place(capture: Capture) -> dict[str, Any]:
    """Return a capture's file, offset, digest and URL, for traces."""
    return {"file": capture.filename, "offset": capture.offset, "digest": capture.digest, "url": capture.url}


def weaker_verdict(one: str, other: str) -> str:
    """Return the weaker of two verdicts; `varies:…` and `rule:…` count by their kind."""

    def rank(verdict: str) -> int:
        kind = verdict.partition(":")[0]
        return VERDICTS.index(kind) if kind in VERDICTS else len(VERDICTS)

    return other if rank(other) > rank(one) else one


class Store:
    """Snapshot with its cached texts and search index, shared by all sessions. Thread-safe."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        accept: str = "rule",
        min_confidence: float = SERVED,
        matcher: Any = None,
        faults: Faults | None = None,
        timing: str = "none",
    ) -> None:
        self.snapshot = snapshot
        self.accept = accept
        self.min_confidence = min_confidence
        self.faults = faults
        self.timing = timing
        self.slowness = read_pace(timing)
        if matcher is None:
            from stillweb.snapshots.evidence.matcher import Matcher

            # not the snapshot's own matcher: a gateway may be using it on another thread
            matcher = Matcher(snapshot)
        self.matcher: Any = matcher
        self._lock = threading.Lock()
        self.asking = threading.Lock()  # a matcher may be used by one thread at a time
        self._texts: OrderedDict[tuple[str, str], FrozenText | None] = OrderedDict()
        self._size = 0
        self._index: SearchIndex | None = None

    def session(self, name: str, *, faults: bool = True) -> Visit:
        """Return a new client with a replay state of its own. Without `faults` nothing disturbs its requests."""
        visit = Visit(self, self.matcher.session(name))
        if faults and self.faults is not None:
            visit.faults = self.faults.session(name)
        return visit

    def text_of(self, capture: Capture) -> FrozenText | None:
        """Return the frozen text of a capture's answer; extract it now, and mark it so, if none was frozen."""
        if not capture.filename:  # the response of a fault
            return None
        key = (capture.url if capture.method == "GET" else text_address(capture), capture.digest)
        return self._cached_text(key, lambda: self._extract(capture))

    def frozen_of(self, capture: Capture) -> FrozenText | None:
        """Return the text that was frozen from this capture's answer, or None."""
        for address_of in (attrgetter("url"), text_address):  # the second is seldom needed
            text = self.snapshot.text(address_of(capture))
            if text is not None and text.meta.get("digest", capture.digest) == capture.digest:
                return text
        return None

    def _extract(self, capture: Capture) -> FrozenText | None:
        return self.frozen_of(capture) or extract(capture, self.snapshot.read_start(capture, READ + 1))

    def text_at(self, address: str) -> FrozenText | None:
        return self._cached_text((address, ""), lambda: self.snapshot.text(address))

    def _cached_text(self, key: tuple[str, str], make: Callable[[], FrozenText | None]) -> FrozenText | None:
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
        """Return the text of a view by its address (`URL#view=<id>`), and the view's own address; None if unknown."""
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
        """Return the search index over all frozen texts; opened or built at first use."""
        with self._lock:
            if self._index is None:
                from stillweb.snapshots.searching import index_of

                self._index = index_of(self.snapshot)
            return self._index

    def close(self) -> None:
        """Close the index. The snapshot stays open; its owner closes it."""
        with self._lock:
            if self._index is not None:
                self._index.close()
                self._index = None


class Visit:
    """Requests of one client, with its replay state.

    A `live` visit sends its requests to the real web and records the answers (`tools.recording`).
    """

    live = False
    workspace = Workspace()  # files that its tools may read; empty by default
    faults: FaultSession | None = None
    delay = 0.0  # seconds that faults add to the tool call under way

    def __init__(self, store: Store, session: Any) -> None:
        self.store = store
        self._session = session

    def look(self, request: Request) -> FoundPage:
        """Look up one request, without following a redirect."""
        fault = self.faults.meet(request) if self.faults is not None else None
        if fault is None:
            return self._look(request)
        self.delay += fault.delay
        if error := fault.client_error():
            return FoundPage(request.url, fault.verdict, error=error, **fault.members())
        if (response := fault.fault.response()) is not None:
            standin = Capture(
                "",
                "",
                request.url,
                request.method,
                response.status,
                response.header("content-type") or "",
                "",
                "",
                -1,
                0,
            )
            return FoundPage(request.url, fault.verdict, standin, generated=response, **fault.members())
        found = self._look(request)
        if found.capture is None:
            return found
        if fault.fault.kind == "stale":
            old = older(self.store.snapshot, request, found.capture)
            if old is None:
                return found
            found.capture = old
            found.chain = [old]
        if fault.fault.pace:
            self.delay += found.capture.length / fault.fault.pace
        found.verdict = fault.verdict
        found.fault = fault.members()["fault"]
        return found

    def _look(self, request: Request) -> FoundPage:
        with self.store.asking:
            lookup = self.store.matcher.lookup(
                request, self._session, accept=self.store.accept, min_confidence=self.store.min_confidence
            )
            found = FoundPage(request.url, lookup.verdict, lookup.capture)
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
        found.verdict = self.store.snapshot.verdict_of(lookup)
        found.ambiguous = bool(lookup.ambiguous)
        found.confidence = confidence_of(lookup)
        if self.store.slowness and (recorded := self.store.snapshot.timing(lookup.capture)) is not None:
            self.delay += sum(recorded) * self.store.slowness
        return found

    def happened(self, request: Request, response: Response) -> None:
        """Note a request that was not recorded but answered otherwise; the answer may show that it changed state."""
        self._session.happened(request, response)

    def follow(self, url: str, headers: Headers = ()) -> FoundPage:
        """Look up a GET of `url` and follow redirects as httpx does."""
        whole: FoundPage | None = None
        cookies = Cookies()
        url, headers = with_authorization(url, headers)
        for _ in range(MOST_REDIRECTS + 1):
            here = self._step(url.partition("#")[0], headers, cookies)
            if whole is None:
                whole = here
            else:
                whole.url, whole.capture = here.url, here.capture
                whole.chain += here.chain
                whole.verdict = weaker_verdict(whole.verdict, here.verdict)
                whole.nearest, whole.error = here.nearest, here.error
                whole.generated, whole.fault = here.generated, here.fault or whole.fault
                whole.ambiguous = whole.ambiguous or here.ambiguous
                whole.confidence = combine(whole.confidence, here.confidence)
            if here.capture is None or here.capture.status not in REDIRECTS:
                return whole
            answer = self.read(here)
            location = answer.header("location")
            if location is None:
                return whole
            cookies.take(here.url, answer.headers)
            location = header_text(location)
            error = wrong_location(location)
            url, headers = redirect_target(here.url, location, headers)
            if error or not url:
                whole.capture, whole.error = None, error
                return whole
        assert whole is not None
        whole.redirects = True
        return whole

    def _step(self, url: str, headers: Headers, cookies: Cookies) -> FoundPage:
        """Look up one request of a chain with the cookies set so far; if that misses, without them."""
        sent = () if self.live else cookies.fields(url)  # a live client keeps its cookies itself
        if sent:
            found = self.look(Request("GET", url, (*headers, *sent)))
            if found.capture is not None:
                return found
        return self.look(Request("GET", url, headers))

    def read(self, found: FoundPage) -> Response:
        assert found.capture is not None
        if found.generated is not None:
            return found.generated
        return self.store.snapshot.read(found.capture)


def header_text(value: str) -> str:
    """Decode a header field as httpx does: UTF-8 if valid, else Latin-1."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def httpx_text(response: Response) -> str:
    """Return the body as text, by the charset of Content-Type if Python knows it, else UTF-8.

    The real fetch server reads pages by httpx. A compressed body that ends early is decoded as far as it goes; bytes
    after its end are ignored. Raise EncodingProblem, with zlib's message, where httpx fails. Modelled on httpx 0.28
    (BSD-3-Clause, Encode OSS), `_decoders.py` and `_models.py`.
    """
    body = _unpacked(response.body, response.header("content-encoding"))
    return body.decode(_charset(response.header("content-type")), "replace")


def _charset(content_type: str | None) -> str:
    """Return the name of the Python codec for a media type; `utf-8` if it is unknown or no text encoding (`hex`)."""
    message = Message()
    message["content-type"] = content_type or ""
    label = message.get_content_charset() or "utf-8"
    try:
        b"a".decode(label, "replace")
        return codecs.lookup(label).name
    except (LookupError, UnicodeError):
        return "utf-8"


def _unpacked(body: bytes, encoding: str | None) -> bytes:
    for name in reversed([part.strip().lower() for part in (encoding or "").split(",")]):
        if name == "gzip":
            body = _inflated(body, GZIP)
        elif name == "deflate":
            try:
                body = _inflated(body, ZLIB)
            except EncodingProblem:
                body = _inflated(body, DEFLATE)
        elif name in ("br", "zstd"):  # the real server doesn't accept these, but browsers do
            body = encodings.decode(body, name)
    return body


def _inflated(body: bytes, form: int) -> bytes:
    refusal = EncodingProblem(too_large("the body", IN_MEMORY))
    try:
        return b"".join(bounded_parts(Inflate(form).feed(body), IN_MEMORY, lambda: refusal))
    except ValueError as error:
        raise EncodingProblem(str(error)) from error


def first_alike(snapshot: Snapshot, capture: Capture) -> Capture:
    """Return the first capture of the same exact request with the same status, media type, payload and `Location`.

    A trace names it as evidence. The matcher chooses the one after the session's previous request, which differs from
    run to run if calls are concurrent.
    """
    near = snapshot.candidates(capture.urlkey)
    if len(near) < 2 or not capture.exact:
        return capture
    known = _known(capture)
    alike = (one for one in near if _known(one) == known and _aim(snapshot, one) == _aim(snapshot, capture))
    return next(alike, capture)


def _known(capture: Capture) -> tuple[str, str, int, str, str]:
    return capture.exact, capture.method, capture.status, capture.mime, capture.digest


def _aim(snapshot: Snapshot, capture: Capture) -> str | None:
    return snapshot.read(capture).header("location") if 300 <= capture.status < 400 else None


_TAKEN_BACK = re.compile(r"max-age=\s*(?:0|-\d+)\s*|expires=.*\b19\d\d\b.*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Scope:
    """Scope of a cookie. `domain` is a host; with `below` its subdomains are included."""

    name: str
    domain: str
    path: str
    below: bool
    secure: bool

    def holds(self, url: str) -> bool:
        parts = urlsplit(url)
        host, path = (parts.hostname or "").lower(), parts.path or "/"
        near = host == self.domain or (self.below and host.endswith(f".{self.domain}"))
        within = path == self.path or path.startswith(self.path.rstrip("/") + "/")
        return near and within and (parts.scheme == "https" or not self.secure)


class Cookies:
    """Cookie jar that begins empty."""

    def __init__(self) -> None:
        self._values: dict[_Scope, str] = {}

    def take(self, url: str, headers: Headers) -> None:
        """Store the cookies that an answer sets, and drop those that it deletes."""
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
        for line in set_cookies(headers):
            pair, *attributes = line.split(";")
            name, _, value = pair.strip().partition("=")
            given = {k.strip().lower(): v.strip() for k, _, v in (one.partition("=") for one in attributes)}
            domain = given.get("domain", "").lower().removeprefix(".")
            if domain and host != domain and not host.endswith(f".{domain}"):
                continue  # a cookie of another host
            path = given.get("path", "")
            if not path.startswith("/"):
                path = (parts.path or "/").rpartition("/")[0] or "/"
            scope = _Scope(name.strip(), domain or host, path, bool(domain), "secure" in given)
            own = scope.name, scope.domain, scope.path
            self._values = {
                one: kept for one, kept in self._values.items() if (one.name, one.domain, one.path) != own
            }
            if not any(_TAKEN_BACK.fullmatch(one.strip()) for one in attributes):
                self._values[scope] = value.strip()

    def fields(self, url: str) -> Headers:
        """Return the Cookie field of a request to `url`; empty if no cookie matches."""
        pairs = [f"{scope.name}={value}" for scope, value in self._values.items() if scope.holds(url)]
        return (("Cookie", "; ".join(pairs)),) if pairs else ()


AUTHORIZATION = "authorization"


def redirect_target(url: str, location: str, headers: Headers) -> tuple[str, Headers]:
    """Return the target of a redirect from `url` and the header fields sent there; "" if httpx refuses the target.

    Authorization is sent to the same server only. User and password in a `Location` are dropped.
    """
    import httpx

    try:
        there = httpx.URL(location)
        if there.scheme and not there.host:  # httpx then uses the old host, without its port
            location = str(there.copy_with(host=httpx.URL(url).host))
        following, _ = with_authorization(urljoin(url, location), ())
        return following, headers if _same_server(url, following) else _without(headers)
    except (httpx.InvalidURL, ValueError):
        return "", headers


def _same_server(one: str, other: str) -> bool:
    """Return True if scheme, host and port are equal, or if a host upgrades from HTTP (80) to HTTPS (443)."""
    import httpx

    a, b = httpx.URL(one), httpx.URL(other)
    ports = {"http": 80, "https": 443}
    places = [(u.scheme, u.host, u.port or ports.get(u.scheme)) for u in (a, b)]
    secured = a.host == b.host and places[0][::2] == ("http", 80) and places[1][::2] == ("https", 443)
    return places[0] == places[1] or secured


def _without(headers: Headers) -> Headers:
    return tuple((name, value) for name, value in headers if name.lower() != AUTHORIZATION)


def wrong_location(location: str) -> str | None:
    """Return httpx's error for a `Location` that it does not follow, or None."""
    import httpx

    try:
        url = httpx.URL(location)
    except httpx.InvalidURL as error:
        return repr(httpx.RemoteProtocolError(f"Invalid URL in location header: {error}."))
    if url.scheme and url.host and url.scheme not in ("http", "https"):
        return repr(httpx.UnsupportedProtocol(f"Request URL has an unsupported protocol '{url.scheme}://'."))
    return None
