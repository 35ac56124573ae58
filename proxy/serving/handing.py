"""A connection handed from one process to another: its socket, whose it is, and what was read from it already."""

from __future__ import annotations

import errno
import socket

from stillweb.proxy.serving.http1 import MAX_HEAD

MESSAGE = MAX_HEAD + (1 << 17)  # bytes: a head, and what came with it


def channel() -> tuple[socket.socket, socket.socket]:
    """The two ends of what connections are handed over by."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MESSAGE)
    return ends


def hand(over: socket.socket, fd: int, session: str, data: bytes) -> None:
    """Hands a socket over; `session` "" is none, for our own pages. Raises OSError."""
    socket.send_fds(over, [session.encode() + b"\n" + data], [fd])


def taken(over: socket.socket) -> tuple[socket.socket, str, bytes] | None:
    """What has been handed over, None if there is nothing. Raises EOFError when the other process is gone.

    And OSError for a connection that is lost, since this process may open no more files.
    """
    try:
        data, fds, _, _ = socket.recv_fds(over, MESSAGE, 1, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except OSError:
        raise EOFError from None
    if not fds:
        if data:  # recvmsg(2), MSG_CTRUNC: the message comes, its descriptor doesn't
            raise OSError(errno.EMFILE, "a connection was closed unanswered: too many open files")
        raise EOFError
    session, _, data = data.partition(b"\n")
    sock = socket.socket(fileno=fds[0])
    sock.setblocking(False)
    return sock, session.decode(), data
