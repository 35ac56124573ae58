"""Requests that come to no answer, from mitmproxy's flows, as the snapshot keeps them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mitmproxy import http
from mitmproxy.proxy.layers.http._base import format_error

from stillweb.proxy.record.archiving import Draft, text_headers
from stillweb.proxy.wire.addresses import host_port
from stillweb.snapshots.contents.failures import OPENED, TUNNEL, Failure, Given, reason_of
from stillweb.snapshots.identity.irrelevant import errand
from stillweb.snapshots.request import Request

if TYPE_CHECKING:
    from stillweb.proxy.record.redacting import ExchangeRedactor
    from stillweb.snapshots.contents.failures import Keeps

UNCONNECTED = "no connection came about until the client left"
UNANSWERED = "no answer came until the client left"
MOST = 1 << 24  # bytes of a request's body that are read for its key
STATUS = 502
EARLIER = 0.2  # seconds by which a client's clock may have begun to run before ours


def waited(flow: http.HTTPFlow) -> int:
    """For how many whole seconds a client that leaves has waited for its tunnel, or for any byte of an answer.

    0 where that says nothing: the request was not whole, or it was short, as browsers leave much to load another page.
    """
    request = flow.request
    since: float | None
    if request.method == TUNNEL:
        since = flow.server_conn.timestamp_tcp_setup or request.timestamp_start
    else:
        since = request.timestamp_end if flow.response is None else None
    return int(time.time() - since + EARLIER) if since is not None else 0


class Unanswered:
    """Keeps them in a writer's snapshot: what it gives is to be called on the writing thread. `count`: how many there were."""

    def __init__(self, writer: Keeps | None, secrets: ExchangeRedactor | None) -> None:
        self.count = 0
        self._writer = writer
        self._secrets = secrets
        self._known: dict[bytes, int] = {}  # how long was waited at most, by a digest of all else

    def request(self, draft: Draft, flow: http.HTTPFlow, told: str, left: int = 0) -> Callable[[], None]:
        """A request, and why it came to no answer; `left`: after how many seconds its client did. The bodies of its draft
        are given back."""
        server = flow.server_conn
        given = None
        if left:
            reason, told = "timeout", _waited_for(flow)
        else:
            silent = server.tls and server.timestamp_tcp_setup and not server.timestamp_tls_setup
            reason = "tls" if silent else reason_of(told)
            if draft.response_spool is None:  # else the client has a part of an answer
                given = Given(STATUS, "text/html", format_error(STATUS, told).decode())
        headers = text_headers(flow.request.headers.fields)
        if not any(name.lower() == "host" for name, _ in headers):  # HTTP/2 has it as :authority
            headers = (("Host", draft.authority), *headers)
        content = flow.request.raw_content or b""
        ended = flow.request.timestamp_end is not None

        def write() -> None:
            try:
                body, whole = content, ended
                if (spool := draft.request_spool) is not None:
                    whole = ended and spool.size <= MOST
                    spooled = spool.body() if whole else b""
                    body = spooled if isinstance(spooled, bytes) else spooled.read()
                request = Request(draft.method, draft.url, headers, body)
                self._keep(
                    Failure(request, reason, told, draft.started, draft.session, given, whole, waited=left)
                )
            finally:
                draft.discard()

        return write

    def tunnel(self, flow: http.HTTPFlow, session: str, told: str, left: int = 0) -> Callable[[], None]:
        """A tunnel that never came about, likewise."""
        host, port = flow.request.host, flow.request.port
        url = f"https://{host_port(host, port).removesuffix(':443')}/"
        started = datetime.fromtimestamp(flow.request.timestamp_start, UTC)
        given = None
        reason = reason_of(told)
        if left:
            reason, told = "timeout", _waited_for(flow)
            given = Given(OPENED, "", "") if told == UNANSWERED else None
        else:
            given = Given(STATUS, "", (flow.response.text if flow.response is not None else None) or "")
        failure = Failure(Request(TUNNEL, url), reason, told, started, session, given, waited=left)
        return lambda: self._keep(failure)

    def _keep(self, failure: Failure) -> None:
        url = failure.request.url
        if self._writer is None or errand(url):
            return
        kept = self._secrets.failure(failure) if self._secrets is not None else failure
        told = json.dumps(replace(kept, waited=0).to_json(), sort_keys=True)
        known = hashlib.sha256(told.encode("utf-8", "surrogatepass")).digest()
        before = self._known.get(known)
        if before is not None and before >= kept.waited:
            return  # a program that tries again and again says nothing new
        self._known[known] = kept.waited
        kept.write(self._writer)
        self.count += before is None


def _waited_for(flow: http.HTTPFlow) -> str:
    """What did not come until the client left."""
    return UNCONNECTED if flow.server_conn.timestamp_tcp_setup is None else UNANSWERED
