"""Parser for HAR 1.2, as browsers, Playwright, mitmproxy and others write it.

Format: http://www.softwareishard.com/blog/har-12-spec/

A HAR holds decoded bodies, so the headers lose their content encoding. Texts get back the charset that their
page names, or the bytes that match their size. Entries whose body is missing are omitted: an empty page would
be a wrong answer. Bodies in separate files (`_file`, as Playwright writes them) are read only from the HAR's
own folder or zip.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from stillweb.snapshots._os.places import Place
from stillweb.snapshots.capture import Exchange
from stillweb.snapshots.contents.failures import OTHER, Failure, reason_of
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.http.charsets import codec, header_charset, meta_charset
from stillweb.snapshots.notes import Damaged
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.words import counted

_BODILESS = frozenset({101, 204, 205, 304})
_ENTRIES = re.compile(r'"entries"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_decode = json.JSONDecoder().raw_decode
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# media types that are decoded by the declared charset
_READ = re.compile(r"(text/|application/(javascript|xhtml\+xml|xml)\b)", re.I)
NOT_SENT = "the body of its request is not in the HAR"
NO_BODY = "its body is not in the HAR"
_MOMENT = timedelta(microseconds=1)
# returns the bytes of a file next to the HAR, or the reason why it can't be read
Read = Callable[[str], bytes | str]


def exchanges(
    place: Place, name: str, beside: Mapping[str, Place] | None = None
) -> Iterator[Exchange | Failure | str]:
    """Yield the exchanges of a HAR by start time, failed requests, and notes on omitted entries.

    Of a truncated or otherwise damaged HAR, the entries before the damage are read. `beside` holds the other
    files of its zip, by name. Raises DamagedInput.
    """
    data = place.read(0, place.size)
    try:
        entries = json.loads(data.decode("utf-8-sig"))["log"]["entries"]
        if not isinstance(entries, list):
            raise TypeError("entries is no list")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        entries, reached = _whole_entries(data)
        if not entries:
            why = f"it has no member {error}" if isinstance(error, KeyError) else error
            raise DamagedInput(f"{name}: is no HAR, the only JSON that is a snapshot: {why}") from error
        whole = counted(len(entries), "whole entry")
        yield Damaged(f"{name}: offset {reached}: a damaged HAR ({error}); what follows {whole} is left out")
    read = _in_folder(Path(name).parent) if beside is None else _in_zip(beside)
    found: list[tuple[datetime, datetime, Exchange]] = []
    for number, entry in enumerate(entries):
        try:
            one = _failure(entry, read) or _exchange(entry, read)
            ended = _ended(one.started, entry.get("time")) if isinstance(one, Exchange) else None
        except KeyError as error:
            yield f"{name}: entry {number}: can't be read: it has no member {error}"
            continue
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            yield f"{name}: entry {number}: can't be read: {error}"
            continue
        if isinstance(one, Failure):
            yield one
            continue
        if isinstance(one, str) or ended is None:
            yield f"{name}: entry {number}: {one}"
            continue
        found.append((one.started, ended, one))
    yield from numbered(found)


def _whole_entries(data: bytes) -> tuple[list[Any], int]:
    """Return the entries of a damaged HAR up to the first unreadable one, and the offset of that entry."""
    text = data.decode(errors="surrogateescape")
    begin = _ENTRIES.search(text)
    found: list[Any] = []
    at = begin.end() if begin else 0
    try:
        while begin:
            at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # matches the empty string, too
            entry, at = _decode(text, at)
            found.append(entry)
    except (ValueError, RecursionError):
        pass
    return found, len(text[:at].encode(errors="surrogateescape"))


def _ended(started: datetime, lasted: Any) -> datetime:
    """Return the end of an exchange that took `lasted` milliseconds.

    Raises OverflowError, TypeError or ValueError.
    """
    return max(started + timedelta(milliseconds=max(0.0, float(lasted or 0))), started + _MOMENT)


def numbered(found: list[tuple[datetime, datetime, Exchange]]) -> list[Exchange]:
    """Assign event numbers to the starts and ends of exchanges, and return the exchanges by start.

    An exchange that ended when another began came before it.
    """
    moments = [(start, 1, n) for n, (start, _, _) in enumerate(found)]
    moments += [(end, 0, n) for n, (_, end, _) in enumerate(found)]
    for event, (_, begins, n) in enumerate(sorted(moments), 1):
        if begins:
            found[n][2].begin = event
        else:
            found[n][2].end = event
    return sorted((one for _, _, one in found), key=lambda one: one.begin)


def _failure(entry: dict[str, Any], read: Read) -> Failure | None:
    """Return a request that failed in the network, as Chromium and Playwright record it, or None.

    Blocked and aborted requests have status 0, too.
    """
    asked, answer = entry["request"], entry["response"]
    told = str(answer.get("_error") or answer.get("_failureText") or "")
    url = str(asked["url"]).partition("#")[0]
    if int(answer["status"]) > 0 or not url.startswith(("http://", "https://")) or reason_of(told) == OTHER:
        return None
    sent = _sent(asked, read)
    if isinstance(sent, str):
        return None
    request = Request(str(asked["method"]).upper(), url, _headers(asked), sent)
    return Failure(request, reason_of(told), told, _time(entry.get("startedDateTime")))


def _exchange(entry: dict[str, Any], read: Read) -> Exchange | str:
    asked, answer = entry["request"], entry["response"]
    status = int(answer["status"])
    url = str(asked["url"])
    if not url.startswith(("http://", "https://")):
        return f"is no HTTP exchange: {url[:80]}"
    if not 100 <= status <= 599:
        return f"got no answer (status {status}): {url}"
    body = _body(answer, read, str(asked["method"]).upper(), status)
    extra = {}
    if body == NO_BODY and status in _REDIRECTS and any(n.lower() == "location" for n, _ in _headers(answer)):
        # browsers omit the body of a redirect, and its Location is enough
        body, extra = b"", {"WARC-Truncated": "unspecified"}
    if isinstance(body, str):
        return f"{body}: {url}"
    if _is_cut(answer.get("content") or {}, body):
        extra = {"WARC-Truncated": "length"}  # Firefox cuts off bodies above its size limit
    sent = _sent(asked, read)
    if isinstance(sent, str):
        return f"{sent}: {url}"
    dropped = {"transfer-encoding", "content-encoding"} if body else {"transfer-encoding"}
    headers = tuple((n, v) for n, v in _headers(answer) if n.lower() not in dropped)
    if body and _is_text(answer, body):
        headers = _read_as_utf8(headers, body)
    version = str(answer.get("httpVersion") or asked.get("httpVersion") or "").lower()
    return Exchange(
        Request(str(asked["method"]).upper(), url.partition("#")[0], _headers(asked), sent),
        status,
        str(answer.get("statusText") or ""),
        headers,
        body,
        _time(entry.get("startedDateTime")),
        protocol="h2" if version in ("h2", "http/2", "http/2.0") else "http/1.1",
        ip=str(entry.get("serverIPAddress") or "").strip("[]") or None,
        extra=extra,
    )


def _headers(message: dict[str, Any]) -> Headers:
    found = [(str(h["name"]), str(h["value"])) for h in message.get("headers") or ()]
    # some tools join repeated fields by line breaks
    return tuple((n, v) for n, value in found if not n.startswith(":") for v in value.split("\n"))


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


def _in_zip(beside: Mapping[str, Place]) -> Read:
    def read(name: str) -> bytes | str:
        place = beside.get(name)
        return f"its body file {name} is missing" if place is None else place.read(0, place.size)

    return read


def _body(answer: dict[str, Any], read: Read, method: str, status: int) -> bytes | str:
    """Return the body of an answer, or the reason why it is unavailable."""
    content = answer.get("content") or {}
    if name := content.get("_file"):
        return read(str(name))
    text = content.get("text")
    if not text:
        # bodySize is the size of the encoded body, which may encode nothing
        size = max(int(content.get("size") or 0), int(answer.get("bodySize") or 0) if text is None else 0)
        if size > 0 and method != "HEAD" and status not in _BODILESS:
            return NO_BODY
        return b""
    if content.get("encoding") == "base64":
        try:
            return base64.b64decode("".join(str(text).split()), validate=True)
        except (binascii.Error, ValueError):
            return "its body is no base64"
    media = next((v for n, v in _headers(answer) if n.lower() == "content-type"), None)
    size = int(content.get("size") or 0)
    return _encoded(str(text), media, {size, size + int(content.get("compression") or 0)})


def _encoded(text: str, media: str | None, sizes: Collection[int]) -> bytes | str:
    """Return decoded text encoded in its page's charset, or the reason why that is impossible.

    `sizes` are candidates for the length of the original bytes, which most tools record.
    """
    plain = _utf8(text)
    named = codec(header_charset(media)) or codec(meta_charset(plain))
    if named is None and len(plain) not in sizes and (bare := _byte_by_byte(text)) and len(bare) in sizes:
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


def _utf8(text: str) -> bytes:
    """Encode text as UTF-8.

    mitmproxy writes undecodable bytes as lone surrogates; they become these bytes again.
    """
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")


def _is_cut(content: dict[str, Any], body: bytes) -> bool:
    """Return True if the HAR declares a larger size than it holds. A missing byte order mark is ignored."""
    size = int(content.get("size") or 0)
    twice = 2 * len(str(content.get("text") or ""))  # size in UTF-16
    return (
        bool(body)
        and "_file" not in content
        and size > len(body) + len(codecs.BOM_UTF8)
        and size not in (twice, twice + 2)
    )


def _is_text(answer: dict[str, Any], body: bytes) -> bool:
    """Return True if the HAR holds an answer as text, and the body is its UTF-8 encoding."""
    content = answer["content"]
    if "_file" in content or content.get("encoding") == "base64":
        return False
    return body == str(content["text"]).encode(errors="surrogatepass")


def _read_as_utf8(headers: Headers, body: bytes) -> Headers:
    """Return headers that declare UTF-8 for a text stored as UTF-8, unless they or the page do."""
    media = next((v for n, v in headers if n.lower() == "content-type"), "")
    said = codec(header_charset(media)) or codec(meta_charset(body))
    if body.isascii() or said == "utf-8" or not _READ.match(media):
        return headers
    told = media.partition(";")[0].strip() + "; charset=utf-8"
    return tuple((n, told if n.lower() == "content-type" else v) for n, v in headers)


def _sent(asked: dict[str, Any], read: Read) -> bytes | str:
    sent = _sent_data(asked, read)
    fields = {n.lower(): v for n, v in _headers(asked)}
    told = fields.get("content-length", "")
    if isinstance(sent, str) or not told.isdecimal() or "content-encoding" in fields:
        return sent
    if not sent and int(told):
        return NOT_SENT
    text = (asked.get("postData") or {}).get("text")
    # parameters give the values only, not their original encoding
    if text is None or len(sent) == int(told):
        return sent
    bare = _byte_by_byte(str(text))
    return bare if len(bare) == int(told) else "the body of its request has another length than was sent"


def _sent_data(asked: dict[str, Any], read: Read) -> bytes | str:
    data = asked.get("postData") or {}
    if name := data.get("_file"):
        return read(str(name))
    text = data.get("text")
    if text:
        if data.get("encoding") == "base64":
            return base64.b64decode("".join(str(text).split()), validate=True)
        return _utf8(str(text))
    params = data.get("params") or ()
    if not params:
        return b"" if int(asked.get("bodySize") or 0) <= 0 else NOT_SENT
    if "multipart" in str(data.get("mimeType", "")):
        return "the parts of its request are in the HAR without their boundary"
    return urlencode([(str(p["name"]), str(p.get("value") or "")) for p in params]).encode()


def _time(text: Any) -> datetime:
    moment = datetime.fromisoformat(str(text))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
