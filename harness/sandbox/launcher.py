"""The inside of the sandbox's process: gives up what it may do, then becomes the program.

Started by stillweb.harness.sandbox.running as `python -I -c … <fd> <order>`; tells through the descriptor what it could not give up.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import signal
import sys
from typing import Any, NoReturn

from stillweb.proxy.isolation import enter_isolation
from stillweb.snapshots.errors import MissingCapability

_CLONE_NEWPID = 0x20000000  # linux/sched.h
_PR_SET_NO_NEW_PRIVS, _PR_SET_PDEATHSIG = 38, 1  # linux/prctl.h
_ADDR_NO_RANDOMIZE = 0x0040000  # linux/personality.h
# linux/landlock.h; the numbers are the same on every architecture of today's kernels
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_READS = _EXECUTE | _READ_FILE | _READ_DIR
_ALL = (1 << 13) - 1  # the rights of Landlock's first version: the above, remove_* and make_*
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE
# What programs need of a system. Nobody's home, no /proc of others (their environment holds keys), no /tmp.
_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/etc", "/sys", "/nix/store")
_FILES = (
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys/kernel",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm")


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def main() -> NoReturn:
    """Reads the order from the arguments; never returns."""
    report_to, order = int(sys.argv[1]), json.loads(sys.argv[2])
    missing: list[str] = []
    for name, give_up in (
        ("network", _no_network),
        ("files", lambda: _confine_files(order["cwd"], order["readable"])),
        ("memory", lambda: _limit(order["limits"])),
        ("processes", _own_processes),
    ):
        try:
            give_up()
        except (OSError, MissingCapability, ValueError, OverflowError) as error:
            reason = f"{name}: {error}"
            if name not in order["allow"]:
                _tell(report_to, {"refused": reason})
                os._exit(4)
            missing.append(reason)
    os.chdir(order["cwd"])
    # last: a change of user would take it back. Who started us may be gone by now.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != order["parent"]:
        os._exit(4)
    _become(order, report_to, missing)


def _become(order: dict[str, Any], report_to: int, missing: list[str]) -> NoReturn:
    """Forks twice: the first child is the init of the process namespace, its child is the program.

    An init ignores signals that it sends to itself (abort() among them), so the program must not be one.
    """
    init = os.fork()
    if init:
        os.close(report_to)
        os.waitpid(init, 0)
        os._exit(0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    program = os.fork()
    if program == 0:
        try:
            os.set_inheritable(report_to, False)
            _tell(report_to, {"missing": missing})
            # so that `<generator object at 0x…>` says the same each time; no limit, so a container may forbid it
            ctypes.CDLL(None).personality(_ADDR_NO_RANDOMIZE)
            os.execvpe(order["argv"][0], order["argv"], order["environment"])
        except OSError as error:
            _tell(report_to, {"not_started": error.strerror or str(error)})
        finally:
            os._exit(127)
    ended, status = 0, 0
    while ended != program:  # what the program leaves behind is reaped here, and dies when this process ends
        ended, status = os.wait()
    _tell(report_to, {"status": os.waitstatus_to_exitcode(status)})
    os._exit(0)


def _tell(descriptor: int, value: dict[str, Any]) -> None:
    os.write(descriptor, json.dumps(value).encode() + b"\n")


def _no_network() -> None:
    enter_isolation()


def _own_processes() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWPID) != 0:
        raise OSError(ctypes.get_errno(), f"no process namespace ({os.strerror(ctypes.get_errno())})")


def _limit(limits: dict[str, Any]) -> None:
    seconds = int(limits["seconds"]) + 5
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, limits["file_size"]),
        (resource.RLIMIT_NOFILE, limits["open_files"]),
        (resource.RLIMIT_AS, limits["memory"]),
    ):
        hard = resource.getrlimit(kind)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (most, most))


def _confine_files(folder: str, readable: list[str]) -> None:
    """Landlock: writing only below `folder` (and to devices), reading also the system and `readable`."""
    if platform.system() != "Linux":
        raise OSError(0, "Landlock needs Linux")
    libc = ctypes.CDLL(None, use_errno=True)
    handled = ctypes.c_uint64(_ALL)
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(handled), ctypes.sizeof(handled), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), f"no Landlock ({os.strerror(ctypes.get_errno())})")
    _allow(libc, ruleset, folder, _ALL)
    for path in (*_SYSTEM, *_FILES, *readable):
        if os.path.exists(path):
            _allow(libc, ruleset, path, _READS)
    for path in _DEVICES:
        if os.path.exists(path):
            _allow(libc, ruleset, path, _ALL)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.syscall(_RESTRICT_SELF, ruleset, 0) != 0:
        raise OSError(ctypes.get_errno(), f"Landlock can't be entered ({os.strerror(ctypes.get_errno())})")
    os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, access: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = _PathBeneath(access if os.path.isdir(path) else access & _OF_FILES, descriptor)
    if libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0) != 0:
        raise OSError(ctypes.get_errno(), f"Landlock refuses {path} ({os.strerror(ctypes.get_errno())})")
    os.close(descriptor)
