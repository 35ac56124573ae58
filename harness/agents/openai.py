"""Agent that calls a model with tools, by Chat Completions or Responses of an OpenAI-compatible endpoint.

agent: openai
model: gpt-5-mini
api: chat                    # or responses
base_url: https://…/v1       # else OPENAI_BASE_URL (kept with the run), else OpenAI's
key_variable: OPENAI_API_KEY # the variable that holds the key; "" for an endpoint without keys
stream: false
system: |                    # else harness/agents/system.txt with tools, the task set's own without; "" for none
params: {temperature: 0}     # any further member of the request
timeout: 300                 # seconds, a call
tries: 5
start_url: true              # whether the model is told where to start (a benchmark's protocol decides)
images: true                 # whether the model sees pictures that tools return; false for a text model
last_call: true              # at the last step, ask for the answer without tools; or a text to ask with
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from msgspec import Meta

from stillweb.harness.agents.attempt import Attempt, LimitReached
from stillweb.harness.agents.tool_event import describe
from stillweb.harness.trace import digest, read_json
from stillweb.proxy.net.addresses import on_this_machine
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.shapes import convert, must_be_known

_PORTS = {"http": 80, "https": 443}


@dataclass(slots=True)
class OpenAIAgent:
    """Agent that asks a model and makes the tool calls it requests, in order, until it requests none."""

    kind: ClassVar[str] = "openai"
    name: ClassVar[str] = "openai"
    default_url: ClassVar[str] = "https://api.openai.com/v1"

    model: str
    api: Annotated[str, Meta(pattern="^(chat|responses)$")] = "chat"
    base_url: str = ""  # "": the run's OPENAI_BASE_URL, else OpenAI's
    key_variable: str = "OPENAI_API_KEY"
    stream: bool = False
    system: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    timeout: float = 300.0
    tries: int = 5
    start_url: bool = True
    images: bool = True
    last_call: str = ""  # message before the last call; "" for no such call
    packaged_system: bool = field(default=False, init=False)  # sent only where there are tools

    @classmethod
    def from_options(cls, options: dict[str, Any], source: str) -> OpenAIAgent:
        """Make the agent from a YAML file's members. Raise UsageError naming a wrong member."""
        given = dict(options)
        if isinstance(last_call := options.get("last_call"), bool):
            given["last_call"] = _packaged("last_call.txt") if last_call else ""
        try:
            must_be_known(given, cls)
            agent = convert(given, cls)
        except ValueError as error:
            raise UsageError(f"{source}: {error}") from None
        if "system" not in options:
            agent.system, agent.packaged_system = _packaged("system.txt"), True
        return agent

    def model_options(self, env: Mapping[str, str]) -> dict[str, Any]:
        """Return the `provider`, and arguments of its client (stillweb.harness.models.client.client_of).

        `env` holds the variables that the run was begun with.
        """
        from stillweb.harness.models.transport import Retry

        variable = f"{self.kind.upper()}_BASE_URL"
        return {
            "provider": self.kind,
            "base_url": self.base_url or env.get(variable) or os.environ.get(variable) or self.default_url,
            "key_variable": self.key_variable,
            "timeout": float(self.timeout),
            "retry": Retry(tries=self.tries),
        }

    def let_in(self) -> list[tuple[str, int]]:
        """Return host and port of the endpoint if it is on this machine, else []."""
        url = self.model_options({})["base_url"]
        try:
            at = urlsplit(url)
            host, port = at.hostname or "", at.port or _PORTS.get(at.scheme, 80)
        except ValueError as error:
            from stillweb.snapshots.secrets.redact import mask_value  # 25 ms that no attempt's process needs

            raise UsageError(f"base_url {mask_value(url)}: {error}") from error
        return [(host, port)] if on_this_machine(host) else []

    def identity(self) -> dict[str, Any]:
        """Return kind, model, api, parameters and the digest of the prompts."""
        return {
            "kind": self.kind,
            "model": self.model,
            "api": self.api,
            "stream": self.stream,
            "params": self.params,
            **({} if self.start_url else {"start_url": False}),
            **({} if self.images else {"images": False}),
            "prompts": digest([self.system, self.last_call] if self.last_call else self.system),
        }

    def talk(self, attempt: Attempt) -> ModelConversation:
        return _Chat(self, attempt) if self.api == "chat" else _Responses(self, attempt)

    async def run(self, attempt: Attempt) -> str | None:
        """Run the loop until the model answers without requesting a tool.

        With `last_call`, the model is told when steps or tool calls run out, and its next text is the answer.
        """
        if attempt.models is None:
            raise UsageError(f"the {self.kind} agent needs a model client; run it with stillweb run")
        talk = self.talk(attempt)
        spent: LimitReached | None = None  # the limit that ran out, so that this call is the last
        while True:
            attempt.before_model()
            if self.last_call:
                spent = spent or _last_step(attempt)
                if spent is not None:
                    attempt.trace.write("evidence", kind="note", text=f"last call: {spent}")
                    talk.say(self.last_call)
            reply = await talk.ask(free=spent is None)
            text = reply.text if isinstance(reply.text, str) else None
            if not reply.tool_calls:
                return text
            if spent is not None:  # the model requests a tool all the same
                if text and text.strip():
                    return text
                raise spent
            for wanted in reply.tool_calls:
                try:
                    parts = await _use(attempt, wanted.id, wanted.name, wanted.arguments)
                except LimitReached as reached:
                    if not self.last_call:
                        raise
                    spent, parts = reached, [_error(str(reached))]
                talk.add_result(wanted.id, parts)
            talk.end_results()


def _packaged(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8").strip()


def _last_step(attempt: Attempt) -> LimitReached | None:
    """Return the limit of steps if one step is left, else None."""
    steps = attempt.limits.steps
    return LimitReached("steps", steps) if steps is not None and attempt.usage.steps == steps - 1 else None


def question_of(attempt: Attempt, start_url: bool = True) -> str:
    """Return the user's message: the question and, with `start_url`, the start page unless it is in it."""
    task = attempt.task
    if start_url and task.start_url and task.start_url not in task.question:
        return f"{task.question}\n\nStart at {task.start_url}"
    return task.question


async def _use(attempt: Attempt, call_id: str, name: str, text: str) -> list[dict[str, Any]]:
    """Make the tool call that a model wrote and return the result's parts. Errors in it are traced and returned."""
    known = [spec.name for spec in attempt.tools.list()]
    try:
        arguments = read_json(text or "{}")
        problem = None if isinstance(arguments, dict) else "the arguments are no JSON object"
    except (ValueError, RecursionError) as error:
        arguments, problem = text, f"the arguments are not JSON: {error}"
    if name not in known:
        problem = f"there is no tool {name!r}; there are {', '.join(known) or 'none'}"
    if problem is None:
        result = await attempt.call(name, arguments, call_id=call_id)
        return [*result.content]
    if attempt.limits.calls is not None and attempt.usage.calls >= attempt.limits.calls:
        raise LimitReached("calls", attempt.limits.calls)
    content = [_error(problem)]
    attempt.tool_called(
        id=call_id,
        tool=name,
        contract=None,
        arguments=arguments,
        verdict=None,
        captures=[],
        output=describe(content),
        error=True,
    )
    return content


def _error(text: str) -> dict[str, Any]:
    return {"type": "text", "text": f"Error: {text}"}


def _text(parts: Sequence[Mapping[str, Any]]) -> str:
    """Return a tool's result as text, with a placeholder for each part that is not text."""
    return "\n".join(
        str(part.get("text", ""))
        if part.get("type") == "text"
        else f"[{part.get('type')} {part.get('mimeType', '')}: not shown to the model]"
        for part in parts
    )


def _data_url(part: Mapping[str, Any]) -> str:
    return f"data:{part['mimeType']};base64,{part['data']}"


_METHODS = {"chat": "chat", "responses": "respond", "messages": "messages", "generate": "generate"}


class ModelConversation(ABC):
    """Conversation so far, in the format of one API."""

    api = ""

    def __init__(self, agent: OpenAIAgent, attempt: Attempt) -> None:
        self.agent, self.attempt = agent, attempt
        self.items: list[dict[str, Any]] = []
        self.sent = 0  # how many items the trace already holds
        self.system = agent.system
        if agent.packaged_system and not attempt.tools.list():
            self.system = str(attempt.task.meta.get("system") or "")

    @abstractmethod
    def body(self) -> dict[str, Any]:
        """Return the next request."""

    def without_tools(self, body: dict[str, Any]) -> None:
        """Forbid tool calls in a request. The tools stay: some endpoints refuse earlier calls without them."""
        if "tools" in body:
            body["tool_choice"] = "none"

    def as_text(self, parts: Sequence[Mapping[str, Any]]) -> str:
        return _text(parts)

    @abstractmethod
    def add_result(self, call_id: str, parts: Sequence[dict[str, Any]]) -> None:
        """Add a tool's result."""

    def end_results(self) -> None:  # noqa: B027  # only one of the two APIs needs it
        """Add what must follow the results of all calls of one answer."""

    def is_picture(self, part: Mapping[str, Any]) -> bool:
        """Return True if the model is to see this part of a tool's result as a picture."""
        return self.agent.images and part.get("type") == "image"

    def sent_back(self, items: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """Return the items of an answer that go into the next request."""
        return items

    def say(self, text: str) -> None:
        """Add a message from the user."""
        self.items.append({"role": "user", "content": text})

    async def ask(self, *, free: bool = True) -> Any:
        """Ask the model and write the trace. Unless `free`, the model may not call a tool."""
        body = self.body()
        if not free:
            self.without_tools(body)
        client = self.attempt.models
        reply = await self.attempt.ask_model(
            getattr(client, _METHODS[self.api]), self.api, body, self.items, new=self.items[self.sent :]
        )
        self.items.extend(self.sent_back(reply.items))
        self.sent = len(self.items)
        await asyncio.sleep(0)  # a tape answers without waiting; let other attempts run
        return reply


def _bare(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "reasoning" and not (item.get("encrypted_content") or item.get("content"))


class _Chat(ModelConversation):
    api = "chat"

    def __init__(self, agent: OpenAIAgent, attempt: Attempt) -> None:
        super().__init__(agent, attempt)
        self.items = [{"role": "system", "content": self.system}] if self.system else []
        self.say(question_of(attempt, agent.start_url))
        self.pictures: list[dict[str, Any]] = []
        self.tools = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": t.input_schema},
            }
            for t in attempt.tools.list()
        ]

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.agent.model, "messages": list(self.items), **self.agent.params}
        if self.tools:
            body["tools"] = self.tools
        if self.agent.stream:
            body["stream"] = True
            body.setdefault("stream_options", {"include_usage": True})
        return body

    def add_result(self, call_id: str, parts: Sequence[dict[str, Any]]) -> None:
        texts = []
        for part in parts:
            if self.is_picture(part):
                name = f"picture {len(self.pictures) // 2 + 1} of the results"
                self.pictures += [
                    {"type": "text", "text": f"{name}:"},
                    {"type": "image_url", "image_url": {"url": _data_url(part)}},
                ]
                part = {"type": "text", "text": f"[{name}, shown after them]"}
            texts.append(part)
        self.items.append({"role": "tool", "tool_call_id": call_id, "content": _text(texts)})

    def end_results(self) -> None:
        # a tool's message may hold only text, and must follow its call without another message between
        if self.pictures:
            self.items.append({"role": "user", "content": self.pictures})
            self.pictures = []


class _Responses(ModelConversation):
    api = "responses"

    def sent_back(self, items: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        """Drop reasoning items without content, and then the ids of the others, unless `store` is set.

        An endpoint that stores nothing doesn't know these items later. It refuses them, and also calls by the
        ids under which they follow such an item.
        """
        kept = [item for item in items if not _bare(item)]
        if len(kept) == len(items) or self.agent.params.get("store"):
            return items
        return [{name: value for name, value in item.items() if name != "id"} for item in kept]

    def __init__(self, agent: OpenAIAgent, attempt: Attempt) -> None:
        super().__init__(agent, attempt)
        self.items = [{"role": "user", "content": question_of(attempt, agent.start_url)}]
        self.tools = [
            {
                "type": "function",
                "name": t.name,
                "description": t.description,
                "parameters": t.input_schema,
                "strict": False,
            }
            for t in attempt.tools.list()
        ]

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.agent.model,
            **({"instructions": self.system} if self.system else {}),
            "input": list(self.items),
            "store": False,
            **self.agent.params,
        }
        if self.tools:
            body["tools"] = [*self.tools, *self.agent.params.get("tools", ())]
        if self.agent.stream:
            body["stream"] = True
        return body

    def add_result(self, call_id: str, parts: Sequence[dict[str, Any]]) -> None:
        output: Any = _text(parts)
        if any(map(self.is_picture, parts)):
            output = [
                {"type": "input_image", "image_url": _data_url(part)}
                if self.is_picture(part)
                else {"type": "input_text", "text": _text([part])}
                for part in parts
            ]
        self.items.append({"type": "function_call_output", "call_id": call_id, "output": output})


_MOST_TOKENS = 16_000  # Anthropic wants a limit in each request; `params: {max_tokens: …}` sets another


@dataclass(slots=True)
class AnthropicAgent(OpenAIAgent):
    """Agent that asks a model by Anthropic's Messages API."""

    kind: ClassVar[str] = "anthropic"
    name: ClassVar[str] = "anthropic"
    default_url: ClassVar[str] = "https://api.anthropic.com"

    api: str = field(default="messages", init=False)
    key_variable: str = "ANTHROPIC_API_KEY"

    def talk(self, attempt: Attempt) -> ModelConversation:
        return _Messages(self, attempt)


@dataclass(slots=True)
class GeminiAgent(OpenAIAgent):
    """Agent that asks a model by Gemini's generateContent."""

    kind: ClassVar[str] = "gemini"
    name: ClassVar[str] = "gemini"
    default_url: ClassVar[str] = "https://generativelanguage.googleapis.com"

    api: str = field(default="generate", init=False)
    key_variable: str = "GEMINI_API_KEY"

    def talk(self, attempt: Attempt) -> ModelConversation:
        return _Generate(self, attempt)


class _Messages(ModelConversation):
    api = "messages"

    def __init__(self, agent: OpenAIAgent, attempt: Attempt) -> None:
        super().__init__(agent, attempt)
        self.say(question_of(attempt, agent.start_url))
        self.results: list[dict[str, Any]] = []
        self.tools = [
            {"name": t.name, "description": t.description, "input_schema": t.input_schema}
            for t in attempt.tools.list()
        ]

    def body(self) -> dict[str, Any]:
        return {
            "model": self.agent.model,
            "max_tokens": _MOST_TOKENS,
            **({"system": self.system} if self.system else {}),
            "messages": list(self.items),
            **({"tools": self.tools} if self.tools else {}),
            **({"stream": True} if self.agent.stream else {}),
            **self.agent.params,
        }

    def without_tools(self, body: dict[str, Any]) -> None:
        if "tools" in body:
            body["tool_choice"] = {"type": "none"}

    def add_result(self, call_id: str, parts: Sequence[dict[str, Any]]) -> None:
        content = [
            {
                "type": "image",
                "source": {"type": "base64", "media_type": part["mimeType"], "data": part["data"]},
            }
            if self.is_picture(part)
            else {"type": "text", "text": self.as_text([part]) or " "}
            for part in parts
        ]
        self.results.append({"type": "tool_result", "tool_use_id": call_id, "content": content})

    def end_results(self) -> None:
        # one message holds the results of all calls of an answer
        self.items.append({"role": "user", "content": self.results})
        self.results = []


class _Generate(ModelConversation):
    api = "generate"

    def __init__(self, agent: OpenAIAgent, attempt: Attempt) -> None:
        super().__init__(agent, attempt)
        self.say(question_of(attempt, agent.start_url))
        self.results: list[dict[str, Any]] = []
        self.called: dict[str, dict[str, Any]] = {}
        self.tools = [
            {"name": t.name, "description": t.description, "parametersJsonSchema": t.input_schema}
            for t in attempt.tools.list()
        ]

    def say(self, text: str) -> None:
        self.items.append({"role": "user", "parts": [{"text": text}]})

    def body(self) -> dict[str, Any]:
        config: dict[str, Any] = dict(self.agent.params)
        if self.system:
            config["systemInstruction"] = {"parts": [{"text": self.system}]}
        if self.tools:
            config["tools"] = [{"functionDeclarations": self.tools}, *config.get("tools", ())]
        body = {"model": self.agent.model, "contents": list(self.items), "config": config}
        return {**body, "stream": True} if self.agent.stream else body

    def without_tools(self, body: dict[str, Any]) -> None:
        body["config"] = {**body["config"], "toolConfig": {"functionCallingConfig": {"mode": "NONE"}}}

    def sent_back(self, items: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        calls = [part["functionCall"] for item in items for part in item["parts"] if "functionCall" in part]
        self.called = {str(call.get("id") or f"call_{n}"): call for n, call in enumerate(calls)}
        return items

    def add_result(self, call_id: str, parts: Sequence[dict[str, Any]]) -> None:
        call = self.called[call_id]
        pictures = [part for part in parts if self.is_picture(part)]
        response = {"output": self.as_text([part for part in parts if part not in pictures])}
        answer = {"name": call["name"], "response": response, **({"id": call["id"]} if "id" in call else {})}
        self.results.append({"functionResponse": answer})
        self.results += [{"inlineData": {"mimeType": p["mimeType"], "data": p["data"]}} for p in pictures]

    def end_results(self) -> None:
        self.items.append({"role": "user", "parts": self.results})
        self.results = []
