"""The structure that DESIGN promises: one direction of imports, light packages, nothing of one machine."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Mapping, Set
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAY_IMPORT = {
    "snapshots": {"snapshots"},
    "proxy": {"snapshots", "proxy"},
    "harness": {"snapshots", "proxy", "harness"},
}
OURS = set(MAY_IMPORT)


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@cache
def imports(source: str) -> dict[str, set[str]]:
    """Return the modules that a source imports, each with the names taken from it: "" for the module itself."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.setdefault(alias.name, set()).add("")
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.setdefault(node.module, set()).update(alias.name for alias in node.names)
    return found


def wrong_imports(package: str, source: str, more: frozenset[str] = frozenset()) -> set[str]:
    """Imports of our packages that `package` may not make, beside `more`."""
    names = (name.split(".") for name in imports(source))
    ours = {parts[1] if parts[1:] else "stillweb" for parts in names if parts[0] == "stillweb"}
    return ours - MAY_IMPORT[package] - more


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted(OURS))
def test_imports_go_one_way(package: str) -> None:
    commands = ROOT / "harness" / "commands"  # they call the public interface, as others do
    found = {
        str(path): wrong_imports(
            package, path.read_text(), frozenset({"api"} if commands in path.parents else ())
        )
        for path in modules(package)
    }
    assert not {path: names for path, names in found.items() if names}


def test_no_source_loads_a_module_under_its_bare_name() -> None:
    """The folders stand at the top of a checkout, where `import snapshots` would load each module a second time."""
    code = "import sys; sys.path.insert(0, sys.argv[1]); import stillweb.harness.cli, stillweb.harness.commands.run, stillweb.harness.commands.record; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code, ROOT], capture_output=True, text=True, check=True)
    assert not {name.partition(".")[0] for name in loaded.stdout.split()} & OURS


def test_ruff_refuses_a_bare_name() -> None:
    ruff = [sys.executable, "-m", "ruff", "check", "--stdin-filename", ROOT / "stillweb" / "x.py", "-"]
    done = subprocess.run(ruff, input="import snapshots.errors\n", capture_output=True, text=True, cwd=ROOT)
    assert "TID251" in done.stdout


def test_the_check_of_imports_sees_a_wrong_one() -> None:
    assert wrong_imports("snapshots", "from stillweb.proxy.replay.gateway import Gateway") == {"proxy"}
    assert wrong_imports("proxy", "def f():\n    import stillweb.harness.cli") == {"harness"}
    assert wrong_imports("harness", "from stillweb import open") == {"stillweb"}


@pytest.mark.parametrize("package", ["", "snapshots", "proxy", "harness.tools"])
def test_no_public_name_is_also_a_modules(package: str) -> None:
    """An import sets the module as an attribute of its package: a function of that name would be gone."""
    module = importlib.import_module(f"stillweb.{package}".rstrip("."))
    (folder,) = module.__path__
    names = {path.stem for path in Path(folder).iterdir() if path.is_dir() or path.suffix == ".py"}
    assert not set(module.__all__) & names


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        (
            "stillweb",
            {"mitmproxy", "playwright", "openai", "mcp", "lxml", "stillweb.proxy", "stillweb.harness"},
        ),
        ("stillweb.snapshots", {"mitmproxy", "playwright", "tantivy", "stillweb.harness", "stillweb.proxy"}),
        (
            "stillweb.snapshots.snapshot",
            {"mitmproxy", "playwright", "trafilatura", "tantivy", "stillweb.harness", "stillweb.proxy"},
        ),
        ("stillweb.proxy", {"mitmproxy", "playwright", "stillweb.harness"}),
        ("stillweb.proxy.record.recorder", {"playwright", "flask", "ldap3", "passlib", "stillweb.harness"}),
        ("stillweb.harness.models.client", {"openai"}),
        ("stillweb.harness.cli", {"mitmproxy", "playwright", "openai", "mcp", "rich", "lxml", "jinja2"}),
        ("stillweb.harness.pytest_plugin", {"mitmproxy", "playwright", "openai", "mcp", "httpx"}),
    ],
)
def test_importing_loads_nothing_heavy(module: str, heavy: set[str]) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )
    assert not loaded & heavy


def tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("a copy without Git: nothing of it is committed")
    # the checkout may be another user's, as in a container
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


_PATHS = ["/" + "root/", "/" + "work/", "/" + "home/"]
_HOSTS = ["pypi" + r"\.org", "pythonhosted" + r"\.org", "registry" + r"\.npmjs"]
_MACHINE = re.compile(rf"(?<![\w.])(?:{'|'.join(_PATHS)})|{'|'.join(_HOSTS)}")


def machine_words(text: str) -> list[str]:
    """Paths of a machine and registry hosts in a text."""
    return _MACHINE.findall(text)


def test_nothing_of_one_machine_is_committed() -> None:
    found = {}
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        if words := machine_words(text):
            found[str(path.relative_to(ROOT))] = words
    assert not found


def test_the_check_of_machine_words_sees_one() -> None:
    assert machine_words("see /" + "root/.cache")


def test_the_lock_file_pins_every_dependency_with_hashes() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert len(pins) > 100
    assert all(re.match(r"[a-z0-9][a-z0-9._-]*==\S+( ; .*)? \\$", line) for line in pins)


def imported_anywhere(path: Path, known: Set[str]) -> set[str]:
    """The modules among those `known` that a file imports: in functions too, and for type checkers.

    Every import of a submodule loads the packages around it first; that is no wish of the importer and does not count.
    """
    names: set[str] = set()
    for module, taken in imports(path.read_text()).items():
        names |= {f"{module}.{name}".rstrip(".") for name in taken} & known or {module}
    return names & known


def circle(graph: Mapping[str, Collection[str]]) -> list[str]:
    """The shortest way from a module back to itself by imports, its name at both ends; empty if there is none."""
    found: list[str] = []
    for start in sorted(graph):
        ways = deque([[start]])
        seen: set[str] = set()
        while ways:
            way = ways.popleft()
            if found and len(way) + 1 >= len(found):
                break
            for name in sorted(graph.get(way[-1], ())):
                if name == start:
                    found = [*way, name]
                    ways.clear()
                    break
                if name not in seen:
                    seen.add(name)
                    ways.append([*way, name])
    return found


@pytest.mark.slow
def test_no_module_imports_itself_by_a_detour() -> None:
    names = {}
    for package in OURS:
        for path in modules(package):
            parts = path.relative_to(ROOT).with_suffix("").parts
            names[".".join(("stillweb", *(parts[:-1] if parts[-1] == "__init__" else parts)))] = path
    graph = {name: imported_anywhere(path, names.keys()) - {name} for name, path in names.items()}
    found = circle(graph)
    assert not found, "modules that import each other in a circle: " + " -> ".join(found)


def test_the_check_of_circles_sees_the_shortest() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"d", "a"}, "d": {"b"}, "e": {"a"}}
    assert circle(graph) == ["a", "b", "c", "a"]
    assert circle(graph | {"d": {"e", "c"}}) == ["c", "d", "c"]
    assert circle({"a": {"b"}, "b": {"c"}, "c": set(), "d": {"a"}}) == []


def test_imports_in_functions_and_for_type_checkers_count(tmp_path: Path) -> None:
    path = tmp_path / "one.py"
    path.write_text(
        "from typing import TYPE_CHECKING\n"
        "import a\n"
        "if TYPE_CHECKING:\n"
        "    import b\n"
        "else:\n"
        "    import c\n"
        "class One:\n"
        "    def f(self):\n"
        "        from d import e, f\n"
        "        from g import h\n"
    )
    assert imported_anywhere(path, {"a", "b", "c", "d", "d.e", "g"}) == {"a", "b", "c", "d.e", "g"}


def layers(package: str) -> list[str]:
    """The folders of a package from the top down, as its docstring lists them."""
    text = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text())) or ""
    return re.findall(r"^(\w+)/ +\S", text, re.M)


def folders_behind(package: str, source: str) -> set[str]:
    """Folders of the package that a module imports from, itself or through files beside the folders."""
    found: set[str] = set()
    seen: set[str] = set()
    pending = [source]
    while pending:
        for name in imports(pending.pop()):
            head, _, rest = name.removeprefix("stillweb.").partition(".")
            first = rest.partition(".")[0]
            if head != package or not first or first in seen:
                continue
            seen.add(first)
            if (ROOT / package / first).is_dir():
                found.add(first)
            else:
                pending.append((ROOT / package / f"{first}.py").read_text())
    return found


def climbing(package: str, order: list[str], folder: str, source: str) -> set[str]:
    """Folders above (or beside the list) that a module in `folder` imports from."""
    return folders_behind(package, source) - set(order[order.index(folder) :])


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted(OURS))
def test_each_folder_imports_only_those_below_it(package: str) -> None:
    order = layers(package)
    folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    assert sorted(order) == sorted(folders)
    found = {}
    for folder in order:
        for path in sorted((ROOT / package / folder).rglob("*.py")):
            if names := climbing(package, order, folder, path.read_text()):
                found[str(path.relative_to(ROOT))] = names
    assert not found


def test_the_check_of_folders_sees_one_above() -> None:
    order = layers("snapshots")
    assert climbing(
        "snapshots", order, "index", "from stillweb.snapshots.evidence.matcher import Matcher"
    ) == {"evidence"}
    assert not climbing(
        "snapshots",
        order,
        "evidence",
        "from stillweb.snapshots.index import cdxj\nimport stillweb.snapshots.view",
    )


def test_the_check_of_folders_sees_one_above_behind_a_file_at_the_top() -> None:
    order = layers("harness")
    source = "from stillweb.harness.pytest_plugin import pytest_configure"
    assert climbing("harness", order, "runs", source) == {"testing"}
    assert not climbing("harness", order, "testing", source)
    assert not climbing("harness", order, "tools", "from stillweb.harness.trace import Trace")
