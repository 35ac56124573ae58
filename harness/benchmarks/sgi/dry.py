"""Scorer of SGI-Bench's dry experiment: a model completes a program, and five tests check its output.

Each test has a folder with its own data_en.py, run first (10 minutes), and the program, run after it (300 s).
The output is stderr, newline, stdout, stripped. It is right if it equals the reference or is judged equal (2
% on losses). PassAll@5 needs all tests, @3 at least three, @1 at least one; SER = zero exits / 5; AET = mean
seconds, a timeout counting as the limit. AET and `detail["measured"]` differ from run to run, so no hash
covers them (see stillweb.harness.scoring.MEASURED).
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from stillweb.harness.benchmarks.sgi.common import (
    DEFAULTS,
    ask,
    extract_final_answer,
    need_judge,
    parse_answer,
    prompt,
    prompt_template,
    read_reply,
    variable,
    verdicts,
)
from stillweb.harness.sandbox.running import Limits, SandboxResult, program_folder, run
from stillweb.harness.scoring import (
    Context,
    Judge,
    JudgeFailed,
    MetricInBothModes,
    Score,
    score_of,
    score_without_answer,
)
from stillweb.harness.scoring.grading import imitations
from stillweb.harness.task import Task
from stillweb.snapshots.errors import MissingCapability, UsageError

DATA_SECONDS = 600.0
_LIMITS = ("seconds", "memory", "disk", "processes")
_NO_JUDGMENT = "no judgment"
_PARSER = "the judge that rewrites the answer"
_OPEN = "the parser, which failed, could have found the functions"
_OTHER_CODE = "fixed also finds code in fenced blocks, and joins no line to a function's last"
_CODE_EXAMPLE = "\ndef add(a, b):\n    return a+b\n\ndef minus(a, b):\n    return a-b\n"


def score_dry(task: Task, answer: str | None, context: Context) -> Score:
    """Score with the metrics passall5, passall3, passall1 (0 or 1), ser (0..1) and aet (seconds).

    SGI_CONDA_ENV names a conda environment or the folder of a virtual one; fixtures come from
    SGI_DRY_EXPERIMENT_DATA_DIR. Raise MissingCapability if one is missing (`stillweb.harness.runs.preflight`
    checks this before a run).

    Faithful: functions that can't be replaced stay as in the incomplete program, and its tests are run.
    Fixed: fenced blocks are tried, too, and a test whose data failed is named. A test without a judge's
    judgment has failed; fixed gives no value to a metric that it could have changed.
    """
    if answer is None or not answer.strip():
        return score_without_answer(task, "zero", "no answer")
    python = find_environment(variable(context, "SGI_CONDA_ENV"))
    limits = execution_limits(
        execution_seconds(variable(context, "SGI_EXECUTION_TIMEOUT")), partial(variable, context)
    )
    problems: list[str] = []
    programs = {
        mode: _program(task, answer, context, mode == "faithful", problems) for mode in ("faithful", "fixed")
    }
    results = {"faithful": _run_all(task, programs["faithful"], python, limits, context, problems)}
    same = same_program(programs["faithful"], programs["fixed"])
    if same:
        results["fixed"] = results["faithful"]
    else:
        results["fixed"] = _run_all(task, programs["fixed"], python, limits, context, problems)
    values = {mode: _metrics(tests, mode == "faithful") for mode, tests in results.items()}
    why = "the missing judgments could have passed it" if same else _OTHER_CODE
    metrics = {
        name: MetricInBothModes(value, values["fixed"][name], why)
        for name, value in values["faithful"].items()
    }
    chosen = results[context.mode]
    detail = {
        "tests": [
            {name: value for name, value in test.items() if name not in ("seconds", "held", "missing")}
            for test in chosen
        ],
        "functions": task.reference["incomplete_functions"],
        "limits": {name: getattr(limits, name) for name in _LIMITS if getattr(limits, name) is not None},
        "measured": {
            "seconds": [test["seconds"] for test in chosen],
            "confinement": {
                "held": sorted(set.intersection(*(set(test["held"]) for test in chosen))),
                "missing": sorted({reason for test in chosen for reason in test["missing"]}),
            },
        },
    }
    unparsed = any(one.startswith(_PARSER) for one in problems)
    if unparsed:
        metrics = {name: replace(both, fixed=None, why=_OPEN) for name, both in metrics.items()}
    if unparsed or any(test["reason"] == _NO_JUDGMENT for test in chosen):
        detail["fault"] = "judge"
    return score_of(metrics, context, detail, list(dict.fromkeys(problems)))


def pass_all(passed: int, tests: int = 5) -> dict[str, float]:
    """Return PassAll@5, @3, @1 for a number of passed tests."""
    return {
        "passall5": float(passed == tests),
        "passall3": float(passed >= 3),
        "passall1": float(passed >= 1),
    }


def _metrics(tests: list[dict[str, Any]], faithful: bool) -> dict[str, float | None]:
    times = [test["seconds"] for test in tests if test["seconds"] > 0]
    passed = sum(test["passed"] for test in tests)
    silent = 0 if faithful else sum(test["reason"] == _NO_JUDGMENT for test in tests)
    least, most = pass_all(passed, len(tests)), pass_all(passed + silent, len(tests))
    return {
        **{name: value if value == most[name] else None for name, value in least.items()},
        "ser": sum(test["returncode"] == 0 for test in tests) / len(tests),
        "aet": sum(times) / len(times) if times else None,
    }


def _program(task: Task, answer: str, context: Context, faithful: bool, problems: list[str]) -> str:
    """Return the incomplete program with each function that a reading of the answer contains."""
    inside = extract_final_answer(answer)
    text = answer if inside is None else inside
    readings = [text] if faithful else [text, *code_blocks(text), *code_blocks(answer)]
    program: str = task.reference["incomplete_main_code"]
    for name in task.reference["incomplete_functions"]:
        for code in readings:
            try:
                program = replace_function(program, code, name, faithful=faithful)
                break
            except (SyntaxError, KeyError):
                continue
        else:
            program = _by_parser(task, program, name, text, context, faithful, readings, problems)
    return program


def _by_parser(
    task: Task,
    program: str,
    name: str,
    text: str,
    context: Context,
    faithful: bool,
    readings: list[str],
    problems: list[str],
) -> str:
    if context.judge is not None and len(readings) < 50:
        model = variable(context, "SGI_PARSER_MODEL")
        try:
            parsed = parse_answer(task, context.judge, model, text, _CODE_EXAMPLE)
        except JudgeFailed as error:
            problems.append(f"{_PARSER} ({model}) failed: {error}")
            parsed = text
        candidates = [parsed] if faithful else [parsed, *code_blocks(parsed)]
        readings += candidates  # asked once; the next function is looked for here first
        for code in candidates:
            try:
                return replace_function(program, code, name, faithful=faithful)
            except (SyntaxError, KeyError):
                continue
    problems.append(f"the answer has no function {name!r} that can be put in; the incomplete one is run")
    return program


def _run_all(
    task: Task, program: str, python: Path, limits: Limits, context: Context, problems: list[str]
) -> list[dict[str, Any]]:
    tests = []
    for number, test in enumerate(task.reference["tests"]):
        with program_folder("dry") as folder:
            place = folder / f"unit_test_{number}"
            place.mkdir()
            tests.append(_run_one(task, test, program, place, python, limits, context, problems))
    return tests


def _run_one(
    task: Task,
    test: dict[str, str],
    program: str,
    place: Path,
    python: Path,
    limits: Limits,
    context: Context,
    problems: list[str],
) -> dict[str, Any]:
    (place / "data").mkdir()
    _put_fixtures(task.id, place / "data", context)
    (place / "data_en.py").write_text(test["data"], "utf-8", "surrogateescape")
    (place / "main_en.py").write_text(program, "utf-8", "surrogateescape")
    variables = environment_of(python)
    prepared = _sandboxed(
        python, "data_en.py", place, replace(limits, seconds=DATA_SECONDS), variables, context
    )
    if prepared.not_kept:
        problems.append(f"data_en.py of {place.name}: its files were not kept: {prepared.not_kept}")
    if prepared.returncode != 0:
        last = (prepared.stderr.strip().splitlines() or ["no output"])[-1]
        problems.append(f"data_en.py of {place.name} failed: {'timeout' if prepared.timed_out else last}")
    result = _sandboxed(python, "main_en.py", place, limits, variables, context)
    if result.exceeded:
        problems.append(
            f"main_en.py of {place.name} was ended: it used more {result.exceeded} than the limit"
        )
    # Tracebacks name the folder, which differs where namespaces are missing.
    output = f"{result.stderr}\n{result.stdout}".replace("\r\n", "\n").replace("\r", "\n")  # as in text mode
    output = output.strip().replace(result.folder or str(place), ".")
    told: dict[str, Any] = {
        "returncode": result.returncode,
        "seconds": result.seconds,
        "timed_out": result.timed_out,
        "output": output[:2000],
        "exact": output == test["output"],
        "held": result.held,
        "missing": result.missing,
    }
    if result.timed_out:  # whatever was printed: the official runner replaces the output by its own message
        return told | {"passed": False, "reason": "timed out"}
    if told["exact"]:
        return told | {"passed": True, "reason": "equal"}
    if result.returncode != 0:
        return told | {"passed": False, "reason": "the program failed"}
    passed, reason = _judged_same(task, need_judge(task, context), test["output"], output, context, problems)
    return told | {"passed": passed, "reason": reason}


def _sandboxed(
    python: Path, script: str, place: Path, limits: Limits, variables: dict[str, str], context: Context
) -> SandboxResult:
    return run(
        [str(python), script],
        cwd=place,
        limits=limits,
        environment=variables,
        allow_unconfined=context.allow_unconfined,
    )


def _judged_same(
    task: Task, judge: Judge, wanted: str, output: str, context: Context, problems: list[str]
) -> tuple[bool, str]:
    model = variable(context, "SGI_DE_GRADER_MODEL")
    problems += imitations(output, prompt_template(task))
    try:
        asked = prompt(task, "judge", {"reference": wanted, "output": output})
        reply = ask(judge, asked, model, 0.0)
        judgment, reason = read_reply(reply, "{", _judgment)
    except JudgeFailed as error:
        problems.append(f"the judge {model} failed on what a test printed: {error}")
        return False, _NO_JUDGMENT
    except ValueError:
        problems.append(f"the judge {model} gave no judgment of what a test printed")
        return False, _NO_JUDGMENT
    if verdicts(reply, "judgment") > 1:
        problems.append(f"the judge {model} gave two judgments of what a test printed")
        return False, _NO_JUDGMENT
    return judgment == "correct", reason


def _judgment(value: Any) -> tuple[str, str]:
    if not isinstance(value, dict) or value.get("judgment") not in ("correct", "incorrect"):
        raise ValueError("no judgment")
    return value["judgment"], str(value.get("reason", ""))


def _put_fixtures(task_id: str, data: Path, context: Context) -> None:
    number = re.search(r"(\d{4})$", task_id)
    if number is None or number[1] not in FIXTURES:
        return
    source = (
        Path(variable(context, "SGI_DRY_EXPERIMENT_DATA_DIR") or "/nonexistent")
        / f"SGI_DryExperiment_{number[1]}"
    )
    if not source.is_dir():
        raise MissingCapability(
            f"task {task_id} needs its fixtures in {source} (SGI_DRY_EXPERIMENT_DATA_DIR)"
        )
    shutil.copytree(source, data / FIXTURES[number[1]], dirs_exist_ok=True)


def functions(code: str) -> dict[str, tuple[int, int]]:
    """Return top-level function -> (first, last line), from 1, without decorators, as in the official scorer.

    Raise SyntaxError if the text is not code. Of two functions with one name the last counts.
    """
    try:
        tree = ast.parse(code)
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes, or nested too deeply
        raise SyntaxError(str(error)) from error
    return {
        node.name: (node.lineno, node.end_lineno or node.lineno)
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def replace_function(program: str, code: str, name: str, *, faithful: bool = False) -> str:
    """Return `program` with its function `name` as in `code`. Raise SyntaxError or KeyError if that fails.

    Faithful: lines are split (also at form feeds) and inserted as in the official scorer: if `code` ends
    without a line break, the program's next line is appended to the function's last.
    """
    first, last = functions(program)[name]
    start, end = functions(code)[name]
    lines, given = (text.splitlines(keepends=True) if faithful else _lines(text) for text in (program, code))
    body = given[start - 1 : end]
    if not faithful and body and not body[-1].endswith("\n"):
        body[-1] += "\n"  # otherwise the next line of the program would be appended
    lines[first - 1 : last] = body
    result = "".join(lines)
    functions(result)
    return result


def same_program(one: str, other: str) -> bool:
    """Return True if two programs differ at most in blank lines and comments."""
    if one == other:
        return True
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _lines(code: str) -> list[str]:
    """Return the lines as the syntax tree counts them: no form feed or U+2028 ends a line."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", code)


def code_blocks(text: str) -> list[str]:
    """Return the contents of fenced blocks, longest first."""
    blocks = re.findall(r"```[^\n`]*\n(.*?)```", text, re.S)
    return sorted(blocks, key=len, reverse=True)


# Number of the sample -> folder below data/ for its fixture.
FIXTURES = {"0200": ".", "0206": "mnist_raw", "0236": "em_3d_user_study"}


def find_environment(name: str) -> Path:
    """Return the Python of the conda environment `name`, or of the environment in that folder."""
    folder = Path(name).expanduser()
    if "/" in name or folder.is_dir():
        return _python(folder, name)
    conda = shutil.which("conda") or shutil.which("mamba") or shutil.which("micromamba")
    if conda is None:
        raise MissingCapability(
            f"SGI_CONDA_ENV {name!r}: there is no conda; name the folder of a virtual environment instead"
        )
    words = [conda, "env", "list", "--json"]
    try:
        listed = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        folders = json.loads(listed.stdout)["envs"]
    except (ValueError, KeyError, TypeError, OSError, subprocess.TimeoutExpired) as error:
        raise MissingCapability(f"SGI_CONDA_ENV: `{conda} env list --json` says nothing readable") from error
    for entry in folders:
        if Path(entry).name == name:
            return _python(Path(entry), name)
    raise MissingCapability(f"no conda environment {name!r}: conda create -n {name} python=3.10")


def _python(folder: Path, name: str) -> Path:
    python = folder / "bin" / "python"
    if not python.exists():
        raise MissingCapability(f"SGI_CONDA_ENV {name!r}: no {python}")
    return python.absolute()  # not resolve(): the path of the link is what selects the environment


def environment_of(python: Path) -> dict[str, str]:
    """Return the variables that activating the environment would set, with its programs first in PATH."""
    prefix = python.parent.parent
    return {"PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin", "VIRTUAL_ENV": str(prefix)}


def execution_seconds(text: str) -> float:
    """Return SGI_EXECUTION_TIMEOUT in seconds. Raise UsageError if it is not a number of seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise UsageError(f"SGI_EXECUTION_TIMEOUT {text!r} is not a number of seconds")
    return seconds


def execution_limits(seconds: float, env: Callable[[str], str]) -> Limits:
    """Return the limits of a test: the wall clock, and those that SGI_…_LIMIT variables name.

    Raise UsageError for a limit that is not a whole number from 1 on.
    """

    def limit(name: str) -> int | None:
        text = env(name)
        if text and not (text.isascii() and text.isdecimal() and int(text)):
            raise UsageError(f"{name} {text!r} is not a whole number from 1 on")
        return int(text) if text else None

    return Limits(
        seconds=seconds,
        memory=limit("SGI_MEMORY_LIMIT"),
        file_size=None,
        open_files=None,
        disk=limit("SGI_DISK_LIMIT"),
        processes=limit("SGI_PROCESS_LIMIT"),
    )


def check_fixtures(tasks: Iterable[Task], env: Mapping[str, str]) -> None:
    """Raise MissingCapability for the first dry experiment without its data files.

    They are expected in SGI_DRY_EXPERIMENT_DATA_DIR.
    """
    folder = env.get("SGI_DRY_EXPERIMENT_DATA_DIR", "")
    for number in sorted({task.id[-4:] for task in tasks} & set(FIXTURES)):
        place = Path(folder or "/nonexistent") / f"SGI_DryExperiment_{number}"
        if not place.is_dir() or not any(place.iterdir()):
            raise MissingCapability(
                f"task {number} needs fixtures in {place if folder else 'SGI_DRY_EXPERIMENT_DATA_DIR (not set)'}"
            )


def check(tasks: Sequence[Task], env: Mapping[str, str], allow_unconfined: bool) -> None:
    """Start the Python of dry experiments once in the sandbox, as the tests of every answer do.

    Raise MissingCapability for what the machine lacks, UsageError for a wrong limit.
    """
    tasks = [task for task in tasks if task.scorer == "sgi-dry-experiment"]
    if not tasks:
        return
    name = env.get("SGI_CONDA_ENV") or DEFAULTS["SGI_CONDA_ENV"]
    python = find_environment(name)
    execution_seconds(env.get("SGI_EXECUTION_TIMEOUT") or DEFAULTS["SGI_EXECUTION_TIMEOUT"])
    check_fixtures(tasks, env)
    with program_folder("ready") as folder:
        result = run(
            [str(python), "-c", "pass"],
            cwd=folder,
            limits=Limits(seconds=60),
            environment=environment_of(python),
            allow_unconfined=allow_unconfined,
        )
    if result.returncode != 0:
        last = (result.stderr.strip().splitlines() or [f"code {result.returncode}"])[-1]
        raise MissingCapability(f"SGI_CONDA_ENV {name!r}: its Python does not run in the sandbox: {last}")
