"""The record of a web socket's messages (docs/snapshot.md)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from mitmproxy import http
from mitmproxy.websocket import WebSocketMessage

from stillweb.proxy.net.addresses import public
from stillweb.proxy.record.archive_writer import Draft
from stillweb.proxy.record.redaction import ExchangeRedactor
from stillweb.snapshots.identity.packets import Packets

MOST_MESSAGES, MOST_BYTES = 10_000, 64 << 20  # kept of one web socket; the rest is counted only


@dataclass(frozen=True, slots=True)
class WebSocketRecord:
    """A web socket as it came. `end` is an event number, `close` the (code, reason) of a server that closed it."""

    draft: Draft
    end: int
    messages: Sequence[WebSocketMessage]
    close: tuple[int, str] | None
    protocol: str | None

    @classmethod
    def of(cls, flow: http.HTTPFlow, draft: Draft, end: int) -> WebSocketRecord:
        """Return what a flow's web socket has said until now."""
        socket, answer = flow.websocket, flow.response
        assert socket is not None
        closed = socket.closed_by_client is False and socket.close_code is not None
        return cls(
            draft,
            end,
            socket.messages[: len(draft.heard)],
            (int(socket.close_code or 0), socket.close_reason or "") if closed else None,
            answer.headers.get("Sec-WebSocket-Protocol") if answer is not None else None,
        )

    def record(self, secrets: ExchangeRedactor | None) -> tuple[str, dict[str, object]]:
        """Return the record's address and content without secrets. Runs on the writing thread, as does the learning of them."""
        draft = self.draft
        url = public(draft.url, secrets)
        protocol = None if self.protocol is None else public(self.protocol, secrets)  # some put a token there
        known = secrets.count if secrets is not None else 0
        said = self._said(secrets)
        if secrets is not None and secrets.count > known:  # it may have come up before it was told to be one
            said = self._said(secrets)
        content: dict[str, object] = {
            "url": url,
            "session": draft.session,
            "begin": draft.begin,
            "end": self.end,
            "replayable": not draft.left_out,
            "messages": said,
            "events": draft.heard,
            "times": [round(message.timestamp * 1000) for message in self.messages],
            "left_out": draft.left_out,
        }
        if self.close is not None:
            code, reason = self.close
            told = secrets.told(reason.encode()).decode() if secrets is not None else reason
            content["close"] = [code, told]
        if draft.looks:
            content["looked"] = next(iter(draft.looks.values()))
            content["looks"] = [list(one) for one in draft.looks.items()]
        if protocol is not None:
            content["protocol"] = protocol
        return url, content

    def _said(self, secrets: ExchangeRedactor | None) -> list[dict[str, str]]:
        said: list[dict[str, str]] = []
        packets = Packets(self.protocol or "")
        last = max((n for n, message in enumerate(self.messages) if message.from_client), default=0)
        for number, message in enumerate(self.messages):
            mine, data = message.from_client, message.content
            entry = {"from": "client" if mine else "server"}
            if secrets is not None and mine and not message.is_text:
                # a packet in several messages is kept in the last of them: a secret may be cut
                parts = [one for one in packets.cut(True, data) if isinstance(one, bytes)]
                parts += [packets.rest(True)] if number == last else []
                data = b"".join(secrets.message(self.draft.url, part, from_client=True) for part in parts)
            elif secrets is not None:
                data = secrets.message(self.draft.url, data, from_client=mine)
            if message.is_text:
                entry["text"] = data.decode("utf-8", "surrogateescape")
            else:
                entry["base64"] = base64.b64encode(data).decode("ascii")
            said.append(entry)
        return said
