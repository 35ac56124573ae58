"""Reading mitmproxy's flows: parts of an exchange, and requests that failed or whose client did not trust us."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from weakref import WeakSet

from mitmproxy import http, tls
from mitmproxy.connection import Client, ConnectionState
from mitmproxy.proxy.layers.http._base import format_error
from OpenSSL import SSL

from stillweb.proxy.net.addresses import host_port, public, target_text, with_host_field
from stillweb.proxy.net.grease import browsers_suites
from stillweb.proxy.record.archive_writer import Draft, byte_fields, text_headers
from stillweb.proxy.record.mitmproxy_compat.http1 import REFUSED
from stillweb.proxy.record.mitmproxy_compat.lifetime import SteadyClock, has_left
from stillweb.snapshots.contents.failures import OPENED, TUNNEL, Failure, ProxyResponse, reason_of
from stillweb.snapshots.http.header_values import merge_trailers
from stillweb.snapshots.identity.irrelevant import errand
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.redact import Redactor

if TYPE_CHECKING:
    from stillweb.proxy.record.redaction import ExchangeRedactor
    from stillweb.snapshots.writer import Writer

UNCONNECTED = "the client left before a connection was made"
UNANSWERED = "the client left before an answer came"

_MAX_KEYED_BODY = 1 << 24  # bytes of a request's body that are read for its key
_BAD_GATEWAY = 502
_CLOCK_AHEAD = 0.2  # seconds by which a client's clock may have begun to run before ours

Place = tuple[str, int]
Entry = tuple[str, str]  # URL and reason


def challenge() -> http.Response:
    """Return the answer that asks a client for the name of its session."""
    return http.Response.make(
        407,
        "stillweb: give a session's name as proxy user (any password)\n",
        {"Proxy-Authenticate": 'Basic realm="stillweb session"'},
    )


def site_of(request: http.Request, *, tunnelled: bool = False) -> str:
    """Return scheme://host[:port] as the client wrote it: from the target, or from the Host field if that names another.

    Inside a tunnel it is from the Host field, unless the target is a whole URL.
    """
    named = (request.authority or request.host_header) if tunnelled else None
    if named:
        return f"{request.scheme}://{named}"
    host = f"[{request.host}]" if ":" in request.host else request.host
    usual = {"http": 80, "https": 443}.get(request.scheme)
    own = f"{request.scheme}://{host}" + ("" if request.port == usual else f":{request.port}")
    return own if tunnelled else with_host_field(own, request.headers.get("Host"))


def path_of(request: http.Request) -> str:
    """Return the path and query of a request."""
    path = target_text(request.data.path)
    return path if path.startswith("/") else f"/{path}"


def length_of(headers: http.Headers) -> int | None:
    """Return the announced length of a body; None without a single, plain Content-Length."""
    value = headers.get("Content-Length", "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else None


def is_event_stream(response: http.Response) -> bool:
    """Return True if an answer may never end."""
    kind: str = response.headers.get("Content-Type", "")
    return kind.lower().startswith("text/event-stream")


def wants_picture(request: http.Request) -> bool:
    """Return True if a browser asks for a picture. It gives up a page of an error, say, at its first bytes."""
    asked: str = request.headers.get("Accept", "")
    return asked.startswith("image/")


def is_redirect(response: http.Response) -> bool:
    """Return True if a client follows an answer (RFC 9110, 15.4) at its head, and leaves the body unread."""
    return response.status_code in (301, 302, 303, 307, 308) and "location" in response.headers


def is_picture_stream(response: http.Response) -> bool:
    """Return True if an answer is pictures that take each other's place, such as a camera's."""
    kind: str = response.headers.get("Content-Type", "")
    return kind.lower().startswith("multipart/x-mixed-replace")


def client_left(flow: http.HTTPFlow, reason: str) -> bool:
    """Return True if it was the client that broke an exchange off."""
    if reason.startswith(REFUSED) or " from client, refusing " in reason:  # it was mitmproxy
        return False
    if not flow.client_conn.state & ConnectionState.CAN_READ:
        return has_left(flow.client_conn)
    # an origin's reset has other words (mitmproxy_compat.http2.ResetResponses)
    return reason.startswith(("Client disconnected", "stream reset by client"))


def fill(draft: Draft, flow: http.HTTPFlow) -> None:
    """Copy all parts of a flow that has an answer."""
    request, response = flow.request, flow.response
    assert response is not None
    draft.request_fields = request.headers.fields
    if draft.request_spool is None:
        draft.request_content = request.raw_content or b""
    elif draft.request_spool.size == 0:
        draft.request_spool = None
    draft.status = response.status_code
    draft.reason = response.reason
    draft.fields = response.headers.fields
    if response.trailers:
        head = text_headers(draft.fields)
        draft.fields = byte_fields(merge_trailers(head, text_headers(response.trailers.fields)))
    if draft.response_spool is None:
        draft.content = response.raw_content or b""
    draft.protocol = {"HTTP/2.0": "h2", "HTTP/3": "h3"}.get(
        response.http_version, response.http_version.lower()
    )
    peer = flow.server_conn.peername
    draft.ip = peer[0] if peer else None


class HostPlaces:
    """The server of each name in a Host field; a replay can't tell two servers of one name apart by their URLs."""

    def __init__(self) -> None:
        self._of: dict[str, Place] = {}
        self._warned: set[str] = set()

    def doubt(self, site: str, place: Place) -> str | None:
        """Return a warning, once, if a site (scheme://host:port) is asked of another place than before; else None."""
        site = site.lower()
        place = place[0].lower(), place[1]
        other = self._of.setdefault(site, place)
        if place == other or site in self._warned:
            return None
        if place[1] == other[1] and _is_address(place[0]) and _is_address(other[0]):
            return None  # a client that looks names up itself takes any of their addresses
        self._warned.add(site)
        return (
            f"asked of {host_port(*other)} and of {host_port(*place)} under the name in its Host field: "
            "a replay can't tell the answers of both apart"
        )


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


class FailureLog:
    """Log of requests that were not recorded, as (URL, reason) without secrets; a browser's own are listed apart."""

    def __init__(self, redactor: Redactor | None) -> None:
        self.failures: list[Entry] = []
        self.errands: list[Entry] = []  # what a browser asked for of its own accord
        self.given_up: list[str] = []  # URLs of what the client left before the answer was complete
        self._redactor = redactor

    def add(self, url: str, reason: str) -> Entry:
        # a reason may quote addresses, and people keep logs
        entry = public(url, self._redactor), public(reason, self._redactor)
        (self.errands if errand(url) else self.failures).append(entry)
        return entry

    def leave(self, url: str) -> None:
        """Record a URL that its client gave up."""
        self.given_up.append(public(url, self._redactor))

    def settle(self, entry: Entry) -> None:
        """Withdraw a failure."""
        # by the entry and not by its URL, which may hold a secret that was learned since
        (self.failures if entry in self.failures else self.errands).remove(entry)


_asked: WeakSet[SSL.Connection] = WeakSet()
_watched: WeakSet[SSL.Context] = WeakSet()  # OpenSSL keeps a context's callback for good: one for each
WANTS_CERTIFICATE = "it asked for a client certificate. Name one with --client-cert"


def watch_certificate_request(connection: SSL.Connection) -> None:
    """Note during the handshake if the origin asks for a client's certificate.

    With TLS 1.3 the handshake ends well without one. The origin closes the connection later, and the alert that
    says why is mostly lost, as the request was sent already.
    """
    # pyOpenSSL of mitmproxy 12 changes no context that is in use
    watch = getattr(connection, "set_info_callback", None)
    if watch is not None:
        watch(_handshake)
    elif (context := connection.get_context()) not in _watched:
        _watched.add(context)
        context.set_info_callback(_handshake)


def _handshake(connection: SSL.Connection, where: int, code: int) -> None:
    if b"certificate request" in connection.get_state_string():
        _asked.add(connection)


def wants_certificate(connection: SSL.Connection | None) -> bool:
    """Return True if the origin of a TLS connection asked for a client's certificate."""
    return connection is not None and connection in _asked


class TlsFailures:
    """An add-on that reports TLS handshakes that a client broke off, by `failed(url, reason)`.

    Withdraw a browser's failure, by `settled(entry)`, when the same session connects to the same host with the same
    cipher suites later: Chromium breaks off once and then tries again. Don't report that browser from then on.
    `session_of` gives a connection's session.
    """

    def __init__(
        self,
        failed: Callable[[str, str], Entry],
        settled: Callable[[Entry], None],
        session_of: Callable[[str], str],
    ) -> None:
        self._failed = failed
        self._settled = settled
        self._session_of = session_of
        self._hellos: dict[str, tls.ClientHello] = {}  # by connection
        self._broken: dict[tuple[object, ...], list[Entry]] = {}  # by browser and host
        self._trusting: set[tuple[object, ...]] = set()
        self._left: set[str] = set()  # connections whose clients got no certificate

    def tls_clienthello(self, data: tls.ClientHelloData) -> None:
        self._hellos[data.context.client.id] = data.client_hello

    def tls_failed_server(self, data: tls.TlsData) -> None:
        """Note a client that leaves before it is shown a certificate: it has nothing to mistrust."""
        if has_left(data.context.client):
            self._left.add(data.context.client.id)

    def tls_failed_client(self, data: tls.TlsData) -> None:
        """Report a client that does not trust our authority, or broke off.

        One that says goodbye has changed its mind, as aria2c does with connections that it turns out not to need. A
        client that refuses a certificate says something else.
        """
        if "ZeroReturnError" in (data.conn.error or "") or data.context.client.id in self._left:
            return
        host = data.conn.sni or (data.context.server.address or ("?", 0))[0]
        browser = self._browser(data)
        if browser in self._trusting:
            return
        failure = self._failed(
            f"https://{host}/", f"TLS with the client failed: {data.conn.error or 'closed'}"
        )
        if browser is not None:
            self._broken.setdefault(browser, []).append(failure)

    def tls_established_client(self, data: tls.TlsData) -> None:
        """Withdraw the failures of a browser that takes our certificate."""
        if (browser := self._browser(data)) is not None:
            self._trusting.add(browser)
            for failure in self._broken.pop(browser, ()):
                self._settled(failure)

    def client_disconnected(self, client: Client) -> None:
        self._hellos.pop(client.id, None)
        self._left.discard(client.id)

    def _browser(self, data: tls.TlsData) -> tuple[object, ...] | None:
        hello = self._hellos.get(data.conn.id)
        suites = browsers_suites(hello.cipher_suites) if hello is not None else ()
        if not suites:
            return None
        return self._session_of(data.conn.id), data.conn.sni, data.context.server.address, *suites


def began(request: http.Request) -> datetime:
    """Return when a request began, by the machine's clock as it is set now."""
    return datetime.fromtimestamp(time.time() - (SteadyClock.time() - request.timestamp_start), UTC)


def seconds_waited(flow: http.HTTPFlow) -> int:
    """Return for how many whole seconds a client that leaves has waited for its tunnel, or for any byte of an answer.

    0 if the request was not whole, or after less than a second: browsers leave much to load another page.
    """
    request = flow.request
    since: float | None
    if request.method == TUNNEL:
        since = flow.server_conn.timestamp_tcp_setup or request.timestamp_start
    else:
        since = request.timestamp_end if flow.response is None else None
    return int(SteadyClock.time() - since + _CLOCK_AHEAD) if since is not None else 0


class FailedRequests:
    """A writer of requests that came to no answer into a snapshot; `count` says how many.

    Methods return a function that must be called on the writing thread.
    """

    def __init__(self, writer: Writer, secrets: ExchangeRedactor | None) -> None:
        self.count = 0
        self._writer = writer
        self._secrets = secrets
        self._known: dict[bytes, int] = {}  # how long was waited at most, by a digest of all else

    def request(self, draft: Draft, flow: http.HTTPFlow, error: str, left: int = 0) -> Callable[[], None]:
        """Keep a request and the reason, or `left`: the seconds after which its client left. Discards the draft's bodies."""
        server = flow.server_conn
        given = None
        if left:
            reason, error = "timeout", _waited_for(flow)
        else:
            silent = server.tls and server.timestamp_tcp_setup and not server.timestamp_tls_setup
            reason = "tls" if silent else reason_of(error)
            if draft.response_spool is None:  # else the client has a part of an answer
                given = ProxyResponse(_BAD_GATEWAY, "text/html", format_error(_BAD_GATEWAY, error).decode())
        headers = text_headers(flow.request.headers.fields)
        if not any(name.lower() == "host" for name, _ in headers):  # HTTP/2 has it as :authority
            headers = (("Host", draft.authority), *headers)
        content = flow.request.raw_content or b""
        ended = flow.request.timestamp_end is not None

        def write() -> None:
            try:
                body, whole = content, ended
                if (spool := draft.request_spool) is not None:
                    whole = ended and spool.size <= _MAX_KEYED_BODY
                    spooled = spool.body() if whole else b""
                    body = spooled if isinstance(spooled, bytes) else spooled.read()
                request = Request(draft.method, draft.url, headers, body)
                self._keep(
                    Failure(
                        request,
                        reason,
                        error,
                        draft.started,
                        draft.session,
                        given,
                        whole,
                        seconds_waited=left,
                    )
                )
            finally:
                draft.discard()

        return write

    def tunnel(self, flow: http.HTTPFlow, session: str, error: str, left: int = 0) -> Callable[[], None]:
        """Keep the request for a tunnel that never came about, likewise."""
        host, port = flow.request.host, flow.request.port
        url = f"https://{host_port(host, port).removesuffix(':443')}/"
        started = began(flow.request)
        given = None
        reason = reason_of(error)
        if left:
            reason, error = "timeout", _waited_for(flow)
            given = ProxyResponse(OPENED, "", "") if error == UNANSWERED else None
        else:
            given = ProxyResponse(
                _BAD_GATEWAY, "", (flow.response.text if flow.response is not None else None) or ""
            )
        failure = Failure(Request(TUNNEL, url), reason, error, started, session, given, seconds_waited=left)
        return lambda: self._keep(failure)

    def _keep(self, failure: Failure) -> None:
        url = failure.request.url
        if errand(url):
            return
        kept = self._secrets.failure(failure) if self._secrets is not None else failure
        text = json.dumps(replace(kept, seconds_waited=0).to_json(), sort_keys=True)
        known = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        before = self._known.get(known)
        if before is not None and before >= kept.seconds_waited:
            return  # a program that tries again and again says nothing new
        self._known[known] = kept.seconds_waited
        kept.write(self._writer)
        self.count += before is None


def _waited_for(flow: http.HTTPFlow) -> str:
    """Return the reason of a request whose client left."""
    return UNCONNECTED if flow.server_conn.timestamp_tcp_setup is None else UNANSWERED
