"""Clients that do not trust the recorder, told from those that break TLS off once and then try again, as Chromium does."""

from __future__ import annotations

from collections.abc import Callable

from mitmproxy import tls
from mitmproxy.connection import Client

from stillweb.proxy.record.flows import gone
from stillweb.proxy.record.lost import Entry
from stillweb.proxy.wire.grease import browsers_suites


class BreakingAddon:
    """Tells of each handshake that a client broke off, by `failed(url, reason)`.

    That of a browser is taken back, by `settled` of what `failed` gave for it, once the same one (its session, and the
    cipher suites that it names) has come to terms with the same host, and not told from then on. `session_of` gives a
    connection's session.
    """

    def __init__(
        self,
        failed: Callable[[str, str], Entry],
        settled: Callable[[Entry], None],
        session_of: Callable[[str], str],
    ) -> None:
        self._failed = failed
        self._settled = settled
        self._session_of = session_of
        self._hellos: dict[str, tls.ClientHello] = {}  # by connection
        self._broken: dict[tuple[object, ...], list[Entry]] = {}  # by browser and host
        self._trusting: set[tuple[object, ...]] = set()
        self._left: set[str] = set()  # connections whose clients were shown no certificate

    def tls_clienthello(self, data: tls.ClientHelloData) -> None:
        """A client begins TLS."""
        self._hellos[data.context.client.id] = data.client_hello

    def tls_failed_server(self, data: tls.TlsData) -> None:
        """The origin comes first: a client that leaves meanwhile has nothing to mistrust."""
        if gone(data.context.client):
            self._left.add(data.context.client.id)

    def tls_failed_client(self, data: tls.TlsData) -> None:
        """The client does not trust our authority, or broke off. Who says goodbye has changed its mind, as aria2c does with
        connections that it turns out not to need: of a certificate that isn't taken something else is said.
        """
        if "ZeroReturnError" in (data.conn.error or "") or data.context.client.id in self._left:
            return
        host = data.conn.sni or (data.context.server.address or ("?", 0))[0]
        browser = self._browser(data)
        if browser in self._trusting:
            return
        told = self._failed(f"https://{host}/", f"TLS with the client failed: {data.conn.error or 'closed'}")
        if browser is not None:
            self._broken.setdefault(browser, []).append(told)

    def tls_established_client(self, data: tls.TlsData) -> None:
        """The client has taken our certificate."""
        if (browser := self._browser(data)) is not None:
            self._trusting.add(browser)
            for told in self._broken.pop(browser, ()):
                self._settled(told)

    def client_disconnected(self, client: Client) -> None:
        """Forgets a connection."""
        self._hellos.pop(client.id, None)
        self._left.discard(client.id)

    def _browser(self, data: tls.TlsData) -> tuple[object, ...] | None:
        hello = self._hellos.get(data.conn.id)
        suites = browsers_suites(hello.cipher_suites) if hello is not None else ()
        if not suites:
            return None
        return self._session_of(data.conn.id), data.conn.sni, data.context.server.address, *suites
