"""Network isolation: a Linux namespace with nothing but loopback, which no packet can leave.

It uses unshare(2) of the network (for root), or of user and network (for other users, if the machine permits
it). Everything started from then on, the agent included, is in the namespace too.
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

from stillweb.proxy.net.addresses import host_port
from stillweb.proxy.net.seccomp import hold_sockets
from stillweb.snapshots.errors import MissingCapability

if TYPE_CHECKING:
    from stillweb.proxy.net.relaying import Relay

CLONE_NEWUSER = 0x10000000  # linux/sched.h
CLONE_NEWNET = 0x40000000
CLONE_NEWNS = 0x00020000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x2, 0x4, 0x8  # linux/mount.h
MS_BIND, MS_REC, MS_SLAVE = 0x1000, 0x4000, 0x80000
AF_VSOCK = 40  # linux/socket.h
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1  # linux/sockios.h, linux/if.h
# Ubuntu 24.04 forbids it to users: older kernels fail at the last step, newer ones at the first.
_ON_UBUNTU = "on Ubuntu: sysctl kernel.apparmor_restrict_unprivileged_userns=0"
MARKER = "STILLWEB_ISOLATED"  # variable with the id of the namespace that `enter_isolation` made

# Well-known outside addresses; a route to any of them would be a way out. Nothing is sent: connecting a datagram
# socket only asks the kernel for a route.
OUTSIDE = (("1.1.1.1", 443), ("8.8.8.8", 53), ("2606:4700:4700::1111", 443))
OUTSIDE_NAME = "example.com"

# Sockets of services that use the network for their clients: a Unix socket with a path crosses network namespaces.
# glibc asks nscd, systemd-resolved, sssd and Avahi for names before any name server; the rest start programs outside.
SERVICES = (
    "/run/nscd", "/var/run/nscd", "/run/systemd/resolve", "/var/lib/sss/pipes", "/run/avahi-daemon", "/run/dbus",
    "/run/systemd/private", "/run/systemd/userdb", "/run/docker.sock", "/var/run/docker.sock", "/run/containerd",
    "/run/podman", "/run/crio", "/run/libvirt", "/run/snapd.socket",
    *(f"/run/user/{os.getuid()}/{name}" for name in ("bus", "systemd", "podman", "docker.sock")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Canary:
    """The result of trying to get out.

    `attempts` pairs each place with the error that stopped it, "" if none did.
    """

    escaped: bool
    attempts: tuple[tuple[str, str], ...]
    interfaces: tuple[str, ...]
    isolated: bool

    def to_json(self) -> dict[str, Any]:
        return {"kind": "canary", **asdict(self)}

    def line(self) -> str:
        if self.escaped:
            places = ", ".join(place for place, error in self.attempts if not error)
            return f"canary: OUTSIDE REACHED ({places})"
        return f"canary: no way out ({len(self.attempts)} places tried; interfaces: {', '.join(self.interfaces)})"


def can_isolate() -> str | None:
    """Return None if a namespace can be made here, else the reason in one line.

    Tries it in a forked process.
    """
    if not sys.platform.startswith("linux"):
        return f"isolation needs Linux network namespaces; this is {sys.platform}"
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # threads and fork: the child only makes system calls
        warnings.simplefilter("ignore", DeprecationWarning)
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


def is_isolated() -> bool:
    """Return True if this process is in a namespace made by `enter_isolation`."""
    return os.environ.get(MARKER) == _namespace()


def enter_isolation(let_in: Sequence[tuple[str, int]] = (), relay: Relay | None = None) -> None:
    """Move this process, and everything it starts, into a namespace with only loopback.

    Does nothing the second time. Of the outer loopback only the ports in `let_in` are reachable from inside:
    see `stillweb.proxy.net.relaying`. `relay` is given if its helper is already running.

    Call it before threads are started. A process with threads is started anew inside, with the same
    arguments; this process then only passes signals on and ends with the new one's exit code. Raises
    MissingCapability if the machine can't do it.
    """
    if is_isolated():
        return
    if not sys.platform.startswith("linux"):
        raise MissingCapability(f"isolation needs Linux network namespaces; this is {sys.platform}")
    if _threads() > 1:
        _start_anew(let_in)
    _enter(let_in, relay)


def canary() -> Canary:
    """Try to reach outside places, by address and by name, and return the result."""
    attempts: list[tuple[str, str]] = []
    for host, port in OUTSIDE:
        place = host_port(host, port)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        attempts.append((place, _try(lambda f=family, h=host, p=port: _connect(f, h, p))))
    if is_isolated():  # outside a namespace the resolver may take very long
        attempts.append((OUTSIDE_NAME, _try(lambda: socket.getaddrinfo(OUTSIDE_NAME, 443))))
    return Canary(
        escaped=any(not error for _, error in attempts),
        attempts=tuple(attempts),
        interfaces=tuple(sorted(name for _, name in socket.if_nameindex())),
        isolated=is_isolated(),
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
        from stillweb.proxy.net.relaying import Relay

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
            raise MissingCapability(
                f"isolation: the kernel can't make a network namespace ({os.strerror(code)})"
            )
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
    _hold_sockets()


def _hold_sockets() -> None:
    """Refuse sockets that no network namespace holds: those to the host of a virtual machine, Bluetooth, XDP."""
    try:
        hold_sockets()
    except OSError as error:
        if _opens(AF_VSOCK):
            raise MissingCapability(
                f"isolation: sockets to the machine's host (AF_VSOCK) can't be shut ({error.strerror}). "
                "Use a kernel with seccomp, or unload the module vsock"
            ) from error


def _opens(family: int) -> bool:
    try:
        socket.socket(family, socket.SOCK_STREAM).close()
    except OSError:
        return False
    return True


def _hide_services(libc: ctypes.CDLL) -> None:
    """Mount an empty file or directory over each of SERVICES, for this process and its children.

    Raises MissingCapability if mounts are not allowed: a name lookup would leave the namespace.
    """
    places = sorted({os.path.realpath(place) for place in SERVICES if os.path.exists(place)})
    if not places:
        return
    # slave: later mounts outside show up inside, mounts inside don't show up outside
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
    """Fork a child that enters the namespace and restarts this program.

    The parent waits, passes signals on, and exits with the child's code.
    """
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


SYSTEM_LISTS = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def replace_system_list(pem: Path, lists: Sequence[str] = SYSTEM_LISTS) -> str | None:
    """Mount `pem` over the system's CA lists, for this process and its children.

    Returns None, or why it failed. Call it in a namespace made by `enter_isolation`.
    """
    places = sorted({os.path.realpath(place) for place in lists if os.path.isfile(place)})
    if not places or not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    # slave: later mounts outside show up inside, mounts inside don't show up outside
    failed = libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_SLAVE, None)
    for place in places:
        failed = failed or libc.mount(os.fsencode(pem.absolute()), os.fsencode(place), None, MS_BIND, None)
    if not failed:
        return None
    return (
        f"the system's list of authorities can't be replaced ({os.strerror(ctypes.get_errno())}): "
        "programs that read only that one don't trust our certificate"
    )
