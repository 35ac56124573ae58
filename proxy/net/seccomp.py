"""System-call filters (seccomp, BPF): of a confined program, and of a network namespace.

The filter of a confined program refuses calls that no ordinary program makes and that reach past namespaces, mounts and Landlock: kernel keys, other
processes' memory, mounting, io_uring (whose requests no filter sees), sockets that no network namespace holds (vsock).
The other calls are left to the file system's and the namespaces' own rules, since a filter reads numbers and no paths.
The filter of a namespace refuses only sockets that lead past it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping

# name: (number on x86_64, number on aarch64), from the kernel's asm/unistd_64.h and asm-generic/unistd.h; 0 is none
_NONE = 0
REFUSED: Mapping[str, tuple[int, int]] = {
    # mounts: what the mount namespace shows stays as it is
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),  # opens an inode with no path
    "name_to_handle_at": (303, 264),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "fanotify_init": (300, 262),
    # other processes
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # the kernel's own programs and faults
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    # keys of the session, which no namespace holds
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # the machine
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "iopl": (172, _NONE),
    "ioperm": (173, _NONE),
    "modify_ldt": (154, _NONE),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
}
# The last call that was looked at (removexattrat, Linux 6.13). Later ones, such as open_tree_attr, have the same number on
# every architecture and are unknown to the program, which does without them.
_NEWEST = 466
# Of code with limits: further namespaces, and memory that no process maps and no tmpfs counts.
REFUSED_WITH_LIMITS: Mapping[str, tuple[int, int]] = {
    "unshare": (272, 97),
    "chroot": (161, 51),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
}
_CLONE, _CLONE3, _SOCKET, _IOCTL, _PRLIMIT = (56, 220), (435, 435), (41, 198), (16, 29), (302, 261)
_SETSOCKOPT = (54, 208)
_SOL_SOCKET, _BUFFERS = 1, (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF and those with FORCE: asm-generic/socket.h
_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW* of linux/sched.h that clone(2) takes
_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6: linux/socket.h
# Socket families that a network namespace holds: also AF_NETLINK, AF_PACKET; AF_ALG has no network.
_HELD = (*_FAMILIES, 16, 17, 38)
_NETLINK = 16  # protocol 0 (routes) alone: getifaddrs asks by it
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: asm-generic/ioctls.h

# column above, AUDIT_ARCH of linux/audit.h
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
# socket, socketcall and io_uring_setup of the 32-bit programs that a machine runs, too
_SOCKETS_OF_32_BITS = {"x86_64": (359, 102, 425), "aarch64": (281, 425)}
_X32 = 0x40000000  # the bit of calls of the x32 ABI, which have numbers of their own
# linux/bpf_common.h, linux/seccomp.h
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
# offsets in struct seccomp_data; low halves
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32
_SET_SECCOMP, _MODE_FILTER = 22, 2  # linux/prctl.h, linux/seccomp.h


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install_filter(*, limits: bool) -> None:
    """Filter the calls of this process and its children, for good. PR_SET_NO_NEW_PRIVS must be set.

    Raises OSError where the kernel or the architecture has no filter.
    """
    _install(filter_program(_machine(), limits=limits))


def hold_sockets() -> None:
    """Refuse this process and its children sockets that lead past a network namespace, for good.

    Needs CAP_SYS_ADMIN in the user namespace. Raises OSError where the kernel or the architecture has no filter.
    """
    _install(socket_filter_program(_machine()))


def _machine() -> str:
    machine = platform.machine()
    if machine not in _MACHINES:
        raise OSError(errno.ENOSYS, f"no system-call filter is known for {machine}")
    return machine


def _install(code: bytes) -> None:
    program = _Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"no seccomp ({os.strerror(ctypes.get_errno())})")


def filter_program(machine: str, *, limits: bool) -> bytes:
    """Return the filter for an architecture as BPF instructions of 8 bytes each."""
    column, architecture = _MACHINES[machine]
    code: list[tuple[int, int, int, int]] = []

    def add(operation: int, value: int, then: int = 0, otherwise: int = 0) -> None:
        code.append((operation, then, otherwise, value))

    def refuse(error: int) -> None:
        add(_RETURN, _ERRNO | error)

    add(_LOAD, _ARCHITECTURE)
    add(_JUMP_EQUAL, architecture, 1, 0)
    add(_RETURN, _KILL)
    add(_LOAD, _NUMBER)
    if machine == "x86_64":
        add(_JUMP_AT_LEAST, _X32, 0, 1)
        refuse(errno.ENOSYS)
    add(_JUMP_AT_LEAST, _NEWEST + 1, 0, 1)
    refuse(errno.ENOSYS)
    refused = {**REFUSED, **(REFUSED_WITH_LIMITS if limits else {})}
    for numbers in refused.values():
        if numbers[column] != _NONE:
            add(_JUMP_EQUAL, numbers[column], 0, 1)
            refuse(errno.EPERM)
    if limits:
        # its flags lie in memory, which no filter reads: libc falls back
        add(_JUMP_EQUAL, _CLONE3[column], 0, 1)
        refuse(errno.ENOSYS)
        add(_JUMP_EQUAL, _CLONE[column], 0, 4)
        add(_LOAD, _FIRST)
        add(_JUMP_ANY_BIT, _NEW_NAMESPACES, 0, 1)
        refuse(errno.EPERM)
        add(_RETURN, _ALLOW)
        # a user's program has the user of its supervisor, whose limits it could set
        add(_JUMP_EQUAL, _PRLIMIT[column], 0, 4)
        add(_LOAD, _FIRST)
        add(_JUMP_EQUAL, 0, 1, 0)
        refuse(errno.EPERM)
        add(_RETURN, _ALLOW)
        # what the kernel keeps for sockets counts as nobody's memory: larger buffers are granted and not given
        add(_JUMP_EQUAL, _SETSOCKOPT[column], 0, len(_BUFFERS) + 5)
        add(_LOAD, _SECOND)
        add(_JUMP_EQUAL, _SOL_SOCKET, 0, len(_BUFFERS) + 1)
        add(_LOAD, _THIRD)
        for at, option in enumerate(_BUFFERS):
            add(_JUMP_EQUAL, option, len(_BUFFERS) - at, 0)
        add(_RETURN, _ALLOW)
        refuse(0)
    add(_JUMP_EQUAL, _IOCTL[column], 0, 5)
    add(_LOAD, _SECOND)
    add(_JUMP_EQUAL, _TERMINAL_INPUT[0], 1, 0)
    add(_JUMP_EQUAL, _TERMINAL_INPUT[1], 0, 1)
    refuse(errno.EPERM)
    add(_RETURN, _ALLOW)
    add(_JUMP_EQUAL, _SOCKET[column], 0, 9)
    add(_LOAD, _FIRST)
    add(_JUMP_EQUAL, _FAMILIES[0], 6, 0)
    add(_JUMP_EQUAL, _FAMILIES[1], 5, 0)
    add(_JUMP_EQUAL, _FAMILIES[2], 4, 0)
    add(_JUMP_EQUAL, _NETLINK, 0, 2)
    add(_LOAD, _THIRD)
    add(_JUMP_EQUAL, 0, 1, 0)
    refuse(errno.EAFNOSUPPORT)
    add(_RETURN, _ALLOW)
    add(_RETURN, _ALLOW)
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def socket_filter_program(machine: str) -> bytes:
    """Return the filter of `hold_sockets` for an architecture as BPF instructions of 8 bytes each.

    io_uring is refused, since its requests open sockets that no filter sees; programs then do without it.
    """
    column, architecture = _MACHINES[machine]
    code: list[tuple[int, int, int, int]] = []

    def refuse(number: int) -> None:
        code.extend([(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)])

    foreign = _SOCKETS_OF_32_BITS[machine]
    code += [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 2 * len(foreign) + 2, 0, architecture),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for number in foreign:
        refuse(number)
    code += [(_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, _NUMBER)]
    if machine == "x86_64":
        code += [(_JUMP_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    refuse(REFUSED["io_uring_setup"][column])
    code += [(_JUMP_EQUAL, 0, len(_HELD) + 2, _SOCKET[column]), (_LOAD, 0, 0, _FIRST)]
    code += [(_JUMP_EQUAL, len(_HELD) - at, 0, family) for at, family in enumerate(_HELD)]
    code += [(_RETURN, 0, 0, _ERRNO | errno.EAFNOSUPPORT), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)
