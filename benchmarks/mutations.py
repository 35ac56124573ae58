"""`python -m benchmarks.mutations [--only TEXT] [--jobs N] [--keep]`: identity broken in one place after the other.

Each part of the key, each rule and each of its fields, each step of the variant choice, and each condition in the
code that decides (see `DECIDING`) is taken away in turn in a copy of the sources; a test must fail. Prints a table of
what was found out and what survived; exits with 1 if anything survived. Conditions are tried with the tests in which
they are ever true, found by one run of all tests: some 3 CPU seconds each, 10 for anything else.
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

ROOT = Path(__file__).parent.parent
TAKEN = ("snapshots", "proxy", "harness", "tests/__init__.py", "tests/conftest.py", "tests/snapshots", "tests/proxy",
         "tests/support", "pyproject.toml")  # fmt: skip


def _test(name: str) -> str:
    """The file of tests of that name, in whatever folder."""
    (found,) = (ROOT / "tests" / "snapshots").rglob(f"test_{name}.py")
    return str(found.relative_to(ROOT))


SLOW = (
    "test_random_walks_replay_right_or_miss", "test_the_hard_set_has_no_wrong_answer", "test_walks_over_a_thin",
    "test_without_a_part_of_the_key", "test_without_a_rule_the",
)  # fmt: skip
FIRST = [
    *(_test(n) for n in ("rules", "ladder", "state", "state_walks", "conditions", "coarsening",
                                     "recognising", "explain", "keys", "header_fields", "logins", "doubts", "fragments",
                                     "senders", "answers", "plain", "evidence", "evident", "learning", "remembering",
                                     "replacing", "suspicion", "choosing_by_link", "slots", "parting",
                                     "acceptance", "choosing", "choosing_steps", "choosing_order", "choosing_fields",
                                     "choosing_turns", "sessions",
                                     "preconditions", "spans", "languages", "conditional", "varying", "weighted",
                                     "operations")),
    "tests/proxy/serving/test_parts.py",
    "-k", f"not ({' or '.join(SLOW)})",
]  # fmt: skip
THEN = [
    _test("hard_set"), _test("state_walks"), "tests/proxy/serving/test_passwords.py", "tests/proxy/test_walks.py",
    "-k", f"(walks or passwords or {' or '.join(SLOW[1:])}) and not {SLOW[0]}",
]  # fmt: skip
DECIDING = {
    "snapshots/matching/choosing.py": None,  # all its functions
    "snapshots/matching/doubts.py": None,
    "snapshots/matching/situation.py": None,
    "snapshots/matching/conditional.py": None,
    "snapshots/matching/preconditions.py": None,
    "snapshots/matching/kinship.py": None,
    "snapshots/matching/varying.py": None,
    "snapshots/states/acceptance.py": None,
    "snapshots/states/header_fields.py": None,
    "snapshots/states/operations.py": None,
    "snapshots/states/evidence.py": None,
    "snapshots/states/learning.py": None,
    "snapshots/states/parting.py": None,
    "snapshots/states/slots.py": None,
    "snapshots/states/suspicion.py": None,
    "snapshots/http/weighted.py": None,
    "snapshots/http/languages.py": None,
    "snapshots/http/spans.py": {"inside", "is_whole"},
    "snapshots/identity/keys.py": None,
    "snapshots/states/conditions.py": {"apply", "_begin_anew", "given", "asked", "fits", "added", "lasting"},
    "snapshots/matching/sessions.py": {"answered", "_meet", "missed"},
    "snapshots/matching/ladder.py": {"_by_rule", "_was_given", "_remember"},
    "snapshots/matching/unrecorded.py": None,
}
# Conditions without which the answers stay the same: only quicker, or a text nobody parses.
SAME = {
    "choosing.py nearest_time: if len(captures) < 2": "shortcut",
    "choosing.py own_session: if len(captures) < 2 or now.followed is None": "shortcut, and None has no session",
    "choosing.py same_cookies: if len({c.cookies for c in captures}) < 2": "shortcut",
    "choosing.py highest_layer: if len(captures) < 2": "shortcut",
    "choosing.py same_headers: if not any(told)": "shortcut",
    "varying.py counted: if peek is None or len(captures) < 2": "shortcut, and every matcher can look",
    "conditional.py whole_or_asked: if len(whole) == len(captures)": "shortcut",
    "conditional.py whole_or_asked: if whole and (not now.request.conditional())": "shortcut: a part that nobody asked for aside",
    "choosing.py same_order: if captures[0].exact == now.key.exact": "shortcut",
    "choosing.py same_order: if not wanted": "shortcut: captures of one key repeat the same names",
    "choosing.py same_acquaintance: if not any((read(c.state).keyed for c in captures))": "shortcut",
    "choosing.py in_state: if known is not None": "remembered",
    "acceptance.py accepts: if wanted is None and capture.mime == 'text/html'": "shortcut: a page is plainly for who wants anything",
    "situation.py cookies: if self._cookies is None": "remembered",
    "situation.py identified: if self._identified is None": "remembered",
    "exact without _method(parsed)": "the canonical key has it",
    "exact without _operation(parsed)": "the canonical key has it",
    "exact without _body_type(parsed)": "the canonical key has it",
    "keys.py parse: if not request.body and request.method in ('GET', 'HEAD') and (not overridden(request))": "shortcut",
    "doubts.py other_client: if not any((name.lower() == 'cookie' for name, _ in headers))": "shortcut",
    "doubts.py other_kind: if accepts(now.request, chosen)": "shortcut",
    "doubts.py other_type: if not now.request.body": "shortcut: who sends no body sends none of a type",
    "ladder.py _by_rule: if not found": "shortcut: of nothing nothing is chosen",
    "ladder.py _remember: if len(self._hot) >= HOT": "bounds memory",
    "evidence.py __init__: if len(self.requests) > MANY": "bounds memory",
    "evidence.py _issued: if not telling": "shortcut: of nothing nothing is found",
    "evidence.py _carried: if not any((item.sender.hashes for item in self.dynamic))": "shortcut, likewise",
    "evidence.py _label_unmodified: if not unmodified or len(unmodified) == len(members)": "shortcut, likewise",
    "evidence.py _touch: if safe and (not 300 <= capture.status < 400)": "shortcut: such a read changes nothing, as its answer tells",
    "unrecorded.py note_change: if safe and (not any(('>' in c.state or '!' in c.state for c in group.captures)))": "shortcut",
    "preconditions.py preconditions_of: if not found": "shortcut",
    "parting.py _split_by_fields: if len({id(m.sender) for m in members}) < 2": "shortcut",
    "learning.py states: if known is not None and slot not in self.traces[line]": "shortcut",
    "learning.py contradictions: if len({i.label for i in items}) < 2": "shortcut: no two of one label differ",
    "learning.py _refine: if not unexplained": "shortcut: nothing is left to find in the rounds to come",
    "sessions.py answered: if lookup.inert": "shortcut: what changes nothing finds nothing to change",
}


@dataclass(frozen=True, slots=True)
class Mutation:
    """A place in a file of the sources, and what stands there instead."""

    kind: str
    name: str
    file: str
    text: str


def mutations() -> list[Mutation]:
    """All of them, by kind and place."""
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


def _conditions(file: str, functions: set[str] | None) -> Iterator[Mutation]:
    """Each `if` never taken."""
    source = _source(file)
    for name, test in _tests_of(file, functions, source):
        yield Mutation("condition", name, file, _replaced(source, test, "False"))


def _tests_of(file: str, functions: set[str] | None, source: str) -> list[tuple[str, ast.expr]]:
    """What is asked by each `if` of the functions of a file, with its name."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef) or (
            functions is not None and function.name not in functions
        ):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.If):
                name = f"{Path(file).name} {function.name}: if {ast.unparse(node.test)}"
                if name not in SAME:
                    found.append((name, node.test))
    return found


class _Listener:
    """Told by the conditions themselves when one is true, and by pytest in which test, and how long it took."""

    def __init__(self) -> None:
        self.tests: dict[str, set[str]] = defaultdict(set)
        self.seconds: dict[str, float] = defaultdict(float)
        self.now = ""

    def heard(self, name: str, value: object) -> object:
        if value and self.now:
            self.tests[name].add(self.now)
        return value

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.now = nodeid

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] += report.duration


def _heard(base: str) -> dict[str, list[str]]:
    """The tests in which each condition is ever true, the quickest first."""
    listener = _Listener()
    builtins.__dict__["heard_by_mutations"] = listener.heard
    with tempfile.TemporaryDirectory(prefix="stillweb-mutation-") as folder:
        shutil.copytree(base, folder, dirs_exist_ok=True)
        for file, functions in DECIDING.items():
            text = Path(folder, file).read_text()
            found = _tests_of(file, functions, text)
            for name, test in sorted(found, key=lambda f: (f[1].lineno, f[1].col_offset), reverse=True):
                text = _replaced(text, test, f"heard_by_mutations({name!r}, ({ast.unparse(test)}))")
            Path(folder, file).write_text(text)
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
        first = heard.get(mutation.name, []) if mutation.kind == "condition" else FIRST
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
    for heavy in ("pytest", "hypothesis", "ada_url", "mitmproxy.http", "zstandard", "httpx"):
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
        heard = pool.apply(_heard, (copied,)) if any(m.kind == "condition" for m in chosen) else {}
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
