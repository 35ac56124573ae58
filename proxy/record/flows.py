"""What is read of mitmproxy's flows."""

from __future__ import annotations

from mitmproxy import http
from mitmproxy.connection import Connection, ConnectionState

from stillweb.proxy.record.archiving import Draft, byte_fields, text_headers
from stillweb.proxy.record.half_closed import listens
from stillweb.proxy.wire.addresses import named_by_host, target_text
from stillweb.proxy.wire.trailers import merged

REFUSED = "the request was refused: "  # and why


def challenge() -> http.Response:
    """Asks a client for the name of its session."""
    return http.Response.make(
        407,
        "stillweb: give a session's name as proxy user (any password)\n",
        {"Proxy-Authenticate": 'Basic realm="stillweb session"'},
    )


def site_of(request: http.Request, *, tunnelled: bool = False) -> str:
    """scheme://host[:port] as the client wrote it: of the request's target, or of the Host field if that names another.

    Inside a tunnel it is of the Host field, unless the target is a whole URL.
    """
    named = (request.authority or request.host_header) if tunnelled else None
    if named:
        return f"{request.scheme}://{named}"
    host = f"[{request.host}]" if ":" in request.host else request.host
    usual = {"http": 80, "https": 443}.get(request.scheme)
    own = f"{request.scheme}://{host}" + ("" if request.port == usual else f":{request.port}")
    return own if tunnelled else named_by_host(own, request.headers.get("Host"))


def path_of(request: http.Request) -> str:
    """The path and query that are asked for."""
    path = target_text(request.data.path)
    return path if path.startswith("/") else f"/{path}"


def length_of(headers: http.Headers) -> int | None:
    """The announced length of a body, None if there is no (single, plain) Content-Length."""
    value = headers.get("Content-Length", "")
    return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else None


def is_event_stream(response: http.Response) -> bool:
    """Whether an answer may never end."""
    kind: str = response.headers.get("Content-Type", "")
    return kind.lower().startswith("text/event-stream")


def for_a_picture(request: http.Request) -> bool:
    """Whether a browser asks for a picture. It gives up one that is none (an error's page) at the first bytes of it."""
    asked: str = request.headers.get("Accept", "")
    return asked.startswith("image/")


def leads_on(response: http.Response) -> bool:
    """Whether a client goes elsewhere at the head of an answer (RFC 9110, 15.4): it leaves the body unread."""
    return response.status_code in (301, 302, 303, 307, 308) and "location" in response.headers


def never_whole(response: http.Response) -> bool:
    """Whether an answer is pictures that take each other's place, a camera's for example."""
    kind: str = response.headers.get("Content-Type", "")
    return kind.lower().startswith("multipart/")


def gone(client: Connection) -> bool:
    """Whether a client has left, or shut its side and waits for nothing."""
    return not client.state & ConnectionState.CAN_READ and not listens(client)


def client_left(flow: http.HTTPFlow, reason: str) -> bool:
    """Whether it was the client that broke off."""
    if reason.startswith(REFUSED) or " from client, refusing " in reason:  # we did
        return False
    if not flow.client_conn.state & ConnectionState.CAN_READ:
        return gone(flow.client_conn)
    # an origin's reset has other words (stillweb.proxy.record.mended_h2)
    return reason.startswith(("Client disconnected", "stream reset by client"))


def fill(draft: Draft, flow: http.HTTPFlow) -> None:
    """Takes over all parts of a flow that has an answer."""
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
        draft.fields = byte_fields(merged(head, text_headers(response.trailers.fields)))
    if draft.response_spool is None:
        draft.content = response.raw_content or b""
    draft.protocol = {"HTTP/2.0": "h2", "HTTP/3": "h3"}.get(
        response.http_version, response.http_version.lower()
    )
    peer = flow.server_conn.peername
    draft.ip = peer[0] if peer else None
