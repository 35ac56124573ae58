"""Recording of the requests that a replay missed, from the live web."""

from __future__ import annotations

import base64
import binascii
import ssl
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import httpx

from stillweb.proxy.net.bounded_clients import BoundedClient
from stillweb.proxy.replay.ledger import misses
from stillweb.snapshots.errors import DamagedInput
from stillweb.snapshots.secrets.redact import MASK

if TYPE_CHECKING:
    from stillweb.proxy.record.recorder import Recorder

TIMEOUT = 60.0  # seconds without a byte
REFUSED = "refused: "  # prefix of the ledger's `why` for a refused request


def record_misses(
    recorder: Recorder, entries: Iterable[dict[str, Any]], tell: Callable[[str], None]
) -> tuple[int, int]:
    """Send each missed request of a ledger again, once; return how many were recorded and how many missed.

    Each session of the ledger is a client with its own cookies. Redirects are followed, as the program will.
    `tell` gets a line for each request that can't be sent or got no answer, unless it is irrelevant.
    """
    context = ssl.create_default_context(cafile=str(recorder.ca_path))
    clients: dict[str, httpx.Client] = {}
    asked: set[tuple[str, str, str, bytes]] = set()
    recorded = left_out = 0
    with ExitStack() as stack:
        for entry in misses(entries):
            session, method, url = entry["session"], entry["method"], entry["url"]
            body = _body(entry)
            if (session, method, url, body or b"") in asked:
                continue
            asked.add((session, method, url, body or b""))
            why = _refused(entry) or _unsendable(method, url, body)
            if why is None:
                if session not in clients:
                    proxy = recorder.proxy_url(session)
                    client = BoundedClient(proxy, context, timeout=TIMEOUT, follow_redirects=True)
                    clients[session] = stack.enter_context(client)
                why = _send(recorder, clients[session], entry, body)
            if why is None:
                recorded += 1
            elif entry.get("irrelevant"):
                left_out += 1
            else:
                tell(f"not recorded: {method} {url}: {why}")
    return recorded, len(asked) - left_out


def _body(entry: dict[str, Any]) -> bytes | None:
    """Return the body that was sent, or None if the ledger does not have it."""
    if "body" in entry:
        return str(entry["body"]).encode("utf-8", "surrogatepass")
    if "body_base64" in entry:
        try:
            return base64.b64decode(entry["body_base64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise DamagedInput(
                f"the ledger's line for {entry['method']} {entry['url']}: body_base64: {error}"
            ) from error
    return None if "body_size" in entry else b""


def _refused(entry: dict[str, Any]) -> str | None:
    """Return a message if replay refused the request itself, whose body then doesn't matter, else None."""
    why = str(entry.get("why") or "")
    if not why.startswith(REFUSED):
        return None
    return f"replay refused it, and would again: {why.removeprefix(REFUSED)}"


def _unsendable(method: str, url: str, body: bytes | None) -> str | None:
    again = "record the program itself again"
    if not url.startswith(("http://", "https://")) or method == "CONNECT":
        return f"this is not a request that can be sent again; {again}"
    if body is None:
        return f"its body was too long for the ledger; {again}"
    if MASK in url or MASK.encode() in body:
        return f"it held a secret, which the ledger does not keep; {again}"
    return None


def _send(recorder: Recorder, client: httpx.Client, entry: dict[str, Any], body: bytes | None) -> str | None:
    """Send a request through the recorder. Return why there is no answer, or None."""
    failures, errands = len(recorder.failures), len(recorder.errands)
    headers = {"Content-Type": entry["type"]} if body and entry.get("type") else {}
    try:
        client.request(entry["method"], entry["url"], content=body or None, headers=headers)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return str(error) or type(error).__name__
    known = recorder.failures[failures:] + recorder.errands[errands:]
    return known[0][1] if known else None
