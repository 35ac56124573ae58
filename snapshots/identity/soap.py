"""SOAP requests: remove the ids and moments that a client draws for each message.

They stand in the envelope's header: WS-Addressing's MessageID (https://www.w3.org/TR/ws-addr-core/, 3.2) and
WS-Security's timestamp, nonce, password digest and signature (OASIS wss-v1.1).
"""

from __future__ import annotations

import re
from dataclasses import replace

from stillweb.snapshots.http.bodies import BYTES, Body
from stillweb.snapshots.identity.keys import Parsed
from stillweb.snapshots.identity.spelling import BLANK

_ENVELOPE = re.compile(rb"<(?:[\w.-]+:)?Envelope\b")
_HEADER = re.compile(rb"<((?:[\w.-]+:)?)Header\b[^>]*>.*?</\1Header\s*>", re.S)
_MESSAGE = re.compile(rb"<((?:[\w.-]+:)?MessageID)\b[^>]*>([^<]*)</\1\s*>")
_DRAWN = re.compile(
    rb"(<((?:[\w.-]+:)?(?:MessageID|Nonce|Created|Expires|DigestValue|SignatureValue))\b[^>]*>)[^<]*(?=</\2\s*>)"
)
_DIGEST = re.compile(rb"(<((?:[\w.-]+:)?Password)\b[^>]*#PasswordDigest[^>]*>)[^<]*(?=</\2\s*>)")
# ids of elements that a signature refers to
_ID = re.compile(rb"(?<=\s)((?:[\w.-]+:)?Id|URI)=([\"'])(?:#|(?=[A-Z]))[\w.-]*\d[\w.-]*\2")
_MARK = BLANK.encode()


def without_message_ids(parsed: Parsed) -> Parsed:
    """Return a SOAP request with marks for its drawn values, or `parsed` itself for another request."""
    body = parsed.body
    if body.kind != BYTES or _ENVELOPE.search(body.value, 0, 4096) is None:
        return parsed
    value = _HEADER.sub(
        lambda match: _DIGEST.sub(rb"\1" + _MARK, _DRAWN.sub(rb"\1" + _MARK, match[0])), body.value
    )
    if b"Security" in value:
        value = _ID.sub(rb"\1=" + _MARK, value)
    return parsed if value == body.value else replace(parsed, body=Body(body.kind, value, body.label))


def message_id(parsed: Parsed) -> str | None:
    """Return the MessageID of a SOAP request, or None."""
    if parsed.body.kind != BYTES or _ENVELOPE.search(parsed.body.value, 0, 4096) is None:
        return None
    found = _MESSAGE.search(parsed.body.value)
    return found[2].decode("utf-8", "replace").strip() if found else None
