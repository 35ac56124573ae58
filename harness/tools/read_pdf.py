"""`read_pdf` of the Sylphx PDF reader, answered from a snapshot: page ranges, text, metadata, page images."""

from __future__ import annotations

import base64
import contextlib
import re
from dataclasses import replace
from hashlib import sha256
from typing import Any

from stillweb.harness.tools.contract import Contract, Part, ToolResult, fill_template, load
from stillweb.harness.tools.serper import script_json
from stillweb.harness.tools.store import FoundPage, Visit, weaker_verdict
from stillweb.harness.tools.workspace import OutsideWorkspace
from stillweb.snapshots.capture import Capture, Response
from stillweb.snapshots.evidence.confidence import Confidence, combine
from stillweb.snapshots.text.pdf_text import ordered_info, page_image
from stillweb.snapshots.text.text import PDF, FrozenText, extract, sniff, unpack_body

CONTRACT = "pdf-reader@2.0.8"
MOST_RANGE = 10_000  # pages of an open range such as "3-"
IMAGES_PER_CALL = 50
_DIGITS = 21  # the most digits of a number that JavaScript writes without an exponent
_INT = re.compile(r"\s*([+-]?[0-9]+)")


class SourceRefused(Exception):
    """Error for a source that can't be read; its text is the reason that the real tool gives."""


class PdfTool:
    """Tool of the contract pdf-reader@2.0.8. `most_pages` limits the pages of one call."""

    def __init__(self, *, most_pages: int | None = None) -> None:
        self.contract = load(CONTRACT)
        self.most_pages = most_pages

    async def call(self, name: str, arguments: dict[str, Any], visit: Visit) -> ToolResult:
        """Read all sources: return one JSON part with the results, then each page's text and image in order."""
        problem = invalid(arguments)
        if problem is not None:
            return fill_template(self.contract.say("invalid", message=problem), error=True)
        results: list[dict[str, Any]] = []
        parts: list[Part] = []
        meta: dict[str, Any] = {"verdict": "exact", "captures": []}
        pages_read = 0
        for source in arguments["sources"]:
            found = FoundPage("")
            try:
                data, texts, count, found = self._source(source, arguments, visit)
            except _Missing as missing:
                found = missing.found
                results.append(self._failed(source, missing))
            except SourceRefused as refused:
                results.append(self._failed(source, refused))
                found.verdict = "exact"  # the argument is wrong, so no request was made
            else:
                pages_read += count
                results.append({"source": _name(source), "success": True, "data": data})
                parts += texts
            meta["verdict"] = weaker_verdict(meta["verdict"], found.verdict)
            meta["captures"] += found.meta()["captures"]
            if found.ambiguous:
                meta["ambiguous"] = True
            if (confidence := combine(Confidence.read(meta), found.confidence)) is not None:
                meta |= confidence.members()
            if found.uploads:
                meta.setdefault("uploads", []).extend(found.uploads)
            if found.nearest:
                meta.setdefault("nearest", []).extend(found.nearest)
            meta.setdefault("address", found.url or _name(source))
        if self.most_pages is not None and pages_read > self.most_pages:
            text = f"limit reached: {pages_read} pages in one call are over the limit of {self.most_pages}"
            return fill_template(
                text, error=True, **meta, limit="pages", most=self.most_pages, asked=pages_read
            )
        if not any(result["success"] for result in results):
            errors = "; ".join(result["error"] for result in results)
            return fill_template(self.contract.say("all_failed", errors=errors), error=True, **meta)
        return ToolResult([{"type": "text", "text": script_json({"results": results})}, *parts], False, meta)

    def _failed(self, source: dict[str, Any], reason: Exception) -> dict[str, Any]:
        error = self.contract.say("failed", source=_name(source), reason=reason)
        return {"source": _name(source), "success": False, "error": error}

    def _source(
        self, source: dict[str, Any], arguments: dict[str, Any], visit: Visit
    ) -> tuple[dict[str, Any], list[Part], int, FoundPage]:
        try:
            wanted = wanted_pages(source.get("pages"), self.contract)
        except ValueError as error:
            raise SourceRefused(self.contract.say("pages", source=_name(source), reason=error)) from error
        file = self._file(source["path"], visit) if source.get("path") else None
        if file is None:
            text, found = self._load(source, visit)
        else:
            text, found = self._read(source["path"], file), FoundPage("", "exact")
            found.uploads.append({"name": source["path"], "digest": f"sha256:{sha256(file).hexdigest()}"})
        pages = text.pages or ()
        total = len(pages)
        data: dict[str, Any] = {}
        if _flag(arguments, "include_page_count", True):
            data["num_pages"] = total
        if _flag(arguments, "include_metadata", True):
            data["info"] = ordered_info(text.meta.get("info", {}))
            if text.meta.get("xmp"):
                # PDF.js keeps the entries private, so the real tool shows an empty object
                data["metadata"] = {}
        beyond = [n for n in wanted or () if n > total]
        if beyond:
            data["warnings"] = [self.contract.say("beyond", pages=", ".join(map(str, beyond)), total=total)]
        if wanted is not None:
            chosen = [n for n in wanted if n <= total]
        else:
            chosen = list(range(1, total + 1)) if _flag(arguments, "include_full_text", False) else []
        if not chosen:
            return data, [], 0, found
        # the real tool joins a page's lines without a separator in its JSON, and by line breaks in the parts after it
        texts = [{"page": n, "text": pages[n - 1].replace("\n", "")} for n in chosen]
        if wanted is not None:
            data["page_texts"] = texts
        else:
            data["full_text"] = "\n\n".join(str(page["text"]) for page in texts)
        images: dict[int, bytes] = {}
        if _flag(arguments, "include_images", False):
            body = file if file is not None else unpack_body(visit.read(found))[0]
            images = self._images(body, chosen)
            data["image_info"] = [
                {"page": n, "index": 0, "width": width, "height": height, "format": "rgb"}
                for n, image in images.items()
                for width, height in [png_size(image)]
            ]
            if undrawn := [n for n in chosen if n not in images]:
                told = self.contract.say("undrawn", pages=", ".join(map(str, undrawn)))
                data["warnings"] = [*data.get("warnings", ()), told]
        parts: list[Part] = []
        for n in chosen:
            if pages[n - 1].strip():
                parts.append({"type": "text", "text": self.contract.say("page", page=n, text=pages[n - 1])})
            if n in images:
                parts.append(
                    {"type": "image", "data": base64.b64encode(images[n]).decode(), "mimeType": "image/png"}
                )
        return data, parts, len(chosen), found

    def _load(self, source: dict[str, Any], visit: Visit) -> tuple[FrozenText, FoundPage]:
        say = self.contract.say
        url = source.get("url")
        if not url:
            raise SourceRefused(say("which", source=_name(source)))
        found = visit.follow(url)
        if found.capture is None:
            raise _Missing(say("not_loaded", source=url, reason=self.contract.strings["fetch_failed"]), found)
        if found.capture.status >= 300:
            reason = say("status", status=found.capture.status, url=url)
            raise _Missing(say("not_loaded", source=url, reason=reason), found)
        text = visit.store.text_of(found.capture) or _called_otherwise(found.capture, visit.read(found))
        key = ""
        if text is None or text.media != PDF or text.pages is None:
            key = "not_a_pdf"
        elif text.meta.get("readable") is False:
            key = "password" if text.meta.get("encrypted") else "not_a_pdf"
        if text is None or key:
            key = key if visit.read(found).body else "empty"
            raise _Missing(say("not_loaded", source=url, reason=self.contract.strings[key]), found)
        return text, found

    def _file(self, path: str, visit: Visit) -> bytes:
        """Return a file of the session's workspace. Raise SourceRefused ("not found") for any other path."""
        try:
            return visit.workspace.read(path)
        except (OSError, OutsideWorkspace):
            raise SourceRefused(self.contract.say("not_found", path=path)) from None

    def _read(self, path: str, body: bytes) -> FrozenText:
        """Return the text of a PDF file. Raise SourceRefused if it is not a PDF or can't be read."""
        text = extract(None, Response(200, "OK", (("Content-Type", PDF),), body), address=path)
        if text is None or text.pages is None or text.meta.get("readable") is False:
            key = "empty" if not body else "password" if text and text.meta.get("encrypted") else "not_a_pdf"
            reason = self.contract.strings[key]
            raise SourceRefused(self.contract.say("not_loaded", source=path, reason=reason))
        return text

    def _images(self, body: bytes, pages: list[int]) -> dict[int, bytes]:
        """Draw whole pages as PNG, which show scans, figures and tables alike; skip pages that can't be drawn."""
        images: dict[int, bytes] = {}
        for n in pages[:IMAGES_PER_CALL]:
            with contextlib.suppress(ValueError):
                images[n] = page_image(body, n)
        return images


class _Missing(SourceRefused):
    """Error for a source that the snapshot lacks, or that is not a readable PDF there."""

    def __init__(self, reason: str, found: FoundPage) -> None:
        super().__init__(reason)
        self.found = found


def _called_otherwise(capture: Capture, response: Response) -> FrozenText | None:
    """Return the text of a PDF served with another media type, else None: the real tool looks at the bytes alone."""
    if sniff(unpack_body(response)[0]) != PDF:
        return None
    fields = tuple(field for field in response.headers if field[0].lower() != "content-type")
    return extract(capture, replace(response, headers=(*fields, ("Content-Type", PDF))))


def _name(source: dict[str, Any]) -> str:
    return str(source.get("path") or source.get("url") or "unknown source")


def _flag(arguments: dict[str, Any], name: str, default: bool) -> bool:
    value = arguments.get(name)
    return default if value is None else bool(value)


def invalid(arguments: Any) -> str | None:
    """Return the first error in the arguments, in the words of the real tool's checker, or None."""
    sources = arguments.get("sources") if isinstance(arguments, dict) else None
    if not isinstance(sources, list):
        return "sources: Expected array"
    for number, source in enumerate(sources):
        at = f"sources: [{number}]: "
        if not isinstance(source, dict):
            return at + "Expected object"
        for name in ("path", "url"):
            value = source.get(name)
            if name in source and not isinstance(value, str):
                return f"{at}{name}: Expected string"
            if value == "":
                return f"{at}{name}: Too short"
        if "pages" in source:
            pages = source["pages"]
            numbers = isinstance(pages, list) and all(
                isinstance(n, int | float) and not isinstance(n, bool) and n >= 1 and n % 1 == 0
                for n in pages
            )
            if not numbers and not (isinstance(pages, str) and pages):
                return at + "pages: Value does not match any type in union"
    for name in ("include_full_text", "include_metadata", "include_page_count", "include_images"):
        if name in arguments and not isinstance(arguments[name], bool):
            return f"{name}: Expected boolean"
    return None


def wanted_pages(pages: Any, contract: Contract) -> list[int] | None:
    """Return the requested page numbers, sorted; None for all. Raise ValueError with the tool's words."""
    if pages is None:
        return None
    if isinstance(pages, list):
        if not pages:
            raise ValueError(contract.strings["empty_pages"])
        return sorted({int(n) for n in pages})
    numbers: set[int] = set()
    for part in pages.split(","):
        part = part.strip()
        if "-" in part:
            first, last = part.split("-")[:2]
            start = _leading_int(first)
            end = start + MOST_RANGE if last == "" and start is not None else _leading_int(last)
            if start is None or end is None or start <= 0 or start > end:
                raise ValueError(contract.say("page_range", part=part))
            numbers.update(range(start, min(end, start + MOST_RANGE) + 1))
        else:
            number = _leading_int(part)
            if number is None or number <= 0:
                raise ValueError(contract.say("page_number", part=part))
            numbers.add(number)
    return sorted(numbers)


def _leading_int(text: str) -> int | None:
    """Return the integer that a text begins with, as JavaScript's parseInt; None if there is none."""
    match = _INT.match(text)
    if match is None:
        return None
    number = float(match[1][:_DIGITS])
    return int(number) if abs(number) > 2**53 else int(match[1])


def png_size(data: bytes) -> tuple[int, int]:
    """Return the width and height of a PNG."""
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
