"""A change to wsproto, which reads mitmproxy's web sockets."""

from __future__ import annotations

from typing import Any

from wsproto.extensions import PerMessageDeflate
from wsproto.frame_protocol import Opcode


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
