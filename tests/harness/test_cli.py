"""The command line through its public face: help, exit codes, errors in one line, YAML files that people write."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stillweb.harness._parsing import read_yaml
from stillweb.harness.cli import COMMANDS
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.view import View
from stillweb.snapshots.wacz import seal
from stillweb.snapshots.writer import Writer
from tests.support.command_line import stillweb
from tests.support.fork_server import PROGRAM
from tests.support.waiting import STARTS


def test_help_names_every_command() -> None:
    shown = stillweb("--help")
    assert shown.code == 0
    assert all(f"  {name}" in shown.out for name in COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_an_example(name: str) -> None:
    shown = stillweb(name, "--help")
    assert shown.code == 0, shown.err
    inner = shown.out.partition("Commands:")[2].splitlines()
    for words in ([name], *([name, line.split()[0]] for line in inner if line.startswith("  "))):
        shown = stillweb(*words, "--help")
        assert f"stillweb {name}" in shown.out.split("Options:")[0].split("\n", 1)[1]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("lookup", "lookup [OPTIONS] SNAPSHOTS... URL\n"),
        ("fetch", "fetch [OPTIONS] SNAPSHOTS... ADDRESS\n"),
        ("run", "--limit N "),
        ("check", "--text N "),
    ],
)
def test_help_says_what_words_and_options_take(name: str, says: str) -> None:
    assert says in stillweb(name, "--help").out


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["recrod"], 2)])
def test_the_program_ends_as_it_should_without_taking_apart_what_is_in_memory(
    words: list[str], code: int
) -> None:
    begin = (
        "import stillweb.harness.cli\n"
        "class Kept:\n"
        "    def __del__(self): print('taken apart')\n"
        "kept = Kept()\n"
        "stillweb.harness.cli.run()"
    )
    shown = subprocess.run(
        [sys.executable, "-c", begin, *words], capture_output=True, text=True, timeout=STARTS
    )
    assert (shown.returncode, "taken apart" in shown.stdout) == (code, False)
    assert ("Usage: stillweb" in shown.stdout) == (code == 0)
    assert ("No such command" in shown.stderr) == (code == 2)


def test_a_file_that_ends_too_early_for_us_is_no_interruption() -> None:
    """As a module that Python left half compiled on a full disk."""
    fails = "import stillweb.harness.cli\ndef none(*_): raise EOFError('marshal data too short')\n"
    run = "stillweb.harness.cli._LazyGroup.get_command = none\nstillweb.harness.cli.main(['ls', 'x'])"
    shown = subprocess.run(
        [sys.executable, "-c", fails + run], capture_output=True, text=True, timeout=STARTS
    )
    assert shown.returncode == 1
    assert "marshal data too short" in shown.stderr
    assert "interrupted" not in shown.stderr


def test_an_unknown_command_is_wrong_usage() -> None:
    shown = stillweb("recrod")
    assert shown.code == 2
    assert "No such command" in shown.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["seal", "missing"], 2, "missing"),
        (["replay"], 2, "SNAPSHOTS"),
        (["record", "-o", "x"], 2, "nothing to record"),
        (["record", "-o", "x", "--"], 2, "no program after"),
        (["record", "-o", "x", "ftp://example.com/"], 2, "not an http(s) URL"),
        (["record", "-o", "x", "https://a.example", "--resolve", "a.example"], 2, "HOST=ADDRESS:PORT"),
        (["lookup", "only-one"], 2, "then a URL"),
        (["run", "--tasks", "none.jsonl", "--agent", "a", "--snapshot", ".", "-o", "r"], 2, "none.jsonl"),
        (
            ["run", "--tasks", "none.jsonl", "--agent", "a", "--snapshot", "s", "-o", "r"],
            2,
            "s: no such file",
        ),
    ],
)
def test_wrong_usage_is_one_clear_line(tmp_path: Path, words: list[str], code: int, says: str) -> None:
    shown = stillweb(*words, cwd=tmp_path)
    assert shown.code == code, shown.err
    assert says in shown.err
    assert "Traceback" not in shown.err


@pytest.mark.parametrize("command", ["verify", "ls", "lookup", "fetch", "search"])
def test_a_file_that_is_no_archive_is_damaged_input(tmp_path: Path, command: str) -> None:
    wrong = tmp_path / "wrong.wacz"
    wrong.write_bytes(b"this is no archive")
    words = {"lookup": ["https://a.example/"], "fetch": ["https://a.example/"], "search": ["x"]}.get(
        command, []
    )
    shown = stillweb(command, wrong, *words)
    assert shown.code == 3, (shown.out, shown.err)
    assert "wrong.wacz" in shown.err + shown.out
    assert "Traceback" not in shown.err


@pytest.mark.slow
def test_an_mcp_client_that_leaves_ends_the_server_quietly(tmp_path: Path) -> None:
    Writer.open(tmp_path / "snap").close()
    shown = stillweb("mcp", tmp_path / "snap", stdin=subprocess.DEVNULL)
    assert (shown.code, shown.err) == (0, "")


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (b"", "a.yaml: is empty"),
        (b"# nothing yet\n", "a.yaml: is empty"),
        (b"- 1\n", "a.yaml: must hold a mapping, not list"),
        (b"a: [1\nb: 2", "a.yaml:2: not YAML: expected ',' or ']', but got ':'"),
        (b"a: 0x" + b"f" * 5000, "a.yaml: not YAML: a number has too many digits"),
        (b"a: &a\n  b: *a\n", "a.yaml:1: not YAML: an anchor holds an alias of itself"),
        (
            b"".join(
                b"a%d: &a%d [%b]\n" % (n, n, b",".join(9 * [b"*a%d" % (n - 1) if n else b"x"]))
                for n in range(8)
            ),
            "a.yaml: not YAML: its aliases unfold to more than 1,000,000 values",
        ),
        (b"a: !!timestamp x", "a.yaml: not YAML: a value is not of the type that its tag names"),
        (b"\0\0", "a.yaml: not YAML: unacceptable character #x0000: special characters are not allowed"),
        (b"a: \xff", "a.yaml: not UTF-8 at byte 3"),
    ],
)
def test_what_is_no_settings_file_is_told_in_a_line(tmp_path: Path, written: bytes, said: str) -> None:
    (tmp_path / "a.yaml").write_bytes(written)
    with pytest.raises(UsageError) as error:
        read_yaml(tmp_path / "a.yaml")
    assert str(error.value) == f"{tmp_path}/{said}"


@pytest.mark.parametrize(
    "words",
    [["ls", "{0}"], ["ls", "--views", "{1}"], ["fetch", "--content", "dom", "{1}", "http://example.test/"]],
)
def test_names_and_texts_of_others_do_not_command_the_terminal(tmp_path: Path, words: list[str]) -> None:
    """Nor does what a page says turn the text after it around, or hide in it; letters and emoji stay joined."""
    joined = "\u0645\u06cc\u200c\u062e\U0001f468\u200d\U0001f467"
    said = (
        "\x1b]0;title\x07\x1b[2J\u202egnp\u2069\u200f\u061cno" + joined + "pay\u200bpal\u200d\ufeff\U000e0041"
    )
    address = "http://example.test/"
    with Writer.open(tmp_path / "site") as writer:
        writer.view(View(address, address, address, said), {"dom": said.encode()})
    seal(tmp_path / "site", workers=1)
    watcher, terminal = os.openpty()
    subprocess.run(
        [sys.executable, "-c", PROGRAM, *(word.format(said, tmp_path / "site.wacz") for word in words)],
        stdout=terminal,
        stderr=terminal,
        timeout=STARTS,
    )
    os.close(terminal)
    shown = os.read(watcher, 1 << 16).decode()
    os.close(watcher)
    assert r"\x1b]0;title\x07\x1b[2J\u202egnp\u2069\u200f\u061cno" in shown
    assert joined + r"pay\u200bpal\u200d\ufeff\U000e0041" in shown
    assert "\x1b" not in shown


def test_a_title_of_several_lines_is_one_row_of_a_list(tmp_path: Path) -> None:
    address = "http://example.test/"
    with Writer.open(tmp_path / "site") as writer:
        writer.view(View(address, address, address, "Home\nhttp://other.test/  0  Other\u2028end"), {})
    shown = stillweb("ls", "--views", tmp_path / "site")
    assert r"Home\nhttp://other.test/  0  Other\u2028end" in shown.out
    assert len(shown.out.splitlines()) == 3
