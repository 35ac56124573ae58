"""SOAP and SAML requests: remove the ids and moments that a client draws for each message.

Those of SOAP stand in the envelope's header: WS-Addressing's MessageID (https://www.w3.org/TR/ws-addr-core/, 3.2) and
WS-Security's timestamp, nonce, password digest and signature (OASIS wss-v1.1).
"""

from __future__ import annotations

import base64
import re
import zlib
from dataclasses import replace
from urllib.parse import unquote_to_bytes

from stillweb.snapshots.http.bodies import BYTES, FORM, MULTIPART, Body, MultipartField
from stillweb.snapshots.identity.keys import ParsedRequest
from stillweb.snapshots.identity.spelling import BLANK

_ENVELOPE = re.compile(rb"<(?:[\w.-]+:)?Envelope\b")
_HEADER = re.compile(rb"<((?:[\w.-]+:)?)Header\b[^>]*>.*?</\1Header\s*>", re.S)
_TEXT = rb"(?:<!\[CDATA\[[^<]*|[^<]*)"
_MESSAGE = re.compile(rb"<((?:[\w.-]+:)?(?i:MessageID))\b[^>]*>(?:<!\[CDATA\[)?([^<\]]*)")
_CALL = (
    rb"(?i:(?:Request|Correlation|Activity|Transaction|Message|Trace)_?ID)"  # of the call itself, for a log
)
_DRAWN = re.compile(
    rb"(<((?:[\w.-]+:)?(?:%b|Nonce|Created|Expires|Timestamp|DigestValue|SignatureValue|VsDebuggerCausalityData))\b[^>]*>)%b(?=</\2\s*>)"
    % (_CALL, _TEXT)
)
_ATTRIBUTE = re.compile(rb"(?<=\s)(%b=)([\"'])[\w:-]*\2" % _CALL)
_DIGEST = re.compile(rb"(<((?:[\w.-]+:)?Password)\b[^>]*#PasswordDigest[^>]*>)[^<]*(?=</\2\s*>)")
# ids of elements that a signature refers to
_ID = re.compile(rb"(?<=\s)((?:[\w.-]+:)?Id|URI)=([\"'])(?:#|(?=[A-Z]|_|uuid-))[\w.-]*\d[\w.-]*\2")
_MARK = BLANK.encode()


def without_message_ids(parsed: ParsedRequest) -> ParsedRequest:
    """Return a SOAP request with marks for its drawn values, or `parsed` itself for another request."""
    body = parsed.body
    if body.kind == MULTIPART:  # the envelope and its attachments (MTOM)
        parts = tuple(MultipartField(part.headers, _without_ids(part.content)) for part in body.value)
        return parsed if parts == body.value else replace(parsed, body=Body(MULTIPART, parts, body.label))
    if body.kind != BYTES:
        return parsed
    value = _without_ids(body.value)
    return parsed if value == body.value else replace(parsed, body=body.with_value(value))


def _without_ids(text: bytes) -> bytes:
    if _ENVELOPE.search(text, 0, 4096) is None:
        return text
    text = _HEADER.sub(_without_drawn, text)
    return _ID.sub(rb"\1=" + _MARK, text) if b"Security" in text else text


def _without_drawn(header: re.Match[bytes]) -> bytes:
    text = _DRAWN.sub(rb"\1" + _MARK, header[0])
    return _ATTRIBUTE.sub(rb"\1" + _MARK, _DIGEST.sub(rb"\1" + _MARK, text))


def message_id(parsed: ParsedRequest) -> str | None:
    body = parsed.body
    parts = [part.content for part in body.value] if body.kind == MULTIPART else [body.value]
    for text in parts if body.kind in (BYTES, MULTIPART) else ():
        if _ENVELOPE.search(text, 0, 4096) and (found := _MESSAGE.search(text)):
            return found[2].decode("utf-8", "replace").strip()
    return None


_REQUEST = b"SAMLRequest"
_SAML = re.compile(rb"\s*(?:<\?xml[^>]*>\s*)?<(?:[\w.-]+:)?\w{1,40}Request\b[^<>]*>")
_OWN = re.compile(rb"(?<=\s)(ID|IssueInstant|NotOnOrAfter)=([\"'])[^\"'<>]*\2")
_SIGNED = re.compile(rb"<((?:[\w.-]+:)?Signature)\b.*?</\1\s*>", re.S)
_MOST = 1 << 16  # bytes of a SAML request


def without_saml_ids(parsed: ParsedRequest) -> ParsedRequest:
    """Return a sign-in by SAML with what its request says but for its id, moments and signature, or `parsed` itself for another request.

    The request stands packed in an address or plain in a form (SAML 2.0 Bindings, 3.4.4 and 3.5.4).
    """
    query = parsed.query
    if query is not None:
        pairs = (pair.partition("=") for pair in query)
        query = tuple(
            f"{name}={_said(unquote_to_bytes(value)).decode('latin-1')}"
            if name.encode() == _REQUEST
            else f"{name}{equals}{value}"
            for name, equals, value in pairs
        )
    body = parsed.body
    if body.kind == FORM:
        values = tuple(
            replace(pair, value=_said(pair.value)) if pair.name == _REQUEST else pair for pair in body.value
        )
        body = body if values == body.value else body.with_value(values)
    if query == parsed.query and body is parsed.body:
        return parsed
    return replace(parsed, query=query, body=body)


def _said(packed: bytes) -> bytes:
    """Return a packed SAML request unpacked, without its id, times and signature; any other text unchanged."""
    try:
        text = base64.b64decode(packed)
        if not text.lstrip().startswith(b"<"):
            text = zlib.decompressobj(-15).decompress(text, _MOST)
    except (ValueError, zlib.error):
        return packed
    start = _SAML.match(text)
    if start is None or len(text) >= _MOST:
        return packed
    return _OWN.sub(rb"\1=" + _MARK, start[0]) + _SIGNED.sub(b"", text[start.end() :])
