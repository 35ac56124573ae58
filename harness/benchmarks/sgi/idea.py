"""Scorer of SGI-Bench's idea generation: objective formulas by embeddings, and six votes of three judges."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any, Literal

from stillweb.harness.benchmarks.sgi.common import ask, need_judge, prompt, prompt_template, variable
from stillweb.harness.scoring import (
    Context,
    Embedder,
    Judge,
    JudgeFailed,
    MetricInBothModes,
    Score,
    score_of,
    score_without_answer,
)
from stillweb.harness.scoring.embeddings import cosine, load_embedder
from stillweb.harness.scoring.grading import imitations
from stillweb.harness.task import Task

SECTIONS = (
    "Idea",
    "ImplementationSteps",
    "ImplementationOrder",
    "EvaluationMetrics",
    "Data",
    "ExpectedOutcome",
)
DIMENSIONS = ("effectiveness", "novelty", "detailedness", "feasibility")


def clip(value: float) -> float:
    """Return the value limited to 0..10."""
    return max(0.0, min(10.0, value))


def effectiveness(embedder: Embedder, keywords: Iterable[Any], idea: str) -> float:
    """Return clip(cos(keywords, idea)·10)."""
    a, b = embedder.embed([", ".join(str(word) for word in keywords), idea])
    return clip(cosine(a, b) * 10)


def distance(embedder: Embedder, idea: str, others: Sequence[str]) -> float:
    """Return clip((1 - mean cos(idea, other))·10), 0 without others."""
    if not others:
        return 0.0
    mine, *vectors = embedder.embed([idea, *others])
    return clip((1 - sum(cosine(mine, vector) for vector in vectors) / len(vectors)) * 10)


def completeness(sections: Mapping[str, Any]) -> float:
    """Return the share of the six sections that have content, ·10. `Dataset` is read as `Data`."""
    return sum(bool(section(sections, name)) for name in SECTIONS) / len(SECTIONS) * 10


def completeness_official(sections: Mapping[str, Any]) -> float:
    """Return the official completeness: 10, reduced only by null sections, not by missing or empty ones."""
    names = ("Dataset" if name == "Data" else name for name in SECTIONS)
    return sum(sections.get(name, "") is not None for name in names) / len(SECTIONS) * 10


def section(sections: Mapping[str, Any], name: str) -> Any:
    """Return a section of an idea by name; the prompt of the set says Dataset where its text says Data."""
    return sections.get(name) or (sections.get("Dataset") if name == "Data" else None)


def repetition(embedder: Embedder, idea: str) -> float:
    """Return clip((mean cosine of pairs of sentences - 0.2)·10), for sentences over 10 characters.

    Return 0 below two sentences.
    """
    sentences = [part.strip() for part in re.split(r"[.!?。！？]", idea) if len(part.strip()) > 10]
    if len(sentences) < 2:
        return 0.0
    pairs = [cosine(a, b) for a, b in combinations(embedder.embed(sentences), 2)]
    return clip((sum(pairs) / len(pairs) - 0.2) * 10)


def length_penalty(characters: int) -> float:
    """Return (n-700)/100 over 700 characters, (300-n)/100 below 300, at most 10; 0 for an empty text."""
    if characters == 0:
        return 0.0
    return min(max(characters - 700, 300 - characters, 0) / 100, 10.0)


def detailedness(complete: float, repeated: float, long: float) -> float:
    """Return 0.2·completeness + 0.4·(10 - repetition) + 0.4·(10 - length)."""
    return 0.2 * complete + 0.4 * (10 - repeated) + 0.4 * (10 - long)


def edges(steps: Mapping[str, Any], order: Sequence[Any], *, faithful: bool) -> set[tuple[str, str]]:
    """Return the edges between steps: items `a-b`, or the sequence of the steps listed, else of all steps.

    Faithful: numbers are sorted as text and their order is ignored, also for the fallback to all steps.
    Fixed: the given order is used, and the steps of the fallback are sorted as numbers.
    """
    names = [str(name) for name in steps]
    items = [str(item) for item in order]
    found: set[tuple[str, str]] = set()
    if all(item.isdigit() for item in items):
        listed = [item for item in items if item in names]
        found = set(pairwise(sorted(listed) if faithful else listed))
    else:
        for item in items:
            ends = item.split("-") if faithful else [part.strip() for part in re.split(r"-+>?|→", item)]
            if len(ends) == 2 and all(end in names for end in ends):
                found.add((ends[0], ends[1]))
    return found or set(pairwise(sorted(names) if faithful else sorted(names, key=_natural)))


def _natural(name: str) -> tuple[int, str]:
    return (int(name), "") if name.isdecimal() else (10**9, name)


def jaccard(a: set[Any], b: set[Any]) -> float:
    """Return the Jaccard index of two sets, 1 if both are empty."""
    return len(a & b) / len(a | b) if a or b else 1.0


def feasibility(
    steps: Mapping[str, Any],
    order: Sequence[Any],
    gold_steps: Mapping[str, Any],
    gold_order: Sequence[Any],
    *,
    faithful: bool,
) -> float:
    """Return 10·(0.6·Jaccard of edges + 0.4·Jaccard of words), 0 if either side lacks steps or order.

    With one step there are no edges. Faithful: then only the words count, and no words count if a step is not
    text.
    """
    if not (steps and order and gold_steps and gold_order):
        return 0.0
    words, gold_words = _words(steps, faithful), _words(gold_steps, faithful)
    text = jaccard(words, gold_words) if words and gold_words else 0.0
    mine = edges(steps, order, faithful=faithful)
    gold = edges(gold_steps, gold_order, faithful=faithful)
    if faithful and not (mine and gold):
        return 10 * text
    return 10 * (0.6 * jaccard(mine, gold) + 0.4 * text)


def _words(steps: Mapping[str, Any], faithful: bool) -> set[str]:
    if faithful and not all(isinstance(text, str) for text in steps.values()):
        return set()
    joined = " ".join(str(text) for text in steps.values())
    return set(joined.lower().split()) if len(joined.strip()) >= 3 else set()


def verdict(dimension: str, votes: int) -> Literal["win", "tie", "lose"]:
    """Return the verdict of six votes: over 4 win novelty, over 3 the others; 2 or fewer lose."""
    if votes > (4 if dimension == "novelty" else 3):
        return "win"
    return "lose" if votes <= 2 else "tie"


ATTEMPTS = 5  # tries per judge until an answer can be read
_VOTED = (*DIMENSIONS, "overall")
_WIN = r"(Win\s*[AB])"
_NO_CHOICE = re.compile(r"\bWin\s*A\W+or\W+Win\s*B\b", re.I)  # the prompt's own words, repeated


def parse_idea(text: str) -> dict[str, Any] | None:
    """Return the idea's JSON object: from a fence, the whole text, or between the outer braces.

    None without one.
    """
    fenced = re.search(r"```(?:json)?\s*(.*?)```", text, re.S)
    for part in ([fenced[1]] if fenced else []) + [text]:
        try:
            value = _json_part(part)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return None


def _json_part(text: str) -> Any:
    """Return the JSON between the outer braces.

    Raise ValueError if there is none.

    Trailing commas, which models write, are allowed; NaN and Infinity become texts; nothing is evaluated.
    """
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        raise ValueError(f"no {{…}} in {' '.join(text.split())[:60]!r}")
    part = text[start : end + 1]
    try:
        try:
            return json.loads(part, strict=False, parse_constant=str)
        except ValueError:
            return json.loads(re.sub(r",(\s*[\]}])", r"\1", part), strict=False, parse_constant=str)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_votes(text: str) -> dict[str, str] | None:
    """Return dimension -> "A" or "B", or None unless all five votes can be read: the reading of `fixed`.

    A vote follows the name of its dimension, at the start of a line or with a colon: the reasons name the
    other dimensions, too. Two that differ are none: one may be a quotation of an idea.
    """
    votes: dict[str, str] = {}
    text = _NO_CHOICE.sub("", text)
    for name in _VOTED:
        win = r"\bWin\s*([AB])\b"
        begins = rf"^(?:[^\w\n]|[\d_])*{name}\b"
        found = (
            re.findall(rf"{begins}\W*{win}", text, re.I | re.M)
            # Within a sentence "win a prize" is no vote.
            or re.findall(rf"{begins}[^\n]*?\bWin\s*((?-i:[AB]))\b", text, re.I | re.M)
            or re.findall(rf"\b{name}\W*:\W*{win}", text, re.I)
        )
        if len({vote.upper() for vote in found}) != 1:
            return None
        votes[name] = found[0].upper()
    return votes


def official_votes(text: str) -> dict[str, str] | None:
    """Return dimension -> "A" or "B" as the official scorer reads them, or None unless it reads all five.

    It takes the first dimension's name with `[Win X]`, else with `Win X` after its colon, else the next win on
    the line of a mention. `WinA`, without a blank, is a vote for B there.
    """
    votes: dict[str, str] = {}
    for name in _VOTED:
        patterns = (rf"{name}\s*:\s*\[\s*{_WIN}\s*\]", rf"{name}\s*:\s*{_WIN}\s+", rf"{name}[^\n]*?{_WIN}")
        found = next(filter(None, (re.search(one, text, re.I) for one in patterns)), None)
        if found is None:
            return None
        votes[name] = "A" if found[1].upper() == "WIN A" else "B"
    return votes


def score_idea(task: Task, answer: str | None, context: Context) -> Score:
    """Score each dimension 0..100 as (objective·10 + subjective)/2, and `final` as their mean.

    Subjective is 100 for a win, else 0, by SGI_JUDGE_MODEL_1..3 at temperature 0.1, each asked in both
    positions. Faithful reads an answer that is not JSON as the official scorer does, by its sections; the
    judges see what the mode reads. A vote that is unreadable, or whose judge fails, five times is not cast,
    and named; fixed gives no value to a dimension that the missing votes could have won.
    """
    if answer is None or not answer.strip():
        return score_without_answer(task, "zero", "no answer")
    embedder = context.embedder or load_embedder(variable(context, "SGI_EMBEDDING_MODEL"))
    judge = need_judge(task, context)
    idea, official = parse_idea(answer), official_reading(answer)
    problems = imitations(answer, prompt_template(task))
    if idea is None:
        problems.append(
            "the answer holds no JSON object; faithful scores what the official patterns find in it"
        )
    sections = {"faithful": official if isinstance(official, dict) else {}, "fixed": idea or {}}
    record: Mapping[str, Any] = task.reference
    objective = {
        mode: _objective(embedder, read, record, mode == "faithful") for mode, read in sections.items()
    }
    ballots = _vote(task, judge, context, sections[context.mode], record, problems)
    counts = {mode: _count(ballots, mode) for mode in objective}
    votes = counts[context.mode]
    dimensions = {
        mode: {
            name: (values[name] * 10 + 100.0 * (verdict(name, counts[mode][name]) == "win")) / 2
            for name in DIMENSIONS
        }
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
        whys = dict.fromkeys(whys, "the official scorer fails where the idea is not text, and counts 0")
    elif sections["faithful"] != sections["fixed"]:
        whys = dict.fromkeys(whys, "the official scorer reads scraps of an answer that is not JSON alone")
    elif counts["faithful"] != counts["fixed"]:
        whys = {name: f"{why}; it reads other votes in a judge's words" for name, why in whys.items()}
    metrics = {}
    missing = {
        mode: 2 * len(_judges(context)) - sum(mode in one["votes"] for one in ballots) for mode in counts
    }
    undecided = {
        name
        for name in DIMENSIONS
        if verdict(name, counts["fixed"][name])
        != "win"
        == verdict(name, counts["fixed"][name] + missing["fixed"])
    }
    for name in ("final", *DIMENSIONS):
        a, b = (
            sum(values.values()) / 4 if name == "final" else values[name]
            for values in (dimensions["faithful"], dimensions["fixed"])
        )
        unknown = name in undecided or (name == "final" and bool(undecided))
        why = "the missing votes could have won it" if unknown else whys[name]
        metrics[name] = MetricInBothModes(a, None if unknown or idea is None else b, why)
    detail = {
        "embedder": embedder.name,
        "objective": objective[context.mode],
        "votes": votes,
        "verdicts": {name: verdict(name, votes[name]) for name in DIMENSIONS},
        "ballots": [
            {**one, "votes": one["votes"][context.mode]} for one in ballots if context.mode in one["votes"]
        ],
    }
    # in fixed mode there is no value without an idea, whatever the votes
    if missing[context.mode] and (idea is not None or context.mode == "faithful"):
        detail["fault"] = "judge"
    return score_of(metrics, context, detail, problems)


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
    edge = distance(embedder, text, recent)
    if faithful and not recent:
        edge = 10.0  # numpy's mean of an empty list is NaN, which the official scorer clips to the maximum
    novelty = 0.5 * distance(embedder, text, known) + 0.5 * edge
    return {
        "effectiveness": effectiveness(embedder, record["keywords" + kept], text),
        "novelty": novelty,
        "detailedness": detailedness(
            completeness_official(idea) if faithful else completeness(idea),
            repetition(embedder, text),
            length_penalty(len(text)),
        ),
        "feasibility": feasibility(
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
    context: Context,
    idea: Mapping[str, Any],
    record: Mapping[str, Any],
    problems: list[str],
) -> list[dict[str, Any]]:
    """Return the ballots that the context's mode can read; their `votes` by mode, as each reads them."""
    names = ("related_work", "challenge", "limitation", "motivation", "task_objective", "existing_solutions")
    background = _paragraphs((name, record[name]) for name in names)
    background = f"Context:\n{background}\n\n" if background else ""
    original = _paragraphs(
        (name, record[key])
        for name, key in (
            ("Idea", "core_idea"),
            ("ImplementationSteps", "implementation_steps"),
            ("ImplementationOrder", "implementation_order"),
            ("Dataset", "data"),
            ("EvaluationMetrics", "evaluation_metrics"),
            ("ExpectedOutcome", "expected_outcome"),
        )
    )
    sections = (
        "Idea",
        "ImplementationSteps",
        "ImplementationOrder",
        "Data",
        "EvaluationMetrics",
        "ExpectedOutcome",
    )
    generated = _paragraphs(("Dataset" if name == "Data" else name, section(idea, name)) for name in sections)
    ballots: list[dict[str, Any]] = []
    for model in _judges(context):
        for swapped in (False, True):
            a, b = (generated, original) if swapped else (original, generated)
            asked = prompt(task, "judge", {"background": background, "a": a, "b": b})
            last = ""
            for _ in range(ATTEMPTS):
                try:
                    reply = ask(judge, asked, model, 0.1)
                except JudgeFailed as error:
                    last = f", the last failed: {error}"
                    continue
                read = {"faithful": official_votes(reply), "fixed": parse_votes(reply)}
                if read[context.mode] is not None:
                    votes = {mode: one for mode, one in read.items() if one is not None}
                    ballots.append({"model": model, "swapped": swapped, "votes": votes})
                    break
                last = ""
            else:
                which = f"{model}{' (swapped)' if swapped else ''}"
                problems.append(f"no vote of {which}: {ATTEMPTS} tries without a readable answer{last}")
    return ballots


def _count(ballots: Iterable[Mapping[str, Any]], mode: str) -> dict[str, int]:
    """Return dimension -> votes for the generated idea, as a mode reads them."""
    votes = dict.fromkeys(_VOTED, 0)
    for ballot in ballots:
        for name, choice in ballot["votes"].get(mode, {}).items():
            votes[name] += choice == ("A" if ballot["swapped"] else "B")
    return votes


def _paragraphs(pairs: Iterable[tuple[str, Any]]) -> str:
    """Return the named texts as the authors write them into the prompt: objects as Python prints them."""
    return "\n\n".join(f"{name}: {value}" for name, value in pairs if value).strip()


_FENCE = re.compile(r"```(?:json)?\s*(.*?)```", re.S)
_HOW = re.S | re.I


def official_reading(answer: str) -> Any:
    """Return the JSON of an answer, of any type, or else an object of the sections found in it, as the official scorer does.

    If neither the first fence nor the whole answer is JSON (prose around it, a backslash of a formula, a truncated
    text), each section is searched separately: under its quoted name, up to the next quote of any kind; else as a
    numbered heading, up to the next one.
    """
    fenced = _FENCE.search(answer)
    for text in ([fenced[1].strip()] if fenced else []) + [answer]:
        try:
            return json.loads(text, parse_constant=str)
        except (ValueError, RecursionError):
            continue
    found: dict[str, Any] = {}
    for name, (named, heading, following, read) in _SECTIONS.items():
        for text in _places(answer, named, heading, following):
            if (value := read(text)) is not None:
                found[name] = value
                break
    return found


def _places(answer: str, named: str, heading: str, following: str) -> Iterator[str]:
    """Yield the text of a section by each of the two patterns."""
    if quoted := re.search(named, answer, _HOW):
        yield quoted[1].strip()
    begun = re.search(rf"{heading}([:\s-]+)", answer, _HOW)
    if begun is None:
        return
    # The last line break before the next heading; an earlier one gives the same text after strip().
    next_one = re.compile(rf"\n[^\S\n]*(?:{following})" if following else r"\Z", re.I)
    ended = next_one.search(answer, begun.end()) or next_one.search(answer, begun.start(1) + 1)
    if ended:
        yield answer[begun.end() : max(ended.start(), begun.end())].strip()


def _steps(text: str) -> dict[str, str] | None:
    pairs = re.findall(r"[\"'](\d+)[\"']\s*:\s*[\"'](.*?)[\"']", text)
    return {number: step.strip() for number, step in pairs} or None


def _order(text: str) -> list[str] | None:
    return re.findall(r"[\"']([^\"']+)[\"']", text) or None


def _metrics(text: str) -> dict[str, str] | None:
    pairs = re.findall(r"[\"']([^\"']+)[\"']\s*:\s*[\"'](.*?)[\"']", text)
    return {name.strip(): said.strip() for name, said in pairs} or None


_TEXT = r"[\"']?\s*:\s*[\"'](.*?)[\"']"
_ENTRIES = r"[\"']?\s*:\s*\{(.*?)\}"
_MORE = r"(?=\s*,\s*[\"'])"  # a further member; otherwise the pattern continues to a later end

# Section -> pattern by name, numbered heading, what follows that, and the parser of its text.
_SECTIONS: dict[str, tuple[str, str, str, Callable[[str], Any]]] = {
    "Idea": ("Idea" + _TEXT, r"1\.\s*Idea", r"2\.|Implementation", str),
    "ImplementationSteps": (
        "ImplementationSteps" + _ENTRIES,
        r"2\.\s*Implementation Steps",
        r"3\.|Implementation Order",
        _steps,
    ),
    "ImplementationOrder": (
        r"ImplementationOrder[\"']?\s*:\s*\[(.*?)\]",
        r"3\.\s*Implementation Order",
        r"4\.|Dataset",
        _order,
    ),
    "Dataset": ("Dataset" + _TEXT + _MORE, r"4\.\s*Dataset", r"5\.|Evaluation", str),
    "EvaluationMetrics": (
        "EvaluationMetrics" + _ENTRIES + _MORE,
        r"5\.\s*Evaluation Metrics",
        r"6\.|Expected",
        _metrics,
    ),
    "ExpectedOutcome": ("ExpectedOutcome" + _TEXT, r"6\.\s*Expected Outcome", "", str),
}
