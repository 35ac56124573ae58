"""What a trace says of a tool call."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Protocol

from stillweb.harness.trace import canonical

Part = dict[str, Any]  # an MCP content part


class ToolResult(Protocol):
    """What a tool gave: MCP parts, whether it is an error, and what is known of it beside."""

    @property
    def content(self) -> list[Part]: ...
    @property
    def is_error(self) -> bool: ...
    @property
    def meta(self) -> dict[str, Any]: ...


def call_members(
    name: str, contract: str | None, arguments: dict[str, Any], result: ToolResult, seconds: float
) -> Part:
    """The members of a `tool_call` event."""
    meta = dict(result.meta)
    if "missed" in meta:
        meta["missed"] = sorted(meta["missed"])
    return {
        "aside": {"seconds": round(seconds, 6)},
        "tool": name,
        "contract": contract,
        "arguments": arguments,
        "verdict": meta.pop("verdict", None),
        "address": meta.pop("address", None),
        "view": meta.pop("view", None),
        "captures": _in_order(meta.pop("captures", None) or []),
        "slice": meta.pop("slice", None),
        "nearest": meta.pop("nearest", None) or [],
        "output": describe(result.content),
        "error": result.is_error,
        "meta": meta,
    }


def _in_order(captures: Sequence[Part]) -> list[Part]:
    """Captures by where they lie, each once: a page asks for its parts in an order that no two runs share."""
    return list(
        {
            (c["file"], c["offset"]): c for c in sorted(captures, key=lambda c: (c["file"], c["offset"]))
        }.values()
    )


def describe(content: Sequence[Part]) -> Part:
    """The `output` member of a tool call: digest over all parts, the text, and what else there was."""
    texts: list[str] = []
    other: list[Part] = []
    for part in content:
        if part.get("type") == "text":
            texts.append(str(part.get("text", "")))
        else:
            data = str(part.get("data", "")).encode()
            media = part.get("mimeType")
            other.append(
                {
                    "type": part.get("type"),
                    "media": media,
                    "bytes": len(data) * 3 // 4,
                    "digest": f"sha256:{sha256(data).hexdigest()}",
                }
            )
    output: Part = {
        "digest": f"sha256:{sha256(canonical(list(content))).hexdigest()}",
        "text": "\n".join(texts),
    }
    if other:
        output["other"] = other
    return output
