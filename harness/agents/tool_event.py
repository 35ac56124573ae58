"""Trace events of tool calls."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from stillweb.harness.tools.contract import ToolResult
from stillweb.harness.trace import SURENESS, canonical

Part = dict[str, Any]  # an MCP content part
MOST_SAID = 256 << 20  # bytes of an attempt's notes and tool calls, which its trace holds


def call_members(
    name: str, contract: str | None, arguments: dict[str, Any], result: ToolResult, seconds: float
) -> Part:
    """Return the members of a `tool_call` event."""
    meta = dict(result.meta)
    if "missed" in meta:
        meta["missed"] = sorted(meta["missed"])
    # how sure an answer is depends on what was asked before, and browsers and programs ask in an order of their own
    doubted = {"ambiguous": True} if meta.pop("ambiguous", None) else {}
    return {
        "aside": {"seconds": round(seconds, 6), **doubted},
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
        **{name: meta.pop(name) for name in SURENESS if name in meta},
        "meta": meta,
    }


def _in_order(captures: Sequence[Part]) -> list[Part]:
    """Return the captures by file and offset, each once: pages request their parts in varying order."""
    return list(
        {
            (c["file"], c["offset"]): c for c in sorted(captures, key=lambda c: (c["file"], c["offset"]))
        }.values()
    )


def describe(content: Sequence[Part]) -> Part:
    """Return the `output` member of a tool call: a digest over all parts, the text, and the other parts."""
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
