"""Files uploaded to a page: named in steps by their content, and given to the page in a frozen form.

A step names a file by its name, size and digest, never by its place on this machine. The page gets the name,
type and bytes, and a time of its own clock. A view keeps the bytes of its steps' files, so that replay can
give them again.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from mimetypes import MimeTypes
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillweb.proxy.browser.errors import PageFailed, answered
from stillweb.snapshots.errors import UsageError
from stillweb.snapshots.secrets.detect import known_formats
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from playwright.async_api import ElementHandle, Locator, Page

    from stillweb.snapshots.secrets.redact import Redactor
    from stillweb.snapshots.snapshot import Snapshot
    from stillweb.snapshots.view import Step, View

File = dict[str, Any]  # in a step's form: name, size, digest, type
_FIELDS = ("name", "size", "digest", "type")
LARGEST = 50_000_000  # bytes of a file, which is handed to the browser as text
_TYPES = MimeTypes()  # Python's own table, not this machine's
_FIELD = """(e) => { const field = e.closest("label")?.control || e;
  return [field.localName === "input" && field.type === "file", field.disabled, field.multiple, field.webkitdirectory,
    field.localName + (field.localName === "input" ? ` of type ${field.type}` : "")]; }"""
# The element's world may be the driver's own, with this machine's clock, so the page's time is passed in.
_SET = """(e, [files, lastModified]) => {
  const all = new DataTransfer(), field = e.closest("label")?.control || e;
  for (const { name, type, data } of files) {
    const text = atob(data), bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    all.items.add(new File([bytes], name, { type, lastModified }));
  }
  field.files = all.files;
  field.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
  field.dispatchEvent(new Event("change", { bubbles: true }));
}"""


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file in the form in which a page gets it."""

    name: str
    type: str
    data: bytes


def type_of(name: str) -> str:
    """Return the media type of a file name, independent of this machine's table."""
    return _TYPES.guess_type(name)[0] or "application/octet-stream"


async def put(field: ElementHandle, page: Page, files: Iterable[UploadedFile]) -> None:
    """Give files to a field, or to that of a label, as if a person had chosen them."""
    frame = await field.owner_frame() or page
    plain = [
        {"name": one.name, "type": one.type, "data": base64.b64encode(one.data).decode()} for one in files
    ]
    await field.evaluate(_SET, [plain, await answered(frame.evaluate("() => Date.now()"))])


# ---- what a steps file names


def digest_of(data: bytes) -> str:
    """Return the digest by which a step names the bytes of a file."""
    return f"sha256:{sha256(data).hexdigest()}"


class Files:
    """The files that steps name, by paths relative to `folder`. `contents` collects their bytes by digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.contents: dict[str, bytes] = {}

    def take(self, value: object) -> File | list[File]:
        """Return the snapshot's form of a step's `file` field: a list if it is several. Raises UsageError."""
        if not isinstance(value, list):
            return self._take(value)
        if not value:
            raise UsageError("field 'file' is an empty list")
        found = [self._take(one) for one in value]
        return found if len(found) > 1 else found[0]

    def _take(self, file: object) -> File:
        """Read a file given by its path, or by a snapshot's entry if it is still the same file."""
        if isinstance(file, dict):
            if set(file) != set(_FIELDS) or file["name"] != Path(str(file["name"])).name:
                raise UsageError(
                    f"names a file with other fields than {', '.join(_FIELDS)}, or a name with a folder"
                )
        elif not isinstance(file, str) or not file.strip():
            raise UsageError(f"field 'file' must be a path, not {file!r}")
        path = self.folder / (file if isinstance(file, str) else file["name"])
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise UsageError(f"names {path}, which lies elsewhere. Put a copy beside the steps")
        data = _bytes_of(path)
        found: File = {
            "name": path.name,
            "size": len(data),
            "digest": digest_of(data),
            "type": type_of(path.name),
        }
        if isinstance(file, dict):
            if file != found | {"type": file["type"]}:
                raise UsageError(f"names {path}, whose content is not {file['digest']}")
            found |= {"type": str(file["type"])}
        self.contents[found["digest"]] = data
        return found


def _bytes_of(path: Path) -> bytes:
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise UsageError(f"names {path}, which has {size:,} bytes; the most is {LARGEST:,}")
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"names a file that can't be read: {path}: {error.strerror}") from None


# ---- what a view keeps of them


def files_of_steps(steps: Iterable[Step]) -> dict[str, File]:
    """Return the files of steps, each once, by digest in the order of the steps."""
    given = [step["upload"] for step in steps if "upload" in step]
    return {one["digest"]: one for arguments in given for one in files_of(arguments)}


def files_of(given: dict[str, Any]) -> list[File]:
    return given["file"] if isinstance(given["file"], list) else [given["file"]]


def names_of(given: dict[str, Any]) -> list[str]:
    """Return the names of the files that a step's arguments give."""
    return [one["name"] for one in files_of(given)]


def file_contents(steps: Iterable[Step], contents: Mapping[str, bytes]) -> bytes:
    """Return the bytes of the steps' files, one after the other. The steps say how long each is."""
    return b"".join(contents[digest] for digest in files_of_steps(steps))


def contents_of(snapshot: Snapshot, view: View) -> dict[str, bytes]:
    """Return the bytes of a view's files by digest, as `file_contents` stored them.

    Files that differ from their digest in the steps are left out.
    """
    named = files_of_steps(view.steps)
    data = (snapshot.resource("files", view.address) or b"") if named else b""
    return dict(_cut(data, named.values()))


def _cut(data: bytes, files: Iterable[File]) -> Iterator[tuple[str, bytes]]:
    at = 0
    for one in files:
        part = data[at : at + one["size"]]
        at += one["size"]
        if digest_of(part) == one["digest"]:
            yield one["digest"], part


# ---- the step


async def upload(
    element: Locator,
    page: Page,
    given: dict[str, Any],
    contents: Mapping[str, bytes],
    redactor: Redactor | None,
    *,
    named: str,
) -> None:
    """Give a step's files to its element. Raises PageFailed if it takes no files, or they can't be had."""
    wanted = files_of(given)
    is_field, disabled, several, folder, kind = await answered(element.evaluate(_FIELD))
    if not is_field:
        raise PageFailed(
            f"{named} is not a field for files but {kind}; name the field, such as css: input[type=file]"
        )
    if disabled:
        raise PageFailed(f"{named} is disabled")
    if folder:
        raise PageFailed(f"{named} takes a folder, not files")
    if len(wanted) > 1 and not several:
        raise PageFailed(f"{named} takes one file, not {pluralize(len(wanted), 'file')}")
    files = []
    for one in wanted:
        data = contents.get(one["digest"])
        if data is None:
            raise PageFailed(f"the bytes of {one['name']!r} ({one['digest']}) are not available")
        if redactor is not None and (redactor.knows([data]) or any(known_formats(data))):
            raise PageFailed(f"{one['name']!r} contains a secret, which would be stored; see --keep-secrets")
        files.append(UploadedFile(one["name"], one["type"], data))
    field = await element.element_handle()
    await put(field, page, files)
