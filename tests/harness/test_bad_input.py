"""Whatever goes wrong outside: one clear line, the right exit code, all that was recorded is kept, nothing runs on."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.certificates import Authority
from snapshots import Snapshot
from tests.proxy.frozen import Site
from tests.proxy.origin import Answer, Asked, Origin
from tests.support import waiting
from tests.support.command_line import Done, Started, stillweb

pytestmark = pytest.mark.timeout(900)

HTML = [("Content-Type", "text/html")]
WORDS = b"<title>A page</title><h1>A page</h1><p>" + b"that says something at some length, " * 30
BUSY = WORDS + b"<script>setInterval(() => fetch('/tick?' + Math.random()), 100)</script>"


def noise(number: int) -> bytes:
    """64 KiB that no packing makes smaller."""
    return b"".join(hashlib.sha256(b"%d %d" % (number, part)).digest() for part in range(2048))


def answer(asked: Asked) -> Answer:
    if asked.path.startswith("/noise/"):
        body = noise(int(asked.path.rpartition("/")[2]))
        return Answer(headers=[("Content-Type", "application/octet-stream")], body=body)
    return Answer(headers=HTML, body=BUSY if asked.path == "/busy" else WORDS)


@pytest.fixture(scope="module")
def origin() -> Iterator[Origin]:
    with Origin(answer) as running:
        yield running


@pytest.fixture(autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of the user's own, not the real one."""
    monkeypatch.setenv("STILLWEB_STATE", str(tmp_path_factory.getbasetemp() / "state"))


@pytest.fixture
def closed() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody else has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def make(path: Path, count: int = 3, media: str = "text/html", body: bytes = WORDS) -> Path:
    """An open snapshot with pages a.test/0, a.test/1, …"""
    site = Site(path)
    for number in range(count):
        own = b"%d " % number + (body if media == "text/html" else noise(number))
        site.add(f"https://a.test/{number}", own, headers=(("Content-Type", media),))
    with site.open():
        return path


def urls(path: Path) -> list[str]:
    with Snapshot.open(path) as snapshot:
        return sorted(capture.url for capture in snapshot.captures())


def sound(path: Path) -> bool:
    return stillweb("verify", path).code == 0


# Origins


def test_urls_that_fail_are_told_one_by_one_and_the_others_recorded(
    origin: Origin, closed: int, tmp_path: Path
) -> None:
    """No name, no server, a certificate of nobody, a page that is never quiet, a step without its element."""
    steps = tmp_path / "steps.yaml"
    steps.write_text(f"- url: {origin.url}/stepped\n  steps:\n    - click: {{text: Not there}}\n")
    with Origin(answer, Authority.load_or_create(tmp_path / "nobody").context_for("127.0.0.1")) as secure:
        bad = ["http://no-such-name.invalid/", f"http://127.0.0.1:{closed}/", f"{secure.url}/"]
        good = [f"{origin.url}/fine", f"{origin.url}/busy"]
        done = stillweb("record", *bad, *good, "-o", tmp_path / "s", "--steps", steps, "--parallel", "3")
    assert done.code == 1
    rows = {row.split()[4]: row for row in done.out.splitlines() if "http" in row}
    assert [url for url, row in rows.items() if row.startswith("captured")] == good
    assert "ame or service not known" in rows[bad[0]]
    assert "onnect" in rows[bad[1]]
    assert "self-signed" in rows[bad[2]] or "verify failed" in rows[bad[2]]
    assert "--trust FILE" in done.err
    assert "never quiet" in rows[good[1]]
    stepped = rows[f"{origin.url}/stepped"]
    assert stepped.startswith("failed")
    assert "step 1: click: no element with text 'Not there'" in stepped
    assert sound(tmp_path / "s")
    with Snapshot.open(tmp_path / "s") as snapshot:  # the page before the failed step is there, too
        assert {view.url for view in snapshot.views()} == {*good, f"{origin.url}/stepped"}


# Files


def ask(path: Path, *numbers: int) -> Done:
    """Replays pages to curl; its output is their statuses."""
    words = [f"https://a.test/{n}" for n in numbers]
    outputs = [word for _ in numbers for word in ("-o", os.devnull)]
    return stillweb("replay", path, "--", "curl", "-sS", "-w", "%{http_code} ", *outputs, *words)


def test_a_damaged_archive(tmp_path: Path) -> None:
    path = make(tmp_path / "s")
    archive = next((path / "archive").iterdir())
    with Snapshot.open(path) as snapshot:
        middle = next(c for c in snapshot.captures() if c.url.endswith("/1"))
    data = bytearray(archive.read_bytes())
    data[middle.offset + 60 : middle.offset + 80] = bytes(20)
    archive.write_bytes(data)
    verified = stillweb("verify", path)
    assert verified.code == 3
    assert f"{archive.name}: offset {middle.offset}: record: damaged" in verified.out
    shown = ask(path, 0, 1, 2)
    assert (shown.code, shown.out) == (0, "200 502 200 ")
    sealed = stillweb("seal", path)
    assert sealed.code == 3
    assert archive.name in sealed.said
    assert str(middle.offset) in sealed.said
    assert not (tmp_path / "s.wacz").exists()
    assert archive.read_bytes().startswith(data)  # nothing of it was touched
    alone = tmp_path / "alone.warc.gz"
    alone.write_bytes(data)
    listed = stillweb("ls", alone)  # without an index the records are read, and what can't be is said
    assert listed.code == 0
    assert f"damaged: {alone.name}" in listed.err
    assert "2 captures" in listed.out


def test_a_truncated_archive(tmp_path: Path) -> None:
    path = make(tmp_path / "s")
    archive = next((path / "archive").iterdir())
    os.truncate(archive, archive.stat().st_size - 50)
    verified = stillweb("verify", path)
    assert verified.code == 3
    assert "the record is cut short" in verified.out
    listed = stillweb("ls", path)
    assert listed.code == 0
    assert "damaged:" in listed.err
    assert "2 captures" in listed.out
    shown = ask(path, 0, 1, 2)
    assert (shown.code, shown.out.split()[:2], shown.out.split()[-1]) == (0, ["200", "200"], "504")
    assert "damaged:" in shown.err
    sealed = stillweb("seal", path)
    assert sealed.code == 0, sealed.err
    assert f"repaired: {archive.name}: the last record was not written to its end" in sealed.err
    assert sound(path)
    assert sound(tmp_path / "s.wacz")
    assert urls(tmp_path / "s.wacz") == ["https://a.test/0", "https://a.test/1"]


@pytest.mark.parametrize("how", ["cut", "text"])
def test_a_file_that_is_no_wacz(tmp_path: Path, how: str) -> None:
    wrong = tmp_path / "wrong.wacz"
    if how == "cut":
        assert stillweb("seal", make(tmp_path / "s"), "-o", wrong).code == 0
        os.truncate(wrong, wrong.stat().st_size * 2 // 3)
    else:
        wrong.write_text("this is no archive")
    for command, rest in {"verify": [], "ls": [], "replay": ["--", "true"]}.items():
        done = stillweb(command, wrong, *rest)
        assert done.code == 3, (command, done)
        assert "wrong.wacz" in done.out + done.said
    done = stillweb("seal", wrong)
    assert (done.code, "wrong.wacz: is no open snapshot" in done.said) == (2, True)


# Room


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a file system of so many bytes; only for who may."""
    places: list[Path] = []

    def make_room(size: int) -> Path:
        place = tmp_path / "small"
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "stillweb-test", str(place)]
        if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("this machine lets us mount nothing")
        places.append(place)
        return place

    yield make_room
    for place in places:
        subprocess.run(["umount", str(place)], check=True)


def limited(size: int) -> dict[str, Any]:
    """Options under which no file may become larger."""
    return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))}


FETCH = (
    "import sys, urllib.request, urllib.error\n"
    "for n in range(40):\n"
    "    try:\n"
    "        urllib.request.urlopen(f'{sys.argv[1]}/noise/{n}').read()\n"
    "    except urllib.error.HTTPError as error:\n"
    "        print(error.code)\n"
)


@pytest.mark.parametrize("how", ["disk", "limit"])
def test_no_room_while_recording(
    origin: Origin, tmp_path: Path, room: Callable[[int], Path], how: str
) -> None:
    path = (room(1_000_000) if how == "disk" else tmp_path) / "s"
    program = [sys.executable, "-c", FETCH, origin.url]
    done = stillweb("record", "-o", path, "--", *program, **limited(900_000) if how == "limit" else {})
    assert done.code == 4
    assert "No space left" in done.said or "File too large" in done.said
    assert len(done.said.splitlines()) == 1
    assert done.out.split()[-5:] == ["503"] * 5  # from then on the program is refused
    kept = [url.rpartition("/")[2] for url in urls(path)]
    assert sorted(map(int, kept)) == list(range(len(kept)))
    assert len(kept) >= 10
    assert sound(path)
    if how == "limit":  # with room again it goes on
        again = [sys.executable, "-c", FETCH.replace("40", "1"), origin.url]
        assert stillweb("record", "-o", path, "--", *again).code == 0
        assert len(urls(path)) == len(kept) + 1
        assert sound(path)


@pytest.mark.parametrize("how", ["disk", "limit"])
def test_no_room_while_sealing(tmp_path: Path, room: Callable[[int], Path], how: str) -> None:
    path = make((room(1_000_000) if how == "disk" else tmp_path) / "s", 8, "application/octet-stream")
    size = sum(file.stat().st_size for file in (path / "archive").iterdir())
    if how == "disk":
        (path.parent / "other").write_bytes(bytes(900_000 - size))
    done = stillweb("seal", path, **limited(size + 1000) if how == "limit" else {})
    assert done.code == 4
    assert "No space left" in done.said or "File too large" in done.said
    assert [file.name for file in path.parent.iterdir() if "wacz" in file.name] == []
    assert sound(path)
    assert len(urls(path)) == 8
    if how == "limit":
        assert stillweb("seal", path).code == 0


def test_no_room_for_what_is_shown(tmp_path: Path) -> None:
    path = make(tmp_path / "s")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from harness.cli import main; main()", "ls", path],
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        4,
        "stillweb: error: No space left on device; make room and go on\n",
    )


def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    path = make(tmp_path / "s", 400, body=b"")
    words = f"{sys.executable} -c 'from harness.cli import main; main()' ls --json {path}"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {words} | head -1"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


RAISING = (
    "import click, errno, harness.commands.ls as ls\n"
    "def fail(): raise {error}\n"
    "ls.command = click.Command('ls', callback=fail)\n"
    "from harness.cli import main\n"
    "main(['ls'])\n"
)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        ("OSError(errno.EMFILE, 'Too many open files')", 4, "Too many open files; raise the limit of open"),
        ("OSError(errno.EADDRINUSE, 'Address already in use')", 4, "Address already in use; choose another"),
        ("BaseExceptionGroup('', [OSError(errno.ENOSPC, 'No space left', 'x.warc')])", 4, "x.warc: No space"),
        ("PermissionError(errno.EACCES, 'Permission denied', 'x.warc')", 2, "x.warc: Permission denied"),
        ("KeyboardInterrupt", 130, "interrupted"),
        ("OSError(errno.EINVAL, 'Invalid argument')", 1, None),
        ("KeyError('x')", 1, None),
    ],
)
def test_what_the_machine_refuses_is_a_line_and_a_bug_is_a_traceback(
    error: str, code: int, said: str | None
) -> None:
    program = RAISING.format(error=error)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert ("Traceback" in done.stderr) == (said is None)
    if said is not None:
        (line,) = [line for line in done.stderr.splitlines() if line]
        assert line.startswith("stillweb: ")
        assert said in line


# What the machine lacks


def test_a_port_in_use(origin: Origin, taken: int, tmp_path: Path) -> None:
    path = make(tmp_path / "s")
    for words in (
        ["replay", path],
        ["mcp", path, "--transport", "http"],
        ["record", "-o", tmp_path / "new", "--port", str(taken), "--", "true"],
        ["record", f"{origin.url}/", "-o", tmp_path / "new"],
    ):
        done = stillweb(*words, "--port", str(taken)) if "--" not in words else stillweb(*words)
        assert done.code == 4, (words, done)
        assert f"port {taken}" in done.said
        assert "in use" in done.said


@pytest.mark.parametrize("how", ["named", "nowhere", "broken"])
def test_no_browser(origin: Origin, tmp_path: Path, how: str) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    env = {
        "named": {"STILLWEB_BROWSER": "/no/such/chromium"},
        "nowhere": {"PATH": str(tmp_path), "HOME": str(tmp_path), "PLAYWRIGHT_BROWSERS_PATH": "0"},
        "broken": {"STILLWEB_BROWSER": str(broken)},
    }[how]
    done = stillweb("record", f"{origin.url}/", "-o", tmp_path / "s", env=env)
    assert done.code == 4, done
    (said,) = done.said.splitlines()
    says = {"named": "STILLWEB_BROWSER: /no/such/chromium", "nowhere": "chromium", "broken": str(broken)}[how]
    assert says.lower() in said.lower()
    if how == "broken":  # it was tried, so the directory is there, empty and sound
        assert sound(tmp_path / "s")


def test_a_run_without_its_browser_ends_instead_of_scoring(tmp_path: Path) -> None:
    words = run_words(tmp_path, "{call: browser_navigate, with: {url: 'https://a.test/0'}, as: page}")
    env = {"STILLWEB_BROWSER": "/no/such/chromium"}
    done = stillweb(*words, "--contract", "playwright-mcp", env=env)
    assert done.code == 4
    assert "STILLWEB_BROWSER" in done.said
    assert list((tmp_path / "run" / "traces").glob("*.jsonl")) == []
    assert stillweb(*words, "--contract", "playwright-mcp").code == 0  # with one, the same command goes on


def run_words(tmp_path: Path, step: str) -> list[str | Path]:
    snapshot = make(tmp_path / "s")
    task = {"id": "one", "question": "?", "answer": "A page", "start_url": "https://a.test/0"}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    agent = f"agent: script\ndefault:\n  steps:\n    - {step}\n  answer: A page\n"
    (tmp_path / "agent.yaml").write_text(agent)
    agent_name = f"script:{tmp_path / 'agent.yaml'}"
    return [
        "run", "--tasks", tmp_path / "tasks.jsonl", "--agent", agent_name, "--snapshot", snapshot,
        "-o", tmp_path / "run",
    ]  # fmt: skip


# Ctrl-C


def until(condition: Callable[[], bool], started: Started) -> None:
    assert waiting.until(lambda: condition() or started.process.poll() is not None, waiting.STARTS)
    assert started.process.poll() is None, started.end()


def sleeper(folder: Path) -> list[str]:
    """A program that tells that it has begun."""
    return ["sh", "-c", 'touch "$0"; exec sleep 600', str(folder / "began")]


def archived(path: Path) -> int:
    return sum(file.stat().st_size for file in path.glob("archive/*"))


INTERRUPTED = "stillweb: interrupted; what was recorded is kept"


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
    assert (done.code, done.said) == (130, INTERRUPTED)
    assert len([line for line in done.err.splitlines() if line]) <= 3
    assert seen
    assert seen <= set(urls(path))
    assert sound(path)


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


def test_ctrl_c_while_sealing(tmp_path: Path) -> None:
    path = make(tmp_path / "s", 600, body=WORDS * 20)  # more than is done before the signal comes
    before, size = urls(path), archived(path)
    started = Started("seal", path)
    until(lambda: archived(path) > size + 2000, started)  # some texts are frozen
    started.interrupt()
    done = started.end()
    assert (done.code, done.said) == (130, INTERRUPTED)
    assert [file.name for file in tmp_path.iterdir() if "wacz" in file.name] == []
    assert sound(path)
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


def test_sigterm_ends_what_was_started(origin: Origin, tmp_path: Path) -> None:
    started = Started("record", "-o", tmp_path / "s", "--", *sleeper(tmp_path))
    until((tmp_path / "began").exists, started)
    started.process.terminate()
    assert started.end().code == 143
    assert sound(tmp_path / "s")


def test_ctrl_c_during_a_run(tmp_path: Path) -> None:
    words = run_words(tmp_path, "{call: fetch, with: {url: 'https://a.test/0'}, as: page}")
    program = tmp_path / "agent.sh"
    program.write_text("#!/bin/sh\n[ -e slow ] || { echo A page; exit; }\necho $$ >> began\nsleep 600\n")
    program.chmod(0o755)
    words[words.index("--agent") + 1] = f"command:{program}"
    (tmp_path / "slow").touch()
    started = Started(*words, cwd=tmp_path)
    until((tmp_path / "began").exists, started)
    started.interrupt()
    done = started.end()
    assert (done.code, done.said) == (130, INTERRUPTED)
    (tmp_path / "slow").unlink()
    again = stillweb(*words, "--json", cwd=tmp_path)
    assert again.code == 0, again
    assert json.loads(again.out)["statuses"]["scored"] == 1
