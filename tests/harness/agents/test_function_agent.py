"""Functions given to `stillweb.run` play in a confined process of their own, where no reference answer is to be found."""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stillweb
from stillweb.harness.runs.playing import IN_PROCESS
from tests.snapshots.making import record
from tests.support.isolating import needs_confinement

pytestmark = [pytest.mark.own_process, needs_confinement]

HELD = {"held": ["namespaces", "system calls"], "missing": []}
TRUSTED = {"held": [], "missing": [IN_PROCESS]}
WORDS = ("canary", "of", "the", "references")  # joined at run time alone, or a search would find itself

# looks for the answer in its own memory and in all files that the run could have
THIEF = '''
def search(attempt, folder):
    """Say where the canary was found."""
    import contextlib, gc, os
    canary, found = "-".join(WORDS), []
    for one in gc.get_objects():
        if type(one).__name__ in ("Task", "Settings", "RunFiles") and canary in repr(one):
            found.append("memory")
    for top in (folder, os.path.dirname(folder), ".", f"/proc/{os.getppid()}/root{folder}"):
        for place, _, names in os.walk(top):
            for path in (os.path.join(place, name) for name in names):
                with contextlib.suppress(OSError), open(path, "rb") as file:
                    if canary.encode() in file.read(1 << 20):
                        found.append("file")
    return f"found {sorted(set(found))}: {attempt.task.question}"
'''


@pytest.fixture(scope="module")
def searching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Any]]:
    """A folder with a task set, and the function above in a module that other processes can import."""
    folder = tmp_path_factory.mktemp("functions") / "set"
    folder.mkdir()
    (folder / "thief_of_answers.py").write_text(f"WORDS = {WORDS!r}\n{THIEF}")
    (folder / "tasks.jsonl").write_text(
        json.dumps({"id": "one", "question": "Which?", "answer": "-".join(WORDS)}) + "\n"
    )
    sys.path.insert(0, str(folder))
    try:
        import thief_of_answers  # type: ignore[import-not-found]  # written above

        with contextlib.chdir(folder):  # the checkout has too many files to look through
            yield folder, thief_of_answers.search
    finally:
        sys.path.remove(str(folder))


def played(
    folder: Path, out: Path, agent: Callable[..., Any], notes: list[str] | None = None
) -> tuple[str, Any]:
    """Run the agent; return its answer and the certificate's confinement of agents."""
    note = notes.append if notes is not None else None
    run = stillweb.run(tasks=folder / "tasks.jsonl", agent=agent, out=out, note=note)
    trace = json.loads(next((out / "traces").iterdir()).read_text().splitlines()[-2])
    return str(trace["text"] or trace["error"]), run.certificate["confinement"]["agent"]


# the remark on a function, after its name
UNREPEATED = (
    ": no other process can import it, so `certify` can't repeat the run; define it in a module of its own"
)


class Called:
    """An object that is called."""

    def __init__(self, search: Any, folder: Path) -> None:
        self.search, self.folder = search, folder

    def __call__(self, attempt: Any) -> Any:
        return self.search(attempt, str(self.folder))


@pytest.mark.slow
@pytest.mark.parametrize("waits", [False, True])
def test_a_function_calls_tools_whether_it_is_async_or_not(tmp_path: Path, waits: bool) -> None:
    with stillweb.Writer.open(tmp_path / "site") as writer:
        record(writer, "http://mill.test/", b"<title>Mill</title><p>The mill was built in 1784.</p>")
    (tmp_path / "tasks.jsonl").write_text('{"id": "one", "question": "When?", "answer": "1784"}\n')

    def plain(attempt: Any) -> Any:
        return attempt.call("fetch", {"url": "http://mill.test/"}).content[0]["text"].split()[-1].strip(".")

    async def waiting(attempt: Any) -> Any:
        page = await attempt.call("fetch", {"url": "http://mill.test/"})
        return page.content[0]["text"].split()[-1].strip(".")

    run = stillweb.run(
        tasks=tmp_path / "tasks.jsonl",
        agent=waiting if waits else plain,
        snapshot=tmp_path / "site",
        out=tmp_path / "run",
    )
    assert run.scores["exact"].mean == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["closure", "async closure", "lambda", "partial", "object"])
def test_a_function_that_can_be_copied_finds_no_answer(
    tmp_path: Path, searching: tuple[Path, Any], kind: str
) -> None:
    folder, search = searching

    def closure(attempt: Any) -> Any:
        return search(attempt, str(folder))

    async def waits(attempt: Any) -> Any:
        return search(attempt, str(folder))

    agents: dict[str, Any] = {
        "closure": closure,
        "async closure": waits,
        "lambda": lambda attempt: search(attempt, str(folder)),
        "partial": functools.partial(search, folder=str(folder)),
        "object": Called(search, folder),
    }
    notes: list[str] = []
    assert played(folder, tmp_path / "run", agents[kind], notes) == ("found []: Which?", HELD)
    assert [note[-len(UNREPEATED) :] for note in notes] == [UNREPEATED]


@pytest.mark.slow
def test_a_function_that_can_be_imported_finds_no_answer(
    tmp_path: Path, searching: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = searching
    (tmp_path / "importable_thief.py").write_text(
        "from thief_of_answers import search\n"
        f"def agent(attempt):\n    return search(attempt, {str(folder)!r})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from importable_thief import agent  # type: ignore[import-not-found]  # written above

    assert played(folder, tmp_path / "run", agent) == ("found []: Which?", HELD)


@pytest.mark.slow
def test_a_function_with_a_lock_runs_in_this_process_and_the_certificate_says_so(
    tmp_path: Path, searching: tuple[Path, Any]
) -> None:
    folder, search = searching
    lock = threading.Lock()

    def agent(attempt: Any) -> Any:
        with lock:
            return search(attempt, str(folder))

    notes: list[str] = []
    said, confinement = played(folder, tmp_path / "run", agent, notes)
    assert said.startswith("found ['file', 'memory']")  # the search finds what is there
    assert confinement == TRUSTED
    unrepeated, trusted = notes
    assert unrepeated == f"function:agent{UNREPEATED}"
    assert trusted.endswith("it runs in this process, where it can read the reference answers")


NOTEBOOK = """
import json, sys, stillweb
sys.path.insert(0, FOLDER)
from thief_of_answers import search
async def agent(attempt):
    return search(attempt, FOLDER)
run = stillweb.run(tasks=FOLDER + "/tasks.jsonl", agent=agent, out=OUT)
print(json.dumps(run.certificate["confinement"]["agent"]))
"""


@pytest.mark.slow
def test_a_function_of_a_notebook_finds_no_answer(tmp_path: Path, searching: tuple[Path, Any]) -> None:
    """The function's module is `__main__`, and no file holds its code."""
    folder, _ = searching
    code = f"FOLDER, OUT = {str(folder)!r}, {str(tmp_path / 'run')!r}\n{NOTEBOOK}"
    done = subprocess.run(
        [sys.executable, "-"], input=code, capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert json.loads(done.stdout) == HELD, done.stderr
    (trace,) = (tmp_path / "run" / "traces").iterdir()
    assert "found []: Which?" in trace.read_text()
