"""Publications: a run or a sealed snapshot in a store, as files that a datapackage.json lists with their digests.

The files are sent first and the list last, so that a publication is whole or not there. A pull checks every digest
and puts its folder into place at the end.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillweb.harness._parsing import strict_json
from stillweb.harness.benchmarks.browsecomp.dataset import derive_key
from stillweb.harness.runs.run_files import ENCRYPTED, RunFiles, snapshots_now, trace_name
from stillweb.snapshots._os.atomic_write import atomic_folder, is_below
from stillweb.snapshots._os.random_access import ByteSource, MemorySource, chunks
from stillweb.snapshots.errors import FULL_DISK, DamagedInput, UsageError
from stillweb.snapshots.opening import PUBLISHED
from stillweb.snapshots.operations import late_secrets
from stillweb.snapshots.remote import BLOCK, CARD, RemoteFile, RemoteSource, Store, is_remote, open_store
from stillweb.snapshots.snapshot import Snapshot
from stillweb.snapshots.warc.appending import full_disk, write_whole
from stillweb.snapshots.warc.container import LARGEST_MEMBER, PACKAGE
from stillweb.snapshots.words import pluralize

_OPEN = ("run.json", "certificate.json")  # hashes, settings and sums; no text of a task
# an encrypted file, written and read in pieces: a snapshot need not fit in memory
_HEAD, _TAIL = b'{\n "canary": %s,\n "encrypted": "', b'"\n}\n'
_HEADS = re.compile(rb'\{\s*"canary":\s*("(?:[^"\\]|\\.)*"),\s*"encrypted":\s*"')
_PIECE = 3 * 32 << 14  # a multiple of base64's three bytes and of the key's 32
_LEFT_OUT = ("interrupted", "failed", ".secrets", ".begun")


def publish_run(run: Path, out: Path, *, without: Collection[str] = ()) -> tuple[int, int]:
    """Write a finished run for publication to `out`; return how many files there are and how many are encrypted.

    The files in `without`, named as in the run's folder, are left out.

    Raise UsageError if `out` is not empty, if `run` is unfinished or published already.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: is not empty; name another directory with -o")
    files = RunFiles(run)
    if any(path.suffix == ENCRYPTED for path in run.iterdir()):
        raise UsageError(f"{run}: is published already; --open decrypts it")
    settings, _ = files.manifest()
    canaries = {task.id: str(task.meta["canary"]) for task in files.tasks() if task.meta.get("canary")}
    if not (run / "certificate.json").exists():
        raise UsageError(f"{run}: has no certificate; run it to its end, or 'stillweb score {run} --write'")
    if settings.tape_path and not (run / "tape").exists():
        raise UsageError(f"{run}: its tape lies in {settings.tape_path}; copy it to {run / 'tape'} first")
    own = {
        f"traces/{trace_name(name, number)}": canary
        for name, canary in canaries.items()
        for number in range(1, settings.epochs + 1)
    }
    first = next(iter(canaries.values()), None)
    count = encrypted = 0
    with atomic_folder(out) as folder:
        for path, name in _files(run):
            if name in without:
                continue
            count += 1
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if first is None:
                shutil.copyfile(path, target)
            elif name in _OPEN:
                value = {**json.loads(path.read_text(encoding="utf-8")), "canary": first}
                write_whole(target, [_text(value)])
            else:
                encrypt(path, target.with_name(target.name + ENCRYPTED), own.get(name, first))
                encrypted += 1
    return count, encrypted


def encrypt(path: Path, target: Path, canary: str) -> None:
    """Write a file of any size in the set's own encryption."""

    def pieces() -> Iterator[bytes]:
        yield _HEAD % json.dumps(canary).encode()
        with path.open("rb") as plain:
            while piece := plain.read(_PIECE):
                yield base64.b64encode(_xor(piece, canary))
        yield _TAIL

    write_whole(target, pieces())


def _decrypt(path: Path, target: Path) -> None:
    """Write the plain file of an encrypted one. Raise DamagedInput for any other file."""
    with path.open("rb") as file:
        head = _HEADS.match(file.read(1 << 16))
        if head is None:
            raise DamagedInput(f"{path}: is not an encrypted file of a published run")
        canary = str(json.loads(head[1]))
        file.seek(head.end())

        def pieces() -> Iterator[bytes]:
            ended = False
            while piece := file.read(_PIECE // 3 * 4):
                text, quote, tail = piece.partition(b'"')
                try:
                    if ended or (quote and (quote + tail + file.read(len(_TAIL))) != _TAIL):
                        raise ValueError("has another end")
                    yield _xor(base64.b64decode(text, validate=True), canary)
                except ValueError as error:
                    raise DamagedInput(
                        f"{path}: is not an encrypted file of a published run: {error}"
                    ) from error
                ended = bool(quote)
            if not ended:
                raise DamagedInput(f"{path}: is cut short. Pull it again.")

        write_whole(target, pieces())


def open_published(published: Path, out: Path) -> int:
    """Write the run that was published as `published` to `out`; return how many files were decrypted.

    Raise UsageError if `out` is not empty, DamagedInput for a file that is none of a published run.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: is not empty; name another directory with -o")
    decrypted = 0
    with atomic_folder(out) as folder:
        for path, name in _files(published):
            target = folder / name.removesuffix(ENCRYPTED)
            target.parent.mkdir(parents=True, exist_ok=True)
            if name in _OPEN:
                value = _object(path)
                value.pop("canary", None)
                write_whole(target, [_text(value)])
            elif path.suffix != ENCRYPTED:
                shutil.copyfile(path, target)
            else:
                _decrypt(path, target)
                decrypted += 1
    return decrypted


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of a run and their names. Raise UsageError for a link to a file elsewhere, which may be private."""
    whole = folder.resolve()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if (
            path.is_file()
            and name.partition("/")[0] not in _LEFT_OUT
            and path.suffix not in (".part", ".lock")
        ):
            if not path.resolve().is_relative_to(whole):
                raise UsageError(
                    f"{path}: is a link to {path.resolve()}; put the file there, or remove the link"
                )
            yield path, name


def _object(path: Path) -> dict[str, Any]:
    try:
        value = strict_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DamagedInput(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DamagedInput(f"{path}: must be a JSON object")
    return value


def _text(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, ensure_ascii=True, indent=1) + "\n").encode()


def _xor(data: bytes, password: str) -> bytes:
    key = derive_key(password, len(data))
    return (int.from_bytes(data) ^ int.from_bytes(key)).to_bytes(len(data))


_SHA256 = re.compile("sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Publication:
    """The outcome of a publishing: the address of this version, its files, and the number that was sent."""

    address: str
    files: int
    sent: int


def publish_to(source: Path, to: str, *, replace: bool = False) -> Publication:
    """Publish a finished run, with its sealed snapshots, or a sealed snapshot. Files that are there are not sent again.

    Raises UsageError if something else is there and `replace` is False; GateFailed as `late_secrets.refuse` does.
    """
    store = open_store(to)
    with _staged(source) as (files, about):
        present = _present(store)
        listed = _list(present, to)
        digests = {name: _digest(path) for name, path in files.items()}
        resources = [
            {
                "name": name,
                "path": store.path_of(name, whole),
                "hash": f"sha256:{whole}",
                "bytes": files[name].stat().st_size,
                "blocks": " ".join(blocks),
            }
            for name, (whole, blocks) in digests.items()
        ]
        value = {"profile": PUBLISHED, "resources": resources, "stillweb": about}
        if listed is not None and listed != value and not replace:
            other = (listed.get("stillweb") or {}).get("id", "unknown")
            raise UsageError(
                f"{to}: holds another publication ({str(other)[:12]}). Publish under another name, or with --replace."
            )
        others = [name for name in present if not name.startswith(".")]
        if listed is None and others and not replace:
            raise UsageError(
                f"{to}: holds other files ({others[0] or 'it is one'}). Publish under another name, or with --replace."
            )
        ready = [(str(r["path"]), files[str(r["name"])], digests[str(r["name"])][0]) for r in resources]
        sent = sum(store.put(*one) for one in ready)
        if listed == value and not sent and CARD in present:  # the card is sent after the list
            return Publication(store.pinned, len(files), 0)
        if _list(_present(store), to) != listed:
            raise UsageError(f"{to}: something else was published there meanwhile. Publish it again.")
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder) / PACKAGE
            package.write_bytes(_written(value))
            last = (PACKAGE, package, _digest(package)[0])
            address = store.commit([*ready, last], f"Publish {about['id'][:12]}")
        return Publication(address, len(files), sent)


def pull(address: str, out: Path) -> list[str]:
    """Copy a publication, or one remote file, to the new folder `out`; return the names of its files.

    What an interrupted pull has read is in the cache and not read again. Raises UsageError if `out` is not empty,
    DamagedInput for a file that is not what was published.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out}: is not empty. Name another directory with -o.")
    files = open_store(address).files()
    value = _list(files, address)
    wanted: dict[str, tuple[ByteSource, str]] = {}
    if value is None:
        sealed = [name for name in files if name.endswith(".wacz") or not name]
        if len(sealed) != 1:
            raise UsageError(
                f"{address}: no publication: it has no {PACKAGE} of Stillweb and not one .wacz file"
            )
        name = sealed[0].rpartition("/")[2] or address.rstrip("/").rpartition("/")[2]
        if not is_below(name):
            raise DamagedInput(f"{address}: {name!r:.80} is not a name that a file can have here")
        wanted[name] = (RemoteSource(files[sealed[0]], name=f"{address}/{name}"), files[sealed[0]].sha256)
    else:
        for resource in value["resources"]:
            name, path = str(resource["name"]), str(resource["path"])
            if path not in files:
                raise DamagedInput(f"{address}: {path} is listed and not there. It was not published whole.")
            place = RemoteSource(files[path], str(resource["blocks"]).split(), f"{address}/{path}")
            wanted[name] = (place, str(resource["hash"]).removeprefix("sha256:"))
        wanted[PACKAGE] = (MemorySource(_written(value)), "")
    with atomic_folder(out) as folder:
        for name, (source, expected) in wanted.items():
            target = folder / name
            whole = hashlib.sha256()
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("xb") as written:
                    for piece in chunks(source):
                        whole.update(piece)
                        written.write(piece)
            except OSError as error:
                if error.errno in FULL_DISK:
                    raise full_disk(target, error) from error
                # too long, or a folder or another file already, for some systems also in capitals
                raise DamagedInput(f"{address}: {name} can't be written here: {error.strerror}") from error
            if expected and whole.hexdigest() != expected:
                raise DamagedInput(
                    f"{address}: {name} differs from what was published (another SHA-256). Don't use it."
                )
    return list(wanted)


def _present(store: Store) -> dict[str, RemoteFile]:
    """Return the files at an address; none if nothing is there. Raises MissingCapability if the store fails."""
    try:
        return store.files()
    except UsageError:
        return {}


def _list(files: Mapping[str, RemoteFile], address: str) -> dict[str, Any] | None:
    """Return the datapackage.json of a publication; None if there is none. Raises DamagedInput."""
    if PACKAGE not in files:
        return None
    place = RemoteSource(files[PACKAGE], name=f"{address}/{PACKAGE}")
    if place.size > LARGEST_MEMBER:
        raise DamagedInput(
            f"{address}/{PACKAGE}: is not a list of published files: it has {place.size} bytes"
        )
    try:
        value = strict_json(place.read(0, place.size).decode())
        if value.get("profile") != PUBLISHED:
            return None
        names = {PACKAGE}
        for resource in value["resources"]:
            name, known = resource["name"], {"path", "hash", "bytes", "blocks"} <= resource.keys()
            if not known or name in names or not _SHA256.fullmatch(resource["hash"]) or not is_below(name):
                raise ValueError(f"resource {name!r:.80}")
            names.add(name)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedInput(f"{address}/{PACKAGE}: is not a list of published files: {error}") from error
    return dict(value)


def _written(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def _digest(path: Path) -> tuple[str, list[str]]:
    """Return the SHA-256 of a file and those of its blocks."""
    whole, blocks = hashlib.sha256(), []
    with path.open("rb") as data:
        while piece := data.read(BLOCK):
            whole.update(piece)
            blocks.append(hashlib.sha256(piece).hexdigest())
    return whole.hexdigest(), blocks


@contextmanager
def _staged(source: Path) -> Iterator[tuple[dict[str, Path], dict[str, Any]]]:
    """Yield the files to publish by name, and what the list says of them."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        files: dict[str, Path] = {}
        certificate: dict[str, Any] = {}
        sealed = [source]
        if (source / "run.json").is_file():
            settings, _ = RunFiles(source).manifest()
            sealed = [Path(one) for one in snapshots_now(source, settings.snapshots) if not is_remote(one)]
            # of a run that was pulled, the folder holds these already
            publish_run(source, root / "run", without={PACKAGE, CARD, *(one.name for one in sealed)})
            files = {
                path.relative_to(root / "run").as_posix(): path
                for path in sorted((root / "run").rglob("*"))
                if path.is_file()
            }
            certificate = json.loads((root / "run" / "certificate.json").read_text(encoding="utf-8"))
        ids = []
        for path in sealed:
            if not path.is_file():
                raise UsageError(f"{path}: is not sealed. Run: stillweb seal {path}")
            late_secrets.refuse(path)
            with Snapshot.open(path) as snapshot:
                ids.append(snapshot.id)
            name = path.name
            if canary := certificate.get("canary"):
                name += ENCRYPTED
                encrypt(path, root / name, canary)
            if name in files:
                raise UsageError(f"{path}: the run has two snapshots of this name. Rename one.")
            files[name] = root / name if canary else path
        about = {
            "kind": "run" if certificate else "snapshot",
            "id": str(certificate.get("hash") or ids[0]),
            "snapshots": ids,
            **{name: certificate[name] for name in ("canary",) if name in certificate},
        }
        card = root / CARD
        needed = _agent_files(settings.agent, certificate) if certificate else []
        text = _card(source.name, about, certificate, [p.name for p in sealed], needed)
        card.write_text(text, encoding="utf-8")
        files[CARD] = card
        yield dict(sorted(files.items())), about


def _agent_files(spec: str, certificate: Mapping[str, Any]) -> list[str]:
    """Return the files of a run's agent, which are not published with it."""
    own = spec.removeprefix("script:")
    return [*([own] if own.endswith((".yaml", ".yml")) else []), *certificate["agent"].get("files", ())]


def _card(
    name: str, about: Mapping[str, Any], certificate: Mapping[str, Any], sealed: list[str], needed: list[str]
) -> str:
    """Return the data-set card: what it is, its hashes, its licence notes, and how to run it with the `needed` files."""
    run, canary = about["kind"] == "run", certificate.get("canary")
    lines = ["---", "tags: [stillweb, web-archive]", "license: other", "---", f"# {name}", ""]
    lines += [
        "A run of an agent on recorded web pages, with its certificate."
        if run
        else "Recorded web pages, frozen as a WACZ file.",
        "",
        *([f"- certificate: `{about['id']}`"] if run else []),
        *[f"- snapshot `{file}`: id `{one}`" for file, one in zip(sealed, about["snapshots"], strict=True)],
    ]
    attempts = certificate.get("attempts") or {}
    if attempts:
        tasks = len({one.rpartition("/")[0] for one in attempts})
        lines.append(f"- {pluralize(tasks, 'task')}, {pluralize(len(attempts), 'attempt')}")
    if models := certificate.get("models"):
        lines.append(f"- models: {', '.join(models)}")
    lines += [f"- {told}: `{certificate[told]}`" for told in ("tasks", "rubrics") if certificate.get(told)]
    if canary:
        lines += [
            f"- canary, not to be trained on: `{canary}`",
            "",
            "The task set is encrypted, so all files of the run and its snapshots are encrypted in the same way.",
        ]
    replay = f"stillweb replay here/{sealed[0]} -- python agent.py" if sealed else ""
    lines += [
        "",
        "## Licence",
        "The recorded pages belong to their authors; check the terms of each site before you pass them on.",
        "",
        "## How to run",
        *(
            [f"First put the agent's files into the working directory: {', '.join(needed)}."]
            if needed
            else []
        ),
        "```",
        "pip install 'stillweb[all,share]'",
        f"stillweb pull ADDRESS -o {'published' if canary else 'here'}",
        *(["stillweb publish published --open -o here"] if canary else []),
        "stillweb certify here" if run else replay,
        "```",
        "",
    ]
    return "\n".join(lines)
