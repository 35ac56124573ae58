"""A network namespace of our own, in which nothing but loopback exists: no packet can get out of it.

Linux only: unshare(2) of the network (for root), or of user and network (for everybody else, where the
machine permits it). Everything started from then on, the agent included, is in there too.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import struct
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from stillweb.proxy.wire.addresses import host_port
from stillweb.snapshots.errors import MissingCapability

if TYPE_CHECKING:
    from stillweb.proxy.relaying import Relay

CLONE_NEWUSER = 0x10000000  # linux/sched.h
CLONE_NEWNET = 0x40000000
CLONE_NEWNS = 0x00020000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x2, 0x4, 0x8  # linux/mount.h
MS_BIND, MS_REC, MS_SLAVE = 0x1000, 0x4000, 0x80000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1  # linux/sockios.h, linux/if.h
# Ubuntu 24.04 keeps users from it: an older kernel at the last step, a newer one at the first.
_ON_UBUNTU = "on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0"
MARKER = "STILLWEB_ISOLATED"  # holds the id of the namespace that we are in

# Well-known addresses outside; a route to any of them would be a way out. Nothing is ever sent to them: a datagram
# socket that is connected only asks the kernel for a route.
OUTSIDE = (("1.1.1.1", 443), ("8.8.8.8", 53), ("2606:4700:4700::1111", 443))
OUTSIDE_NAME = "example.com"

# Where services listen that use the network for others: a Unix socket with a path leads out of every network namespace.
# glibc asks nscd, systemd-resolved, sssd and Avahi for names before any name server; the rest start programs outside.
SERVICES = (
    "/run/nscd", "/var/run/nscd", "/run/systemd/resolve", "/var/lib/sss/pipes", "/run/avahi-daemon", "/run/dbus",
    "/run/systemd/private", "/run/systemd/userdb", "/run/docker.sock", "/var/run/docker.sock", "/run/containerd",
    "/run/podman", "/run/crio", "/run/libvirt", "/run/snapd.socket",
    *(f"/run/user/{os.getuid()}/{name}" for name in ("bus", "systemd", "podman", "docker.sock")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Canary:
    """What came of trying to get out. `attempts` pairs each place with the error that stopped it, "" if none."""

    escaped: bool
    attempts: tuple[tuple[str, str], ...]
    interfaces: tuple[str, ...]
    isolated: bool

    def to_json(self) -> dict[str, Any]:
        """A JSON object, for the ledger."""
        return {"kind": "canary", **asdict(self)}

    def line(self) -> str:
        """One line for people."""
        if self.escaped:
            places = ", ".join(place for place, error in self.attempts if not error)
            return f"canary: OUTSIDE REACHED ({places})"
        return f"canary: no way out ({len(self.attempts)} places tried; interfaces: {', '.join(self.interfaces)})"


def can_isolate() -> str | None:
    """None when a namespace can be made here, else why not, in one line. Tries it in a forked process."""
    if not sys.platform.startswith("linux"):
        return f"isolation needs Linux network namespaces; this is {sys.platform}"
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # threads and fork: the child only makes system calls
        child = os.fork()
    if child == 0:
        answer = b""
        try:
            _unshare()
        except BaseException as e:  # noqa: BLE001 -- told to the parent; nothing may run on in a forked copy
            answer = str(e).encode()
        os.write(writer, answer)
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        reason = pipe.read().decode()
    os.waitpid(child, 0)
    return reason or None


def isolated() -> bool:
    """Whether this process is in a namespace made by `enter_isolation`."""
    return os.environ.get(MARKER) == _namespace()


def enter_isolation(let_in: Sequence[tuple[str, int]] = (), relay: Relay | None = None) -> None:
    """Puts this process, and all that it starts, where only loopback exists. Does nothing the second time.

    Of the loopback outside the ports in `let_in` are reached from within, and nothing else: see `stillweb.proxy.relaying`. By
    `relay`, where its helper has been started before.

    Call it before threads are started. A process that has threads is started anew inside, with the same
    arguments, and this one becomes its shadow: it passes signals on and ends with its exit code.
    Raises MissingCapability when the machine can't do it.
    """
    if isolated():
        return
    if not sys.platform.startswith("linux"):
        raise MissingCapability(f"isolation needs Linux network namespaces; this is {sys.platform}")
    if _threads() > 1:
        _start_anew(let_in)
    _enter(let_in, relay)


def canary() -> Canary:
    """Tries to reach places outside, by address and by name, and says what came of it."""
    attempts: list[tuple[str, str]] = []
    for host, port in OUTSIDE:
        place = host_port(host, port)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        attempts.append((place, _try(lambda f=family, h=host, p=port: _connect(f, h, p))))
    if isolated():  # elsewhere a resolver may keep us waiting for longer than anybody wants
        attempts.append((OUTSIDE_NAME, _try(lambda: socket.getaddrinfo(OUTSIDE_NAME, 443))))
    return Canary(
        escaped=any(not error for _, error in attempts),
        attempts=tuple(attempts),
        interfaces=tuple(sorted(name for _, name in socket.if_nameindex())),
        isolated=isolated(),
    )


def _connect(family: socket.AddressFamily, host: str, port: int) -> None:
    with socket.socket(family, socket.SOCK_DGRAM) as connection:
        connection.connect((host, port))


def _try(action: Any) -> str:
    try:
        action()
    except OSError as e:
        return e.strerror or str(e) or type(e).__name__
    return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/net")
    except OSError:
        return "none"


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _enter(let_in: Sequence[tuple[str, int]], relay: Relay | None = None) -> None:
    if let_in:
        from stillweb.proxy.relaying import Relay

        relay = relay or Relay(let_in)
        _unshare()
        relay.listen()
    else:
        _unshare()
    os.environ[MARKER] = _namespace()


def _unshare() -> None:
    uid, gid = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        if code != errno.EPERM:
            raise MissingCapability(f"isolation: the kernel makes no network namespace ({os.strerror(code)})")
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
            raise MissingCapability(
                f"isolation: this user may not make a namespace ({os.strerror(ctypes.get_errno())}); "
                "run as root, or allow it (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces>0; "
                "in a container: --cap-add SYS_ADMIN; in a chroot only root may)"
            )
        try:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        except OSError as e:
            raise MissingCapability(
                f"isolation: the user can't be mapped into a namespace ({e.strerror}); {_ON_UBUNTU}"
            ) from e
    try:
        _loopback_up()
    except OSError as e:
        raise MissingCapability(
            f"isolation: loopback can't be switched on ({e.strerror}); {_ON_UBUNTU}"
        ) from e
    _hide_services(libc)


def _hide_services(libc: ctypes.CDLL) -> None:
    """Mount something empty over each of SERVICES, for this process and what it starts.

    Raises MissingCapability where that is not allowed: a name that is looked up would leave the namespace.
    """
    places = sorted({os.path.realpath(place) for place in SERVICES if os.path.exists(place)})
    if not places:
        return
    # what is mounted outside is still seen inside, and nothing the other way round
    failed = libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None)
    flags = MS_NODEV | MS_NOSUID | MS_NOEXEC
    for place in places:
        path = os.fsencode(place)
        if os.path.isdir(place):
            failed = failed or libc.mount(b"stillweb", path, b"tmpfs", flags, b"size=4k,mode=755")
        else:
            failed = failed or libc.mount(b"/dev/null", path, None, MS_BIND, None)
        if failed:
            raise MissingCapability(
                f"isolation: {place} leads out and can't be hidden ({os.strerror(ctypes.get_errno())}). "
                "Allow mounts (in a container: --cap-add SYS_ADMIN), or stop the service"
            )


def _loopback_up() -> None:
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        asked = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(control, SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def _start_anew(let_in: Sequence[tuple[str, int]]) -> NoReturn:
    """Forks; the child enters the namespace and starts this program again; the parent waits and ends as it does."""
    reason = can_isolate()
    if reason is not None:
        raise MissingCapability(reason)
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            _enter(let_in)
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
        finally:
            os._exit(4)

    def pass_on(number: int, _: object) -> None:
        os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the child as well
    while True:
        try:
            _, status = os.waitpid(child, 0)
            break
        except InterruptedError:
            time.sleep(0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)
