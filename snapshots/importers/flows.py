"""Parser for mitmproxy flow files, without mitmproxy.

A file holds one tnetstring dictionary (https://tnetstrings.info/) per flow. Flows other than HTTP are omitted, and web
sockets of mitmproxy before version 7, which were flows of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from stillweb.snapshots._os.random_access import ByteSource
from stillweb.snapshots.capture import Conversation, Exchange
from stillweb.snapshots.contents.failures import OTHER, Failure, reason_of
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.http.header_values import merge_trailers
from stillweb.snapshots.importers.har import TUNNEL, number_events
from stillweb.snapshots.notes import DamageNote
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.warc.messages import incomplete

MAX_DIGITS = 12


def exchanges(place: ByteSource, name: str) -> Iterator[Exchange | Conversation | Failure | str]:
    """Yield the exchanges and web sockets of a flow file by start time, failed requests, and notes.

    Raises DamagedInput.
    """
    found: dict[str, list[tuple[datetime, datetime, Exchange | Conversation]]] = {}
    for number, flow in enumerate(flows(place, name)):
        if isinstance(flow, str):
            yield flow
            continue
        try:
            one = _failure(flow) or _exchange(flow)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
            yield f"{name}: flow {number}: can't be read: {error!r}"
            continue
        if isinstance(one, str):
            yield f"{name}: flow {number}: {one}"
            continue
        if isinstance(one, Failure):
            yield one
            continue
        found.setdefault(one[2].session, []).append(one)
    for session in sorted(found):
        yield from number_events(found[session])


def flows(place: ByteSource, name: str) -> Iterator[dict[str, Any] | str]:
    """Yield the dictionaries of a flow file, and a note for each damaged flow.

    Raises DamagedInput if the file does not begin with a flow.
    """
    at = 0
    while at < place.size:
        lead = place.read(at, MAX_DIGITS + 1)
        digits, colon, _ = lead.partition(b":")
        start = at + len(digits) + 1
        size = int(digits) if colon and digits.isdigit() else -1
        data = place.read(start, size + 1)
        if size >= 0 and len(data) <= size:
            yield DamageNote(f"{name}: offset {at}: a damaged flow: it is cut short")
            return
        try:
            if size < 0:
                raise ValueError("no length")
            value = _value(data[:-1], data[-1:])
            if not isinstance(value, dict):
                raise ValueError(f"no flow, but a {type(value).__name__}")
        except (ValueError, IndexError, RecursionError) as error:
            text = f"{name}: offset {at}: a damaged flow: {error}"
            if at == 0:
                raise DamagedInput(f"{text}; is it a mitmproxy flow file?") from error
            if data[-1:] != b"}":  # then the start of the next flow is unknown, too
                yield DamageNote(f"{text}; what follows it is left out")
                return
            yield DamageNote(text)
        else:
            yield value
        at = start + size + 1


def _value(data: bytes, kind: bytes) -> Any:
    """Decode a tnetstring value from its bytes and type mark."""
    if kind == b",":
        return data
    if kind == b";":
        return data.decode()
    if kind == b"#":
        return int(data)
    if kind == b"^":
        return float(data)
    if kind == b"!":
        return data == b"true"
    if kind == b"~":
        return None
    if kind not in (b"]", b"}"):
        raise ValueError(f"unknown type {kind!r}")
    items = []
    at = 0
    while at < len(data):
        colon = data.index(b":", at)
        if not data[at:colon].isdigit():
            raise ValueError(f"{data[at:colon][:20]!r} is no length")
        stop = colon + 1 + int(data[at:colon])
        items.append(_value(data[colon + 1 : stop], data[stop : stop + 1]))
        at = stop + 1
    if kind == b"]":
        return items
    return {_text(k): v for k, v in zip(items[::2], items[1::2], strict=True)}


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _failure(flow: dict[str, Any]) -> Failure | None:
    """Return a request that its origin failed to answer, or None (for instance if the client gave up)."""
    message = _text((flow.get("error") or {}).get("msg") or "")
    if flow.get("response") or reason_of(message) == OTHER or _text(flow.get("type", "http")) != "http":
        return None
    asked = flow["request"]
    if _text(asked["method"]).upper() == "CONNECT":
        return None
    sent = asked.get("content")
    request = Request(_text(asked["method"]).upper(), _url(asked), _headers(asked), bytes(sent or b""))
    moment = _time(asked["timestamp_start"])
    return Failure(request, reason_of(message), message, moment, _session(flow), is_whole=sent is not None)


def _exchange(flow: dict[str, Any]) -> tuple[datetime, datetime, Exchange | Conversation] | str:
    if _text(flow.get("type", "http")) != "http":
        return f"is of type {_text(flow.get('type'))}"
    asked, answer = flow["request"], flow.get("response")
    url = _url(asked)
    if _text(asked["method"]).upper() == "CONNECT":
        return f"{TUNNEL}: {url}"
    if not answer:
        return f"got no answer: {url}"
    if flow.get("websocket"):
        return _conversation(flow)
    if (flow.get("metadata") or {}).get("websocket"):
        return f"is a web socket without recorded messages: {url}"
    if asked.get("content") is None or answer.get("content") is None:
        return f"a body is not in the file: {url}"
    begun = _time(asked["timestamp_start"])
    ended = _time(answer.get("timestamp_end") or answer.get("timestamp_start") or asked["timestamp_start"])
    server = flow.get("server_conn") or {}
    peer = server.get("peername") or server.get("ip_address")
    method, status = _text(asked["method"]).upper(), int(answer["status_code"])
    headers, body = _headers(answer), bytes(answer["content"])
    broken = (body and flow.get("error")) or incomplete(status, headers, body, method)
    one = Exchange(
        Request(method, url, _headers(asked), bytes(asked["content"])),
        status,
        _text(answer.get("reason") or ""),
        merge_trailers(headers, _fields(answer.get("trailers") or ())),
        body,
        begun,
        session=_session(flow),
        protocol="h2" if _text(answer.get("http_version", "")) == "HTTP/2.0" else "http/1.1",
        ip=_text(peer[0]) if peer else None,
        extra={"WARC-Truncated": "disconnect"} if broken else {},
    )
    return begun, max(begun, ended), one


def _conversation(flow: dict[str, Any]) -> tuple[datetime, datetime, Conversation]:
    """Return a web socket as its client saw it. Each message is [opcode, from the client?, content, time, dropped?, injected?]."""
    socket, begun = flow["websocket"], _time(flow["request"]["timestamp_start"])
    messages: list[tuple[bool, str | bytes]] = []
    times: list[float] = []
    for opcode, mine, content, at, *edited in socket["messages"]:
        if any(edited[1:] if mine else edited[:1]):  # a script of mitmproxy's user said it, or kept it back
            continue
        data = content.encode() if isinstance(content, str) else bytes(content)
        messages.append((bool(mine), data.decode("utf-8", "surrogateescape") if int(opcode) == 1 else data))
        times.append(float(at))
    code = socket.get("close_code")
    closed = socket.get("closed_by_client") is False and code is not None
    chosen = next((v for n, v in _headers(flow["response"]) if n.lower() == "sec-websocket-protocol"), None)
    one = Conversation(
        _url(flow["request"]),
        messages,
        times,
        begun,
        _session(flow),
        (int(code), _text(socket.get("close_reason") or "")) if closed else None,
        chosen,
        _headers(flow["request"]),
    )
    ended = max([begun.timestamp(), float(socket.get("timestamp_end") or 0), *times])
    return begun, _time(ended), one


def _session(flow: dict[str, Any]) -> str:
    """Return the name of the proxy user that made a request, which is the session's."""
    user = (flow.get("metadata") or {}).get("proxyauth")
    return _text(user[0]) if user else "default"


def _headers(message: dict[str, Any]) -> Headers:
    return _fields(message["headers"])


def _fields(listed: Iterable[Any]) -> Headers:
    return tuple((_text(n), _text(v)) for n, v in listed if not _text(n).startswith(":"))


def _url(asked: dict[str, Any]) -> str:
    """Return the absolute URL with the host name that the client requested, not the server's address."""
    scheme = _text(asked["scheme"])
    named = next((v for n, v in _headers(asked) if n.lower() == "host"), "")
    authority = _text(asked.get("authority") or "")
    version = _text(asked.get("http_version") or "")
    host = (authority or named) if version.startswith(("HTTP/2", "HTTP/3")) else (named or authority)
    if not host:
        host = _text(asked["host"])
        port = int(asked["port"])
        if port != {"http": 80, "https": 443}.get(scheme):
            host = f"{host}:{port}"
    path = _text(asked["path"])
    scheme = {"ws": "http", "wss": "https"}.get(scheme, scheme)
    return path if path.startswith(("http://", "https://")) else f"{scheme}://{host}{path}"


def _time(seconds: Any) -> datetime:
    return datetime.fromtimestamp(float(seconds), UTC)
