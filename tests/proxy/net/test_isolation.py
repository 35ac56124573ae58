"""The namespace: nothing but loopback in it, entered as root or not, and refused in one line."""

import ctypes
import errno
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from stillweb.proxy.net import isolation
from stillweb.proxy.net.ca import Authority
from stillweb.proxy.net.isolated import run_isolated
from stillweb.proxy.net.isolation import Canary, can_isolate, canary, enter_isolation, is_isolated
from stillweb.proxy.record.recorder import Recorder, record_command
from stillweb.snapshots.errors import MissingCapability, UsageError
from stillweb.snapshots.writer import Writer
from tests.proxy.origin import Answer, Origin
from tests.support.isolating import needs_isolation
from tests.support.waiting import HANG, STARTS

INSIDE = """
import json, os, socket, sys
from stillweb.proxy.net.isolation import canary, enter_isolation, is_isolated
{before}
enter_isolation()
enter_isolation()
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname(), 60).close()
routes = open("/proc/net/route").read().splitlines()[1:]
print(json.dumps({{"canary": canary().to_json(), "isolated": is_isolated(), "uid": os.getuid(), "routes": routes}}))
sys.exit(7)
"""


def run(before: str = "", **options: object) -> tuple[dict[str, object], int]:
    environment = {k: v for k, v in os.environ.items() if k != isolation.MARKER}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", INSIDE.format(before=before)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=STARTS,
        check=False,
        **options,  # type: ignore[call-overload]
    )
    assert done.stderr == ""
    return json.loads(done.stdout.splitlines()[-1]), done.returncode


@needs_isolation
@pytest.mark.parametrize(
    "before",
    ["", "import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()"],
)
def test_only_loopback_inside(before: str) -> None:
    seen, code = run(before)
    proof = seen["canary"]
    assert isinstance(proof, dict)
    assert code == 7
    assert seen["isolated"] is True
    assert seen["routes"] == []
    assert "lo" in proof["interfaces"]
    assert proof["escaped"] is False
    assert len(proof["attempts"]) == 4
    assert all(error for _, error in proof["attempts"])


@needs_isolation
@pytest.mark.parametrize(("kind", "reached"), [("abstract", False), ("path", True)])
def test_of_unix_sockets_only_those_with_a_path_lead_out(kind: str, reached: bool, tmp_path: Path) -> None:
    """An X server's socket in the file system stays within reach, its abstract one does not (docs/clients.md)."""
    name = f"\0stillweb-{uuid.uuid4()}" if kind == "abstract" else str(tmp_path / "X0")
    script = (
        "import socket, sys; from stillweb.proxy.net.isolation import enter_isolation; enter_isolation()\n"
        f"print(socket.socket(socket.AF_UNIX).connect_ex({name!r}) == 0)"
    )
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        environment = {k: v for k, v in os.environ.items() if k != isolation.MARKER}
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            timeout=STARTS,
            check=True,
        )
    assert done.stdout.split() == [str(reached)]


@needs_isolation
@pytest.mark.skipif(os.getuid() != 0, reason="gives root away")
def test_works_without_root(tmp_path: Path) -> None:
    def become_nobody() -> None:
        os.setgid(65534)
        os.setuid(65534)

    # nobody may not be able to read this checkout, so the module is carried over as text
    root = Path(isolation.__file__).parents[2]
    sources = "\n".join(
        [
            "import sys, types",
            "sys.path = [p for p in sys.path if 'site-packages' not in p]",
            *(
                f"module = types.ModuleType({name!r}); sys.modules[{name!r}] = module; exec({text!r}, module.__dict__)"
                for name, text in (
                    ("stillweb", ""),
                    ("stillweb.snapshots", ""),
                    ("stillweb.snapshots.errors", (root / "snapshots" / "errors.py").read_text("utf-8")),
                    ("stillweb.proxy", ""),
                    ("stillweb.proxy.net", ""),
                    *(
                        (
                            f"stillweb.proxy.net.{name}",
                            (root / "proxy" / "net" / f"{name}.py").read_text("utf-8"),
                        )
                        for name in ("addresses", "seccomp")
                    ),
                    ("isolation", Path(isolation.__file__).read_text("utf-8")),
                )
            ),
            "reason = module.can_isolate()",
            "print(reason) if reason else (module.enter_isolation(), print(module.canary().line()))",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-I", "-"],
        input=sources,
        capture_output=True,
        text=True,
        timeout=STARTS,
        cwd="/",
        preexec_fn=become_nobody,
        check=False,
        executable="/usr/bin/python3" if Path("/usr/bin/python3").exists() else None,
    )
    if "Permission denied" in done.stderr:
        pytest.skip("no Python that everybody may run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("canary: no way out", "isolation: "))
    assert done.stdout.count("\n") == 1


def test_refusal_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise MissingCapability("isolation: this user may not make a namespace (Operation not permitted)")

    monkeypatch.setattr(isolation, "_unshare", refuse)
    reason = can_isolate()
    assert reason == "isolation: this user may not make a namespace (Operation not permitted)"


def test_what_ubuntu_refuses_names_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace may be made there, but its user not be mapped."""

    class Kernel:
        def unshare(self, flags: int) -> int:
            ctypes.set_errno(errno.EPERM)
            return 0 if flags & isolation.CLONE_NEWUSER else -1

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(isolation.ctypes, "CDLL", lambda *_, **__: Kernel())
    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(MissingCapability, match="apparmor_restrict_unprivileged_userns=0"):
        isolation._unshare()


def test_other_systems_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert "Linux" in str(can_isolate())
    with pytest.raises(MissingCapability, match="darwin"):
        enter_isolation()


def test_the_canary_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a reachable place among those it tries, it must say that there is a way out."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(isolation, "OUTSIDE", (("127.0.0.1", server.getsockname()[1]),))
        proof = canary()
    assert proof.escaped
    assert "OUTSIDE REACHED" in proof.line()
    assert not is_isolated()
    assert isinstance(proof, Canary)


@needs_isolation
def test_shadow_passes_signals_on() -> None:
    """A program with threads runs on as a child; ending it from outside ends the child too."""
    program = (
        "import threading, time, os\n"
        "from stillweb.proxy.net.isolation import enter_isolation\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "enter_isolation()\n"
        "print('inside', flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != isolation.MARKER}
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    child = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == "inside\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(HANG) == 128 + signal.SIGTERM


def test_in_a_process_with_threads_nothing_is_left(tmp_path: Path) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        can_isolate()
        assert not is_isolated()
    finally:
        stop.set()
        thread.join()


# A service that looks names up for others, as nscd does for glibc, and a program that looks one up.
SERVICE = """
import os, socket, subprocess, sys
service = socket.socket(socket.AF_UNIX)
service.bind("/run/nscd/socket")
service.listen()
service.settimeout(0.1)
program = "import socket; from stillweb.proxy.net.isolation import enter_isolation\\n"
program += "enter_isolation()\\n" if sys.argv[1] == "isolate" else ""
program += "try: socket.getaddrinfo('a.example', 80)\\nexcept OSError: pass"
child = subprocess.Popen([sys.executable, "-c", program])
asked = 0
while True:
    ended = child.poll() is not None
    try:
        service.accept()[0].close()
        asked += 1
    except TimeoutError:
        if ended: break
print(asked > 0, child.returncode)
"""


@needs_isolation
@pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no program unshare")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library asks no nscd")
@pytest.mark.parametrize(("how", "asked"), [("plain", True), ("isolate", False)])
def test_no_service_outside_is_asked_for_names(how: str, asked: bool) -> None:
    """A Unix socket with a path leads out of a network namespace."""
    own = ["--mount", "--net"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--mount", "--net"]
    script = 'mount -t tmpfs none /run && mkdir -p /run/nscd && exec "$@"'
    done = subprocess.run(
        ["unshare", *own, "sh", "-c", script, "sh", sys.executable, "-c", SERVICE, how],
        capture_output=True, text=True, timeout=STARTS, check=False,
    )  # fmt: skip
    if "permission denied" in done.stderr.lower():
        pytest.skip("this machine lets us mount nothing")
    assert done.stdout.split() == [str(asked), "0"], done.stderr


def test_a_service_that_cannot_be_hidden_is_no_isolation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Kernel:
        def unshare(self, flags: int) -> int:
            ctypes.set_errno(errno.EPERM)
            return -1 if flags & isolation.CLONE_NEWNS else 0

    monkeypatch.setattr(isolation.ctypes, "CDLL", lambda *_, **__: Kernel())
    monkeypatch.setattr(isolation, "_loopback_up", lambda: None)
    monkeypatch.setattr(isolation, "SERVICES", (str(tmp_path),))
    with pytest.raises(MissingCapability, match="leads out and can't be hidden"):
        isolation._unshare()


@needs_isolation
def test_no_socket_that_a_namespace_does_not_hold_is_opened() -> None:
    script = """if True:
        import ctypes, errno, socket
        def opened():
            found = set()
            for family in (*range(1, 46),):
                for kind in (1, 2, 3, 5):
                    try: socket.socket(family, kind).close()
                    except OSError: pass
                    else: found.add(family)
            return found
        syscall = ctypes.CDLL(None, use_errno=True).syscall
        def refused(number, *arguments):
            return syscall(number, *arguments) < 0 and ctypes.get_errno() == errno.ENOSYS
        before = opened()
        from stillweb.proxy.net.isolation import enter_isolation
        enter_isolation()
        after = opened()
        print(before - {1, 2, 10, 16, 17, 38} == before - after, {1, 2, 10, 16} <= after)
        print(refused(425, 1, ctypes.create_string_buffer(200)))
    """
    environment = {k: v for k, v in os.environ.items() if k != isolation.MARKER}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=STARTS
    )
    assert (done.stdout.split(), done.stderr) == (["True", "True", "True"], "")


def test_where_sockets_cannot_be_held_isolation_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_filter() -> None:
        raise OSError(errno.EINVAL, "no seccomp")

    monkeypatch.setattr(isolation, "hold_sockets", no_filter)
    monkeypatch.setattr(isolation, "_opens", lambda family: True)
    with pytest.raises(MissingCapability, match=r"AF_VSOCK.+ can't be shut"):
        isolation._hold_sockets()
    monkeypatch.setattr(isolation, "_opens", lambda family: False)  # nothing that would have to be shut
    isolation._hold_sockets()


PROGRAM = """
import os, socket, sys, urllib.request as u
through, past, let, out = sys.argv[1:]
said = [u.urlopen(through).read().decode()]
for port in (past, let):
    try: socket.create_connection(("127.0.0.1", int(port)), 60).close(); said.append("reached")
    except OSError as error: said.append(type(error).__name__)
open(out, "w").write(" ".join(said))
try: os.wait()
except ChildProcessError: sys.exit(7)
"""


@needs_isolation
def test_only_the_recorder_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "stillweb",
        "proxy",
        "snapshots",
        "socket",
    ):  # what lies in the program's folder is the program's
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not ours')")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "agent.py").write_text(PROGRAM)
    with (
        Origin(lambda asked: Answer(body=b"page")) as origin,
        Origin(lambda asked: Answer()) as model,
        Writer.open(tmp_path / "s") as writer,
        Recorder(writer, authority=Authority.load_or_create(tmp_path / "state")) as recorder,
    ):
        words = [sys.executable, str(tmp_path / "own" / "agent.py"), f"{origin.url}/a", str(origin.port)]
        words += [str(model.port), str(tmp_path / "said")]
        code = record_command(words, recorder, direct=[f"127.0.0.1:{model.port}"], isolate=True)
        assert [capture.url for capture in recorder.captures_of()] == [f"{origin.url}/a"]
    assert (tmp_path / "said").read_text() == "page ConnectionRefusedError reached"
    assert code == 7  # and the program has no child that it didn't start


@needs_isolation
def test_a_program_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="no-such-program: can't be run"):
        run_isolated(["no-such-program"], {"PATH": "/bin"}, [])
