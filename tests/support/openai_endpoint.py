"""A scripted OpenAI-compatible endpoint on loopback: Chat Completions and Responses, streaming or not.

    with Endpoint(policy) as endpoint: endpoint.url …

`policy(Asked)` returns what the model says: a text, or a list of (tool name, arguments) to call. `faults` are served
first, in order, instead of an answer: an int (that status), "html", "hang", "cut", "empty", "nonsense", "no choices",
"packed" (said to be gzip, and is not), "drip" (a blank now and then, for ever), "half" (the first half of the answer, as
if it were all).
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from stillweb.harness.models.client import ModelClient, Reply
from stillweb.harness.models.tape import Tape
from stillweb.harness.models.transport import Retry
from tests.support.waiting import HANG

KEY = "sk-test-0123456789abcdef"

Said = str | list[tuple[str, Any]]


@dataclass
class Asked:
    """A request: `said` are the texts so far, oldest first; `tools` the tool answers among them."""

    body: dict[str, Any]
    api: str

    @property
    def items(self) -> list[dict[str, Any]]:
        members = {"chat": "messages", "messages": "messages", "generate": "contents"}
        found: list[dict[str, Any]] = self.body[members.get(self.api, "input")]
        return found

    @property
    def question(self) -> str:
        return next(str(i["content"]) for i in self.items if i.get("role") == "user")

    @property
    def tool_answers(self) -> list[str]:
        if self.api == "messages":
            blocks = [b for i in self.items if isinstance(i["content"], list) for b in i["content"]]
            return [str(b["content"]) for b in blocks if b["type"] == "tool_result"]
        if self.api == "generate":
            parts = [part for item in self.items for part in item["parts"]]
            return [str(part["functionResponse"]["response"]) for part in parts if "functionResponse" in part]
        if self.api == "chat":
            return [str(i["content"]) for i in self.items if i.get("role") == "tool"]
        return [str(i["output"]) for i in self.items if i.get("type") == "function_call_output"]


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no error of ours."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Endpoint:
    def __init__(self, policy: Callable[[Asked], Said], faults: Iterable[int | str] = ()) -> None:
        self.policy = policy
        self.faults = list(faults)
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.refuses: dict[str, str] = {}  # parameter -> what the endpoint says against it
        self.lock = threading.Lock()
        self.hang = 1.5  # seconds
        self.ended = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                return

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                with endpoint.lock:
                    endpoint.requests.append(json.loads(body))
                    endpoint.keys.append(self.headers.get("authorization"))
                    fault = endpoint.faults.pop(0) if endpoint.faults else None
                if fault is None and (
                    name := next((one for one in endpoint.refuses if one in json.loads(body)), None)
                ):
                    message = endpoint.refuses[name]
                    error = {"message": message, "type": "invalid_request_error", "code": "unsupported_value"}
                    return self.send(400, "application/json", json.dumps({"error": error}).encode())
                if fault is not None and fault != "half":
                    return self.fail(fault)
                api, make = next((api, make) for end, (api, make) in _APIS.items() if end in self.path)
                asked = Asked(json.loads(body), api)
                asked.body.setdefault("model", self.path.rpartition("/")[2].partition(":")[0])
                if "streamGenerateContent" in self.path:
                    asked.body["stream"] = True
                said = endpoint.policy(asked)
                kind, data = make(asked.body, said)
                return self.send(200, kind, data[: len(data) // 2] if fault == "half" else data)

            def send(self, status: int, kind: str, data: bytes, **headers: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.send_header("Set-Cookie", "account=secret-cookie")
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()
                self.wfile.write(data)

            def fail(self, fault: int | str) -> None:
                if isinstance(fault, int):
                    key = self.headers.get("authorization")
                    error = {"error": {"message": f"scripted fault {fault} for {key}"}}
                    return self.send(fault, "application/json", json.dumps(error).encode(), Retry_After="0")
                if fault == "html":
                    return self.send(200, "text/html", b"<!DOCTYPE html><title>Sign in</title>")
                if fault == "packed":
                    return self.send(200, "application/json", b"{}", Content_Encoding="gzip")
                if fault == "empty":
                    return self.send(200, "application/json", b"")
                if fault == "nonsense":
                    return self.send(200, "application/json", b"{nonsense")
                if fault == "no choices":
                    return self.send(200, "application/json", b'{"id": "x", "choices": []}')
                if fault == "hang":
                    endpoint.ended.wait(endpoint.hang)
                self.close_connection = True
                if fault == "drip":
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
                    while not endpoint.ended.wait(0.05):
                        self.wfile.write(b" ")
                if fault == "cut":
                    self.wfile.write(
                        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{"
                    )
                return None

        self.server = _Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Endpoint:
        self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


def _usage(body: dict[str, Any], said: Said) -> tuple[int, int]:
    return len(json.dumps(body)) // 4, len(json.dumps(said)) // 4


def _calls(said: Said, body: dict[str, Any]) -> list[dict[str, str]]:
    if isinstance(said, str):
        return []
    turn = len(body.get("messages") or body.get("input") or [])
    return [
        {"id": f"call_{turn}_{i}", "name": name, "arguments": a if isinstance(a, str) else json.dumps(a)}
        for i, (name, a) in enumerate(said)
    ]


def chat_answer(body: dict[str, Any], said: Said) -> tuple[str, bytes]:
    calls = [
        {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
        for c in _calls(said, body)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": said if isinstance(said, str) else None}
    if calls:
        message["tool_calls"] = calls
    into, out = _usage(body, said)
    usage = {"prompt_tokens": into, "completion_tokens": out, "total_tokens": into + out}
    usage_detailed = {**usage, "prompt_tokens_details": {"cached_tokens": into // 2}}
    common = {
        "id": "chatcmpl-1",
        "created": 0,
        "model": f"{body['model']}-2025-01-01",
        "system_fingerprint": "fp_1",
    }
    finish = "tool_calls" if calls else "length" if body.get("max_tokens") else "stop"
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": finish}
        whole = {**common, "object": "chat.completion", "choices": [choice], "usage": usage_detailed}
        return "application/json", json.dumps(whole).encode()
    chunks: list[dict[str, Any]] = [{"delta": {"role": "assistant"}}]
    if isinstance(said, str):
        chunks += [{"delta": {"content": said[i : i + 5]}} for i in range(0, len(said), 5)]
    for i, call in enumerate(calls):
        text = call["function"]["arguments"]
        head = {"index": i, "id": call["id"], "type": "function"}
        chunks.append(
            {
                "delta": {
                    "tool_calls": [{**head, "function": {"name": call["function"]["name"], "arguments": ""}}]
                }
            }
        )
        for at in range(0, len(text), 7):
            chunks.append(
                {"delta": {"tool_calls": [{"index": i, "function": {"arguments": text[at : at + 7]}}]}}
            )
    chunks.append({"delta": {}, "finish_reason": finish})
    events = [
        {
            **common,
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "finish_reason": None, **chunk}],
        }
        for chunk in chunks
    ]
    events.append({**common, "object": "chat.completion.chunk", "choices": [], "usage": usage_detailed})
    return "text/event-stream", _stream([("", event) for event in events], done=True)


def response_answer(body: dict[str, Any], said: Said) -> tuple[str, bytes]:
    output: list[dict[str, Any]] = [
        {
            "type": "function_call",
            "id": f"fc_{c['id']}",
            "call_id": c["id"],
            "name": c["name"],
            "arguments": c["arguments"],
            "status": "completed",
        }
        for c in _calls(said, body)
    ]
    if isinstance(said, str):
        content = [{"type": "output_text", "text": said, "annotations": []}]
        output.append(
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}
        )
    into, out = _usage(body, said)
    whole = {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "status": "completed",
        "model": f"{body['model']}-2025-01-01",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": into,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": out,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": into + out,
        },
    }
    if not body.get("stream"):
        return "application/json", json.dumps(whole).encode()
    events = [
        (
            "response.created",
            {"type": "response.created", "sequence_number": 0, "response": {**whole, "output": []}},
        ),
        ("response.completed", {"type": "response.completed", "sequence_number": 1, "response": whole}),
    ]
    return "text/event-stream", _stream(events, done=False)


def _stream(events: list[tuple[str, dict[str, Any]]], *, done: bool) -> bytes:
    text = "".join(
        (f"event: {name}\n" if name else "") + f"data: {json.dumps(event)}\n\n" for name, event in events
    )
    return (text + ("data: [DONE]\n\n" if done else "")).encode()


def ask(
    tape: Tape, url: str, text: str = "hello", session: str = "s/1", patience: float = HANG, **options: Any
) -> Reply:
    """A question to an endpoint through a tape."""

    async def once() -> Reply:
        client = ModelClient(tape, base_url=url, retry=Retry(3, 0.01, 0.02), timeout=patience, **options)
        try:
            return await client.chat(session, {"model": "m", "messages": [{"role": "user", "content": text}]})
        finally:
            await client.close()

    return asyncio.run(once())


def message_answer(body: dict[str, Any], said: Said) -> tuple[str, bytes]:
    """Anthropic's Messages: a signed thought before what is said."""
    blocks: list[dict[str, Any]] = [{"type": "thinking", "thinking": "let me think", "signature": "c2ln"}]
    blocks += [
        {"type": "tool_use", "id": c["id"], "name": c["name"], "input": json.loads(c["arguments"])}
        for c in _calls(said, body)
    ]
    if isinstance(said, str):
        blocks.append({"type": "text", "text": said})
    into, out = _usage(body, said)
    usage = {"input_tokens": into, "cache_read_input_tokens": 3, "output_tokens": out}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": f"{body['model']}-2025-01-01"}
    end = {"stop_reason": "end_turn" if isinstance(said, str) else "tool_use", "stop_sequence": None}
    if not body.get("stream"):
        return "application/json", json.dumps({**head, "content": blocks, **end, "usage": usage}).encode()
    begin = {
        **head,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 1},
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begin}]
    for index, block in enumerate(blocks):
        kind = block["type"]
        empty = {
            **block,
            **{"thinking": {"thinking": "", "signature": ""}, "text": {"text": ""}}.get(kind, {"input": {}}),
        }
        deltas: list[dict[str, Any]] = []
        if kind == "thinking":
            deltas = [{"type": "thinking_delta", "thinking": p} for p in ("let me ", "think")]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif kind == "text":
            deltas = [
                {"type": "text_delta", "text": block["text"][i : i + 5]}
                for i in range(0, len(block["text"]), 5)
            ]
        else:
            text = json.dumps(block["input"])
            deltas = [
                {"type": "input_json_delta", "partial_json": text[i : i + 7]} for i in range(0, len(text), 7)
            ]
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": out}})
    events.append({"type": "message_stop"})
    return "text/event-stream", _stream([(event["type"], event) for event in events], done=False)


def content_answer(body: dict[str, Any], said: Said) -> tuple[str, bytes]:
    """Gemini's generateContent: a thought, and a signature on what follows it."""
    parts: list[dict[str, Any]] = [{"text": "let me think", "thought": True}]
    if isinstance(said, str):
        parts += (
            [{"text": said[i : i + 5]} for i in range(0, len(said), 5)]
            if body.get("stream")
            else [{"text": said}]
        )
        parts[-1]["thoughtSignature"] = "c2ln"
    else:
        parts += [{"functionCall": {"name": name, "args": a}} for name, a in said]
        parts[1]["thoughtSignature"] = "c2ln"
    into, out = _usage(body, said)
    usage = {
        "promptTokenCount": into,
        "candidatesTokenCount": out,
        "thoughtsTokenCount": 2,
        "totalTokenCount": into + out,
    }
    tail = {"modelVersion": f"{body['model']}-001", "usageMetadata": usage}

    def answer(parts: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0, **more}], **tail}

    if not body.get("stream"):
        return "application/json", json.dumps(answer(parts, finishReason="STOP")).encode()
    chunks = [answer([part]) for part in parts[:-1]] + [answer([parts[-1]], finishReason="STOP")]
    return "text/event-stream", _stream([("", chunk) for chunk in chunks], done=False)


_APIS = {
    # looked up at each call, as tests put others in their place
    "/chat/completions": ("chat", lambda body, said: chat_answer(body, said)),
    "/responses": ("responses", lambda body, said: response_answer(body, said)),
    "/messages": ("messages", message_answer),
    "enerateContent": ("generate", content_answer),
}
