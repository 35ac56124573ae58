"""Gymnasium adapter of `stillweb.env`: actions and observations are JSON text. Needs the extra `gym`."""

from __future__ import annotations

import json
from typing import Any

from stillweb.harness._parsing import strict_json
from stillweb.harness.environment import Environment, Observation
from stillweb.snapshots.extras import require

require("gymnasium")

import gymnasium
from gymnasium.spaces import Text


class AnyText(Text):
    """Space of all texts. A sample is made of its character set."""

    def __init__(self, samples: tuple[str, ...] = ("",)) -> None:
        super().__init__(max_length=1 << 30, min_length=0)
        self._samples = samples

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return self._samples[int(self.np_random.integers(len(self._samples)))]


class StillwebEnv(gymnasium.Env[str, str]):
    """A task on a snapshot: `StillwebEnv(stillweb.env(SNAP, task))`.

    An action is the JSON of `{"tool": NAME, "arguments": {…}}` or `{"answer": TEXT}`, an observation that of `text`,
    `is_error` and, at the beginning, the `tools`. The score and the verdicts are in `info`.
    """

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012 -- Gymnasium's own name

    def __init__(self, environment: Environment, render_mode: str | None = None) -> None:
        self.environment, self.render_mode = environment, render_mode
        calls = [json.dumps({"tool": tool["name"], "arguments": {}}) for tool in environment.tools]
        self.action_space = AnyText((*calls, '{"answer": ""}'))
        self.observation_space = AnyText()
        self._seen = Observation("")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin the task anew; a seed changes nothing, as a snapshot has no chance in it."""
        super().reset(seed=seed)
        self._seen = self.environment.reset()
        first = {"text": self._seen.text, "is_error": False, "tools": self.environment.tools}
        return json.dumps(first, ensure_ascii=False), dict(self._seen.meta)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Do an action. Raises ValueError for a text that is not JSON."""
        taken = self.environment.step(strict_json(action))
        self._seen = taken.observation
        observation = json.dumps(
            {"text": self._seen.text, "is_error": self._seen.is_error}, ensure_ascii=False
        )
        info = {**self._seen.meta, **({"score": taken.score.to_json()} if taken.score else {})}
        return observation, taken.reward, taken.terminated, taken.truncated, info

    def render(self) -> str | None:
        """Return the last text that was seen."""
        return self._seen.text if self.render_mode == "ansi" else None

    def close(self) -> None:
        """End the session, the shared browser and the loop."""
        self.environment.close_all()
