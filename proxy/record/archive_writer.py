"""Writing finished exchanges: a bounded queue and a thread.

Nothing here runs on the event loop but `put` and `room`, and both only touch memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import re
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, cast

from stillweb.proxy.record.mitmproxy_compat.http1 import PACKED
from stillweb.snapshots.capture import Capture, Exchange
from stillweb.snapshots.errors import MissingCapability
from stillweb.snapshots.http.encodings import one_coding
from stillweb.snapshots.request import Headers, Request
from stillweb.snapshots.warc.messages import MOST_UNPACKED, half_packed
from stillweb.snapshots.writer import Writer

SPOOL_BYTES = 1 << 20  # bodies up to this stay in memory until they are written
QUEUE_ITEMS = 256
QUEUE_BYTES = 16 << 20
QUEUE_SECONDS = 0.3  # what has been delivered must be on disk before a second has passed
RELEASED = 0.9  # of these limits: below it answers go on that had to wait, each for some milliseconds then
STATUS_SECONDS = 0.5

_CODING = re.compile(rb"[^\s,;]+")
# The last event of OpenAI's streams, and of all that speak as they do; some clients (Mistral's) leave as they read it.
_DONE = re.compile(rb"(?<![^\r\n])data: ?\[DONE\][\r\n]*\Z")

Fields = tuple[tuple[bytes, bytes], ...]


class Spool:
    """A body on its way: in memory while small, then in an unnamed file beside the archive."""

    def __init__(self, directory: Path) -> None:
        self.size = 0
        self.error: OSError | None = None  # why the body could not be kept, such as a full disk
        self.enough = False  # nothing more of it is kept
        self.cut = False  # and something more came
        self._directory = directory
        self._chunks: list[bytes] = []
        self._file: BinaryIO | None = None

    def tee(self, chunk: bytes) -> bytes:
        """Keep a chunk and return it, as mitmproxy's `stream` callables do. Never raises."""
        if self.enough:
            self.cut = self.cut or bool(chunk)
            return chunk
        self.size += len(chunk)
        if self.error is None:
            try:
                if self._file is None:
                    self._chunks.append(chunk)
                    if self.size > SPOOL_BYTES:
                        self._roll_over()
                else:
                    self._file.write(chunk)
            except OSError as e:
                self.error = e
                self.discard()
        return chunk

    def body(self) -> bytes | BinaryIO:
        """Return the whole body. Raises the OSError that kept it from being kept."""
        if self.error is not None:
            raise self.error
        if self._file is None:
            return b"".join(self._chunks)
        self._file.seek(0)  # flushes too, so a disk that is full by now shows here
        return self._file

    def tail(self, size: int) -> bytes:
        """Return up to `size` last bytes; none of a body that could not be kept."""
        try:
            body = self.body()
            if isinstance(body, bytes):
                return body[-size:]
            body.seek(-min(size, self.size), os.SEEK_END)
            return body.read()
        except OSError:  # reported when the body is asked for
            return b""

    def discard(self) -> None:
        """Free memory and file."""
        self._chunks.clear()
        if self._file is not None:
            with contextlib.suppress(OSError):  # unwritten bytes of a file that nobody will read
                self._file.close()
            self._file = None

    def _roll_over(self) -> None:
        # Beside the archive and not in /tmp, which is memory on many machines. It has no name, so that a
        # killed recorder leaves nothing behind.
        file = cast(BinaryIO, tempfile.TemporaryFile(dir=self._directory, buffering=1 << 16))  # noqa: SIM115
        self._file = file
        file.write(b"".join(self._chunks))
        self._chunks.clear()

    @property
    def payload_size(self) -> int:
        """The number of bytes that tell the client something."""
        return self.size


class EventSpool(Spool):
    """The body of an event stream. Its comments, which keep the connection open, say nothing (HTML standard, 9.2.6)."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._said = 0
        # the last chunk had only the start of a comment, and of any line
        self._comment = self._within = False
        self._event = False  # an event has begun, which an empty line ends

    def tee(self, chunk: bytes) -> bytes:
        for line in chunk.splitlines(keepends=True):
            self._comment = self._comment if self._within else line.startswith(b":")
            filled = self._within or bool(line.strip(b"\r\n"))
            self._within = not line.endswith((b"\r", b"\n"))
            if not self._comment and (filled or self._event):
                self._said += len(line)
                self._event = filled
        return super().tee(chunk)

    @property
    def payload_size(self) -> int:
        return self._said


@dataclass(slots=True)
class Draft:
    """An exchange under way, complete once `end` is set and the response's parts are filled in."""

    session: str
    begin: int
    method: str
    url: str
    authority: str
    started: datetime
    client: str = ""  # id of the client's connection
    flow: str = ""  # its flow's id
    awaited: bool = True  # whether a page waits for it (event streams and web sockets never end)
    outlasts: bool = (
        False  # whether it goes on when its client leaves (mitmproxy_compat.lifetime.OutlivingResponses)
    )
    client_left: bool = False  # whether its client has, and it goes on
    request_spool: Spool | None = None
    response_spool: Spool | None = None
    request_fields: Fields = ()
    request_content: bytes = b""
    status: int = 0
    reason: str = ""
    fields: Fields = ()
    content: bytes = b""
    end: int = 0
    queued_at: float = 0.0  # time.monotonic()
    protocol: str = "http/1.1"
    ip: str | None = None
    extra: dict[str, str] = field(default_factory=dict)
    # the last event before each message of a web socket
    message_events: list[int] = field(default_factory=list)
    message_bytes: int = 0  # bytes of all messages
    left_out: int = 0  # messages above the bounds
    # steps done when a view was seen -> messages of a web socket
    looks: dict[int, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The bytes of both bodies that are in memory."""
        held = len(self.request_content) + len(self.content)
        for spool in (self.request_spool, self.response_spool):
            held += min(spool.size, SPOOL_BYTES) if spool else 0
        return held

    def exchange(self) -> Exchange:
        """Return the exchange for the writer. Reads a spooled request body into memory; raises OSError if it is lost.

        Raises ValueError for a body that is packed by a transfer coding: the record names none, and its bytes would be
        taken for the content itself.
        """
        for fields in (self.request_fields, self.fields):
            for name, value in fields:
                if name.lower() == b"transfer-encoding" and set(_CODING.findall(value.lower())) & PACKED:
                    raise ValueError(
                        f"its body is compressed by the transfer coding {value.decode('latin-1')!r}"
                    )
        sent = self.request_content
        if self.request_spool is not None:
            spooled = self.request_spool.body()
            sent = spooled if isinstance(spooled, bytes) else spooled.read()
        headers = one_coding(text_headers(self.request_fields))
        if not any(name.lower() == "host" for name, _ in headers):  # HTTP/2 has it as :authority
            headers = (("Host", self.authority), *headers)
        coded = one_coding(text_headers(self.fields))
        coding = next((v for n, v in coded if n.lower() == "content-encoding"), "")
        if coding and (self.response_spool is None or self.response_spool.size <= MOST_UNPACKED):
            body = self._body()
            if half_packed(body if isinstance(body, bytes) else body.read(), coding):
                self.extra.setdefault("WARC-Truncated", "disconnect")
        return Exchange(
            request=Request(self.method, self.url, headers, sent),
            status=self.status,
            reason=_phrase(self.status) if self.protocol == "h2" else self.reason,
            headers=coded,
            body=self._body(),
            started=self.started,
            session=self.session,
            begin=self.begin,
            end=self.end,
            protocol=self.protocol,
            ip=self.ip,
            extra=self.extra,
        )

    def _body(self) -> bytes | BinaryIO:
        return self.response_spool.body() if self.response_spool is not None else self.content

    def break_off(self) -> None:
        """Mark an answer as cut where its client left, but for a model's stream that says that it is done."""
        if (
            self.response_spool is None
            or _DONE.search(self.response_spool.tail(len(b"data: [DONE]\r\n\r\n"))) is None
        ):
            self.extra["WARC-Truncated"] = "disconnect"

    def discard(self) -> None:
        for spool in (self.request_spool, self.response_spool):
            if spool is not None:
                spool.discard()


@dataclass(slots=True)
class SessionLog:
    """The state of one session. Event loop and writing thread each change their own fields only."""

    open: int = 0  # loop: exchanges that a page waits for
    changed: float = 0.0  # loop: when the last one started or ended, time.monotonic()
    queued: int = 0  # loop
    written: int = 0  # writer thread; includes those that could not be written
    captures: list[Capture] = field(default_factory=list)  # writer thread


class ArchiveWriter:
    """Owner of the writing thread. `put` and `room` belong to the event loop, everything else to any thread."""

    def __init__(
        self,
        writer: Writer,
        *,
        redact: Callable[[Exchange], Exchange] | None,
        failed: Callable[[str, str], None],
        on_status: Callable[[], None] | None,
        leave_out: Callable[[Exchange], bool] | None = None,
    ) -> None:
        self.error: Exception | None = None  # what ended the writing: a full disk, a bug
        self.sessions: dict[str, SessionLog] = {}
        self.written = 0
        self.bytes = 0
        self._writer = writer
        self._redact = redact
        self._failed = failed
        self._leave_out = leave_out
        self._on_status = on_status
        self._queue: queue.SimpleQueue[Draft | Callable[[], None] | None] = queue.SimpleQueue()
        self._put = self._put_bytes = 0  # loop
        self._done = self._done_bytes = 0  # writer thread
        self._writing_since = 0.0  # when the exchange that is being written was queued
        self._waiting: list[asyncio.Future[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="stillweb-archive", daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """The number of exchanges that wait to be written."""
        return self._put - self._done

    def session(self, name: str) -> SessionLog:
        """Return the log of a session, made on first use."""
        return self.sessions.setdefault(name, SessionLog())

    def put(self, item: Draft | Callable[[], None]) -> None:
        """Queue a complete exchange, or a function to be called on the writing thread. Never blocks."""
        now = time.monotonic()
        if not self.queued:  # the last write shows no lag
            self._writing_since = now
        self._put += 1
        if isinstance(item, Draft):
            self._put_bytes += item.size
            item.queued_at = now
            self.session(item.session).queued += 1
        self._queue.put(item)

    def room(self) -> Awaitable[None] | None:
        """Return None while the queue is short, else an awaitable that ends when more may be delivered."""
        if not self._lags(1.0):
            return None
        self._loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(waiter)
        self._release()  # where the last one was written in this very moment nobody else would tell
        return waiter

    def _lags(self, share: float) -> bool:
        """Return True if the writing lags by more than that share of any limit."""
        if not self.queued:
            return False
        return (
            self.queued > QUEUE_ITEMS * share
            or self._put_bytes - self._done_bytes > QUEUE_BYTES * share
            or time.monotonic() - self._writing_since > QUEUE_SECONDS * share
        )

    def close(self) -> None:
        """Write what is queued and end the thread. May be called again."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        shown = time.monotonic()
        while True:
            try:
                item = self._queue.get(timeout=STATUS_SECONDS if self._on_status else None)
            except queue.Empty:
                item = _IDLE
            if item is None:
                break
            if isinstance(item, Draft):
                size = item.size
                self._writing_since = item.queued_at
                self._write(item)
                self._done_bytes += size
            elif item is not _IDLE:
                self._call(item)
            if item is not _IDLE:
                self._done += 1
                if self._waiting and self._loop is not None:
                    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                        self._loop.call_soon_threadsafe(self._release)
            if self._on_status and time.monotonic() - shown >= STATUS_SECONDS:
                shown = time.monotonic()
                try:
                    self._on_status()
                except Exception as e:  # noqa: BLE001 -- the caller's: no reason to lose what is recorded
                    self._on_status = None
                    self._failed("recorder", f"its status could not be displayed: {e!r}")

    def _call(self, item: Callable[[], None]) -> None:
        """Call a queued function. Its exceptions must not end the thread."""
        try:
            if self.error is None:
                item()
                return
        except Exception as e:  # noqa: BLE001 -- kept, so that close() raises it in the caller's thread
            self.error = _explained(e)
        self._failed("recorder", f"not archived: {self.error}")

    def _release(self) -> None:
        if not self._lags(RELEASED):
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)

    def _write(self, draft: Draft) -> None:
        log = self.session(draft.session)
        try:
            if self.error is not None:
                self._failed(draft.url, f"not archived: {self.error}")
                return
            exchange = draft.exchange()
            if self._leave_out is not None and self._leave_out(exchange):
                return
            if self._redact is not None:
                exchange = self._redact(exchange)
            capture = self._writer.exchange(exchange)
            log.captures.append(capture)
            self.written += 1
            self.bytes += capture.length
        except (
            ValueError,
            LookupError,
        ) as e:  # an exchange that no archive can hold, such as a broken header
            self._failed(draft.url, f"not archived: {e}")
        except Exception as e:  # noqa: BLE001 -- a full disk or a bug: close() raises it in the caller's thread
            self.error = _explained(e)
            self._failed(draft.url, f"not archived: {self.error}")
        finally:
            draft.discard()
            log.written += 1


def _explained(error: Exception) -> Exception:
    """Return the exception that ended the writing, in plain words if it is the disk's."""
    if isinstance(error, OSError):
        where, reason = error.filename or "the archive", error.strerror or str(error)
        return MissingCapability(f"{where}: can't be written ({reason}); the earlier records are kept")
    return error


def _IDLE() -> None:
    return None


def text_headers(fields: Fields) -> Headers:
    """Return header fields as latin-1 text, the form in which requests and captures hold them."""
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in fields)


def byte_fields(headers: Headers) -> Fields:
    """Return header fields as bytes, the inverse of `text_headers`."""
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers)


def _phrase(status: int) -> str:
    """Return the usual reason phrase of a status; HTTP/2 sends none, and some readers can't do without."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
