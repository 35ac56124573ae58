"""What one client's connection is asked: HTTP/1.1 as to a proxy, tunnels, and what is inside them.

How it comes in is the business of `stillweb.proxy.serving.arrivals`, what goes out of `stillweb.proxy.serving.channel`.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from stillweb.proxy.serving import refusing
from stillweb.proxy.serving.arrivals import PATIENCE, Arrivals
from stillweb.proxy.serving.http1 import BadRequest, Message, request_bytes, url_inside, url_outside
from stillweb.proxy.serving.replies import ESTABLISHED, Line, failure
from stillweb.proxy.wire.addresses import (
    AUTHORITY,
    DEFAULT_SESSION,
    OWN_HOST,
    host_of,
    is_absolute,
    session_name,
    site_named,
)
from stillweb.snapshots.request import Request

if TYPE_CHECKING:
    pass

MOST_GIVEN = 1 << 17  # bytes that another process is handed with a connection
WRITTEN = 0.002  # seconds between looks at whether all is written

_PROXY_FIELDS = frozenset({"proxy-authorization", "proxy-connection"})


class Connection(Arrivals):
    """An accepted connection, of which `read` was read already. All its methods run on the gateway's event loop."""

    # Requests

    def _requests(self, raw: bytes | None = None) -> None:
        """Answers the requests that are whole. `raw` are all bytes of what is expected to be one request."""
        message = None
        try:
            while self._busy is None and not self._paused and not self._closing and not self._sniffing:
                message = None
                message = self.parser.pull()
                if message is None:
                    break
                self.deadline = 0.0
                self._answer(message, raw if self.parser.idle else None)
                raw = None
            if self._busy is not None or self._closing:
                return
            if self.parser.expects:
                self.parser.expects = False
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            if not self.parser.idle and not self.deadline:
                self.deadline = time.monotonic() + PATIENCE
        except BadRequest as bad:
            self._refuse(bad, message or self.parser.begun())

    def _refuse(self, bad: BadRequest, message: Message | None) -> None:
        self.hub.malformed += 1
        if message is not None:
            refusing.refuse(self.hub, message, bad, self.line or self._last, self.base)
        self.write(refusing.answer(bad))
        self.close()

    def _answer(self, message: Message, raw: bytes | None) -> None:
        if not self.base and message.target.startswith("/") and self._transport is not None:
            own = self._transport.get_extra_info("sockname")
            # one of a pair of sockets has no port (stillweb.proxy.serving.bridging)
            if site := site_named(message.named.get("host"), own[1] if own else 0):
                message.target = f"http://{site}{message.target}"
        target = message.target
        hub = self.hub
        if self.base:
            if message.method == "CONNECT":
                raise BadRequest("a tunnel within a tunnel")
            line = self.line
            url = url_inside(message, self.base, self._authority)
        elif message.method == "CONNECT":
            self._connect(message)
            return
        elif is_absolute(target):
            name = session_name(message.named.get("proxy-authorization"))
            url = url_outside(message)
            if host_of(url) != OWN_HOST and name is None and hub.challenge:
                self._send(hub.ask_for_name(), message)
                return
            if hub.mine is not None and self._anothers(message, url, name):
                return
            line = hub.answerer.line(name or DEFAULT_SESSION)
            if line is not self._last:
                line.clients += 1
                if self._last is not None:
                    self._last.clients -= 1
                self._last = line
        elif target.startswith("/"):
            line = None
            url = f"http://{OWN_HOST}{target}"
        else:
            raise BadRequest("the target of the request is neither a URL nor a path")
        headers = message.headers
        if not _PROXY_FIELDS.isdisjoint(message.named):
            headers = tuple((n, v) for n, v in headers if n.lower() not in _PROXY_FIELDS)
        request = Request(message.method, url, headers, message.body)
        host = host_of(url)
        if host == OWN_HOST or line is None:
            if hub.mine is not None and not self.base:
                self._give_back(message, "")
                return
            message.keep_alive = message.keep_alive and not hub.only_own
            # a browser that was led here by the name, and not through the proxy, says the port, too
            asked = (message.named.get("host") or "").lower()
            through = line is not None or asked == OWN_HOST
            self._send(hub.own_page(request, (OWN_HOST,) if through else ()), message)
            return
        if hub.only_own:  # within a tunnel to our pages
            self._send(failure(request, 421, "Misdirected Request", f"{host} is not answered here"), message)
            return
        if host in hub.answerer.virtual_hosts:
            self._work(self._virtual(request, line, message, host))
            return
        if hub.answerer.waits(request, line):
            self._work(self._later(request, line, message))
            return
        if "upgrade" in message.named and self._converse(request, line):
            return
        settled = raw is not None and message.method == "GET" and message.keep_alive and not message.http10
        key = (self.base, raw) if settled and raw is not None and not message.body else None
        self._send(hub.answerer.answer(request, line, key), message)

    def _converse(self, request: Request, line: Line) -> bool:
        """Becomes a web socket, if one was recorded there."""
        from stillweb.proxy.serving.sockets import STREAM, Socket, handshake, wanted
        from stillweb.proxy.serving.talks import Talk

        if not wanted(request):
            return False
        url = STREAM.sub("", request.url)
        talk = Talk.begin(self.hub.answerer, Request("GET", url, request.headers), line)
        if talk is None:
            return False
        self.write(handshake(request, talk.player.protocol))
        self._socket = Socket(
            url, talk.player, self.write, self.close, talk.strayed, talk.doubted, talk.heard,
            secrets=talk.secrets, marked=url != request.url,
        )  # fmt: skip
        line.opened(self._socket)
        self._socket.start()
        if rest := self.parser.take():
            self._socket.feed(rest)
        return True

    def _connect(self, message: Message) -> None:
        target = message.target
        if target.count(":") > 1 and not target.startswith("["):  # an IPv6 address as some clients write it
            host, _, port = target.rpartition(":")
            target = f"[{host}]:{port}"
        match = AUTHORITY.fullmatch(target)
        if match is None or (match[2] and not 0 < int(match[2]) < 65536):
            raise BadRequest("CONNECT needs host:port")
        name = session_name(message.named.get("proxy-authorization"))
        if name is None and self.hub.challenge and match[1].lower() != OWN_HOST:
            self._send(self.hub.ask_for_name(), message)
            return
        if self.hub.mine is not None and self._anothers(message, f"https://{match[1]}/", name):
            return
        self._authority = match[1] if match[2] in (None, "443") else target
        line = self.hub.answerer.line(name or DEFAULT_SESSION)
        ours = self.hub.only_own or match[1].lower() == OWN_HOST
        if not ours and (refusal := self.hub.answerer.tunnel(self._authority, line)) is not None:
            self._send(refusal, message)
            return
        self.line = line
        line.clients += 1
        self.base = f"?://{self._authority}"
        self._sniffing = True
        self.write(ESTABLISHED)
        if rest := self.parser.take():
            self._sniff(rest)
        else:  # the certificate is minted while the client, most likely, makes its first message of TLS
            asyncio.get_running_loop().call_soon(self._prepare)

    def _anothers(self, message: Message, url: str, name: str | None) -> bool:
        """Gives the connection back where a request on it is for a session of another process, or for our pages."""
        session = "" if host_of(url) == OWN_HOST else name or DEFAULT_SESSION
        assert self.hub.mine is not None
        if session in self.hub.mine:
            return False
        self._give_back(message, session)
        return True

    def _give_back(self, message: Message, session: str) -> None:
        data = request_bytes(message)
        if len(data) + self.parser.buffered > MOST_GIVEN:
            raise BadRequest("too long a request to change the session of its connection: use one for each")
        self._stop_reading()
        self._work(self._go(data, session))

    async def _go(self, data: bytes, session: str) -> None:
        """The connection, once all is written, goes to the process that is to answer, with what was read of it."""
        end = time.monotonic() + PATIENCE
        while self._unsent():
            if time.monotonic() > end:  # the client does not read
                self.abort()
                return
            await asyncio.sleep(WRITTEN)
        if self._transport is not None and self.hub.give_back is not None:
            sock = self._transport.get_extra_info("socket")
            await self.hub.give_back(sock.fileno(), session, data + self.parser.take())
        self.abort()  # ours; the other process has the socket

    async def _later(self, request: Request, line: Line, message: Message) -> None:
        self._holding = True
        await self.hub.answerer.due(request, line)
        self._holding = False
        if "upgrade" in message.named and self._converse(request, line):
            return
        self._send(self.hub.answerer.answer(request, line), message, within=True)

    async def _virtual(self, request: Request, line: Line, message: Message, host: str) -> None:
        reply = await self.hub.virtual(request, line, host)
        self._send(reply, message, within=True)
