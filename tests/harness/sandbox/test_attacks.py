"""Attacks on the sandbox: each is stopped, and the same ones succeed where a means is switched off."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.sandbox.running import Limits, SandboxResult, can_confine, run
from stillweb.proxy.net import seccomp
from tests.interop.readers import ROOT
from tests.support.waiting import until

CANARY = "canary-of-the-host"


@pytest.fixture(scope="module", autouse=True)
def _confinement() -> None:
    if (why := can_confine()) is not None:
        pytest.skip(f"no confinement here: {why}")


# Name: (statements that fail where the attack is stopped, what they would do). V is a folder of the host, P our process.
ATTACKS: dict[str, tuple[str, str]] = {
    # files
    "read": ("open(f'{V}/secret').read()", "read a file of the user"),
    "list": ("os.listdir(V)", "list a folder of the user"),
    "read upwards": ("open('../../../../../..' + V + '/secret').read()", "leave the working folder by dots"),
    "write": ("open(f'{V}/secret', 'a').write('x')", "change a file of the user"),
    "truncate": ("os.truncate(f'{V}/secret', 18)", "empty a file by its path"),
    "create": ("open(f'{V}/new', 'w')", "leave a file with the user"),
    "mkdir": ("os.mkdir(f'{V}/folder')", "leave a folder with the user"),
    "unlink": ("os.unlink(f'{V}/spare')", "remove a file of the user"),
    "rename": ("os.rename(f'{V}/spare', f'{V}/spare')", "rename a file of the user"),
    "hard link": ("os.link(f'{V}/secret', 'linked')", "bring a file in by a second name"),
    "symbolic link": ("os.symlink(f'{V}/secret', 'soft'); open('soft').read()", "follow a link out"),
    "shadow": ("open('/etc/shadow').read()", "read the password hashes, as root might"),
    "system file": ("open('/etc/passwd', 'r+')", "change a file of the system"),
    "program": ("open(sys.executable, 'r+b')", "change the interpreter"),
    "new file beside it": ("open(sys.executable + '.new', 'w')", "put a file into the installation"),
    "exchange": ("call(RENAMEAT2, -100, b'/etc/passwd', -100, b'/etc/group', 2)", "exchange two files of the system"),
    "link out": ("os.link('/etc/passwd', 'passwd')", "keep a file of the system by a second name"),
    "fallocate": ("os.posix_fallocate(os.open('/etc/passwd', os.O_RDWR), 0, 1)", "fill the disk outside"),
    # metadata, which Landlock does not see
    "chmod": ("os.chmod('/etc/passwd', 0o644)", "change the mode of a file of the system"),
    "chmod of the user's": ("os.chmod(f'{V}/secret', 0o600)", "change the mode of a file of the user"),
    "chmod of the program": ("os.chmod(sys.executable, 0o755)", "change the mode of the interpreter"),
    "chown": ("os.chown('/etc/passwd', os.getuid(), -1)", "own a file of the system"),
    "utime": ("os.utime('/etc/passwd', (1, 1))", "change the dates of a file of the system"),
    "setxattr": ("os.setxattr('/etc/passwd', 'user.x', b'x')", "set an attribute of a file of the system"),
    "fchmod of a device": ("os.fchmod(0, 0o666)", "change the machine's /dev/null by the open descriptor"),
    "chmod of a device": ("os.chmod('/dev/null', 0o666)", "change the machine's /dev/null by its path"),
    "mknod": ("import stat; os.mknod('disk', 0o600 | stat.S_IFBLK, os.makedev(254, 0))", "make a device for the disk"),
    # what others share
    "shared memory": ("open(f'/dev/shm/{NAME}')", "read another program's shared memory"),
    "shared folder": ("open(f'/tmp/{NAME}')", "read another program's temporary file"),
    "System V memory": ("call(SHMGET, 0x57177EB, 8, 0)", "open shared memory by its key"),
    "message queue": ("call(MQ_OPEN, b'/stillweb', 0, 0, 0)", "open a message queue by its name"),
    "session keys": ("call(KEYCTL, 0, -3, 0)", "find the keys of the user's session"),
    # other processes
    "environment of the parent": ("open(f'/proc/{P}/environ').read()", "read our keys"),
    "root of the parent": ("os.listdir(f'/proc/{P}/root')", "reach the machine's files through /proc"),
    "root of init": ("os.listdir('/proc/1/root' + V)", "reach the machine's files through the first process"),
    "folder of init": ("os.listdir('/proc/1/cwd')", "read through the supervisor's folder"),
    "descriptors of init": ("os.listdir('/proc/1/fd')", "list what the supervisor has open"),
    "environment of init": ("open('/proc/1/environ').read()", "read the supervisor's environment"),
    "memory of init": ("open('/proc/1/mem', 'r+b').read(1)", "change the supervisor"),
    "other processes": ("assert len([n for n in os.listdir('/proc') if n.isdigit()]) > 9", "see who else is at work"),
    "signal": ("os.kill(P, 0)", "signal us"),
    "signal to all": ("os.kill(PP, 0)", "signal who started us"),
    "limits of others": ("resource.prlimit(P, resource.RLIMIT_NOFILE)", "read or set our limits"),
    "limits of init": ("resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))", "keep the supervisor from looking"),
    "priority of init": ("os.setpriority(os.PRIO_PROCESS, 1, 19)", "keep the supervisor waiting"),
    "memory map of init": ("open('/proc/1/maps').read(9)[0]", "learn where the supervisor's memory lies"),
    "program of init": ("open('/proc/1/exe', 'rb')", "reach a file by the supervisor's program"),
    "ptrace": ("call(PTRACE, 16, 1, 0, 0)", "attach to the supervisor"),
    "memory of others": ("call(PROCESS_VM_READV, P, 0, 0, 0, 0, 0)", "read our memory"),
    "inherited descriptors": ("os.fstat(3)", "use a file that we had open"),
    "terminal": ("call(IOCTL, 0, 0x5412, b'x')", "type into the user's terminal"),
    "socket buffers": (
        "s = socket.socketpair()[0]; s.setsockopt(1, socket.SO_SNDBUF, 1 << 24); assert s.getsockopt(1, socket.SO_SNDBUF) > 1 << 20",
        "keep a gigabyte in the buffers of 120 sockets, which count as nobody's memory",
    ),
    # networks
    "socket of the user": ("socket.socket(socket.AF_UNIX).connect(f'{V}/socket')", "ask a server by its path"),
    "abstract socket": ("socket.socket(socket.AF_UNIX).connect('\\0' + NAME)", "ask a server by its abstract name"),
    "loopback": ("socket.create_connection(('127.0.0.1', PORT), 2)", "ask a server of this machine"),
    "internet": ("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('1.1.1.1', 53))", "find a route out"),
    "name": ("socket.getaddrinfo('example.com', 80)", "carry words out in names that are asked for"),
    "DNS on loopback": ("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('127.0.0.1', 53)); s.send(b'x'); s.send(b'x')", "the same by the resolver of this machine"),
    "internet by IPv6": ("socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).connect(('2001:db8::1', 53))", "find a route out"),
    "multicast": ("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('224.0.0.251', 5353))", "be heard by the neighbours"),
    "MPTCP": ("socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).connect(('127.0.0.1', PORT))", "the same by a protocol beside TCP"),
    "address": ("s = socket.socket(16, 3, 0); s.send(struct.pack('=IHHIIBBHiII', 32, 16, 5, 1, 0, 0, 0, 0, 1, 0, 0)); assert not struct.unpack('=i', s.recv(99)[16:20])[0]", "change the network by netlink"),
    "hypervisor": ("socket.socket(40, socket.SOCK_STREAM)", "open a vsock, which no network namespace holds"),
    "kernel crypto": ("socket.socket(38, socket.SOCK_SEQPACKET)", "reach the kernel's AF_ALG"),
    "raw packets": ("socket.socket(17, socket.SOCK_RAW)", "open a packet socket"),
    "kernel events": ("socket.socket(16, socket.SOCK_RAW, 15)", "listen to the kernel's netlink"),
    # ways around the filter and the namespaces
    "unshare": ("call(UNSHARE, 0x10000000)", "make a user namespace and be its root"),
    "clone": ("call(CLONE, 0x10000000 | 17, 0, 0, 0, 0) or os._exit(0)", "the same by clone"),
    "clone3": ("call(435, struct.pack('=11Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0), 88) or os._exit(0)", "by clone3"),
    "setns": ("call(SETNS, os.open('/proc/1/ns/mnt', 0), 0)", "enter the supervisor's namespace"),
    "mount": ("call(MOUNT, b'none', b'/tmp', b'tmpfs', 0, 0)", "mount something"),
    "later calls": ("call(467, -100, b'/', 0, 0, 0)", "clone a mount by a call that came after the filter"),
    "time": ("call(UNSHARE, 0x80)", "have a clock of one's own"),
    "nameless file": ("os.open('/dev', os.O_TMPFILE | os.O_RDWR)", "write where nothing may be written"),
    "file by descriptor": ("os.utime(os.open('/etc/passwd', 0), (1, 1))", "change dates by an open descriptor"),
    "core memory": ("open('/proc/kcore', 'rb').read(1)", "read the kernel's memory"),
    "sysrq": ("open('/proc/sysrq-trigger', 'w').write('h')", "command the kernel"),
    "chroot": ("call(CHROOT, b'/tmp')", "change the root"),
    "io_uring": ("call(425, 8, bytes(120))", "make system calls that no filter sees"),
    "memfd": ("call(MEMFD, b'x', 0)", "keep memory that no limit counts"),
    "userfaultfd": ("call(USERFAULTFD, 1)", "hold the kernel at a page fault"),
    "x32": ("call(0x40000000 + 39)", "use calls under the numbers of another ABI"),
    "more processes": ("resource.setrlimit(resource.RLIMIT_NPROC, (9999, 9999))", "raise a limit"),
    "larger files": ("resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))", "raise a limit"),
    "kernel settings": ("open('/proc/sys/kernel/core_pattern', 'r+')", "have the kernel start a program as root"),
    "host name": ("socket.sethostname('x')", "rename the machine"),
    "root": ("os.setuid(0)", "be root again"),
}  # fmt: skip

PRELUDE = """
import ctypes, json, os, resource, signal, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    done = libc.syscall(ctypes.c_long(number), *(a if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments))
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done
def tried(statements):
    shown, ours = os.pipe()
    if (child := os.fork()) == 0:
        os.close(shown)
        os.dup2(ours, 9); os.closerange(3, 9)
        try:
            exec(statements, globals())
            said = "succeeded"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(9, said.encode())
        os._exit(0)
    os.close(ours)
    with os.fdopen(shown) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return said or f"ended by {status}"
"""

_COLUMN = {"x86_64": 0, "aarch64": 1}.get(os.uname().machine, 0)
NUMBERS = {
    **{n.upper(): v[_COLUMN] for n, v in {**seccomp.REFUSED, **seccomp.REFUSED_WITH_LIMITS}.items()},
    "MEMFD": seccomp.REFUSED_WITH_LIMITS["memfd_create"][_COLUMN],
    "CLONE": (56, 220)[_COLUMN],
    "IOCTL": (16, 29)[_COLUMN],
    "RENAMEAT2": (316, 276)[_COLUMN],
}


@dataclass
class Victim:
    """Targets of an attack: files, servers and processes of this machine."""

    folder: Path
    names: dict[str, Any]
    opened: list[Any]

    def program(self, attacks: dict[str, str]) -> str:
        """A program that tries the attacks, each in a process of its own, and prints what came of them."""
        given = "\n".join(f"{name} = {value!r}" for name, value in {**NUMBERS, **self.names}.items())
        return f"{PRELUDE}\n{given}\nprint(json.dumps({{name: tried(text) for name, text in {attacks!r}.items()}}))"

    def whole(self) -> bool:
        """Whether nothing of it was changed."""
        files = {path.name: path.read_text() for path in self.folder.iterdir() if path.is_file()}
        return files == {"secret": CANARY, "spare": "spare"} and len(os.listdir(self.folder)) == 3


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    folder = tmp_path_factory.mktemp("victim")
    (folder / "secret").write_text(CANARY)
    (folder / "spare").write_text("spare")
    name = f"stillweb-attack-{os.getpid()}"
    shared = [Path(place) / name for place in ("/dev/shm", "/tmp")]
    for path in shared:
        path.write_text(CANARY)
    opened = [
        socket.socket(socket.AF_UNIX),
        socket.socket(socket.AF_UNIX),
        socket.create_server(("127.0.0.1", 0)),
    ]
    opened[0].bind(str(folder / "socket"))
    opened[1].bind(f"\0{name}")
    for one in opened[:2]:
        one.listen()
    names = {"V": str(folder), "P": os.getpid(), "PP": os.getppid(), "NAME": name, "PORT": opened[2].getsockname()[1]}  # fmt: skip
    yield Victim(folder, names, opened)
    for one in opened:
        one.close()
    for path in shared:
        path.unlink()


@pytest.fixture(scope="module")
def outcomes(victim: Victim, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("attacker")
    texts = {name: text for name, (text, _) in ATTACKS.items()}
    done = run([sys.executable, "-c", victim.program(texts)], cwd=folder, limits=Limits(seconds=120))
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_stopped(name: str, outcomes: dict[str, str], victim: Victim) -> None:
    assert outcomes[name] != "succeeded", ATTACKS[name][1]
    assert "NameError" not in outcomes[name]
    assert "SyntaxError" not in outcomes[name]
    assert victim.whole()


@pytest.mark.parametrize("limits", [True, False])
def test_every_refused_call_is_refused(tmp_path: Path, limits: bool) -> None:
    """Without the filter the kernel itself would refuse the calls' arguments, with another error."""
    calls = {**seccomp.REFUSED, **(seccomp.REFUSED_WITH_LIMITS if limits else {})}
    numbers = {name: both[_COLUMN] for name, both in calls.items() if both[_COLUMN]}
    code = (
        f"{PRELUDE}\nsys.path.insert(0, {str(ROOT)!r})\nfrom stillweb.proxy.net.seccomp import install_filter\n"
        f"libc.prctl(38, 1, 0, 0, 0); install_filter(limits={limits})\n"
        f"print(json.dumps({{n: tried(f'call({{v}}, -1, -1, -1, -1, -1, -1)') for n, v in {numbers!r}.items()}}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    assert {name for name, said in told.items() if not said.startswith("PermissionError")} == set()
    assert len(told) > 40


# Bounds of the whole tree


def attack(code: str, folder: Path, **limits: Any) -> SandboxResult:
    return run(
        [sys.executable, "-c", f"{PRELUDE}\n{code}"], cwd=folder, limits=Limits(**{"seconds": 60.0, **limits})
    )


@pytest.mark.slow
def test_a_fork_bomb_is_bounded(tmp_path: Path) -> None:
    code = "import time\nfor i in range(40):\n  try: os.fork()\n  except OSError: pass\ntime.sleep(30)"
    done = attack(code, tmp_path, processes=64, seconds=5.0)
    assert done.timed_out or done.exceeded or done.returncode, done
    assert (
        "BlockingIOError"
        in attack("for i in range(300):\n  if not os.fork(): signal.pause()", tmp_path).stderr
    )


def test_threads_count_as_processes(tmp_path: Path) -> None:
    code = "import threading\nfor i in range(300): threading.Thread(target=signal.pause, daemon=True).start()"
    assert "can't start new thread" in attack(code, tmp_path, processes=100).stderr


@pytest.mark.slow
def test_memory_is_that_of_all_processes_together(tmp_path: Path) -> None:
    code = "kids = [os.fork() for _ in range(2)]\nblock = bytearray(b'x') * (150 << 20)\nimport time; time.sleep(20)\nprint('kept')"
    done = attack(code, tmp_path, memory=256 << 20)
    assert (done.exceeded, done.returncode, done.stdout) == ("memory", -9, "")
    shared = (
        "block = bytearray(b'x') * (150 << 20)\nfor _ in range(3): os.fork()\nimport time; time.sleep(0.5)"
    )
    assert attack(shared, tmp_path, memory=256 << 20).returncode == 0  # pages that processes share count once


@pytest.mark.parametrize(
    "code",
    [
        "for i in range(40): open(f'f{i}', 'wb').write(bytes(1 << 20))",
        "for i in range(40): open(f'/dev/shm/f{i}', 'wb').write(bytes(1 << 20))",
        "for i in range(40): open(f'/tmp/f{i}', 'wb').write(bytes(1 << 20))",
        "for i in range(40): f = os.open('gone', os.O_RDWR | os.O_CREAT); os.unlink('gone'); os.write(f, bytes(1 << 20))",
        "for i in range(40): os.posix_fallocate(os.open(f'f{i}', os.O_RDWR | os.O_CREAT), 0, 1 << 20); os.closerange(3, 99)",
        "for i in range(99999): open(f'{i}', 'w').close()",
    ],
    ids=["forty files", "shared memory", "temporary files", "removed files", "fallocate", "many names"],
)
def test_disk_is_that_of_all_files_together(tmp_path: Path, code: str) -> None:
    done = attack(code, tmp_path, disk=16 << 20, file_size=1 << 20)
    assert "No space left on device" in done.stderr
    assert sum(path.stat().st_size for path in tmp_path.rglob("*")) <= 16 << 20


def test_files_with_holes_are_not_brought_back(tmp_path: Path) -> None:
    """Each takes no room where it was made, and all of its size where it is copied to."""
    done = attack("for i in range(40): os.truncate(os.open(f'f{i}', os.O_RDWR | os.O_CREAT), 1 << 20)", tmp_path,
                  disk=16 << 20, file_size=1 << 20)  # fmt: skip
    assert done.returncode == 0
    assert "more than the limit on disk" in done.not_kept
    assert list(tmp_path.iterdir()) == []


# What is left without a means


def without(calls: list[str], code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python where these system calls are forbidden from outside, as a container may forbid them."""
    numbers = {**seccomp.REFUSED, **seccomp.REFUSED_WITH_LIMITS, "landlock_create_ruleset": (444, 444)}
    forbidden = {name: numbers[name] for name in calls}
    text = (
        "import ctypes, sys\nfrom pathlib import Path\nfrom stillweb.proxy.net import seccomp\n"
        "from stillweb.harness.sandbox.running import run, Limits\nfrom stillweb.snapshots.errors import MissingCapability\n"
        f"here = seccomp.REFUSED\nseccomp.REFUSED = {forbidden!r}\n"
        "ctypes.CDLL(None).prctl(38, 1, 0, 0, 0); seccomp.install_filter(limits=False)\n" + code
    )
    return subprocess.run(
        [sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("calls", "means", "attacks"),
    [
        (["unshare"], ["namespaces"], ["chmod of the user's"]),
        (["unshare", "landlock_create_ruleset"], ["namespaces", "Landlock"], ["read", "signal", "abstract socket", "loopback"]),
        (["mount"], ["namespaces"], ["chmod of the user's"]),
        (["mount_setattr"], ["namespaces"], ["chmod of the user's"]),
        (["landlock_create_ruleset"], ["Landlock"], []),
    ],
)  # fmt: skip
def test_without_a_means_a_run_refuses_and_the_attack_would_succeed(
    tmp_path: Path, victim: Victim, calls: list[str], means: list[str], attacks: list[str]
) -> None:
    program = victim.program({name: ATTACKS[name][0] for name in attacks})
    start = f"run([sys.executable, '-c', {program!r}], cwd=Path.cwd(), limits=Limits(seconds=60)"
    refused = without(calls, f"try: {start})\nexcept MissingCapability as error: print(error)", tmp_path)
    assert f"can't be confined here: {means[0]}: " in refused.stdout, refused.stderr
    assert "--allow-unconfined" in refused.stdout
    told = without(calls, f"done = {start}, allow_unconfined=True)\nprint(done.missing, done.held)\nprint(done.stdout, done.stderr)", tmp_path)  # fmt: skip
    named, outcome = told.stdout.splitlines()[:2]
    assert all(f"{one}: " in named for one in means), told.stdout + told.stderr
    assert "'system calls'" in named
    assert json.loads(outcome) == dict.fromkeys(attacks, "succeeded")


def test_an_architecture_without_a_filter_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(OSError, match="no system-call filter is known for riscv64"):
        seccomp.install_filter(limits=True)


def _as_nobody(program: str, *, namespaces: bool) -> subprocess.CompletedProcess[str]:
    """Run the system's Python as a user with no rights, who may make namespaces or may not."""
    if os.getuid() != 0:
        pytest.skip("only root becomes another user")
    python = shutil.which("python3", path="/usr/bin")
    if (
        python is None
        or subprocess.run(
            [python, "-c", "import sys; assert sys.version_info >= (3, 11)"], check=False
        ).returncode
    ):
        pytest.skip("no Python of the system that everybody may run")
    become = (
        "import os, sys, ctypes\nos.setgroups([]); os.setgid(65534); os.setuid(65534); libc = ctypes.CDLL(None); libc.prctl(4, 1)\n"
        f"if not {namespaces}:\n  assert libc.unshare(0x10000000) == 0\n"
        "  for name, text in ('setgroups', 'deny'), ('uid_map', '65534 65534 1'), ('gid_map', '65534 65534 1'):\n"
        "    open(f'/proc/self/{name}', 'w').write(text)\n"
        "  open('/proc/sys/user/max_user_namespaces', 'w').write('0')\n"
        "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1]])"
    )
    text = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{program}"
    return subprocess.run(
        [python, "-c", become, text], cwd="/", env={}, capture_output=True, text=True, check=False
    )


CONFINED = """
import sys, tempfile
from pathlib import Path
from stillweb.harness.sandbox.running import Limits, run
from stillweb.snapshots.errors import MissingCapability
with tempfile.TemporaryDirectory() as folder:
    try:
        done = run([sys.executable, "-c", {program!r}], cwd=Path(folder), limits=Limits(seconds=100))
    except MissingCapability as error:
        print(error)
    else:
        print(done.stdout, done.stderr, done.held)
"""


def test_a_user_without_rights_is_confined_alike(victim: Victim) -> None:
    texts = {name: text for name, (text, _) in ATTACKS.items()}
    done = _as_nobody(CONFINED.format(program=victim.program(texts)), namespaces=True)
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    told = json.loads(done.stdout.splitlines()[0])
    assert {name for name, said in told.items() if said == "succeeded"} == set()


def test_a_machine_that_forbids_namespaces_refuses() -> None:
    done = _as_nobody(CONFINED.format(program="print('ran')"), namespaces=False)
    assert "can't be confined here: namespaces: namespaces may not be made here" in done.stdout, done.stderr
    assert "ran" not in done.stdout


def test_many_starts_at_once_do_not_count_each_others_processes(tmp_path: Path) -> None:
    told: list[str] = []
    code = "for i in range(30):\n  if not os.fork(): os._exit(0)\nprint('all')"

    def start(number: int) -> None:
        (folder := tmp_path / str(number)).mkdir()
        told.append(attack(code, folder, processes=40).stdout)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    assert until(lambda: len(told) == 4)
    assert told == ["all\n"] * 4
