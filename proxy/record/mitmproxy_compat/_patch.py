"""The table of all changes to mitmproxy and to what it reads with, and the check of the functions that they change.

A recorder makes each object of mitmproxy from a class of its own: the subclass of all changes to that class, in the
order of the table. Changes that no subclass could serve are in place while any recorder runs.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import json
import textwrap
import threading
import types
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from importlib import metadata, resources
from typing import Any, TypeVar, cast

import mitmproxy.ctx
import wsproto.extensions
from mitmproxy import addonmanager, http, master
from mitmproxy.net.http.http1 import read
from mitmproxy.proxy import mode_servers, server
from mitmproxy.proxy.layers import http as layers
from mitmproxy.proxy.layers import modes, tls
from mitmproxy.proxy.layers import websocket as sockets
from mitmproxy.proxy.layers.http import _http1, _http2, _http_h2
from mitmproxy.proxy.mode_servers import ProxyConnectionHandler

from stillweb.proxy.record.mitmproxy_compat import (
    dispatch,
    http1,
    http2,
    lifetime,
    next_layer,
    turns,
    websocket,
)
from stillweb.snapshots.errors import MissingCapability

KNOWN = "known_functions.json"  # beside this module; made by tests/proxy/record/known_functions.py

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InPlace:
    """An attribute of a library that is replaced while any recorder runs."""

    owner: object
    name: str
    value: object


@dataclass(frozen=True, slots=True)
class Patch:
    """A behaviour of mitmproxy that recording changes. A change applies to every subclass of the class that it extends."""

    name: str
    changes: tuple[type | InPlace, ...]
    why: str
    upstream: str  # an issue or pull request, or "none"
    drop_when: str  # what a newer version must do


# The first is the outermost: its methods are called before those below it. The order matters in four places.
# - "retries" sees each byte and each answer before "response heads" and "response fields" take any of them away.
# - "chunked responses" replaces h11's reader before "trailers" wraps it.
# - "soft ends" looks for the last exchange of a connection after "response fields" and "resets" may have failed it.
# - "own connections" makes the connection that "unread bodies", "response fields" and "long heads" set up, and so is last.
PATCHES = (
    Patch(
        "turns",
        (turns.FramesInTurns, turns.MessagesInTurns, turns.Turns, turns.ReadsInTurns),
        "All that was read at once of a connection is handled before any other connection has its turn.",
        "none",
        "mitmproxy yields to its event loop between frames and chunks",
    ),
    Patch(
        "retries",
        (lifetime.ClosedUnanswered, lifetime.ClosedUnansweredH2, lifetime.Retries),
        "A request on a kept connection that its origin is just closing is answered by a 502.",
        "https://github.com/mitmproxy/mitmproxy/issues/3038 (closed, not for this case)",
        "mitmproxy sends such a request again on a new connection",
    ),
    Patch(
        "response heads",
        (http1.ResponseHeads,),
        "A 103 (or an unasked 100) is taken for the answer; an answer that browsers read is a 502, or read otherwise "
        "than they do; the message of a head that breaks off quotes its bytes.",
        "https://github.com/mitmproxy/mitmproxy/issues/2229 (interim answers; closed without a change)",
        "mitmproxy passes interim answers over or on, and reads a head with a line that is not a field",
    ),
    Patch(
        "request heads",
        (http1.RequestHeads,),
        "Requests behind empty lines, with unescaped UTF-8, a user, no path, ws: or a bare IPv6 address get a 400.",
        "none",
        "mitmproxy reads all of these",
    ),
    Patch(
        "refused requests",
        (http1.RefusedHeads, http1.UnknownDestinations, http2.RefusedConnections),
        "A request that mitmproxy refuses while it reads it is logged, but no add-on hears of it; a head with a CR alone is awaited or passed on.",
        "none",
        "there is a hook for refused requests",
    ),
    Patch(
        "broken connections",
        (http1.BrokenConnections, http1.BrokenBodies),
        "A body that lasts until the connection ends is taken for whole where the connection was reset.",
        "none",
        "ConnectionClosed says whether the connection was closed or broke",
    ),
    Patch(
        "chunked responses",
        (http1.ChunkedResponses,),
        "h11 refuses chunks that browsers read: lines that end in LF alone, odd extensions and trailers.",
        "none",
        "h11 reads them, or mitmproxy has a reader that does",
    ),
    Patch(
        "trailers",
        (http1.Trailers,),
        "The trailers of an HTTP/1 message raise NotImplementedError.",
        "https://github.com/mitmproxy/mitmproxy/issues/2474",
        "mitmproxy passes trailers of HTTP/1 on",
    ),
    Patch(
        "failures after continue",
        (http1.FailuresAfterContinue,),
        "Behind mitmproxy's own 100 (Continue), the failure of an origin ends the connection without an answer.",
        "none",
        "a 502 follows a 100 (Continue)",
    ),
    Patch(
        "silent origins",
        (lifetime.SilentOrigins,),
        "A client that leaves is not heard of while its origin says nothing in a TLS handshake.",
        "none",
        "a client's leaving ends connections that it waits for",
    ),
    Patch(
        "outliving responses",
        (lifetime.OutlivingResponses,),
        "An answer ends at its origin when its client leaves, so that no whole one is recorded.",
        "none; that is what a proxy should do",
        "recording has no use for it any more",
    ),
    Patch(
        "half-closed clients",
        (lifetime.HalfClosedClients,),
        "A client that shuts its side behind its request is taken to have left.",
        "none; mitmproxy follows https://github.com/httpwg/http-core/issues/22",
        "mitmproxy answers such a client",
    ),
    Patch(
        "early responses",
        (lifetime.EarlyResponses,),
        "The end of an answer is kept back until the request has come to its own.",
        "none",
        "the end of an answer is passed on as it comes",
    ),
    Patch(
        "cut responses",
        (lifetime.CutResponses, lifetime.ResetConnections),
        "A body of unknown length that breaks off at its origin looks whole to its client.",
        "none",
        "mitmproxy resets the client's connection there",
    ),
    Patch(
        "TLS goodbyes",
        (lifetime.TlsGoodbyes,),
        "A client's TLS connection ends without close_notify, and clients that insist on it take a whole body for cut.",
        "https://github.com/mitmproxy/mitmproxy/issues/7476",
        "TLSLayer.send_close sends close_notify",
    ),
    Patch(
        "TLS alerts",
        (InPlace(tls.ServerTLSLayer, "receive_data", lifetime.receive_tls_data),),
        "A request hangs if its origin ended the connection with a TLS alert: a client's certificate that is missing.",
        "none",
        "TLSLayer.receive_close tells an alert from close_notify",
    ),
    Patch(
        "held responses",
        (lifetime.HeldResponses,),
        "An answer that is held until it is whole is held for ever if it has no end.",
        "none",
        "an add-on can have an answer streamed that has begun",
    ),
    Patch(
        "soft ends",
        (http2.EndingOrigins, http2.EndingClients, http2.OpenConnections, http2.SoftEnds),
        "A GOAWAY without an error breaks off all that is under way on its connection.",
        "none; a comment in Http2Connection.handle_h2_event says so",
        "streams up to the last one of a GOAWAY go on",
    ),
    Patch(
        "response fields",
        (http2.ResponseFields, http2.UncheckedLengths),
        "One field or length that breaks the rules ends an origin's connection, with all that is under way on it.",
        "none",
        "only the exchange fails, and fields of HTTP/1 connections are passed over",
    ),
    Patch(
        "resets",
        (http2.ResetResponses,),
        "An origin's reset is taken for the client's, and takes back an answer that is whole.",
        "none",
        "an origin's reset is named so, and ends no exchange that has its answer",
    ),
    Patch(
        "queued requests",
        (http2.QueuedRequests,),
        "A request that was taken back before a stream was free for it is kept, and sent later.",
        "none",
        "a reset takes a request out of the queue",
    ),
    Patch(
        "unread bodies",
        (http2.UnreadBodies,),
        "All that the peer of an HTTP/2 stream does not read is kept in memory.",
        "none",
        "mitmproxy reads no further for a stream whose window is closed",
    ),
    Patch(
        "long heads",
        (http2.LongHeads,),
        "A head of more than 64 KiB ends an HTTP/2 connection; browsers take and send 256 KiB.",
        "none",
        "an option says how long a head may be",
    ),
    Patch(
        "own connections",
        (http2.OwnConnections,),
        "All HTTP/2 connections share one configuration, and their class can't be chosen.",
        "none",
        "the class can be chosen",
    ),
    Patch(
        "pings within messages",
        (InPlace(wsproto.extensions, "PerMessageDeflate", websocket.PingsWithinMessages),),
        "A ping between the frames of a packed message makes wsproto forget that the message is packed.",
        "https://github.com/python-hyper/wsproto/pull/205",
        "wsproto reads such a message",
    ),
    Patch(
        "whole frames",
        (InPlace(sockets, "WebsocketConnection", websocket.WholeFrames),),
        "A web socket's message is joined piece by piece, in the square of its size, and without a bound; a drop becomes a clean close.",
        "none",
        "mitmproxy has a bound for messages, keeps their pieces apart, and passes on a drop",
    ),
    Patch(
        "steady clock",
        tuple(InPlace(module, "time", lifetime.SteadyClock) for module in (server, layers, read, _http2)),
        "A clock that is set while recording ends connections as idle, and changes how long an answer took.",
        "none",
        "mitmproxy measures durations by a monotonic clock",
    ),
    Patch(
        "context of a thread",
        (InPlace(mitmproxy.ctx, "__class__", dispatch.ContextOfThread),),
        "mitmproxy's add-ons find master and options in a module, so that a process can hold only one recorder.",
        "none",
        "add-ons are given their master",
    ),
    Patch(
        "no self-checks",
        (InPlace(http.MessageData, "__post_init__", dispatch.no_self_check),),
        "mitmproxy checks the types of each message's fields, which takes 8 % of the event loop's time.",
        "none",
        "the check costs nothing, or can be left out",
    ),
)

# What is made by a `Classes`.
BASES: tuple[type, ...] = (
    ProxyConnectionHandler,
    tls.ClientTLSLayer,
    layers.HttpStream,
    _http1.Http1Client,
    _http1.Http1Server,
    _http2.Http2Client,
    _http2.Http2Server,
    _http_h2.BufferedH2Connection,
)

# The subclasses through which the others come into use, and functions whose way of making objects they rely on.
_OUTER: tuple[type, ...] = (
    dispatch.RecordingMaster,
    dispatch.FixedAddons,
    dispatch.RecordingServer,
    dispatch.RecordingProxy,
    dispatch.RecordingNextLayer,
    dispatch.RecordingHttpLayer,
)
_RELIED_ON: tuple[Any, ...] = (
    addonmanager.AddonManager.trigger,
    layers.HttpClient._handle_event,
    layers.HttpLayer.get_connection,
    layers.HttpLayer.register_connection,
    layers.HttpStream._handle_event,
    layers.HttpStream.check_killed,
    master.Master.run,
    mode_servers.ServerInstance.make,
    mode_servers.AsyncioServerInstance.listen,
    modes.HttpProxy._handle_event,
    next_layer.NextLayer._setup_explicit_http_proxy,
    _http1.make_body_reader,
    _http2.Http2Connection._handle_event,
    _http2.Http2Client._handle_event2,
    _http_h2.BufferedH2Connection.receive_data,
)


class Classes:
    """The classes that a recorder uses in place of mitmproxy's, without the patches named in `off`."""

    def __init__(self, off: Collection[str] = ()) -> None:
        self._made = {
            base: types.new_class(base.__name__, (*changes, base))
            if (changes := changes_of(base, off))
            else base
            for base in BASES
        }

    def __call__(self, base: type[T], /) -> type[T]:
        """Return the class to use in place of `base`."""
        return cast("type[T]", self._made[base])


def changes_of(base: type, off: Collection[str] = ()) -> list[type]:
    """Return the changes to a class, outermost first."""
    found = (change for patch in PATCHES if patch.name not in off for change in patch.changes)
    return [change for change in found if isinstance(change, type) and issubclass(base, change.__bases__[0])]


_lock = threading.Lock()
_recorders = 0
_undo = contextlib.ExitStack()


@contextlib.contextmanager
def apply_changes(off: Collection[str] = ()) -> Iterator[None]:
    """Have the changes in place while the context is open; contexts may overlap, also on several threads."""
    global _recorders
    with _lock:
        _recorders += 1
        if _recorders == 1:
            _undo.enter_context(dispatch.quiet_logger())
            for patch in PATCHES:
                for change in patch.changes:
                    if isinstance(change, InPlace) and patch.name not in off:
                        _undo.enter_context(_replaced(change))
    try:
        yield
    finally:
        with _lock:
            _recorders -= 1
            if _recorders == 0:
                _undo.close()


@contextlib.contextmanager
def _replaced(change: InPlace) -> Iterator[None]:
    before = getattr(change.owner, change.name, None)
    if before is None:  # `python -O` leaves mitmproxy's self-checks out
        yield
        return
    setattr(change.owner, change.name, change.value)
    try:
        yield
    finally:
        setattr(change.owner, change.name, before)


# The check of what is changed


def changed_functions() -> dict[str, Callable[..., Any]]:
    """Return the functions that the table changes or relies on, by their full names."""
    found: list[Any] = list(_RELIED_ON)
    for base in BASES:
        for change in changes_of(base):
            found += [getattr(base, name, None) for name in vars(change)]
    for outer in _OUTER:
        parent = outer.__bases__[0]
        found += [getattr(parent, name, None) for name in vars(outer)]
    for patch in PATCHES:
        for place in patch.changes:
            if isinstance(place, InPlace) and isinstance(place.value, type):
                found += [getattr(place.value.__bases__[0], name, None) for name in vars(place.value)]
            elif isinstance(place, InPlace):
                found.append(getattr(place.owner, place.name, None))
    functions = [getattr(one, "__func__", one) for one in found]
    return {
        f"{one.__module__}.{one.__qualname__}": one
        for one in functions
        if inspect.isfunction(one) and one.__module__.partition(".")[0] in {"mitmproxy", "h2", "wsproto"}
    }


def check_versions() -> None:
    """Raise MissingCapability if a function that the table changes is not one that it was written for."""
    known: dict[str, dict[str, str]] = json.loads(resources.files(__package__).joinpath(KNOWN).read_text())
    for name, function in changed_functions().items():
        digests = known.get(name, {})
        if _digest(function) not in digests.values():
            library = name.partition(".")[0]
            raise MissingCapability(
                f"{library} {metadata.version(library)}: {name} is not a function that the recorder knows. "
                f"Install {library} {' or '.join(digests) or 'in a version that is known'}"
            )


@functools.cache
def _digest(function: Callable[..., Any]) -> str:
    try:
        return digest_of(inspect.getsource(function))
    except (OSError, TypeError):  # its source can't be read: reported as unknown
        return ""


def digest_of(source: str) -> str:
    """Return the hash of a function's source text, whatever comes behind it and however far it is indented."""
    lines = textwrap.dedent(source).rstrip().splitlines()
    while lines and lines[-1].lstrip().startswith("#"):
        lines.pop()
    text = "\n".join(line.rstrip() for line in lines).rstrip()
    return hashlib.sha256(text.encode()).hexdigest()[:16]
