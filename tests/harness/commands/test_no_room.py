"""A machine that refuses room, a reader or a file: one clear line, and all that was recorded is kept."""

import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.harness.small_site import make, run_words, sound, urls
from tests.proxy.origin import Origin
from tests.snapshots.malformed import http, packed
from tests.snapshots.malformed import record as warc_record
from tests.support.command_line import stillweb

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("own_state")]


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


def limited(size: int, **env: str) -> dict[str, Any]:
    """Options under which no file may become larger. Python 3.11 leaves a compiled module cut where it has no room, for good."""
    return {
        "env": {**env, "PYTHONDONTWRITEBYTECODE": "1"},
        "limits": {resource.RLIMIT_FSIZE: (size, resource.RLIM_INFINITY)},
    }


FETCH = (
    "import sys, urllib.request, urllib.error\n"
    "for n in range(40):\n"
    "    try:\n"
    "        urllib.request.urlopen(f'{sys.argv[1]}/noise/{n}').read()\n"
    "    except urllib.error.HTTPError as error:\n"
    "        print(error.code)\n"
)


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_is_made_anew_without_room_is_not_there(tmp_path: Path) -> None:
    path, sealed, store = (
        make(tmp_path / "s", 8, "application/octet-stream"),
        tmp_path / "s.wacz",
        tmp_path / "store",
    )
    (ledger := tmp_path / "ledger").write_text("")
    asked = ("curl", "-so", "/dev/null", "https://a.test/0")
    assert stillweb("seal", path).code == 0
    assert stillweb("replay", sealed, "--ledger", ledger, "--", *asked).code == 0
    assert stillweb("publish", sealed, "--to", store).code == 0
    (work := tmp_path / "run").mkdir()
    assert stillweb(*run_words(work, "{call: fetch, with: {url: 'https://a.test/0'}}")).code == 0
    commands: list[tuple[str | Path, ...]] = [
        ("cut", sealed, "--ledger", ledger, "-o", "new.wacz"),
        ("cut", sealed, "--ledger", ledger, "-o", "folder"),
        ("publish", sealed, "--to", "published"),
        ("pull", store, "-o", "pulled"),
        ("publish", work / "run", "-o", "a run"),
    ]
    for *words, name in commands:
        out, before = tmp_path / name, {*tmp_path.iterdir()}
        done = stillweb(*words, out, **limited(1500))
        assert (done.code, len(done.said.splitlines())) == (4, 1)
        assert f"{out}: File too large; " in done.said
        assert "free some space and try again" in done.said
        left = [file for file in out.rglob("*") if file.is_file()]
        assert left == [] or name == "published"
        # whole, and listed nowhere
        assert all(sha256(file.read_bytes()).hexdigest() == file.parent.name for file in left)
        assert {*tmp_path.iterdir()} - before <= ({out} if name == "published" else set())
        assert stillweb(*words, out).code == 0


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small archive and a large one."""
    folder = tmp_path_factory.mktemp("crawls")
    return crawl(folder / "small.warc.gz", 0, 5), crawl(folder / "large.warc.gz", 5, 1500)


def crawl(path: Path, first: int, count: int) -> Path:
    """An archive whose addresses are long, and small when packed: data sorted on disk needs several times its room."""
    address = b"http://a.test/%05d/" + b"long" * 400
    path.write_bytes(
        packed(
            *(
                warc_record(http(b"%d" % number), uri=address % number, number=number)
                for number in range(first, first + count)
            )
        )
    )
    return path


@pytest.mark.slow
@pytest.mark.parametrize("how", ["disk", "limit"])
def test_no_room_for_temporary_files_while_importing(
    tmp_path: Path, crawls: tuple[Path, Path], room: Callable[[int], Path], how: str
) -> None:
    """SQLite holds 2 MB in memory; more lies in the directory for temporary files."""
    words, out = ("import", *crawls, "-o", tmp_path / "s"), tmp_path / "s"
    if how == "disk":
        place = room(1_500_000)
        done = stillweb(*words, env={"TMPDIR": str(place), "SQLITE_TMPDIR": str(place)})
        assert list(place.iterdir()) == []
    else:
        done = stillweb(*words, **limited(2_000_000))
    assert done.code == 4
    assert "data sorted on disk can't be written to the directory for temporary files: " in done.said
    assert "database or disk is full" in done.said or "disk I/O error" in done.said
    assert "name another one in TMPDIR" in done.said
    assert len(done.said.splitlines()) == 1
    assert sound(out)
    kept = urls(out)
    assert kept[:5] == [url for url in kept if int(url.split("/")[3]) < 5]
    if how == "limit":  # with room again it goes on
        assert stillweb("import", crawls[1], "-o", out).code == 0
        assert len({*urls(out)}) == 1505
        assert sound(out)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 300])
def test_no_room_for_a_search_index(tmp_path: Path, size: int) -> None:
    path, place = make(tmp_path / "s", 60), tmp_path / "temporary"
    assert stillweb("seal", path).code == 0
    place.mkdir()
    done = stillweb("search", tmp_path / "s.wacz", "says", **limited(size, TMPDIR=str(place)))
    assert (done.code, len(done.err.strip().splitlines())) == (4, 1), done.err
    assert "directory for temporary files: " in done.said
    assert "name another one in TMPDIR" in done.said
    assert list(place.iterdir()) == []


def test_no_directory_for_temporary_files(tmp_path: Path) -> None:
    """As where all is mounted to be read only: the module tempfile names no file."""
    path = make(tmp_path / "s")
    assert stillweb("seal", path).code == 0
    program = "import tempfile; tempfile._candidate_tempdir_list = lambda: ['/none']; import stillweb.harness.cli; stillweb.harness.cli.main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "search", tmp_path / "s.wacz", "says"], capture_output=True, text=True
    )
    assert done.returncode == 4
    assert done.stderr == (
        "stillweb: error: No usable temporary directory found in ['/none']; make room, or name one in TMPDIR\n"
    )


def test_no_room_for_what_is_shown(tmp_path: Path) -> None:
    path = make(tmp_path / "s")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from stillweb.harness.cli import main; main()", "ls", path],
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        4,
        "stillweb: error: No space left on device; make room and go on\n",
    )


def test_a_disk_that_fails_is_named_by_the_file(tmp_path: Path) -> None:
    """The system names no file where a write or an fsync fails."""
    path = make(tmp_path / "s")
    program = (
        "import errno, os, sys; from stillweb.harness.cli import main\n"
        "def fail(_): raise OSError(errno.EIO, 'Input/output error')\n"
        "os.fsync = fail; main(sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "seal", path, "-o", tmp_path / "t.wacz"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 4
    assert re.search(r"^stillweb: error: \S+: Input/output error; the disk fails$", done.stderr, re.MULTILINE)
    assert [one.name for one in tmp_path.iterdir()] == ["s"]


@pytest.mark.slow
def test_closed_output_is_not_lent_to_the_files_that_are_opened(origin: Origin, tmp_path: Path) -> None:
    path, program = tmp_path / "s", tmp_path / "fetch.py"
    program.write_text("print('a line of its own', flush=True)\n" + FETCH.replace("40", "3"))
    command = Path(sys.executable).with_name("stillweb")
    for closed in (">&-", "<&- >&- 2>&-"):
        words = f"{command} record -o {path} -- {sys.executable} {program} {origin.url} {closed}"
        done = subprocess.run(["bash", "-c", words], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "")
        assert "Traceback" not in done.stderr
    assert len(urls(path)) == 6
    assert sound(path)
    assert subprocess.run(["bash", "-c", f"{command} ls {path} >&-"]).returncode == 0
    assert subprocess.run(["bash", "-c", f"{command} ls {path}.not 2>&-"]).returncode == 2


def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    path = make(tmp_path / "s", 400, body=b"")
    words = f"{sys.executable} -c 'from stillweb.harness.cli import main; main()' ls --json {path}"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {words} | head -1"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


# Each error in a fork, after the modules are loaded once; a line tells the fork's exit code.
RAISING = """
import click, errno, os, sys, stillweb.harness.commands.ls as ls
from stillweb.harness.cli import main
for error in sys.argv[1:]:
    if pid := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(f"ended {code}", file=sys.stderr)
        continue
    def fail(): raise eval(error)
    ls.command = click.Command('ls', callback=fail)
    main(['ls'])
"""


def test_what_the_machine_refuses_is_a_line_and_a_bug_is_a_traceback() -> None:
    refused = {
        "OSError(errno.EMFILE, 'Too many open files')": (4, "Too many open files; raise the limit of open"),
        "OSError(errno.EADDRINUSE, 'Address already in use')": (4, "Address already in use; choose another"),
        "BaseExceptionGroup('', [OSError(errno.ENOSPC, 'No space left', 'x.warc')])": (4, "x.warc: No space"),
        "PermissionError(errno.EACCES, 'Permission denied', 'x.warc')": (2, "x.warc: Permission denied"),
        "MemoryError()": (4, "there is not enough memory"),
        'RuntimeError("can\'t start new thread")': (4, "no more threads can be started"),
        "KeyboardInterrupt": (130, "interrupted"),
    }
    bugs = ["OSError(errno.EINVAL, 'Invalid argument')", "KeyError('x')"]
    words = [sys.executable, "-c", RAISING, *refused, *bugs]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    *told, rest = re.split(r"^ended (-?\d+)\n", done.stderr, flags=re.MULTILINE)
    assert rest == ""
    texts, codes = told[::2], [int(code) for code in told[1::2]]
    assert codes == [code for code, _ in refused.values()] + [1, 1], done.stderr
    for text, (_, said) in zip(texts, refused.values(), strict=False):
        (line,) = [line for line in text.splitlines() if line]
        assert line.startswith("stillweb: ")
        assert said in line
    assert ["Traceback" in text for text in texts] == [False] * len(refused) + [True] * len(bugs)


@pytest.mark.slow
def test_a_report_without_room_leaves_nothing_half_written(tmp_path: Path) -> None:
    assert stillweb(*run_words(tmp_path, "{call: fetch, with: {url: 'https://a.test/0'}}")).code == 0
    before = sorted((tmp_path / "run").iterdir())
    done = stillweb("report", tmp_path / "run", **limited(10_000))
    assert (done.code, "report.html: File too large" in done.said) == (4, True)
    assert sorted((tmp_path / "run").iterdir()) == before


@pytest.mark.slow
def test_a_run_scored_otherwise_has_its_certificate_or_is_not_there(tmp_path: Path) -> None:
    words = run_words(tmp_path, "{call: fetch, with: {url: 'https://a.test/0'}}")
    assert stillweb(*words, "--epochs", "30").code == 0
    run, out = tmp_path / "run", tmp_path / "out"
    again = ("score", run, "--ignore-case", "-o", out)
    size = (run / "certificate.json").stat().st_size  # the largest of its files
    assert all(file.stat().st_size < size - 10 for file in run.rglob("*.json*") if "certif" not in file.name)
    done = stillweb(*again, **limited(size - 10))
    assert (done.code, "certificate.json: File too large" in done.said) == (4, True)
    assert not out.exists()
    assert stillweb(*again).code == 0
    assert (out / "certificate.json").exists()


def test_a_text_that_is_written_anew_without_room_stays_as_it_was(tmp_path: Path) -> None:
    path, out = make(tmp_path / "s"), tmp_path / "out.txt"
    out.write_text("as it was")
    done = stillweb("fetch", path, "https://a.test/0", "-o", out, **limited(100))
    assert (done.code, "out.txt: File too large" in done.said) == (4, True)
    assert out.read_text() == "as it was"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out.txt", "s"]
