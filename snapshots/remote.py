"""Files at a remote address, read by ranges: S3 and other fsspec file systems, the Hugging Face hub, OCI registries.

Blocks that were read are kept in the cache of this machine. A file whose SHA-256 or block digests are known is
checked against them as it arrives; any other file is checked not to have changed since it was opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ipaddress
import json
import os
import re
import shutil
import socket
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Annotated, Any, NamedTuple, Protocol
from urllib.parse import urljoin, urlsplit

import msgspec

from stillweb.snapshots._os.atomic_write import atomic_file
from stillweb.snapshots._os.cache import cache_dir
from stillweb.snapshots.errors import (
    FULL_DISK,
    DamagedInput,
    MissingCapability,
    NoRoom,
    StillwebError,
    UsageError,
)
from stillweb.snapshots.extras import missing_extra, require
from stillweb.snapshots.warc.container import PACKAGE

BLOCK = 1 << 20  # bytes of a cached block
DIGEST = 32  # bytes of a SHA-256
KEPT = 16 << 30  # bytes of cached blocks; the oldest are deleted first
MOST = 256 << 20  # bytes of one answer of an HTTP server, S3 or the hub
LISTED = 32 << 20  # bytes of all answers of S3 that list files: 100,000 of them
LEAST = 1 << 16  # bytes that an answer counts for at least, so that small ones come to an end, too
SILENCE = 60  # seconds without a byte after which a store fails; oras and huggingface_hub wait for ever
CARD = "README.md"  # of a publication, for people
FILES = "files/"  # folder of a published folder: its files, by digest
_SHA256 = re.compile("[0-9a-f]{64}")
_SENT = re.compile(rf"{FILES}[0-9a-f]{{64}}/")
HUB, OCI = "hub:", "oci://"
FORMS = "PATH, hub:OWNER/SET[@REV][/FILE], oci://HOST/NAME:TAG, s3://BUCKET/KEY or https://…"
_HUB = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<rev>[^/]+))?(?:/(?P<path>.+?))?/?\Z")
_OCI = re.compile(
    r"(?P<host>[^/]+)/(?P<name>[a-z0-9._/-]+?)(?::(?P<tag>\w[\w.-]*))?(?:@(?P<pin>sha256:[0-9a-f]{64}))?\Z"
)
_OTHER_RANGE = "sends another range than was asked for"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Return True if a path is an address of a store and not of the local file system."""
    return isinstance(path, str) and (
        path.startswith((HUB, "oci:")) or ("://" in path and not path.startswith("file://"))
    )


def absolute(path: str | os.PathLike[str]) -> str:
    """Return a path that means the same in every working directory; a remote address as it is."""
    return str(path) if is_remote(path) else os.path.abspath(path)


def local(path: str | os.PathLike[str]) -> Path:
    """Return a path to write to. Raise UsageError for a remote address: results are written to this machine."""
    if is_remote(path):
        raise UsageError(
            f"{path}: can't be written there. Write to a local path, then: stillweb publish PATH --to {path}"
        )
    return Path(path)


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a store. `read` returns the bytes from start to end; `version` changes with the bytes."""

    name: str
    size: int
    version: str
    read: Callable[[int, int], bytes]
    sha256: str = ""  # hex, where the store tells it
    current: Callable[[], str] | None = None  # the version now; None if the version can't change


class Store(Protocol):
    """The files at an address, and the means to add some."""

    address: str
    pinned: str  # the address of the version that `files` found

    def files(self) -> dict[str, RemoteFile]:
        """Return the files by path; the path is "" if the address is of one file."""

    def path_of(self, name: str, sha256: str) -> str:
        """Return the path under which a published file is kept."""

    def put(self, name: str, source: Path, sha256: str) -> bool:
        """Send a file if the store lacks it; return True if so. It need not be visible before `commit`."""

    def commit(self, files: Sequence[tuple[str, Path, str]], message: str) -> str:
        """Make the files (path, source, SHA-256) visible, the last one last. Return the address of this version."""


def open_store(address: str) -> Store:
    """Return the store at an address. Raises UsageError and MissingCapability."""
    if address.startswith(HUB):
        return HubStore(address)
    if address.startswith("oci:"):
        return OciStore(address)
    return FsspecStore(address)


# -- errors of stores


@contextlib.contextmanager
def plain_errors(address: str, failed: type[StillwebError] = MissingCapability) -> Iterator[None]:
    """Turn the errors of the stores' libraries into errors of one line; those of network and store are `failed`."""
    try:
        yield
    except StillwebError:
        raise
    except ImportError as error:
        missing = error.__cause__ if isinstance(error.__cause__, ImportError) else error  # fsspec wraps it
        raise (
            missing_extra(missing) or MissingCapability(f"{address}: needs another package: {error}")
        ) from error
    except PermissionError as error:
        raise MissingCapability(
            f"{address}: access denied ({_line(error)}). Check the credentials of this store."
        ) from error
    except Exception as error:
        # huggingface_hub raises a RuntimeError of a large file that it can't send, and fsspec takes every failure of a
        # server (a loop of redirects, a status of 500) for a file that is not there
        wrapped = isinstance(error, (RuntimeError, FileNotFoundError)) and error.__cause__ is not None
        cause: BaseException | None = error.__cause__ if wrapped else error
        if not isinstance(cause, _store_errors()):
            raise
        if isinstance(cause, OSError) and cause.errno in FULL_DISK:
            raise NoRoom.at(address, cause.strerror, "free some space and try again") from error
        status = _status(cause)
        if status in (401, 403):
            raise MissingCapability(
                f"{address}: access denied (status {status}). Check the credentials of this store."
            ) from error
        if status == 404 or isinstance(cause, FileNotFoundError):
            raise UsageError(f"{address}: no such file or directory") from error
        raise failed(
            f"{address}: the store fails: {type(cause).__name__}: {_line(cause)}. Check the address, the network and the credentials."
        ) from error


@contextlib.contextmanager
def _list_of_files(address: str) -> Iterator[None]:
    """Raise DamagedInput for a list of another form, which the stores' libraries read without a check."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        if isinstance(error, _store_errors()):
            raise
        raise DamagedInput(f"{address}: the store lists no files there: {_line(error)}") from error


def _status(error: BaseException | None) -> object:
    """Return the HTTP status in an error of requests, httpx, botocore or aiohttp; None if there is none."""
    answer = getattr(error, "response", None)
    if isinstance(answer, dict):
        return answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return getattr(answer, "status_code", getattr(error, "status", None))


def _store_errors() -> tuple[type[BaseException], ...]:
    """Return the error classes of the libraries that are loaded."""
    found: list[type[BaseException]] = [OSError, TimeoutError]
    for module, name in (
        ("botocore.exceptions", "BotoCoreError"),
        ("botocore.exceptions", "ClientError"),
        ("aiohttp", "ClientError"),
        ("httpx", "HTTPError"),
        ("httpx2", "HTTPError"),
        ("requests", "RequestException"),
        ("huggingface_hub.errors", "HfHubHTTPError"),
        ("huggingface_hub.errors", "HFValidationError"),
        ("fsspec.exceptions", "FSTimeoutError"),
    ):
        if module in sys.modules:
            found.append(getattr(sys.modules[module], name))
    return tuple(found)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


_REDIRECTS = (301, 302, 303, 307, 308)
_INSIDE = "redirects to this machine or a private network"


def _leads_inside(at: str, to: str) -> bool:
    """Return True if a redirect of a public server leads to this machine or a private network: to its services, or a cloud's metadata."""
    try:
        here, there = urlsplit(at).hostname, urlsplit(urljoin(at, to)).hostname
    except ValueError:  # no address
        return False
    return bool(there) and there != here and _is_inside(there) and not _is_inside(here)


def _is_inside(host: str | None) -> bool:
    """Return True if a host has an address that is not public."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # its connection will fail, too
        return False
    return any(not ipaddress.ip_address(str(one[4][0]).partition("%")[0]).is_global for one in found)


# -- reading by blocks


class RemoteSource:
    """A remote file, read in blocks that stay in the cache. `blocks` are their SHA-256, where they are known."""

    def __init__(self, file: RemoteFile, blocks: Sequence[str] | None = None, name: str = "") -> None:
        if blocks is None and file.sha256 and file.size <= BLOCK:
            blocks = [file.sha256]
        if blocks is not None and len(blocks) != -(-file.size // BLOCK):
            raise DamagedInput(f"{name or file.name}: has another size than the list of published files says")
        if not all(map(_SHA256.fullmatch, blocks or ())):  # each is a file's name in the cache
            raise DamagedInput(
                f"{name or file.name}: the list of published files has no SHA-256 of its blocks"
            )
        self.size = file.size
        self.name = name or file.name
        self._file = file
        self._blocks = blocks
        self._checked: set[int] = set()  # numbers of cached blocks with the right digest
        known = f"{file.name} {file.size} {file.version}".encode("utf-8", "backslashreplace")
        self._key = hashlib.sha256(known).hexdigest()
        self._folder = cache_dir() / "blocks"

    def read(self, offset: int, length: int) -> bytes:
        end = min(offset + length, self.size)
        if not 0 <= offset < end:
            return b""
        first, last = offset // BLOCK, (end - 1) // BLOCK
        pieces = [self._cached(n) for n in range(first, last + 1)]
        for start in [n for n, piece in enumerate(pieces) if piece is None]:
            if pieces[start] is None:
                stop = start
                while stop < len(pieces) and pieces[stop] is None:
                    stop += 1
                pieces[start:stop] = self._fetched(first + start, first + stop)
        data = b"".join(piece for piece in pieces if piece is not None)
        return data[offset - first * BLOCK : end - first * BLOCK]

    def _path(self, number: int) -> Path:
        name = self._blocks[number] if self._blocks is not None else f"{self._key}-{number}"
        return self._folder / name[:2] / name

    def _cached(self, number: int) -> bytes | None:
        """Return a block of the cache; None if it is not there, or was damaged on this disk."""
        try:
            kept = self._path(number).read_bytes()
        except FileNotFoundError:
            return None
        data, digest = kept[:-DIGEST], kept[-DIGEST:]
        if len(data) != min(BLOCK, self.size - number * BLOCK):
            return None
        if number not in self._checked:
            if hashlib.sha256(data).digest() != digest:
                return None
            self._checked.add(number)
        return data

    def _fetched(self, first: int, stop: int) -> list[bytes | None]:
        """Read the blocks from `first` to before `stop` from the store, check them and keep them."""
        start, end = first * BLOCK, min(stop * BLOCK, self.size)
        with plain_errors(self.name, DamagedInput):
            data = self._file.read(start, end)
            if self._blocks is None and self._file.current is not None:
                now = self._file.current()
                if now != self._file.version:
                    raise DamagedInput(f"{self.name}: was replaced while it was being read. Open it again.")
        if len(data) != end - start:
            raise DamagedInput(
                f"{self.name}: offset {start}: the store gave {len(data)} of {end - start} bytes"
            )
        pieces: list[bytes | None] = []
        for number in range(first, stop):
            piece = data[number * BLOCK - start : (number + 1) * BLOCK - start]
            if self._blocks is not None and hashlib.sha256(piece).hexdigest() != self._blocks[number]:
                raise DamagedInput(
                    f"{self.name}: offset {number * BLOCK}: differs from what was published (another SHA-256). Don't use it."
                )
            _keep(self._path(number), piece)
            pieces.append(piece)
        return pieces

    def close(self) -> None:
        """Do nothing: there is no resource to free."""


def _keep(path: Path, data: bytes) -> None:
    """Write a block and its SHA-256 to the cache; a full disk only costs another download."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(data + hashlib.sha256(data).digest())
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)
    except OSError:
        return


def drop_old_blocks(most: int = KEPT) -> None:
    """Delete the oldest cached blocks until `most` bytes are left."""
    found = []
    for path in (cache_dir() / "blocks").glob("*/*"):
        with contextlib.suppress(FileNotFoundError):
            state = path.stat()
            found.append((state.st_mtime, state.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= most:
            return
        path.unlink(missing_ok=True)
        total -= size


# -- fsspec


class FsspecStore:
    """A file or folder of an fsspec file system; also a local folder to publish to."""

    def __init__(self, address: str) -> None:
        self.address = self.pinned = self._url = address
        self._pid = -1
        self._fs: Any = None
        self._path = ""

    def _open(self) -> tuple[Any, str]:
        """Return the file system and the path in it. A child process opens its own connections."""
        import fsspec

        if self._pid != os.getpid():
            how: dict[str, Any] = {}
            if self._url.startswith(("http://", "https://")):
                how = {"client_kwargs": {"response_class": _bounded_response()}}
            elif self._url.startswith(("s3://", "s3a://")):
                require("s3fs")
                how = {"config_kwargs": {"http_session_cls": _bounded_session()}}
            try:
                self._fs, self._path = fsspec.core.url_to_fs(self._url, **how)
            except ValueError as error:  # a scheme that fsspec does not know
                raise UsageError(f"{self.address}: {error}. Known are {FORMS}.") from error
            if loop := getattr(self._fs, "loop", None):
                loop.set_exception_handler(_unheard)
            self._pid = os.getpid()
        return self._fs, self._path

    def files(self) -> dict[str, RemoteFile]:
        with plain_errors(self.address), _list_of_files(self.address):
            fs, root = self._open()
            fs.invalidate_cache()
            before = _LISTING.set(_Allowance(LISTED, f"lists files on more than {LISTED >> 20} MB"))
            try:
                info = fs.info(root)
                if info.get("type") != "directory":
                    return {"": self._file(root, info)}
                found = sorted(fs.find(root, detail=True).items())
            finally:
                _LISTING.reset(before)
        head = root.rstrip("/") + "/"
        files = {path[len(head) :]: self._file(path, info) for path, info in found if path.startswith(head)}
        # without its list, which is sent last, a publication is not there yet
        return {name: file for name, file in files.items() if PACKAGE in files or not _SENT.match(name)}

    def _file(self, path: str, info: dict[str, Any]) -> RemoteFile:
        def read(start: int, end: int) -> bytes:
            return bytes(self._open()[0].cat_file(path, start=start, end=end))

        def current() -> str:
            fs, _ = self._open()
            fs.invalidate_cache(fs._parent(path))
            return _version(fs.info(path))

        size = info.get("size")
        if size is None:
            raise DamagedInput(f"{self.address}: the server does not give the size, so no ranges can be read")
        name, version = self._open()[0].unstrip_protocol(path), _version(info)
        if not version:  # the server tells neither ETag nor time: no cached block may be taken for its bytes
            return RemoteFile(name, int(size), f"opened {uuid.uuid4()}", read)
        return RemoteFile(name, int(size), version, read, current=current)

    def path_of(self, name: str, sha256: str) -> str:
        """Return a path by digest, so that nothing published is overwritten and old readers go on."""
        return f"{FILES}{sha256}/{name}"

    def put(self, name: str, source: Path, sha256: str) -> bool:
        if self._url.startswith(("http://", "https://")):
            raise UsageError(
                f"{self.address}: publishing over HTTP is not possible. Publish to s3://, hub:, oci:// or a folder."
            )
        with plain_errors(self.address):
            fs, root = self._open()
            path, size = f"{root.rstrip('/')}/{name}", source.stat().st_size
            if name.startswith(FILES) and fs.exists(path) and fs.info(path)["size"] == size:
                return False
            if isinstance(fs.protocol, tuple) and "file" in fs.protocol:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                with source.open("rb") as data, atomic_file(Path(path), wait=True) as out:
                    shutil.copyfileobj(data, out)
                return True
            fs.put_file(str(source), path)  # an object store shows a file once it is whole
            fs.invalidate_cache(fs._parent(path))
            if fs.info(path)["size"] != size:
                raise DamagedInput(f"{self.address}: {name} did not arrive whole. Publish it again.")
        return True

    def commit(self, files: Sequence[tuple[str, Path, str]], message: str) -> str:
        for name, source, sha256 in files:
            self.put(name, source, sha256)
        for name, source, sha256 in files:
            if name.endswith(f"/{CARD}"):  # also where people look for it
                self.put(CARD, source, sha256)
        return self.address


@dataclass(slots=True)
class _Allowance:
    """Bytes that a store may send, in one answer or in all that a list of files takes."""

    left: int
    fault: str  # of a store that sends more

    def take(self, size: int) -> None:
        import aiohttp

        self.left -= size
        if self.left < 0:
            raise aiohttp.ClientPayloadError(self.fault)


# fsspec runs a call on its loop in the context of its caller
_LISTING: ContextVar[_Allowance | None] = ContextVar("_LISTING", default=None)


@cache
def _bounded_response() -> type[Any]:
    """Return aiohttp's response, which keeps to an allowance and to the range that was asked for."""
    import aiohttp

    class Content:
        def __init__(self, content: aiohttp.StreamReader, allowance: _Allowance) -> None:
            self._content, self._allowance = content, allowance

        def __getattr__(self, name: str) -> Any:
            return getattr(self._content, name)

        async def read(self, most: int = -1) -> bytes:
            if most >= 0:
                return await self._content.read(most)
            # not in `start`, whose errors botocore takes for those of the network: it asks again for a minute
            self._allowance.take(LEAST)
            came = bytearray()
            while piece := await self._content.readany():
                self._allowance.take(len(piece))
                came += piece
            return bytes(came)

    class BoundedResponse(aiohttp.ClientResponse):
        async def start(self, connection: Any) -> aiohttp.ClientResponse:
            await super().start(connection)
            to = self.headers.get("Location")
            if self.status in _REDIRECTS and to and await asyncio.to_thread(_leads_inside, str(self.url), to):
                raise aiohttp.ClientPayloadError(_INSIDE)
            asked = re.match(r"bytes=(\d+)-(\d+)", self.request_info.headers.get("Range", ""))
            if not self.ok or asked is None:
                allowance = _LISTING.get() or _Allowance(MOST, f"sends more than {MOST >> 20} MB at once")
            elif self.status == 206 and not _begins(self.headers.get("Content-Range"), int(asked[1])):
                allowance = _Allowance(0, _OTHER_RANGE)
            else:
                length = int(asked[2]) + 1 - int(asked[1])
                allowance = _Allowance(LEAST + length, "sends more than the range that was asked for")
            self.content: Any = Content(self.content, allowance)
            return self

    return BoundedResponse


@cache
def _bounded_session() -> type[Any]:
    """Return aiobotocore's session with bounded responses, which follows no redirect to another host.

    It would take the credentials' session token there. The region that S3 names in one is botocore's to follow.
    """
    from aiobotocore.httpsession import AIOHTTPSession

    class BoundedSession(AIOHTTPSession):  # type: ignore[misc]
        async def _get_session(self, proxy_url: Any) -> Any:
            session = await super()._get_session(proxy_url)
            session._response_class = _bounded_response()
            return SimpleNamespace(request=partial(session.request, allow_redirects=False))

        async def send(self, request: Any) -> Any:
            listing = _LISTING.get()
            # botocore took the end of an allowance for a closed connection, and asks again
            if listing is not None and listing.left < 0:
                raise OSError(listing.fault)
            answer = await super().send(request)
            status, fields = answer.status_code, answer.headers
            if status in _REDIRECTS and "x-amz-bucket-region" not in fields:
                raise OSError(f"redirects elsewhere (status {status})")
            return answer

    return BoundedSession


def _unheard(loop: Any, context: dict[str, Any]) -> None:
    """Log the failure of a task on fsspec's loop, unless its connection was cut: then its request reports it."""
    if not isinstance(context.get("exception"), ConnectionError):
        loop.default_exception_handler(context)


def _version(info: dict[str, Any]) -> str:
    """Return the ETag or time that a store tells; a listing may give a time as a number, and as a datetime alone."""
    versions = next(
        (info[k] for k in ("ETag", "etag", "LastModified", "mtime", "created") if info.get(k)), ""
    )
    return str(versions.timestamp() if isinstance(versions, datetime) else versions)


# -- the Hugging Face hub


class _Answer(NamedTuple):
    status_code: int
    headers: Mapping[str, str]
    content: bytes


def _stay_outside(answer: Any) -> None:
    """Raise OSError for a redirect of a public server into a private network."""
    to = answer.headers.get("Location")
    if answer.status_code in _REDIRECTS and to and _leads_inside(str(answer.request.url), to):
        raise OSError(_INSIDE)


def hub_client() -> ModuleType:
    """Import huggingface_hub, without its telemetry.

    It would ask the hub which environment variables to look for, tell it of those that are set, and keep the
    list, whatever it is.
    """
    hub, constants = require("huggingface_hub"), require("huggingface_hub.constants")
    constants.HF_HUB_DISABLE_TELEMETRY = True  # type: ignore[attr-defined]
    return hub


class _Large(msgspec.Struct):
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _Sibling(msgspec.Struct):
    rfilename: str
    size: Annotated[int, msgspec.Meta(ge=0)]
    blob_id: str
    lfs: _Large | None = None


class _DataSet(msgspec.Struct):
    sha: str
    siblings: list[_Sibling] | None = None


class HubStore:
    """A data set on the Hugging Face hub, read at the commit that its revision names when it is opened."""

    def __init__(self, address: str) -> None:
        self.address = self.pinned = address
        named = _HUB.match(address.removeprefix(HUB))
        if named is None:
            raise UsageError(
                f"{address}: no data set of the hub. Write it hub:OWNER/SET, with @REV for a revision."
            )
        self._repo, self._revision, self._inner = named["repo"], named["rev"], named["path"]
        self._hub = hub_client()
        self._listed: dict[str, RemoteFile] = {}

    def _api(self) -> Any:
        api = self._hub.HfApi()
        session = self._hub.utils.get_session()
        session.timeout = SILENCE
        hooks = session.event_hooks
        if _stay_outside not in hooks["response"]:
            session.event_hooks = {**hooks, "response": [*hooks["response"], _stay_outside]}
        return api

    def files(self) -> dict[str, RemoteFile]:
        with plain_errors(self.address), _list_of_files(self.address):
            info = self._api().repo_info(
                self._repo, repo_type="dataset", revision=self._revision, files_metadata=True, timeout=SILENCE
            )
            told = msgspec.convert(info, _DataSet, from_attributes=True)
        self.pinned = f"{HUB}{self._repo}@{told.sha}" + (f"/{self._inner}" if self._inner else "")
        listed = {file.rfilename: self._file(file, told.sha) for file in told.siblings or ()}
        self._listed = listed
        if self._inner is None:
            return listed
        if self._inner in listed:
            return {"": listed[self._inner]}
        below = {
            p.removeprefix(self._inner + "/"): f for p, f in listed.items() if p.startswith(self._inner + "/")
        }
        if not below:
            raise UsageError(f"{self.address}: the data set has no such file or folder")
        return below

    def _file(self, file: _Sibling, commit: str) -> RemoteFile:
        hub = self._hub
        url = hub.hf_hub_url(self._repo, file.rfilename, repo_type="dataset", revision=commit)

        def read(start: int, end: int) -> bytes:
            headers = {
                **hub.utils.build_hf_headers(),
                "Range": f"bytes={start}-{end - 1}",
                "Accept-Encoding": "identity",
            }
            came = bytearray()
            with hub.utils.get_session().stream("GET", url, headers=headers, timeout=SILENCE) as answer:
                for piece in answer.iter_raw(1 << 16):
                    came += piece
                    if len(came) > MOST:
                        raise DamagedInput(f"{self.address}: sends more than {MOST >> 20} MB at once")
            fields = [(n, v) for n, v in answer.headers.multi_items() if n != "content-encoding"]
            hub.utils.hf_raise_for_status(
                type(answer)(answer.status_code, headers=fields, content=bytes(came), request=answer.request)
            )
            return _ranged(_Answer(answer.status_code, answer.headers, bytes(came)), start, end)

        digest = "" if file.lfs is None else file.lfs.sha256
        return RemoteFile(f"{HUB}{self._repo}/{file.rfilename}", file.size, file.blob_id, read, digest)

    def path_of(self, name: str, sha256: str) -> str:
        return name

    def put(self, name: str, source: Path, sha256: str) -> bool:
        """Send nothing: the hub takes all files in one commit, and large ones that it has are not sent again."""
        there = self._listed.get(name)
        return there is None or (there.sha256 or sha256) != sha256 or there.size != source.stat().st_size

    def commit(self, files: Sequence[tuple[str, Path, str]], message: str) -> str:
        if self._inner is not None:
            raise UsageError(f"{self.address}: publishing takes a whole data set, without /{self._inner}")
        with plain_errors(self.address):
            api = self._api()
            # private: publishing to everybody is a decision that its owner takes in the hub's settings
            api.create_repo(self._repo, repo_type="dataset", private=True, exist_ok=True)
            made = api.create_commit(
                self._repo,
                [self._hub.CommitOperationAdd(name, source) for name, source, _ in files],
                commit_message=message,
                repo_type="dataset",
                revision=self._revision,
            )
        return f"{HUB}{self._repo}@{made.oid}"


def _ranged(answer: _Answer, start: int, end: int) -> bytes:
    """Return the requested range of a response; a server without ranges has sent the whole file."""
    data = answer.content
    if answer.status_code != 206:
        return data[start:end]
    if not _begins(answer.headers.get("Content-Range"), start):
        raise OSError(_OTHER_RANGE)
    return data


def _begins(content_range: str | None, start: int) -> bool:
    """Return True if a response of a part says that it begins at `start` (RFC 9110, section 14.4)."""
    return (content_range or "").lower().startswith(f"bytes {start}-")


# -- OCI registries

_TITLE = "org.opencontainers.image.title"  # annotation: the file's path, as `oras push` writes it
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_ARTIFACT = "application/vnd.stillweb.package.v1"
_EMPTY = b"{}"  # the config of an artifact without one (OCI image specification 1.1)
_LONGEST = 4 << 20  # bytes of a manifest (OCI distribution specification 1.1)


class _Layer(msgspec.Struct):
    digest: Annotated[str, msgspec.Meta(pattern="^sha256:[0-9a-f]{64}$")]
    size: Annotated[int, msgspec.Meta(ge=0)]
    annotations: dict[str, str] | None = None


class _Manifest(msgspec.Struct):
    layers: list[_Layer] = []


class OciStore:
    """An artifact in an OCI registry; each file is a layer whose title is the file's path.

    A registry on loopback is asked over HTTP, any other over HTTPS; credentials are those of docker and oras.
    """

    def __init__(self, address: str) -> None:
        self.address = self.pinned = address
        named = _OCI.match(address.removeprefix(OCI))
        if named is None or not address.startswith(OCI):
            raise UsageError(
                f"{address}: no OCI address. Write it oci://HOST/NAME:TAG, with @sha256:… to pin it."
            )
        self._host, self._name, self._pin = named["host"], named["name"], named["pin"]
        self._tag = named["tag"] or ("" if self._pin else "latest")
        self._client: Any = None

    def _do(self, method: str, path: str, good: Sequence[int], most: int = _LONGEST, **how: Any) -> _Answer:
        """Send a request and return the response, at most `most` bytes of it.

        Raises requests.HTTPError for a status not in `good`.
        """
        require("oras")
        import requests
        from oras.container import Container
        from oras.provider import Registry

        plain = urlsplit(f"//{self._host}").hostname in _LOOPBACK
        base = f"{'http' if plain else 'https'}://{self._host}"
        if self._client is None:
            stay: Any = {"response": [lambda answer, **_: _stay_outside(answer)]}
            with requests.get(f"{base}/v2/", timeout=SILENCE, stream=True, hooks=stay) as hello:
                challenge = hello.headers.get("Www-Authenticate", "")
            backend = "basic" if challenge.lower().startswith("basic") else "token"
            self._client = Registry(self._host, insecure=plain, auth_backend=backend)
            self._client.session.request = partial(self._client.session.request, timeout=SILENCE)
            self._client.session.hooks = stay
            self._client.auth.load_configs(Container(self._name, self._host))
        url = (
            path
            if path.startswith("http")
            else f"{base}{path if path.startswith('/') else f'/v2/{self._name}/{path}'}"
        )
        # The undecorated method: oras sleeps two minutes before it says that a registry does not answer.
        ask = type(self._client).do_request.__wrapped__
        try:
            answer = ask(self._client, url, method, stream=True, **how)
        except requests.RequestException:  # of which some are a ValueError
            raise
        except (ValueError, AttributeError) as error:  # oras without credentials for the registry's challenge
            raise MissingCapability(
                f"{self.address}: access denied. Check the credentials of this store (`docker login {self._host}`)."
            ) from error
        content = bytearray()
        with answer:
            for piece in answer.iter_content(1 << 16):
                content += piece
                if len(content) >= most:
                    break
        if answer.status_code not in good:
            detail = content[:200].decode("utf-8", "replace")
            raise requests.HTTPError(
                f"{answer.status_code} {answer.reason} for {method} {path}: {detail}", response=answer
            )
        return _Answer(answer.status_code, answer.headers, bytes(content[:most]))

    def _manifest(self, reference: str) -> tuple[_Manifest, str]:
        """Return the manifest that a tag or digest names, and its digest."""
        answer = self._do("GET", f"manifests/{reference}", (200,), headers={"Accept": _MANIFEST})
        digest = "sha256:" + hashlib.sha256(answer.content).hexdigest()
        if reference.startswith("sha256:") and digest != reference:
            raise DamagedInput(f"{self.address}: the manifest is not the one asked for (another SHA-256)")
        try:
            return msgspec.json.decode(answer.content, type=_Manifest), digest
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise DamagedInput(f"{self.address}: the registry has no manifest there: {error}") from error

    def files(self) -> dict[str, RemoteFile]:
        with plain_errors(self.address):
            manifest, digest = self._manifest(self._tag or str(self._pin))
        if self._pin and digest != self._pin:
            raise UsageError(
                f"{self.address}: the tag was moved to {digest}. Leave out the tag to read the pinned digest."
            )
        self.pinned = f"{OCI}{self._host}/{self._name}@{digest}"
        found = {}
        for layer in manifest.layers:
            title = (layer.annotations or {}).get(_TITLE) or layer.digest
            found[title] = self._file(title, layer.digest, layer.size)
        return found

    def _file(self, title: str, digest: str, size: int) -> RemoteFile:
        def read(start: int, end: int) -> bytes:
            asked = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
            return _ranged(self._do("GET", f"blobs/{digest}", (200, 206), end, headers=asked), start, end)

        return RemoteFile(f"{self.address}/{title}", size, digest, read, digest.removeprefix("sha256:"))

    def path_of(self, name: str, sha256: str) -> str:
        return name

    def put(self, name: str, source: Path, sha256: str) -> bool:
        with plain_errors(self.address):
            if self._do("HEAD", f"blobs/sha256:{sha256}", (200, 404)).status_code == 200:
                return False
            begun = self._do("POST", "blobs/uploads/", (202,))
            to = begun.headers.get("Location")
            if to is None:
                raise DamagedInput(f"{self.address}: the registry names no place to send a file to")
            with source.open("rb") as data:
                self._do(
                    "PUT",
                    f"{to}{'&' if '?' in to else '?'}digest=sha256:{sha256}",
                    (201,),
                    data=data if source.stat().st_size else b"",
                    headers={"Content-Type": "application/octet-stream"},
                )
        return True

    def commit(self, files: Sequence[tuple[str, Path, str]], message: str) -> str:
        if not self._tag or self._pin:
            raise UsageError(f"{self.address}: publishing takes a tag, as oci://{self._host}/{self._name}:v1")
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "config"
            config.write_bytes(_EMPTY)
            self.put("config", config, hashlib.sha256(_EMPTY).hexdigest())
        for name, source, sha256 in files:
            self.put(name, source, sha256)
        layers = [
            {
                "mediaType": "application/octet-stream",
                "digest": f"sha256:{sha256}",
                "size": source.stat().st_size,
                "annotations": {_TITLE: name},
            }
            for name, source, sha256 in files
        ]
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "artifactType": _ARTIFACT,
            "config": {
                "mediaType": "application/vnd.oci.empty.v1+json",
                "digest": "sha256:" + hashlib.sha256(_EMPTY).hexdigest(),
                "size": len(_EMPTY),
            },
            "layers": layers,
            "annotations": {"org.opencontainers.image.description": message},
        }
        body = json.dumps(manifest, sort_keys=True).encode()
        with plain_errors(self.address):
            self._do("PUT", f"manifests/{self._tag}", (201,), data=body, headers={"Content-Type": _MANIFEST})
        return f"{OCI}{self._host}/{self._name}@sha256:{hashlib.sha256(body).hexdigest()}"
