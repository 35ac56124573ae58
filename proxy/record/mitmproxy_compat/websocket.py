"""Changes to what reads mitmproxy's web sockets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mitmproxy.proxy import commands
from mitmproxy.proxy.layers.websocket import WebsocketConnection
from wsproto.events import CloseConnection, Event, Message
from wsproto.extensions import PerMessageDeflate
from wsproto.frame_protocol import CloseReason, Opcode

MOST_MESSAGE = 64 << 20  # bytes of a message, which is in memory until it can be passed on
FRAME = 64  # bytes that a frame takes in memory beside its payload
TOO_LARGE = f"stillweb: a message of more than {MOST_MESSAGE:,} bytes"


class PingsWithinMessages(PerMessageDeflate):
    """Unpack a message with a ping or pong between its frames.

    wsproto forgot there that the message is packed: for text it ended the socket, bytes it passed on packed.
    """

    def frame_inbound_header(self, proto: Any, opcode: Opcode, rsv: Any, payload_length: int) -> Any:
        packed = self._inbound_compressed
        answer = super().frame_inbound_header(proto, opcode, rsv, payload_length)
        if opcode.iscontrol():
            self._inbound_compressed = packed
        return answer

    def frame_inbound_complete(self, proto: Any, fin: bool) -> Any:
        return super().frame_inbound_complete(proto, fin) if self._inbound_is_compressible else None


class WholeFrames(WebsocketConnection):
    """Give each frame to mitmproxy at its end; close where a message takes more than MOST_MESSAGE; pass on a drop as one.

    mitmproxy added each piece that was read to the frame so far, in the square of its size and without a bound. A socket that
    one side dropped was closed to the other by a frame of code 1000, after which pages do not connect again.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._pieces: list[Any] = []  # of the current frame
        self._size = 0  # of the current message

    def send2(self, event: Event) -> commands.SendData:
        """Return the command that sends an event: no byte of a close whose code says that there was no frame of it."""
        if isinstance(event, CloseConnection) and event.code == CloseReason.ABNORMAL_CLOSURE:
            return commands.SendData(self.conn, b"")
        return super().send2(event)

    def events(self) -> Iterator[Event]:
        for event in super().events():
            if not isinstance(event, Message):
                yield event
                continue
            self._pieces.append(event.data)
            self._size += len(event.data) + FRAME
            if self._size > MOST_MESSAGE:
                self._pieces, self.frame_buf, self._size = [], [b""], 0
                yield CloseConnection(CloseReason.MESSAGE_TOO_BIG, TOO_LARGE)
                return
            if event.frame_finished:
                whole, self._pieces = type(event.data)().join(self._pieces), []
                if event.message_finished:
                    self._size = 0
                yield replace(event, data=whole)
