"""Parser for HAR 1.2, as browsers, Playwright, mitmproxy and others write it.

Format: http://www.softwareishard.com/blog/har-12-spec/

A HAR holds decoded bodies, so the headers lose their content encoding, unless a recorder of Node's left the
body packed. Texts get back the charset that their page names, or the bytes that match their size. Entries whose
body is missing are omitted: an empty page would be a wrong answer. Bodies in separate files (`_file` and `_sha1`,
as Playwright writes them) are read only from the HAR's own folder or zip. The network file of a Playwright trace
holds the same entries, one a line.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from stillweb.snapshots._os.random_access import ByteSource
from stillweb.snapshots.capture import Conversation, Exchange
from stillweb.snapshots.contents.failures import OTHER, Failure, reason_of
from stillweb.snapshots.dates import EPOCH, parse_timestamp
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.http.charsets import codec, header_charset, meta_charset
from stillweb.snapshots.http.encodings import EncodingProblem, LongBody, codings, decode_pieces
from stillweb.snapshots.http.header_values import merge_trailers
from stillweb.snapshots.notes import DamageNote
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.warc.messages import begins_packed
from stillweb.snapshots.words import pluralize, whole_number

_BODILESS = frozenset({101, 204, 205, 304})
_ENTRIES = re.compile(r'"entries"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_MARKS = re.compile(r'\\.|["\[\]{},]', re.S)  # what bounds a JSON value
_UNREAD = frozenset({"ping", "preflight", "csp-violation-report"})  # as Chromium calls them
_ATTRIBUTES = {"Path": "path", "Domain": "domain", "SameSite": "sameSite"}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# media types that are decoded by the declared charset
_READ = re.compile(r"(text/|application/(javascript|xhtml\+xml|xml)\b)", re.I)
_ESCAPED = re.compile(r"(?:[\w.~!$'()*+,;:@/?-]|%[0-9A-Fa-f]{2})*", re.ASCII)  # of a query
_SOCKETS = {"ws:": "http:", "wss:": "https:"}
# names that say that the text is text
_PLAIN = frozenset({"", "utf-8", "utf8", "text", "identity", "none"})
# media types of bodies that are packed even when their content encoding is undone
_PACKED_TYPES = re.compile(
    r"application/(?:x-)?(?:gzip|gtar|tar|tgz|zstd|brotli|compressed|octet-stream)|.*[-+/]gzip\b", re.I
)
_BOUNDARY = re.compile(r'boundary="?([^";,\s]{1,70})', re.I)
_TEXT_FRAME, _BINARY_FRAME = 1, 2  # RFC 6455, 5.2
_NO_MESSAGES = (-1, 8, 9, 10)  # a failure, as Chromium tells it; close, ping and pong (RFC 6455, 5.5)
_FROM_CLIENT = {"send": True, "request": True, "receive": False, "response": False}
_IN_SECONDS = 1e11  # later moments are in milliseconds
NOT_SENT = "the body of its request is not in the HAR"
NO_BODY = "its body is not in the HAR"
TUNNEL = "is a tunnel, and the file holds nothing of its content"
_MOMENT = timedelta(microseconds=1)
_ZONE = re.compile(r"(?:GMT|UTC)(?=[+-]\d{4})")  # as JavaScript writes a date: GMT+0200
# returns the bytes of a file next to the HAR, or the reason why it can't be read
Read = Callable[[str], bytes | str]


def exchanges(
    place: ByteSource, name: str, beside: Mapping[str, ByteSource] | None = None
) -> Iterator[Exchange | Conversation | Failure | str]:
    """Yield the exchanges and web sockets of a HAR by start time, failed requests, and notes on omissions.

    Of a truncated or otherwise damaged HAR, the entries that can be told apart are read. `beside` holds the
    other files of its zip, by name. Raises DamagedInput.
    """
    data = place.read(0, place.size)
    try:
        entries = json.loads(data.decode(json.detect_encoding(data)))["log"]["entries"]
        if not isinstance(entries, list):
            raise TypeError("entries is not a list")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        entries, reached = _traced(data) or _one_by_one(data)
        whole = sum(not isinstance(entry, DamageNote) for entry in entries)
        if not whole:
            why = f"it has no member {error}" if isinstance(error, KeyError) else error
            raise DamagedInput(f"{name}: is not a HAR, the only JSON that is a snapshot: {why}") from error
        if reached < len(data):
            yield DamageNote(
                f"{name}: offset {reached}: a damaged HAR ({error}); what follows "
                f"{pluralize(whole, 'whole entry')} is left out"
            )
    read = _in_folder(Path(name).parent) if beside is None else _in_zip(beside)
    found: list[tuple[datetime, datetime, Exchange | Conversation]] = []
    moments = [_time(entry.get("startedDateTime")) if isinstance(entry, dict) else None for entry in entries]
    if undated := sum(
        moment is None and not isinstance(entry, DamageNote)
        for entry, moment in zip(entries, moments, strict=True)
    ):
        yield f"{name}: {pluralize(undated, 'entry')} without a date that can be read: each is taken to be sent after the entry before it"
    last = next(filter(None, moments), EPOCH)
    for number, (entry, moment) in enumerate(zip(entries, moments, strict=True)):
        if isinstance(entry, DamageNote):
            yield DamageNote(f"{name}: {entry}")
            continue
        started = moment or last
        try:
            one = (
                _conversation(entry, started)
                or _failure(entry, read, started)
                or _exchange(entry, read, started)
            )
            ended = None if isinstance(one, (str, Failure)) else _ended(one.started, entry.get("time"))
        except KeyError as error:
            yield DamageNote(f"{name}: entry {number}: can't be read: it has no member {error}")
            continue
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            yield DamageNote(f"{name}: entry {number}: can't be read: {error}")
            continue
        if isinstance(one, Failure):
            yield one
            continue
        if isinstance(one, str) or ended is None:
            yield f"{name}: entry {number}: {one}"
            continue
        if isinstance(one, Conversation) and one.left_out:
            lost = pluralize(one.left_out, "message")
            yield f"{name}: entry {number}: is a web socket that is not replayed: {lost} left out, of unknown type or opcode: {one.url}"
        found.append((one.started, ended, one))
        last = ended
    yield from number_events(found)


def _one_by_one(data: bytes) -> tuple[list[Any], int]:
    """Return the entries of a damaged HAR, and the offset from which on it can't be read.

    An entry that can't be read, but whose end is found, is a `DamageNote` note in its place.
    """
    text = data.decode(errors="surrogateescape")
    begin = _ENTRIES.search(text)
    found: list[Any] = []
    offset = at = 0
    end = begin.end() if begin else 0
    while end > at:
        start = _BETWEEN.match(text, end).end()  # type: ignore[union-attr]  # matches the empty string, too
        offset += len(text[at:start].encode(errors="surrogateescape"))
        at, end = start, _end_of_value(text, start)
        if end > at:
            try:
                found.append(json.loads(text[at:end]))
            except (ValueError, RecursionError) as error:
                found.append(DamageNote(f"offset {offset}: entry {len(found)}: can't be read: {error}"))
    if begin and any(isinstance(entry, DamageNote) for entry in found):
        try:
            json.loads((text[: begin.end()] + text[at:]).encode(errors="surrogateescape"))
            offset = len(data)  # but for the entries that are named, nothing is damaged
        except (ValueError, RecursionError):
            pass
    return found, offset


def _end_of_value(text: str, at: int) -> int:
    """Return the end of the JSON value that begins at `at`, by its brackets; `at` if there is none."""
    opened: list[str] = []
    quoted = False
    for mark in _MARKS.finditer(text, at):
        sign = mark[0]
        if sign == '"':
            quoted = not quoted
        elif quoted or sign[0] == "\\":
            continue
        elif sign in "[{":
            opened.append(sign)
        elif not opened:
            return mark.start()
        elif sign in "]}":
            if opened.pop() + sign not in ("[]", "{}"):
                break
            if not opened:
                return mark.end()
    return at


def _traced(data: bytes) -> tuple[list[Any], int] | None:
    """Return the entries of a Playwright trace's network file and the offset of its end; None for other files.

    Playwright writes each exchange as a line (`resource-snapshot`) when it is complete, and again if it changes.
    A line that can't be read, but is followed by others, is a `DamageNote` note in its place.
    """
    found: dict[str, Any] = {}
    at = 0
    for number, line in enumerate(data.splitlines(keepends=True)):
        try:
            value = json.loads(line) if line.strip() else {}
        except (ValueError, RecursionError) as error:
            if not found or at + len(line) == len(data):
                break
            found[f"line {number}"] = DamageNote(f"offset {at}: line {number + 1}: can't be read: {error}")
            value = {}
        if not isinstance(value, dict):
            break
        at += len(line)
        entry = value.get("snapshot")
        if value.get("type") == "resource-snapshot" and isinstance(entry, dict):
            found[str(entry.get("_id") or entry.get("_resourceId") or number)] = entry
    return (list(found.values()), at) if found else None


def _ended(started: datetime, lasted: Any) -> datetime:
    """Return the end of an exchange that took `lasted` milliseconds.

    Raises OverflowError, TypeError or ValueError.
    """
    return max(started + timedelta(milliseconds=max(0.0, float(lasted or 0))), started + _MOMENT)


def number_events(
    found: Sequence[tuple[datetime, datetime, Exchange | Conversation]],
) -> list[Exchange | Conversation]:
    """Assign event numbers to the starts and ends of exchanges, and return the exchanges by start.

    An exchange that ended when another began came before it. Each message of a web socket gets the number of
    the last event before it.
    """
    moments = sorted(
        [(start, 1, n) for n, (start, _, _) in enumerate(found)]
        + [(end, 0, n) for n, (_, end, _) in enumerate(found)]
    )
    for event, (_, begins, n) in enumerate(moments, 1):
        if begins:
            found[n][2].begin = event
        else:
            found[n][2].end = event
    times = [moment.timestamp() for moment, _, _ in moments]
    for _, _, one in found:
        if isinstance(one, Conversation):
            one.events = [min(max(bisect_right(times, at), one.begin), one.end) for at in one.times]
    return sorted((one for _, _, one in found), key=lambda one: one.begin)


def _conversation(entry: dict[str, Any], started: datetime) -> Conversation | None:
    """Return the web socket of an entry with its messages, or None for other entries.

    Chromium, Playwright, mitmproxy and Proxyman write the messages as `_webSocketMessages`.
    A message of a type or opcode that is not known is left out and counted, and its socket not replayed.
    """
    messages = entry.get("_webSocketMessages")
    if not isinstance(messages, list):
        return None
    left_out = 0
    passed: list[tuple[bool, str | bytes]] = []
    times: list[float] = []
    for one in messages:
        opcode = int(one.get("opcode", _TEXT_FRAME))
        if opcode in _NO_MESSAGES:
            continue
        mine = _FROM_CLIENT.get(str(one["type"]))
        if mine is None or opcode not in (_TEXT_FRAME, _BINARY_FRAME):
            left_out += 1
            continue
        data = str(one["data"])
        passed.append((mine, data if opcode == _TEXT_FRAME else _from_base64(data)))
        at = float(one.get("time") or started.timestamp())
        if not math.isfinite(at):  # JSON of some programs has NaN
            at = started.timestamp()
        times.append(at / 1000 if at > _IN_SECONDS else at)
    chosen = next((v for n, v in _headers(entry["response"]) if n.lower() == "sec-websocket-protocol"), None)
    return Conversation(
        _address(entry["request"]),
        passed,
        times,
        started,
        protocol=chosen,
        headers=_headers(entry["request"]) or None,
        left_out=left_out,
    )


def _address(asked: dict[str, Any]) -> str:
    """Return the http(s) address of a request without its fragment. The query may stand beside it alone, escaped or not."""
    url = str(asked["url"]).partition("#")[0]
    pairs = asked.get("queryString")
    if "?" not in url and isinstance(pairs, list):
        told = ((str(pair["name"]), pair.get("value")) for pair in pairs)
        url += "?" * bool(pairs) + "&".join(
            _escaped(name) if value is None else f"{_escaped(name)}={_escaped(str(value))}"
            for name, value in told
        )
    scheme, slashes, rest = url.partition("//")
    return f"{_SOCKETS.get(scheme.lower(), scheme.lower())}//{rest}" if slashes else url


def _escaped(text: str) -> str:
    """Return a part of a query with escapes; one that has some stays as it is."""
    return text if _ESCAPED.fullmatch(text) else quote(text, safe="")


def _failure(entry: dict[str, Any], read: Read, started: datetime) -> Failure | None:
    """Return a request that failed in the network, as Chromium and Playwright record it, or None.

    Blocked and aborted requests have status 0, too.
    """
    asked, answer = entry["request"], entry["response"]
    message = _trouble(answer)
    url = _address(asked)
    if (
        int(answer["status"]) > 0
        or not url.startswith(("http://", "https://"))
        or reason_of(message) == OTHER
    ):
        return None
    sent = _sent(asked, read)
    if isinstance(sent, str):
        return None
    request = Request(str(asked["method"]).upper(), url, _sent_headers(asked, sent), sent)
    return Failure(request, reason_of(message), message, started)


def _trouble(answer: dict[str, Any]) -> str:
    """Return the error that a browser or Charles noted for an answer; "" without one."""
    message = str(answer.get("_error") or answer.get("_failureText") or answer.get("_charlesStatus") or "")
    return "" if message.upper() == "COMPLETE" else message


def _exchange(entry: dict[str, Any], read: Read, started: datetime) -> Exchange | str:
    asked, answer = entry["request"], entry["response"]
    status = int(answer["status"])
    url, method = _address(asked), str(asked["method"]).upper()
    if not url.startswith(("http://", "https://")):
        return f"is not an HTTP exchange: {url[:80]}"
    if method == "CONNECT":
        return f"{TUNNEL}: {url}"
    if status == 101:
        return f"is a web socket without recorded messages: {url}"
    if not 100 <= status <= 599:
        return f"got no answer (status {status}): {url}"
    body = _events(entry) or _body(answer, read, method, status)
    extra = {}
    leads = status in _REDIRECTS and any(n.lower() == "location" for n, _ in _headers(answer))
    if body == NO_BODY and (leads or entry.get("_resourceType") in _UNREAD):
        # browsers omit the body of a redirect, and its Location is enough; nobody reads that of a beacon
        body, extra = b"", {"WARC-Truncated": "unspecified"}
    if isinstance(body, str):
        return f"{body}: {url}"
    if status == 304 and body:  # a page from a browser's cache, which its server found to be as it was
        status, answer = 200, _validated(answer)
    sent = _sent(asked, read)
    if isinstance(sent, str):
        return f"{sent}: {url}"
    packed, whole = _packing(answer, body)
    if not whole or _is_cut(answer, body, packed, method):
        extra = {"WARC-Truncated": "length"}  # Firefox cuts off bodies above its size limit
    elif _trouble(answer) and status not in _BODILESS:
        extra = {"WARC-Truncated": "disconnect"}
    dropped = {"transfer-encoding", "content-encoding"} if body and not packed else {"transfer-encoding"}
    headers = tuple((n, v) for n, v in _headers(answer) if n.lower() not in dropped)
    headers = merge_trailers(headers, _headers({"headers": answer.get("_trailers")}))
    if body and not packed and _is_text(answer, body):
        headers = _read_as_utf8(headers, body)
    version = str(answer.get("httpVersion") or asked.get("httpVersion") or "").lower()
    return Exchange(
        Request(method, url, _sent_headers(asked, sent), sent),
        status,
        str(answer.get("statusText") or ""),
        headers,
        body,
        started,
        protocol="h2" if version in ("h2", "http/2", "http/2.0") else "http/1.1",
        ip=str(entry.get("serverIPAddress") or "").strip("[]") or None,
        extra=extra,
    )


def _validated(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of status 200 that a browser's cache gave, of one of status 304 and the body shown."""
    media = answer["content"].get("mimeType")
    typed = not media or any(n.lower() == "content-type" for n, _ in _headers(answer))
    more = [] if typed else [{"name": "Content-Type", "value": media}]
    return answer | {"statusText": "OK", "headers": [*answer["headers"], *more]}


def _headers(message: dict[str, Any]) -> Headers:
    """Return the header fields of a request or answer; those that only other members tell come last."""
    told = ((str(h["name"]), h["value"]) for h in message.get("headers") or ())
    found = [(name, "" if value is None else str(value)) for name, value in told]
    named = {name.lower() for name, _ in found}
    cookies = [one for one in message.get("cookies") or () if one.get("name")]
    leads = message.get("redirectURL")
    if leads and "location" not in named and int(message["status"]) in _REDIRECTS:
        found.append(("Location", str(leads)))
    if "status" in message and "set-cookie" not in named:
        found += [("Set-Cookie", _given(one)) for one in cookies]
    elif "status" not in message and "cookie" not in named and cookies:
        found.append(("Cookie", "; ".join(f"{one['name']}={one.get('value', '')}" for one in cookies)))
    # some tools join repeated fields by line breaks
    return tuple((n, v) for n, value in found if not n.startswith(":") for v in value.split("\n"))


def _given(cookie: dict[str, Any]) -> str:
    """Return the Set-Cookie of a cookie that an answer gave."""
    from email.utils import format_datetime  # imported late: it loads socket and random

    cookies = [f"{cookie['name']}={cookie.get('value', '')}"]
    if expires := _time(cookie.get("expires")):
        cookies.append(f"Expires={format_datetime(expires, usegmt=True)}")
    cookies += [f"{name}={cookie[key]}" for name, key in _ATTRIBUTES.items() if cookie.get(key)]
    return "; ".join(
        [
            *cookies,
            *(name for name in ("Secure", "HttpOnly") if cookie.get(name[0].lower() + name[1:]) is True),
        ]
    )


def _in_folder(folder: Path) -> Read:
    def read(name: str) -> bytes | str:
        path = (folder / name).resolve()
        if not path.is_relative_to(folder.resolve()):
            return "its body file lies outside of the HAR's folder"
        try:
            return path.read_bytes()
        except OSError:
            return f"its body file {name} is missing"

    return read


def _in_zip(beside: Mapping[str, ByteSource]) -> Read:
    def read(name: str) -> bytes | str:
        place = beside.get(name)
        return f"its body file {name} is missing" if place is None else place.read(0, place.size)

    return read


def _body(answer: dict[str, Any], read: Read, method: str, status: int) -> bytes | str:
    """Return the body of an answer, or the reason why it is unavailable."""
    content = answer.get("content") or {}
    if name := _file_of(content):
        return read(name)
    text = content.get("text")
    if not text:
        size = _number(content, "size", -1)
        fields = {n.lower(): v for n, v in _headers(answer)}
        # bodySize and Content-Length are of the encoded body, which may encode nothing
        encoded = _number(answer, "bodySize"), whole_number(fields.get("content-length", "")) or 0
        lacks = size > 0 or (text is None and (size < 0 or max(encoded) > 0))
        lacks |= "content-encoding" not in fields and encoded[1] > 0
        # of an error page without a body Chromium tells that, too
        lacks |= _trouble(answer) != "" and status < 400
        lacks |= status in _REDIRECTS and "location" not in fields
        # of the events of a stream none is told
        lacks |= fields.get("content-type", "").startswith("text/event-stream")
        bodiless = method == "HEAD" or status in _BODILESS - {304} or (status == 304 and size <= 0)
        return NO_BODY if lacks and not bodiless else b""
    coded = _coded(content)
    if coded is not None:
        return coded if isinstance(coded, bytes) else f"its body {coded}"
    media = next((v for n, v in _headers(answer) if n.lower() == "content-type"), None)
    return _encoded(str(text), media, _sizes(content))


def _sizes(content: dict[str, Any]) -> set[int]:
    """Return the possible sizes of a decoded body: mitmproxy gives the packed size, and the difference."""
    size = _number(content, "size")
    return {size, size + _number(content, "compression")}


def _number(value: dict[str, Any], name: str, without: int = 0) -> int:
    """Return a whole number among the members of a value; `without` it, or 0 for null. Raise ValueError for anything else."""
    found = value.get(name, without) or 0
    try:
        return int(found)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: must be a number, not {str(found)[:50]!r}") from None


def _events(entry: dict[str, Any]) -> bytes:
    """Return the event stream of an entry whose events Chromium wrote one by one; b"" for other entries."""
    lines: list[str] = []
    for one in entry.get("_eventSourceMessages") or ():
        if one.get("eventId"):
            lines.append(f"id: {one['eventId']}")
        if one.get("eventName", "message") != "message":
            lines.append(f"event: {one['eventName']}")
        lines += [f"data: {line}" for line in str(one["data"]).split("\n")]
        lines.append("")
    return _utf8("".join(f"{line}\n" for line in lines))


def _file_of(content: dict[str, Any]) -> str | None:
    """Return the name of the file that holds a body, or None if the HAR itself holds it."""
    if name := content.get("_file"):
        return str(name)
    return f"resources/{content['_sha1']}" if content.get("_sha1") else None


def _coded(content: dict[str, Any]) -> bytes | str | None:
    """Return the bytes that a coded text stands for, or what is wrong with it; None for a plain text.

    PollyJS writes bytes in hex or base64, those of packed bodies as a JSON list of pieces; before its version 6 it
    named no encoding but `_isBinary`.
    """
    if not isinstance(content["text"], str):
        return "is not text, but other JSON"
    name = str(content.get("encoding") or ("hex" if content.get("_isBinary") else "")).strip().lower()
    if name in _PLAIN:
        return None
    reader = _READERS.get(name)
    if reader is None:
        return f"is in an encoding that is not known: {name}"
    text = content["text"]
    try:
        pieces = json.loads(text) if text.startswith("[") else [text]
        return b"".join(reader(str(piece)) for piece in pieces)
    except (binascii.Error, ValueError, TypeError):
        return f"is not {name}"


def _from_base64(text: str) -> bytes:
    return base64.b64decode("".join(text.split()), validate=True)


def _from_base64url(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)


def _from_latin1(text: str) -> bytes:
    return text.encode("latin-1")


_READERS: dict[str, Callable[[str], bytes]] = {
    "base64": _from_base64,
    "base64url": _from_base64url,
    "hex": bytes.fromhex,
    **dict.fromkeys(
        ("latin1", "latin-1", "iso-8859-1", "binary", "ascii"), _from_latin1
    ),  # as Node names them
}


def _packing(answer: dict[str, Any], body: bytes) -> tuple[bool, bool]:
    """Return whether a body still has the content encoding that its fields tell, and whether that has its end.

    Most tools decode it. A file that is packed by itself counts only if it has the length that was sent.
    """
    fields = {n.lower(): v for n, v in _headers(answer)}
    coding = ", ".join(codings(fields.get("content-encoding")))
    if not body or not coding:
        return False, True
    size, whole = _unpacked_size(body, coding)
    if whole:
        packed = size > 0 and not ("br" in coding and _is_utf8(body))  # a short text may be Brotli by chance
    else:
        # other files begin by chance as stored blocks of Brotli or deflate, which unpack to less than they take
        marked = coding.endswith(("gzip", "zstd")) and begins_packed(body, coding)
        packed = marked or size > len(body)
    sent = {str(answer.get("bodySize")), fields.get("content-length", "").strip()}
    packed &= str(len(body)) in sent or not _PACKED_TYPES.match(fields.get("content-type", ""))
    return packed, whole or not packed


def _unpacked_size(body: bytes, coding: str) -> tuple[int, bool]:
    """Return how many bytes a body unpacks to, and False if it has another coding or ends early."""
    size = 0
    try:
        for piece in decode_pieces([body], coding):
            size += len(piece)
    except LongBody:
        return size, True
    except EncodingProblem:
        return size, False
    return size, True


def _is_utf8(body: bytes) -> bool:
    try:
        return body.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _encoded(text: str, media: str | None, sizes: Collection[int]) -> bytes | str:
    """Return decoded text encoded in its page's charset, or the reason why that is impossible.

    `sizes` are candidates for the length of the original bytes, which most tools record.
    """
    if text.startswith(("\x1f\x8b\x08", "\x1f\ufffd\x08")):  # gzip that was read as text
        return _byte_by_byte(text) or "its body was read as text while it was packed, and bytes are lost"
    plain = _utf8(text)
    named = codec(header_charset(media)) or codec(meta_charset(plain))
    if named is None and len(plain) not in sizes:
        for read in (_byte_by_byte, _unsaid_base64):
            if (bare := read(text)) and len(bare) in sizes:
                return bare
    if plain.isascii() or named in (None, "utf-8"):
        return plain
    if "\ufffd" in text:
        return f"its text was not read as {named}, and characters are lost"
    try:
        return text.encode(named, "surrogateescape")
    except UnicodeEncodeError:
        return plain


def _byte_by_byte(text: str) -> bytes:
    """Return the bytes of a text that was decoded byte by byte (Latin-1, windows-1252), or b""."""
    for charset in ("latin-1", "cp1252"):
        try:
            return text.encode(charset)
        except UnicodeEncodeError:
            continue
    return b""


def _unsaid_base64(text: str) -> bytes:
    """Return the bytes of a text in base64, of which some exporters do not say so, or b""."""
    try:
        return _from_base64(text)
    except ValueError:  # binascii.Error, or characters beyond ASCII
        return b""


def _utf8(text: str) -> bytes:
    """Encode text as UTF-8.

    mitmproxy writes undecodable bytes as lone surrogates; they become these bytes again.
    """
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")


def _is_cut(answer: dict[str, Any], body: bytes, packed: bool, method: str) -> bool:
    """Return True if the HAR or the answer's Content-Length declares a larger size than the HAR holds.

    A missing byte order mark is ignored.
    """
    content = answer.get("content") or {}
    size = 0 if len(body) in _sizes(content) else _number(content, "size")
    twice = 2 * len(str(content.get("text") or ""))  # size in UTF-16
    fields = {n.lower(): v.strip() for n, v in _headers(answer)}
    length = whole_number(fields.get("content-length", ""))
    if length is not None and (packed or not codings(fields.get("content-encoding"))) and method != "HEAD":
        size = max(size, length) if body else size
    return (
        bool(body)
        and _file_of(content) is None
        and size > len(body) + len(codecs.BOM_UTF8)
        and size not in (twice, twice + 2)
    )


def _is_text(answer: dict[str, Any], body: bytes) -> bool:
    """Return True if the HAR holds an answer as text, and the body is its UTF-8 encoding."""
    content = answer.get("content") or {}
    if "text" not in content or _file_of(content) is not None or _coded(content) is not None:
        return False
    return body == str(content["text"]).encode(errors="surrogatepass")


def _read_as_utf8(headers: Headers, body: bytes) -> Headers:
    """Return headers that declare UTF-8 for a text stored as UTF-8, unless they or the page do."""
    media = next((v for n, v in headers if n.lower() == "content-type"), "")
    declared = codec(header_charset(media)) or codec(meta_charset(body))
    if body.isascii() or declared == "utf-8" or not _READ.match(media):
        return headers
    content_type = media.partition(";")[0].strip() + "; charset=utf-8"
    return tuple((n, content_type if n.lower() == "content-type" else v) for n, v in headers)


def _sent_headers(asked: dict[str, Any], sent: bytes = b"") -> Headers:
    """Return the header fields of a request with the body `sent`, without a content encoding that it has no more.

    The type of its body stands beside the body in some HARs.
    """
    headers = _headers(asked)
    coding = ", ".join(v for n, v in headers if n.lower() == "content-encoding")
    if sent and not begins_packed(sent, coding):
        headers = tuple((n, v) for n, v in headers if n.lower() != "content-encoding")
    media = str((asked.get("postData") or {}).get("mimeType") or "")
    if not media or any(name.lower() == "content-type" for name, _ in headers):
        return headers
    return (*headers, ("Content-Type", media))


def _sent(asked: dict[str, Any], read: Read) -> bytes | str:
    sent = _sent_data(asked, read)
    fields = {n.lower(): v for n, v in _headers(asked)}
    declared = whole_number(fields.get("content-length", ""))
    if isinstance(sent, str) or declared is None or "content-encoding" in fields:
        return sent
    if not sent and declared:
        return NOT_SENT
    text = (asked.get("postData") or {}).get("text")
    # parameters give the values only, not their original encoding
    if text is None or len(sent) == declared:
        return sent
    # Firefox tells a form with the header fields before it
    candidates = (_byte_by_byte(str(text)), sent.partition(b"\r\n\r\n")[2])
    fitting = (one for one in candidates if len(one) == declared)
    return next(fitting, "the body of its request has another length than was sent")


def _sent_data(asked: dict[str, Any], read: Read) -> bytes | str:
    # HTTP Toolkit names bytes that are no text `_content`
    data = asked.get("postData") or asked.get("_content") or {}
    if name := _file_of(data):
        return read(name)
    text = data.get("text")
    if text:
        coded = _coded(data)
        if coded is not None:
            return coded if isinstance(coded, bytes) else f"the body of its request {coded}"
        return _utf8(str(text))
    params = data.get("params") or ()
    fields = {n.lower(): v for n, v in _sent_headers(asked)}
    media = fields.get("content-type", "").lower()
    if not params:
        size = _number(asked, "bodySize")
        # Chromium keeps no body with a file: it tells -1, or 0, and no form of several parts is empty
        unknown = size < 0 and media and str(asked.get("method")).upper() in ("POST", "PUT", "PATCH")
        lost = size > 0 or media.startswith("multipart/") or (unknown and "content-length" not in fields)
        return NOT_SENT if lost else b""
    if media.startswith("multipart/"):
        return _parts(asked, params)
    if media and "form" not in media:
        return NOT_SENT  # parameters that were read out of JSON are not its bytes
    pairs = [(str(p["name"]), str(p.get("value") or "")) for p in params]
    form = urlencode(pairs).encode()
    # Charles tells JSON that is sent as a form as a name without a value
    bare = _utf8("&".join(f"{name}={value}" if value else name for name, value in pairs))
    return bare if len(form) != len(bare) == _number(asked, "bodySize") else form


def _parts(asked: dict[str, Any], params: Sequence[dict[str, Any]]) -> bytes | str:
    """Return a multipart body of the fields of a form, or the reason why that is impossible: files are named alone."""
    media = next((v for n, v in _sent_headers(asked) if n.lower() == "content-type"), "")
    boundary = _BOUNDARY.search(media)
    if boundary is None or any(one.get("value") is None for one in params):
        return "the parts of its request are in the HAR without their boundary, or without a file's content"
    lines: list[str] = []
    for one in params:
        file = f'; filename="{one["fileName"]}"' if one.get("fileName") else ""
        lines += [f"--{boundary[1]}", f'Content-Disposition: form-data; name="{one["name"]}"{file}']
        lines += [f"Content-Type: {one['contentType']}"] if one.get("contentType") else []
        lines += ["", str(one["value"])]
    body = _utf8("\r\n".join((*lines, f"--{boundary[1]}--", "")))
    length = next((v for n, v in _headers(asked) if n.lower() == "content-length"), "")
    return (
        body
        if whole_number(length) in (None, len(body))
        else "the parts of its request had header fields that the HAR leaves out"
    )


def _time(value: Any) -> datetime | None:
    """Return a moment in ISO 8601, in seconds or milliseconds since 1970, or as HTTP and JavaScript write it; else None."""
    text = str(value).strip()
    for read in (datetime.fromisoformat, parse_timestamp, _numeric, _in_words):
        try:
            moment = read(text)
            if moment is not None:
                return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        except (ValueError, OverflowError, OSError):
            continue
    return None


def _numeric(text: str) -> datetime:
    at = float(text)
    return datetime.fromtimestamp(at / 1000 if at > _IN_SECONDS else at, UTC)


def _in_words(text: str) -> datetime:
    from email.utils import parsedate_to_datetime  # imported late: it loads socket and random

    return parsedate_to_datetime(_ZONE.sub("", text))
