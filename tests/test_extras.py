"""A plain `pip install stillweb`: its abilities, and its messages where an extra is missing."""

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import Distribution, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from stillweb.snapshots.writer import Writer
from tests.harness.tools.frozen import Recorder

# Imported by Python at its start: whatever belongs to no dependency of the core can't be imported.
SITE = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""


def core() -> dict[str, Distribution]:
    """The distributions that `pip install stillweb` installs, by normalized name."""
    found: dict[str, Distribution] = {}
    wanted = [Requirement(line) for line in distribution("stillweb").requires or ()]
    while wanted:
        need = wanted.pop()
        name = need.name.lower().replace("_", "-")
        if name in found or (need.marker and not need.marker.evaluate({"extra": ""})):
            continue
        found[name] = distribution(name)
        wanted += [Requirement(line) for line in found[name].requires or ()]
    return found


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a Python that has the core alone, with pytest beside it."""
    kept = {*core(), "stillweb", "pytest", "pluggy", "iniconfig", "packaging"}
    known = packages_distributions()
    blocked = {top for top, names in known.items() if not {n.lower().replace("_", "-") for n in names} & kept}
    assert {"mitmproxy", "playwright", "lxml", "httpx", "openai", "tantivy", "mcp"} <= blocked
    folder = tmp_path_factory.mktemp("bare")
    (folder / "sitecustomize.py").write_text(f"BLOCKED = {sorted(blocked)!r}\n{SITE}")
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "site"
    with Writer.open(path) as writer:
        Recorder(writer).add("http://a.test/", "<title>A</title>hello")
    return path


def stillweb(env: Mapping[str, str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stillweb", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_the_core_is_light() -> None:
    found = core()
    size = sum(
        f.locate().stat().st_size for d in found.values() for f in d.files or () if f.locate().exists()
    )  # type: ignore[attr-defined]
    assert len(found) <= 35
    assert size <= 100 * 1000 * 1000


@pytest.mark.slow
def test_the_core_opens_verifies_looks_up_and_replays(bare: Mapping[str, str], site: Path) -> None:
    for words in (["ls", site], ["verify", site], ["lookup", site, "http://a.test/"], ["diff", site, site]):
        done = stillweb(bare, *words)
        assert done.returncode == 0, done.stderr
    program = "import urllib.request as u; print(u.urlopen('http://a.test/').read().decode())"
    done = stillweb(bare, "replay", site, "--max-misses", "0", "--", sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    assert "hello" in done.stdout


@pytest.mark.slow
def test_the_pytest_plugin_needs_no_extra(bare: Mapping[str, str], site: Path, tmp_path: Path) -> None:
    program = "import urllib.request as u; print(u.urlopen('http://a.test/').read().decode())"
    (tmp_path / "test_a.py").write_text(
        "import pytest, subprocess, sys\n"
        f"@pytest.mark.snapshot({str(site)!r}, max_misses=0)\n"
        "def test_a(stillweb):\n"
        f"    command = [sys.executable, '-c', {program!r}]\n"
        "    assert b'hello' in subprocess.run(command, env=stillweb.environment, capture_output=True).stdout\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "stillweb.harness.pytest_plugin", "test_a.py"]
    env = {**bare, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # of those installed for our own tests
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["record", "http://a.test/", "-o", "out"], "record"),
        (["fetch", "SITE", "http://a.test/"], "text"),
        (["search", "SITE", "hello"], "search"),
        (["check", "SITE"], "browser"),
        (["ls", "s3://bucket/site.wacz"], "s3"),
        (["mutate", "SITE", "-o", "out", "--css", "p", "--drop"], "agents"),
        (["replay", "SITE", "--record-misses", "out", "--", "true"], "record"),
        (["mcp-record", "-o", "out", "--url", "http://a.test/mcp"], "mcp"),
        (["run", "--tasks", "TASKS", "--agent", "script:AGENT", "--snapshot", "SITE", "-o", "out"], "agents"),
        (["mcp", "SITE"], "mcp"),
        (["run", "--tasks", "TASKS", "--agent", "openai:m", "--snapshot", "SITE", "-o", "out"], "agents"),
    ],
)
def test_a_missing_extra_is_named(
    bare: Mapping[str, str], site: Path, tmp_path: Path, words: list[str], extra: str
) -> None:
    (tasks := tmp_path / "tasks.jsonl").write_text('{"id": "a", "question": "?", "answer": "x"}\n')
    (tmp_path / "agent.yaml").write_text(
        "agent: script\ndefault: {steps: [{call: fetch, with: {url: 'http://a.test/'}}], answer: x}\n"
    )
    places = {
        "SITE": str(site),
        "TASKS": str(tasks),
        "script:AGENT": f"script:{tmp_path}/agent.yaml",
        "out": str(tmp_path / "out"),
    }
    done = stillweb(bare, *(places.get(word, word) for word in words))
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    assert "pip install 'stillweb[" in done.stderr
    assert f"stillweb[{extra}]" in done.stderr


@pytest.mark.parametrize(
    ("call", "extra"),
    [
        ("record('out').__enter__()", "record"),
        ("coverage('SITE', tasks=[])", "text"),
        ("check('SITE')", "browser"),
    ],
)
def test_the_python_interface_names_the_extra_too(
    bare: Mapping[str, str], site: Path, tmp_path: Path, call: str, extra: str
) -> None:
    command = [sys.executable, "-c", f"import stillweb; stillweb.{call.replace('SITE', str(site))}"]
    done = subprocess.run(command, env=bare, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "MissingCapability: " in done.stderr
    assert f"pip install 'stillweb[{extra}]'" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(("module", "extra"), [("gym", "gym"), ("inspecting", "inspect")])
def test_an_adapter_names_its_extra(bare: Mapping[str, str], module: str, extra: str) -> None:
    command = [sys.executable, "-c", f"import stillweb.harness.{module}"]
    done = subprocess.run(command, env=bare, capture_output=True, text=True, check=False)
    assert f"pip install 'stillweb[{extra}]'" in done.stderr
