"""`stillweb run --isolate`: which ports of this machine it lets in, and which it does not."""

import json
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from stillweb.harness.trace import read_trace
from tests.harness.small_site import make
from tests.proxy.origin import Answer, Origin
from tests.support.command_line import Done, stillweb
from tests.support.isolating import needs_isolation
from tests.support.openai_endpoint import Endpoint

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("own_state"), needs_isolation]
LET_IN = "let in from this machine, and nothing else: {}\n"


def answer_in(folder: Path) -> str:
    answer = read_trace(folder / "run" / "traces" / "one.1.jsonl").last("answer")
    assert answer is not None
    return str(answer["text"])


def isolated_run(folder: Path, agent: str) -> Done:
    task = {"id": "one", "question": "Which?", "answer": "7", "scorer": "exact"}
    (folder / "tasks.jsonl").write_text(json.dumps(task) + "\n")
    (folder / "agent.yaml").write_text(agent)
    words = ("--tasks", folder / "tasks.jsonl", "--agent", folder / "agent.yaml", "--isolate")
    words += ("--snapshot", make(folder / "site"), "-o", folder / "run")
    return stillweb("run", *words, env={"PYTHONPATH": str(folder)})


@pytest.mark.slow
def test_a_model_on_this_machine_is_let_in(tmp_path: Path) -> None:
    with Endpoint(lambda asked: "7") as endpoint:
        agent = f"agent: openai\nmodel: m\nbase_url: {endpoint.url}\nkey_variable: ''\n"
        done = isolated_run(tmp_path, agent)
        assert done.code == 0, done.err
        assert LET_IN.format(urlsplit(endpoint.url).netloc) in done.err
        assert len(endpoint.requests) == 1
    assert answer_in(tmp_path) == "7"


def test_what_a_program_asks_itself_is_let_in_and_no_other_port(tmp_path: Path) -> None:
    program = tmp_path / "agent.py"
    program.write_text(
        "import sys, urllib.error, urllib.request as u\n"
        "for url in sys.argv[1:]:\n"
        "    try: print(u.urlopen(url, timeout=60).read().decode())\n"
        "    except urllib.error.URLError as error: print(type(error.reason).__name__)\n"
    )
    with Origin(lambda asked: Answer(body=b"live")) as origin, Origin(lambda asked: Answer()) as other:
        urls = [f"http://127.0.0.1:{port}/" for port in (origin.port, other.port)]
        command = json.dumps([sys.executable, str(program), *urls])
        direct = json.dumps([f"127.0.0.1:{origin.port}", "127.0.0.1"])  # without a port: what is inside
        done = isolated_run(tmp_path, f"agent: command\ncommand: {command}\ndirect: {direct}\n")
        assert done.code == 0, done.err
        assert LET_IN.format(f"127.0.0.1:{origin.port}") in done.err
        assert not other.asked
    assert answer_in(tmp_path).split() == ["live", "ConnectionRefusedError"]


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["command", "openai"])
def test_what_is_elsewhere_is_not_let_in(tmp_path: Path, agent: str) -> None:
    """A program is refused at once; a model may be on the tape, so that only a call that is not says it."""
    told = {
        "command": ("agent: command\ncommand: 'true'\ndirect: a.test\n", 2, "--isolate leaves no way to a.test"),
        "openai": (
            "agent: openai\nmodel: m\nbase_url: http://192.0.2.1/v1\nkey_variable: ''\n",
            4,
            "--isolate leaves a way to no endpoint",
        ),
    }  # fmt: skip
    text, code, why = told[agent]
    done = isolated_run(tmp_path, text)
    assert done.code == code, done
    assert why in done.err
    assert "let in" not in done.err.replace("be let in", "")


@pytest.mark.slow
def test_nothing_is_let_in_for_an_agent_of_one_s_own_and_its_code_runs_inside(tmp_path: Path) -> None:
    (tmp_path / "own_isolated.py").write_text(
        "import socket\n"
        "assert [name for _, name in socket.if_nameindex()] == ['lo']\n"
        "class Agent:\n"
        "    name = 'own'\n"
        "    def identity(self): return {}\n"
        "    def let_in(self): return [('127.0.0.1', 9)]\n"
        "    async def run(self, attempt): return '7'\n"
    )
    done = isolated_run(tmp_path, "agent: own_isolated:Agent\n")
    assert done.code == 0, done.err
    assert "let in" not in done.err


def test_an_endpoint_with_an_impossible_port_is_named(tmp_path: Path) -> None:
    done = isolated_run(tmp_path, "agent: openai\nmodel: m\nbase_url: http://127.0.0.1:99999/v1\n")
    assert done.code == 2, done
    assert "base_url http://127.0.0.1:99999/v1: Port out of range" in done.err
