"""Packets of protocols on web sockets: MQTT's, those of SignalR's hubs and Centrifugo, and the frames of wslink (trame, ParaView).

A packet tells its length, or ends with a mark (JSON); messages end anywhere between or within packets (MQTT 3.1.1, 6). A
packet that is answered holds an id that its client draws or counts, and that the answer repeats: an MQTT packet identifier (2.3.1),
SignalR's invocation id (https://github.com/dotnet/aspnetcore/blob/main/src/SignalR/docs/specs/HubProtocol.md). MQTT's CONNECT holds
the client's id. A frame of wslink begins with four bytes that are drawn for it, and where its part of a message begins
and how long that is (https://github.com/Kitware/wslink/blob/master/python/src/wslink/chunking.py).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from stillweb.snapshots.secrets.detect import PSEUDONYM, parse_mqtt_connect, varint

Payload = str | bytes
_MQTT = ("mqtt", "mqttv3.1")  # subprotocols
_HUB = re.compile(r'\{[^{}]*"protocol": ?"(json|messagepack)"[^{}]*\}\x1e')  # a client's first message
_RECORDS, _LINES = re.compile("[^\x1e]*\x1e|[^\x1e]+"), re.compile("[^\n]+")
_CENTRIFUGO = re.compile(r'\{(?:"id": ?1, ?)?"connect": ?\{.*\}', re.S)  # the same
_CALL = re.compile(rb"[\x93-\x97][\x01-\x05]\x80([\xa1-\xaf]\d{1,15})", re.S)
_WSLINK = re.compile(rb".{4}\0{4}.{4}[\x80-\x8f]\xa6wslink", re.S)  # a frame with the start of a message
_WSLINK_CALL = re.compile(rb"(?<=\xa2id)(?:[\xa0-\xbf]|\xd9.)rpc:[0-9a-z]{1,64}:\d{1,15}", re.S)
_CONNECT = 0x10
# packets that begin with their identifier: by whom it was drawn, the sender or the receiver
_ASKS, _ANSWERS = (0x62, 0x82, 0xA2), (0x40, 0x50, 0x70, 0x90, 0xB0)
_CLEAN = 2  # flag of a CONNECT that goes on with no session of before
_WSLINK_HEAD = 12  # bytes: a drawn number, an offset and a length
_LENGTH = 5  # bytes of a type and a length, of which four tell the length


def payload_text(message: Payload) -> str:
    """Return a message as text, each of its bytes as a character."""
    return message if isinstance(message, str) else message.decode("latin-1")


class Packets:
    """Messages of both sides of a web socket, cut into packets; those of other protocols stay as they are."""

    def __init__(self, protocol: str) -> None:
        self._types = 1 if protocol in _MQTT else None  # bytes before the length
        self._first = True  # the client has said nothing
        self._parts: re.Pattern[str] | None = None  # of a text
        self._rests = {True: bytearray(), False: bytearray()}

    def cut(self, from_client: bool, message: Payload) -> list[Payload]:
        """Return the packets that end in a message of the client (`from_client`) or the server.

        Where a pseudonym stands for a secret, the lengths are still those of the secret: a packet ends with its message.
        """
        if isinstance(message, str):
            if from_client and self._first:
                hub = _HUB.fullmatch(message)
                if hub and hub[1] == "messagepack":
                    self._types = 0
                self._parts = _RECORDS if hub else _LINES if _CENTRIFUGO.fullmatch(message) else None
                self._first = False
            return self._parts.findall(message) if self._parts and message else [message]
        if self._types is None:
            return [bytes(4) + message[4:] if from_client and _WSLINK.match(message) else message]
        data, found, at = self._rests[from_client], list[Payload](), 0
        data += message
        if PSEUDONYM.search(message):
            found, at = [bytes(data)], len(data)
        while at < len(data):
            size, start = varint(data, at + self._types)
            if start < 0 and len(data) - at >= _LENGTH:  # no packet
                start, size = at, len(data) - at
            if start < 0 or start + size > len(data):
                break
            found.append(bytes(data[at : start + size]))
            at = start + size
        del data[:at]
        return found

    @property
    def begun(self) -> int:
        """The number of bytes of the client's packet whose end has not come."""
        return len(self._rests[True])

    def rest(self, from_client: bool) -> bytes:
        """Return the start of a packet whose end was not said."""
        return bytes(self._rests[from_client])


def join_packets(one: Payload, next_packet: Payload) -> Payload:
    """Return two packets that were cut from one message as one again."""
    if isinstance(one, str) and isinstance(next_packet, str):
        return one + ("" if one.endswith("\x1e") else "\n") + next_packet
    assert isinstance(one, bytes)
    assert isinstance(next_packet, bytes)
    return one + next_packet


class NumberedPacket(NamedTuple):
    """A packet with an id. `client`: the id is that of the client, which opens its session."""

    start: bytes
    id: bytes
    rest: bytes
    types: int
    client: bool = False

    def bare(self) -> bytes:
        """Return the packet with zeros for its id and its length, as the pseudonyms in it are of another length than the secrets."""
        return self.start[: self.types] + b"\0" + self.start[self.types :] + b"\0\0" + self.rest

    def with_id(self, own: bytes) -> bytes:
        head, body = self.start[: self.types], self.start[self.types :] + own + self.rest
        return head + _length(len(body)) + body


class WslinkCall(NumberedPacket):
    """A frame of wslink with the number of a call."""

    def with_id(self, own: bytes) -> bytes:
        size = len(self.start) + len(own) + len(self.rest) - _WSLINK_HEAD
        return self.start[:8] + size.to_bytes(4, "little") + self.start[_WSLINK_HEAD:] + own + self.rest

    def bare(self) -> bytes:
        return self.with_id(b"")


def split_numbered(message: bytes, from_client: bool) -> NumberedPacket | None:
    """Return a packet with an id that its client drew, parted at that; None for another message. `from_client`: the client says it."""
    if _WSLINK.match(message):
        number = _WSLINK_CALL.search(message)
        return (
            WslinkCall(message[: number.start()], number[0], message[number.end() :], 0) if number else None
        )
    size, at = varint(message, 1)
    if at > 0 and at + size == len(message) and message[0] != _CONNECT:
        kind, body = message[0], message[at:]
        spot = 0 if kind in (_ASKS if from_client else _ANSWERS) else -1
        if from_client and kind & 0xF0 == 0x30 and kind & 6 in (2, 4):
            spot = 2 + int.from_bytes(body[:2])
        if 0 <= spot <= len(body) - 2:
            return NumberedPacket(message[:1] + body[:spot], body[spot : spot + 2], body[spot + 2 :], 1)
    elif at > 0 and (connect := parse_mqtt_connect(message)) and connect.flags & _CLEAN:
        begin, end = connect.fields[0]
        return NumberedPacket(
            message[:1] + message[at : begin - 2], message[begin - 2 : end], message[end:], 1, True
        )
    size, at = varint(message, 0)
    call = _CALL.match(message, at) if at > 0 and at + size == len(message) else None
    return NumberedPacket(message[at : call.start(1)], call[1], message[call.end(1) :], 0) if call else None


def _length(size: int) -> bytes:
    found = bytearray()
    while size > 127:
        found.append(size & 127 | 128)
        size >>= 7
    return bytes((*found, size))
