"""The load client: kept-alive HTTPS connections, each asking for one page after the other.

Each process drives its share of the connections with non-blocking sockets and epoll; one connection alone is
driven with a blocking socket. `through` is a proxy that is asked for a tunnel first. Every answer is read whole
and its status and length are checked. Requests say `Connection: keep-alive`, as browsers do: in HTTP/1.1 it goes
without saying, but pywb's tunnels answer one request without it, and leave the client waiting with the next.
"""

from __future__ import annotations

import json
import os
import select
import socket
import ssl
import time
from base64 import b64encode
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(slots=True)
class Load:
    """Measurements of a run. Times are in seconds."""

    requests: int
    errors: int
    seconds: float
    rate: float
    p50: float
    p99: float
    bytes: int
    # CPU seconds of the clients in each second: near the number of cores is the client's limit
    client_cpu: float
    first_error: str = ""


class Mismatch(Exception):
    """An answer that is not the right one."""


PATIENCE = 5.0  # seconds for a part of an answer


class _Client:
    """One connection."""

    def __init__(
        self, target: tuple[str, int], through: tuple[str, int] | None, host: str, ca: str | None, user: str
    ) -> None:
        self.sock = socket.create_connection(through or target, timeout=PATIENCE)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if through is not None:
            name = b64encode(f"{user}:x".encode()).decode()
            self.sock.sendall(
                f"CONNECT {host}:{target[1]} HTTP/1.1\r\nHost: {host}:{target[1]}\r\n"
                f"Proxy-Authorization: Basic {name}\r\n\r\n".encode()
            )
            head = b""
            while b"\r\n\r\n" not in head:
                piece = self.sock.recv(4096)
                if not piece:
                    raise Mismatch(f"the proxy hung up: {head!r}")
                head += piece
            if b" 200 " not in head.split(b"\r\n")[0] + b" ":
                raise Mismatch(f"the proxy said {head!r}")
        if ca is not None:
            self.sock = _context(ca).wrap_socket(self.sock, server_hostname=host)
        self.began = 0.0
        self.want = -1  # bytes of the answer still to come, -1 before its head is known
        self.buffer = b""
        self.size = 0

    def take(self, data: bytes, expected: int) -> bool:
        """More of an answer; True when it is whole."""
        self.size += len(data)
        if self.want < 0:
            self.buffer = data = self.buffer + data if self.buffer else data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                return False
            if data[9:12] != b"200":
                raise Mismatch(f"answered {data[:end][:200]!r}")
            head = data[: end + 2].lower()
            at = head.find(b"\r\ncontent-length:")
            if at < 0 and b"\r\ntransfer-encoding: chunked" in head:
                self.buffer = data
                return data.endswith(b"\r\n0\r\n\r\n") and self._done()
            if at < 0:
                raise Mismatch(f"no Content-Length: {data[:end]!r}")
            length = int(head[at + 17 : head.find(b"\r", at + 2)])
            if length != expected and expected >= 0:
                raise Mismatch(f"{length} bytes instead of {expected}")
            self.want = length - (len(data) - end - 4)
            self.buffer = b""
        else:
            self.want -= len(data)
        if self.want == 0:
            self.want = -1
            return True
        if self.want < 0:
            raise Mismatch("more bytes than announced")
        return False

    def _done(self) -> bool:
        self.buffer = b""
        return True


_contexts: dict[bytes, ssl.SSLContext] = {}


def _context(ca: str) -> ssl.SSLContext:
    """Trusts that authority. Names are not compared: not every peer can certify an IP address."""
    with open(ca, "rb") as file:
        pem = file.read()
    if pem not in _contexts:
        _contexts[pem] = ssl.create_default_context(cafile=ca)
        _contexts[pem].check_hostname = False
        _contexts[pem].set_alpn_protocols(["http/1.1"])
    return _contexts[pem]


def _drive(job: dict, share: int, number: int) -> dict:
    """The work of one process."""
    urls = job["urls"]
    parts = urlsplit(job["base"])
    host = parts.hostname or ""
    target = (job.get("connect") or host, parts.port or 443)
    through = tuple(job["through"]) if job.get("through") else None
    requests = []
    for path, size in urls:
        raw = (
            f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUser-Agent: stillweb-bench/1\r\n"
            "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\nAccept-Encoding: gzip, deflate, br\r\n"
            "Accept-Language: en-US,en;q=0.5\r\nConnection: keep-alive\r\n\r\n"
        )
        requests.append((raw.encode(), size))

    def make(index: int) -> _Client:
        user = job["users"][(number * share + index) % len(job["users"])]
        return _Client(target, through, host, job.get("ca"), user)

    clients = [make(index) for index in range(share)]
    _barrier(job, number)
    latencies: list[float] = []
    errors = 0
    first = ""
    count = len(requests)
    at = (job["start"] + number * count // job["processes"]) % count
    clock = time.perf_counter
    start = clock()
    end = start + job["seconds"]
    total = 0
    if share == 1:
        client: _Client | None = clients[0]
        fresh = job["fresh"]
        while (began := clock()) < end:
            raw, size = requests[at]
            at = at + 1 if at + 1 < count else 0
            try:
                if client is None:
                    client = make(0)
                sock = client.sock
                sock.sendall(raw)
                while not client.take(_some(sock), size):
                    pass
            except (OSError, Mismatch) as error:
                errors += 1
                first = first or f"{type(error).__name__}: {error}"
                if not fresh:
                    break
            else:
                latencies.append(clock() - began)
            if fresh:  # a server that does not keep connections: its cost is its own
                if client is not None:
                    total += client.size
                    client.sock.close()
                client = None
        if client is not None:
            total += client.size
        clients = []
    else:
        poll = select.epoll()
        by_fd = {}
        for client in clients:
            client.sock.setblocking(False)
            poll.register(client.sock.fileno(), select.EPOLLIN)
            by_fd[client.sock.fileno()] = (client, client.sock)
        wanted = {}

        def ask(client: _Client, now: float) -> None:
            nonlocal at
            raw, size = requests[at]
            at = at + 1 if at + 1 < count else 0
            client.began = now
            wanted[client] = size
            client.sock.send(raw)

        for client in clients:
            ask(client, clock())
        live = len(clients)
        while live:
            for fd, _ in poll.poll(10):
                client, sock = by_fd[fd]
                try:
                    while True:
                        data = sock.recv(1 << 18)
                        if not data:
                            raise Mismatch("the server hung up")
                        if client.take(data, wanted[client]):
                            now = clock()
                            latencies.append(now - client.began)
                            if now < end:
                                ask(client, now)
                            else:
                                live -= 1
                                poll.unregister(fd)
                            break
                        if getattr(sock, "pending", int)() == 0:
                            break
                except (ssl.SSLWantReadError, BlockingIOError):
                    continue
                except (OSError, Mismatch) as error:
                    errors += 1
                    first = first or f"{type(error).__name__}: {error}"
                    live -= 1
                    poll.unregister(fd)
            if clock() > end + 10:
                errors += live
                first = first or "no answer in 10 seconds"
                break
        total = sum(c.size for c in clients)
    # an answer that never came is an error; its wait is no part of what the server did in the time it had
    seconds = min(clock() - start, job["seconds"]) if errors else clock() - start
    cpu = time.process_time()
    for client in clients:
        client.sock.close()
    latencies.sort()
    return {
        "requests": len(latencies),
        "errors": errors,
        "seconds": seconds,
        "latencies": latencies[:: max(1, len(latencies) // 20000)],
        "bytes": total,
        "cpu": cpu,
        "first": first,
    }


def _some(sock: socket.socket) -> bytes:
    data = sock.recv(1 << 18)
    if not data:
        raise Mismatch("the server hung up")
    return data


def _barrier(job: dict, number: int) -> None:
    """Wait until the parent closes the pipe, so that all processes begin together."""
    os.write(job["ready"], b"r")
    os.read(job["go"], 1)


def run(
    base: str,
    urls: list[tuple[str, int]],
    *,
    connections: int,
    seconds: float,
    ca: str | None = None,
    through: tuple[str, int] | None = None,
    connect: str | None = None,
    users: tuple[str, ...] = ("default",),
    processes: int | None = None,
    fresh: bool = False,
    start: int = 0,
) -> Load:
    """Loads `base` + each path of `urls` (with the length that the body must have, -1: any) for some seconds.

    The processes begin at `start` and at places spread over the list. With `fresh` each request has a connection
    of its own, for servers that keep none; that needs a process for each connection.
    """
    processes = processes or min(connections, 8)
    ready_read, ready_write = os.pipe()
    go_read, go_write = os.pipe()
    job = {
        "base": base,
        "urls": urls,
        "seconds": seconds,
        "ca": ca,
        "through": through,
        "connect": connect,
        "users": users,
        "fresh": fresh,
        "start": start,
        "processes": processes,
        "ready": ready_write,
        "go": go_read,
    }
    pipes = []
    for number in range(processes):
        share = connections // processes + (1 if number < connections % processes else 0)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(read)
                try:
                    result = _drive(job, share, number)
                except (OSError, Mismatch) as error:
                    os.write(ready_write, b"r")
                    result = {
                        "requests": 0,
                        "errors": share,
                        "seconds": 0.0,
                        "latencies": [],
                        "bytes": 0,
                        "cpu": 0.0,
                        "first": f"{type(error).__name__}: {error}",
                    }
                with os.fdopen(write, "w") as out:
                    json.dump(result, out)
                code = 0
            finally:
                os._exit(code)
        os.close(write)
        pipes.append((pid, read))
    for _ in pipes:
        os.read(ready_read, 1)
    os.write(go_write, b"g" * processes)
    results = []
    for pid, read in pipes:
        with os.fdopen(read) as file:
            text = file.read()
        os.waitpid(pid, 0)
        results.append(json.loads(text))
    for fd in (ready_read, ready_write, go_read, go_write):
        os.close(fd)
    latencies = sorted(x for r in results for x in r["latencies"])
    wall = max((r["seconds"] for r in results), default=0) or 1.0
    done = sum(r["requests"] for r in results)
    return Load(
        done,
        sum(r["errors"] for r in results),
        wall,
        done / wall,
        latencies[len(latencies) // 2] if latencies else 0.0,
        latencies[int(len(latencies) * 0.99)] if latencies else 0.0,
        sum(r["bytes"] for r in results),
        sum(r["cpu"] for r in results) / wall,
        next((r["first"] for r in results if r["first"]), ""),
    )


def keeps_alive(
    base: str,
    path: str,
    *,
    ca: str | None,
    through: tuple[str, int] | None,
    connect: str | None,
    times: int = 2,
) -> bool:
    """Return True if a server answers a second request on a connection. Raises OSError or Mismatch if it answers none."""
    parts = urlsplit(base)
    host = parts.hostname or ""
    head = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: */*\r\nConnection: keep-alive\r\n\r\n"
    raw = head.encode()
    client = _Client((connect or host, parts.port or 443), through, host, ca, "default")
    try:
        for number in range(times):
            try:
                client.sock.settimeout(3 if number else 30)
                client.sock.sendall(raw)
                while not client.take(_some(client.sock), -1):
                    pass
            except (OSError, Mismatch):
                if number:
                    return False
                raise
        return True
    finally:
        client.sock.close()
