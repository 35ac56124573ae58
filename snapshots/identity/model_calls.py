"""What a request to a model is, which of them hold all that their answer is drawn from, and what they say of their sender
that takes no part in it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from stillweb.snapshots.http.bodies import Body
from stillweb.snapshots.identity.keys import Parsed
from stillweb.snapshots.identity.spelling import BLANK

# Where texts for a model stand: OpenAI, Anthropic, Google, Mistral, Cohere, AWS Bedrock, Ollama.
_PROMPTS = frozenset(("messages", "input", "instructions", "system", "contents", "prompt", "message"))
# The operations of those whose body need not name the model: Google, Bedrock, Azure.
_OPERATION = re.compile(
    r":(?:stream)?GenerateContent|/model/[^/]+/(?:converse|invoke)[a-z-]*|/deployments/[^/]+/.*completions",
    re.I,
)
# Operations that keep nothing, and where what was said so far stands in them: in the body, each time anew.
_DRAWING = re.compile(
    r"/(?:chat/)?completions$|/v1/messages$|/v\d\w*/(?:responses|embeddings|rerank|chat)$|/api/(?:chat|generate|embed|embeddings)$"
    r"|/model/[^/]+/(?:converse|invoke)[a-z-]*$|:(?:stream)?GenerateContent$",
    re.I,
)
_TURNS = frozenset(("messages", "input", "contents", "prompt"))
# What a server keeps for its client, and goes on from: the same request is another one each time.
_KEPT = re.compile(
    r"id|context|background|thread|conversation|(?:\w+_)?(?:chat|session|conversation|thread|message|parent|response|run)_?id",
    re.I,
)
# Claude Code's line for the bill, the first of what it tells the model: ids of its run, and a mark made from each request.
_BILLED = re.compile(r"(?<=\Ax-anthropic-billing-header:).+")


def asks_a_model(parsed: Parsed) -> bool:
    """Whether it has a text for a model, and names it in its body or address."""
    value = parsed.body.value
    if not isinstance(value, dict) or _PROMPTS.isdisjoint(value):
        return False
    return isinstance(value.get("model"), str) or _OPERATION.search(parsed.url) is not None


def draws(parsed: Parsed) -> bool:
    """Whether a model draws the answer from what the request holds, and from nothing that was asked before.

    Asked for again it may well be another one, and neither changes what the other is.
    """
    if parsed.method != "POST" or not asks_a_model(parsed) or _DRAWING.search(parsed.url) is None:
        return False
    members = parsed.body.value
    return not _TURNS.isdisjoint(members) and not any(
        _KEPT.fullmatch(name) and members[name] not in (None, False) for name in members
    )


def without_sender(parsed: Parsed) -> Parsed:
    """A request to a model without Anthropic's `metadata.user_id`, nothing in the line for the bill; itself if it has none.

    The first tells abuse apart (https://docs.claude.com/en/api/messages); Claude Code draws a session's id for it.
    """
    if not asks_a_model(parsed):
        return parsed
    body = parsed.body
    value = dict(body.value)
    told = value.get("metadata")
    if isinstance(told, dict):
        value["metadata"] = {name: item for name, item in told.items() if name != "user_id"}
        if not value["metadata"]:
            del value["metadata"]
    if isinstance(system := value.get("system"), list):
        value["system"] = [_unbilled(item) for item in system]
    return parsed if value == body.value else replace(parsed, body=Body(body.kind, value, body.label))


def _unbilled(item: Any) -> Any:
    if not isinstance(item, dict) or not isinstance(text := item.get("text"), str):
        return item
    return item | {"text": _BILLED.sub(BLANK, text, 1)}
