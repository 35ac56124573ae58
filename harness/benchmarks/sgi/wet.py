"""Scorer of SGI-Bench's wet experiment: compares a protocol in pseudo-code with a reference. No judge.

Sequence similarity = 1 - inversions / (n(n-1)/2), parameter accuracy = 1 - errors / max(len), final = their
mean. Official: action names at the same positions are compared as text, so ABC against XYZ is 1; unequal
lengths give 0; a step without parameters is read together with the next one. Fixed: actions are compared by
their ranks in the reference; missing actions cost the pairs that they would be in.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from dataclasses import dataclass
from itertools import combinations

from stillweb.harness.benchmarks.sgi.common import extract_final_answer
from stillweb.harness.scoring import Context, MetricInBothModes, Score, score_of, score_without_answer
from stillweb.harness.task import Task

_HEAD = re.compile(r"(?<!\w)(\w+)\s*=\s*<([^>]+)>\((\s*)")
_END = re.compile(r"\n[^\S\n]*\)[^\S\n]*$", re.M)  # a closing bracket on a line of its own
_PARAMETER = re.compile(r"(\w+)\s*=\s*(.*)", re.S)


@dataclass(frozen=True, slots=True)
class Step:
    """Step `output = <action>(key=value, …)` of a protocol; values without their quotes."""

    output: str
    action: str
    inputs: dict[str, str]


def parse_steps(text: str, *, faithful: bool = False) -> list[Step]:
    """Return the steps of a protocol, in order. Other text is skipped, and so is a step that is never closed.

    Faithful: a step without parameters extends to the next one's bracket, as the official pattern reads it.
    """
    steps: list[Step] = []
    place = 0
    while head := _HEAD.search(text, place):
        # The official pattern first takes all white space after the head, including the line break before a
        # bracket.
        end = (_END.search(text, head.end()) if faithful else None) or _END.search(text, head.start(3))
        if end is None:
            # No head from here on is closed.
            break
        inputs: dict[str, str] = {}
        for line in text[head.start(3) : end.start()].split("\n"):
            found = _PARAMETER.fullmatch(line.strip())
            if found:
                value = found[2].strip()
                value = value[:-1].strip() if value.endswith(",") else value
                if value.startswith('"') and value.endswith('"'):
                    value = value[1:-1]
                inputs[found[1]] = value
        steps.append(Step(head[1], head[2].strip(), inputs))
        place = end.start()
    return steps


def sequence_official(gold: list[str], predicted: list[str]) -> float:
    """Return the official similarity, with inversions by names compared as text at the same positions."""
    if len(gold) != len(predicted):
        return 0.0
    n = len(gold)
    if n <= 1:
        return 1.0
    inversions = sum(
        (gold[i] < gold[j] and predicted[i] > predicted[j])
        or (gold[i] > gold[j] and predicted[i] < predicted[j])
        for i, j in combinations(range(n), 2)
    )
    return 1.0 - inversions / (n * (n - 1) / 2)


def sequence_fixed(gold: list[str], predicted: list[str]) -> float:
    """Return the share of action pairs in the reference's order, of all pairs of the longer protocol.

    The n-th action of a name is matched with the n-th of that name in the reference. Protocols of at most one
    step: 1 if equal.
    """
    n = max(len(gold), len(predicted))
    if n <= 1:
        return float(gold == predicted)
    places: defaultdict[str, deque[int]] = defaultdict(deque)
    for place, action in enumerate(gold):
        places[action].append(place)
    ranks = [places[action].popleft() for action in predicted if places[action]]
    right = sum(a < b for a, b in combinations(ranks, 2))
    return right / (n * (n - 1) / 2)


def parameter_accuracy(gold: list[Step], predicted: list[Step]) -> float:
    """Return 1 - (steps with an error / steps of the longer protocol).

    A step is in error if the action or the set of keys at its position differs, or if an input made by
    another step is matched with a literal or with the output of a step that isn't its counterpart. Literals
    may differ. Raises ZeroDivisionError when both are empty, as in the official scorer.
    """
    made_gold = {step.output for step in gold}
    made_predicted = {step.output for step in predicted}
    counterpart: dict[str, str] = {}
    errors = abs(len(gold) - len(predicted))
    for want, have in zip(gold, predicted, strict=False):
        if want.action != have.action or want.inputs.keys() != have.inputs.keys():
            errors += 1
            continue
        right = True
        for key, wanted in want.inputs.items():
            given = have.inputs[key]
            if (wanted in made_gold) != (given in made_predicted) or (
                wanted in made_gold and counterpart.get(given) != wanted
            ):
                right = False
        if right:
            counterpart[have.output] = want.output
        else:
            errors += 1
    return 1 - errors / max(len(gold), len(predicted))


def score_wet(task: Task, answer: str | None, context: Context) -> Score:
    """Score with the metrics final, sequence_similarity and parameter_accuracy, each 0..1.

    Without an answer tag the whole text is read, as in the official scorer.
    """
    if answer is None or not answer.strip():
        return score_without_answer(task, "zero", "no answer")
    inside = extract_final_answer(answer)
    text = answer if inside is None else inside
    gold, predicted = parse_steps(task.reference["answer"]), parse_steps(text)
    if not gold and not predicted:
        reason = "neither reference nor answer has a step; the official scorer divides by 0"
        return score_without_answer(task, "unparsable", reason, fault="reference")
    as_read = parse_steps(task.reference["answer"], faithful=True), parse_steps(text, faithful=True)
    shown = as_read if context.mode == "faithful" else (gold, predicted)
    detail = {"steps": len(shown[1]), "reference_steps": len(shown[0])}
    accuracy, exact = parameter_accuracy(*as_read), parameter_accuracy(gold, predicted)
    official, fixed = (
        sequence_official(*map(_actions, as_read)),
        sequence_fixed(_actions(gold), _actions(predicted)),
    )
    why = "the official scorer compares names as text at equal positions; fixed uses ranks in the reference"
    swallowed = "the official scorer reads a step without parameters and the next one as one"
    metrics = {
        "final": MetricInBothModes((official + accuracy) / 2, (fixed + exact) / 2, why),
        "sequence_similarity": MetricInBothModes(official, fixed, why),
        "parameter_accuracy": MetricInBothModes(accuracy, exact, swallowed),
    }
    return score_of(metrics, context, detail, [])


def _actions(steps: list[Step]) -> list[str]:
    return [step.action for step in steps]
