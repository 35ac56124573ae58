"""Server-side TLS over memory: bytes in, bytes out, no socket.

A tunnel turns into TLS in the middle of a connection, at a point that the client chooses, and the first TLS
bytes may come together with the CONNECT. So the layer is driven by hand.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable

from stillweb.proxy.net.grease import browsers_suites

READ = 1 << 14  # the most that a record holds; a larger buffer costs an allocation each time


class TlsFailed(Exception):
    """A failed handshake or record. The fatal alert came from the client, or is in `outgoing()`."""


class ServerTls:
    """The server side. `certify(name)` returns the context for another name that the client indicates."""

    def __init__(
        self, context: ssl.SSLContext, certify: Callable[[str], ssl.SSLContext] | None = None
    ) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        if certify is not None and context.sni_callback is None:
            context.sni_callback = _choose
        self.ssl = context.wrap_bio(self._in, self._out, server_side=True)
        self.ssl.stillweb_certify = certify  # type: ignore[attr-defined]
        # Used for each request. The methods of `ssl` only pass the call on, in Python, to this object of C.
        inner = getattr(self.ssl, "_sslobj", self.ssl)
        self._arrived, self._read, self._write, self._leaving = (
            self._in.write, inner.read, inner.write, self._out.read,
        )  # fmt: skip
        self.ready = False
        self.closed = False  # the client has announced that it sends nothing more

    @property
    def protocol(self) -> str:
        """The protocol that ALPN chose; http/1.1 if it chose none."""
        return self.ssl.selected_alpn_protocol() or "http/1.1"

    def feed(self, data: bytes) -> bytes:
        """Process bytes off the wire and return the plaintext. Raises TlsFailed."""
        self._arrived(data)
        try:
            if self.ready:
                plain: bytes = self._read(READ)
                if plain and not self._in.pending:  # one record, the usual case: READ has room for all of it
                    return plain
            else:
                self.ssl.do_handshake()
                self.ready = True
                if not self._in.pending:
                    return b""
                plain = self._read(READ)
            if not self._in.pending and not self.ssl.pending():
                if not plain:
                    self.closed = True
                return plain
            parts = [plain]
            while plain:
                plain = self._more()
                parts.append(plain)
            return b"".join(parts)
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLZeroReturnError:
            self.closed = True
            return b""
        except (ssl.SSLError, OSError) as error:
            raise TlsFailed(_why(error)) from error

    def _more(self) -> bytes:
        try:
            plain: bytes = self._read(READ)
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLZeroReturnError:
            plain = b""
        if not plain:
            self.closed = True
        return plain

    def encrypt(self, data: bytes) -> bytes:
        self._write(data)
        return self._leaving()

    def outgoing(self) -> bytes:
        """Return the layer's own messages: handshakes, tickets, alerts."""
        return self._out.read() if self._out.pending else b""

    def close(self) -> bytes:
        """Return the closing alert."""
        if self.ready:
            with contextlib.suppress(ssl.SSLError, OSError):  # unwrap awaits the client's alert; ours is out
                self.ssl.unwrap()
        return self.outgoing()


def browser(hello: bytes) -> bytes:
    """Return a browser's cipher suites from its ClientHello (RFC 8446, 4.1.2); b"" for other clients.

    They tell one browser from another.
    """
    at = 44 + (hello[43] if len(hello) > 43 else 0)  # record, handshake, version, random, session's id
    size = int.from_bytes(hello[at : at + 2], "big")
    found = hello[at + 2 : at + 2 + size]
    if not size or size % 2 or len(found) < size:
        return b""
    suites = [int.from_bytes(found[n : n + 2], "big") for n in range(0, size, 2)]
    return b"".join(suite.to_bytes(2, "big") for suite in browsers_suites(suites))


def _choose(sslobject: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
    """Switch to the certificate for the name that the client indicates, if it is not the tunnel's."""
    certify = getattr(sslobject, "stillweb_certify", None)
    if name and certify is not None:
        try:
            sslobject.context = certify(name)
        except Exception:  # noqa: BLE001 -- no exception can leave OpenSSL's callback; this alert reports it
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
    return None


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).replace("_", " ").lower() if reason else str(error)
