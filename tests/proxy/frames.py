"""HTTP/2 frame by frame: an origin, and a client of a recorder."""

import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import h2.connection
from hpack import Decoder, Encoder
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, HeadersFrame, RstStreamFrame, SettingsFrame

from stillweb.proxy.record.recorder import Recorder
from tests.proxy.connections import served
from tests.support.waiting import HANG

STATUS = (b":status", b"200")


@dataclass
class Stream:
    """A request that a connection has got, and what can be said to it."""

    say: Callable[[bytes], None]
    encoder: Encoder
    number: int
    method: str
    path: str

    def head(self, *more: tuple[bytes, bytes]) -> None:
        self.say(
            HeadersFrame(self.number, self.encoder.encode([STATUS, *more]), flags=["END_HEADERS"]).serialize()
        )

    def body(self, data: bytes, *, end: bool = True) -> None:
        self.say(DataFrame(self.number, data, flags=["END_STREAM"] if end else []).serialize())

    def trailers(self, *fields: tuple[bytes, bytes]) -> None:
        data = self.encoder.encode(list(fields))
        self.say(HeadersFrame(self.number, data, flags=["END_HEADERS", "END_STREAM"]).serialize())

    def go_away(self, last: int) -> None:
        self.say(GoAwayFrame(0, last_stream_id=last).serialize())

    def reset(self, code: int) -> None:
        self.say(RstStreamFrame(self.number, code).serialize())


@dataclass
class Origin:
    """Hands each whole request to `answer(connection's number, stream)`; one for /early before its body."""

    answer: Callable[[int, Stream], None]
    context: ssl.SSLContext
    got: list[tuple[int, str, str]] = field(default_factory=list)  # connection, method, path
    resets: list[int] = field(default_factory=list)  # streams that were reset

    def serving(self) -> contextlib.AbstractContextManager[int]:
        return served(self._serve)

    def _serve(self, number: int, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), self.context.wrap_socket(connection, server_side=True) as secure:
            reader = secure.makefile("rb")
            reader.read(24)
            secure.sendall(SettingsFrame(0).serialize())
            encoder, decoder = Encoder(), Decoder()
            asked: dict[int, Stream] = {}
            while head := reader.read(9):
                frame, length = Frame.parse_frame_header(memoryview(head))
                frame.parse_body(memoryview(reader.read(length)))
                if isinstance(frame, SettingsFrame) and "ACK" not in frame.flags:
                    secure.sendall(SettingsFrame(0, flags=["ACK"]).serialize())
                if isinstance(frame, RstStreamFrame):
                    self.resets.append(frame.stream_id)
                if isinstance(frame, HeadersFrame):
                    fields = dict(decoder.decode(frame.data))
                    asked[frame.stream_id] = Stream(
                        secure.sendall, encoder, frame.stream_id, fields[":method"], fields[":path"]
                    )
                early = isinstance(frame, HeadersFrame) and fields[":path"] == "/early"
                if early or ("END_STREAM" in frame.flags and frame.stream_id in asked):
                    stream = asked.pop(frame.stream_id)
                    self.got.append((number, stream.method, stream.path))
                    self.answer(number, stream)


@contextlib.contextmanager
def speaking(recorder: Recorder) -> Iterator[tuple[ssl.SSLSocket, h2.connection.H2Connection]]:
    """A client's connection to x.test, frame by frame."""
    context = ssl.create_default_context(cafile=recorder.ca_path)
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", recorder.port), timeout=HANG) as connection:
        connection.sendall(b"CONNECT x.test:443 HTTP/1.1\r\n\r\n")
        while not connection.recv(1 << 16).endswith(b"\r\n\r\n"):
            pass
        with context.wrap_socket(connection, server_hostname="x.test") as secure:
            wire = h2.connection.H2Connection()
            wire.initiate_connection()
            yield secure, wire


def ask(wire: h2.connection.H2Connection, number: int, method: str, path: str) -> None:
    fields = {":method": method, ":scheme": "https", ":authority": "x.test", ":path": path}
    wire.send_headers(number, list(fields.items()), end_stream=method == "GET")
