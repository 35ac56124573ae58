"""What wsproto lacks in reading web sockets, put in while a recorder runs: what comes within a packed message.

A ping (or pong, as Chromium answers one) between two frames of a packed message made it forget that this is packed: of text
it ended the socket, of bytes it passed on and kept the packed ones.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from wsproto.extensions import PerMessageDeflate
from wsproto.frame_protocol import Opcode

from stillweb.proxy.record.patching import Wrapped, wrapped


def _header(original: Wrapped) -> Wrapped:
    def frame_inbound_header(self: Any, proto: Any, opcode: Opcode, *args: Any) -> Any:
        packed = self._inbound_compressed
        answer = original(self, proto, opcode, *args)
        if opcode.iscontrol():
            self._inbound_compressed = packed
        return answer

    return frame_inbound_header


def _complete(original: Wrapped) -> Wrapped:
    def frame_inbound_complete(self: Any, *args: Any) -> Any:
        return original(self, *args) if self._inbound_is_compressible else None

    return frame_inbound_complete


def mended_ws() -> AbstractContextManager[None]:
    """Has it in place while it is open."""
    return wrapped(
        [
            (PerMessageDeflate, "frame_inbound_header", _header),
            (PerMessageDeflate, "frame_inbound_complete", _complete),
        ]
    )
