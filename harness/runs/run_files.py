"""The files of a run.

run.json            settings and hashes of what the run depends on (no clock, no key, pseudonyms for secrets)
.secrets            the settings with their secrets, encrypted with this user's key, for continuing the run
tasks.jsonl         the tasks, as they were when the run began
traces/NAME.jsonl   one finished attempt each (see stillweb.harness.trace)
traces/NAME.jsonl.part   an attempt under way; after a crash the next start moves it to interrupted/
uploads/            files that attempts may upload to pages, if the run has any
failed/             attempts that ended in an error and were made again
tape/               model calls, in the snapshot's format (unless the tape lies elsewhere)
certificate.json    written when every attempt is accounted for
report.html         written on request
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec

from stillweb.harness.benchmark import benchmarks
from stillweb.harness.task import Limits, Task, TaskSet
from stillweb.harness.trace import Trace, read_json, read_trace
from stillweb.snapshots._os.cache import cache_dir
from stillweb.snapshots._os.locking import locked_directory
from stillweb.snapshots.errors import DamagedInput, UsageError
from stillweb.snapshots.evidence.confidence import SERVED
from stillweb.snapshots.remote import is_remote
from stillweb.snapshots.secrets.keystore import KEY_FILES, state_dir
from stillweb.snapshots.shapes import convert, must_be_known, must_be_well_formed
from stillweb.snapshots.warc.appending import write_whole

VERSION = 1
ENCRYPTED = ".encrypted"  # ends the names of a published run's files whose plain text is not published
TapeMode = Literal["record", "replay", "auto", "none"]
ScoringMode = Literal["faithful", "fixed"]

MOST_EPOCHS = 10_000  # a damaged run that claims more would keep `report` and `score` busy for ever


_HASH = re.compile("[0-9a-f]{64}")


def must_be_same(path: Path, name: str, before: Any, now: Any, advice: str) -> None:
    """Raise UsageError, with both values, if a value that the run depends on differs from that at its beginning."""
    if changed := changes(name, before, now):
        raise UsageError(
            f"{path}: {name} is not what it was when this run began ({'; '.join(changed)}); {advice}"
        )


def changes(name: str, before: Any, now: Any) -> list[str]:
    """Return `member: old -> new` for each innermost member in which two JSON values differ. Secrets are masked."""
    from stillweb.snapshots.secrets.redact import mask_value

    return list(_changes(name, mask_value(before), mask_value(now))) if before != now else []


def _changes(name: str, before: Any, now: Any) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for member in dict.fromkeys((*before, *now)):
            yield from _changes(f"{name}.{member}", before.get(member), now.get(member))
    elif before != now:
        yield f"{name}: {_brief(before)} -> {_brief(now)}"


def _brief(value: Any) -> str:
    if isinstance(value, str) and _HASH.fullmatch(value):
        return value[:12]
    text = json.dumps(value, ensure_ascii=False)
    return "unset" if value is None else text if len(text) <= 80 else f"{text[:80]}…"


class _Fork(TypedDict):
    certificate: str
    task: str
    attempt: int
    step: int
    model: str


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that decide a run, and the paths of its parts. Paths are of this machine and never hashed.

    `source` is where the tasks came from. `allow_unconfined` runs programs and model-written code even if the
    machine lacks a means to confine them. `contracts` names tool contracts. `epochs` is how often each task
    is attempted. `env` holds the documented variables that scorers read (never keys). `prices` maps a model
    to money per million tokens {"input", "output", "cached"}. `directory` is the working directory, to which
    the agent's files are relative. `uploads` are the files of each attempt's workspace: path in it ->
    `sha256:…`. `faults` is the content of a fault file, `at` the date after which nothing
    is seen (docs/drills.md). `fork` names the attempt of another run that this one goes on from: `certificate` (its
    run's), `task`, `attempt`, the first `step` of its own and the `model` that makes it.
    """

    agent: str
    snapshots: tuple[str, ...] = ()
    contracts: tuple[str, ...] = ("fetch",)
    accept: str = "rule"
    min_confidence: float = SERVED
    epochs: Annotated[int, msgspec.Meta(ge=1, le=MOST_EPOCHS)] = 1
    limits: Limits = field(default_factory=Limits)
    synthetic_search: bool = False
    tape: TapeMode = "auto"
    tape_path: str | None = None
    mode: ScoringMode = "faithful"
    fold_case: bool = False
    agent_options: Mapping[str, Any] = field(default_factory=dict)
    tool_options: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    directory: str | None = None
    uploads: Mapping[str, str] = field(default_factory=dict)
    source: str | None = None
    allow_unconfined: bool = False
    faults: Mapping[str, Any] = field(default_factory=dict)
    at: str = ""
    timing: str = ""
    fork: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; inverse of `from_json`."""
        value = asdict(self)
        return {**value, "snapshots": list(self.snapshots), "contracts": list(self.contracts)}

    @classmethod
    def from_json(cls, value: Any, where: str) -> Settings:
        """Make settings from a JSON object. Raise DamagedInput naming an unknown, missing or wrong member."""
        try:
            must_be_known(value, cls)
            settings = convert(value, cls)
            must_be_known(value.get("limits"), Limits)
            must_be_well_formed(*settings.snapshots)
            if settings.fork:
                convert(settings.fork, _Fork)
        except ValueError as error:
            raise DamagedInput(f"{where}: settings: {error}") from None
        return settings

    def checked(self) -> Settings:
        """Return the settings, with amounts as floats: 60 and 60.0 are one limit, and must have one hash.

        Raise UsageError for a value that no run can have.
        """
        try:
            return Settings.from_json(self.to_json(), "run")
        except DamagedInput as error:
            raise UsageError(str(error)) from error

    # Left out of the hash: neither the places of files nor the use of a tape changes a score.
    PLACES = ("snapshots", "tape", "tape_path", "agent", "directory", "source")
    PLACE_VARIABLES = re.compile(r"\w*(_BASE_URL(_\d+)?|_DIR|_CONDA_ENV)")  # those of judges are numbered

    def certified_members(self) -> dict[str, Any]:
        """Return the members that the certificate depends on."""
        value = {name: member for name, member in self.to_json().items() if name not in self.PLACES}
        value["env"] = {n: v for n, v in value["env"].items() if not self.PLACE_VARIABLES.fullmatch(n)}
        # keeps the hash of runs from before these existed
        for later in ("uploads", "faults", "at", "timing", "fork"):
            if not value[later]:
                del value[later]
        if self.min_confidence == SERVED:
            del value["min_confidence"]
        from stillweb.snapshots.secrets.redact import mask_value

        return {name: mask_value(member) for name, member in value.items()}


# The benchmarks' documented variables, which count as settings; keys are left out and stay in the environment.
_SECRET = re.compile(r".*(_API_KEY.*|KEY|_TOKEN|_SECRET|_PASSWORD)")


def scoring_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the documented variables of the benchmarks that are set, without keys: the setting `env` of a run."""
    prefixes = ("GRADER_", "OPENAI_", *(one.variables for one in benchmarks().values() if one.variables))
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(prefixes) and re.fullmatch("[A-Z0-9_]+", name) and not _SECRET.fullmatch(name)
    }


_SECRETS = ".secrets"


def _filled(value: Any, whole: Any) -> Any:
    """Return `value`, each text with a pseudonym replaced by the text at the same place in `whole`."""
    from stillweb.snapshots.secrets.redact import PREFIX

    if isinstance(value, str):
        return whole if PREFIX in value and isinstance(whole, str) else value
    if isinstance(value, dict) and isinstance(whole, dict):
        return {name: _filled(one, whole.get(name)) for name, one in value.items()}
    if isinstance(value, list) and isinstance(whole, list) and len(value) == len(whole):
        return [_filled(one, other) for one, other in zip(value, whole, strict=True)]
    return value


def trace_name(task_id: str, attempt: int) -> str:
    """Return a file name for an attempt: readable, safe, and different for different tasks."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", task_id)[:80]
    if plain != task_id or plain.startswith("."):
        plain = f"{plain.lstrip('.')}-{sha256(task_id.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    return f"{plain}.{attempt}.jsonl"


@dataclass(frozen=True, slots=True)
class RunFiles:
    path: Path

    @property
    def traces(self) -> Path:
        return self.path / "traces"

    @property
    def uploads(self) -> Path:
        """Directory of the files that attempts may upload to pages."""
        return self.path / "uploads"

    def trace_path(self, task_id: str, attempt: int) -> Path:
        """Return the path of an attempt's trace, which may not exist yet."""
        return self.traces / trace_name(task_id, attempt)

    def tape(self, settings: Settings) -> Path:
        """Return the path of the run's tape, which may not exist yet."""
        return Path(settings.tape_path) if settings.tape_path else self.path / "tape"

    def hidden(self, settings: Settings) -> list[str]:
        """Return the local paths that no program of an attempt may see: the run's, copies of snapshots, and the user's keys."""
        places = [
            str(cache_dir().absolute()),
            *(str(state_dir().absolute() / name) for name in KEY_FILES),
            str(self.path.absolute()),
            *settings.snapshots,
            str(self.tape(settings).absolute()),
            settings.source,
        ]
        return [place for place in places if place and not is_remote(place)]

    def claim(self) -> None:
        """Make the directory. Raise UsageError if it holds other files, which a run could overwrite."""
        if not (self.path / "run.json").exists() and self.path.exists():
            if not self.path.is_dir():
                raise UsageError(f"{self.path}: is not a directory; name another one with -o")
            begun = (
                "tape",
                *(
                    ("traces", "failed", "uploads", "tasks.jsonl", "rubrics.json")
                    if self.traces.is_dir()
                    else ()
                ),
            )
            if any(one.name not in begun and not one.name.startswith(".") for one in self.path.iterdir()):
                raise UsageError(f"{self.path}: is not empty and no run; name another directory with -o")
        # first: this folder marks the directory as a run's even if the process is killed next
        self.traces.mkdir(parents=True, exist_ok=True)

    def forget_unbegun(self) -> None:
        """Remove the files of a run in which nothing was done, so that it can be started with other settings.

        An attempt that ended before its first event, for want of a key, say, is nothing. Raise UsageError while another process is about to begin.
        """
        names = ("run.json", "tasks.jsonl", "rubrics.json")  # in this order: without run.json there is no run
        if not (self.path / "run.json").exists():
            return
        begun = list(self.traces.glob("*"))
        if any(one.suffix != ".part" or one.read_bytes().count(b"\n") > 1 for one in begun):
            return
        if {one.name for one in self.path.iterdir()} <= {*names, self.traces.name, self.uploads.name}:
            with self.lock():
                for one in (*(self.path / name for name in names), *begun):
                    one.unlink(missing_ok=True)
                if self.uploads.is_dir():
                    shutil.rmtree(self.uploads)

    def create(self, settings: Settings, tasks: Iterable[Task], hashes: Mapping[str, Any]) -> None:
        """Write the files of a new run, or check that existing ones belong to the same run.

        Raise UsageError naming what differs: a run must be finished with the settings that it began with.
        """
        lines = [json_line(task.to_json()) for task in tasks]
        if (self.path / "run.json").exists():
            self._same(settings, lines, hashes)
            return
        self.claim()
        _write(self.path / "tasks.jsonl", "".join(line + "\n" for line in lines))
        self.write_manifest(settings, hashes)

    def write_manifest(self, settings: Settings, hashes: Mapping[str, Any]) -> None:
        manifest = {
            "schema": "stillweb-run",
            "version": VERSION,
            "settings": self._without_secrets(settings.to_json()),
            "stands_on": dict(hashes),
        }
        _write(self.path / "run.json", _json(manifest, indent=1) + "\n")

    def _without_secrets(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return settings with pseudonyms for secrets. The full settings go, encrypted, to `.secrets`."""
        from stillweb.snapshots.secrets.keystore import SecretFile
        from stillweb.snapshots.secrets.redact import Redactor

        probe = Redactor(b"")
        probe.value(value)
        if not probe.secrets:
            return value
        key = self._key()
        redactor, kept = Redactor(key), SecretFile(self.path, key, _SECRETS)
        shown: dict[str, Any] = redactor.value(value)
        kept.forget()
        kept.keep(json.dumps(value))
        return shown

    def with_secrets(self, settings: Settings) -> Settings:
        """Return settings with their secrets.

        Raise UsageError if this user can't decrypt a secret of the agent's.
        """
        from stillweb.snapshots.secrets.detect import PSEUDONYM_TEXT
        from stillweb.snapshots.secrets.keystore import SecretFile
        from stillweb.snapshots.secrets.redact import PREFIX

        value = settings.to_json()
        if PREFIX not in json.dumps(value):
            return settings
        kept = SecretFile(self.path, self._key(), _SECRETS).read()[0]
        whole = Settings.from_json(
            _filled(value, json.loads(kept[0]) if kept else None), str(self.path / "run.json")
        )
        if PSEUDONYM_TEXT.search(whole.agent):
            raise UsageError(
                f"{self.path}: a secret among the agent's arguments can't be read with this user's key; "
                "continue as the user who began the run, or pass it to the program in a variable (pass_env)"
            )
        return whole

    def _key(self) -> bytes:
        from stillweb.snapshots.secrets.keystore import snapshot_key, state_dir

        return snapshot_key("settings of a run", state_dir())

    def _same(self, settings: Settings, lines: list[str], hashes: Mapping[str, Any]) -> None:
        before, stood_on = self.manifest()
        old, new = (json.loads(json.dumps(one.certified_members())) for one in (before, settings))
        for name in dict.fromkeys((*new, *old)):
            if old.get(name) != new.get(name):
                raise UsageError(
                    f"{self.path}: this run was begun with {name} = {old.get(name)!r}, not {new.get(name)!r}; "
                    "go on with the same, or choose another directory"
                )
        for name, value in hashes.items():
            if name not in ("code", "part_of"):
                must_be_same(self.path, name, stood_on.get(name), value, "choose another directory")
        if (self.path / "tasks.jsonl").read_text(encoding="utf-8") != "".join(f"{line}\n" for line in lines):
            raise UsageError(
                f"{self.path}: the tasks are not those this run began with; choose another directory"
            )

    def manifest(self) -> tuple[Settings, dict[str, Any]]:
        """Return the settings without secrets (see `with_secrets`) and the hashes in `stands_on`."""
        path = self.path / "run.json"
        try:
            value = read_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            published = "; `stillweb pull` makes a run of what is published"
            hint = published if (self.path / "datapackage.json").exists() else ""
            raise UsageError(f"{self.path}: is not a run (it has no run.json){hint}") from None
        except (ValueError, RecursionError) as error:
            raise DamagedInput(f"{path}: not JSON: {error}") from error
        if not isinstance(value, dict) or value.get("schema") != "stillweb-run":
            raise DamagedInput(f"{path}: is not a stillweb run")
        if value.get("version") != VERSION:
            raise DamagedInput(
                f"{path}: version {value.get('version')!r} is not known here (only {VERSION}); a newer Stillweb reads it"
            )
        stands_on = value.get("stands_on", {})
        if not isinstance(stands_on, dict):
            raise DamagedInput(f"{path}: stands_on is not an object")
        if not isinstance(stands_on.get("agent") or {}, dict):
            raise DamagedInput(f"{path}: stands_on.agent is not an object")
        return Settings.from_json(value.get("settings"), str(path)), stands_on

    def tasks(self) -> list[Task]:
        """Return the tasks of the run. Raise DamagedInput if they differ from those it began with."""
        path = self.path / "tasks.jsonl"
        if not path.exists() and path.with_name(path.name + ENCRYPTED).exists():
            raise UsageError(
                f"{self.path}: is encrypted, as its task set is; `stillweb publish {self.path} --open -o DIR` decrypts it"
            )
        found: list[Task] = []
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    found.append(Task.from_json(read_json(line.decode("utf-8", "strict"))))
                except (ValueError, RecursionError) as error:
                    raise DamagedInput(f"{path}:{number}: not JSON: {error}") from error
                except DamagedInput as error:
                    raise DamagedInput(f"{path}:{number}: {error}") from error
        if self.manifest()[1].get("tasks") not in (None, TaskSet("run", tuple(found)).digest):
            raise DamagedInput(f"{path}: the tasks are not those that the run began with")
        return found

    def attempts(self) -> Iterator[tuple[Task, int, Trace | None]]:
        """Yield every attempt of the run, in task order, with its trace or None if it is not finished.

        Raise DamagedInput for a trace of another attempt, which would be counted twice.
        """
        settings, _ = self.manifest()
        for task in self.tasks():
            for number in range(1, settings.epochs + 1):
                path = self.trace_path(task.id, number)
                trace = read_trace(path) if path.exists() else None
                if trace is not None and (trace.task_id, trace.attempt) != (task.id, number):
                    raise DamagedInput(
                        f"{path}: is the trace of attempt {trace.attempt} at {trace.task_id!r}"
                    )
                yield task, number, trace

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes of this machine from making attempts of the run.

        Raise UsageError while another process works on it.
        """
        self.manifest()  # reports a directory that is not a run
        with locked_directory(self.path, "another process is working on this run; wait until it has ended"):
            yield

    def set_aside_interrupted(self) -> int:
        """Move the unfinished traces of a killed run to interrupted/ and return their number."""
        parts = sorted(self.traces.glob("*.part"))
        for part in parts:
            self._set_aside(part, part.name.removesuffix(".jsonl.part"), "interrupted")
        return len(parts)

    def set_aside_failed(self, task_id: str, attempt: int) -> Path:
        """Move the trace of an attempt that will be made again to failed/, and return its new path."""
        path = self.trace_path(task_id, attempt)
        return self._set_aside(path, path.name.removesuffix(".jsonl"), "failed")

    def last_failed(self, task_id: str, attempt: int) -> Path | None:
        """Return the path of an attempt's last trace in failed/, or None."""
        name = trace_name(task_id, attempt).removesuffix(".jsonl")
        found = (self.path / "failed").glob(f"{name}.failed-*.jsonl")
        return max(found, key=lambda path: int(path.stem.rpartition("-")[2]), default=None)

    def made_again(self) -> int:
        """Return how many attempts failed and were made again."""
        return sum(1 for _ in (self.path / "failed").glob("*.failed-*.jsonl"))

    def _set_aside(self, path: Path, name: str, why: str) -> Path:
        keep = self.path / why
        keep.mkdir(exist_ok=True)
        names = (keep / f"{name}.{why}-{number}.jsonl" for number in count(1))
        there = next(path for path in names if not path.exists())
        os.replace(path, there)
        return there


def snapshots_now(run: Path, snapshots: Sequence[str]) -> tuple[str, ...]:
    """Return the present paths of a run's snapshots.

    A snapshot that is not at its named path is looked for under the same name in the run's directory, beside
    the run, and in the working directory. One that is not found keeps its name, so that opening it reports
    the error. Callers compare snapshot ids to make sure that it is the run's own.
    """
    return tuple(_now(run, named) for named in snapshots)


def snapshots_to_repeat(run: Path, snapshots: Sequence[str], told: Sequence[str]) -> tuple[str, ...]:
    """Return the snapshots to repeat a run on: the given ones, else the run's own.

    Raise UsageError for a snapshot that is not found.
    """
    if told:
        return tuple(told)
    found = snapshots_now(run, snapshots)
    for one in found:
        if not is_remote(one) and not Path(one).exists():
            raise UsageError(
                f"{run}: its snapshot is neither {one} nor a {Path(one).name} beside it or here; say where it is with --snapshot"
            )
    return found


def _now(run: Path, named: str) -> str:
    if is_remote(named) or Path(named).exists():
        return named
    name = Path(named).name
    for folder in (run, run.resolve().parent, Path.cwd()):
        if (here := folder / name).exists():
            return str(here.resolve())
    return named


def json_line(value: Any) -> str:
    """Return a value as JSON on one line, for a file in UTF-8."""
    return _json(value)


def _json(value: Any, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode()
    # half a surrogate pair (e.g. a path not in UTF-8) can only be written as an escape
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent)
    return text


def _write(path: Path, text: str) -> None:
    write_whole(path, [text.encode()])
