"""Calls to a model endpoint and their answers, as a tape holds them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from stillweb.harness.trace import canonical

_KEPT = {"content-type", "accept", "openai-model", "openai-version", "openai-beta"}


@dataclass(frozen=True, slots=True)
class Call:
    """Request to a model endpoint, with secrets already replaced."""

    session: str
    method: str
    url: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """SHA-256 (hex) of method, URL and canonical body."""
        return sha256(canonical([self.method, self.url, parsed(self.body)])).hexdigest()

    @property
    def key_anywhere(self) -> str:
        """Key that is the same for all endpoints: of the URL only the name of the API is hashed."""
        api = self.url.partition("?")[0].rpartition("/")[2]
        return sha256(canonical([self.method, api, parsed(self.body)])).hexdigest()


@dataclass(frozen=True, slots=True)
class Answer:
    """Response of an endpoint; `body` is decoded."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def parsed(body: bytes) -> Any:
    """Return the value of a JSON body, or the digest of any other body."""
    try:
        return json.loads(body)
    except ValueError:
        return f"sha256:{sha256(body).hexdigest()}"


def kept_headers(headers: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the header fields that may be kept on a tape."""
    return tuple((name, value) for name, value in headers if name.lower() in _KEPT)
