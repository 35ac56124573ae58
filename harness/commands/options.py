"""Options and arguments that several commands take: snapshots, addresses in them, finite numbers, and how to answer."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stillweb.harness.console import say
from stillweb.snapshots.errors import MissingCapability, StillwebError, UsageError
from stillweb.snapshots.evidence import SERVED
from stillweb.snapshots.evidence.confidence import read_confidence
from stillweb.snapshots.remote import is_remote, open_store
from stillweb.snapshots.request import must_be_url

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from stillweb.harness.task import TaskSet


FC = TypeVar("FC", bound=Callable[..., Any] | click.Command)


class FiniteRange(click.FloatRange):
    """Float range without nan and infinity: float() parses them, and nan passes every limit."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number. Fail with a usage error if it is not finite."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number that can be counted to", param, ctx)
        return number


class OptionFor(click.Option):
    """Option that is for another one (`needs`), which its help names first. Without that one it is an error."""

    def __init__(self, names: Sequence[str], *, needs: str, help: str, **settings: Any) -> None:
        super().__init__(names, help=f"With {needs}: {help}", **settings)
        self._needs = needs

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Return the value. Raise UsageError if it is given without the other option, or with another value of that."""
        name, _, value = self._needs.partition(" ")
        other = next(param for param in ctx.command.params if name in param.opts)
        found = opts.get(str(other.name))
        if self.name in opts and (not found or (value and found != value)):
            raise click.UsageError(f"{self.opts[-1]} goes with {self._needs}", ctx)
        return super().handle_parse_result(ctx, opts, args)


class SnapshotType(click.ParamType):  # type: ignore[type-arg]  # generic in click 8.5 alone
    """A snapshot to read: a local Path that exists, or the address of one in a store, as text.

    The forms of addresses are those of `stillweb.snapshots.remote.FORMS`.
    """

    name = "snapshot"

    def __init__(self, *, exists: bool = True) -> None:
        self._exists = exists  # True if a missing local path is an error

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path | str:
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]  # a default
        if not value:  # an unset variable in a script
            raise click.UsageError("the path of the snapshot is empty", ctx)
        if is_remote(value):
            open_store(value)  # checks its form
            return value
        path = Path(value.removeprefix("file://"))
        if self._exists and not path.exists():
            raise click.UsageError(f"{value}: no such file or directory", ctx)
        _use(path, written=False)
        return path


SNAPSHOT = SnapshotType()
SNAPSHOT_TO_BE = SnapshotType(exists=False)


class LocalPath(click.Path):
    """A path on this machine. An address of a store is an error, not the name of a local folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if is_remote(value):
            what = param.get_error_hint(ctx) if param is not None and ctx is not None else "this path"
            hint = (
                f"To copy it here: stillweb pull {value} -o DIRECTORY"
                if self.exists
                else "To send results to a store: stillweb publish"
            )
            raise click.UsageError(f"{value}: {what} takes a path on this machine. {hint}", ctx)
        _use(value, written=not self.exists)
        return super().convert(value, param, ctx)


OUT = LocalPath(path_type=Path)
# what is there to be read
PATH = LocalPath(exists=True, path_type=Path)
FILE = LocalPath(exists=True, dir_okay=False, path_type=Path)


def several(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> list[str] | None:
    """Return the names in an option that takes a list with commas and may be given several times; None without it."""
    return [name.strip() for text in given for name in text.split(",")] if given else None


FOLDER = LocalPath(exists=True, file_okay=False, path_type=Path)


# What runs and open snapshots consist of; a report or a ledger beside it may be written anew.
_PARTS = frozenset(
    (
        "run.json", ".secrets", "tasks.jsonl", "rubrics.json", "certificate.json", "traces", "tape",
        "uploads", "failed", "interrupted", "datapackage.json", "datapackage-digest.json", "archive",
        "indexes", "pages"
    )
)  # fmt: skip


def _use(path: str | os.PathLike[str], *, written: bool) -> None:
    """Note that the running command reads or writes a path. Raise click's UsageError for a file that it both reads and writes."""
    ctx = click.get_current_context(silent=True)
    if ctx is None or not os.path.exists(path):
        return
    uses = ctx.meta.setdefault("stillweb.paths", {True: [], False: []})
    uses[written].append(Path(os.path.realpath(path)))
    for read in uses[False]:
        for out in uses[True]:
            inside = out.is_relative_to(read) and out.relative_to(read).parts[:1]
            if out.is_file() and (out == read or (inside and inside[0] in _PARTS)):
                raise click.UsageError(
                    f"{out}: is an input of this command and would be overwritten; name another file", ctx
                )


def local_copies(snapshots: Iterable[Path | str]) -> tuple[Path | str, ...]:
    """Return the snapshots, with a local copy in place of each remote one: an isolated process reaches no store.

    Another process makes the copies: a process with the threads of a store's library can't be isolated in place.
    """
    named = list(snapshots)
    remote = [one for one in named if isinstance(one, str)]
    if not remote:
        return tuple(named)
    from multiprocessing import get_context

    context = get_context("spawn")
    ours, theirs = context.Pipe()
    copier = context.Process(target=_copy, args=(theirs, remote))
    copier.start()
    theirs.close()
    try:
        found = ours.recv()
    except EOFError as error:
        raise MissingCapability("the process that copies remote snapshots was ended") from error
    finally:
        copier.join()
    if isinstance(found, StillwebError):
        raise found
    copies = dict(zip(remote, found, strict=True))
    return tuple(Path(copies[one]) if isinstance(one, str) else one for one in named)


def _copy(answers: Connection, addresses: list[str]) -> None:
    """Send the paths of local copies of remote snapshots, or the error."""
    from stillweb.snapshots.opening import local_copy

    try:
        answers.send([local_copy(address) for address in addresses])
    except StillwebError as error:
        answers.send(error)


def split_address(words: Sequence[str], what: str) -> tuple[list[Path | str], str]:
    """Split the arguments into snapshots and the address (`what`: "a URL") after them. Raise click's UsageError."""
    if len(words) < 2:
        raise click.UsageError(f"give one or more snapshots and then {what}")
    *paths, address = words
    if is_remote(paths[0]) and os.path.exists(address):  # Path.exists raises for a name that is too long
        raise click.UsageError(f"{address!r} comes first: one or more snapshots and then {what}")
    must_be_url(address)
    return [SNAPSHOT.convert(path, None, None) for path in paths], address


class _Threshold(FiniteRange):
    """A confidence: a number from 0 to 1, or `sure`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number. Fail with a usage error for anything else."""
        try:
            return read_confidence(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


min_confidence_option = click.option(
    "--min-confidence",
    type=_Threshold(0, 1),
    default=SERVED,
    show_default=True,
    metavar="X|sure",
    help="Lowest confidence served, from 0 to 1; 'sure' is 0.99.",
)
max_expected_wrong_option = click.option(
    "--max-expected-wrong",
    type=FiniteRange(0),
    metavar="X",
    help="A gate: exit code 1 if more than X answers are expected to be wrong (the sum of 1 - confidence).",
)
accept_option = click.option(
    "--accept",
    default="rule",
    show_default=True,
    metavar="VERDICT",
    help="Lowest verdict served: exact, canonical, varies or rule; '+unambiguous' refuses guesses.",
)
at_option = click.option(
    "--at",
    default="",
    metavar="DATE",
    help="See nothing later than DATE (2026-03-01), and of several answers the newest; 'latest' for the newest of all.",
)
timing_option = click.option(
    "--timing",
    default="none",
    show_default=True,
    metavar="recorded|xN|none",
    help="Send answers with the recorded time to their first byte and at the recorded pace, or N times as slowly.",
)
faults_option = click.option(
    "--faults",
    type=LocalPath(exists=True, dir_okay=False),
    metavar="FILE",
    help="Disturb answers on purpose, as a YAML file says (docs/drills.md).",
)
synthetic_search_option = click.option(
    "--synthetic-search", is_flag=True, help="Answer searches that were never recorded from the frozen texts."
)


def engine_option(where: str) -> Callable[[FC], FC]:
    """Return the option --engine; `where` is what the help says is done."""
    return click.option(
        "--engine",
        type=click.Choice(["local", "ray"]),
        default="local",
        show_default=True,
        help=f"{where} here, or on a Ray cluster (docs/certificate.md).",
    )


def read_headers(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Return the header fields of --header options. Raise click's UsageError for a line without a colon."""
    headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise click.UsageError(f"--header {line!r}: write 'NAME: VALUE'")
        headers.append((name.strip(), value.strip()))
    return headers


def _together(*options: Callable[[Any], Any]) -> Callable[[FC], FC]:
    """Return a decorator that adds several options, in their order."""

    def add(command: FC) -> FC:
        for option in reversed(options):
            command = option(command)
        return command

    return add


ORIGIN_OPTIONS = ("ca_file", "upstream", "client_cert", "insecure")
# how origins are reached and which of them are trusted
origin_options = _together(
    click.option(
        "--ca-file",
        type=LocalPath(exists=True, path_type=Path),
        help="A PEM file of authorities to trust besides the usual ones.",
    ),
    click.option(
        "--upstream",
        metavar="URL",
        help='The proxy by which to reach the web (http://, socks5://); "" for none. '
        "[default: as HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY say]",
    ),
    click.option(
        "--client-cert",
        type=LocalPath(exists=True, path_type=Path),
        help="A PEM file of a certificate and its key for origins that ask for one, or a directory of files HOST.pem.",
    ),
    click.option("--insecure", is_flag=True, help="Accept any certificate of an origin."),
)
# how an MCP server is asked
served_options = _together(
    click.option(
        "--transport",
        type=click.Choice(["stdio", "http"]),
        default="stdio",
        show_default=True,
        help="http serves at /mcp on loopback.",
    ),
    click.option(
        "--port",
        cls=OptionFor,
        needs="--transport http",
        type=click.IntRange(0, 65535),
        help="the port; a free one by default.",
    ),
)


def read_tasks(source: str) -> TaskSet:
    """Return a task set; print which records could not be read, and which fields are not used.

    A command that leaves out a record must end with exit code 1: a misspelt field must not look like a success.
    """
    from stillweb.harness.datasets import load_tasks

    tasks = load_tasks(source)
    for remark in tasks.remarks:
        say(remark)
    return tasks
