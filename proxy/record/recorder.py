"""The recorder: mitmproxy in this process, on a thread and event loop of its own, writing a snapshot."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import errno
import gc
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import cast

from mitmproxy import exceptions, options

from stillweb.proxy.clients import client_environment, run_command
from stillweb.proxy.direct import let_in, let_past
from stillweb.proxy.isolated import run_isolated
from stillweb.proxy.record.addon import RecordingAddon
from stillweb.proxy.record.archiving import Archivist, Writes
from stillweb.proxy.record.backlog import backlogs
from stillweb.proxy.record.breaking import BreakingAddon
from stillweb.proxy.record.early import early_ends
from stillweb.proxy.record.endings import endings
from stillweb.proxy.record.half_closed import half_closed
from stillweb.proxy.record.held import held
from stillweb.proxy.record.hooking import hooks_at_once
from stillweb.proxy.record.lost import Lost
from stillweb.proxy.record.master import RecordingMaster, complaints_to, without_self_checks
from stillweb.proxy.record.mended import mended
from stillweb.proxy.record.mended_h2 import mended_h2
from stillweb.proxy.record.mended_ws import mended_ws
from stillweb.proxy.record.muted import muted
from stillweb.proxy.record.outliving import outliving
from stillweb.proxy.record.redacting import ExchangeRedactor
from stillweb.proxy.record.resolving import Place, cancel_all, new_loop
from stillweb.proxy.record.retrying import retrying
from stillweb.proxy.record.stats import RecorderStats
from stillweb.proxy.record.unanswered import Unanswered
from stillweb.proxy.wire.addresses import DEFAULT_SESSION
from stillweb.proxy.wire.certificates import Authority
from stillweb.proxy.wire.open_files import allow_many_open_files
from stillweb.proxy.wire.proxied import Proxied
from stillweb.proxy.wire.silence import Said
from stillweb.proxy.wire.trust import system_directory, usual_authorities
from stillweb.snapshots.capture import Capture
from stillweb.snapshots.contents.failures import Keeps
from stillweb.snapshots.errors import MissingCapability, UsageError
from stillweb.snapshots.secrets.redact import Redactor

QUIET_POLL_SECONDS = 0.02
SWITCH = 0.0005  # seconds that a thread may keep the interpreter while another one waits for it
GARBAGE = 10_000  # new objects between collections: some exchanges

# mitmproxy keeps its running master in module globals, so that a process can hold only one at a time.
_one_at_a_time = threading.Lock()


class Recorder(Proxied):
    """Records all that passes into `writer`. A context manager; only one may run in a process at a time.

    `port` 0 takes a free one. `upstream_ca` is a PEM file of authorities trusted besides the usual ones;
    `insecure` accepts any certificate of an origin. `resolve` maps "name" or "name:port" to (host, port) to
    connect to in its place. Unless `private`, no other address is connected to that is not public (loopback, private
    networks, metadata of clouds); such requests fail, and are recorded as failed. Secrets are replaced by `redactor` (default: the one of the writer's snapshot, which keeps
    what it learns until somebody has looked through for it, as sealing does) unless `redact` is False. `on_status`
    is called with RecorderStats about twice a second, on the writing thread.

    Sessions are proxy user names. Browsers give theirs only when asked, so `challenge` makes the proxy ask
    (407); None means: as soon as `proxy_url` has been called with a name other than "default".

    After a failure to write (full disk) the recorder answers 503 and `error` says why; leaving the context
    raises it. What has been written until then is kept.
    """

    def __init__(
        self,
        writer: Writes,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        upstream_ca: Path | None = None,
        insecure: bool = False,
        resolve: Mapping[str, Place] | None = None,
        private: bool = True,
        authority: Authority | None = None,
        redactor: Redactor | None = None,
        redact: bool = True,
        challenge: bool | None = None,
        on_status: Callable[[RecorderStats], None] | None = None,
    ) -> None:
        super().__init__(authority, host, port, challenge)
        self.writer = writer
        self._upstream_ca = upstream_ca
        self._insecure = insecure
        self._resolve = resolve
        self._private = private
        self._scratch = tempfile.TemporaryDirectory(prefix="stillweb-")
        self._started = threading.Event()
        self._start_error: Exception | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._master: RecordingMaster | None = None
        self._closed = False
        directory = self._directory = _directory_of(writer)
        secrets: ExchangeRedactor | None = None
        if redact:
            if redactor is None and directory is None:
                raise UsageError("this writer has no directory to keep a redactor's salt in; give a redactor")
            redactor = redactor or Redactor.for_snapshot(
                cast(Path, directory), self.authority.directory, keep=True
            )
            secrets = ExchangeRedactor(redactor, directory)
        # What else goes into the snapshot (a view's DOM and text) must pass it too: `redactor.body(data)`.
        self.redactor = redactor if redact else None
        self._lost = Lost(self.redactor)
        self.failures = self._lost.failures  # (URL, reason), without secrets
        self.errands = self._lost.errands  # the same of what a browser asked for of its own accord
        self.given_up = self._lost.given_up  # URLs of what clients left, without secrets
        self._archivist = Archivist(
            writer,
            redact=secrets.exchange if secrets else None,
            failed=self._failed,
            on_status=(lambda: on_status(self.stats)) if on_status else None,
        )
        self._unanswered = Unanswered(cast(Keeps, writer) if hasattr(writer, "metadata") else None, secrets)
        self._addon = RecordingAddon(
            self._archivist,
            event=writer.event,
            failed=self._failed,
            given_up=self._lost.leave,
            unanswered=self._unanswered,
            metadata=getattr(writer, "metadata", None),
            secrets=secrets,
            spool_directory=directory,
            authority_pem=self.authority.certificate_pem,
            status=lambda: {"recording": True, **asdict(self.stats)},
        )
        self._addon.challenge = bool(challenge)
        self._breaking = BreakingAddon(self._lost.add, self._lost.settle, self._addon.session_of)

    # Life

    def start(self) -> Recorder:
        """Listens, or raises: MissingCapability (port in use, too few files), UsageError (bad file, second recorder)."""
        allow_many_open_files()
        if not _one_at_a_time.acquire(blocking=False):
            raise UsageError("another recorder is running in this process; close it first")
        self._before = sys.getswitchinterval(), gc.get_threshold()
        sys.setswitchinterval(min(self._before[0], SWITCH))
        gc.set_threshold(max(self._before[1][0], GARBAGE), *self._before[1][1:])
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
        """Stops listening, writes all that was delivered, and raises what kept it from being written."""
        if self._closed:
            return
        if self._master is not None and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop ended by itself
                self._loop.call_soon_threadsafe(self._master.should_exit.set)
        self._end()
        if self._archivist.error is not None:
            raise self._archivist.error

    def _end(self) -> None:
        self._closed = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            sys.setswitchinterval(self._before[0])
            gc.set_threshold(*self._before[1])
            _one_at_a_time.release()
        self._archivist.close()
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

    def nameless_are(self, session: str) -> None:
        """See `Proxied`."""
        self._challenge = False
        self._addon.nameless = session

    def environment(
        self, session: str = DEFAULT_SESSION, base: Mapping[str, str] | None = None
    ) -> dict[str, str]:
        """The environment that sends a command through this recorder; see `clients.client_environment`."""
        return client_environment(self.proxy_url(session), self.ca_path, base)

    # What has been recorded

    @property
    def error(self) -> Exception | None:
        """What ended the recording, None while all is well."""
        return self._archivist.error

    @property
    def stats(self) -> RecorderStats:
        """Counts as of now."""
        return RecorderStats(
            requests=self._addon.requests,
            under_way=self._addon.under_way,
            queued=self._archivist.queued,
            captures=self._archivist.written,
            failures=len(self.failures),
            aborted=len(self.given_up),
            bytes=self._archivist.bytes,
        )

    @property
    def unanswered(self) -> int:
        """How many requests are in the snapshot as having come to no answer."""
        return self._unanswered.count

    def wait_quiet(
        self, session: str = DEFAULT_SESSION, seconds: float = 0.5, timeout: float = 30.0, hanging: int = 0
    ) -> bool:
        """Waits until nothing has been under way for `seconds` in a session and all of it is written.

        Event streams and web sockets don't count, nor do as many requests as the caller knows to be `hanging`. False
        when `timeout` seconds passed before that. Blocks; call it through `asyncio.to_thread` from a coroutine.
        """
        log = self._archivist.session(session)
        began = time.monotonic()
        while True:
            now = time.monotonic()
            if log.open <= hanging and log.queued == log.written and now - max(log.changed, began) >= seconds:
                return True
            if now - began >= timeout or self._closed:
                return False
            time.sleep(QUIET_POLL_SECONDS)

    def looked(self, session: str = DEFAULT_SESSION, steps: int = 0) -> None:
        """Tells that the view after so many steps of the session has been seen: it holds of open streams what has come until now."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            done = threading.Event()

            def tell() -> None:
                self._addon.looked(session, steps)
                done.set()

            with contextlib.suppress(RuntimeError):  # it has just stopped
                loop.call_soon_threadsafe(tell)
                done.wait(60.0)

    def said(self, session: str = DEFAULT_SESSION) -> Said:
        """What the open web sockets and event streams of a session have said so far."""
        return self._addon.said(session)

    def captures_of(self, session: str = DEFAULT_SESSION, since: int = 0) -> list[Capture]:
        """What has been written for a session, in written order: exchanges that began at event `since` or later."""
        captures = self._archivist.session(session).captures
        return [capture for capture in list(captures) if capture.begin >= since]

    # The thread

    def _failed(self, url: str, reason: str) -> None:
        self._lost.add(url, reason)

    def _broke(self, error: Exception) -> None:
        """An add-on raised: no exchange may pass unrecorded after that."""
        self._archivist.error = self._archivist.error or error
        self._failed("recorder", repr(error))

    def _run(self) -> None:
        loop = new_loop(self._resolve, private=self._private)
        asyncio.set_event_loop(loop)
        self._loop = loop
        try:
            complaints = complaints_to(partial(self._failed, "mitmproxy"))
            heard = partial(self._failed, "client")
            with (
                without_self_checks(),
                hooks_at_once(),
                held(),
                backlogs(self._directory),
                endings(),
                early_ends(),
                half_closed(),
                outliving(),
                muted(),
                mended(heard),
                mended_h2(heard),
                mended_ws(),
                retrying(),
                complaints,
            ):
                loop.run_until_complete(self._serve())
        except Exception as e:  # noqa: BLE001 -- handed to the thread that waits in start(), or to close()
            self._start_error = _explain(e, self._host, self._port)
            self._archivist.error = self._archivist.error or self._start_error
        finally:
            cancel_all(loop)
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
        master = RecordingMaster(settings, asyncio.get_running_loop(), self._broke)
        master.begin([self._addon, self._breaking, _Ready(self)])
        settings.update(  # type: ignore[no-untyped-call]
            connection_strategy="eager",  # the origin chooses the protocol that the client then speaks
            ssl_verify_upstream_trusted_ca=str(trusted),
            ssl_verify_upstream_trusted_confdir=system_directory(),
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
            self._start_error = _explain(instance.last_exception, self._host, self._port)
            self._master.should_exit.set()
        else:
            self._port = instance.listen_addrs[0][1]
        self._started.set()


class _Ready:
    """Tells the recorder that mitmproxy has tried to listen. Comes last, after all others' `running`."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def running(self) -> None:
        """See mitmproxy's RunningHook."""
        self._recorder._ready()


def record_command(
    command: Sequence[str],
    recorder: Recorder,
    session: str = DEFAULT_SESSION,
    direct: Sequence[str] = (),
    isolate: bool = False,
) -> int:
    """Runs a command through a started recorder; its exit code. Whatever it fetched is written when this returns.

    `direct` are hosts that it asks itself, of which nothing is recorded; `isolate` leaves it no way past the recorder.
    """
    recorder.nameless_are(session)
    environment = let_past(recorder.environment(session), direct)
    if isolate:
        code = run_isolated(command, environment, [recorder.place, *let_in(direct)])
    else:
        code = run_command(command, environment)
    recorder.wait_quiet(session, seconds=0.0, timeout=30.0)
    return code


def _directory_of(writer: Writes) -> Path | None:
    path = getattr(writer, "path", None)
    return Path(path) if path is not None and Path(path).is_dir() else None


def _explain(error: Exception, host: str, port: int) -> Exception:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return MissingCapability(f"port {port} on {host} is in use; choose another, or 0 for any free one")
    if isinstance(error, OSError):
        return MissingCapability(f"can't listen on {host}:{port} ({error.strerror or error})")
    if isinstance(error, exceptions.OptionsError):
        return UsageError(f"mitmproxy refuses its settings: {error}")
    return error
