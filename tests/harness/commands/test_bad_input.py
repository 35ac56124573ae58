"""Whatever goes wrong outside: one clear line, the right exit code, all that was recorded is kept, nothing runs on."""

import ctypes
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillweb.proxy.net.ca import Authority
from stillweb.snapshots import Snapshot
from tests.harness.small_site import answer, make, run_words, sound, urls
from tests.proxy.dead import closed_port
from tests.proxy.origin import Origin
from tests.support.command_line import Done, stillweb
from tests.support.isolating import needs_isolation

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("own_state")]


@pytest.fixture
def closed() -> Iterator[int]:
    """A port that nobody listens on."""
    with closed_port() as port:
        yield port


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody else has."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


# Origins


@pytest.mark.slow
def test_urls_that_fail_are_told_one_by_one_and_the_others_recorded(
    origin: Origin, closed: int, tmp_path: Path
) -> None:
    """No name, no server, a certificate of nobody, a page that is never quiet, a step without its element."""
    steps = tmp_path / "steps.yaml"
    steps.write_text(f"- url: {origin.url}/stepped\n  steps:\n    - click: {{text: Not there}}\n")
    with Origin(answer, Authority.load_or_create(tmp_path / "nobody").context_for("127.0.0.1")) as secure:
        bad = ["http://no-such-name.invalid/", f"http://127.0.0.1:{closed}/", f"{secure.url}/"]
        good = [f"{origin.url}/fine", f"{origin.url}/ticking"]
        done = stillweb("record", *bad, *good, "-o", tmp_path / "s", "--steps", steps, "--parallel", "3")
    assert done.code == 1
    rows = {row.split()[4]: row for row in done.out.splitlines() if "http" in row}
    assert [url for url, row in rows.items() if row.startswith("captured")] == good
    assert "ame or service not known" in rows[bad[0]]
    assert "onnect" in rows[bad[1]]
    assert "self-signed" in rows[bad[2]] or "verify failed" in rows[bad[2]]
    assert "--ca-file FILE" in done.err
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


@pytest.mark.slow
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
    taken = stillweb("import", alone, "-o", tmp_path / "taken")
    assert (taken.code, urls(tmp_path / "taken")) == (3, ["https://a.test/0", "https://a.test/2"])
    assert f"{alone.name}: offset {middle.offset}: damaged" in taken.err


def archives(tmp_path: Path) -> list[Path]:
    """Two files of three captures each; the name of the second one is no UTF-8."""
    found = [tmp_path / "a.warc.gz", tmp_path / os.fsdecode(b"b-\xff.warc.gz")]
    for file in found:
        made = make(tmp_path / "made" / file.name[0])
        os.replace(next((made / "archive").iterdir()), file)
    return found


def test_a_damaged_archive_among_others_whose_name_is_no_text(tmp_path: Path) -> None:
    good, bad = archives(tmp_path)
    bad.write_bytes(b"nothing of the kind\n")
    taken = stillweb("import", bad, good, "-o", tmp_path / "s")
    assert taken.code == 3
    assert "b-\\udcff.warc.gz: is not a WACZ, WARC, ARC, HAR or mitmproxy flow file\n" in taken.err
    assert len(urls(tmp_path / "s")) == 3


def as_any_user() -> None:
    """Root may read whatever it wants to, unless it can't take up what lets it."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
            if libc.prctl(24, capability, 0, 0, 0):  # PR_CAPBSET_DROP
                raise OSError(ctypes.get_errno(), "prctl")


def test_an_archive_that_may_not_be_read_is_told_before_anything_is_done(tmp_path: Path) -> None:
    good, bad = archives(tmp_path)
    bad.chmod(0)
    taken = stillweb("import", good, bad, "-o", tmp_path / "s", preexec_fn=as_any_user)
    assert taken.code == 2
    assert "is not readable" in taken.err
    assert not (tmp_path / "s").exists()


@needs_isolation
def test_a_folder_of_the_path_that_can_not_be_looked_into_holds_no_program(tmp_path: Path) -> None:
    """An image of a container often names one of root's, and then another user; root may look into any but this one."""
    (tmp_path / "tasks.jsonl").write_text('{"id": "one", "question": "?", "answer": "x"}\n')
    done = stillweb(
        *("run", "--tasks", tmp_path / "tasks.jsonl", "--agent", "command:echo x", "-o", tmp_path / "run"),
        env={"PATH": f"/{'x' * 300}/bin:{os.environ['PATH']}"},
    )
    assert (done.code, "1 scored" in done.out) == (0, True), done


@pytest.mark.parametrize(
    "words", [("verify",), ("replay",), ("lookup", "http://a.test/"), ("run", "-o", "r", "--agent", "command:x", "--tasks")]
)  # fmt: skip
def test_a_name_that_is_too_long_for_a_file(words: tuple[str, ...]) -> None:
    command, *rest = words
    long = "x" * 300
    done = stillweb(command, *rest, long) if "--tasks" in rest else stillweb(command, long, *rest)
    assert (done.code, done.err.splitlines()[-1]) == (2, f"stillweb: error: {long}: File name too long")


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_har_that_is_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "x.har"
    asked = {"method": "GET", "url": "https://a.test/0", "headers": []}
    told = {"status": 200, "headers": [], "content": {"size": 5, "text": "hello"}}
    entry = {"startedDateTime": "2025-01-01T00:00:00Z", "request": asked, "response": told}
    path.write_text(json.dumps({"log": {"entries": [entry, entry]}})[:-40])
    taken = stillweb("import", path, "-o", tmp_path / "s")
    assert taken.code == 3
    assert f"{path}: offset" in taken.err
    assert "what follows 1 whole entry is left out" in taken.err
    assert urls(tmp_path / "s") == ["https://a.test/0"]
    assert sound(tmp_path / "s")
    assert stillweb("verify", path).code == 3
    listed = stillweb("ls", path)
    assert listed.code == 0
    assert "left out: " in listed.err


@pytest.mark.slow
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
    assert (done.code, "wrong.wacz: is not an open snapshot" in done.said) == (2, True)


# What the machine lacks


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.whole_browser
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


@pytest.mark.slow
def test_a_run_without_its_browser_ends_instead_of_scoring(tmp_path: Path) -> None:
    words = run_words(tmp_path, "{call: browser_navigate, with: {url: 'https://a.test/0'}, as: page}")
    env = {"STILLWEB_BROWSER": "/no/such/chromium"}
    done = stillweb(*words, "--contract", "playwright-mcp", env=env)
    assert done.code == 4
    assert "STILLWEB_BROWSER" in done.said
    assert list((tmp_path / "run" / "traces").glob("*.jsonl")) == []
    assert stillweb(*words, "--contract", "playwright-mcp").code == 0  # with one, the same command goes on
