"""The recorder: mitmproxy in this process, on a thread and event loop of its own, writing a snapshot."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import gc
import ipaddress
import re
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from mitmproxy import exceptions, options

from stillweb.proxy.net.addresses import AUTHORITY, DEFAULT_SESSION, host_port
from stillweb.proxy.net.ca import Authority, client_certificates, system_directory
from stillweb.proxy.net.client_env import (
    add_no_proxy,
    client_environment,
    ports_to_let_in,
    run_command,
    usual_authorities,
)
from stillweb.proxy.net.isolated import run_isolated
from stillweb.proxy.net.open_files import allow_many_open_files
from stillweb.proxy.net.proxy_server import ProxyServer
from stillweb.proxy.net.stream_idle import StreamCounters
from stillweb.proxy.net.upstream import UpstreamProxy, scheme_asked
from stillweb.proxy.record.addon import RecordingAddon
from stillweb.proxy.record.archive_writer import ArchiveWriter
from stillweb.proxy.record.flows import FailedRequests, FailureLog, TlsFailures
from stillweb.proxy.record.mitmproxy_compat._patch import Classes, apply_changes, check_versions
from stillweb.proxy.record.mitmproxy_compat.dispatch import RecordingMaster, logged_errors
from stillweb.proxy.record.redaction import ExchangeRedactor
from stillweb.snapshots.capture import Capture, Exchange
from stillweb.snapshots.errors import MissingCapability, UsageError
from stillweb.snapshots.identity.sites import host_of
from stillweb.snapshots.secrets.redact import Redactor
from stillweb.snapshots.words import pluralize, sized
from stillweb.snapshots.writer import Writer

QUIET_POLL_SECONDS = 0.02


Place = tuple[str, int]


def tune_process() -> None:
    """Set up this whole process for recording: threads switch sooner, garbage is looked for less often.

    For a program that does little else, such as the command line; a recorder changes nothing for its process.
    """
    sys.setswitchinterval(min(sys.getswitchinterval(), 0.0005))
    objects, *older = gc.get_threshold()
    gc.set_threshold(max(objects, 10_000), *older)  # new objects between collections: some exchanges


@dataclass(frozen=True, slots=True)
class RecorderStats:
    """Counts since the start. `bytes` are those of response records as archived (compressed)."""

    requests: int
    under_way: int
    queued: int  # complete, not yet on disk
    captures: int
    failures: int
    aborted: int  # given up by the client
    bytes: int
    sockets: int  # web sockets of which all was written

    def line(self) -> str:
        sockets = [pluralize(self.sockets, "web socket")] if self.sockets else []
        parts = [
            f"{self.captures} captured",
            *sockets,
            sized(self.bytes),
            f"{self.under_way} under way",
            f"{self.queued} queued",
        ]
        if self.failures:
            parts.append(f"{self.failures} failed")
        if self.aborted:
            parts.append(f"{self.aborted} given up by the client")
        return ", ".join(parts)


class Recorder(ProxyServer):
    """A proxy that records all that passes into `writer`. A context manager; several may run in a process.

    `port` 0 takes a free one. `upstream_ca` is a PEM file of authorities trusted besides the usual ones;
    `insecure` accepts any certificate of an origin. `resolve` maps "name" or "name:port" to (host, port) to
    connect to in its place. Unless `private`, no other address is connected to that is not public (loopback, private
    networks, metadata of clouds); such requests fail, and are recorded as failed. `upstream` is the proxy by which
    origins are reached (`UpstreamProxy.of`; None: as HTTP_PROXY and its kin say). `client_cert` is a PEM file of a
    certificate and key for origins that ask for one, or a directory of files HOST.pem. Secrets are replaced by `redactor`
    unless `redact` is False (default: the redactor of the writer's snapshot, which keeps what it learns until the
    snapshot is looked through for it, as sealing does). `on_status` is called with RecorderStats about twice a
    second, on the writing thread. An exchange for which `leave_out` returns True reaches its client, and is not kept.

    Sessions are proxy user names. Browsers give theirs only when asked, so `challenge` makes the proxy ask
    (407); None means: as soon as `proxy_url` has been called with a name other than "default".

    After a failure to write (full disk) the recorder answers 503 and `error` says why; leaving the context
    raises it. What has been written until then is kept.
    """

    def __init__(
        self,
        writer: Writer,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        upstream_ca: Path | None = None,
        insecure: bool = False,
        resolve: Mapping[str, Place] | None = None,
        private: bool = True,
        upstream: str | None = None,
        client_cert: Path | None = None,
        authority: Authority | None = None,
        redactor: Redactor | None = None,
        redact: bool = True,
        challenge: bool | None = None,
        on_status: Callable[[RecorderStats], None] | None = None,
        leave_out: Callable[[Exchange], bool] | None = None,
    ) -> None:
        super().__init__(authority, host, port, challenge)
        self.writer = writer
        self._upstream_ca = upstream_ca
        self._insecure = insecure
        for name, place in (resolve or {}).items():
            if not (isinstance(place, tuple) and [*map(type, place)] == [str, int]):
                raise UsageError(f"resolve: {name!r}: write (address, port), not {place!r}")
        self._resolve = resolve
        self._private = private
        self._upstream = UpstreamProxy.of(upstream)
        self._client_cert = client_cert
        self._scratch = tempfile.TemporaryDirectory(prefix="stillweb-")
        self._listens: Sequence[Any] = ()
        self._started = threading.Event()
        self._start_error: Exception | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._master: RecordingMaster | None = None
        self._closed = False
        secrets: ExchangeRedactor | None = None
        if redact:
            redactor = redactor or Redactor.for_snapshot(writer.path, self.authority.directory, keep=True)
            secrets = ExchangeRedactor(redactor, writer.path)
        # What else goes into the snapshot (a view's DOM and text) must pass it too: `redactor.body(data)`.
        self.redactor = redactor if redact else None
        self._lost = FailureLog(self.redactor)
        self.failures = self._lost.failures  # (URL, reason), without secrets
        self.errands = self._lost.errands  # the same of a browser's own requests
        self.given_up = self._lost.given_up  # URLs of requests that clients gave up, without secrets
        self._archive = ArchiveWriter(
            writer,
            redact=secrets.exchange if secrets else None,
            failed=self._failed,
            on_status=(lambda: on_status(self.stats)) if on_status else None,
            leave_out=leave_out,
        )
        self._unanswered = FailedRequests(writer, secrets)
        self._addon = RecordingAddon(
            self._archive,
            writer=writer,
            failed=self._failed,
            given_up=self._lost.leave,
            unanswered=self._unanswered,
            secrets=secrets,
            authority_pem=self.authority.certificate_pem,
            status=lambda: {"recording": True, **asdict(self.stats)},
            # only the door checks addresses, so that all that must be checked goes through it
            forwarding=self._upstream.forward_address if self._upstream and private else None,
        )
        self._addon.challenge = bool(challenge)
        self._breaking = TlsFailures(self._lost.add, self._lost.settle, self._addon.session_of)

    # Life

    def start(self) -> Recorder:
        """Listen, or raise MissingCapability (port in use, too few files, an unknown mitmproxy), UsageError (bad file)."""
        try:
            allow_many_open_files()
            check_versions()
        except Exception:
            self._end()
            raise
        self._thread = threading.Thread(target=self._run, name="stillweb-recorder", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._start_error is not None:
            error = self._start_error
            self._end()
            raise error
        atexit.register(self.close)
        return self

    def close(self) -> None:
        """Stop listening and write all that was delivered. Raises what kept it from being written."""
        if self._closed:
            return
        if self._master is not None and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop ended by itself
                self._loop.call_soon_threadsafe(self._master.should_exit.set)
        self._end()
        if self._archive.error is not None:
            raise self._archive.error

    def _end(self) -> None:
        self._closed = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._archive.close()
        self._scratch.cleanup()
        atexit.unregister(self.close)

    def __enter__(self) -> Recorder:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:  # an error is on its way already: it must not be replaced by ours
            with contextlib.suppress(Exception):
                self.close()

    def _ask_for_names(self) -> None:
        self._addon.challenge = True

    def set_default_session(self, session: str) -> None:
        self._challenge = False
        self._addon.nameless = session

    def environment(
        self, session: str = DEFAULT_SESSION, base: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """Return the environment that sends a command through this recorder (see `clients.client_environment`)."""
        return client_environment(self.proxy_url(session), self.ca_path, base)

    # What has been recorded

    @property
    def error(self) -> Exception | None:
        """The exception that ended the recording; None while all is well."""
        return self._archive.error

    @property
    def stats(self) -> RecorderStats:
        return RecorderStats(
            requests=self._addon.requests,
            under_way=self._addon.under_way,
            queued=self._archive.queued,
            captures=self._archive.written,
            failures=len(self.failures),
            aborted=len(self.given_up),
            bytes=self._archive.bytes,
            sockets=self._addon.sockets,
        )

    @property
    def unanswered(self) -> int:
        """The number of requests in the snapshot that came to no answer."""
        return self._unanswered.count

    def wait_quiet(
        self, session: str = DEFAULT_SESSION, seconds: float = 0.5, timeout: float = 30.0, hanging: int = 0
    ) -> bool:
        """Wait until nothing has been under way for `seconds` in a session and all of it is written.

        Event streams and web sockets don't count, nor do as many requests as the caller knows to be `hanging`. Return
        False if `timeout` seconds passed before that. Blocks; call it through `asyncio.to_thread` from a coroutine.
        """
        log = self._archive.session(session)
        began = time.monotonic()
        while True:
            now = time.monotonic()
            if log.open <= hanging and log.queued == log.written and now - max(log.changed, began) >= seconds:
                return True
            if now - began >= timeout or self._closed:
                return False
            time.sleep(QUIET_POLL_SECONDS)

    def mark_view_taken(self, session: str = DEFAULT_SESSION, steps: int = 0) -> None:
        """Note that a session's view after so many steps was captured: it holds what open streams have sent until now."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            done = threading.Event()

            def tell() -> None:
                self._addon.mark_view_taken(session, steps)
                done.set()

            with contextlib.suppress(RuntimeError):  # it has just stopped
                loop.call_soon_threadsafe(tell)
                done.wait(60.0)

    def stream_counters(self, session: str = DEFAULT_SESSION) -> StreamCounters:
        """Return the counts of messages and bytes of a session's open web sockets and event streams."""
        return self._addon.stream_counters(session)

    def bytes_under_way(self, session: str = DEFAULT_SESSION) -> int:
        """Return the bytes received so far of a session's pending answers, without event streams."""
        return self._addon.bytes_under_way(session)

    def captures_of(self, session: str = DEFAULT_SESSION, since: int = 0) -> list[Capture]:
        """Return a session's captures in written order: those that began at event `since` or later."""
        captures = self._archive.session(session).captures
        return [capture for capture in list(captures) if capture.begin >= since]

    # The thread

    def _failed(self, url: str, reason: str) -> None:
        self._lost.add(url, reason)

    def _broke(self, error: Exception) -> None:
        """Stop recording, since an add-on raised: no exchange may pass unrecorded after that."""
        self._archive.error = self._archive.error or error
        self._failed("recorder", repr(error))

    def _run(self) -> None:
        loop = new_loop(
            self._resolve, private=self._private, upstream=self._upstream, own=lambda: self._listens
        )
        asyncio.set_event_loop(loop)
        self._loop = loop
        with apply_changes():
            try:
                with logged_errors(partial(self._failed, "mitmproxy")):
                    loop.run_until_complete(self._serve())
            except Exception as e:  # noqa: BLE001 -- handed to the thread that waits in start(), or to close()
                refused = isinstance(e, exceptions.OptionsError)
                self._start_error = UsageError(f"mitmproxy refuses its settings: {e}") if refused else e
                self._archive.error = self._archive.error or self._start_error
            finally:
                cancel_all(loop)  # its tasks still use what is in place
                loop.close()
                self._started.set()

    async def _serve(self) -> None:
        settings = options.Options(
            confdir=str(self.authority.directory),
            listen_host=self._host,
            listen_port=self._port,
            ssl_insecure=self._insecure,
            upstream_cert=False,  # leaves name what the client asked for, not all that the origin serves
        )
        trusted = Path(self._scratch.name) / "trusted.pem"
        trusted.write_bytes(usual_authorities(self._upstream_ca))
        master = RecordingMaster(
            settings,
            asyncio.get_running_loop(),
            Classes(),
            failed=self._broke,
            refused=partial(self._failed, "client"),
            directory=self.writer.path,
        )
        master.begin([self._addon, self._breaking, _Ready(self)])
        settings.update(  # type: ignore[no-untyped-call]
            connection_strategy="eager",  # the origin chooses the protocol that the client then speaks
            ssl_verify_upstream_trusted_ca=str(trusted),
            ssl_verify_upstream_trusted_confdir=system_directory(),
            client_certs=client_certificates(self._client_cert) if self._client_cert else None,
        )
        self._master = master
        try:
            await master.run()
        finally:
            await master.server.servers.update([])
            await self._addon.finish()

    def _ready(self) -> None:
        assert self._master is not None
        instance = next(iter(self._master.server.servers))
        if instance.last_exception is not None:
            self._start_error = _cannot_listen(instance.last_exception, self._host, self._port)
            self._master.should_exit.set()
        else:
            self._listens = instance.listen_addrs
            self._port = self._listens[0][1]
        self._started.set()


class _Ready:
    """An add-on that tells the recorder that mitmproxy has tried to listen. The last one, behind all others' `running`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def running(self) -> None:
        self._recorder._ready()


def record_command(
    command: Sequence[str],
    recorder: Recorder,
    session: str = DEFAULT_SESSION,
    direct: Sequence[str] = (),
    isolate: bool = False,
) -> int:
    """Run a command through a started recorder and return its exit code. All that it fetched is written then.

    `direct` are hosts that it asks itself, of which nothing is recorded; `isolate` leaves it no way past the recorder.
    """
    recorder.set_default_session(session)
    environment = add_no_proxy(recorder.environment(session), direct)
    if isolate:
        code = run_isolated(command, environment, [recorder.place, *ports_to_let_in(direct)])
    else:
        code = run_command(command, environment)
    recorder.wait_quiet(session, seconds=0.0, timeout=30.0)
    return code


def _cannot_listen(error: Exception, host: str, port: int) -> Exception:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return MissingCapability(f"port {port} on {host} is in use; choose another, or 0 for any free one")
    if isinstance(error, OSError):
        return MissingCapability(f"can't listen on {host}:{port} ({error.strerror or error})")
    return error


try:
    import uvloop

    class FastLoop(uvloop.Loop):
        """uvloop's event loop, for task factories of every Python.

        uvloop 0.23 hands `eager_start=None` to them from Python 3.13 on; asyncio's own eager one, which mitmproxy 12
        sets, takes that argument only since 3.13.3.
        """

        def set_task_factory(self, factory: Any) -> None:
            super().set_task_factory(factory and _without_none(factory))

except ImportError:

    class FastLoop(asyncio.SelectorEventLoop):  # type: ignore[no-redef]
        """asyncio's own event loop."""


def _without_none(factory: Callable[..., Any]) -> Callable[..., Any]:
    """Return a task factory that passes no argument on that is None."""

    def make(loop: Any, coro: Any, **options: Any) -> Any:
        return factory(loop, coro, **{name: value for name, value in options.items() if value is not None})

    return make


def new_loop(
    resolve: Mapping[str, Place] | None = None,
    *,
    private: bool = True,
    upstream: UpstreamProxy | None = None,
    own: Callable[[], Sequence[Any]] = tuple,
) -> asyncio.AbstractEventLoop:
    """Make an event loop (uvloop where installed).

    `resolve` maps "name" or "name:port" to the address to connect to instead; names without an entry are
    resolved as ever. Unless `private`, only public addresses and the places in `resolve` are connected to. What
    `upstream` serves is reached through it, and its names are looked up there unless they have to be checked here.
    `own` returns the addresses at which the loop's own server listens, which are never connected to.
    `create_connection` is the one door through which mitmproxy reaches an origin, `sock_connect` that to an upstream proxy.
    """
    places = {name.lower(): place for name, place in (resolve or {}).items()}

    class ResolvingLoop(FastLoop):
        async def create_connection(
            self, protocol_factory: Any, host: str | None = None, port: int | None = None, **options: Any
        ) -> Any:
            name = (host or "").lower()
            target = places.get(f"{name}:{port}") or places.get(name)
            if target is not None:
                host, port = target
            to_proxy = upstream and target is None and host and port and upstream.is_proxy(name, port)
            if upstream and target is None and host and port and not to_proxy:
                by = upstream.address(scheme_asked.get(), host, port)
                if by is not None:
                    asked = host if private else (await _public_addresses(self, name, port))[0]
                    given = await upstream.tunnel(by, asked, port)
                    return await super().create_connection(
                        protocol_factory, sock=given, ssl=options.get("ssl")
                    )
            hosts = [host] if private or target is not None else await _public_addresses(self, name, port)
            for place in hosts[:-1]:
                with contextlib.suppress(OSError):  # the next one may answer
                    return await self._connect(protocol_factory, place, port, **options)
            try:
                return await self._connect(protocol_factory, hosts[-1], port, **options)
            except OSError as error:
                if upstream and to_proxy:
                    raise upstream.none_there(error) from None
                raise

        async def _connect(self, protocol_factory: Any, *place: Any, **options: Any) -> Any:
            transport: Any
            transport, protocol = await super().create_connection(protocol_factory, *place, **options)
            try:
                _check_end(transport.get_extra_info("peername"), transport.get_extra_info("sockname"), own())
            except OSError:
                transport.abort()
                raise
            return transport, protocol

        async def sock_connect(self, sock: Any, address: Any) -> None:
            await super().sock_connect(sock, address)
            _check_end(sock.getpeername(), sock.getsockname(), own())

    return ResolvingLoop()


class OwnAddress(OSError):
    """Error: the recorder was asked to connect to itself, which would repeat without end."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{place} is the recorder itself")
        self.strerror = str(self)  # python-socks quotes it


def _check_end(peer: Any, mine: Any, own: Sequence[Any]) -> None:
    """Raise OwnAddress if a connection from `mine` to `peer` leads to one of the addresses listened at."""
    if not peer:  # it is broken already
        return
    there = _ip(peer)
    for listens in own:
        here = _ip(listens)
        near = there.is_loopback or there == _ip(mine) if here.is_unspecified else there == here
        if near and peer[1] == listens[1]:
            raise OwnAddress(host_port(str(there), peer[1]))


def _ip(address: Any) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    ip = ipaddress.ip_address(address[0])
    return getattr(ip, "ipv4_mapped", None) or ip


# Names of no host of the Internet: RFC 6761, 6762 and 8375, and ICANN's of 2024 for private use, which
# clouds give to their metadata servers (metadata.google.internal).
_OWN_NAMES = re.compile(r"(?:.*\.)?(?:localhost|local|internal|home\.arpa)")
# Networks that are not public: IANA's registries of special-purpose addresses (RFC 6890) and multicast. Not `is_global`
# of Python, which says otherwise from release to release.
_SPECIAL = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
            "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
            "224.0.0.0/3",
            "168.63.129.16/32",  # Azure's metadata server, which only its own machines reach
            "2001::/23", "2001:db8::/32", "3fff::/20",
        ),
    )
)  # fmt: skip
_UNICAST = ipaddress.ip_network("2000::/3")  # the part of IPv6 outside which no address is public
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052: an address of IPv4 in the last 32 bits


def is_public(address: str) -> bool:
    """Return True if an IP address can be a host of the Internet, and is no metadata server of a cloud.

    An address of IPv6 that holds one of IPv4 (mapped, NAT64, 6to4) is what that is.
    """
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ipaddress.IPv4Address(ip.packed[-4:]) if ip in _NAT64 else ip.ipv4_mapped or ip.sixtofour
        if inner is not None:
            return is_public(str(inner))
        if ip not in _UNICAST:
            return False
    return not any(ip in network for network in _SPECIAL)


def private_places(urls: Iterable[str]) -> dict[str, Place]:
    """Return the places of URLs whose spelling alone says that they are not public (127.0.0.1, localhost), for `resolve`.

    Other names are left out: a name server may lead them anywhere by now.
    """
    places = {}
    for scheme, named in {(url.partition(":")[0], host_of(url)) for url in urls}:
        match = AUTHORITY.fullmatch(named)
        if match is not None and _is_private(host := match[1].strip("[]")):
            port = int(match[2] or (443 if scheme == "https" else 80))
            places[f"{host}:{port}"] = host, port
    return places


def _is_private(host: str) -> bool:
    try:
        return not is_public(host)
    except ValueError:
        return _OWN_NAMES.fullmatch(host.rstrip(".")) is not None


class PrivateAddress(OSError):
    """A host without a public address, where only those may be connected to."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{place} is not a public address; --private (in Python private=True) lets it pass")


async def _public_addresses(loop: asyncio.AbstractEventLoop, host: str, port: int | None) -> list[str]:
    """Look a host up and return its public addresses, which are then connected to without another look-up.

    Raises PrivateAddress where it has none.
    """
    if _OWN_NAMES.fullmatch(host.rstrip(".")):
        raise PrivateAddress(host)
    found = [str(entry[4][0]) for entry in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    public = [address for address in dict.fromkeys(found) if is_public(address)]
    if not public:
        raise PrivateAddress(host if host in found else f"{host} ({', '.join(dict.fromkeys(found))})")
    return public


def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what a loop still has to do, without a word."""
    loop.set_exception_handler(lambda *_: None)  # cancelled tasks report their cancellation, and nothing else
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=2.0))
