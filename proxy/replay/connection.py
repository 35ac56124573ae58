"""One client's connection: HTTP/1.1 proxy requests, tunnels, and the requests inside them.

Input is read in `stillweb.proxy.replay.arrivals`, output is written in `stillweb.proxy.replay.channel`.
"""

from __future__ import annotations

import asyncio
import time

from stillweb.proxy.net.addresses import (
    AUTHORITY,
    DEFAULT_SESSION,
    OWN_HOST,
    host_of,
    is_absolute,
    session_name,
    site_named,
)
from stillweb.proxy.replay import refusing
from stillweb.proxy.replay.arrivals import PATIENCE, Arrivals
from stillweb.proxy.replay.http1 import BadRequest, Message, url_inside, url_outside
from stillweb.proxy.replay.replies import ESTABLISHED, Line
from stillweb.snapshots.request import Request

_PROXY_FIELDS = frozenset({"proxy-authorization", "proxy-connection"})


class Connection(Arrivals):
    """An accepted connection. `read` holds bytes that were already read.

    All methods run on the gateway's event loop.
    """

    # Requests

    def _requests(self, raw: bytes | None = None) -> None:
        """Answer the complete requests. `raw` holds all bytes, if they are expected to be one request."""
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
            if site := site_named(message.named.get("host"), own[1]):
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
            # a browser that was led here by the name, not through the proxy, sends the port as well
            asked = (message.named.get("host") or "").lower()
            through = line is not None or asked == OWN_HOST
            self._send(hub.own_page(request, (OWN_HOST,) if through else ()), message)
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
        """Turn the connection into a web socket. Return False if none was recorded there."""
        from stillweb.proxy.replay.sockets import STREAM, Socket, handshake, wanted
        from stillweb.proxy.replay.talks import Talk

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
        # some clients write IPv6 addresses without brackets
        if target.count(":") > 1 and not target.startswith("["):
            host, _, port = target.rpartition(":")
            target = f"[{host}]:{port}"
        match = AUTHORITY.fullmatch(target)
        if match is None or (match[2] and not 0 < int(match[2]) < 65536):
            raise BadRequest("CONNECT needs host:port")
        name = session_name(message.named.get("proxy-authorization"))
        if name is None and self.hub.challenge and match[1].lower() != OWN_HOST:
            self._send(self.hub.ask_for_name(), message)
            return
        self._authority = match[1] if match[2] in (None, "443") else target
        line = self.hub.answerer.line(name or DEFAULT_SESSION)
        ours = match[1].lower() == OWN_HOST
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
        else:  # mint the certificate while the client, most likely, prepares its ClientHello
            asyncio.get_running_loop().call_soon(self._prepare)

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
