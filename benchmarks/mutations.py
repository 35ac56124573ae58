"""`python -m benchmarks.mutations [--only TEXT] [--jobs N] [--keep]`: identity broken in one place after the other.

Each part of the key, each rule and each of its fields, each step of the variant choice, and each condition in the
code that decides (see `deciding.py`), and each operand of an `and` or `or` there, is taken away in turn in a copy of the
sources; a test must fail. Prints a table of what was found out and what survived; exits with 1 if anything survived.
Conditions are tried with the tests in which they are ever true, operands with those in which they ever decide, found by
one run of all tests: some 3 CPU seconds each, 10 for anything else.
"""

from __future__ import annotations

import ast
import builtins
import io
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from benchmarks.deciding import DECIDING, SAME

ROOT = Path(__file__).parent.parent
TAKEN = ("snapshots", "proxy", "harness", "tests/__init__.py", "tests/conftest.py", "tests/snapshots", "tests/proxy",
         "tests/support", "docs", "pyproject.toml")  # fmt: skip


def _tests(folder: str) -> list[str]:
    """The files of tests in a folder."""
    return sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests" / "snapshots" / folder).glob("test_*.py"))


SLOW = (
    "test_random_walks_replay_right_or_miss", "test_the_hard_set_has_no_wrong_answer", "test_walks_over_a_thin",
    "test_without_a_part_of_the_key", "test_without_a_rule_the",
)  # fmt: skip
FIRST = [
    *(file for folder in ("identity", "matching", "states", "http") for file in _tests(folder)),
    "tests/proxy/replay/test_parts.py",
    "-k", f"not ({' or '.join(SLOW)})",
]  # fmt: skip
THEN = [
    "tests/snapshots/identity/test_hard_set.py", "tests/snapshots/states/test_state_walks.py", "tests/proxy/replay/test_passwords.py", "tests/proxy/test_walks.py",
    "-k", f"(walks or passwords or {' or '.join(SLOW[1:])}) and not {SLOW[0]}",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutation:
    """A place in a file of the sources, and what stands there instead."""

    kind: str
    name: str
    file: str
    text: str


def mutations() -> list[Mutation]:
    """Return all mutations, by kind and place."""
    found = [*_listed("key part", "snapshots/identity/keys.py", "KEY_PARTS"), *_exact(), *_rules()]
    found += _listed("step", "snapshots/matching/choosing.py", "STEPS")
    for file, functions in DECIDING.items():
        found += _conditions(file, functions)
    return found


def _source(file: str) -> str:
    return (ROOT / file).read_text()


def _listed(kind: str, file: str, name: str) -> Iterator[Mutation]:
    """Each item of a list taken out of it."""
    source = _source(file)
    for node in ast.parse(source).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
            assert isinstance(node.value, ast.List)
            items = [ast.unparse(item) for item in node.value.elts]
            for item in items:
                left = ", ".join(i for i in items if i != item)
                yield Mutation(kind, f"without {item}", file, _replaced(source, node.value, f"[{left}]"))


def _exact() -> Iterator[Mutation]:
    """Each part of the key of the literal request."""
    file = "snapshots/identity/keys.py"
    source = _source(file)
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef) and function.name == "exact_digest":
            call = next(
                n
                for n in ast.walk(function)
                if isinstance(n, ast.Call) and ast.unparse(n.func) == "netstring"
            )
            for part in call.args[1:]:
                name = f"exact without {ast.unparse(part)}"
                if name in SAME:
                    continue
                yield Mutation("key part", name, file, _replaced(source, part, 'b""'))


def _rules() -> Iterator[Mutation]:
    """Each rule, each of its fields, and each bound on a field's value."""
    file = "snapshots/identity/rules.toml"
    head, *blocks = re.split(r"(?m)^(?=\[\[rule\]\])", _source(file))
    for number, block in enumerate(blocks):
        name = re.search(r'id = "([^"]+)"', block)
        assert name

        def changed(kind: str, what: str, new: str, number: int = number) -> Mutation:
            rest = [*blocks[:number], new, *blocks[number + 1 :]]
            return Mutation(kind, what, file, head + "".join(rest))

        yield changed("rule", f"without {name[1]}", "")
        for line in re.findall(r"(?m)^ *\{.*in = .*\},\n", block):
            if len(re.findall(r"(?m)^ *\{.*in = .*\},\n", block)) > 1:
                yield changed("rule field", f"{name[1]} without {line.strip()[:60]}", block.replace(line, ""))
            if "value = " in line and "value = ''" not in line:
                wide = re.sub(r"value = '[^']*'", "value = '.*'", line)
                yield changed(
                    "rule bound", f"{name[1]}, any value: {line.strip()[:60]}", block.replace(line, wide)
                )


@dataclass(frozen=True, slots=True)
class Asked:
    """A deciding expression and its deciding value; a mutation replaces `taken` by `left`."""

    kind: str
    name: str
    told: ast.expr
    when: bool
    taken: ast.expr
    left: str


def _conditions(file: str, functions: set[str] | None) -> Iterator[Mutation]:
    """Each `if` never taken, and each `and` or `or` without one of its operands."""
    source = _source(file)
    for asked in _asked_in(file, functions, ast.parse(source)):
        yield Mutation(asked.kind, asked.name, file, _replaced(source, asked.taken, asked.left))


def _asked_in(file: str, functions: set[str] | None, tree: ast.Module) -> list[Asked]:
    """Yield the conditions in the functions of a file."""
    found: list[Asked] = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or (
            functions is not None and function.name not in functions
        ):
            continue
        where = f"{Path(file).name} {function.name}:"
        for node in ast.walk(function):
            if isinstance(node, ast.If):
                name = f"{where} if {ast.unparse(node.test)}"
                found.append(Asked("condition", name, node.test, True, node.test, "False"))
            elif isinstance(node, ast.BoolOp):
                for operand in node.values:
                    others = [f"({ast.unparse(other)})" for other in node.values if other is not operand]
                    some = isinstance(node.op, ast.Or)
                    left = f"({(' or ' if some else ' and ').join(others)})"
                    name = f"{where} {ast.unparse(node)} without {ast.unparse(operand)}"
                    found.append(Asked("operand", name, operand, some, node, left))
    return [asked for asked in found if asked.name not in SAME]


class _Wrapper(ast.NodeTransformer):
    """Lets expressions tell their values."""

    def __init__(self, asked: list[Asked]) -> None:
        self.asked = {id(one.told): one for one in asked}

    def visit(self, node: ast.AST) -> ast.AST:
        """The node, within a call if its value is asked for."""
        one = self.asked.get(id(node))
        inner = self.generic_visit(node)
        if one is None or not isinstance(inner, ast.expr):
            return inner
        arguments = [ast.Constant(one.name), ast.Constant(one.when), inner]
        return ast.Call(ast.Name("heard_by_mutations", ast.Load()), arguments, [])


class _Listener:
    """Told by the expressions themselves when one decides, and by pytest in which test, and how long it took."""

    def __init__(self) -> None:
        self.tests: dict[str, set[str]] = defaultdict(set)
        self.seconds: dict[str, float] = defaultdict(float)
        self.now = ""

    def heard(self, name: str, when: bool, value: object) -> object:
        if bool(value) is when and self.now:
            self.tests[name].add(self.now)
        return value

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.now = nodeid

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration


def _heard(base: str) -> dict[str, list[str]]:
    """The tests in which each condition or operand ever decides, the quickest first."""
    listener = _Listener()
    builtins.__dict__["heard_by_mutations"] = listener.heard
    with tempfile.TemporaryDirectory(prefix="stillweb-mutation-") as folder:
        shutil.copytree(base, folder, dirs_exist_ok=True)
        for file, functions in DECIDING.items():
            tree = ast.parse(Path(folder, file).read_text())
            wrapped = _Wrapper(_asked_in(file, functions, tree)).visit(tree)
            Path(folder, file).write_text(ast.unparse(ast.fix_missing_locations(wrapped)))
        told = _tested(folder, FIRST, [listener], first=False)
        if told:
            raise click.ClickException(f"the tests fail without any mutation: {told}")
    return {name: sorted(ids, key=lambda i: (listener.seconds[i], i)) for name, ids in listener.tests.items()}


def _replaced(source: str, node: ast.expr, new: str) -> str:
    lines = source.splitlines(keepends=True)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    first, last = node.lineno - 1, node.end_lineno - 1
    head, tail = lines[first].encode()[: node.col_offset], lines[last].encode()[node.end_col_offset :]
    return "".join(lines[:first]) + head.decode() + new + tail.decode() + "".join(lines[last + 1 :])


def _copied(base: str) -> str:
    """The sources as they are now, whatever is edited meanwhile."""
    for name in TAKEN:
        source, target = ROOT / name, Path(base, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
        else:
            shutil.copy(source, target)
    return base


def _attempt(mutation: Mutation, base: str, heard: dict[str, list[str]]) -> tuple[Mutation, str]:
    """The first test that failed with a mutation, "" if none did."""
    with tempfile.TemporaryDirectory(prefix="stillweb-mutation-") as folder:
        shutil.copytree(base, folder, copy_function=os.link, dirs_exist_ok=True)
        Path(folder, mutation.file).unlink()
        Path(folder, mutation.file).write_text(mutation.text)
        first = heard.get(mutation.name, []) if mutation.kind in ("condition", "operand") else FIRST
        for arguments in (first, THEN):
            if arguments and (told := _tested(folder, arguments)):
                return mutation, told
    return mutation, ""


def _tested(
    folder: str, arguments: list[str], plugins: list[object] | None = None, *, first: bool = True
) -> str:
    """The first test that fails in a folder, "" if none does. Once in a process."""
    import pytest
    from hypothesis import settings

    settings.register_profile("few", max_examples=25, deadline=None)
    settings.load_profile("few")
    os.chdir(folder)
    os.environ["XDG_CACHE_HOME"] = folder
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--basetemp",
        f"{folder}/tmp",
        "-W",
        "ignore",
    ]
    seen = io.StringIO()
    with redirect_stdout(seen), redirect_stderr(seen):
        code = pytest.main([*options, *(["-x"] if first else []), *arguments], plugins=plugins)
    if code == 0:
        return ""
    told = re.search(r"(?m)^(?:FAILED|ERROR) (\S+)", seen.getvalue())
    return told[1] if told else f"pytest: {int(code)}"


@click.command()
@click.option("--only", default="", help="Those whose kind or name this regular expression finds.")
@click.option("--jobs", default=2, show_default=True)
@click.option("--keep", is_flag=True, help="Write MUTATIONS.md.")
def main(only: str, jobs: int, keep: bool) -> None:
    """Tries each mutation in a process of its own."""
    for heavy in ("pytest", "hypothesis", "ada_url", "mitmproxy.http", "backports.zstd", "httpx"):
        import_module(heavy)
    chosen = [m for m in mutations() if re.search(only, f"{m.kind}: {m.name}")]
    rows: dict[str, list[tuple[str, str]]] = {}
    control = Mutation(
        "control", "nothing", "snapshots/identity/keys.py", _source("snapshots/identity/keys.py")
    )
    with (
        tempfile.TemporaryDirectory(prefix="stillweb-mutations-") as base,
        multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool,
    ):
        copied = _copied(base)
        heard = (
            pool.apply(_heard, (copied,)) if any(m.kind in ("condition", "operand") for m in chosen) else {}
        )
        attempt = partial(_attempt, base=copied, heard=heard)
        for mutation, by in pool.imap_unordered(attempt, [control, *chosen], chunksize=1):
            if mutation.kind == "control":
                if by:
                    raise click.ClickException(f"the tests fail without any mutation: {by}")
                continue
            rows.setdefault(mutation.kind, []).append((mutation.name, by))
            click.echo(f"{mutation.kind}: {mutation.name}: {by or 'SURVIVED'}", err=True)
    text = _table(rows)
    click.echo(text)
    if keep:
        (ROOT / "benchmarks" / "MUTATIONS.md").write_text(
            "# Mutations of identity\n\nWritten by `python -m benchmarks.mutations --keep`; see there what is taken away. "
            f"{len(SAME)} conditions that only save time are left out, each named there.\n\n{text}\n"
        )
    sys.exit(any(not by for found in rows.values() for _, by in found))


def _table(rows: dict[str, list[tuple[str, str]]]) -> str:
    lines = ["| taken away | mutations | found out | survived |", "|---|---|---|---|"]
    for kind, found in rows.items():
        alive = [name for name, by in found if not by]
        shown = "; ".join(f"`{name}`" for name in alive)
        lines.append(
            f"| {kind} | {len(found)} | {len(found) - len(alive)} | {len(alive)} {shown} |".replace("  ", " ")
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
