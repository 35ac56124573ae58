"""Replacing secrets in an exchange before it is written, in large bodies piece by piece."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

from stillweb.snapshots.capture import Exchange, Response
from stillweb.snapshots.contents.failures import Failure
from stillweb.snapshots.request import Request
from stillweb.snapshots.secrets.redact import LIMIT, Redactor, with_new_length

PIECE = 1 << 18
JSON = (("Content-Type", "application/json"),)


class ExchangeRedactor:
    """A snapshot's Redactor for whole exchanges. Runs on the writing thread only."""

    def __init__(self, redactor: Redactor, spool_directory: Path | None) -> None:
        self._redactor = redactor
        self._spool_directory = spool_directory

    def exchange(self, exchange: Exchange) -> Exchange:
        """Return the exchange without its secrets; the same object if it has none."""
        request = self._redactor.request(exchange.request)
        if isinstance(exchange.body, bytes):
            stored = exchange.body
        else:
            stored = _whole(exchange.body)
        response = Response(exchange.status, exchange.reason, exchange.headers, stored)
        cleaned = self._redactor.response(response)
        body: bytes | BinaryIO = exchange.body
        headers = cleaned.headers
        if cleaned.body is not stored:
            body = cleaned.body
        elif not isinstance(body, bytes) and not stored:
            body, headers = self._large(body, headers)
        if request is exchange.request and body is exchange.body and headers is exchange.headers:
            return exchange
        return replace(exchange, request=request, headers=headers, body=body)

    def message(self, url: str, data: bytes, *, from_client: bool) -> bytes:
        """Return a web socket's message, text or not, without its secrets."""
        if from_client:
            return self._redactor.request(Request("POST", url, JSON, data)).body
        return self._redactor.response(Response(200, "OK", JSON, data)).body

    def request(self, request: Request) -> Request:
        """Return a request without its secrets."""
        return self._redactor.request(request)

    def failure(self, failure: Failure) -> Failure:
        """Return a failed request without its secrets."""
        request = self._redactor.request(failure.request)
        given = failure.proxy_response
        if given is not None:
            given = replace(given, body=self._redactor.body(given.body.encode()).decode())
        return replace(
            failure, request=request, message=self._redactor.url(failure.message), proxy_response=given
        )

    @property
    def count(self) -> int:
        """The number of known secrets."""
        return self._redactor.count

    def redact_known(self, data: bytes) -> bytes:
        """Return bytes without the secrets known by now."""
        return self._redactor.body(data)

    def url(self, url: str) -> str:
        """Return a URL without its secrets, for lists that people see."""
        return self._redactor.url(url)

    def _large(
        self, body: BinaryIO, headers: tuple[tuple[str, str], ...]
    ) -> tuple[BinaryIO, tuple[tuple[str, str], ...]]:
        pieces = self._redactor.pieces(_Pieces(body), headers)
        if pieces is None:
            body.seek(0)
            return body, headers
        cleaned = cast(BinaryIO, tempfile.TemporaryFile(dir=self._spool_directory))  # noqa: SIM115 -- the writer's
        for piece in pieces:
            cleaned.write(piece)
        length = cleaned.tell()
        cleaned.seek(0)
        body.close()
        return cleaned, with_new_length(headers, length)


class _Pieces:
    """The pieces of a file, from its beginning each time they are iterated."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        while piece := self._file.read(PIECE):
            yield piece


def _whole(file: BinaryIO) -> bytes:
    """Return a spooled body that is small enough to be searched as one, else b""."""
    size = file.seek(0, 2)
    file.seek(0)
    if size > LIMIT:
        return b""
    body = file.read()
    file.seek(0)
    return body
