"""The mitmproxy add-on that turns flows into exchanges. It runs on the recorder's event loop."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from mitmproxy import http, tcp, tls
from mitmproxy.connection import Client
from mitmproxy.proxy import server_hooks
from mitmproxy.websocket import WebSocketMessage
from OpenSSL import SSL

from stillweb.proxy.net.addresses import DEFAULT_SESSION, OWN_HOST, host_port, public, session_name
from stillweb.proxy.net.own_pages import page_fields, why_refused
from stillweb.proxy.net.stream_idle import StreamCounters
from stillweb.proxy.net.upstream import NONE_THERE, scheme_asked
from stillweb.proxy.record.archive_writer import (
    SPOOL_BYTES,
    ArchiveWriter,
    Draft,
    EventSpool,
    Spool,
    text_headers,
)
from stillweb.proxy.record.flows import (
    WANTS_CERTIFICATE,
    FailedRequests,
    HostPlaces,
    began,
    challenge,
    client_left,
    fill,
    is_event_stream,
    is_picture_stream,
    is_redirect,
    length_of,
    path_of,
    seconds_waited,
    site_of,
    wants_certificate,
    wants_picture,
    watch_certificate_request,
)
from stillweb.proxy.record.mitmproxy_compat.http1 import REFUSED
from stillweb.proxy.record.mitmproxy_compat.lifetime import OUTLIVE_SECONDS, has_left, hold, outlive_client
from stillweb.proxy.record.mitmproxy_compat.websocket import TOO_LARGE
from stillweb.proxy.record.redaction import ExchangeRedactor
from stillweb.snapshots.capture import TIMING, timing_field
from stillweb.snapshots.identity.packets import Packets
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.writer import Writer

POLL_SECONDS = 0.05
BUFFERED_BYTES = 256 << 10  # answers announced as longer than this (or of unknown length) are streamed


class RecordingAddon:
    """An add-on that watches flows, keeps their bodies and hands complete exchanges to the archive.

    `writer` numbers the events of a session and stores the messages of web sockets; `unanswered` stores requests without
    an answer. `failed(url, reason)` is called for each exchange that became no capture, `given_up(url)` if its client left
    it. `forwarding(host, port)` returns the upstream proxy that plain requests for a host are sent to, or None.
    """

    def __init__(
        self,
        archive: ArchiveWriter,
        *,
        writer: Writer,
        failed: Callable[[str, str], None],
        given_up: Callable[[str], None],
        unanswered: FailedRequests,
        secrets: ExchangeRedactor | None,
        authority_pem: bytes,
        status: Callable[[], dict[str, object]],
        forwarding: Callable[[str, int], tuple[str, int] | None] | None = None,
    ) -> None:
        self.nameless = DEFAULT_SESSION  # the session of clients that give no name
        self.challenge = False  # whether clients without a user name are asked for one
        self.requests = 0
        self.sockets = 0  # written
        self._archive = archive
        self._writer = writer
        self._latest: dict[str, int] = {}  # each session's last event
        self._failed = failed
        self._given_up = given_up
        self._unanswered = unanswered
        self._secrets = secrets
        self._authority_pem = authority_pem
        self._status = status
        self._forwarding = forwarding
        self._drafts: dict[str, Draft] = {}  # by flow id
        self._flows: dict[str, http.HTTPFlow] = {}  # of these
        self._sockets: dict[str, http.HTTPFlow] = {}  # of those, the open web sockets
        # of origins, by connection
        self._tls: WeakValueDictionary[str, SSL.Connection] = WeakValueDictionary()
        self._early: dict[str, tuple[Draft, http.HTTPFlow]] = {}  # answered before their bodies were whole
        self._names: dict[str, str] = {}  # session of each client connection that gave one with CONNECT
        self._tunnels: dict[str, http.HTTPFlow] = {}  # by client's connection
        self._places = HostPlaces()

    def _event(self, session: str) -> int:
        number = self._latest[session] = self._writer.event(session)
        return number

    @property
    def under_way(self) -> int:
        """The number of exchanges whose answer is not complete yet."""
        return len(self._drafts)

    def session_of(self, client: str) -> str:
        """Return the session of a client's connection, by its id."""
        return self._names.get(client, self.nameless)

    # Connections

    def http_connect(self, flow: http.HTTPFlow) -> None:
        """Begin a tunnel: its credentials name the session of everything inside."""
        client = flow.client_conn.id
        name = session_name(flow.request.headers.get("Proxy-Authorization"))
        if name is None and self.challenge:
            flow.response = challenge()
            return
        self._tunnels[client] = flow
        if name is not None:
            self._names[client] = name
        if flow.request.host == OWN_HOST:
            flow.response = http.Response.make(400, f"{OWN_HOST} speaks http only\n")

    def http_connect_error(self, flow: http.HTTPFlow) -> None:
        """Keep a tunnel whose origin can't be reached; the client gets a 502 from mitmproxy."""
        if flow.response is not None and flow.response.status_code == 502:
            host, port = flow.request.host, flow.request.port
            place = host_port(host, port).removesuffix(":443")
            reason = flow.server_conn.error or "can't connect"
            self._failed(f"https://{place}/", reason)
            left = client_left(flow, reason)
            seconds = seconds_waited(flow) if left else 0
            if seconds or not (left or reason.startswith(NONE_THERE)):
                session = self.session_of(flow.client_conn.id)
                self._archive.put(self._unanswered.tunnel(flow, session, reason, seconds))

    def tls_start_server(self, data: tls.TlsData) -> None:
        """Watch whether an origin asks for a client's certificate."""
        if isinstance(data.ssl_conn, SSL.Connection):
            watch_certificate_request(data.ssl_conn)
            self._tls[data.conn.id] = data.ssl_conn

    def tls_failed_server(self, data: tls.TlsData) -> None:
        """Keep a tunnel whose client left while the origin's TLS handshake was under way: nothing was asked in it."""
        client = data.context.client
        tunnel = self._tunnels.get(client.id)
        if tunnel is None or tunnel.server_conn is not data.conn or not has_left(client):
            return
        host, port = tunnel.request.host, tunnel.request.port
        self._given_up(f"https://{host_port(host, port).removesuffix(':443')}/")
        if seconds := seconds_waited(tunnel):
            session = self.session_of(client.id)
            self._archive.put(self._unanswered.tunnel(tunnel, session, "", seconds))

    def client_disconnected(self, client: Client) -> Awaitable[None] | None:
        """Forget a connection. mitmproxy ends all that is under way for it once the result has been awaited."""
        lasting = [one for one in self._drafts.values() if one.client == client.id and one.outlasts]
        for draft in lasting:
            # nobody told of its leaving between its goodbye and the next look (mitmproxy_compat.lifetime.LOOK_SECONDS)
            self._leave(draft)
        if lasting:
            return self._outlive(client)
        self._forget(client)
        return None

    async def _outlive(self, client: Client | None) -> None:
        """Wait for answers whose client (None: any client) has left."""
        end = time.monotonic() + OUTLIVE_SECONDS
        while time.monotonic() < end and any(
            draft.client_left
            for draft in self._drafts.values()
            if client is None or draft.client == client.id
        ):
            await asyncio.sleep(POLL_SECONDS)
        if client is not None:
            self._forget(client)

    def _forget(self, client: Client) -> None:
        self._names.pop(client.id, None)
        self._tunnels.pop(client.id, None)
        for key in [key for key, (draft, _) in self._early.items() if draft.client == client.id]:
            self._keep_early(*self._early.pop(key))
        for key in [key for key, draft in self._drafts.items() if draft.client == client.id]:
            if (flow := self._sockets.pop(key, None)) is not None:
                self._keep_messages(self._drafts[key], flow)
                continue
            self._left(self._drafts[key], "the client closed the connection")

    def server_connect(self, data: server_hooks.ServerConnectionHookData) -> None:
        """Note the purpose of a connection, and stop connections to our own pages."""
        # the tunnel of a client is opened before its first byte says whether it speaks TLS
        secure = data.server.tls or data.client.id in self._tunnels
        scheme_asked.set("https" if secure else "http")
        own = data.server.address is not None and data.server.address[0] == OWN_HOST
        # None: mitmproxy knows the recorder by a few names, the event loop by the address that it connects to
        data.server.error = f"{OWN_HOST} is the recorder itself" if own else None

    def tcp_start(self, flow: tcp.TCPFlow) -> None:
        """Report a tunnel that is not HTTP: it is passed on, but can't be replayed."""
        host, port = (flow.server_conn.address or ("?", 0))[:2]
        self._failed(f"tcp://{host_port(host, port)}/", "not HTTP: passed on, not recorded")

    # Exchanges

    def requestheaders(self, flow: http.HTTPFlow) -> None:
        """Begin an exchange: find its session, its place in the order, and where its body will go."""
        request, client = flow.request, flow.client_conn.id
        name = session_name(request.headers.get("Proxy-Authorization")) or self._names.get(client)
        for own in ("Proxy-Authorization", "Proxy-Connection"):
            if own in request.headers:
                del request.headers[own]
        if name is None and self.challenge:
            flow.response = challenge()
            return
        if request.host == OWN_HOST:
            flow.response = self._own_page(request)
            return
        if self._archive.error is not None:
            flow.response = http.Response.make(
                503, f"stillweb: recording has stopped: {self._archive.error}\n"
            )
            return
        session = name or self.nameless
        site = site_of(request, tunnelled=client in self._tunnels)
        if (doubt := self._places.doubt(site, (request.host, request.port))) is not None:
            self._failed(f"{site}{path_of(request)}", doubt)
        draft = Draft(
            session=session,
            begin=self._event(session),
            method=request.data.method.decode("ascii", "replace"),  # `request.method` is upper case
            url=f"{site}{path_of(request)}",
            authority=site.partition("://")[2],
            started=began(request),
            client=client,
            flow=flow.id,
        )
        self.requests += 1
        self._drafts[flow.id], self._flows[flow.id] = draft, flow
        log = self._archive.session(session)
        log.open += 1
        log.changed = time.monotonic()
        length = length_of(request.headers)
        if (length is None and request.method not in ("GET", "HEAD")) or (length or 0) > SPOOL_BYTES:
            draft.request_spool = Spool(self._writer.path)
            request.stream = draft.request_spool.tee
        if self._forwarding and request.scheme == "http" and client not in self._tunnels:
            proxy = self._forwarding(request.host, request.port)
            if proxy is not None:  # the whole address in the request line, the connection to the proxy
                request.data.authority = site.partition("://")[2].encode()
                request.data.host, request.data.port = proxy

    def request(self, flow: http.HTTPFlow) -> None:
        """Keep an exchange whose request is whole only now, behind its answer."""
        if (early := self._early.pop(flow.id, None)) is not None:
            self._complete(*early)

    def responseheaders(self, flow: http.HTTPFlow) -> None:
        """Have an answer streamed if it is long, of unknown length or an event stream."""
        draft, response = self._drafts.get(flow.id), flow.response
        if draft is None or response is None or response.status_code == 101:
            return
        if is_event_stream(response) or is_picture_stream(response):
            self._undo_count(draft)
        length = length_of(response.headers)
        # a client leaves such an answer at its head or its first bytes
        left_early = length is None and (wants_picture(flow.request) or is_redirect(response))

        def stream() -> None:
            events = is_event_stream(response) and "content-encoding" not in response.headers
            spool = draft.response_spool = (EventSpool if events else Spool)(self._writer.path)
            response.stream = spool.tee
            # it may never end, and is kept as far as it came when nobody reads it any more
            if left_early or not draft.awaited:
                fill(draft, flow)

        if left_early and draft.awaited:
            hold(flow, stream)
        elif length is None or length > BUFFERED_BYTES or not draft.awaited:
            stream()
            draft.outlasts = outlive_client(flow, length, lambda: self._leave(draft))

    def response(self, flow: http.HTTPFlow) -> Awaitable[None] | None:
        """Complete an exchange. mitmproxy awaits the result before the last bytes go to the client."""
        draft = self._drafts.get(flow.id)
        if draft is None or flow.response is None:
            return None
        if flow.websocket is not None:
            self._undo_count(draft)
            self._sockets[flow.id] = flow
            return None
        if flow.request.timestamp_end is None:
            self._undo_count(self._drafts.pop(flow.id))
            self._early[flow.id] = draft, flow
            return None
        self._complete(draft, flow)
        return self._archive.room()

    def error(self, flow: http.HTTPFlow) -> None:
        """End an exchange that broke. Only the delivered part of an event stream is archived."""
        draft = self._drafts.get(flow.id)
        reason = flow.error.msg if flow.error else "unknown error"
        if wants_certificate(self._tls.get(flow.server_conn.id)):
            reason = f"{reason}: {WANTS_CERTIFICATE}"
        if draft is None:
            if not client_left(flow, reason):  # else it has been given up already
                self._failed(flow.request.pretty_url, reason)
            return
        if flow.response is not None and is_event_stream(flow.response) and draft.response_spool:
            draft.break_off()
            self._complete(draft, flow)
            return
        if client_left(flow, reason):
            self._left(draft, reason)
        else:
            self._give_up(draft, reason, flow)

    def websocket_message(self, flow: http.HTTPFlow) -> None:
        """Note where in the order of its session a web socket's message stands, and let go of those above the bounds."""
        draft, socket = self._drafts.get(flow.id), flow.websocket
        if draft is None or socket is None:
            return
        draft.message_bytes += len(socket.messages[-1].content)
        if (
            not draft.left_out
            and len(draft.message_events) < MOST_MESSAGES
            and draft.message_bytes <= MOST_BYTES
        ):
            draft.message_events.append(self._latest[draft.session])
            return
        if draft.left_out:
            del socket.messages[len(draft.message_events)]  # the one before, which has been passed on
        draft.left_out += 1

    def websocket_end(self, flow: http.HTTPFlow) -> None:
        """Keep the messages of a web socket that was closed."""
        self._sockets.pop(flow.id, None)
        if (draft := self._drafts.get(flow.id)) is not None:
            if flow.websocket is not None and flow.websocket.close_reason == TOO_LARGE:
                self._failed(draft.url, f"web socket closed: {TOO_LARGE}")
            self._keep_messages(draft, flow)

    def mark_view_taken(self, session: str, steps: int) -> None:
        """Note that a session's view was captured: later messages of streams are no part of it."""
        for key, draft in self._drafts.items():
            if draft.session != session:
                continue
            if (flow := self._sockets.get(key)) is not None and flow.websocket is not None:
                draft.looks.setdefault(steps, len(draft.message_events) + draft.left_out)
            elif not draft.awaited and draft.response_spool is not None:
                draft.response_spool.enough = True

    def stream_counters(self, session: str) -> StreamCounters:
        """Return the counts of messages and bytes of a session's open streams. May be called from any thread."""
        from_client = from_server = streamed = 0
        for key, draft in list(self._drafts.items()):
            if draft.session != session:
                continue
            if (flow := self._sockets.get(key)) is not None and flow.websocket is not None:
                kept = flow.websocket.messages[: len(draft.message_events)]
                sent = sum(message.from_client for message in kept)
                from_client, from_server = from_client + sent, from_server + len(kept) - sent + draft.left_out
            elif not draft.awaited and draft.response_spool is not None:
                streamed += draft.response_spool.payload_size
        return StreamCounters(from_client, from_server, streamed)

    def bytes_under_way(self, session: str) -> int:
        """Return the bytes received so far of a session's pending answers, without streams. May be called from any thread."""
        drafts = [one for one in list(self._drafts.values()) if one.session == session and one.awaited]
        return sum(one.response_spool.size for one in drafts if one.response_spool is not None)

    def _keep_messages(self, draft: Draft, flow: http.HTTPFlow) -> None:
        socket = WebSocketRecord.of(flow, draft, self._event(draft.session))
        if draft.left_out:
            size = f"{len(draft.message_events) + draft.left_out} messages of {draft.message_bytes} bytes"
            self._failed(draft.url, f"web socket: {size} are too many to be replayed")

        def write() -> None:
            self._writer.metadata(*socket.record(self._secrets))
            self.sockets += 1

        self._archive.put(write)
        self._touch(draft)

    async def finish(self) -> None:
        """Keep open event streams as far as they came, and give up all other exchanges."""
        await self._outlive(None)
        for early in self._early.values():
            self._keep_early(*early)
        for key, draft in list(self._drafts.items()):
            if (flow := self._sockets.pop(key, None)) is not None:
                self._keep_messages(draft, flow)
            elif self._has_part(draft):
                self._keep_part(draft)
            else:
                self._give_up(draft, "the recorder was stopped before the answer was complete")

    def _complete(self, draft: Draft, flow: http.HTTPFlow) -> None:
        fill(draft, flow)
        if draft.response_spool is not None and draft.response_spool.cut:
            draft.extra.setdefault("WARC-Truncated", "time")  # it ended after a view had been taken
        response = flow.response
        if response is not None and response.timestamp_start:
            since = flow.request.timestamp_start
            first, whole = response.timestamp_start, response.timestamp_end or response.timestamp_start
            draft.extra[TIMING] = timing_field(first - since, whole - since)
        draft.end = self._event(draft.session)
        self._archive.put(draft)
        self._touch(draft)

    def _keep_early(self, draft: Draft, flow: http.HTTPFlow) -> None:
        """Report a request that was answered and then not sent to its end: nobody will ask for just this part of it."""
        sent = draft.request_spool.size if draft.request_spool is not None else 0
        self._failed(
            draft.url, f"answered before its body was whole: kept with the {sent} bytes that were sent"
        )
        self._complete(draft, flow)

    def _leave(self, draft: Draft) -> None:
        """Note that a client has left an answer that goes on: no page waits for the rest."""
        draft.client_left = True
        self._undo_count(draft)

    def _left(self, draft: Draft, reason: str) -> None:
        """End an exchange that its client broke off; of an answer that may have no end, keep what came."""
        if self._has_part(draft):
            self._keep_part(draft)
        else:
            self._give_up(draft, reason, self._flows.get(draft.flow), by_client=True)

    def _has_part(self, draft: Draft) -> bool:
        """Return True for an answer that may have no end, of which some came; the draft has its head then."""
        flow, spool = self._flows.get(draft.flow), draft.response_spool
        if (
            flow is not None
            and flow.response is not None
            and spool is not None
            and spool.size
            and length_of(flow.response.headers) is None
        ):
            fill(draft, flow)
        return bool(draft.status)

    def _keep_part(self, draft: Draft) -> None:
        draft.break_off()
        draft.end = self._event(draft.session)
        self._archive.put(draft)
        self._touch(draft)

    def _give_up(
        self, draft: Draft, reason: str, failed: http.HTTPFlow | None = None, *, by_client: bool = False
    ) -> None:
        """End an exchange without an answer; `failed` is the flow of a request that the origin left without one."""
        left = seconds_waited(failed) if failed is not None and by_client else 0
        if failed is not None and not reason.startswith((REFUSED, NONE_THERE)) and (left or not by_client):
            self._archive.put(self._unanswered.request(draft, failed, reason, left))
        else:
            draft.discard()
        if by_client:
            self._given_up(draft.url)
        else:
            self._failed(draft.url, reason)
        self._touch(draft)

    def _touch(self, draft: Draft) -> None:
        """Forget a draft, last: other threads must find it under way, queued or reported at every moment."""
        self._drafts.pop(draft.flow, None)
        self._flows.pop(draft.flow, None)
        log = self._archive.session(draft.session)
        log.changed = time.monotonic()
        self._undo_count(draft)

    def _undo_count(self, draft: Draft) -> None:
        if draft.awaited:
            draft.awaited = False
            self._archive.session(draft.session).open -= 1

    def _own_page(self, request: http.Request) -> http.Response:
        why = why_refused(request.headers.get("Host"), request.headers.get("Origin"), (OWN_HOST,))
        if why:
            status, media, body = 403, "text/plain", f"stillweb: {why}.\n".encode()
        elif request.path == "/ca.pem":
            status, media, body = 200, "application/x-pem-file", self._authority_pem
        elif request.path == "/":
            status, media, body = (
                200,
                "application/json",
                f"{json.dumps(self._status(), indent=1)}\n".encode(),
            )
        else:
            status, media, body = 404, "text/plain", f"{OWN_HOST} has / (status) and /ca.pem\n".encode()
        return http.Response.make(status, body, {"Content-Type": media, **dict(page_fields())})


MOST_MESSAGES, MOST_BYTES = 10_000, 64 << 20  # kept of one web socket; the rest is counted only


@dataclass(frozen=True, slots=True)
class WebSocketRecord:
    """A web socket as it came. `end` is an event number, `close` the (code, reason) of a server that closed it."""

    draft: Draft
    end: int
    messages: Sequence[WebSocketMessage]
    close: tuple[int, str] | None
    protocol: str | None
    headers: Headers  # of the request

    @classmethod
    def of(cls, flow: http.HTTPFlow, draft: Draft, end: int) -> WebSocketRecord:
        """Return what a flow's web socket has said until now."""
        socket, answer = flow.websocket, flow.response
        assert socket is not None
        closed = socket.closed_by_client is False and socket.close_code is not None
        return cls(
            draft,
            end,
            socket.messages[: len(draft.message_events)],
            (int(socket.close_code or 0), socket.close_reason or "") if closed else None,
            answer.headers.get("Sec-WebSocket-Protocol") if answer is not None else None,
            text_headers(flow.request.headers.fields),
        )

    def record(self, secrets: ExchangeRedactor | None) -> tuple[str, dict[str, object]]:
        """Return the record's address and content without secrets. Runs on the writing thread, as does the learning of them."""
        draft = self.draft
        url = public(draft.url, secrets)
        # some put a token there
        protocol = None if self.protocol is None else public(self.protocol, secrets)
        request = Request("GET", draft.url, self.headers)
        headers = (request if secrets is None else secrets.request(request)).headers
        known = secrets.count if secrets is not None else 0
        messages = self._messages(secrets)
        # it may have occurred before it was known to be a secret
        if secrets is not None and secrets.count > known:
            messages = self._messages(secrets)
        content: dict[str, object] = {
            "url": url,
            "session": draft.session,
            "begin": draft.begin,
            "end": self.end,
            "replayable": not draft.left_out,
            "messages": messages,
            "events": draft.message_events,
            "times": [round(message.timestamp * 1000) for message in self.messages],
            "left_out": draft.left_out,
            "headers": [list(one) for one in headers],
        }
        if self.close is not None:
            code, reason = self.close
            reason_text = secrets.redact_known(reason.encode()).decode() if secrets is not None else reason
            content["close"] = [code, reason_text]
        if draft.looks:
            content["looked"] = next(iter(draft.looks.values()))
            content["looks"] = [list(one) for one in draft.looks.items()]
        if protocol is not None:
            content["protocol"] = protocol
        return url, content

    def _messages(self, secrets: ExchangeRedactor | None) -> list[dict[str, str]]:
        said: list[dict[str, str]] = []
        packets = Packets(self.protocol or "")
        last = max((n for n, message in enumerate(self.messages) if message.from_client), default=0)
        for number, message in enumerate(self.messages):
            from_client, data = message.from_client, message.content
            entry = {"from": "client" if from_client else "server"}
            if secrets is not None and from_client and not message.is_text:
                # a packet in several messages is kept in the last of them: a secret may be cut
                parts = [one for one in packets.cut(True, data) if isinstance(one, bytes)]
                parts += [packets.rest(True)] if number == last else []
                data = b"".join(secrets.message(self.draft.url, part, from_client=True) for part in parts)
            elif secrets is not None:
                data = secrets.message(self.draft.url, data, from_client=from_client)
            if message.is_text:
                entry["text"] = data.decode("utf-8", "surrogateescape")
            else:
                entry["base64"] = base64.b64encode(data).decode("ascii")
            said.append(entry)
        return said
