"""Fast reader of index lines, which decodes a line into a `Capture` without a dictionary in between.

Lines that are not written like ours are left to the slow reader in `stillweb.snapshots.index.cdxj`. A test compares
the two.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stillweb.snapshots.capture import Capture, swift_capture


class _Block(msgspec.Struct, gc=False):
    """JSON block of a line, as `cdxj.line_of` writes it; other members are skipped."""

    url: str
    mime: str
    status: str
    digest: str
    length: str
    offset: str
    filename: str
    method: str = "GET"
    type: str | msgspec.UnsetType = msgspec.UNSET
    orig: tuple[str, int, int] | None = None
    req: tuple[int, int] = (-1, 0)
    key: str = ""
    exact: str = ""
    session: str = ""
    events: tuple[int, int] = (0, 0)
    protocol: str = "http/1.1"
    vary: tuple[tuple[str, str], ...] = ()
    truncated: str = ""
    personal: bool = False
    kind: str | msgspec.UnsetType = msgspec.UNSET


_decode: Callable[[bytes], _Block] = msgspec.json.Decoder(_Block).decode


def swift_line(line: bytes) -> Capture | None:
    """Return the capture of a line, or None if it is of a view, text or metadata.

    Raises ValueError for a line that the slow reader must read.
    """
    urlkey, timestamp, text = line.split(b" ", 2)
    block = _decode(text)
    if block.kind is not msgspec.UNSET:
        return None
    mime = block.mime
    if block.orig is not None:
        if isinstance(block.type, msgspec.UnsetType):
            raise ValueError("the type of the payload is not told")
        mime = block.type
    request, events = block.req, block.events
    return swift_capture(
        urlkey.decode(errors="surrogatepass"),
        timestamp.decode("ascii"),
        block.url,
        block.method,
        int(block.status),
        mime,
        block.digest,
        block.filename,
        int(block.offset),
        int(block.length),
        request[0],
        request[1],
        block.key,
        block.exact,
        block.session,
        events[0],
        events[1],
        block.protocol,
        block.vary,
        block.orig,
        block.truncated,
        block.personal,
    )
