"""Ends of attempts that no tape can reproduce: those caused by the clock, an endpoint or the caller.

A repetition is told where an attempt ended the first time and ends there too, however fast it is. Everything
before and after is made anew and compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stillweb.harness.agents.attempt import ENDPOINT_FAILED, Stop, tool_key
from stillweb.harness.runs.run_files import RunFiles
from stillweb.harness.scoring.judging import scoring_failed

Key = tuple[str, int]  # task id, attempt
_LIMITS = {"seconds", "steps", "calls", "tokens", "money"}  # ends by a limit


@dataclass(frozen=True, slots=True)
class KnownEnds:
    """Ends known from the first run: unsolvable tasks, stopped attempts and failed scorings, with reasons.

    `unjudged` are the questions that a judge failed to answer, by digest, with the reasons in order.
    """

    unsolvable: Mapping[str, str] = field(default_factory=dict)
    stops: Mapping[Key, Stop] = field(default_factory=dict)
    unscored: Mapping[Key, str] = field(default_factory=dict)
    unjudged: Mapping[Key, Mapping[str, list[str]]] = field(default_factory=dict)

    @classmethod
    def of_run(cls, files: RunFiles) -> KnownEnds:
        """Read the ends from the traces of a run."""
        unsolvable: dict[str, str] = {}
        stops: dict[Key, Stop] = {}
        unscored: dict[Key, str] = {}
        unjudged: dict[Key, dict[str, list[str]]] = {}
        for _, _, trace in files.attempts():
            answer = trace and trace.last("answer")
            if not trace or not answer:
                continue
            key, end, error = (trace.task_id, trace.attempt), answer["end"], str(answer.get("error") or "")
            if end == "unsolvable":
                unsolvable[trace.task_id] = error
            elif end in _LIMITS or any(e.get("text") == ENDPOINT_FAILED for e in trace.of("evidence")):
                steps = sum(event["purpose"] == "agent" for event in trace.of("model"))
                called = trace.of("tool_call")
                tools = Counter(tool_key(event["tool"], event["arguments"]) for event in called)
                stops[key] = Stop(steps, len(called), end, error, tools)
            score = trace.last("score")
            if score and scoring_failed(score):
                unscored[key] = str(score["detail"]["problems"][0])
            for event in trace.of("evidence"):
                if event["kind"] == "judge":
                    reasons = unjudged.setdefault(key, {}).setdefault(event["digest"], [])
                    reasons.append(str(event["problem"]))
        return cls(unsolvable, stops, unscored, unjudged)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; inverse of `from_json`."""
        return {
            "unsolvable": dict(self.unsolvable),
            "stops": [[*key, s.steps, s.calls, s.end, s.error, s.tools] for key, s in self.stops.items()],
            "unscored": [[*key, reason] for key, reason in self.unscored.items()],
            "unjudged": [[*key, reasons] for key, reasons in self.unjudged.items()],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> KnownEnds:
        """Make the object from its JSON form."""
        return cls(
            value["unsolvable"],
            {(task, n): Stop(*rest) for task, n, *rest in value["stops"]},
            {(task, n): reason for task, n, reason in value["unscored"]},
            {(task, n): reasons for task, n, reasons in value["unjudged"]},
        )
