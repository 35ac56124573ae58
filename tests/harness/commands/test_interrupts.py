"""Ctrl-C, SIGTERM and SIGHUP: what was recorded is kept, and nothing runs on."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from stillweb.proxy.net.isolation import can_isolate
from stillweb.snapshots import Snapshot
from tests.harness.small_site import WORDS, make, run_words, sound, urls
from tests.proxy.origin import Answer, Asked, Origin
from tests.support import waiting
from tests.support.command_line import Started, stillweb

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("own_state")]


def until(condition: Callable[[], bool], started: Started) -> None:
    assert waiting.until(lambda: condition() or started.process.poll() is not None, waiting.STARTS)
    assert started.process.poll() is None, started.end()


def sleeper(folder: Path) -> list[str]:
    """A program that tells that it has begun."""
    return ["sh", "-c", 'touch "$0"; exec sleep 600', str(folder / "began")]


def archived(path: Path) -> int:
    return sum(file.stat().st_size for file in path.glob("archive/*"))


INTERRUPTED = "stillweb: interrupted; files written so far are kept"


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_while_a_browser_records(origin: Origin, tmp_path: Path, times: int) -> None:
    path = tmp_path / "s"
    asked = len(origin.asked)
    started = Started("record", f"{origin.url}/busy", f"{origin.url}/fine", "-o", path, "--parallel", "2")
    until(lambda: len(origin.asked) > asked + 5 and archived(path) > 3000, started)
    seen = {capture.url for capture in Snapshot.open(path).captures()}
    started.interrupt()
    if times == 2:
        time.sleep(0.1)  # into whatever it is doing then
        started.interrupt()
    done = started.end()
    late = {-signal.SIGINT} if times == 2 else set()  # all was closed already; a shell calls it 130, too
    assert done.code in {130, *late}
    assert done.said == INTERRUPTED
    assert len([line for line in done.err.splitlines() if line]) <= 3
    assert seen
    assert seen <= set(urls(path))
    assert sound(path)


@pytest.mark.slow
def test_sigterm_to_all_of_a_browsers_recording(origin: Origin, tmp_path: Path) -> None:
    """As of a service or `timeout`: the browser's driver ends by it, too. What that broke was a traceback, and code 1."""
    path = tmp_path / "s"
    asked = len(origin.asked)
    started = Started("record", f"{origin.url}/busy", "-o", path, "--explore", "5")
    until(lambda: len(origin.asked) > asked + 5 and archived(path) > 3000, started)
    os.killpg(started.process.pid, signal.SIGTERM)
    done = started.end()
    assert (done.code, done.said) == (143, "")
    assert not {"Loop", "Future", "Task", "Exception"} & {
        line.split(" ")[0] for line in done.err.splitlines()
    }
    assert sound(path)


TOKEN = "k9Xq2vLm7pRt4wZs8nBd1fGh"  # a secret only because an answer says so, after a page has shown it


def telling(asked: Asked) -> Answer:
    if asked.path == "/token":
        return Answer(
            headers=[("Content-Type", "application/json")], body=b'{"access_token": "%b"}' % TOKEN.encode()
        )
    script = "<script>fetch('/token'); setInterval(() => fetch('/tick?' + Math.random()), 100)</script>"
    return Answer(headers=[("Content-Type", "text/html")], body=f"<p>{TOKEN}</p>{script}".encode())


@pytest.mark.slow
def test_what_ctrl_c_broke_off_is_looked_through_for_secrets(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with Origin(telling) as origin:
        started = Started("record", f"{origin.url}/", "-o", path)
        until(lambda: archived(path) > 0 and any(url.endswith("/token") for url in urls(path)), started)
        started.interrupt()
        done = started.end()
    assert (done.code, done.said) == (130, INTERRUPTED)
    assert "a secret that was recognised only later, in the response body" in done.err
    sealed = stillweb("seal", path)
    assert sealed.code == 1
    assert "if the secret may become known, seal with --keep-secrets" in sealed.err
    assert not (tmp_path / "s.wacz").exists()


@pytest.mark.slow
def test_what_a_kill_broke_off_is_looked_through_when_it_is_sealed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with Origin(telling) as origin:
        started = Started("record", f"{origin.url}/", "-o", path)
        until(lambda: archived(path) > 0 and any(url.endswith("/token") for url in urls(path)), started)
        os.killpg(started.process.pid, signal.SIGKILL)
        assert started.end().code == -signal.SIGKILL
    assert all(TOKEN.encode() not in file.read_bytes() for file in path.glob("stillweb/*"))
    sealed = stillweb("seal", path)
    assert sealed.code == 1
    assert "a secret that was recognised only later, in the response body" in sealed.err
    assert not (tmp_path / "s.wacz").exists()


@pytest.mark.slow
def test_ctrl_c_while_a_program_records(origin: Origin, tmp_path: Path) -> None:
    """The program decides what to do about it; what it got until then is there."""
    path = tmp_path / "s"
    program = (
        "import sys, time, urllib.request\n"
        "try:\n"
        "    for n in range(100000):\n"
        "        urllib.request.urlopen(f'{sys.argv[1]}/noise/{n}').read()\n"
        "        print(n, flush=True)\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(130)\n"
    )
    started = Started("record", "-o", path, "--", sys.executable, "-c", program, origin.url)
    for _ in range(5):
        started.line()
    started.interrupt()
    done = started.end()
    assert done.code == 130
    got = {*map(str, range(5)), *done.out.split()}
    assert got <= {url.rpartition("/")[2] for url in urls(path)}
    assert sound(path)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_sealing_that_is_broken_off(tmp_path: Path, number: signal.Signals) -> None:
    """By Ctrl-C, or killed itself alone: its workers printed tracebacks then."""
    path = make(tmp_path / "s", 100, body=WORDS * 20)  # more than is done in a moment
    before, size = urls(path), archived(path)
    started = Started("seal", path)

    def some_texts_are_frozen() -> bool:
        """Let it work for a moment, and look while it stands still: it does not end unseen on a busy machine."""
        os.killpg(started.process.pid, signal.SIGCONT)
        time.sleep(0.02)
        os.killpg(started.process.pid, signal.SIGSTOP)
        return archived(path) > size + 2000

    until(lambda: os.getpgid(started.process.pid) == started.process.pid, started)
    until(some_texts_are_frozen, started)
    if number == signal.SIGINT:
        started.interrupt()
    else:
        started.process.kill()
    os.killpg(started.process.pid, signal.SIGCONT)
    done = started.end()
    assert (done.code, done.said) == ((130, INTERRUPTED) if number == signal.SIGINT else (-9, ""))
    assert [file.name for file in tmp_path.iterdir() if "wacz" in file.name] == []
    assert number == signal.SIGKILL or sound(path)
    assert urls(path) == before
    assert stillweb("seal", path).code == 0
    assert sound(tmp_path / "s.wacz")


def test_ctrl_c_while_serving(tmp_path: Path) -> None:
    path = make(tmp_path / "s")
    ledger = tmp_path / "ledger.jsonl"
    started = Started("replay", path, "--ledger", ledger)
    address = started.line()
    curl = ["curl", "-sS", "-x", address, "-o", os.devnull, "http://a.test/none"]
    subprocess.run(curl, check=True)
    started.interrupt()
    assert started.end().code == 130
    assert json.loads(ledger.read_text())["verdict"] == "miss"
    started = Started("replay", path, "--ledger", ledger, "--", *sleeper(tmp_path))
    until((tmp_path / "began").exists, started)
    started.interrupt()
    assert started.end().code == 130


def test_a_server_that_is_told_to_end_has_done_its_work(tmp_path: Path) -> None:
    started = Started("replay", make(tmp_path / "s"))
    started.line()
    started.process.terminate()
    assert started.end().code == 0


@pytest.mark.slow
def test_a_review_that_ctrl_c_ends_says_it_as_other_servers_do(tmp_path: Path) -> None:
    words = run_words(tmp_path, "{call: fetch, with: {url: 'https://a.test/0'}, as: page}")
    assert stillweb(*words, cwd=tmp_path).code == 0
    for end, code in ((signal.SIGINT, 130), (signal.SIGTERM, 0)):
        started = Started("review", words[words.index("-o") + 1], cwd=tmp_path)
        started.line()
        started.process.send_signal(end)
        assert started.end().code == code


@pytest.mark.slow
def test_sigterm_ends_what_was_started(origin: Origin, tmp_path: Path) -> None:
    started = Started("record", "-o", tmp_path / "s", "--", *sleeper(tmp_path))
    until((tmp_path / "began").exists, started)
    started.process.terminate()
    assert started.end().code == 143
    assert sound(tmp_path / "s")


@pytest.mark.slow
def test_ctrl_c_during_a_run(tmp_path: Path) -> None:
    words = run_words(tmp_path, "{call: fetch, with: {url: 'https://a.test/0'}, as: page}")
    program = tmp_path / "agent.sh"
    program.write_text('#!/bin/sh\n[ "$SLOW" ] || { echo A page; exit; }\nsleep 600\n')
    program.chmod(0o755)
    agent = {"agent": "command", "command": [str(program)], "pass_env": ["SLOW"]}
    (tmp_path / "agent.yaml").write_text(json.dumps(agent))
    words[words.index("--agent") + 1] = str(tmp_path / "agent.yaml")
    started = Started(*words, cwd=tmp_path, env={"SLOW": "yes"})
    until(lambda: bool(waiting.running(f"sh\0{program}")), started)
    started.interrupt()
    done = started.end()
    assert (done.code, done.said) == (130, INTERRUPTED)
    assert not waiting.running(f"sh\0{program}")
    again = stillweb(*words, "--json", cwd=tmp_path)
    assert again.code == 0, again
    assert json.loads(again.out)["statuses"]["scored"] == 1


@pytest.mark.slow
def test_a_terminal_that_closes_ends_what_was_started(tmp_path: Path) -> None:
    program = tmp_path / "agent.sh"
    program.write_text("#!/bin/sh\nsleep 600\n")
    program.chmod(0o755)
    words = run_words(tmp_path, "{call: fetch, with: {url: 'https://a.test/0'}, as: page}")
    words[words.index("--agent") + 1] = f"command:{program}"
    server = ["replay", make(tmp_path / "served")]
    # said, as this process may itself run under nohup
    hears, deaf = (partial(signal.signal, signal.SIGHUP, how) for how in (signal.SIG_DFL, signal.SIG_IGN))
    for command, begun in ((words, lambda: bool(waiting.running(f"sh\0{program}"))), (server, None)):
        started = Started(*command, cwd=tmp_path, preexec_fn=hears)
        if begun:
            until(begun, started)
        else:
            started.line()
        started.process.send_signal(signal.SIGHUP)
        assert started.end().code == 129
    unheard = Started(*server, cwd=tmp_path, preexec_fn=deaf)
    unheard.line()
    unheard.process.send_signal(signal.SIGHUP)  # as with nohup
    unheard.process.terminate()
    assert unheard.end().code == 0


@pytest.mark.slow
def test_ctrl_c_while_a_models_code_is_scored(tmp_path: Path) -> None:
    if (why := can_isolate()) is not None:
        pytest.skip(f"no sandbox here: {why}")
    words = run_words(tmp_path, "{call: fetch, with: {url: 'https://a.test/0'}}")
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(
        json.dumps({**json.loads(tasks.read_text()), "scorer": "tests.support.scorers:sandboxed"})
    )
    started = Started(*words, cwd=tmp_path, env={"PYTHONPATH": str(Path(__file__).parents[3])})
    until(lambda: bool(waiting.running(str(tmp_path / "scoring"))), started)
    started.interrupt()
    done = started.end()
    assert (done.code, done.said) == (130, INTERRUPTED)
