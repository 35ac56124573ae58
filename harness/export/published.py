"""Run as it may be published: the plain text of an encrypted task set encrypted again, the canary in each file.

A published run of such a set has its run.json and certificate.json as they are, with the member `canary`; every other
file is NAME.encrypted, JSON with the members `canary` and `encrypted`, in the set's own encryption. A run of other
sets is copied as it is. A snapshot that goes with a run of an encrypted set is encrypted, too: its recorded searches and
prompts may quote the set. Neither holds what only this machine needs (secrets, interrupted attempts).
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from stillweb.harness._parsing import strict_json
from stillweb.harness.benchmarks.browsecomp.dataset import derive_key
from stillweb.harness.runs.run_files import ENCRYPTED, RunFiles, trace_name
from stillweb.snapshots._os.atomic_write import atomic_folder
from stillweb.snapshots.errors import DamagedInput, UsageError
from stillweb.snapshots.warc.appending import write_whole

_OPEN = ("run.json", "certificate.json")  # hashes, settings and sums; no text of a task
# an encrypted file, written and read in pieces: a snapshot need not fit in memory
_HEAD, _TAIL = b'{\n "canary": %s,\n "encrypted": "', b'"\n}\n'
_HEADS = re.compile(rb'\{\s*"canary":\s*("(?:[^"\\]|\\.)*"),\s*"encrypted":\s*"')
_PIECE = 3 * 32 << 14  # a multiple of base64's three bytes and of the key's 32
_LEFT_OUT = ("interrupted", "failed", ".secrets", ".begun")


def publish(run: Path, out: Path, *, without: Collection[str] = ()) -> tuple[int, int]:
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
