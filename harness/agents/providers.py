"""Agents on models of other providers, each by its own SDK: `anthropic:MODEL` and `gemini:MODEL`.

Their YAML files (`agent: anthropic`, `agent: gemini`) have the members of the openai agent but `api`. `params` are
further members of the request (Anthropic), or of its `config` (Gemini).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from stillweb.harness.agents.attempt import Attempt
from stillweb.harness.agents.openai import ModelConversation, OpenAIAgent, question_of

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
