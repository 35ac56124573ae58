"""The sandbox: each limit holds, and what can't be limited is said."""

import contextvars
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stillweb.harness.sandbox import running as running_module
from stillweb.harness.sandbox.running import Limits, SandboxResult, Start, end_with_context, run, run_start
from stillweb.snapshots.errors import MissingCapability, StillwebError, UsageError
from tests.support.isolating import needs_isolation
from tests.support.waiting import HANG, running, until

pytestmark = needs_isolation


def python(code: str, cwd: Path, **limits: float) -> SandboxResult:
    return run([sys.executable, "-c", code], cwd=cwd, limits=Limits(**limits))  # type: ignore[arg-type]


def test_output_and_exit_code(tmp_path: Path) -> None:
    result = python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)", tmp_path)
    assert (result.returncode, result.stdout, result.stderr, result.timed_out) == (3, "out\n", "err\n", False)


def test_addresses_are_the_same_each_time(tmp_path: Path) -> None:
    """A wrong answer often prints an object: what it says is judged by a model, whose answer is on the tape of these very words."""
    code = "print((x for x in []), object(), print, [object() for _ in range(99999)][-1])"
    said = set()
    for number in range(4):
        folder = tmp_path / f"folder-{number}"
        folder.mkdir()
        said.add(python(code, folder).stdout)
    assert len(said) == 1
    assert "0x" in said.pop()


def test_no_network_not_even_our_own_loopback(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = python(f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)", tmp_path)
        assert result.returncode == 1
        assert "refused" in result.stderr
    assert (
        "unreachable"
        in python("import socket; socket.create_connection(('1.1.1.1', 80), 2)", tmp_path).stderr
    )


def test_a_timeout_ends_everything(tmp_path: Path) -> None:
    result = python("import time; time.sleep(600)", tmp_path, seconds=0.5)
    assert result.timed_out
    assert result.returncode is None
    assert result.seconds == 0.5


def test_what_runs_for_work_that_is_given_up_ends_at_once(tmp_path: Path) -> None:
    told: list[str] = []

    def work() -> None:
        for _ in range(2):
            try:
                python(f"import time; time.sleep(600)  # {tmp_path}", tmp_path, seconds=900)
            except StillwebError as error:
                told.append(str(error))

    with end_with_context() as sandboxes:
        thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True)
        thread.start()
        assert until(lambda: running(f"# {tmp_path}"))
        sandboxes.end()
        thread.join(HANG)
    assert told == ["sandbox: ended with the run"] * 2
    assert python("print(1)", tmp_path).stdout == "1\n"  # what has nothing to do with it


def test_nothing_runs_on_when_we_are_killed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from stillweb.harness.sandbox.running import Limits, run\n"
        "run([sys.executable, '-c', sys.argv[1]], cwd=Path.cwd(), limits=Limits(seconds=900))"
    )
    program = f"import time; time.sleep(600)  # {tmp_path}"
    ours = subprocess.Popen([sys.executable, "-c", code, program], cwd=tmp_path)
    try:
        assert until(lambda: len(running(program)) == 2)  # it, and ours
    finally:
        ours.kill()
        ours.wait()
    assert until(lambda: not running(program))


def test_what_leaves_the_process_group_dies_too(tmp_path: Path) -> None:
    code = "import os, time\nif os.fork() == 0:\n os.setsid()\n os.execvp('sleep', ['sleep', '0600.5'])\ntime.sleep(0.2)"
    python(code, tmp_path)
    assert not running("sleep\x000600.5")


def test_files_that_a_program_leaves_are_brought_back(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "old").write_text("old")
    (tmp_path / "gone").write_text("gone")
    code = (
        "import os\nos.remove('gone'); open('kept/new', 'w').write(open('kept/old').read() + ' and new')\n"
        "os.symlink('/etc/passwd', 'link'); os.mkfifo('pipe'); os.chmod('kept/new', 0o4755)"
    )
    result = python(code, tmp_path)
    assert (result.returncode, result.not_kept) == (0, ""), result.stderr
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["kept", "link", "new", "old"]
    assert (tmp_path / "kept" / "new").read_text() == "old and new"
    assert os.readlink(tmp_path / "link") == "/etc/passwd"
    status = (tmp_path / "kept" / "new").stat()
    assert (status.st_mode & 0o7777, status.st_uid) == (0o755, os.getuid())


def test_a_program_reads_the_system_and_what_is_named(tmp_path: Path) -> None:
    inside, named = tmp_path / "in", tmp_path / "named"
    inside.mkdir()
    named.write_text("key\n")
    assert python("import json, ssl; open('/etc/passwd')", inside).returncode == 0
    assert "No such file" in python(f"open({str(named)!r})", inside).stderr
    code = f"print(open({str(named)!r}).read(), end='')"
    assert run([sys.executable, "-c", code], cwd=inside, readable=[named]).stdout == "key\n"


def test_what_is_hidden_is_hidden_in_the_system_too(tmp_path: Path) -> None:
    """A run that lies in /usr/src, as in many containers."""
    code = "import os; print(os.listdir('/usr/share'), open('/usr/bin/env', 'rb').read())"
    start = Start(
        ["/usr/bin/python3", "-c", code], tmp_path, {}, hidden=["/usr/share", "/usr/bin/env"], limits=Limits()
    )
    if not Path("/usr/bin/python3").exists():
        pytest.skip("no Python of the system")
    assert run_start(start, Limits()).stdout == "[] b''\n"


def test_processes_may_share_memory(tmp_path: Path) -> None:
    code = "import multiprocessing as m\nlock = m.Lock()\nwith m.Pool(1) as pool: print(pool.map(abs, [-1]))"
    assert python(code, tmp_path).stdout == "[1]\n"


def test_memory_files_and_open_files_are_limited(tmp_path: Path) -> None:
    assert "MemoryError" in python("x = 'a' * (3 << 30)", tmp_path, memory=1 << 30).stderr
    assert (
        "too large"
        in python("with open('big','wb') as f: f.write(b'x' * 5000)", tmp_path, file_size=1000).stderr
    )
    many = "files = [open('/dev/null') for _ in range(100)]"
    assert "Too many open files" in python(many, tmp_path, open_files=50).stderr


def test_kept_output_is_limited(tmp_path: Path) -> None:
    assert len(python("print('x' * 100000)", tmp_path, output=1000).stdout) == 1000


def test_a_signal_is_a_negative_code(tmp_path: Path) -> None:
    assert python("import os; os.abort()", tmp_path).returncode == -6


def test_our_environment_is_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    result = python("import os; print(sorted(os.environ))", tmp_path)
    assert "SOME_API_KEY" not in result.stdout
    assert "HOME" in result.stdout


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no-such-program"):
        run(["no-such-program"], cwd=tmp_path)


def test_a_limit_that_can_not_be_applied_is_refused_or_named(tmp_path: Path) -> None:
    """More memory than a limit can say."""
    wrong = Limits(memory=1 << 70)
    with pytest.raises(MissingCapability, match=r"limits: .*--allow-unconfined"):
        run([sys.executable, "-c", "pass"], cwd=tmp_path, limits=wrong)
    named = run([sys.executable, "-c", "pass"], cwd=tmp_path, limits=wrong, allow_unconfined=True)
    assert named.returncode == 0
    assert [text.partition(":")[0] for text in named.missing] == ["limits"]
    assert set(named.held) == {"namespaces", "Landlock", "system calls"}


def test_a_launcher_that_ends_without_a_word_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running_module, "_LAUNCHER", "pass")
    with pytest.raises(StillwebError, match="ended without a report"):
        python("pass", tmp_path)


def test_no_descriptor_leaks(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        python("pass", tmp_path)
    assert len(os.listdir("/proc/self/fd")) <= before  # fewer: something of another test has ended
