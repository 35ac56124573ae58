"""Requests that are none, or two: sent to the proxy of a replay, as HTTP/1.1 and as HTTP/2 inside a tunnel."""

from __future__ import annotations

import random
import re
import socket
import ssl
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h2.connection

from benchmarks.damaging.bounded import Found
from benchmarks.damaging.recorded import record
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.replay.gateway import Gateway
from stillweb.proxy.replay.http1 import BadRequest, Parser
from stillweb.snapshots.snapshot import Snapshot

TOGETHER = 40  # inputs of a case
QUIET = 0.4  # seconds after which no more is waited for; a good request is answered in some milliseconds
GOOD = (
    b"GET http://aspen.example/ HTTP/1.1\r\nHost: aspen.example\r\n\r\n",
    b"POST http://tulip.example/form HTTP/1.1\r\nHost: tulip.example\r\nContent-Length: 9\r\n\r\nq=plums&n",
    b"POST http://tulip.example/c HTTP/1.1\r\nHost: tulip.example\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nT: v\r\n\r\n",
    b"HEAD http://birch.example/ HTTP/1.0\r\nHost: birch.example\r\nConnection: keep-alive\r\n\r\n",
)
MARKED = b"GET http://cedar.example/ HTTP/1.1\r\nHost: cedar.example\r\n\r\n"
FIELDS = (
    b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Length : 5\r\n", b" Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: xchunked\r\n", b"Transfer-Encoding: chunked, identity\r\n", b"Transfer-Encoding:\x0bchunked\r\n",
    b"Content-Length: +5\r\n", b"Content-Length: 5, 5\r\n", b"Content-Length: 0x5\r\n", b"Content-Length: 5\r\nContent-Length: 6\r\n",
    b"X: y\n", b"X: y\r", b"X\0: y\r\n", b"Foo\r\n", b": v\r\n", b"Host: b.example\r\n", b"Expect: 100-continue\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"Content-Length: \r\n", b"Upgrade: h2c\r\n",
)  # fmt: skip
BITS = (b"\r", b"\n", b"\0", b" ", b"\t", b"\r\n", b"\r\n\r\n", b":", b"0", b"\x0b", b"\x85", MARKED)


@dataclass(frozen=True, slots=True)
class WireCase:
    """A number of inputs of one kind."""

    form: str  # "HTTP/1.1", "HTTP/1.1 in pieces" or "HTTP/2"
    seed: int

    @property
    def name(self) -> str:
        return f"{self.form}: seed {self.seed}"


def wire_cases(seeds: int) -> Iterator[WireCase]:
    """Some of each kind."""
    for seed in range(seeds):
        for form in ("HTTP/1.1 in pieces", "HTTP/1.1", "HTTP/2"):
            yield WireCase(form, seed)


def spoilt(chance: random.Random) -> bytes:
    """A request or three, one of which is not as it should be."""
    all_ = [chance.choice(GOOD) for _ in range(chance.randrange(1, 4))]
    at = chance.randrange(len(all_))
    one = all_[at]
    for _ in range(chance.randrange(1, 3)):
        place, other = chance.randrange(len(one)), chance.randrange(len(one))
        lines = one.find(b"\r\n") + 2
        one = chance.choice(
            (
                one[:place] + bytes([one[place] ^ 1 << chance.randrange(8)]) + one[place + 1 :],
                one[:place] + chance.choice(BITS) + one[place:],
                one[:lines] + chance.choice(FIELDS) + one[lines:],
                one[:lines] + chance.choice(FIELDS) + one[lines:],
                one[:place] + one[place + chance.randrange(1, 8) :],
                one.replace(b"\r\n", b"\n", chance.randrange(1, 3)),
                one[:place] + one[other : other + 10] + one[place:],
            )
        )
        one = one or b"\r\n"
    all_[at] = one
    return b"".join(all_)


def read(data: bytes, cuts: list[int]) -> tuple[list[tuple[str, str, bytes]], bool]:
    """The requests in some bytes that come in pieces, and whether they end in what is refused."""
    parser, found, at = Parser(), [], 0
    try:
        for cut in [*cuts, len(data)]:
            parser.feed(data[at:cut])
            at = cut
            while (message := parser.pull()) is not None:
                found.append((message.method, message.target, message.body))
    except BadRequest:
        return found, True
    return found, False


def in_pieces(seed: int) -> Found:
    """However the bytes are cut, the same requests are read, and nothing but a refusal is raised."""
    found: Counter[str] = Counter()
    chance = random.Random(seed)
    for _ in range(TOGETHER * 20):
        data = spoilt(chance)
        cuts = sorted(chance.randrange(len(data) + 1) for _ in range(4))
        if read(data, []) != read(data, cuts):
            found[f"desync: {data!r} cut at {cuts}"] += 1
    return dict(found)


def try_wire(case: WireCase) -> Found:
    """What a gateway does with it."""
    if case.form == "HTTP/1.1 in pieces":
        return in_pieces(case.seed)
    chance = random.Random(case.name)
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="stillweb-damage-") as folder:
        authority = Authority.load_or_create(Path(folder) / "state")
        with (
            Snapshot.open(record(Path(folder) / "site")) as snapshot,
            Gateway(snapshot, authority=authority) as gateway,
        ):
            whole = _exchange(gateway, MARKED)
            for _ in range(TOGETHER):
                data = spoilt(chance) if case.form == "HTTP/1.1" else _frames(chance)
                if case.form == "HTTP/1.1":
                    found += _judged(data, _exchange(gateway, data))
                else:
                    _tunnelled(gateway, data)
                if _exchange(gateway, MARKED) != whole:
                    found[f"desync: the next client has another answer after {data!r}"] += 1
            if gateway.stats.failures:
                found[f"failed: {gateway._hub.failures[-1]}"] += gateway.stats.failures
    return dict(found)


def _judged(data: bytes, came: bytes) -> Counter[str]:
    """No more answers than requests that are plainly there, and one at least for each that came to its end."""
    requests, refused = read(data, [])
    heads = re.findall(rb"(?m)^HTTP/1\.1 ([0-9]{3}) ", came)
    answers = [status for status in heads if not status.startswith(b"1")]
    if len(answers) > len(requests) + 1:  # an end in the middle of a request is told, too
        return Counter({f"desync: {len(answers)} answers to {len(requests)} requests: {data!r}": 1})
    if not answers and (requests or refused):
        return Counter({f"silence: {data!r}": 1})
    return Counter()


def _exchange(gateway: Gateway, data: bytes) -> bytes:
    """What comes back until all is quiet."""
    out = b""
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as sock:
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while piece := sock.recv(1 << 16):
                out += piece
        except OSError:
            pass
    return out


def _tunnelled(gateway: Gateway, data: bytes) -> None:
    """Sends bytes where HTTP/2 is spoken, and reads what comes."""
    context = ssl.create_default_context(cafile=gateway.ca_path)
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=10) as sock:
        sock.sendall(b"CONNECT beech.example:443 HTTP/1.1\r\nHost: beech.example\r\n\r\n")
        while not sock.recv(1 << 12).endswith(b"\r\n\r\n"):
            pass
        try:
            with context.wrap_socket(sock, server_hostname="beech.example") as inside:
                inside.settimeout(QUIET)
                inside.sendall(data)
                while inside.recv(1 << 16):
                    pass
        except OSError:
            return


def _frames(chance: random.Random) -> bytes:
    """What a client of HTTP/2 sends for some requests, some of it spoilt."""
    client = h2.connection.H2Connection()
    client.initiate_connection()
    pieces = [client.data_to_send()]
    for number in range(chance.randrange(1, 4)):
        stream = client.get_next_available_stream_id()
        head = [(":method", "POST"), (":scheme", "https"), (":authority", "beech.example"), (":path", "/two")]
        client.send_headers(stream, head)
        client.send_data(stream, b"x" * chance.randrange(1, 2000), end_stream=True)
        client.ping(b"%08d" % number)
        pieces.append(client.data_to_send())
    data = b"".join(pieces)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(24 if chance.random() < 0.9 else 0, len(data))
        size = chance.randrange(1, 30)
        data = chance.choice(
            (
                data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :],
                data[:at] + chance.randbytes(size) + data[at + size :],
                data[:at] + data[at + size :],
                data[: at + size] + data[at:],
            )
        )
    return data
