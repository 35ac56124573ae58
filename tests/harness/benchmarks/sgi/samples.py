"""Records, answers and ballots of SGI-Bench's kinds, and the vectors of `../vectors`."""

import json
from pathlib import Path
from typing import Any

from stillweb.harness.benchmarks.sgi.idea import DIMENSIONS

VECTORS = Path(__file__).parents[2] / "vectors"


def vector(name: str) -> Any:
    return json.loads((VECTORS / name).read_text())


STEPS = '[{"judge": "correct"}, {"judge": "incorrect"}, {"judge": "correct"}]'

IDEA = {
    "Idea": "Alpha beta gamma. " * 20,
    "ImplementationSteps": {"1": "mix", "2": "heat"},
    "ImplementationOrder": ["1-2"],
    "EvaluationMetrics": {"m": "n"},
    "Dataset": "some",
}
RECORD = {
    "core_idea": "Original thought.",
    "related_work": {"a": "omega psi"},
    "existing_solutions": {"b": "chi phi"},
    "related_work_test": {"c": "rho"},
    "implementation_steps": {"1": "mix", "2": "heat"},
    "implementation_order": ["1-2"],
    "implementation_order_raw": ["1-2"],
    "keywords": ["alpha", "beta"],
    "keywords_raw": "['alpha', 'beta']",
    "evaluation_metrics": {},
    **dict.fromkeys(
        ("challenge", "limitation", "motivation", "task_objective", "data", "expected_outcome"), "x"
    ),
}
BALLOT = "\n".join(f"{name.title()}: [Win %s] because so" for name in (*DIMENSIONS, "overall"))
