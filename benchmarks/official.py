"""Our scorers beside the authors' own code, on random inputs: `python -m benchmarks.official --sgi DIR …`.

    --sgi DIR           the folder `evaluation` of a checkout of InternScience/SGI-Bench
    --browsecomp FILE   browsecomp_eval.py of openai/simple-evals
    --sgr FILE          smoke_test/score.py of Ninggggy/sgr-bench-extend

Their functions are taken out of their scripts, which load data sets and ask models when they are imported; what
they ask (models, an embedder, programs) is played by the same scripted answers for both sides. Nothing of theirs is
kept. Prints, for each scorer, how many inputs gave the same, and how many were other, with the first of these.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from stillweb.harness.benchmarks.sgi import dataset as sgi
from stillweb.harness.benchmarks.sgi import dry
from stillweb.harness.datasets.records import Record
from stillweb.harness.sandbox.running import SandboxResult
from stillweb.harness.scoring import Context, JudgeFailed, Score, score
from stillweb.harness.task import Task

Result = dict[str, float | None] | str  # metrics, or how the official code ended without any
PARSER = "gpt-4.1-mini"


def taken(path: Path, names: Iterable[str], **given: Any) -> dict[str, Any]:
    """Return functions, classes and constants of a script by name, without running the rest of it."""
    source = path.read_text(encoding="utf-8").replace("{'\\n'.join(", "{joined(")  # 3.12's f-strings, on 3.11
    wanted = set(names)
    body = [
        node
        for node in ast.parse(source).body
        if getattr(node, "name", None) in wanted
        or (isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) in wanted)
    ]
    found: dict[str, Any] = {**given, "joined": "\n".join, "__name__": path.stem}
    exec(compile(ast.Module(body, []), str(path), "exec"), found)
    if missing := wanted - found.keys():
        raise click.UsageError(f"{path}: has no {', '.join(sorted(missing))}")
    return found


Said = Mapping[str, Sequence[str | None]]  # the answers of each model, in order; None where it fails


class Replies:
    """Answers of models, the same for both sides, and the prompts that our side asked."""

    def __init__(self, said: Said) -> None:
        self.left = {model: iter(replies) for model, replies in said.items()}
        self.asked: list[str] = []

    def official(self, model: str = "gpt-4.1", **_: Any) -> Callable[..., str]:
        """Stand for the authors' class LLM."""

        def ask(query: Any = None, **_: Any) -> str:
            reply = next(self.left[model], None)
            if reply is None:
                raise RuntimeError("the endpoint is down")
            return reply

        return ask

    def complete(self, messages: Any, model: str, temperature: float) -> str:
        """Stand for our judge."""
        self.asked.append(messages[-1]["content"])
        reply = next(self.left[model], None)
        if reply is None:
            raise JudgeFailed("the endpoint is down")
        return reply


def judging(path: Path, said: Said) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return the authors' function that has a judge score an output."""
    from json_repair import repair_json

    given = {"judge": Replies(said).official("o4-mini"), "repair_json": repair_json}
    scorer: Callable[[dict[str, Any]], dict[str, Any]] = taken(path, ["eval_model_output"], **given)[
        "eval_model_output"
    ]
    return scorer


def final_answer(folder: Path) -> Callable[[str], str]:
    """Return the reading of a tagged answer by the authors: the answer itself where they find no tag."""
    extract = taken(folder / "utils.py", ["extract_final_answer"])["extract_final_answer"]

    def read(answer: str) -> str:
        found: str | None = extract(answer)
        return answer if found is None else found

    return read


# --- random inputs

WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "lake",
    "basin",
    "0.25",
    "12",
    "1e3",
    "T-cell",
    "µg",
    "naïve",
    "酵素",
    "mix",
    "heat",
    "cool",
]


def words(rng: random.Random, most: int = 6) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(0, most)))


def judged(rng: random.Random, entry: Callable[[], dict[str, Any]], opening: str) -> str | None:
    """A judge's reply in one of the shapes that models write."""
    if rng.random() < 0.05:
        return rng.choice([None, "", "I can't say.", "[]", "{}", "[1, 2]", "null"])
    entries = [entry() for _ in range(rng.randint(1, 4))]
    texts = [json.dumps(one, ensure_ascii=rng.random() < 0.5) for one in entries]
    shape = rng.choice(
        ["plain", "plain", "single", "comma", "lines", "keys", "comment", "smart", "latex", "quote", "tail"]
    )
    if shape == "single":
        texts = [repr(one) for one in entries]
    if shape == "keys":
        texts = [re.sub(r'"(\w+)":', r"\1:", text) for text in texts]
    if shape == "smart":
        texts = [text.replace('"', "“", 1).replace('"', "”", 1) for text in texts]
    if shape == "latex":
        texts = [text.replace('"reason": "', '"reason": "\\sin ') for text in texts]
    if shape == "quote":
        texts = [text.replace('"reason": "', '"reason": "the "best" of ') for text in texts]
    between = {"comma": " ", "lines": "\n", "comment": ", // so\n"}.get(shape, ", ")
    if opening == "{":
        body = texts[0]
    else:
        body = f"[{between.join(texts)}{',' if shape == 'tail' else ''}]"
    return rng.choice(["{}", "Sure:\n```json\n{}\n```", "{} That is all."]).replace("{}", body)


def tagged(rng: random.Random, inside: str) -> str:
    return rng.choice(
        [
            "<answer>{}</answer>",
            "Step 1. x\n<answer> {} </answer>",
            "{}",
            "<answer>no</answer> <answer>{}</answer>",
            "<answer>{}",
        ]
    ).replace("{}", inside)


# --- deep research


def deep_research(folder: Path) -> Callable[[random.Random], tuple[Any, Result, Result]]:
    read = final_answer(folder)

    def one(rng: random.Random) -> tuple[Any, Result, Result]:
        gold = rng.choice(["0.25", "T cell", "12", "µg"])
        inside = rng.choice([gold, gold, words(rng), gold.upper(), f"{gold}0"])
        answer = tagged(rng, inside) or "x"
        parsed = rng.choice([gold, words(rng), None])
        reply = judged(
            rng,
            lambda: {
                "solution_step": words(rng),
                "reason": words(rng),
                "judge": rng.choice(["correct", "correct", "incorrect", "partly"]),
            },
            "[",
        )
        said: Said = {PARSER: [parsed], "o4-mini": [reply]}
        task = Task("d", "q", {"answer": gold, "steps": ["one"]}, "sgi-deep-research")
        ours = _ours(task, answer, said)
        record = {
            "question": "q",
            "steps": ["one"],
            "answer": gold,
            "model_answer_with_thinking": answer,
            "model_answer": read(answer),
            "model_answer_after_llm_paser": read(answer) if parsed is None else parsed,
        }
        official: Result
        try:
            done = judging(folder / "task_1_deep_research/step_2_score.py", said)(record)
            official = {"em": float(done["exact_match"]), "step_accuracy": done["step_level_acc"]}
        except (
            UnboundLocalError
        ):  # an unreadable judge leaves the share undefined, and the run without a result
            official = "error"
            ours = "error" if isinstance(ours, dict) and ours["step_accuracy"] is None else ours
        return (answer, parsed, reply), official, ours

    return one


# --- idea generation


class Embedding:
    """A text is the counts of its words, hashed into 32 places; for both sides."""

    name = "words"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [self._vector(text) for text in texts]

    def encode(self, texts: Sequence[str], normalize_embeddings: bool = False) -> Any:
        import numpy

        return numpy.array([self._vector(text) for text in texts])

    def _vector(self, text: str) -> list[float]:
        vector = [0.0] * 32
        for word in str(text).lower().split():
            vector[hashlib.sha256(word.encode()).digest()[0] % 32] += 1.0
        length = math.sqrt(sum(x * x for x in vector))
        return [x / length for x in vector] if length else vector


def idea(folder: Path) -> Callable[[random.Random], tuple[Any, Result, Result]]:
    import networkx  # type: ignore[import-untyped]
    import numpy

    utils = taken(
        folder / "utils.py",
        [
            *(
                "format_idea_data",
                "get_context_from_data",
                "flip_evaluation_result",
                "parse_evaluation_result",
            ),
            *("get_evaluation_prompt_modified", "extract_win_lose", "extract_reason"),
        ],
        re=re,
    )
    reading = taken(
        folder / "task_2_idea_generation/step_1_get_answer.py",
        ["parse_generated_idea"],
        re=re,
        json=json,
        Dict=dict,
        Any=Any,
    )
    names = [
        *("MAX_RETRIES", "JUDGE_MODELS", "cosine_similarity", "edge_jaccard", "node_text_similarity"),
        *(
            "graph_similarity",
            "calculate_semantic_repetition",
            "get_vote_from_model",
            "compare_ideas_with_voting",
        ),
        *("ImprovedIdeaEvaluator", "evaluate_single_idea"),
    ]
    quiet = SimpleNamespace(**dict.fromkeys(("warning", "error", "info"), lambda *_: None))
    from datetime import datetime

    given = {
        **{name: value for name, value in utils.items() if not name.startswith("__")},
        "np": numpy,
        "nx": networkx,
        "logging": quiet,
        "re": re,
        "json": json,
        "ast": ast,
        "datetime": datetime,
        "Dict": dict,
        "Any": Any,
        "List": list,
        "embedding_model": Embedding(),
        "time": SimpleNamespace(sleep=lambda _: None),
    }
    models = ["gpt-5.1-2025-11-13", "gemini-3-pro-preview", "anthropic/claude-sonnet-4.5"]
    voted = ("Effectiveness", "Novelty", "Detailedness", "Feasibility", "Overall")

    def ballot(rng: random.Random) -> str | None:
        if rng.random() < 0.1:
            return rng.choice([None, "Both are fine.", "Novelty: Win A because x", "WinA everywhere"])
        form = rng.choice(
            [
                "{}: [Win {}] because so",
                "**{}**: Win {} because",
                "{}: Win{} because",
                "{} - I say Win {}",
                "{}: [Win A/Win B] Win {} ",
            ]
        )
        return "\n".join(form.replace("{}", name, 1).replace("{}", rng.choice("AB"), 1) for name in voted)

    def one(rng: random.Random) -> tuple[Any, Result, Result]:
        steps = {str(n): words(rng, 4) for n in rng.sample(range(1, 13), rng.randint(1, 5))}
        order = rng.choice(
            [list(steps), [f"{a}-{b}" for a in steps for b in steps if rng.random() < 0.3], "12", [], [1, 2]]
        )
        sentence = ". ".join(words(rng, 8) for _ in range(rng.randint(0, 6)))
        whole: dict[str, Any] = {
            "Idea": rng.choice([sentence, sentence, sentence * 9, "", 7]),
            "ImplementationSteps": rng.choice([steps, steps, list(steps.values()), {}]),
            "ImplementationOrder": order,
            "EvaluationMetrics": {"m": words(rng)},
            "Dataset": words(rng),
            "ExpectedOutcome": words(rng),
        }
        for name in list(whole):
            if rng.random() < 0.1:
                del whole[name]
        text = json.dumps(whole, ensure_ascii=False)
        answer = rng.choice(
            [
                text,
                f"```json\n{text}\n```",
                f"Here: {text}",
                text[: rng.randint(1, len(text))],
                f"1. Idea: {sentence}\n2. Implementation Steps: x",
                "[1]",
            ]
        )
        gold = {str(n): words(rng, 4) or "x" for n in range(1, rng.randint(2, 6))}
        data = {
            "idx": "i",
            "question": "q",
            "core_idea": words(rng),
            "related_work": repr({"a": words(rng), "b": words(rng)}),
            "existing_solutions": repr({"c": words(rng)}),
            "related_work_test": repr({} if rng.random() < 0.1 else {"d": words(rng), "e": words(rng)}),
            "implementation_steps": repr(gold),
            "implementation_order": rng.choice(
                [[f"{n}-{n + 1}" for n in range(1, len(gold))], list(gold), str(list(gold))]
            ),
            "evaluation_metrics": repr({"m": "n"}),
            "keywords": rng.choice([["alpha", "lake"], "['alpha', 'lake']"]),
            **dict.fromkeys(
                ("challenge", "limitation", "motivation", "task_objective", "data", "expected_outcome"), "x"
            ),
        }
        said = {model: [ballot(rng) for _ in range(10)] for model in models}
        task = sgi.build(Record(data, "x.jsonl", 1))
        ours = _ours(task, answer, said, embedder=Embedding())
        scorer = taken(
            folder / "task_2_idea_generation/step_2_score.py", names, **given, LLM=Replies(said).official
        )
        done = scorer["evaluate_single_idea"](
            {**data, "generated_data": reading["parse_generated_idea"](answer)}
        )
        wanted = ("final", "effectiveness", "novelty", "detailedness", "feasibility")
        if "error" in done:
            return (data, answer, said), dict.fromkeys(wanted, 0.0), ours
        official: Result = {name: float(done["final_score" if name == "final" else name]) for name in wanted}
        return (data, answer, said), official, ours

    return one


# --- dry experiment


def dry_experiment(folder: Path) -> Callable[[random.Random], tuple[Any, Result, Result]]:
    place = folder / "task_3_dry_experiment"
    read = final_answer(folder)
    utils = taken(
        folder / "utils.py",
        ["check_syntax", "get_function_lines", "replace_code", "replace_function"],
        ast=ast,
    )
    environment = {"SGI_CONDA_ENV": sys.prefix}

    class Expired(Exception):
        pass

    def code(rng: random.Random, name: str) -> str:
        body = rng.choice(["return a + b", "return a\n    # b", "x = 1\n    return x", "return (a"])
        head = rng.choice(["", "import math\n\n", "@cached\n", "# note\f\n"])
        tail = rng.choice(["", "\n", "\n\n\ndef other():\n    pass\n"])
        return f"{head}def {name}(a, b):\n    {body}{tail}"

    def one(rng: random.Random) -> tuple[Any, Result, Result]:
        functions = rng.sample(["f", "g", "h"], rng.randint(1, 2))
        gap = rng.choice(["\n\n", "\n"])
        main = (
            gap.join(f"def {name}(a, b):\n    pass" for name in functions)
            + f"{gap}print({functions[0]}(1, 2))\n"
        )
        inside = "\n\n".join(code(rng, rng.choice(functions)) for _ in range(rng.randint(1, 3)))
        answer = tagged(rng, rng.choice([inside, f"```python\n{inside}\n```"])) or "x"
        parsed = rng.choice([inside, words(rng), None])
        runs = []
        for _ in range(5):
            output = rng.choice(["7", "loss 0.5\r\ndone", "a\rb", ""])
            code_of = rng.choice([0, 0, 0, 1, None])  # None: timed out
            runs.append((code_of, output, rng.choice(["", "", "warning"]), round(rng.uniform(0.1, 9), 3)))
        outputs = [rng.choice(["7", "loss 0.5\ndone", "a\nb", "warning\n7", "x"]) for _ in runs]
        replies = [
            judged(
                rng, lambda: {"judgment": rng.choice(["correct", "incorrect", "Correct"]), "reason": "r"}, "{"
            )
            for _ in runs
        ]
        said: Said = {PARSER: [parsed] * 9, "o4-mini": replies}
        reference = {
            "main_code": main,
            "incomplete_main_code": main,
            "incomplete_functions": functions,
            "tests": [{"data": "", "output": output} for output in outputs],
        }
        programs: list[str] = []
        playing = iter(runs * 2)

        def sandboxed(python: Path, script: str, folder: Path, *_: Any) -> SandboxResult:
            if script == "data_en.py":
                return SandboxResult(0, "", "", 0.1, False)
            programs.append((folder / script).read_text("utf-8", "surrogateescape"))
            status, out, err, seconds = next(playing)
            if status is None:
                return SandboxResult(None, out, err, 300.0, True)
            return SandboxResult(status, out, err, seconds, False)

        dry._sandboxed = sandboxed  # type: ignore[assignment]
        dry.same_program = lambda *_: True  # type: ignore[assignment]  # fixed is run apart, and is not compared here
        task = Task("SGI_DryExperiment_0001", "q", reference, "sgi-dry-experiment")
        ours = _ours(task, answer, said, env=environment)
        if isinstance(ours, dict):
            ours["program"] = _number(programs[0])

        text = read(answer)
        program = main
        for name in functions:  # as their step 2 does
            for candidate in (text, text if parsed is None else parsed):
                try:
                    program = utils["replace_function"](program, candidate, name)
                    break
                except Exception:  # noqa: BLE001, S112  # theirs is bare
                    continue
        started = iter(runs)
        clock = [0.0]

        def run(*_: Any, **__: Any) -> Any:
            status, out, err, seconds = next(started)
            if status is None:
                raise Expired
            clock[0] += seconds
            universal = [part.replace("\r\n", "\n").replace("\r", "\n") for part in (out, err)]  # text=True
            return SimpleNamespace(returncode=status, stdout=universal[0], stderr=universal[1])

        path = SimpleNamespace(join=os.path.join)
        third = taken(
            place / "step_3_run_code.py",
            ["run_script"],
            os=SimpleNamespace(getcwd=lambda: ".", chdir=lambda _: None, path=path),
            subprocess=SimpleNamespace(run=run, TimeoutExpired=Expired),
            time=SimpleNamespace(time=lambda: clock[0]),
            model_name="m",
            env={},
        )
        record = third["run_script"](
            {"idx": "x", **{f"unit_test_{n}_output": output for n, output in enumerate(outputs)}}
        )
        official: Result
        try:
            done = judging(place / "step_4_score.py", said)(record)
            official = {f"passall{n}": float(done[f"PassAll@{n}"]) for n in (5, 3, 1)}
            official |= {"ser": done["SER"], "aet": done["AET"], "program": _number(program)}
        except (TypeError, KeyError):  # an unreadable judgment ends their scoring of the sample
            official = "error"
            ours = "error" if isinstance(ours, dict) and ours["program"] == _number(program) else ours
        return (main, answer, parsed, runs, outputs, replies), official, ours

    return one


def _number(text: str) -> float:
    return float(int(hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12], 16))


# --- wet experiment


def wet(folder: Path) -> Callable[[random.Random], tuple[Any, Result, Result]]:
    from itertools import combinations

    theirs = taken(
        folder / "task_3_wet_experiment/step_2_score.py",
        ["parse_experiment_steps", "identify_variable_types", "compare_exp_steps"],
        re=re,
        combinations=combinations,
    )
    read = final_answer(folder)

    def protocol(rng: random.Random, actions: list[str]) -> str:
        made = ["raw"]
        lines = []
        for action in actions:
            out = rng.choice(["a", "b", "c", "d", "warm_1"])
            pairs = [
                f"{key}={rng.choice([*made, chr(34) + words(rng, 2) + chr(34), '7.5'])}"
                for key in rng.sample(["x", "y", "z"], rng.randint(0, 3))
            ]
            made.append(out)
            inner = (",\n    ".join(pairs)) + rng.choice(["", ","])
            end = rng.choice(["\n)", "\n)", "\n)", "\n  ) ", ")"])
            lines.append(f"{out} = <{action}>(\n    {inner}{end}")
        return rng.choice(["\n\n", "\n"]).join(lines)

    def one(rng: random.Random) -> tuple[Any, Result, Result]:
        names = [rng.choice(["Mix", "Heat", "Cool", "Spin fast"]) for _ in range(rng.randint(0, 5))]
        gold = protocol(rng, names)
        other = list(names)
        rng.shuffle(other)
        text = rng.choice([gold, protocol(rng, names), protocol(rng, other), protocol(rng, other[1:])])
        answer = tagged(rng, text) or "x"
        ours = _ours(Task("w", "q", {"answer": gold}, "sgi-wet-experiment"), answer)
        official: Result
        try:
            found = theirs["compare_exp_steps"](
                theirs["parse_experiment_steps"](gold),
                theirs["parse_experiment_steps"](read(answer)),
            )
            sequence, accuracy = found["order_similarity"], found["parameter_acc"]
            official = {
                "final": (sequence + accuracy) / 2,
                "sequence_similarity": sequence,
                "parameter_accuracy": accuracy,
            }
        except ZeroDivisionError:
            official = "error"
        return (gold, answer), official, ours

    return one


# --- BrowseComp and SGR-Bench


def browsecomp(path: Path) -> Callable[[random.Random], tuple[Any, Result, Result]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (method,) = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "grade_sample")
    found = taken(path, ["GRADER_TEMPLATE"], re=re)
    exec(compile(ast.Module([method], []), str(path), "exec"), found)

    class Sampler:
        def __init__(self, said: str) -> None:
            self.said, self.prompt = said, ""

        def _pack_message(self, content: str, role: str) -> Any:
            self.prompt = content
            return {"role": role, "content": content}

        def __call__(self, messages: Any) -> Any:
            return SimpleNamespace(response_text=self.said)

    def one(rng: random.Random) -> tuple[Any, Result, Result]:
        lines = [
            f"extracted_final_answer: {words(rng)}",
            f"reasoning: {words(rng)} {rng.choice(['', 'correct: no', 'incorrect: yes'])}",
            rng.choice(
                [
                    "correct: yes",
                    "correct: no",
                    "Correct: yes",
                    "**correct**: yes",
                    "correct:yes",
                    "correct:  no",
                    "correct: yes|no",
                    "",
                ]
            ),
            f"confidence: {rng.randint(0, 100)}",
        ]
        if rng.random() < 0.2:
            rng.shuffle(lines)
        said = "\n".join(lines)
        question, gold, answer = words(rng), words(rng), words(rng) or "{x}"
        sampler = Sampler(said)
        verdict = found["grade_sample"](SimpleNamespace(grader_model=sampler), question, gold, answer)
        # compared as a whole with "yes", their match is never right: meant is its group
        official: Result = {"correct": float(verdict.removeprefix("correct: ") == "yes")}
        replies = Replies({"g": [said]})
        task = Task("b", "prompt", gold, "browsecomp", {"problem": question or "q"})
        ours = _ours(task, answer, replies, env={"GRADER_MODEL": "g"})
        if question and replies.asked != [sampler.prompt]:
            ours = "another prompt"
        return said, official, ours

    return one


def sgr(path: Path) -> Callable[[random.Random], tuple[Any, Result, Result]]:
    import csv
    import unicodedata

    theirs = taken(path, ["clean", "norm", "parse", "score"], re=re, csv=csv, unicodedata=unicodedata)
    columns = ["id", "name", "v"]

    def one(rng: random.Random) -> tuple[Any, Result, Result]:
        gold = [[f"k{n}", words(rng, 2) or "x", str(rng.randint(0, 99))] for n in range(rng.randint(1, 6))]
        rows = [list(row) for row in gold if rng.random() < 0.9]
        for row in rows:
            if rng.random() < 0.2:
                row[rng.randint(0, 2)] = rng.choice(
                    ["", "other", f"**{row[1]}**", f"`{row[2]}`", row[1].upper()]
                )
            if rng.random() < 0.05:
                row.append("more")
            elif rng.random() < 0.05:
                row.pop()
        if rows and rng.random() < 0.2:
            rows.append(list(rng.choice(rows)))
        if rng.random() < 0.3:
            rng.shuffle(rows)
        form = rng.choice(["pipe", "pipe", "markdown", "tsv", "csv"])
        if form == "markdown":
            lines = ["| id | name | v |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
        else:
            mark = {"pipe": "|", "tsv": "\t", "csv": ","}[form]
            head = [mark.join(columns)] if form == "csv" or rng.random() < 0.5 else []
            lines = [*head, *(mark.join(row) for row in rows)]
        answer = "\n".join(lines) if rows or rng.random() < 0.5 else "NONE"
        if rng.random() < 0.2:
            answer = f"```\n{answer}\n```"
        reference = "\n".join("|".join(row) for row in gold)
        rubric = {"columns": columns, "row_key": ["id"]}
        task = Task("s", "q", reference, "table", options={"rubric": rubric})
        got = score(task, answer, Context())
        names = {"item_f1": "Item-F1", "row_f1": "Row-F1", "order_accuracy": "P.O.A."}
        ours: Result = {name: got.metrics[name] for name in names}
        done = theirs["score"](theirs["parse"](reference, columns), theirs["parse"](answer, columns), columns)
        official: Result = {name: (done["metrics"] or {}).get(theirs_) for name, theirs_ in names.items()}
        return (reference, answer), official, ours

    return one


# --- comparison


def _ours(task: Task, answer: str, said: Said | Replies | None = None, **given: Any) -> Result:
    judge = said if isinstance(said, Replies) else Replies(said or {})
    found: Score = score(task, answer, Context(judge=judge, **given))
    if found.status == "unparsable":
        return "error"
    return dict(found.metrics)


def same(official: Result, ours: Result) -> bool:
    """Return True if both gave no result, or the same metrics to nine digits."""
    if isinstance(official, str) or isinstance(ours, str):
        return official == ours
    return official.keys() == ours.keys() and all(
        a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9))
        for a, b in ((official[name], ours[name]) for name in official)
    )


def compared(
    name: str, one: Callable[[random.Random], Any], count: int, seed: int, shown: int
) -> Iterator[str]:
    """Yield a line of figures, and the first inputs on which the two sides differ."""
    tally: Counter[str] = Counter()
    first: list[str] = []
    begun = time.perf_counter()
    for number in range(count):
        given, official, ours = one(random.Random(f"{seed} {name} {number}"))
        if same(official, ours):
            tally["without a result in both" if isinstance(official, str) else "the same"] += 1
            continue
        tally["other"] += 1
        if len(first) < shown:
            first.append(f"  {given!r}\n    official {official}\n    ours     {ours}")
    counts = ", ".join(f"{number} {what}" for what, number in sorted(tally.items()))
    yield f"{name}: {count} inputs: {counts} ({time.perf_counter() - begun:.0f} s)"
    yield from first


@click.command()
@click.option(
    "--sgi",
    "sgi_folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="SGI-Bench's folder `evaluation`.",
)
@click.option(
    "--browsecomp",
    "browsecomp_file",
    type=click.Path(exists=True, path_type=Path),
    help="browsecomp_eval.py.",
)
@click.option("--sgr", "sgr_file", type=click.Path(exists=True, path_type=Path), help="SGR-Bench's score.py.")
@click.option("--count", default=2000, show_default=True, help="Random inputs of each scorer.")
@click.option("--seed", default=0, show_default=True)
@click.option("--show", default=2, show_default=True, help="Inputs to print on which the two sides differ.")
def main(
    sgi_folder: Path | None,
    browsecomp_file: Path | None,
    sgr_file: Path | None,
    count: int,
    seed: int,
    show: int,
) -> None:
    """Compare our scorers, in faithful mode, with the authors' code on random inputs."""
    sides: dict[str, Callable[[random.Random], Any]] = {}
    if sgi_folder:
        sides |= {
            "deep research": deep_research(sgi_folder),
            "idea generation": idea(sgi_folder),
            "dry experiment": dry_experiment(sgi_folder),
            "wet experiment": wet(sgi_folder),
        }
    if browsecomp_file:
        sides["BrowseComp"] = browsecomp(browsecomp_file)
    if sgr_file:
        sides["SGR-Bench"] = sgr(sgr_file)
    if not sides:
        raise click.UsageError("give --sgi, --browsecomp or --sgr")
    for name, one in sides.items():
        for line in compared(name, one, count, seed, show):
            click.echo(line)


if __name__ == "__main__":
    main()
