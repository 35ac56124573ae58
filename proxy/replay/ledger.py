"""The ledger: one JSON line for every request answered in replay. Its members are in docs/ledger.md.

A thread of the ledger writes collected lines together, at most `DELAY` seconds late, so that the hot path
only appends to a list.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillweb.proxy.replay.misses import masked_key, masked_url_of
from stillweb.snapshots.cache import Cache
from stillweb.snapshots.errors import DamagedInput, MissingCapability, UsageError
from stillweb.snapshots.request import Request
from stillweb.snapshots.warc.appending import not_written

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.evidence.lookup import Lookup

DELAY = 0.03
WHOLE = -1  # the number of a line that is not put together from parts
TAILS = 1 << 22  # characters of line tails remembered
KEPT = 64 << 20  # bytes of lines kept while the disk is full
# members that every ledger line has
MEMBERS = ("session", "seq", "method", "url", "verdict", "status")
UNHASHED = frozenset({"ms"})  # members that depend on the machine, not on the replay
NUMBERS = frozenset({"seq", "again"})  # members that number requests in the order of arrival

Entry = dict[str, Any]

_clock = time.monotonic

encode = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


class Ledger:
    """A ledger that is written and can be read back.

    `path` is replaced if it exists; None uses a temporary file. Thread-safe. Raises UsageError if the file
    can't be written, MissingCapability on a full disk.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path) if path is not None else None
        self.error: Exception | None = None
        if self.path is not None:
            try:
                self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o644)
            except OSError as error:
                raise not_written(self.path, error) from error
        else:
            handle, name = tempfile.mkstemp(prefix="stillweb-ledger-")
            self._fd = os.open(name, os.O_RDWR | os.O_APPEND)
            os.close(handle)
            os.unlink(name)
        self.started = time.monotonic()
        # begin, number, rest up to the time, which comes last, and the time; or a whole line with number
        # WHOLE
        self._pending: list[tuple[str, int, str, float]] = []
        self._left = b""  # lines that are not written yet
        self._begun = 0  # bytes of the first of them that are written
        self._lost = False  # True once more lines waited than are kept
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._awaited = False  # True if the thread is about to write; asking an Event costs more
        self._thread: threading.Thread | None = None
        self._closed = False

    # Writing

    def write(self, entry: Mapping[str, Any]) -> None:
        """Write an entry. `ms`, the milliseconds since the ledger was opened, is added if missing."""
        line = encode(dict(entry))
        self.write_line(line if "ms" in entry else f'{line[:-1]},"ms":{self.milliseconds()}}}')

    def write_line(self, line: str) -> None:
        """Write an entry that is already JSON, on one line without its line break."""
        self._pending.append((line, WHOLE, "", 0.0))
        if not self._awaited:
            self._awake()

    def write_timed(self, begin: str, number: int, rest: str) -> None:
        """Write an entry given as parts of JSON up to the value of its last member, the time, added here."""
        self._pending.append((begin, number, rest, _clock()))
        if not self._awaited:
            self._awake()

    def milliseconds(self) -> int:
        """Return the milliseconds since the ledger was opened."""
        return int((time.monotonic() - self.started) * 1000)

    def _awake(self) -> None:
        if self._closed:
            self.flush()
            return
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="stillweb-ledger", daemon=True)
                    self._thread.start()
        self._awaited = True
        self._wake.set()

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait()
            time.sleep(DELAY)
            self._wake.clear()
            self._awaited = False  # before the lines are taken, so that later ones wake us again
            self.flush()

    def flush(self) -> None:
        """Write the pending lines now.

        After a failure, kept in `error`, the next call goes on where this one stopped.
        """
        with self._lock:
            self._write_pending()

    def flush_if_free(self) -> bool:
        """Flush without waiting. Return False if a write is already under way, in whichever thread."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self._write_pending()
        finally:
            self._lock.release()
        return True

    def _write_pending(self) -> None:
        pending = self._pending
        # formatted here, so that a request only stores its parts; other threads may add lines meanwhile
        lines = pending[: len(pending)]
        del pending[: len(lines)]
        if not lines and not self._left:
            return
        started = self.started
        texts = [
            f"{begin}\n" if number == WHOLE else f"{begin}{number}{rest}{int((at - started) * 1000)}}}\n"
            for begin, number, rest, at in lines
        ]
        data = self._left + "".join(texts).encode()
        at = self._begun
        try:
            while at < len(data):
                at += os.write(self._fd, memoryview(data)[at:] if at else data)
        except OSError as error:
            where = self.path or "the temporary file"
            what = "the disk is full" if error.errno == errno.ENOSPC else error.strerror
            self.error = MissingCapability(f"{where}: the ledger can't be written: {what}")
        else:
            self._left, self._begun = b"", 0
            if not self._lost:
                self.error = None
            return
        whole = data.rfind(b"\n", 0, at) + 1
        self._left, self._begun = data[whole:], at - whole
        if len(self._left) > KEPT:
            self._left = self._left[: self._left.find(b"\n", KEPT) + 1]
            self._lost = True

    def close(self) -> None:
        """Write the pending lines. The ledger can still be read.

        Raises the error that keeps lines from being written.
        """
        if not self._closed:
            self._closed = True
            self._wake.set()
            if self._thread is not None:
                self._thread.join()
            self.flush()
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:  # the exception under way matters more
            self.flush()

    def __del__(self) -> None:
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            os.close(fd)

    # Reading

    def entries(self) -> list[Entry]:
        """Return all entries so far, in written order. Raises DamagedInput or the pending write error."""
        return list(self)

    def __iter__(self) -> Iterator[Entry]:
        return parse_lines(self._lines(), str(self.path or "ledger"))

    def text(self) -> bytes:
        """Return the file's content so far. Raises the pending write error."""
        return b"".join(line + b"\n" for line in self._lines())

    def _lines(self) -> Iterator[bytes]:
        self.flush()
        if self.error is not None:
            raise self.error  # without its last lines the ledger would understate requests and misses
        at, carried = 0, b""
        while piece := os.pread(self._fd, 1 << 20, at):
            at += len(piece)
            *lines, carried = (carried + piece).split(b"\n")
            yield from lines
        if carried:
            yield carried

    @property
    def size(self) -> int:
        """The number of bytes written so far."""
        return os.fstat(self._fd).st_size

    def misses(self) -> list[Entry]:
        """Return the misses, each once, in written order. Those that don't matter have `irrelevant` true."""
        return misses(self)

    def hash(self, *, ordered: bool = True) -> str:
        """Return the hash of the entries; see `hash_entries`."""
        return hash_entries(self, ordered=ordered)


def read(path: str | os.PathLike[str]) -> list[Entry]:
    """Return the entries of a ledger file.

    Raises UsageError if it can't be opened, DamagedInput, which names the line, if it can't be parsed.
    """
    try:
        with open(path, "rb") as file:
            return list(parse_lines((line.removesuffix(b"\n") for line in file), str(path)))
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}") from error


def parse_lines(lines: Iterable[bytes], name: str) -> Iterator[Entry]:
    """Yield the entries of lines, skipping empty ones. Raises DamagedInput naming file and line."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise DamagedInput(
                f"{name}: line {number} is not JSON ({error}); the file is damaged there"
            ) from error
        if not isinstance(entry, dict):
            raise DamagedInput(f"{name}: line {number} is not a JSON object, so no ledger entry")
        missing = [member for member in MEMBERS if member not in entry]
        if missing:
            raise DamagedInput(f"{name}: line {number} is not a ledger entry: it has no {missing[0]!r}")
        if not isinstance(entry["seq"], int) or not isinstance(entry["session"], str):
            raise DamagedInput(f"{name}: line {number}: 'seq' must be a number and 'session' a text")
        yield entry


def settle_broken_tunnels(entries: Iterable[Entry]) -> list[Entry]:
    """Return all entries, with broken tunnels `irrelevant` if a later entry says they were tried again."""
    found: list[Entry] = []
    tunnels: dict[tuple[str, int], int] = {}  # positions in `found`
    for entry in entries:
        if entry["method"] == "CONNECT":
            tunnels[entry["session"], entry["seq"]] = len(found)
        for seq in entry.get("again", ()):
            if (at := tunnels.get((entry["session"], seq))) is not None:
                found[at] = {**found[at], "irrelevant": True}
        found.append(entry)
    return found


def misses(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries whose verdict is `miss`; see `settle_broken_tunnels`. What a session asks again and again is one miss."""
    wanted = settle_broken_tunnels(
        entry for entry in entries if entry["verdict"] == "miss" or "again" in entry
    )
    found: dict[tuple[Any, ...], Entry] = {}
    for entry in wanted:
        if entry["verdict"] == "miss":
            same = entry.get("key") or (entry["method"], entry["url"], entry["seq"])
            found.setdefault((entry["session"], same, entry["status"]), entry)
    return list(found.values())


def hash_entries(entries: Iterable[Entry], *, ordered: bool = True) -> str:
    """Return the hex SHA-256 of a ledger: the requests and answers of each session, without times.

    The interleaving of sessions does not matter. With `ordered` false the order within a session does not
    matter either, as for a browser, which sends requests in parallel. Only the entries count, and how often
    each occurs.
    """
    lines: list[tuple[str, int, str]] = []
    for entry in entries:
        seq = entry["seq"] if ordered else 0
        kept = {k: v for k, v in entry.items() if k not in UNHASHED and (ordered or k not in NUMBERS)}
        lines.append(
            (
                entry["session"],
                seq,
                json.dumps(kept, sort_keys=True, ensure_ascii=True, separators=(",", ":")),
            )
        )
    digest = hashlib.sha256(b"stillweb ledger 1\n")
    for _, _, text in sorted(lines):
        digest.update(text.encode() + b"\n")
    return digest.hexdigest()


class EntryTails:
    """A builder of ledger line tails, which caches those of captures."""

    def __init__(self) -> None:
        self._known = Cache[tuple[Any, ...], str](room=TAILS)

    def of(
        self,
        request: Request,
        lookup: Lookup | None,
        verdict: str,
        derived: str,
        status: int,
        asked: Lookup | None = None,
        *,
        capture: Capture | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> str:
        """Return a ledger line from after its number up to the time.

        `asked` has the key if `lookup` is of another request.
        """
        keyed = asked or lookup
        if capture is None and lookup is not None and verdict != "miss":
            capture = lookup.capture
        key = keyed.key.canonical if keyed is not None else None
        if key is not None and (capture is None or "redacted" in verdict):
            key = masked_key(request) or key
        known = None
        if more is None and capture is not None and lookup is not None:
            flags = (
                lookup.rule,
                lookup.state,
                lookup.ambiguous,
                lookup.irrelevant,
                lookup.reported_confidence,
            )
            known = (key, request.method, request.url, verdict, capture.place, status, derived, flags)
            if (made := self._known.get(known)) is not None:
                return made
        entry: dict[str, Any] = {
            "key": key,
            "method": request.method,
            "url": masked_url_of(request),
            "verdict": verdict,
            "rule": lookup.rule if lookup is not None else None,
            "capture": {"file": capture.filename, "offset": capture.offset, "digest": capture.digest}
            if capture is not None
            else None,
            "state": lookup.state if lookup is not None else "",
            "ambiguous": bool(lookup is not None and lookup.ambiguous),
            "irrelevant": bool(lookup is not None and lookup.irrelevant),
            "status": status,
        }
        if lookup is not None and lookup.reported_confidence is not None:
            entry |= lookup.reported_confidence.members()
        if derived:
            entry["derived"] = derived
        entry |= more or {}
        made = f',{encode(entry)[1:-1]},"ms":'
        if known is not None:
            self._known.keep(known, made, len(made))
        return made
