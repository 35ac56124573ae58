"""Malformed requests: the error that the client gets, and the ledger line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stillweb.proxy.net.addresses import DEFAULT_SESSION, OWN_HOST, host_of, is_absolute, session_name
from stillweb.proxy.replay.http1 import BadRequest, Message
from stillweb.snapshots.identity.irrelevant import errand, irrelevant_url
from stillweb.snapshots.request import Request
from stillweb.snapshots.words import whole_number

if TYPE_CHECKING:
    from stillweb.proxy.replay.answering import Answerer
    from stillweb.proxy.replay.hub import Hub
    from stillweb.proxy.replay.replies import SessionState

UNREADABLE = "?"
_REASONS = {
    408: "Request Timeout",
    413: "Content Too Large",
    417: "Expectation Failed",
    431: "Request Header Fields Too Large",
    501: "Not Implemented",
    505: "HTTP Version Not Supported",
}


def answer(bad: BadRequest) -> bytes:
    """Return the error response, after which the connection is closed."""
    body = f"stillweb: {bad}\n".encode("utf-8", "replace")
    return (
        f"HTTP/1.1 {bad.status} {_REASONS.get(bad.status, 'Bad Request')}\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nStillweb-Verdict: miss\r\nConnection: close\r\n\r\n"
    ).encode() + body


def refuse(hub: Hub, message: Message, bad: BadRequest, state: SessionState | None, base: str) -> None:
    """Write the ledger line of a malformed HTTP/1 request; `message` holds its readable part.

    `state` is the session of its connection so far, `base` the scheme and authority of its tunnel. Requests
    for our own pages get no line.
    """
    url = address(message, base)
    if url is None or host_of(url) == OWN_HOST:
        return
    name = session_name(message.fields.get("proxy-authorization")) if not base else None
    if name is not None:
        state = hub.answerer.state(name)
    note_refused(
        hub.answerer,
        state or hub.answerer.state(DEFAULT_SESSION),
        message.method,
        url,
        bad,
        _size(message),
        bad.status,
    )


def note_unread_connection(hub: Hub, why: str) -> None:
    """Count a connection that failed before its first request, and write its ledger line."""
    hub.malformed += 1
    state = hub.answerer.state(DEFAULT_SESSION)
    note_refused(hub.answerer, state, UNREADABLE, UNREADABLE, BadRequest(why), 0, 0)


def note_refused(
    answerer: Answerer, state: SessionState, method: str, url: str, why: Exception, size: int, status: int
) -> None:
    """Write the ledger line of a refused request.

    `size` is the announced size of its body, which is not in the ledger.
    """
    answerer.misses += 1
    apart = url != UNREADABLE and (irrelevant_url(url) or errand(url))
    more: dict[str, Any] = {"irrelevant": apart, "why": f"refused: {why}", "nearest": []}
    if method != "CONNECT":
        more["body_size"] = size
    answerer.note(
        state, answerer.tail(Request(method or UNREADABLE, url), None, "miss", "", status, more=more)
    )


def address(message: Message, base: str) -> str | None:
    """Return the URL that a request was for; UNREADABLE if it names none, None for our own pages."""
    target = message.target.partition("#")[0]
    if is_absolute(target):
        return target
    if base:
        return base.replace("?", "https", 1) + (target if target.startswith("/") else f"/{target}")
    if message.method == "CONNECT":
        return f"https://{target}/"
    return None if target.startswith("/") else UNREADABLE


def _size(message: Message) -> int:
    length = whole_number(message.fields.get("content-length", ""))
    return len(message.body) if length is None else length
