"""A call to a model endpoint and its answer, as they lie on a tape."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from stillweb.harness.trace import canonical

_KEPT = {"content-type", "accept", "openai-model", "openai-version", "openai-beta"}


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a model endpoint, secrets already replaced."""

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
        """The same whatever endpoint it goes to: of the URL only which API it is."""
        api = self.url.partition("?")[0].rpartition("/")[2]
        return sha256(canonical([self.method, api, parsed(self.body)])).hexdigest()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the endpoint said. `body` is decoded."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def parsed(body: bytes) -> Any:
    """A JSON body's value, or the digest of any other."""
    try:
        return json.loads(body)
    except ValueError:
        return f"sha256:{sha256(body).hexdigest()}"


def kept_headers(headers: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The header fields that may lie on a tape."""
    return tuple((name, value) for name, value in headers if name.lower() in _KEPT)
