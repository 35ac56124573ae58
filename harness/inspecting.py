"""Our tools, scorers and task sets for Inspect (`pip install stillweb[inspect]`).

    from stillweb.harness.inspecting import frozen_tools, scored_as_here, task_samples

    @task
    def penguins():
        return Task(dataset=task_samples("tasks.jsonl"), solver=[use_tools(frozen_tools("site.wacz")), generate()],
                    scorer=scored_as_here())

Each sample is a session of its own. The verdicts and captures of tool calls are in its store, under `stillweb`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stillweb.harness._parsing import session_of
from stillweb.harness.datasets import load_tasks
from stillweb.harness.scoring import MEASURED, METRICS, Context, score
from stillweb.harness.task import Task
from stillweb.harness.tools import ToolResult, Toolset, ToolSpec
from stillweb.harness.tools.toolset import ToolSession
from stillweb.snapshots import Snapshot
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.extras import require

require("inspect_ai")

from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import Content, ContentImage, ContentText
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer
from inspect_ai.solver import TaskState
from inspect_ai.solver._task_state import sample_state
from inspect_ai.tool import Tool, ToolDef, ToolError, ToolParams
from inspect_ai.util import store

TASK = "stillweb_task"  # the member of a sample's metadata that holds our task
OF_SET = "stillweb_set"  # and the one that holds what is known of the whole set
KEPT = "stillweb"  # the member of a sample's store: a list of {tool, verdict, captures, …}, one for each call
SESSION = "stillweb_session"


def frozen_tools(*snapshots: str | Path, contracts: Sequence[str] = ("fetch",), **options: Any) -> list[Tool]:
    """Return tools for `use_tools`, answered from snapshots (the last on top); `options` are those of `Toolset`.

    A tool's error is a ToolError, which the model sees. The snapshot stays open as long as the process. A session is
    named for its sample and epoch, whatever the order; if these come again in this process, it is a new session.
    """
    toolset = Toolset(Snapshot.open(*map(str, snapshots)), contracts, **options)
    sessions: dict[str, ToolSession] = {}

    def session() -> ToolSession:
        name: str | None = store().get(SESSION)
        if name is None:
            state = sample_state()
            wanted = session_of(f"{state.sample_id}/{state.epoch}" if state else "inspect")
            again = (f"{wanted} ({number})" for number in itertools.count(2))
            name = next(one for one in itertools.chain([wanted], again) if one not in sessions)
            sessions[name] = toolset.session(name)
            store().set(SESSION, name)
        return sessions[name]

    return [_tool(spec, session) for spec in toolset.specs]


def _tool(spec: ToolSpec, session: Any) -> Tool:
    async def execute(**arguments: Any) -> str | list[Content]:
        result: ToolResult = await session().call(spec.name, arguments)
        store().set(KEPT, [*store().get(KEPT, []), {"tool": spec.name, **result.meta}])
        if result.is_error:
            raise ToolError(result.text)
        return _content(result)

    schema = spec.input_schema
    # inspect requires a description for each parameter, which not every contract has
    properties = {
        name: {"description": name, **about} for name, about in schema.get("properties", {}).items()
    }
    parameters = ToolParams.model_validate({"properties": properties, "required": schema.get("required", [])})
    return ToolDef(execute, name=spec.name, description=spec.description, parameters=parameters).as_tool()


def _content(result: ToolResult) -> str | list[Content]:
    if all(part["type"] == "text" for part in result.content):
        return result.text
    parts: list[Content] = []
    for part in result.content:
        if part["type"] == "text":
            parts.append(ContentText(text=part["text"]))
        else:
            parts.append(ContentImage(image=f"data:{part['mimeType']};base64,{part['data']}"))
    return parts


def task_samples(source: str | Path, *, split: str | None = None) -> MemoryDataset:
    """Return a task set (see `datasets.load_tasks`) as samples.

    Each one's metadata holds the whole task, and the metrics of the set: inspect wants the same of each sample.
    """
    tasks = load_tasks(source, split=split)
    scorers = list(dict.fromkeys(task.scorer for task in tasks))
    metrics = list(dict.fromkeys(name for one in scorers for name in METRICS.get(one, ())))
    unknown = [one for one in scorers if one not in METRICS] if len(scorers) > 1 else []
    samples = [
        Sample(
            input=task.question,
            target=task.reference if isinstance(task.reference, str) else "",
            id=task.id,
            metadata={TASK: task.to_json(), OF_SET: {"metrics": metrics, "unknown": unknown}},
        )
        for task in tasks
    ]
    return MemoryDataset(samples, name=tasks.name)


@scorer(metrics={"*": [mean()]})  # type: ignore[untyped-decorator]  # inspect_ai may be missing
def scored_as_here(context: Context | None = None, metrics: Sequence[str] = ()) -> Scorer:
    """Score each sample with its task's scorer: all metrics of the set.

    A metric without a score counts 0, as in the mean of all of `stillweb score`; one of another task's scorer, or
    that was not measured, is NaN, which inspect leaves out. `context` holds a judge, rubrics etc. for scorers that
    need them. Status and details are in the metadata. `metrics` names those of your own scorers (`module:function`)
    in a set with several scorers. Raise UsageError where they are needed and missing.
    """

    async def judge(state: TaskState, target: Target) -> Score:
        task = Task.from_json(state.metadata[TASK])
        of_set = state.metadata.get(OF_SET, {"metrics": [], "unknown": []})
        if of_set["unknown"] and not metrics:
            raise UsageError(
                f"scored_as_here: the set has several scorers, of which {of_set['unknown'][0]!r} has metrics that only "
                "it knows; name them: scored_as_here(metrics=[…])"
            )
        answer = state.output.completion or None
        found = score(task, answer, context)
        value = dict.fromkeys([*of_set["metrics"], *metrics], math.nan)
        for name, number in found.metrics.items():
            value[name] = number if number is not None else math.nan if name in MEASURED else 0.0
        return Score(value=value, answer=answer, metadata={"status": found.status, "detail": found.detail})

    return judge
