"""Command line. A command's module is loaded only when the command is used, so that `--help` is fast."""

from __future__ import annotations

import atexit
import contextlib
import errno
import importlib
import io
import os
import signal
import sys
import threading

try:
    import click
except KeyboardInterrupt:  # main() is not defined yet
    sys.exit(130)

# title -> command -> (module in stillweb.harness.commands, one line of help), in the order of a usual workflow
SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Begin here": {"demo": ("demo", "The whole way on an embedded site, offline at the end.")},
    "Make a snapshot": {
        "record": ("record", "Record URLs with a browser, or whatever a program fetches."),
        "import": ("import_", "Take in HAR, WARC, ARC, WACZ or mitmproxy flow files."),
        "seal": ("seal", "Freeze the texts and make one .wacz file."),
        "verify": ("verify", "Re-read every record, digest, offset and listed file."),
        "index": ("index", "Rebuild the index from the WARCs alone."),
    },
    "Look into a snapshot": {
        "ls": ("ls", "List captures or views."),
        "fetch": ("fetch", "Print the frozen text of a page, PDF or view."),
        "search": ("search", "Search the frozen texts."),
        "lookup": ("lookup", "Say what would be served, by which verdict, and why not the others."),
        "check": ("check", "Replay every view offline and compare with what was recorded."),
        "diff": ("diff", "Compare two snapshots, and name the tasks that this touches."),
        "text": ("text", "Count the frozen texts, and show what newer extractors would change."),
        "refresh": ("refresh", "Record anew what a snapshot holds."),
        "drift": ("drift", "Say how far a site has drifted since, and which tasks expire."),
        "mutate": ("mutate", "Change recorded pages on purpose, as a layer over the snapshot."),
        "cut": ("cut", "Cut out the part that a run needs, as a snapshot of its own."),
    },
    "Answer programs and agents from it": {
        "replay": ("replay", "Serve it as a proxy to any program, with no way out."),
        "mcp": ("mcp", "Serve the frozen tools to an MCP client."),
        "mcp-record": ("mcp_record", "Record the calls of any MCP server."),
        "mcp-replay": ("mcp_replay", "Answer as the MCP server that was recorded."),
    },
    "Run and score tasks": {
        "coverage": ("coverage", "Say what of a task set the snapshot can answer, before a model is paid."),
        "rubric": ("rubric", "Compile and lint the scoring rules of a task set."),
        "prompts": ("prompts", "Build long-context prompts."),
        "run": ("run", "Run an agent on tasks, and score it."),
        "fork": ("fork", "Repeat an attempt up to a step, and go on with another model."),
        "score": ("score", "Score a run again, from its traces alone."),
        "certify": ("certify", "Repeat a run and print one hash, or what differs first."),
        "report": ("report", "Write a run's report as one HTML file."),
        "compare": ("compare", "Compare runs, task by task."),
        "publish": ("publish", "Publish a run or a snapshot to a store or a folder."),
        "pull": ("pull", "Copy what was published, and check every digest."),
        "view": ("view", "Look at snapshots, runs and differences in the browser."),
        "review": ("review", "Say, as a person, why answers were wrong."),
    },
}
COMMANDS = {name: command for section in SECTIONS.values() for name, command in section.items()}


class _LazyGroup(click.Group):
    """Group that imports a command's module when the command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"stillweb.harness.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        for option in command.params:  # click shows a range's limits by itself
            if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
                option.metavar = option.metavar or "N"
                option.type.name = "number"  # in click's errors; "integer range" is its own word
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            for near in get_close_matches(args[0], COMMANDS, 1):
                raise click.UsageError(f"{error.message} Did you mean {near!r}?", ctx) from error
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])


@click.command(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 a gate failed, 2 wrong usage, 3 damaged input, "
    "4 the machine lacks something, 130 interrupted.",
)
@click.version_option(package_name="stillweb", prog_name="stillweb")
def cli() -> None:
    """Record the web once; run any agent against it for ever after, offline.

    \b
    stillweb record https://example.com -o site        record with a browser
    stillweb seal site                                 make site.wacz
    stillweb replay site.wacz -- python agent.py       run a program against it, offline
    """
    from stillweb.proxy.net.open_files import allow_many_open_files

    allow_many_open_files()


# Errors of the machine, not of the program or its input: errno -> remedy.
_LACKS = {
    errno.ENOSPC: "make room and go on",
    errno.EDQUOT: "make room and go on",
    errno.EFBIG: "a limit on the size of files is set",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
    errno.ENOMEM: "free some memory",
    errno.EROFS: "choose another place",
    errno.EIO: "the disk fails",
    errno.EADDRINUSE: "choose another port, or 0 for any free one",
    errno.EADDRNOTAVAIL: "choose another address",
}


_ended: list[int] = []  # the exit code, once `main` has ended


def run() -> int:
    """Run `main` and exit without freeing memory first (what that saves: docs/speed.md)."""
    atexit.register(_leave)  # registered first, so called last
    _open_closed()
    return main()


def _open_closed() -> None:
    """Open a closed stdin, stdout or stderr (`>&-`) as /dev/null.

    Otherwise the next opened file would get its descriptor, and the output of a child process would go into that file.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdin = sys.stdin or os.fdopen(0)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")


def _leave() -> None:
    if not _ended:  # a bug: Python shows the traceback
        return
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(_ended[-1])


def main(argv: list[str] | None = None) -> int:
    """Run the command line and exit with a documented exit code."""
    if own := threading.current_thread() is threading.main_thread():
        # handled like Ctrl-C, so that child processes and browsers are ended, too
        signal.signal(signal.SIGTERM, _end)
        if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # not with nohup
            signal.signal(signal.SIGHUP, _end)
    for stream in (sys.stdout, sys.stderr):
        # a page or a task may have characters that the terminal's encoding lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if sys.stdout.isatty() or sys.stderr.isatty():
        from stillweb.harness.console import Terminal

        sys.stdout, sys.stderr = (
            Terminal(stream) if stream.isatty() else stream for stream in (sys.stdout, sys.stderr)
        )
    output = sys.stdout
    try:
        result = cli.main(args=argv, prog_name="stillweb", standalone_mode=False)
        code = result if isinstance(result, int) else 0
        if not sys.stdout.closed:  # `mcp` over stdio closes it when its client disconnects
            sys.stdout.flush()
    except SystemExit as end:
        # on a broken pipe click replaces stdout and exits: the reader has seen enough, which is no error
        unread = sys.stdout is not output
        code = 0 if unread else end.code if isinstance(end.code, int) else 1
    except BaseException as error:
        found = _exit_code(error)
        if found is None:
            raise  # a bug: show the traceback
        code = found
    if own:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # all is closed; a second Ctrl-C may kill the process
    _drop_unwritten()
    _ended.append(code)
    sys.exit(code)


def _end(number: int, _: object) -> None:
    sys.exit(128 + number)


def _exit_code(error: BaseException) -> int | None:
    """Print an error as one line and return its exit code; None for a bug."""
    from stillweb.snapshots.errors import StillwebError

    match error:
        case click.exceptions.Exit():
            return error.exit_code
        case click.exceptions.Abort(__cause__=EOFError()):
            return None  # click takes an EOFError for the end of a prompt; there are no prompts here
        case click.exceptions.Abort() | KeyboardInterrupt():
            _say("interrupted; files written so far are kept")
            return 130
        case click.ClickException():
            with contextlib.suppress(OSError):
                error.show()
            return 2
        case StillwebError():
            _say(f"error: {error}")
            return error.exit_code
        case BrokenPipeError():
            return 0
        case ModuleNotFoundError():
            from stillweb.snapshots.extras import missing_extra

            missing = missing_extra(error)
            return None if missing is None else _exit_code(missing)
        case OSError() if error.errno in _LACKS:
            where = f"{error.filename}: " if error.filename else ""
            _say(f"error: {where}{error.strerror}; {_LACKS[error.errno]}")
            return 4
        case UnicodeEncodeError() if error.encoding == sys.getfilesystemencoding() != "utf-8":  # of paths
            _say(
                f"error: {error.object!r}: can't be named in this locale ({error.encoding}); set PYTHONUTF8=1"
            )
            return 4
        case MemoryError():
            _say("error: there is not enough memory; free some, or raise its limit (ulimit -v)")
            return 4
        case RuntimeError() if str(error) == "can't start new thread":
            _say(
                "error: no more threads can be started: memory or processes are short (ulimit -v, ulimit -u)"
            )
            return 4
        case (
            FileNotFoundError()
            | FileExistsError()
            | IsADirectoryError()
            | NotADirectoryError()
            | PermissionError()
            | OSError(errno=errno.ENAMETOOLONG | errno.ELOOP)
        ):
            if error.filename is None:
                if "temporary directory" in str(error):  # raised by the module tempfile
                    _say(f"error: {error.strerror}; make room, or name one in TMPDIR")
                    return 4
                return None
            name = os.fsdecode(error.filename)
            folder = os.path.dirname(name)
            if isinstance(error, FileNotFoundError) and folder and not os.path.isdir(folder):
                _say(f"error: {name}: there is no directory {folder}")
            else:
                _say(f"error: {name}: {error.strerror}")
            return 2
        case BaseExceptionGroup() if len(error.exceptions) == 1:
            return _exit_code(error.exceptions[0])
    return None


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # stderr is closed, or its disk is full
        click.echo(f"stillweb: {text}", err=True)


def _drop_unwritten() -> None:
    """Flush stdout and stderr; if one fails, redirect it to /dev/null, or the interpreter would print an error."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
