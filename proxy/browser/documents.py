"""Documents (PDFs and other files) fetched whole through the recorder, with a browser context's cookies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from playwright.async_api import Error as PlaywrightError

from stillweb.snapshots.profile import Profile

if TYPE_CHECKING:
    import httpx
    from playwright.async_api import BrowserContext, Download

    from stillweb.snapshots.capture import Capture

SILENCE = 120.0  # s between two pieces of an answer
MOST_REDIRECTS = 20  # as many as browsers follow


@dataclass(frozen=True, slots=True)
class Document:
    """A fetched document. `error` is None for a whole 2xx answer.

    `size` is in bytes, 0 if it was not counted.
    """

    url: str
    status: int
    media: str
    size: int
    error: str | None = None


def looks_like_document(url: str) -> bool:
    """Return True if the URL alone says that a browser would show a viewer or save a file."""
    return (
        urlsplit(url)
        .path.lower()
        .endswith((".pdf", ".csv", ".xlsx", ".xls", ".zip", ".docx", ".tsv", ".ods"))
    )


def client(proxy_url: str, ca: Path, profile: Profile, most: int | None = None) -> httpx.AsyncClient:
    """Return an HTTP client that uses the browser session's proxy and looks like the browser.

    Its answers end in time, and with `most` within so many bytes: see `bounded_clients`.
    """
    import ssl

    from stillweb.proxy.net.bounded_clients import AsyncBoundedClient

    context = ssl.create_default_context(cafile=str(ca))
    headers = {"user-agent": profile.user_agent, "accept-language": profile.locale, "accept": "*/*"}
    return AsyncBoundedClient(
        proxy_url, context, most, timeout=SILENCE, headers=headers, follow_redirects=True
    )


async def failures_of(downloads: Iterable[Download]) -> list[str | None]:
    """Wait for the ends of downloads, and return why each failed, None if it did not. An endless one is broken off."""
    from stillweb.proxy.net.bounded_clients import LONGEST

    async def failure(download: Download) -> str | None:
        try:
            return await asyncio.wait_for(download.failure(), LONGEST)
        except TimeoutError:
            await download.cancel()
            return f"the answer did not end within {LONGEST:g} s"

    return await asyncio.gather(*map(failure, downloads))


async def document_of_download(
    download: Download, failure: str | None, captures: Iterable[Capture]
) -> Document:
    """Return a download that has ended as a document.

    A file that the page made itself (blob:, data:) has no capture.
    """
    url = download.url
    capture = next((c for c in captures if c.url == url and c.status == 200), None)
    try:
        size = 0 if failure else (await download.path()).stat().st_size
    except (PlaywrightError, OSError) as error:
        failure, size = str(error).splitlines()[0] if str(error) else type(error).__name__, 0
    if not url.startswith(("http:", "https:")):
        return Document(f"{url.partition(':')[0]}:{download.suggested_filename}", 0, "", size, failure)
    if capture is None:
        return Document(url, 0, "", size, failure or "was offered as a download, but not recorded")
    return Document(url, capture.status, capture.mime or "", size, failure)


def shown_pdf(url: str, captures: Iterable[Capture]) -> Document | None:
    """Return a PDF that the browser shows, None if it was not recorded whole.

    The viewer may ask for parts only.
    """
    whole = any(c.url == url and c.method == "GET" and c.status == 200 and not c.truncated for c in captures)
    return Document(url, 200, "application/pdf", 0) if whole else None


class Documents:
    """A fetcher of documents for one session. Its HTTP client is made on first use and closed with it."""

    def __init__(self, proxy_url: str, ca: Path, profile: Profile) -> None:
        self._made = (proxy_url, ca, profile)
        self._http: httpx.AsyncClient | None = None

    async def get(self, url: str, context: BrowserContext | None = None) -> Document:
        """Fetch a document; see `fetch_document`."""
        if self._http is None:
            self._http = client(*self._made)
        return await fetch_document(self._http, url, context)

    async def __aenter__(self) -> Documents:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.aclose()


async def fetch_document(
    http: httpx.AsyncClient, url: str, context: BrowserContext | None = None
) -> Document:
    """GET a URL to its last byte. The bytes go to the recorder, and are not kept in memory here."""
    import httpx

    at = url
    try:
        for _ in range(MOST_REDIRECTS):
            headers = await _cookies(at, context)
            async with http.stream("GET", at, headers=headers, follow_redirects=False) as answer:
                if answer.next_request is not None:  # each address gets its own cookies
                    async for _piece in answer.aiter_raw():
                        pass
                    at = str(answer.next_request.url)
                    continue
                return await _whole(answer, url)
        return Document(url, 0, "", 0, f"more than {MOST_REDIRECTS} redirects")
    except httpx.HTTPError as error:
        return Document(url, 0, "", 0, str(error) or type(error).__name__)
    except httpx.InvalidURL as error:
        return Document(url, 0, "", 0, f"no valid URL: {error}")


async def _cookies(url: str, context: BrowserContext | None) -> dict[bytes, bytes]:
    cookies = await context.cookies(url) if context is not None else ()
    header = "; ".join(f"{c.get('name', '')}={c.get('value', '')}" for c in cookies)
    # a cookie may hold any bytes, which browsers read as UTF-8
    return {b"cookie": header.encode()} if header else {}


async def _whole(answer: httpx.Response, url: str) -> Document:
    size = 0
    async for piece in answer.aiter_raw():
        size += len(piece)
    media = answer.headers.get("content-type", "").partition(";")[0].strip()
    error = None if answer.is_success else f"status {answer.status_code}"
    return Document(url, answer.status_code, media, size, error)
