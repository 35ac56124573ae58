"""The request fields that tell captures of one request apart: what any of their answers names in Vary, and Origin."""

from __future__ import annotations

from collections.abc import Sequence

from stillweb.snapshots.capture import Capture
from stillweb.snapshots.evidence.peeking import Peek
from stillweb.snapshots.identity.cookies import CREDENTIALS, MADE_ANEW, credentials_of
from stillweb.snapshots.identity.header_fields import PRESENT
from stillweb.snapshots.request import Headers, Request

Fields = tuple[tuple[str, str], ...]  # names in lower case and values, "" where a request has none
ORIGIN = "origin"
ANYTHING = "*"  # of a Vary that names no field: more than requests say decides
# Vary on these tells nothing that the session's past doesn't tell better, or would part a client from itself.
NEVER_VARY = frozenset({"accept-encoding", "cookie", "authorization", "proxy-authorization", "*"})


def vary_of(capture: Capture) -> Fields:
    """Return the fields of Vary that may decide, with their values."""
    return tuple((n, v) for n, v in capture.vary if n not in NEVER_VARY)


def counted(captures: Sequence[Capture], request: Request, peek: Peek) -> list[Fields]:
    """For each capture, the fields that count and their values in its request.

    Many servers leave Vary out of a 304, an error or what is asked for without Origin: what one answer names counts for
    all. Origin does where answers let different origins read them, for one who sends it.
    """
    told = [vary_of(c) for c in captures]
    names = {name for fields in told for name, _ in fields}
    if len(captures) < 2:
        return told
    if request.header(ORIGIN) and len({peek.readers(c) for c in captures}) > 1:
        names.add(ORIGIN)
    return [
        fields if len(fields) == len(names) else _completed(fields, names, peek.fields(capture))
        for fields, capture in zip(told, captures, strict=True)
    ]


def _completed(fields: Fields, names: set[str], sent: Headers) -> Fields:
    own = dict(fields)
    return tuple((name, own.get(name, _recorded(sent, name))) for name in sorted(names))


def _recorded(sent: Headers, name: str) -> str:
    value = asked_of(sent, name)
    # whose they are is seen by those that say it
    return value.partition(" ")[0] if name == CREDENTIALS else value


def other_value(asked: str, recorded: str) -> bool:
    """Whether a value of a field that counts is another one than was recorded; of some, any is as good."""
    return asked != recorded and not (asked and recorded == PRESENT)


def made_anew(name: str, recorded: str, asked: str) -> bool:
    """Whether both are credentials of one kind that is made anew for each request: by whom can't be told."""
    scheme = asked.partition(" ")[0]
    return name == CREDENTIALS and scheme in MADE_ANEW and recorded.partition(" ")[0] == scheme


def asked_of(headers: Headers, name: str) -> str:
    """The value of a field that counts in a request."""
    if name == CREDENTIALS:
        return credentials_of(headers)
    return ", ".join(v for n, v in headers if n.lower() == name)
