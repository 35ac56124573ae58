"""Agents of one's own, programs and modules, see their own files and the snapshot through its proxy, and nothing of the run or the machine."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from stillweb.harness.agents import load_agent
from stillweb.harness.results.certificate import make_certificate
from stillweb.harness.runs.display import SilentDisplay
from stillweb.harness.runs.run_files import RunFiles, Settings
from stillweb.harness.runs.runner import run_attempts, start_run
from stillweb.harness.sandbox.running import can_confine
from stillweb.harness.task import Task
from stillweb.harness.trace import read_trace
from stillweb.snapshots.errors import MissingCapability, UsageError
from stillweb.snapshots.secrets.keystore import snapshot_key
from tests.harness.sandbox.test_attacks import without
from tests.proxy.frozen import Site
from tests.support.command_line import stillweb
from tests.support.isolating import needs_confinement

pytestmark = [pytest.mark.own_process, needs_confinement]

CANARY = "canary-of-the-references"

# It looks through all that it can reach but the system's own files: folders, other processes, a port of the machine.
THIEF = """
import os, socket, stat, sys
found, seen = [], 0
def look(path):
    global seen
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return
        with open(path, "rb") as file:
            text = file.read(1 << 20)
    except OSError:
        return
    seen += 1
    if CANARY in text:
        found.append(path)
def walk(top):
    for place, names, files in os.walk(top):
        names[:] = [name for name in names if os.path.join(place, name) not in SYSTEM]
        for name in files:
            look(os.path.join(place, name))
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/sys", "/nix", "/proc", sys.prefix, sys.base_prefix)
for top in TOPS:
    walk(top)
    look(top)
for pid in [name for name in os.listdir("/proc") if name.isdigit()]:
    for name in ("environ", "cmdline"):
        look(f"/proc/{pid}/{name}")
    for top in TOPS[1:]:
        look(f"/proc/{pid}/root{top}")
    look(f"/proc/{pid}/cwd/tasks.jsonl")
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            look(f"/proc/{pid}/fd/{name}")
    except OSError:
        pass
try:
    socket.create_connection(("127.0.0.1", PORT), 2)
    found.append("port")
except OSError:
    pass
print(f"found {sorted(set(found))} in {seen}")
"""


# A class that does the same in its process, and looks through what it is given there.
MODULE = """
class Thief:
    name = "thief"
    def identity(self): return {"kind": "thief"}
    async def run(self, attempt):
        said = []
        exec(compile(CODE, "thief", "exec"), {"print": said.append})
        given = repr([attempt.task, attempt.environment, attempt.fork, attempt.stop, attempt.tools.list()])
        for name in ("_spec", "_notes", "close", "__class__", "nothing"):
            try:
                given += repr(await attempt.tools.call(name, {}))
            except Exception as error:
                given += repr(error)
        return said[0] if "-".join(CANARY) not in given else f"found given: {given}"
"""


def steal(folder: Path, tops: list[str], *, kind: str = "command", **options: Any) -> tuple[RunFiles, str]:
    """The files of a run whose agent looks for its reference answer in all that it could reach, and what it says."""
    site = Site(folder / "site")
    site.add("http://shelf.example/birds", b"birds")
    with site.open():
        pass
    tasks = folder / "tasks.jsonl"
    tasks.write_text(json.dumps({"id": "one", "question": "?", "answer": CANARY}))
    (folder / "home").mkdir()
    (folder / "home" / ".token").write_text(CANARY)
    (folder / "attempt-before.jsonl").write_text(CANARY)
    with socket.create_server(("127.0.0.1", 0)) as server:
        given = {"TOPS": [*tops, str(folder), str(tasks)], "PORT": server.getsockname()[1]}
        code = "\n".join(f"{name} = {value!r}" for name, value in given.items())
        code += f"\nCANARY = b'-'.join({CANARY.encode().split(b'-')!r})\n{THIEF}"  # or it would find itself
        if kind == "module":
            code = f"CODE = {code!r}\nCANARY = {CANARY.split('-')!r}\n{MODULE}"
        (folder / "thief.py").write_text(code)
        agent = {"command": f"command:{sys.executable} {folder / 'thief.py'}", "module": "thief:Thief"}[kind]
        settings = Settings(
            agent=agent,
            snapshots=(str(folder / "site"),),
            source=str(tasks),
            directory=str(folder),
            **options,
        )
        task = Task("one", "?", reference=[CANARY], scorer="exact", meta={"rubric": {"a": CANARY}})
        files = start_run(folder / "run", settings, [task])
        run_attempts(files.path, display=SilentDisplay())
    answer = read_trace(files.trace_path("one", 1)).last("answer")
    assert answer is not None
    return files, str(answer["text"] or answer["error"])


@pytest.mark.parametrize("kind", ["command", "module"])
def test_the_references_are_in_nothing_that_an_agent_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("SECRET_OF_THE_USER", CANARY)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    files, said = steal(tmp_path, ["/"], kind=kind)
    assert said.startswith("found [] in "), said
    assert int(said.rpartition(" ")[2]) > 2  # it did read something
    certificate = make_certificate(files.path)
    assert certificate["confinement"] == {"agent": {"held": ["namespaces", "system calls"], "missing": []}}


@pytest.mark.slow
def test_where_namespaces_are_forbidden_the_run_refuses_and_the_references_would_be_found(
    tmp_path: Path,
) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[0] or '.')\n"
        "from tests.harness.agents.test_confined_agent import steal\n"
        "from stillweb.harness.results.certificate import make_certificate\n"
        "(Path.cwd() / 'a').mkdir(); (Path.cwd() / 'b').mkdir()\n"
        "try: steal(Path.cwd() / 'a', [])\nexcept MissingCapability as error: print('refused:', error)\n"
        "files, said = steal(Path.cwd() / 'b', [], allow_unconfined=True)\nprint(said)\n"
        "print(make_certificate(files.path)['confinement'])\n"
    ).replace("sys.argv[0] or '.'", repr(str(Path(__file__).parents[3])))
    done = without(["unshare"], code, tmp_path)
    refused, found, certificate = done.stdout.splitlines()[-3:]
    assert refused.startswith("refused: command:"), done.stderr
    assert "can't be confined here: namespaces: " in refused
    for name in ("tasks.jsonl", "attempt-before.jsonl", ".token", "port"):
        assert name in found
    assert "'missing': ['namespaces: " in certificate


def program_says(folder: Path, code: str, name: str = "agent.py", command: str = "", **options: Any) -> str:
    (folder / name).write_text(code)
    agent = command or f"{sys.executable} {folder / name}"
    settings = Settings(agent=f"command:{agent}", agent_options=options)
    files = start_run(folder / "run", settings, [Task("one", "?", reference=["x"], scorer="exact")])
    run_attempts(files.path, display=SilentDisplay())
    answer = read_trace(files.trace_path("one", 1)).last("answer")
    assert answer is not None
    return str(answer["text"] or answer["error"])


def test_the_code_of_a_program_may_be_longer_than_a_file_s_name(tmp_path: Path) -> None:
    assert program_says(tmp_path, "", command=f"{sys.executable} -c 'print(42)  # {'x' * 300}'") == "42"


def test_a_program_starts_in_an_empty_folder_with_no_keys_but_those_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "one")
    monkeypatch.setenv("OTHER_API_KEY", "two")
    code = "import os; print(os.getcwd(), os.listdir(), os.environ['HOME'], sorted(n for n in os.environ if 'KEY' in n)); open('x', 'w')"
    assert (
        program_says(tmp_path, code, pass_env=["OPENAI_API_KEY"])
        == "/workspace [] /workspace ['OPENAI_API_KEY']"
    )
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "leaves",
    [
        "[(os.mkdir('d'), os.chdir('d')) for _ in range(3000)]",
        "[os.mkdir(os.sep.join('d' * n)) for n in range(1, 1900)]",
        "os.makedirs('a/b/c'); os.chmod('a/b', 0); os.chmod('.', 0)",
        "os.mkfifo('f'); os.symlink('/', 'root'); os.symlink('..', 'up'); os.symlink('x', 'x'); os.mkdir(b'\\xff\\n')",
        "open('x', 'w').truncate(1 << 42)",
    ],
)
def test_nothing_that_a_program_leaves_in_its_folder_ends_the_run_or_stays(
    tmp_path: Path, leaves: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    assert program_says(tmp_path, f"import os; {leaves}; print(42)") == "42"
    assert not list(temporary.iterdir())


def test_an_answer_without_an_end_is_none(tmp_path: Path) -> None:
    """The attempt fails in its own words, whatever the bytes are."""
    said = program_says(tmp_path, r"import os; os.write(1, b'\xed\0' * 3_000_000)")
    assert said == "the agent's answer has more than 4,000,000 characters, which is none"


def test_a_program_with_the_machines_network_has_none_of_its_abstract_sockets(tmp_path: Path) -> None:
    """Without a snapshot, a program has no network of its own."""
    reason = can_confine(network="shared", limits=None)
    if reason is not None:
        pytest.skip(reason)
    name = f"stillweb-agent-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{name}")
        abstract.listen()
        code = (
            f"import socket\nsocket.create_connection(('127.0.0.1', {server.getsockname()[1]}))\n"
            f"try: socket.socket(socket.AF_UNIX).connect('\\0{name}')\nexcept PermissionError as error: print('refused')"
        )
        assert program_says(tmp_path, code) == "refused"


@pytest.mark.parametrize(
    ("name", "program", "code"),
    [
        ("agent.sh", "bash", "cat <(echo 42) && mktemp >/dev/null && echo x > /dev/stderr"),
        ("agent.mjs", "node", "import fs from 'fs'; fs.writeFileSync('x', '42'); console.log(fs.readFileSync('x', 'utf8'))"),
        ("agent.py", "env python", "import multiprocessing as m\nif __name__ == '__main__': print(m.Pool(1).map(abs, [-42])[0])"),
        ("agent.py", "", "#!/usr/bin/env python\nimport pty, sqlite3, ssl, subprocess\nprint(subprocess.check_output(['echo', '42'], text=True))"),
    ],
)  # fmt: skip
def test_ordinary_programs_run(
    tmp_path: Path, name: str, program: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if program and shutil.which(program.split()[0]) is None:
        pytest.skip(f"no {program} here")
    (tmp_path / name).touch()
    (tmp_path / name).chmod(0o755)
    assert program_says(tmp_path, code, name, f"{program} {tmp_path / name}".strip()) == "42"


def test_files_that_are_named_are_seen_and_are_part_of_what_the_agent_is(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "helper.py").write_text("def answer(): return 42")
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'lib')!r}); import helper; print(helper.answer())"
    assert "ModuleNotFoundError" in program_says(tmp_path, code)
    shutil.rmtree(tmp_path / "run")
    assert program_says(tmp_path, code, files=[str(tmp_path / "lib")]) == "42"
    before = load_agent("command:true", files=[str(tmp_path / "lib")]).identity()
    (tmp_path / "lib" / "helper.py").write_text("def answer(): return 43")
    assert load_agent("command:true", files=[str(tmp_path / "lib")]).identity() != before
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(UsageError, match="files: there is no 'nowhere' here"):
        program_says(tmp_path, "", name="other.py", files=["nowhere"])


@pytest.mark.parametrize("held", ["run", "cache", "state"])
def test_a_named_folder_that_holds_the_run_or_keys_or_copies_is_refused(
    tmp_path: Path, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLWEB_CACHE", str(tmp_path / "cache" / "stillweb"))
    monkeypatch.setenv("STILLWEB_STATE", str(tmp_path / "state" / "stillweb"))
    snapshot_key("", tmp_path / "state" / "stillweb")
    (tmp_path / "cache" / "browser").mkdir(parents=True)
    named = tmp_path / held if held != "run" else tmp_path
    assert "name the program's own files one by one" in program_says(
        tmp_path, "print(42)", files=[str(named)]
    )
    if held == "cache":
        shutil.rmtree(tmp_path / "run")
        assert program_says(tmp_path, "print(42)", files=[str(named / "browser")]) == "42"


def test_the_machine_is_asked_before_anything_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "stillweb.harness.runs.preflight.can_confine", lambda **_: "python: can't be confined here"
    )
    with pytest.raises(MissingCapability, match="can't be confined here"):
        program_says(tmp_path, "print(42)")
    assert not list((tmp_path / "run" / "traces").iterdir())


@pytest.mark.slow
def test_the_option_is_part_of_the_settings_that_a_certificate_stands_on(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"id": "a", "question": "?", "answer": "42"}))
    run = ("run", "--tasks", "tasks.jsonl", "--agent", "command:echo 42")
    for name, option in (("one", ()), ("two", ("--allow-unconfined",))):
        assert stillweb(*run, "-o", name, *option, cwd=tmp_path).code == 0
    one, two = (json.loads((tmp_path / name / "certificate.json").read_text()) for name in ("one", "two"))
    assert (one["settings"]["allow_unconfined"], two["settings"]["allow_unconfined"]) == (False, True)
    assert one["hash"] != two["hash"]
    assert one["confinement"]["agent"]["missing"] == []
    again = stillweb(*run, "-o", "two", cwd=tmp_path)
    assert "allow_unconfined = True" in again.said
