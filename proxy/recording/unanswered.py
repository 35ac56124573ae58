"""Requests that come to no answer, from mitmproxy's flows, as the snapshot keeps them."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mitmproxy import http
from mitmproxy.proxy.layers.http._base import format_error

from proxy.recording.archiving import Draft, text_headers
from proxy.wire.addresses import OWN_HOST, host_of, host_port
from snapshots.contents.failures import TUNNEL, Failure, Given, reason_of
from snapshots.identity.irrelevant import errand
from snapshots.request import Request

if TYPE_CHECKING:
    from proxy.recording.redacting import ExchangeRedactor
    from snapshots.contents.failures import Keeps

PATIENCE = (
    3.0  # seconds that a client must have waited for a connection before its leaving says that there was none
)
GAVE_UP = "no connection came about until the client's time was out (timeout)"
MOST = 1 << 24  # bytes of a request's body that are read for its key
STATUS = 502


def unreached(flow: http.HTTPFlow) -> bool:
    """Whether the client of a request, or of a tunnel, has waited long enough, and no connection has come about."""
    request = flow.request
    since = request.timestamp_start if request.method == TUNNEL else request.timestamp_end
    if since is None or flow.server_conn.timestamp_tcp_setup is not None:
        return False
    return time.time() - since >= PATIENCE


class Unanswered:
    """Keeps them in a writer's snapshot: what it gives is to be called on the writing thread. `count`: how many there were."""

    def __init__(self, writer: Keeps | None, secrets: ExchangeRedactor | None) -> None:
        self.count = 0
        self._writer = writer
        self._secrets = secrets

    def request(self, draft: Draft, flow: http.HTTPFlow, told: str) -> Callable[[], None]:
        """A request, and why it came to no answer. The bodies of its draft are given back."""
        given = None
        if (
            draft.response_spool is None and told != GAVE_UP
        ):  # else the client has a part of an answer, or has left
            given = Given(STATUS, "text/html", format_error(STATUS, told).decode())
        server = flow.server_conn
        reason = reason_of(told)
        if server.tls and server.timestamp_tcp_setup and not server.timestamp_tls_setup:
            reason = "tls"
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
                self._keep(Failure(request, reason, told, draft.started, draft.session, given, whole))
            finally:
                draft.discard()

        return write

    def tunnel(self, flow: http.HTTPFlow, session: str, told: str) -> Callable[[], None]:
        """A tunnel that never came about."""
        host, port = flow.request.host, flow.request.port
        url = f"https://{host_port(host, port).removesuffix(':443')}/"
        started = datetime.fromtimestamp(flow.request.timestamp_start, UTC)
        said = flow.response.text if flow.response is not None else None
        given = Given(STATUS, "", said or "") if told != GAVE_UP else None
        failure = Failure(Request(TUNNEL, url), reason_of(told), told, started, session, given)
        return lambda: self._keep(failure)

    def _keep(self, failure: Failure) -> None:
        url = failure.request.url
        if self._writer is None or host_of(url) == OWN_HOST or errand(url):
            return
        (self._secrets.failure(failure) if self._secrets is not None else failure).write(self._writer)
        self.count += 1
