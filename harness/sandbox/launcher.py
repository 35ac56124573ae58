"""The process that confines itself and then becomes, or supervises, a program.

`stillweb.harness.sandbox.running` starts it as `python -I -S -c … CHANNEL ORDER`: CHANNEL is a socket on which it reports,
ORDER a file with the JSON object that `running.Start` makes. Only the standard library is loaded, as each start waits for it.

    namespaces    a root of its own (a tmpfs) in which only the order's paths are mounted, read-only; process, IPC, host
                  name and network namespaces; as root, a user id that owns nothing on the machine
    Landlock      every right of the running kernel's version; scopes for abstract sockets and signals
    system calls  the filter of `stillweb.proxy.net.seccomp`
    limits        of each process by setrlimit, of the whole tree by its supervisor, on disk by the size of the tmpfs
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator

from stillweb.proxy.net.seccomp import install_filter

TYPE_CHECKING = False  # as type checkers read it; see stillweb/__init__.py

if TYPE_CHECKING:
    from typing import Any, NoReturn

FOLDER = "/workspace"  # the working folder inside, whatever its name outside: what is printed stays the same
REFUSED = 4  # exit code

# linux/sched.h
_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38  # linux/prctl.h
_ADDR_NO_RANDOMIZE = 0x0040000  # linux/personality.h
# linux/sockios.h, linux/if.h
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCSIFADDR, _IFF_UP = 0x8913, 0x8914, 0x8916, 0x1
# linux/mount.h. These system calls have the same numbers on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_TREE_CLONE, _TREE_CLOEXEC, _AT_EMPTY_PATH, _AT_RECURSIVE = 1, os.O_CLOEXEC, 0x1000, 0x8000
_MOVE_FROM_DESCRIPTOR = 0x4
_ATTR_READ_ONLY, _ATTR_NO_SETUID, _ATTR_NO_DEVICES = 0x1, 0x2, 0x4
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE, _MNT_DETACH = 0x2, 0x4, 0x8, 0x4000, 0x40000, 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

# What programs need of a system, as far as every user of the machine may read it.
_SYSTEM = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix/store",
    "/sys/devices/system"
)  # fmt: skip
_DEVICES = ("null", "zero", "full", "random", "urandom")
_OPEN_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm")
_WITHOUT_NAMESPACES = (
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys/kernel",
)

# linux/landlock.h
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH, _ASK_VERSION = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEVICE = 1, 2, 4, 8, 1 << 14, 1 << 15
_READS = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
# version of Landlock -> how many of the rights on files it has: refer came with 2, truncate with 3, ioctl_dev with 5
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_NET_RIGHTS, _NET_VERSION = 0b11, 4  # bind and connect of TCP
_SCOPES, _SCOPE_VERSION = 0b11, 6  # abstract Unix sockets, signals

_POLL = 0.02  # seconds between two looks at what the tree uses
# from here on nobody has a name; the second lies in what a small container maps
_OWN_USERS = (1_000_000, 60_600)


class _Missing(Exception):
    """A means that this machine does not give."""


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def main() -> NoReturn:
    """Confine this process as the order says, run the program, report, and never return."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    with os.fdopen(int(sys.argv[2]), "rb") as file:
        file.seek(0)
        order: dict[str, Any] = json.load(file)
    for descriptor in (channel.fileno(), order["folder_descriptor"]):
        os.set_inheritable(descriptor, False)  # they are ours, and no program's
    try:
        Launch(order, channel).run()
    except _Missing as error:
        _tell(channel, {"refused": str(error)})
    except BaseException as error:  # noqa: BLE001 -- the parent says it; a half-confined process must not go on
        _tell(channel, {"refused": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(REFUSED)


def _tell(channel: socket.socket, message: dict[str, Any], files: list[int] | None = None) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the parent is gone: we end with it
        socket.send_fds(channel, [json.dumps(message).encode()], files or [])


class Launch:
    """One confined start: what the order asks, and which means hold so far."""

    def __init__(self, order: dict[str, Any], channel: socket.socket) -> None:
        self.order, self.channel = order, channel
        self.limits: dict[str, Any] | None = order["limits"]
        self.folder: str = order["folder"]
        self.held: list[str] = []
        self.missing: list[str] = []
        self.linux = sys.platform.startswith("linux")
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.user: int | None = None  # of the program, where it is another
        self.listeners: list[socket.socket] = []
        self.own_network = False
        self.disk: int | None = None  # bytes for all files, those that were brought in included

    def run(self) -> NoReturn:
        """Enter what namespaces there are and start the program in them."""
        self._end_with_parent()
        if os.getppid() != self.order["parent"]:
            os._exit(REFUSED)
        if not self._holds("namespaces", self._try_namespaces):
            self._supervise()
        try:
            self._enter_namespaces()
            init = os.fork()
            if init:
                self.channel.close()
                _let_go_of_output()
                os.waitpid(init, 0)
                os._exit(0)
            self._end_with_parent()
            os.setsid()  # a signal to its group reaches nobody outside
            self._make_root()
        except OSError as error:
            raise _Missing(f"namespaces: {_reason(error)}") from error
        self._supervise()

    def _try_namespaces(self) -> None:
        """Raise OSError where they can't be had. Tried in another process: half of them would be worse than none."""
        if not self.order["allow_unconfined"]:
            return  # the attempt itself tells
        shown, ours = os.pipe()
        tried = os.fork()
        if tried == 0:
            reason = ""
            try:
                self._enter_namespaces()
                if os.fork() == 0:
                    self._make_root()
                else:
                    os.wait()
                    os._exit(0)
            except OSError as error:
                reason = _reason(error)
            finally:
                os.write(ours, reason.encode())
                os._exit(0)
        os.close(ours)
        with os.fdopen(shown, "rb") as pipe:
            message = pipe.read().decode()
        os.waitpid(tried, 0)
        if message:
            raise OSError(0, message)

    @property
    def _outside(self) -> str:
        """The working folder by its descriptor, which no mount hides."""
        return f"/proc/self/fd/{self.order['folder_descriptor']}"

    def _holds(self, means: str, take: Callable[[], None]) -> bool:
        """Apply a means. Raises _Missing where it can't be had and the order insists on it."""
        try:
            if not self.linux and means != "limits":
                raise OSError(errno.ENOSYS, f"this is {sys.platform}")
            take()
        except OSError as error:
            reason = f"{means}: {_reason(error)}"
            if not self.order["allow_unconfined"]:
                raise _Missing(reason) from error
            self.missing.append(reason)
            return False
        self.held.append(means)
        return True

    def _end_with_parent(self) -> None:
        if self.linux:
            self.libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    # Namespaces

    def _enter_namespaces(self) -> None:
        """Enter new namespaces, and choose the user that a root's program becomes."""
        self.own_network = self.order["network"] == "own"
        kinds = _NEWNS | _NEWPID | _NEWIPC | _NEWUTS | _NEWCGROUP | (_NEWNET if self.own_network else 0)
        root = os.geteuid() == 0
        if root and self.libc.unshare(kinds) == 0:
            self.user = _unused_user()
        else:
            if root:  # of a container: it may still make them as somebody else
                self.user = _unused_user()
                _give(self.folder, self.user)
                _become(self.user)
                self.libc.prctl(_PR_SET_DUMPABLE, 1)  # or nobody may map the user
                self._end_with_parent()  # a change of user took it back
            user, group = os.geteuid(), os.getegid()
            self._call(self.libc.unshare(_NEWUSER | kinds), "namespaces may not be made here")
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{user} {user} 1"),
                ("gid_map", f"{group} {group} 1"),
            ):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
        if self.own_network:
            _loopback_up(self.order["addresses"])
            self.listeners = [_listen(host, port) for host, port in self.order["ports"]]

    def _call(self, result: int, what: str) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{what} ({os.strerror(number)})")
        return result

    def _make_root(self) -> None:
        """Mount a new root that holds the order's paths and nothing else, and go into it."""
        self._call(
            self.libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mounts can't be made private"
        )
        sources = _Sources(self.order)  # of this namespace: no other's may be cloned
        trees = [(self._clone(source, target, how), target) for source, target, how in sources.system]
        size = ""
        if self.limits is not None:
            page = resource.getpagesize()
            brought = [
                -(-entry.stat(follow_symlinks=False).st_size // page) * page for entry in _walk(self._outside)
            ]
            most = self.limits["disk"]
            if most is None:  # without a size, the kernel takes half of the machine's memory
                size = ",size=0,nr_inodes=0"
            else:
                self.disk = most + sum(brought)
                size = f",size={self.disk},nr_inodes={len(brought) + max(1000, most >> 14)}"
        base = "/tmp" if os.path.isdir("/tmp") else "/dev"
        self._mount("tmpfs", base, _MS_NOSUID | _MS_NODEV, f"mode=755{size}")
        for folder in ("/proc", "/dev/pts", FOLDER, *_OPEN_FOLDERS):
            os.makedirs(base + folder, exist_ok=True)
        for folder in _OPEN_FOLDERS:
            os.chmod(base + folder, 0o1777)
        for name, link in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
            os.symlink(f"/proc/self/{link}", f"{base}/dev/{name}")
        os.symlink("pts/ptmx", f"{base}/dev/ptmx")
        for target, link in sources.links:
            os.symlink(link, base + target)
        for tree, target in trees:
            self._place_tree(tree, base + target)
        systems = [path + "/" for _, path, how in sources.system if how == "system"]
        for target in self.order["covered"]:  # a run in /usr/src, say
            if not target.startswith(tuple(systems)):
                continue  # it is not there anyway
            if os.path.isdir(base + target):
                self._mount("tmpfs", base + target, _MS_NOSUID | _MS_NODEV, "mode=755,size=64k")
            elif os.path.exists(base + target):
                self._place_tree(self._clone(sources.null, target, "device"), base + target)
        for source, target in sources.named:
            self._place_tree(self._clone(source, target, "named"), base + target)
        if self.order["hosts"] and self.own_network:
            with open(f"{base}/hosts", "w") as file:
                file.write(self.order["hosts"])
            tree = self._clone(_open(file.name), "/etc/hosts", "named")
            self._place_tree(tree, base + os.path.realpath("/etc/hosts"))
            os.unlink(file.name)
        self._mount("proc", f"{base}/proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None)
        self._mount(
            "devpts", f"{base}/dev/pts", _MS_NOSUID | _MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"
        )
        self._place_folder(base + FOLDER, sources.folder)
        os.chdir(base)
        number = _PIVOT_ROOT.get(os.uname().machine, -1)
        self._call(self.libc.syscall(number, b".", b"."), "the root directory can't be changed")
        self._call(self.libc.umount2(b".", _MNT_DETACH), "the machine's root stays")
        os.chdir("/")
        self.folder = FOLDER

    def _place_folder(self, inside: str, folder: int) -> None:
        """Copy the working folder in, so that the tmpfs bounds it, or mount it where nothing is limited."""
        if self.limits is None:
            self._place_tree(self._clone(folder, FOLDER, "folder"), inside)
        else:
            _copy(self._outside, inside)
        if self.user is not None:
            _give(inside, self.user)

    def _clone(self, source: int, target: str, how: str) -> int:
        tree = self._call(
            self.libc.syscall(
                _OPEN_TREE, source, b"", _TREE_CLONE | _TREE_CLOEXEC | _AT_EMPTY_PATH | _AT_RECURSIVE
            ),
            f"{target} can't be mounted",
        )
        attributes = _ATTR_NO_SETUID
        attributes |= 0 if how == "folder" else _ATTR_READ_ONLY
        attributes |= 0 if how == "device" else _ATTR_NO_DEVICES
        asked = struct.pack("=QQQQ", attributes, 0, _MS_PRIVATE, 0)
        done = self.libc.syscall(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, asked, len(asked))
        self._call(done, f"{target} can't be mounted read-only; Linux 5.12 or later can")
        return tree

    def _place_tree(self, tree: int, target: str) -> None:
        if stat.S_ISDIR(os.fstat(tree).st_mode):
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        moved = self.libc.syscall(_MOVE_MOUNT, tree, b"", -100, os.fsencode(target), _MOVE_FROM_DESCRIPTOR)
        self._call(moved, f"{target} can't be mounted")
        os.close(tree)

    def _mount(self, kind: str, target: str, flags: int, options: str | None) -> None:
        data = options.encode() if options is not None else None
        done = self.libc.mount(kind.encode(), os.fsencode(target), kind.encode(), flags, data)
        self._call(done, f"{kind} can't be mounted")

    # The program

    def _supervise(self) -> NoReturn:
        """Start the program, watch what its tree uses, and report how it ended.

        In the process namespace this is its init: signals that an init sends to itself do nothing (abort() among
        them), so the program must be another process.
        """
        shown, ours = os.pipe()  # the program's own report, closed by its start
        if self.linux:
            # the program can't look into this process, nor go to its files
            self.libc.prctl(_PR_SET_DUMPABLE, 0)
        program = os.fork()
        if program == 0:
            os.close(shown)
            self._become_program(ours)
        os.close(ours)
        _let_go_of_output()
        with os.fdopen(shown, "rb") as report:
            lines = [json.loads(line) for line in report.read().splitlines()]
        for line in lines:
            _tell(self.channel, line, [one.fileno() for one in self.listeners] if "held" in line else None)
        for one in self.listeners:
            one.close()
        if any("held" not in line for line in lines):
            os._exit(REFUSED)
        _tell(self.channel, self._watch(program))
        if self.limits is None and "namespaces" in self.held:
            with contextlib.suppress(ChildProcessError):
                # children of the program may still write for it; the parent ends us when it has waited
                while True:
                    os.wait()
        os._exit(0)

    def _watch(self, program: int) -> dict[str, Any]:
        began = time.monotonic()
        ended: dict[str, Any] = {"timed_out": False, "exceeded": ""}
        watched = (
            _Tree(self.limits, whole="namespaces" in self.held, program=program) if self.limits else None
        )
        handle = os.pidfd_open(program) if hasattr(os, "pidfd_open") else None
        while True:
            with contextlib.suppress(ChildProcessError):
                done, status = os.waitpid(-1, os.WNOHANG if watched else 0)
                if done == program:
                    ended["status"] = os.waitstatus_to_exitcode(status)
                    break
                if done:
                    continue
            assert watched is not None
            if not (ended["timed_out"] or ended["exceeded"]):
                ended["timed_out"] = time.monotonic() - began > watched.seconds
                ended["exceeded"] = "" if ended["timed_out"] else watched.exceeded()
            if ended["timed_out"] or ended["exceeded"]:
                watched.kill()
            if handle is not None:
                select.select([handle], [], [], _POLL)
            else:
                time.sleep(_POLL)
        ended["seconds"] = time.monotonic() - began
        if watched is not None and "namespaces" in self.held:
            watched.kill()
            with contextlib.suppress(ChildProcessError):
                while True:
                    os.wait()
            try:
                _take_back(FOLDER, self._outside, self.disk)
            except OSError as error:
                ended["not_kept"] = _reason(error)
        return ended

    def _become_program(self, report: int) -> NoReturn:
        """Give up every right, tell which means hold, and execute the program."""

        def tell(message: dict[str, Any]) -> None:
            os.write(report, json.dumps(message).encode() + b"\n")

        try:
            os.chdir(self.folder)
            if "namespaces" in self.held:
                os.setsid()
            if self.limits is not None:
                self._holds("limits", self._limit)
                if self.linux:  # so that `<generator object at 0x…>` says the same each time
                    self.libc.personality(_ADDR_NO_RANDOMIZE)
            if self.user is not None and os.geteuid() != self.user:
                _become(self.user)
            if self.linux:
                self._drop_capabilities()
                self._call(self.libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "privileges can't be dropped")
            if self.limits is not None or "namespaces" not in self.held or not self.own_network:
                self._holds("Landlock", self._enter_landlock)
            self._holds("system calls", lambda: install_filter(limits=self.limits is not None))
            tell({"held": self.held, "missing": self.missing, "folder": self.folder})
        except _Missing as error:
            tell({"refused": str(error)})
            os._exit(REFUSED)
        except BaseException as error:  # noqa: BLE001 -- told to the parent; nothing may go on half confined
            tell({"refused": f"{type(error).__name__}: {error}"})
            os._exit(REFUSED)
        try:
            environment = {"HOME": self.folder, "TMPDIR": self.folder, **self.order["environment"]}
            os.execvpe(self.order["argv"][0], self.order["argv"], environment)
        except (OSError, ValueError) as error:
            tell({"not_started": getattr(error, "strerror", None) or str(error)})
        os._exit(127)

    def _limit(self) -> None:
        assert self.limits is not None
        limits = self.limits
        try:
            for kind, value in (
                (resource.RLIMIT_CORE, 0),
                # the supervisor keeps the wall clock; this ends what escapes it, and threads add up
                (resource.RLIMIT_CPU, int(limits["seconds"]) * (os.cpu_count() or 1) + 5),
                (resource.RLIMIT_FSIZE, limits["file_size"]),
                (resource.RLIMIT_NOFILE, limits["open_files"]),
                (resource.RLIMIT_NPROC, limits["processes"]),
                (resource.RLIMIT_AS, limits["memory"]),
            ):
                if value is None:
                    continue
                hard = resource.getrlimit(kind)[1]
                most = value if hard == resource.RLIM_INFINITY else min(value, hard)
                resource.setrlimit(kind, (most, most))
        except (ValueError, OverflowError) as error:
            raise OSError(errno.EINVAL, str(error)) from error

    def _drop_capabilities(self) -> None:
        header = struct.pack("=II", 0x20080522, 0)  # linux/capability.h, version 3; this process
        done = self.libc.capset(header, bytes(24))
        self._call(done, "capabilities can't be dropped")

    def _enter_landlock(self) -> None:
        version = self.libc.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)
        self._call(version, "the kernel has none")
        alone = "namespaces" in self.held
        files = self.limits is not None
        if not self.own_network and alone and version < _SCOPE_VERSION:
            raise OSError(
                0, "abstract sockets of the machine stay open to the program; Linux 6.12 or later shuts them"
            )
        rights = (1 << _RIGHTS[min(version, max(_RIGHTS))]) - 1 if files else 0
        net = _NET_RIGHTS if files and not alone and version >= _NET_VERSION else 0
        scopes = _SCOPES if version >= _SCOPE_VERSION else 0
        if not rights | net | scopes:
            return
        handled = struct.pack("=QQQ", rights, net, scopes)
        size = 24 if version >= _SCOPE_VERSION else 16 if version >= _NET_VERSION else 8
        ruleset = self._call(self.libc.syscall(_CREATE_RULESET, handled, size, 0), "it can't be set up")
        if files:
            for path in ("/",) if alone else (*_SYSTEM, *_WITHOUT_NAMESPACES, *self.order["readable"]):
                self._allow(ruleset, path, rights & _READS)
            for path in (
                self.folder,
                *(_OPEN_FOLDERS if alone else ()),
                *(f"/dev/{name}" for name in _DEVICES),
            ):
                self._allow(ruleset, path, rights & ~_IOCTL_DEVICE)
        self._call(self.libc.syscall(_RESTRICT_SELF, ruleset, 0), "it can't be entered")
        os.close(ruleset)

    def _allow(self, ruleset: int, path: str, access: int) -> None:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        rule = _PathBeneath(access if os.path.isdir(path) else access & _OF_FILES, descriptor)
        self._call(
            self.libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0),
            f"not for {path}",
        )
        os.close(descriptor)


class _Sources:
    """The machine's paths that the new root shows, opened before it hides them."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.links: list[tuple[str, str]] = []  # place, text
        self.system: list[tuple[int, str, str]] = []  # descriptor, place, kind
        for path in _SYSTEM:
            if os.path.islink(path):
                self.links.append((path, os.readlink(path)))
            elif os.path.isdir(path):
                self.system.append((_open(path), path, "system"))
        for name in _DEVICES:
            self.system.append((_open(f"/dev/{name}"), f"/dev/{name}", "device"))
        self.folder = _open(order["folder"])
        self.null = _open(os.devnull)
        self.named = [(_open(path), path) for path in order["readable"]]


def _open(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


class _Tree:
    """What the processes of a program use together, held against its limits."""

    def __init__(self, limits: dict[str, Any], *, whole: bool, program: int) -> None:
        self.seconds: float = limits["seconds"]
        self._memory, self._processes, self._program = limits["memory"], limits["processes"], program
        self._whole = whole  # in a process namespace: all but this process is the program's
        self._page = resource.getpagesize()

    def exceeded(self) -> str:
        """Return the limit that was reached ("memory", "processes"), or ""."""
        if not self._whole:
            return ""
        pids = [name for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        if self._processes is not None and len(pids) > self._processes:
            return "processes"
        if self._memory is None:
            return ""
        # resident pages count once for each process that shares them; the exact sum takes longer, and is asked for last
        if sum(self._resident(pid) for pid in pids) <= self._memory:
            return ""
        return "memory" if sum(self._share(pid) for pid in pids) > self._memory else ""

    def kill(self) -> None:
        """End every process of the program; outside a process namespace, itself alone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1 if self._whole else self._program, signal.SIGKILL)

    def _resident(self, pid: str) -> int:
        try:
            with open(f"/proc/{pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * self._page
        except (OSError, IndexError):  # it has ended
            return 0

    def _share(self, pid: str) -> int:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                return sum(int(line.split()[1]) << 10 for line in file if line.startswith(b"Pss:"))
        except PermissionError:  # a process that hides itself is counted in full
            return self._resident(pid)
        except (OSError, IndexError):
            return 0


def _let_go_of_output() -> None:
    """Give up standard input and output, whose ends the parent waits for."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


def _reason(error: OSError) -> str:
    return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"


def _unused_user() -> int:
    """Return a user id that nobody has, a different one for each process at work."""
    first, small = _OWN_USERS
    with open("/proc/self/uid_map") as file:
        mapped = [tuple(map(int, line.split())) for line in file]
    for user in (first + os.getpid(), small + os.getpid() % 500):
        if any(begin <= user < begin + count for begin, _, count in mapped):
            return user
    raise OSError(errno.EINVAL, "this root may not become another user")


def _become(user: int) -> None:
    """Become a user for good, who owns the pipes and files that his output goes to."""
    for descriptor in (0, 1, 2):
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISFIFO(mode) or (descriptor and stat.S_ISREG(mode)):
            os.fchown(descriptor, user, user)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _give(folder: str, user: int) -> None:
    """Make a user the owner of a folder and of all in it."""
    for place, names, files in os.walk(folder):
        for name in (".", *names, *files):
            os.chown(os.path.join(place, name), user, user, follow_symlinks=False)


def _take_back(inside: str, outside: str, most: int | None) -> None:
    """Replace the content of the folder outside by what the program left.

    Raise OSError for more than `most` bytes.
    """
    size = sum(
        entry.stat(follow_symlinks=False).st_size
        for entry in _walk(inside)
        if entry.is_file(follow_symlinks=False)
    )
    if most is not None and size > most:  # a file with holes takes its room when it is copied
        raise OSError(errno.EFBIG, f"the files name {size} bytes, more than the limit on disk")
    for entry in list(os.scandir(outside)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)
    _copy(inside, outside)


def _copy(source: str, target: str) -> None:
    """Copy folders, files and symbolic links as they are, without special files and bits that give rights."""
    for entry in _walk(source):
        to = target + entry.path[len(source) :]
        status = entry.stat(follow_symlinks=False)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), to)
        elif entry.is_dir():
            os.mkdir(to, 0o700 | status.st_mode & 0o777)
        elif entry.is_file():
            shutil.copyfile(entry.path, to)
            os.chmod(to, status.st_mode & 0o777)
            os.utime(to, ns=(status.st_atime_ns, status.st_mtime_ns))


def _walk(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield the entries of a folder, each folder before its content, at any depth."""
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)


def _loopback_up(addresses: list[str]) -> None:
    """Turn loopback on, with further addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        asked = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(control, _SIOCGIFFLAGS, asked))[1]
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))
        for number, address in enumerate(one for one in addresses if ":" not in one):
            place = struct.pack("=H2x4s8x", socket.AF_INET, socket.inet_aton(address))
            fcntl.ioctl(control, _SIOCSIFADDR, struct.pack("16s16s8x", b"lo:%d" % number, place))
    for address in (one for one in addresses if ":" in one):
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as control:
            place = socket.inet_pton(socket.AF_INET6, address)
            index = socket.if_nametoindex("lo")
            fcntl.ioctl(control, _SIOCSIFADDR, struct.pack("=16sIi", place, 128, index))


def _listen(host: str, port: int) -> socket.socket:
    address = "127.0.0.1" if host == "localhost" else host
    return socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
