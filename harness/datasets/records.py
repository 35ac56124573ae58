"""Records from JSONL, JSON, CSV, Parquet, folders of JSON files and the hub, each with its file and line."""

from __future__ import annotations

import ast
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillweb.harness._parsing import StandsTwice, strict_json
from stillweb.harness.task import Problem
from stillweb.snapshots._os.text_files import not_utf8
from stillweb.snapshots.errors import MissingCapability, UsageError
from stillweb.snapshots.extras import require
from stillweb.snapshots.remote import hub_client
from stillweb.snapshots.words import pluralize


class RecordError(Exception):
    """Error in a field of one record. The loaders turn it into a Problem."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message


@dataclass(frozen=True, slots=True)
class Record:
    """JSON object with its file and line (`line` from 1; 0 for a file that holds one record)."""

    data: dict[str, Any]
    file: str
    line: int

    @property
    def place(self) -> str:
        """Position as file:line."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def text(self, name: str, *, required: bool = True) -> str:
        """Return a text field, "" if it is absent and not required. Raise RecordError for another type."""
        value = self.data.get(name)
        if value is None and not required:
            return ""
        if value is None:
            raise RecordError(name, "is missing")
        if not isinstance(value, str):
            raise RecordError(name, f"must be text, not {type(value).__name__}")
        return value

    def value(self, name: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """Return a field that may be a value, JSON text or a Python literal in text.

        Literals are parsed by `ast.literal_eval`, which runs no code. Raise RecordError if the value is not
        of `kind`.
        """
        value = self.data.get(name, default)
        if value is None:
            return default
        if isinstance(value, str) and not (isinstance(kind, type) and issubclass(kind, str)):
            value = parse_literal(value, name) if value.strip() else default
        if not isinstance(value, kind):
            raise RecordError(name, f"must not be {type(value).__name__}")
        return value


def parse_literal(text: str, name: str) -> Any:
    """Return the value of a text with JSON or a Python literal."""
    try:
        return strict_json(text)
    except StandsTwice as error:
        raise RecordError(name, str(error)) from error
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as error:
        raise RecordError(name, f"neither JSON nor a literal: {str(error).splitlines()[0]}") from error


_LINES = (".jsonl", ".ndjson")
_SHEETS = (".xlsx", ".xls", ".ods", ".numbers")


def read_records(source: str | Path, *, split: str | None = None) -> Iterator[Record | Problem]:
    name = str(source)
    if not name:  # Path("") is the working directory
        raise UsageError("no task set is named")
    if name.startswith("hub:"):
        yield from _hub(name[4:], split)
        return
    path = Path(source)
    if path.is_dir():
        for file in _files(path, split):
            yield from _file(file)
    elif path.is_file():
        if split not in (None, _split_of(path)):
            raise UsageError(
                f"{path}: is one file; a split ({split!r}) is taken of a folder, or of a set on the hub"
            )
        yield from _file(path)
    else:
        raise UsageError(f"{path}: no such file or folder (a set on the hub is hub:<owner>/<name>)")


# metadata files of the library `datasets`
_OTHER = frozenset(("dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json"))


def _files(folder: Path, split: str | None) -> list[Path]:
    """Return the files of a folder by name.

    A repository's split files take precedence over its per-task files.
    """
    found = [
        f for f in folder.iterdir() if f.suffix in (*_LINES, ".json", ".parquet") and f.name not in _OTHER
    ]
    top = [f for f in sorted(found) if split is None or _split_of(f) == split]
    stems = {f.stem for f in top}
    top = [f for f in top if not (f.stem.endswith("_hf") and f.stem.removesuffix("_hf") in stems)]
    if top:
        return top
    # per-task files, else the hub's data/test-00000-of-00001.parquet
    for kinds in ((".json",), (*_LINES, ".parquet")):
        below = sorted(f for f in folder.rglob("*") if f.suffix in kinds and f.name not in _OTHER)
        below = [
            f
            for f in below
            if split is None or split == _split_of(f) or split in f.relative_to(folder).parts[:-1]
        ]
        if below:
            return below
    sheets = [f for f in sorted(folder.iterdir()) if f.suffix in SUFFIXES and split in (None, _split_of(f))]
    if sheets and not found:  # beside other files they are lists, not tasks
        return sheets
    if split and found:
        there = ", ".join(sorted(set(map(_split_of, found))))
        raise UsageError(f"{folder}: no file of split {split!r}; there are {there}")
    raise UsageError(
        f"{folder}: no JSONL, JSON, CSV or Parquet file" + (f" of split {split!r}" if split else "")
    )


def folders_not_read(folder: Path) -> list[str]:
    """Return the folders in a folder with JSON files that are not read, as it has files of its own."""
    if all(file.parent != folder for file in _files(folder, None)):
        return []
    below = (file.relative_to(folder) for file in folder.glob("*/**/*") if file.suffix in (*_LINES, ".json"))
    return sorted({file.parts[0] for file in below if not file.parts[0].startswith(".")})


def _split_of(file: Path) -> str:
    """Return the split of a file: goal of goal_hf.jsonl, test of test-00000-of-00002.parquet."""
    return re.sub(r"_hf$|-\d{5}-of-\d{5}$", "", file.stem)


def _file(path: Path) -> Iterator[Record | Problem]:
    if path.suffix == ".parquet":
        yield from _parquet(path)
        return
    if path.suffix in _SHEETS:
        yield Problem(str(path), 0, "", "a spreadsheet's own format is not read; save it as CSV (UTF-8)")
        return
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        yield Problem(str(path), 0, "", not_utf8(error))
        return
    if path.suffix in _LINES:
        yield from _lines(path, text)
        return
    if path.suffix in SUFFIXES:
        for row in read_csv(path, text):
            yield row if isinstance(row, Problem) else Record(row[0], str(path), row[1])
        return
    try:
        document = strict_json(text)
    except ValueError as error:
        # A file of lines may be called .json: then its first line is JSON and the whole is not.
        first = next((line for line in text.split("\n") if line.strip()), "")
        if first.strip().startswith("{") and _is_json(first):
            yield from _lines(path, text)
        else:
            yield Problem(str(path), getattr(error, "lineno", 0), "", f"not JSON: {error}")
        return
    if isinstance(document, dict) and isinstance(document.get("data"), list) and "id" not in document:
        document = document["data"]
    items = document if isinstance(document, list) else [document]
    for index, item in enumerate(items, 1):
        yield _record(item, str(path), index if isinstance(document, list) else 0)


def _lines(path: Path, text: str) -> Iterator[Record | Problem]:
    # Not splitlines(): JSON strings may contain U+2028 and other characters that it splits at.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            item = strict_json(line)
        except ValueError as error:
            yield Problem(str(path), number, "", f"not JSON: {error}")
            continue
        yield _record(item, str(path), number)


def _record(item: Any, file: str, line: int) -> Record | Problem:
    if not isinstance(item, dict):
        return Problem(file, line, "", f"a record must be an object, not {type(item).__name__}")
    return Record(item, file, line)


def _is_json(text: str) -> bool:
    try:
        strict_json(text)
    except ValueError:
        return False
    return True


def _parquet(path: Path) -> Iterator[Record | Problem]:
    pyarrow, parquet = require("pyarrow"), require("pyarrow.parquet")
    try:
        rows = parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        yield Problem(str(path), 0, "", f"not Parquet: {str(error).splitlines()[0]}")
        return
    for number, row in enumerate(rows, 1):
        yield _record(row, str(path), number)


def _hub(name: str, split: str | None) -> Iterator[Record | Problem]:
    """Yield the records of a set on the Hugging Face hub: `owner/set` or `owner/set@revision`."""
    name, _, revision = name.partition("@")
    hub, errors = hub_client(), require("huggingface_hub.errors")
    try:
        folder = hub.snapshot_download(
            name,
            repo_type="dataset",
            revision=revision or None,
            allow_patterns=["*.jsonl", "*.json", "*.parquet", "**/*.json", "**/*.parquet"],
        )
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise MissingCapability(
            f"hub:{name}: the hub can't be read ({reason}); give a local file instead"
        ) from error
    yield from read_records(folder, split=split)


_DELIMITERS = {".csv": ",;\t", ".tsv": "\t"}
SUFFIXES = tuple(_DELIMITERS)
_INTO = ("meta", "options")
_ANSWERS = ("answer", "reference")
_SEPARATED = {"urls": None, "columns": "|", "row_key": "|"}
_JSON = ("ordered", "fields", "options", "meta")


def read_csv(path: Path, text: str) -> Iterator[tuple[dict[str, Any], int] | Problem]:
    """Yield the rows of a file with their line numbers, or a problem in place of a row."""
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # a cell may be a whole prompt
    head = text.partition("\n")[0]
    delimiter = max(_DELIMITERS[path.suffix], key=head.count)  # the first one in a tie
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    names: list[str] | None = None
    while True:
        begin = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:  # after an open quote everything is inside it
            yield Problem(str(path), begin, "", f"not CSV: {error}")
            return
        if not any(cell.strip() for cell in row):
            continue
        if names is None:
            names = [name.strip() for name in row]
            if twice := next((name for name in names if name and names.count(name) > 1), None):
                yield Problem(str(path), begin, twice, "is the name of two columns")
                return
            continue
        if len(row) > len(names) and any(cell.strip() for cell in row[len(names) :]):
            yield Problem(
                str(path), begin, "", f"has {pluralize(len(row), 'cell')}, and the first row {len(names)}"
            )
            continue
        if unnamed := next(
            (cell for name, cell in zip(names, row, strict=False) if not name and cell.strip()), None
        ):
            yield Problem(str(path), begin, "", f"the column of {unnamed!r} has no name")
            continue
        yield _members(dict(zip(names, row, strict=False))), begin


def _members(row: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, cell in row.items():
        if not cell.strip():
            continue
        into, dot, member = name.partition(".")
        if dot and into in _INTO and member:
            found.setdefault(into, {})[member] = _json(cell) if into == "options" else cell
        elif cell.lstrip().startswith("[") and name in (*_ANSWERS, *_SEPARATED):
            found[name] = _json(cell)
        elif name in _SEPARATED:
            found[name] = [part.strip() for part in cell.split(_SEPARATED[name])]
        else:
            found[name] = _json(cell) if name in _JSON else cell
    return found


def _json(cell: str) -> Any:
    try:
        return strict_json(cell.strip().lower() if cell.strip().lower() in ("true", "false") else cell)
    except ValueError:
        return cell
