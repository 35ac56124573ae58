"""Late secrets: secrets that became known only after a record with them had been stored.

The recorder replaces a secret from the moment it learns it. Earlier records can still hold it: a page that
showed a token before another answer gave the token a name. Nothing is rewritten, since offsets and digests
must stand. Such records are found at the recording's end and noted in the snapshot's directory, and sealing
refuses them. If a recording was killed, sealing searches first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stillweb.snapshots._os.locking import locked_directory
from stillweb.snapshots.errors import DamagedInput, GateFailed
from stillweb.snapshots.operations.leaks import VIEWED, body_pieces, messages_of_socket, public_url
from stillweb.snapshots.secrets.keystore import LEARNED, state_dir
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.snapshots.capture import Capture
    from stillweb.snapshots.secrets.redact import Redactor
    from stillweb.snapshots.snapshot import Snapshot

FILE = "stillweb/late.json"
MOST_TOLD = 20  # most records that an error names
WAY = "if the secret may become known, seal with --keep-secrets (keep_secrets=True) and use the sealed file"


@dataclass(frozen=True, slots=True)
class LateSecret:
    """A record with a secret in it: its URL (without query), its place, and the part with the secret."""

    url: str
    record: str  # "FILE:OFFSET" of a capture, or the URI of a view's resource
    part: str

    def __str__(self) -> str:
        return f"{self.record}: a secret that was recognised only later, in the {self.part} of {self.url}"


def find(snapshot: Snapshot, redactor: Redactor) -> list[LateSecret]:
    """Find records that hold a secret which the redactor knows by now.

    Captures come first, in recorded order; then views, web sockets and failed requests.
    """
    if not redactor.count:
        return []
    found: list[LateSecret] = []
    for capture in snapshot.captures():
        place = f"{capture.filename}:{capture.offset}"
        for part, pieces in _parts(snapshot, capture):
            if redactor.knows(pieces):
                found.append(LateSecret(public_url(capture.url), place, part))
    for view in snapshot.views():
        for kind in VIEWED:
            data = snapshot.resource(kind, view.address)
            if data and redactor.knows([data]):
                found.append(LateSecret(public_url(view.url), f"urn:{kind}:{view.address}", f"view's {kind}"))
    for address, value in snapshot.conversations():
        if redactor.knows([b"\n".join(data for _, data in messages_of_socket(value))]):
            found.append(
                LateSecret(public_url(address), f"metadata of {public_url(address)}", "web socket's messages")
            )
    for failure in snapshot.failures():
        request, given = failure.request, failure.proxy_response
        parts = [request.url, failure.message, given.body if given is not None else ""]
        texts = [text.encode("utf-8", "surrogatepass") for text in parts]
        if redactor.knows([b"\n".join([*texts, _text(request.headers), request.body])]):
            where = public_url(request.url)
            found.append(LateSecret(where, f"metadata of {where}", "request that failed"))
    return list(dict.fromkeys(found))


def _parts(snapshot: Snapshot, capture: Capture) -> Iterator[tuple[str, Iterator[bytes]]]:
    yield "url", iter([capture.url.encode("utf-8", "replace")])
    if capture.request_offset >= 0:
        request = snapshot.read_request(capture)
        yield "request", iter([_text(request.headers), request.body])
    headers = snapshot.head(capture).headers
    yield "response header", iter([_text(headers)])
    yield "response body", body_pieces(snapshot, capture, headers)


def _text(headers: tuple[tuple[str, str], ...]) -> bytes:
    return "\n".join(f"{name}: {value}" for name, value in headers).encode("latin-1", "replace")


def look_through(path: Path, redactor: Redactor) -> list[LateSecret]:
    """Note which records of an open snapshot hold a secret that `redactor` knows.

    Afterwards its stored list of learned secrets is deleted.
    """
    from stillweb.snapshots.snapshot import Snapshot

    found: list[LateSecret] = []
    if redactor.count:
        with Snapshot.open(path) as snapshot:
            found = find(snapshot, redactor)
        add_late_secrets(path, found)
    if redactor.learned is not None and redactor.learned.read()[1]:
        redactor.learned.forget()
    return found


def refuse(path: str | os.PathLike[str], state: Path | None = None) -> None:
    """Raise GateFailed if `path` is an open snapshot with late secrets. Call it before giving away a copy.

    A snapshot whose recorder has not searched for them (it was killed, or had no time) is searched first.
    `state` is the directory with the recording user's key (default: this user's). Raises UsageError while the
    recording goes on.
    """
    directory = Path(os.fspath(path).removeprefix("file://"))
    _catch_up(directory, state or state_dir())
    if known := read_late_secrets(directory):
        listed = [str(one) for one in known[:MOST_TOLD]]
        if len(known) > MOST_TOLD:
            listed.append(f"{len(known) - MOST_TOLD} more: {directory / FILE}")
        raise GateFailed(
            "\n".join([f"{directory}: a secret stands in {pluralize(len(known), 'record')}; {WAY}", *listed])
        )


def _catch_up(path: Path, state: Path) -> None:
    from stillweb.snapshots.secrets.redact import Redactor

    if not (path / LEARNED).exists():
        return
    with locked_directory(path, "is being recorded into by another process"):
        look_through(path, Redactor.for_snapshot(path, state, keep=True))
    if (path / LEARNED).exists():
        raise GateFailed(
            f"{path}: its recording ended before it was looked through for late secrets, and what it knew "
            f"({path / LEARNED}) can't be read with this user's key; {WAY}"
        )


def add_late_secrets(path: Path, found: list[LateSecret]) -> None:
    """Add late secrets to the list in an open snapshot's directory."""
    if not found:
        return
    all_of_it = list(dict.fromkeys([*read_late_secrets(path), *found]))
    target = path / FILE
    target.parent.mkdir(exist_ok=True)
    temporary = target.with_name(f".late-{os.getpid()}.json")
    temporary.write_text(json.dumps([asdict(one) for one in all_of_it], indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, target)


def read_late_secrets(path: Path) -> list[LateSecret]:
    """Return the late secrets noted in an open snapshot's directory. Raises DamagedInput."""
    target = path / FILE
    try:
        return [LateSecret(**one) for one in json.loads(target.read_text(encoding="utf-8"))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (ValueError, TypeError) as error:
        raise DamagedInput(
            f"{target}: is not a list of records ({error}); delete it if you know them"
        ) from error
