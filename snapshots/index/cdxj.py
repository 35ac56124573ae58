"""Sorted CDXJ index, one line per capture, read by bisection.

A line is `urlkey timestamp {json}`; lines are sorted by their bytes. The members `url`, `mime`, `status`, `digest`,
`length`, `offset`, `filename` and `method` are those of other tools (numbers as text, as cdxj-indexer writes
them). The other members are ours. All of them are derived from the records. Views, texts and metadata records have
lines too, under `urn:` keys, with their `kind`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from stillweb.snapshots._os.random_access import ByteSource
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.index.blocks import Blocks

BLOCK = 1 << 13  # bytes of a part; bisection ends at a part, which is then searched
PROBE = 1 << 10  # bytes that usually hold the rest of a line and the key of the next
TOP = 1 << 17  # first keys of parts that are remembered; the first ones probed stay
LAST = b"\xff"  # sorts after all keys

_decode = json.JSONDecoder().raw_decode
encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
json_text = json.encoder.encode_basestring  # JSON string with non-ASCII characters unescaped
_values = attrgetter(*Capture.__struct_fields__)


def entry_line(urlkey: str, timestamp: str, entry: dict[str, Any]) -> bytes:
    """Return an index line without its line break."""
    return f"{urlkey} {timestamp} {encode_json(entry)}".encode(errors="surrogatepass")


def line_of(
    urlkey: str,
    timestamp: str,
    url: str,
    method: str,
    status: int,
    mime: str,
    digest: str,
    filename: str,
    offset: int,
    length: int,
    request_offset: int,
    request_length: int,
    key: str,
    exact: str,
    session: str,
    begin: int,
    end: int,
    protocol: str,
    vary: tuple[tuple[str, str], ...],
    original: tuple[str, int, int] | None,
    truncated: str,
    personal: bool,
    identity: str,
) -> bytes:
    """Return the index line of a capture, from its fields; the snapshot's id is computed from `identity`.

    The JSON is put together as text, in a fifth of the time that an encoder needs.
    """
    mid = end_ = ""
    kind = json_text(mime)
    if original:
        mid = f',"type":{kind},"orig":{encode_json(original)}'
        kind = '"warc/revisit"'
    if request_offset >= 0:
        mid += f',"req":[{request_offset},{request_length}]'
    if protocol != "http/1.1":
        end_ = f',"protocol":{json_text(protocol)}'
    if vary:
        end_ += f',"vary":{encode_json(vary)}'
    if truncated:
        end_ += f',"truncated":{json_text(truncated)}'
    if personal:
        end_ += ',"personal":true'
    return (
        f'{urlkey} {timestamp} {{"url":{json_text(url)},"mime":{kind},"status":"{status}","digest":{json_text(digest)}'
        f',"length":"{length}","offset":"{offset}","filename":{json_text(filename)},"method":{json_text(method)}{mid}'
        f',"key":{json_text(key)},"exact":{json_text(exact)},"session":{json_text(session)},"events":[{begin},{end}]{end_}'
        f',"id":"{identity}"}}'
    ).encode(errors="surrogatepass")


def capture_line(capture: Capture, identity: str) -> bytes:
    """Return the index line of `capture`; the snapshot's id is computed from `identity`."""
    values: tuple[Any, ...] = (*_values(capture), identity)
    return line_of(*values)


# raised by `to_capture` for a line that isn't ours
BROKEN = (ValueError, KeyError, TypeError, IndexError, OverflowError)


class BrokenLine(DamagedInput, ValueError):
    """Error for an index line that can't be read; a snapshot without its index is indexed from its records."""


def parse_line(line: bytes) -> tuple[str, str, dict[str, Any]]:
    """Return urlkey, timestamp and JSON object of a line, its members checked for their types. Raises BrokenLine."""
    try:
        urlkey, timestamp, block = line.split(b" ", 2)
        text = block.decode(errors="surrogatepass")
        entry, end = _decode(text)
        if end != len(text):
            entry = json.loads(text)  # accepts trailing white space, raises for anything else
        if not isinstance(entry, dict):
            raise ValueError("the JSON block is not an object")
        _check(entry)
        return urlkey.decode(errors="surrogatepass"), timestamp.decode("ascii"), entry
    except (ValueError, RecursionError) as error:
        raise broken_line(line, error) from None


def broken_line(line: bytes, error: Exception) -> BrokenLine:
    why = f"it has no member {error}" if isinstance(error, KeyError) else error
    return BrokenLine(
        f"damaged index line {line[:80]!r} ({why}); without its index a snapshot is indexed anew from its records"
    )


_TEXTS = (
    "url", "target", "mime", "digest", "filename", "kind", "id", "method", "type", "key", "exact", "session"
)  # fmt: skip
_NEEDED = ("url", "mime", "digest", "filename", "offset", "length", "id")  # in lines of other records


def _check(entry: dict[str, Any]) -> None:
    """Raise ValueError if a member is missing or has a wrong type."""
    for name in _TEXTS:
        if name in entry and type(entry[name]) is not str:
            raise ValueError(f"{name} is not text")
    for name in ("offset", "length"):
        value = entry.get(name, 0)
        if type(value) is not int and not (
            type(value) is str and value.isascii() and value.isdigit() and len(value) < 19
        ):
            raise ValueError(f"{name} is not a number")
    if "kind" in entry:
        for name in _NEEDED:
            if name not in entry:
                raise ValueError(f"it has no {name}")


class _Block(msgspec.Struct, gc=False):
    """JSON block of a capture's line, as `line_of` or another tool writes it; other members are skipped."""

    url: str
    mime: str
    status: str | int
    digest: str
    length: str | int
    offset: str | int
    filename: str
    method: str = "GET"
    type: str | None = None
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


_decode_block = msgspec.json.Decoder(_Block).decode


def to_capture(urlkey: str, timestamp: str, entry: dict[str, Any]) -> Capture:
    """Return the capture that a parsed line describes. Raises ValueError."""
    return _capture(urlkey, timestamp, msgspec.convert(entry, _Block))


def _capture(urlkey: str, timestamp: str, block: _Block) -> Capture:
    mime = block.mime
    if block.orig is not None:
        if block.type is None:
            raise ValueError("the type of the payload is not given")
        mime = block.type
    request, events = block.req, block.events
    return Capture(
        urlkey,
        timestamp,
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


def capture_of(line: bytes) -> Capture | None:
    """Return the capture of a line, or None if it is of a view, text or metadata. Raises BrokenLine."""
    try:
        urlkey, timestamp, text = line.split(b" ", 2)
        block = _decode_block(text)
        if block.kind is not msgspec.UNSET:
            return None
        return _capture(urlkey.decode(errors="surrogatepass"), timestamp.decode("ascii"), block)
    except (ValueError, RecursionError):  # not as we write it: `parse_line` reads it or says what is wrong
        parsed = parse_line(line)
        try:
            return to_capture(*parsed) if is_capture(parsed[2]) else None
        except BROKEN as error:
            raise broken_line(line, error) from None


def is_capture(entry: dict[str, Any]) -> bool:
    """Return True if a line is of a capture, and not of a view, text or metadata."""
    return "kind" not in entry


def target_of(entry: Mapping[str, Any]) -> str:
    """Return the URI of the record of a view, text or metadata."""
    return str(entry["target"] if "target" in entry else entry["url"])


Read = TypeVar("Read")


class Index:
    """A sorted index in a place. Reading is safe from many threads and after a fork.

    With `blocks` a lookup reads one block and checks its CRC-32. Without, bisection goes over parts of one size; the
    keys at their starts are remembered, so that a warm lookup reads one part.

    The index is read with `pread` and not mapped. Measured on a million lines, a lookup that has to map its pages
    takes longer than one that copies them. Mapped pages count as memory, and a file cut short under a mapping kills
    the process.
    """

    def __init__(self, place: ByteSource, blocks: Blocks | None = None) -> None:
        self._place = place
        self._size = place.size
        self._parts = (self._size + BLOCK - 1) // BLOCK
        self._firsts: dict[int, bytes] = {}  # part -> key of the first line that starts in or after it
        self._blocks = blocks

    @property
    def size(self) -> int:
        return self._size

    def _line_start(self, at: int) -> int:
        """Return the offset of the first line that starts at or after `at`."""
        if at == 0:
            return 0
        at -= 1
        while at < self._size:
            piece = self._place.read(at, BLOCK)
            found = piece.find(b"\n")
            if found >= 0:
                return at + found + 1
            at += BLOCK
        return self._size

    def _key_at(self, start: int) -> bytes:
        """Return the urlkey of the first line that starts at or after `start`; `LAST` if there is none."""
        piece = self._place.read(start - 1, PROBE) if start else b"\n" + self._place.read(0, PROBE)
        line = piece.find(b"\n") + 1
        end = piece.find(b" ", line) if line else -1
        if end >= 0:
            return piece[line:end]
        start = self._line_start(start)  # a line longer than `PROBE`
        return LAST if start >= self._size else next(self._lines_from(start)).partition(b" ")[0]

    def _seek(self, key: bytes) -> int:
        """Return the offset of the part in or after which the first line with a key >= `key` starts."""
        low, high = 0, self._parts
        known = self._firsts
        while low < high:
            middle = (low + high) >> 1
            first = known.get(middle)
            if first is None:
                first = self._key_at(middle * BLOCK)
                if len(known) < TOP:
                    known[middle] = first
            if first < key:
                low = middle + 1
            else:
                high = middle
        return max(0, low - 1) * BLOCK

    def _lines_from(self, start: int) -> Iterator[bytes]:
        """Yield the lines from the first that starts at or after `start`. Raises DamagedInput."""
        at = self._line_start(start) if start else 0
        size = BLOCK
        carried = b""
        while at < self._size:
            piece = self._place.read(at, size)
            if not piece:
                raise DamagedInput(
                    f"{self._place.name}: ends at {at}; it had {self._size} bytes when it was opened"
                )
            at += len(piece)
            *lines, carried = (carried + piece).split(b"\n")
            yield from lines
            size = min(size * 2, 1 << 20)
        if carried:
            yield carried

    def lines(self, urlkey: str | None = None, *, prefix: bool = False) -> Iterator[bytes]:
        """Yield the lines of `urlkey`, in order; with `prefix` those that begin with it; all if it is None."""
        if urlkey is None:
            yield from self._blocks.from_key() if self._blocks else self._lines_from(0)
            return
        wanted = urlkey.encode(errors="surrogatepass")
        if not prefix:
            yield from self._exact(wanted)
            return
        for line in self._blocks.from_key(wanted) if self._blocks else self._lines_from(self._seek(wanted)):
            if line.startswith(wanted):
                yield line
            elif line > wanted:
                return

    def _exact(self, key: bytes) -> list[bytes]:
        if self._blocks is not None:
            return self._blocks.of_key(key)
        start = self._seek(key)
        found = self._within(key, start)
        return list(self._scan_for(start, key + b" ")) if found is None else found

    def _within(self, key: bytes, start: int) -> list[bytes] | None:
        """Return the lines of `key` if they begin in the part at `start`; None if others may lie outside of it.

        The part and the bytes after it are searched at once, which is quicker than line by line.
        """
        size = BLOCK + 2 * PROBE
        # read from the byte before, a line break, so that the part's first line is found like any other
        piece = self._place.read(start - 1, size) if start else b"\n" + self._place.read(0, size)
        ends_here = start + size > self._size
        wanted = b"\n" + key + b" "
        at = piece.find(wanted)
        first = piece.find(b"\n") + 1
        if at < 0:
            end = piece.find(b" ", first) if first else -1
            if start and (end < 0 or piece[first:end] >= key):  # the key may lie before the part
                return None
            last = piece.rfind(b"\n", 0, len(piece) - 1)
            if (space := piece.find(b" ", last)) < 0:
                last = piece.rfind(b"\n", 0, last)
                space = piece.find(b" ", last)
            return [] if ends_here or (last >= 0 and piece[last + 1 : space] > key) else None
        if start and first > at:  # the line before may be of the key, too
            return None
        found: list[bytes] = []
        while (end := piece.find(b"\n", at + 1)) >= 0:
            found.append(piece[at + 1 : end])
            if piece.startswith(wanted, end):
                at = end
            elif ends_here or len(piece) - end >= len(wanted):
                return found
            else:
                break
        return list(self._scan_for(start, wanted[1:]))  # lines of the key go on after `piece`

    def _scan_for(self, start: int, wanted: bytes) -> Iterator[bytes]:
        """Yield the lines that begin with `wanted`, by a scan line by line from `start`."""
        for line in self._lines_from(start):
            if line.startswith(wanted):
                yield line
            elif line > wanted:
                return

    def entries(self, urlkey: str) -> list[tuple[str, str, dict[str, Any]]]:
        """Return all parsed lines of `urlkey`, of captures and other records. Raises DamagedInput."""
        return [self._read(parse_line, line) for line in self._exact(urlkey.encode(errors="surrogatepass"))]

    def candidates(self, urlkey: str) -> list[Capture]:
        """Return the captures with this urlkey, oldest first. Raises DamagedInput."""
        lines = self._exact(urlkey.encode(errors="surrogatepass"))
        return [capture for line in lines if (capture := self._read(capture_of, line)) is not None]

    def prefix(self, start: str) -> Iterator[Capture]:
        """Yield the captures whose urlkey begins with `start`. Raises DamagedInput."""
        for line in self.lines(start, prefix=True):
            if (capture := self._read(capture_of, line)) is not None:
                yield capture

    def __iter__(self) -> Iterator[Capture]:
        """Yield all captures, by urlkey and time. Raises DamagedInput."""
        for line in self.lines():
            if (capture := self._read(capture_of, line)) is not None:
                yield capture

    def _read(self, how: Callable[[bytes], Read], line: bytes) -> Read:
        try:
            return how(line)
        except BrokenLine as error:
            raise BrokenLine(f"{self._place.name}: {error}") from error

    def __len__(self) -> int:
        """Count the lines, by a scan of the whole index."""
        return sum(1 for _ in self.lines())

    def close(self) -> None:
        self._place.close()


def sorted_lines(lines: Iterable[bytes]) -> list[bytes]:
    """Return the distinct lines in index order."""
    return sorted(set(lines))
