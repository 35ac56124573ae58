"""Scorer of SGI-Bench's idea generation: objective formulas by embeddings, and six votes of three judges."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from stillweb.harness.scoring import Context, Embedder, Judge, Score, unscored
from stillweb.harness.scoring.embeddings import load_embedder
from stillweb.harness.scoring.sgi import idea_formulas as formulas
from stillweb.harness.scoring.sgi.common import Both, ask, json_part, need_judge, prompt, score_of, variable
from stillweb.harness.scoring.sgi.idea_formulas import DIMENSIONS
from stillweb.harness.scoring.sgi.idea_text import official_reading
from stillweb.harness.task import Task

ATTEMPTS = 5  # tries per judge until an answer can be read
_VOTED = (*DIMENSIONS, "overall")
_NO_CHOICE = re.compile(r"\bWin\s*A\W+or\W+Win\s*B\b", re.I)  # the prompt's own words, repeated


def parse_idea(text: str) -> dict[str, Any] | None:
    """Return the idea's JSON object: from a fence, the whole text, or between the outer braces.

    None without one.
    """
    fenced = re.search(r"```(?:json)?\s*(.*?)```", text, re.S)
    for part in ([fenced[1]] if fenced else []) + [text]:
        try:
            value = json_part(part, "{", "}")
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return None


def parse_votes(text: str) -> dict[str, str] | None:
    """Return dimension -> "A" or "B", or None unless all five votes can be read.

    A vote follows the name of its dimension, at the start of a line or with a colon: the reasons name the
    other dimensions, too.
    """
    votes: dict[str, str] = {}
    text = _NO_CHOICE.sub("", text)
    for name in _VOTED:
        win = r"\bWin\s*([AB])\b"
        begins = rf"^(?:[^\w\n]|[\d_])*{name}\b"
        found = (
            re.search(rf"{begins}\W*{win}", text, re.I | re.M)
            # Within a sentence "win a prize" is no vote.
            or re.search(rf"{begins}[^\n]*?\bWin\s*((?-i:[AB]))\b", text, re.I | re.M)
            or re.search(rf"\b{name}\W*:\W*{win}", text, re.I)
        )
        if found is None:
            return None
        votes[name] = found[1].upper()
    return votes


def score_idea(task: Task, answer: str | None, context: Context) -> Score:
    """Score each dimension 0..100 as (objective·10 + subjective)/2, and `final` as their mean.

    Subjective is 100 for a win, else 0, by SGI_JUDGE_MODEL_1..3 at temperature 0.1, each asked in both
    positions. Faithful reads an answer that is not JSON as the official scorer does, by its sections; the
    judges see what the mode reads. A vote that is unreadable after five tries is not cast, and named; fixed
    gives no value to a dimension that the missing votes could have won.
    """
    if answer is None or not answer.strip():
        return unscored(task, "zero", "no answer")
    embedder = context.embedder or load_embedder(variable(context, "SGI_EMBEDDING_MODEL"))
    judge = need_judge(task, context)
    idea, official = parse_idea(answer), official_reading(answer)
    problems = []
    if idea is None:
        problems.append(
            "the answer holds no JSON object; faithful scores what the official patterns find in it"
        )
    sections = {"faithful": official if isinstance(official, dict) else {}, "fixed": idea or {}}
    record: Mapping[str, Any] = task.reference
    objective = {
        mode: _objective(embedder, read, record, mode == "faithful") for mode, read in sections.items()
    }
    votes, ballots = _vote(task, judge, _judges(context), sections[context.mode], record, problems)
    subjective = {name: 100.0 if formulas.verdict(name, votes[name]) == "win" else 0.0 for name in DIMENSIONS}
    dimensions = {
        mode: {name: (values[name] * 10 + subjective[name]) / 2 for name in DIMENSIONS}
        for mode, values in objective.items()
    }
    whys = {
        "effectiveness": "official joins the characters of keywords given as text",
        "novelty": "official gives the most to an idea that no newer work is there to compare with",
        "detailedness": "official counts every section as present",
        "feasibility": "official sorts steps as text and ignores their order",
        "final": "the mean of the four",
    }
    failed = not isinstance(official, dict) or not isinstance(official.get("Idea", ""), str | list | dict)
    if failed:
        dimensions["faithful"] = dict.fromkeys(DIMENSIONS, 0.0)
        whys = dict.fromkeys(whys, "the official scorer fails where the idea is no text, and counts 0")
    elif sections["faithful"] != sections["fixed"]:
        whys = dict.fromkeys(whys, "the official scorer reads scraps of an answer that is not JSON alone")
    metrics = {}
    missing = 2 * len(_judges(context)) - len(ballots)
    undecided = {
        name
        for name in DIMENSIONS
        if formulas.verdict(name, votes[name]) != "win" == formulas.verdict(name, votes[name] + missing)
    }
    for name in ("final", *DIMENSIONS):
        a, b = (
            sum(values.values()) / 4 if name == "final" else values[name]
            for values in (dimensions["faithful"], dimensions["fixed"])
        )
        unknown = name in undecided or (name == "final" and bool(undecided))
        why = "the missing votes could have won it" if unknown else whys[name]
        metrics[name] = Both(a, None if unknown or idea is None else b, why)
    detail = {
        "embedder": embedder.name,
        "objective": objective[context.mode],
        "votes": votes,
        "verdicts": {name: formulas.verdict(name, votes[name]) for name in DIMENSIONS},
        "ballots": ballots,
    }
    if missing and (
        idea is not None or context.mode == "faithful"
    ):  # in fixed mode there is no value without an idea, whatever the votes
        detail["fault"] = "judge"
    return score_of(metrics, context, "scored", detail, problems)


def _judges(context: Context) -> list[str]:
    return [variable(context, f"SGI_JUDGE_MODEL_{n}") for n in (1, 2, 3)]


def _objective(
    embedder: Embedder, idea: Mapping[str, Any], record: Mapping[str, Any], faithful: bool
) -> dict[str, float]:
    text = idea.get("Idea")
    text = text if isinstance(text, str) else "" if text is None else json.dumps(text, ensure_ascii=False)
    known = [*_values(record["related_work"]), *_values(record["existing_solutions"])]
    fresh = record["related_work_test"]
    recent = [f"{k}: {v}" for k, v in fresh.items()] if isinstance(fresh, Mapping) else _values(fresh)
    kept = "_raw" if faithful else ""
    steps, gold_steps = idea.get("ImplementationSteps"), record["implementation_steps"]
    order = idea.get("ImplementationOrder")
    if faithful:  # iterating a text gives its characters; what raises in the official scorer counts 0 there
        items = list(order) if isinstance(order, list | str | Mapping) else []
        order = items if isinstance(steps, Mapping) and all(isinstance(item, str) for item in items) else []
    edge = formulas.distance(embedder, text, recent)
    if faithful and not recent:
        edge = 10.0  # numpy's mean of an empty list is NaN, which the official scorer clips to the maximum
    novelty = 0.5 * formulas.distance(embedder, text, known) + 0.5 * edge
    return {
        "effectiveness": formulas.effectiveness(embedder, record["keywords" + kept], text),
        "novelty": novelty,
        "detailedness": formulas.detailedness(
            formulas.completeness_official(idea) if faithful else formulas.completeness(idea),
            formulas.repetition(embedder, text),
            formulas.length_penalty(len(text)),
        ),
        "feasibility": formulas.feasibility(
            _mapping(steps),
            order if isinstance(order, list) else [],
            _mapping(gold_steps),
            list(record["implementation_order" + kept]),
            faithful=faithful,
        ),
    }


def _values(value: Any) -> list[str]:
    return [str(item) for item in (value.values() if isinstance(value, Mapping) else value)]


def _mapping(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return {str(k): v for k, v in value.items()}
    return {str(n): text for n, text in enumerate(value, 1)} if isinstance(value, list) else {}


def _vote(
    task: Task,
    judge: Judge,
    models: Sequence[str],
    idea: Mapping[str, Any],
    record: Mapping[str, Any],
    problems: list[str],
) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Return the votes for the generated idea by dimension, and the ballots."""
    names = ("challenge", "limitation", "motivation", "task_objective", "related_work", "existing_solutions")
    background = _paragraphs((name, record[name]) for name in names)
    original = _paragraphs(
        (name, record[key])
        for name, key in (
            ("Idea", "core_idea"),
            ("ImplementationSteps", "implementation_steps"),
            ("ImplementationOrder", "implementation_order"),
            ("Data", "data"),
            ("EvaluationMetrics", "evaluation_metrics"),
            ("ExpectedOutcome", "expected_outcome"),
        )
    )
    generated = _paragraphs((name, formulas.section(idea, name)) for name in formulas.SECTIONS)
    votes = dict.fromkeys(_VOTED, 0)
    ballots: list[dict[str, Any]] = []
    for model in models:
        for swapped in (False, True):
            a, b = (generated, original) if swapped else (original, generated)
            asked = prompt(task, "judge", {"background": background, "a": a, "b": b})
            ballot = next(
                filter(None, (parse_votes(ask(judge, asked, model, 0.1)) for _ in range(ATTEMPTS))), None
            )
            if ballot is None:
                problems.append(
                    f"no vote of {model}{' (swapped)' if swapped else ''}: {ATTEMPTS} unreadable answers"
                )
                continue
            for name in _VOTED:
                votes[name] += ballot[name] == ("A" if swapped else "B")
            ballots.append({"model": model, "swapped": swapped, "votes": ballot})
    return votes, ballots


def _paragraphs(pairs: Any) -> str:
    lines = [f"{n}: {v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)}" for n, v in pairs if v]
    return "\n\n".join(lines)
