"""Scoring of an attempt: once at its end, and again from the trace alone; and the endpoints of its judges.

External inputs of a scorer (a judge's answer, an expression's value in the final page) are events of the
trace, so that scoring again asks nobody.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from stillweb.harness._parsing import strict_json
from stillweb.harness.benchmark import benchmarks, function_at
from stillweb.harness.models.tape import ModelError, TapeMiss
from stillweb.harness.scoring import (
    JUDGED,
    Context,
    Embedder,
    JudgeFailed,
    Score,
    score,
    score_without_answer,
)
from stillweb.harness.scoring.value_search import ToolOutputIndex
from stillweb.harness.task import Task
from stillweb.harness.trace import CUT_OFF, Event, Trace, TraceWriter, digest
from stillweb.snapshots.errors import MissingCapability, StillwebError, UsageError

if TYPE_CHECKING:
    from stillweb.harness.models.client import Judge

Message = Mapping[str, Any]
Page = Callable[[str], Any]

# End of an attempt without an answer -> reason for its score.
_REASONS = {
    "none": "the attempt ended without an answer",
    "steps": "the limit of model calls was reached before an answer",
    "calls": "the limit of tool calls was reached before an answer",
    "tokens": "the limit of tokens was reached before an answer",
    "money": "the limit of money was reached before an answer",
    "seconds": "the time limit was reached before an answer",
    "error": "the attempt failed",
    "unsolvable": "the snapshot lacks what the task needs",
}
_FAILED = "scoring failed: "
# Endpoints' words for an answer that they stopped before its end
_STOPPED = CUT_OFF | {
    *("content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii", "refusal"),
    *("error", "abort", "cancelled", "incomplete", "insufficient_system_resource", "other"),
}


class NotHeld(StillwebError):
    """Error for a question to a judge whose answer the trace does not hold."""


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Settings of scoring for a whole run."""

    rubrics: Mapping[str, Any] = field(default_factory=dict)  # by base task
    judge: Judge | None = None
    embedder: Embedder | None = None
    mode: Literal["faithful", "fixed"] = "faithful"
    fold_case: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    allow_unconfined: bool = False

    def rubric(self, task: Task) -> Any:
        """Return the compiled side-car of a task, or None."""
        return self.rubrics.get(task.id, self.rubrics.get(task.base or task.id))

    def settings(self) -> dict[str, Any]:
        """Return the settings for trace headers and the certificate, without judges' keys and addresses."""
        models = {name: value for name, value in self.env.items() if "MODEL" in name or "PARAMS" in name}
        embedder = self.embedder.name if self.embedder else None
        return {
            "mode": self.mode,
            "fold_case": self.fold_case,
            "models": dict(sorted(models.items())),
            "embedder": embedder,
        }

    def context(self, task: Task, *, judge: Any, page: Page | None) -> Context:
        rubric = self.rubric(task)
        rubrics = {} if rubric is None else {task.base or task.id: rubric, task.id: rubric}
        return Context(
            rubrics, judge, self.embedder, page, self.mode, self.fold_case, self.env, self.allow_unconfined
        )


class _TracingJudge:
    """Judge whose answers and failures are written to a trace.

    In a repetition, `failures` holds the reasons of the first run's, by question: an endpoint that refused is
    on no tape, so a miss there is the same failure.
    """

    def __init__(
        self,
        judge: Judge,
        trace: TraceWriter | _Noted,
        session: str,
        failures: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        self._judge, self._trace, self._session = judge, trace, session
        self._failures = {key: deque(reasons) for key, reasons in failures.items()}

    def complete(self, messages: Sequence[Message], model: str, temperature: float) -> str:
        key = _judge_key(messages, model, temperature)
        try:
            answer = self._judge.ask(messages, model, temperature, self._session)
        except (ModelError, TapeMiss) as error:
            before = self._failures.get(key)
            if isinstance(error, TapeMiss) and not before:
                raise
            reason = before.popleft() if before else str(error)
            self._trace.write("evidence", kind="judge", digest=key, problem=reason)
            raise JudgeFailed(reason) from error
        request = {"digest": key, "new": [dict(m) for m in messages]}
        self._trace.write("model", purpose="judge", api="chat", model=model, request=request, **answer)
        return _whole_text(answer["reply"])


class _Noted:
    """Writer that collects events in memory, for a judge that is asked about an existing trace."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def write(self, event: str, **members: Any) -> None:
        self.events.append({"event": event, **members})


class _RecordedJudge:
    """Judge that answers from the `model` events of a trace (`used`).

    A question that was asked twice gets the two answers in order, and fails again where the judge failed;
    with `asks_again`, a failure is not held.
    """

    def __init__(self, trace: Trace, *, asks_again: bool = False) -> None:
        self._path = trace.path
        self.used: list[Event] = []
        self._answers: dict[str, deque[Event]] = defaultdict(deque)
        for event in filter(_of_judge, trace.events):
            if event["event"] == "model":
                self._answers[event["request"]["digest"]].append(event)
            elif not asks_again:
                self._answers[event["digest"]].append(event)

    def complete(self, messages: Sequence[Message], model: str, temperature: float) -> str:
        answers = self._answers.get(_judge_key(messages, model, temperature))
        if not answers:
            raise NotHeld(
                f"{self._path}: the judge {model!r} is asked something that this trace does not hold; "
                "'stillweb score RUN --ask-judge -o OUT' asks it"
            )
        event = answers.popleft()
        self.used.append(event)
        if event["event"] == "evidence":
            raise JudgeFailed(event["problem"])
        return _whole_text(event["reply"])


def _whole_text(reply: Mapping[str, Any]) -> str:
    """Return the text of a judge's reply. Raise JudgeFailed if its endpoint stopped it, as its end may take a verdict back."""
    finish = str(reply.get("finish") or "")
    if finish.lower() in _STOPPED:
        raise JudgeFailed(f"its endpoint stopped the answer before its end ({finish})")
    return str(reply["text"] or "")


def _of_judge(event: Event) -> bool:
    """Return True for a judge's answer, and for the note that it failed."""
    return event.get("purpose") == "judge" or (event["event"] == "evidence" and event["kind"] == "judge")


def _judge_key(messages: Sequence[Message], model: str, temperature: float) -> str:
    return digest([model, temperature, [dict(message) for message in messages]])


def _recorded_page(trace: Trace) -> Page | None:
    found = {e.get("expression"): e for e in trace.of("evidence") if e["kind"] == "page"}
    if not found:
        return None

    def page(expression: str) -> Any:
        event = found.get(expression)
        if event is None:
            raise StillwebError(f"{trace.path}: the trace does not hold the value of {expression!r}")
        if event.get("problem"):
            raise StillwebError(event["problem"])
        return event.get("value")

    return page


def _tracing_page(page: Page, trace: TraceWriter) -> Page:
    def traced(expression: str) -> Any:
        try:
            value = page(expression)
        except StillwebError as error:
            trace.write("evidence", kind="page", expression=expression, value=None, problem=str(error))
            raise
        trace.write("evidence", kind="page", expression=expression, value=value)
        return value

    return traced


def conclude(
    trace: TraceWriter,
    task: Task,
    text: str | None,
    end: str,
    error: str | None,
    evaluator: Evaluator,
    session: str,
    page: Page | None = None,
    aside: Event | None = None,
    unjudged: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Score:
    """Score an attempt and write its last events: `answer` (with the unhashed `aside`) and `score`.

    `unjudged` holds the questions that no judge answered in the run that is repeated, with the reasons.
    """
    judge = _TracingJudge(evaluator.judge, trace, session, unjudged) if evaluator.judge else None
    context = evaluator.context(task, judge=judge, page=page and _tracing_page(page, trace))
    result = _score(task, text, end, error, context)
    rows, result = _split_cells(result, trace.events)
    answer: Event = {"text": text, "end": end}
    if error is not None:
        answer["error"] = error
    if rows is not None:
        answer["rows"] = rows
    if aside:
        answer["aside"] = aside
    trace.write("answer", **answer)
    trace.write("score", **result.to_json())
    return result


def rescore(trace: Trace, evaluator: Evaluator) -> list[Event]:
    """Return the trace's lines, header first, with `answer` and `score` computed again from the trace alone.

    A scoring that failed and fails again keeps its old events. Raises what any other scoring raises.
    """
    task = Task.from_json(trace.header["task"])
    answer = trace.last("answer")
    if answer is None:
        raise StillwebError(f"{trace.path}: the trace holds no answer event")
    try:
        result = _from_trace(trace, task, answer, evaluator, _RecordedJudge(trace))
    except StillwebError:
        if scoring_failed(trace.last("score")):
            return [trace.header, *trace.events]
        raise
    rows, result = _split_cells(result, trace.events)
    lines: list[Event] = [trace.header]
    for event in trace.events:
        if event["event"] == "answer":
            event = _with_rows(event, rows)
        elif event["event"] == "score":
            event = {"event": "score", "n": event["n"], **result.to_json()}
        lines.append(event)
    return lines


def score_otherwise(trace: Trace, evaluator: Evaluator, anew: Callable[[str], None]) -> list[Event]:
    """Score a trace whose header has another task or other settings than before; return its lines.

    The recorded answers of judges are used if they suffice. Otherwise the evaluator's judge, if any, is asked
    all questions again, and `anew` is called with the session before. A judge's failure is recorded in the
    score. Only the judges' answers for this score are kept.
    """
    task, answer = Task.from_json(trace.header["task"]), trace.last("answer")
    assert answer is not None
    recorded, noted = _RecordedJudge(trace, asks_again=evaluator.judge is not None), _Noted()
    try:
        result = _from_trace(trace, task, answer, evaluator, recorded)
        reply = recorded.used
    except NotHeld:
        if evaluator.judge is None:
            raise
        session = str(trace.header["session"])
        anew(session)
        try:
            judge = _TracingJudge(evaluator.judge, noted, session)
            result = _from_trace(trace, task, answer, evaluator, judge)
        except MissingCapability:
            raise
        except StillwebError as failure:
            result = failed_scoring(task, failure)
        reply = noted.events
    rows, result = _split_cells(result, trace.events)
    lines = [e for e in trace.events if e["event"] not in ("answer", "score", "review") and not _of_judge(e)]
    lines += [*reply, _with_rows(answer, rows), {"event": "score", **result.to_json()}, *trace.of("review")]
    return [trace.header, *({**event, "n": n} for n, event in enumerate(lines, start=1))]


def _with_rows(answer: Event, rows: Any) -> Event:
    """Return an answer event with the rows read from it this time, if any."""
    changed = {name: member for name, member in answer.items() if name != "rows"}
    return changed if rows is None else {**changed, "rows": rows}


def _from_trace(trace: Trace, task: Task, answer: Event, evaluator: Evaluator, judge: Any) -> Score:
    alone = (
        replace(evaluator, rubrics={task.id: trace.header["rubric"]})
        if trace.header.get("rubric")
        else evaluator
    )
    context = alone.context(task, judge=judge, page=_recorded_page(trace))
    return _score(task, answer["text"], answer["end"], answer.get("error"), context)


def failed_scoring(task: Task, failure: StillwebError | str) -> Score:
    """Return the score of an attempt that could not be scored, with the reason."""
    return score_without_answer(
        task, "unparsable", _FAILED + str(failure).removeprefix(_FAILED), fault="scorer"
    )


def scoring_failed(score: Event | None) -> bool:
    """Return True if a score event says that the attempt could not be scored."""
    problems = (score or {}).get("detail", {}).get("problems") or [""]
    return str(problems[0]).startswith(_FAILED)


def failure(trace: Trace) -> str:
    """Return why the agent or the scorer of an attempt failed, or "". A wrong answer is no failure."""
    answer, score = trace.last("answer"), trace.last("score")
    if answer is not None and answer["end"] == "error":
        return str(answer.get("error") or "the agent ended in an error")
    if not scoring_failed(score):
        return ""
    return "its scorer failed: " + str((score or {})["detail"]["problems"][0]).removeprefix(_FAILED)


def why_judge_failed(trace: Trace) -> str:
    """Return why a judge gave no answer for this attempt, "" if each gave one."""
    return next((str(e["problem"]) for e in trace.of("evidence") if e["kind"] == "judge"), "")


def unreadable_judgement(trace: Trace) -> str:
    """Return the unreadable part of a judge's answer for this attempt, "" if there is none.

    The judge may be asked again.
    """
    detail = (trace.last("score") or {}).get("detail", {})
    if detail.get("fault") != "judge":
        return ""
    problems = [str(problem) for problem in detail.get("problems") or ()]
    problems_of_judge = [one for one in problems if one.startswith(("the judge", "the grader", "no vote"))]
    return next(iter(problems_of_judge or problems), "it said nothing")


def copy_agent_events(trace: TraceWriter, before: Trace) -> None:
    """Write the agent's events of an earlier attempt into a new trace, so that a judge can be asked again."""
    for event in before.events:
        if event["event"] not in ("answer", "score", "review") and not _of_judge(event):
            trace.write(
                event["event"], **{name: value for name, value in event.items() if name not in ("event", "n")}
            )


def _score(task: Task, text: str | None, end: str, error: str | None, context: Context) -> Score:
    if text is None and end != "answered":
        status: Literal["zero", "timeout", "unsolvable"] = "zero"
        if end == "seconds":
            status = "timeout"
        elif end == "unsolvable":
            status = "unsolvable"
        return score_without_answer(task, status, f"{_REASONS[end]}: {error}" if error else _REASONS[end])
    return score(task, text, context)


def _split_cells(result: Score, events: Sequence[Event]) -> tuple[list[list[Event]] | None, Score]:
    """Move the cells out of a score's detail, and add where each value and reference was seen."""
    cells = result.detail.get("cells")
    if cells is None:
        return None, result
    seen = ToolOutputIndex(events)
    rows: list[list[Event]] = []
    for row in cells:
        rows.append([])
        for cell in row:
            cell = dict(cell)
            cell["seen"] = seen.anywhere(cell.get("value"))
            if not cell["right"] and cell.get("reference"):
                cell["reference_seen"] = seen.anywhere(cell["reference"])
            rows[-1].append(cell)
    rest = {name: member for name, member in result.detail.items() if name != "cells"}
    return rows, Score(result.metrics, result.status, rest)


def judge_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that name the judges' models and endpoints; no keys."""
    own = "|".join(re.escape(one.variables) for one in benchmarks().values() if one.variables)
    name_of = re.compile(
        r"GRADER_(MODEL|BASE_URL|PARAMS)|OPENAI_BASE_URL"
        rf"|({own})\w*(GRADER|PARSER|JUDGE)_(MODEL|BASE_URL|PARAMS)(_\d)?"
    )
    return {name: value for name, value in sorted(environment.items()) if name_of.fullmatch(name)}


def judge_endpoints(env: Mapping[str, str], tasks: Iterable[Task]) -> dict[str | None, dict[str, Any]]:
    """Return judge model (None: all others) -> {base_url, key_variable, params}; {} if no task is judged.

    The endpoint of all others is that of GRADER_BASE_URL, GRADER_API_KEY and GRADER_PARAMS, else OPENAI_BASE_URL and
    OPENAI_API_KEY. A benchmark may name judges at endpoints of their own. Raise UsageError for a model at two
    endpoints, and for parameters that are no JSON object.
    """
    judged = {task.scorer for task in tasks} & JUDGED
    if not judged:
        return {}
    params = judge_params(env, "GRADER_PARAMS")
    default: dict[str, Any] = {
        "base_url": env.get("GRADER_BASE_URL") or env.get("OPENAI_BASE_URL") or "https://api.openai.com/v1",
        "key_variable": "GRADER_API_KEY" if env.get("GRADER_BASE_URL") else "OPENAI_API_KEY",
        **({"params": params} if params else {}),
    }
    found: dict[str | None, dict[str, Any]] = {}
    for benchmark in benchmarks().values():
        if benchmark.judges and (own := judged & benchmark.scorers.keys()):
            found |= function_at(benchmark.judges)(own, env, default)
            judged -= own
    return {None: default, **found} if judged else found


def judge_params(env: Mapping[str, str], name: str) -> dict[str, Any]:
    """Return the further members of a judge's requests that a variable holds as JSON; null leaves one out."""
    try:
        value = strict_json(env.get(name) or "{}")
    except ValueError as error:
        raise UsageError(f"{name}: not JSON: {error}") from error
    if not isinstance(value, dict) or {"model", "messages", "stream"} & set(value):
        raise UsageError(f'{name}: must be an object of parameters, such as {{"temperature": 1}}')
    return value
