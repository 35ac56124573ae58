"""Pairs of records as our writer leaves them, a plain GET and its answer, made an index line of at once.

Nothing is made of a record that is not put to use: no fields by name, no request, no answer, no pairing. For all that
is not plainly such a pair `snapshots.indexing` decides, as if this were not there; tests hold one against the other.
"""

from __future__ import annotations

import hashlib
import re

from snapshots import messages
from snapshots.cdxj import encode_json, json_text
from snapshots.conditions import ANY
from snapshots.gathering import ODD, SILENT, TELLING, Part, Waiting
from snapshots.indexing import media_of
from snapshots.keys import overridden, request_key
from snapshots.pairing import Pairing, timestamp_of
from snapshots.plain import plain_headers, plain_url, static
from snapshots.request import Headers, Request
from snapshots.sites import site_of
from snapshots.warc import OUR_REQUEST, clean_uri, end_of_head, is_regular

REMEMBERED = 1 << 13  # URLs, and heads of requests, that are kept, for they come again

# What JSON leaves as it is; no text of a field has another character, or white space.
_TEXT = rb"[!#-\[\]-~]+"
_DATE = rb"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z"
_URI = rb"https?://[!$-\[\]-~]+"  # and without fragment
_SHA = rb"sha256:[0-9a-f]{64}"
_SESSION = (
    rb"WARC-Stillweb-Session: ("
    + _TEXT
    + rb")\r\nWARC-Stillweb-Events: ((?:0|[1-9][0-9]*)-(?:0|[1-9][0-9]*))\r\n"
)
_REQUEST = re.compile(
    OUR_REQUEST
    + rb"WARC-Record-ID: (<urn:uuid:[!-~]+>)\r\n"
    + rb"(WARC-Date: " + _DATE + rb"\r\nWARC-Target-URI: (" + _URI + rb")\r\n)"
    + rb"WARC-Block-Digest: " + _SHA + rb"\r\n"
    + rb"WARC-Payload-Digest: " + _SHA + rb"\r\n"
    + _SESSION
    + rb"Content-Type: application/http; msgtype=request\r\nContent-Length: ([0-9]{1,9})\r\n\r\n"
    + rb"GET /[!-~]* HTTP/1\.1(?=\r\n)"
)  # fmt: skip
_RESPONSE = re.compile(
    rb"WARC/1\.1\r\nWARC-Type: (?:response|(revisit))\r\n"
    + rb"WARC-Record-ID: (<urn:uuid:[!-~]+>)\r\n"
    + rb"(WARC-Date: (" + _DATE + rb")\r\nWARC-Target-URI: (?:" + _URI + rb")\r\n)"
    + rb"WARC-Concurrent-To: (<urn:uuid:[!-~]+>)\r\n"
    + rb"(?:WARC-IP-Address: [0-9a-f.:]+\r\n)?"
    + rb"WARC-Protocol: ([a-z0-9/.]+)\r\n"
    + rb"WARC-Payload-Digest: (" + _SHA + rb")\r\n"
    + rb"WARC-Block-Digest: " + _SHA + rb"\r\n"
    + rb"(?:WARC-Profile: [!-~]+\r\nWARC-Refers-To-Target-URI: ([!-~]+)\r\nWARC-Refers-To-Date: ([!-~]+)\r\n)?"
    + _SESSION
    + rb"Content-Type: application/http; msgtype=response\r\nContent-Length: ([0-9]{1,9})\r\n\r\n"
    + rb"(?=HTTP/1\.)"
)  # fmt: skip
_MARKS = b"-T:.Z"  # in a date
_STILL = b',"state":"%b"' % ANY.encode()

# of a URL: its index key; its canonical key; both of its keys as JSON members; its site; whether no rule thinks of it
Address = tuple[bytes, str, bytes, str, bool]


class SwiftPairs:
    """Takes pairs of records into the part that a file is scanned for."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self._file = json_text(part.name).encode(errors="surrogatepass")
        self._addresses: dict[bytes, Address] = {}
        self._heads: dict[bytes, tuple[Headers, bool] | None] = {}
        self._kinds: dict[tuple[str, int], tuple[bytes, bool]] = {}

    def take(
        self,
        pairing: Pairing,
        asked: bytes,
        offset: int,
        length: int,
        told: bytes,
        told_length: int,
        told_unpacked: int,
    ) -> bool:
        """Whether two unpacked records, one right after the other, were such a pair; if so they are in the part.

        `asked` begins with `warc.OUR_REQUEST`, at `offset`; lengths are of stored bytes. `told` may be the heads alone of
        a record whose whole length is `told_unpacked`.
        """
        one = _REQUEST.match(asked)
        two = _RESPONSE.match(told) if one is not None else None
        if one is None or two is None:
            return False
        asked_id, same, uri, session, events, size = one.groups()
        (revisit, told_id, same_too, date, concurrent, protocol, digest, of_uri, of_date, session_too, events_too,
         told_size) = two.groups()  # fmt: skip
        start, block_at = two.end(), one.end(6) + 4
        stop = start + int(told_size)
        if (
            concurrent != asked_id
            or same != same_too
            or session != session_too
            or events != events_too
            or block_at + int(size) + 4 != len(asked)
            or stop + 4 != told_unpacked
            or not asked.endswith(b"\r\n\r\n\r\n\r\n")
            or (len(told) == told_unpacked and not told.endswith(b"\r\n\r\n"))
            or (revisit is None) != (of_uri is None)
        ):
            return False
        at = end_of_head(told, start)
        fields = self._fields(asked[one.end() : -4])
        told_by = asked_id.decode()
        if (
            at is None
            or at[1] > stop
            or fields is None
            or told_by in pairing.questions
            or told_by in pairing.waiting
        ):
            return False
        head = told[start : at[1]]
        seen = messages.glance(head)
        if seen is None or (revisit is not None and seen[0] == 304):
            return False
        status, media, names = seen
        address = self._addresses.get(uri) or self._address(uri)
        kind = self._kinds.get((media, status)) or self._kind(media, status)
        urlkey, key, keys, site, plain = address
        mime, still = kind
        headers, silent = fields
        timestamp = date.translate(None, _MARKS)
        identity = hashlib.sha256(
            b"7:capture,%d:%b,24:%b,71:%b,%d:%b,%d:%b,%d:%b,%d:%b,%d:%b,"
            % (
                len(uri), uri, date, digest, len(head), head, len(asked) - 4 - block_at, asked[block_at:-4], len(session),
                session, len(events), events, len(protocol), protocol,
            )
        ).hexdigest()  # as `pairing.join`  # fmt: skip
        after = b"" if protocol == b"http/1.1" else b',"protocol":"%b"' % protocol
        if names:
            vary = encode_json(messages.vary_values(names, headers))
            after += b',"vary":' + vary.encode(errors="surrogatepass")
        if still:
            after += _STILL
        begin, _, end = events.partition(b"-")
        line = (
            b'%b %b {"url":"%b","mime":%b,"status":"%d","digest":"%b","length":"%d","offset":"%d","filename":%b'
            b',"method":"GET"' % (
                urlkey, timestamp, uri, b'"warc/revisit"' if revisit else mime, status, digest, told_length,
                offset + length, self._file,
            )
        )  # fmt: skip
        rest = b',"req":[%d,%d]%b,"session":"%b","events":[%b,%b]%b,"id":"%b"}' % (
            offset, length, keys, session, begin, end, after, identity.encode(),
        )  # fmt: skip
        says = SILENT
        if not silent or not plain or 300 <= status < 400:
            says = ODD if still else TELLING
        url, text = uri.decode(), digest.decode()
        answered = f"{status} {text}"
        request = ("GET", url, headers, b"")
        part = self.part
        if revisit is None:
            line += rest
            moment = f"{timestamp.decode()} {url}"
            part.original(line, offset + length, told_id.decode(), moment)
            part.site(site).take(key, answered, says, line, request)
            return True
        line += b',"type":%b,"orig":' % mime
        moment = f"{timestamp_of(of_date.decode())} {clean_uri(of_uri.decode()).partition('#')[0]}"
        part.waiting.append(
            Waiting(offset + length, text, url, moment, line, rest, site, key, answered, says, request)
        )
        return True

    def _fields(self, lines: bytes) -> tuple[Headers, bool] | None:
        """The header fields of a request without body, and whether they say nothing of a state; None: not plain."""
        if lines in self._heads:
            return self._heads[lines]
        if len(self._heads) >= REMEMBERED:
            self._heads.clear()
        block = b"GET / HTTP/1.1" + lines
        _, headers, at = messages.split(block)
        found = None
        whole = at == len(block) and is_regular(block) and not overridden(Request("GET", "", headers))
        if whole:
            found = headers, plain_headers(headers)
        self._heads[lines] = found
        return found

    def _address(self, uri: bytes) -> Address:
        if len(self._addresses) >= REMEMBERED:
            self._addresses.clear()
        url = uri.decode()
        key = request_key(Request("GET", url))
        keys = b',"key":"%b","exact":"%b"' % (key.canonical.encode(), key.exact.encode())
        urlkey = key.urlkey.encode(errors="surrogatepass")
        found = self._addresses[uri] = urlkey, key.canonical, keys, site_of(url), plain_url(url)
        return found

    def _kind(self, media: str, status: int) -> tuple[bytes, bool]:
        """The media type as JSON, and whether an answer of it stays as it is."""
        if len(self._kinds) >= REMEMBERED:
            self._kinds.clear()
        mime = media_of(media)
        told = json_text(mime).encode(errors="surrogatepass")
        found = self._kinds[media, status] = told, static("GET", mime, status)
        return found
