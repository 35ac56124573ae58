"""Agents: a script, a model behind an OpenAI-compatible endpoint, any program, or a class of your own.

    load_agent("script:walk.yaml")        load_agent("openai:gpt-5-mini")      load_agent("agent.yaml")
    load_agent("command:python agent.py") load_agent("package.module:make_agent")
    load_agent("predictions:saved.jsonl") load_agent("anthropic:claude-…")          load_agent("gemini:gemini-…")

A YAML file names its kind in the member `agent`. An import path names an `Agent`, a callable that makes one, or
a function `agent(attempt)` that answers itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from stillweb.harness._parsing import load_module, read_yaml
from stillweb.snapshots.errors import UsageError

if TYPE_CHECKING:
    from stillweb.harness.agents.attempt import Attempt


class Agent(Protocol):
    """Something that turns a task into an answer with the tools of its attempt."""

    name: str

    def identity(self) -> dict[str, Any]:
        """Return JSON for traces and certificates: kind, model, digests of prompts; no path, no key."""
        ...

    async def run(self, attempt: Attempt) -> str | None:
        """Return the answer, or None if there is none. May raise LimitReached."""
        ...


# kind -> module, class, and the option that stands behind the kind's colon
_OPTIONED = {
    "openai": ("openai", "OpenAIAgent", "model"),
    "anthropic": ("openai", "AnthropicAgent", "model"),
    "gemini": ("openai", "GeminiAgent", "model"),
    "command": ("command", "CommandAgent", "command"),
}
_KINDS = ("script", "predictions", *_OPTIONED)


@runtime_checkable
class _LetIn(Protocol):
    def let_in(self) -> list[tuple[str, int]]:
        """Return host and port of the local services that the agent calls."""
        ...


def load_agent(spec: str, *, allow_unconfined: bool = False, **options: Any) -> Agent:
    """Return the agent that a specification names (see the module's docstring).

    Raise UsageError if it is wrong.

    `options` override those of a YAML file. Code of the caller's is asked what it is in a confined process, or, with
    `allow_unconfined`, as confined as the machine can.
    """
    if spec in _given:
        return _placed(spec, allow_unconfined)
    kind, colon, rest = spec.partition(":")
    if kind == "function":
        raise UsageError(
            f"agent {spec!r}: a function that only the process of the run can call. "
            "Define it in a module, and give agent='module:function'"
        )
    if rest and kind == "script":
        from stillweb.harness.agents.script import ScriptAgent

        return ScriptAgent.from_file(Path(rest))
    if rest and kind == "predictions":
        from stillweb.harness.agents.predictions import PredictionsAgent

        return PredictionsAgent.from_file(Path(rest))
    if rest and kind in _OPTIONED:
        return _made(kind, {_OPTIONED[kind][2]: rest, **options}, spec)
    is_file = spec.endswith((".yaml", ".yml"))
    if is_file and (not colon or Path(spec).exists()):
        return _from_file(Path(spec), options, allow_unconfined)
    if is_file or not (kind.replace(".", "_").isidentifier() and rest.replace(".", "_").isidentifier()):
        raise UsageError(
            f"no agent {spec!r}: say script:FILE, openai:MODEL, anthropic:MODEL, gemini:MODEL, command:PROGRAM, FILE.yaml or module:object"
        )
    from stillweb.harness.agents.module import ModuleAgent

    return ModuleAgent.load(spec, options, allow_unconfined=allow_unconfined)


_given: dict[str, Agent] = {}  # functions that callers of the API gave, by the name of their agent


def _placed(spec: str, allow_unconfined: bool) -> Agent:
    """Return the agent of a function: in a process of its own if the function can be copied there."""
    from stillweb.harness.agents.function import FunctionAgent
    from stillweb.harness.agents.module import ModuleAgent

    agent = _given[spec]
    if isinstance(agent, FunctionAgent) and not agent.trusted:
        try:
            _given[spec] = ModuleAgent.of_function(agent, allow_unconfined=allow_unconfined)
        except UsageError as error:
            agent.trusted = str(error)
    return _given[spec]


def name_of(agent: str | Callable[..., Any]) -> str:
    """Return the name by which `load_agent` finds an agent: `module:function`, or `function:NAME` in this process only.

    A function that can be imported has the first, so that its runs can be certified. Raise UsageError for what
    is neither a name nor a function.
    """
    if isinstance(agent, str):
        return agent
    from stillweb.harness.agents.function import FunctionAgent, import_name

    if not callable(agent):
        raise UsageError(f"agent: must be a name or a function, not {type(agent).__name__}")
    if (name := import_name(agent)) is not None:
        return name
    made = FunctionAgent(agent)
    name = f"function:{made.name}"
    _given[name] = made
    return name


def local_endpoints(spec: str) -> list[tuple[str, int]]:
    """Return the host and port of local services that the agent calls itself, e.g. its model's endpoint.

    Isolation must let the agent reach them. The list is empty for a custom agent, whose code must not run
    before it is isolated. Raises as `load_agent` does.
    """
    if not _is_ours(spec):
        return []
    agent = load_agent(spec)
    return agent.let_in() if isinstance(agent, _LetIn) else []


def _is_ours(spec: str) -> bool:
    """Return True if loading the agent runs only code of this package."""
    kind, _, rest = spec.partition(":")
    if rest and kind in _KINDS:
        return True
    path = Path(spec)
    return (
        path.suffix in (".yaml", ".yml")
        and path.exists()
        and read_yaml(path).get("agent", "script") in _KINDS
    )


def identity_of(agent: Agent) -> dict[str, Any]:
    """Return an agent's identity as JSON, as the run's files hold it (tuples become lists).

    The identity of a custom agent includes the SHA-256 (hex) of its class's file, unless it has `files`
    itself: an edited agent is another agent. Secrets, e.g. among the words of a command, are masked. Raise
    UsageError if the identity is not a JSON object.
    """
    identity: Any = agent.identity()
    try:
        kept = json.loads(json.dumps(identity, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"agent {agent.name}: its identity is not JSON: {error}") from error
    if not isinstance(kept, dict):
        raise UsageError(f"agent {agent.name}: its identity must be a mapping, not {type(identity).__name__}")
    from stillweb.snapshots.secrets.redact import mask_value  # 25 ms that no attempt's process needs

    return {**_file_of(type(agent)), **mask_value(kept)}


def _file_of(kind: type) -> dict[str, Any]:
    file = Path(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")
    if kind.__module__.startswith("stillweb.harness.") or not file.is_file():
        return {}
    return {"files": {file.name: sha256(file.read_bytes()).hexdigest()}}


def _from_file(path: Path, options: dict[str, Any], allow_unconfined: bool) -> Agent:
    settings = read_yaml(path)
    kind = settings.pop("agent", "script")
    if kind == "script":
        from stillweb.harness.agents.script import ScriptAgent

        return ScriptAgent.from_file(path)
    if isinstance(kind, str) and kind in _OPTIONED:
        return _made(kind, {**settings, **options}, str(path))
    if isinstance(kind, str) and ":" in kind:
        from stillweb.harness.agents.module import ModuleAgent

        return ModuleAgent.load(kind, {**settings, **options}, allow_unconfined=allow_unconfined)
    raise UsageError(
        f"{path}: agent: must be script, openai, anthropic, gemini, command or module:object, not {kind!r}"
    )


def _made(kind: str, options: dict[str, Any], source: str) -> Agent:
    """Return one of our agents that are made from options; `source` is named in errors."""
    module, name, _ = _OPTIONED[kind]
    made: Agent = getattr(import_module(f"stillweb.harness.agents.{module}"), name).from_options(
        options, source
    )
    return made


def import_agent(spec: str, options: Mapping[str, Any]) -> Agent:
    """Import the agent `module:object` into this process. Raise UsageError if it is none."""
    module_name, _, attribute = spec.partition(":")
    module = load_module(module_name, f"agent {module_name}:{attribute}")
    found = getattr(module, attribute, None)
    if found is None:
        own = [n for n, one in vars(module).items() if getattr(one, "__module__", "") == module.__name__]
        names = f"; its own names are {', '.join(own)}" if own else ""
        raise UsageError(f"agent {module_name}:{attribute}: the module has no {attribute!r}{names}")
    from stillweb.harness.agents.function import FunctionAgent, is_agent_function

    if hasattr(found, "run") and not isinstance(found, type):
        agent = found
    elif is_agent_function(found):
        agent = FunctionAgent(found)
    elif not callable(found):
        raise UsageError(
            f"agent {module_name}:{attribute}: is not an agent and makes none, but {type(found).__name__}"
        )
    else:
        try:
            agent = found(**options)
        except TypeError as error:
            raise UsageError(f"agent {module_name}:{attribute}: can't be made: {error}") from error
    for name in ("run", "identity", "name"):
        if not hasattr(agent, name):
            raise UsageError(
                f"agent {module_name}:{attribute}: has no {name!r} (see stillweb.harness.agents.Agent)"
            )
    made: Agent = agent
    return made
