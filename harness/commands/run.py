from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import click
import msgspec
import yaml

from stillweb.harness.commands.options import (
    FILE,
    FOLDER,
    OUT,
    SNAPSHOT,
    FiniteRange,
    LocalPath,
    OptionFor,
    accept_option,
    at_option,
    engine_option,
    faults_option,
    local_copies,
    max_expected_wrong_option,
    min_confidence_option,
    several,
    synthetic_search_option,
    timing_option,
)
from stillweb.harness.commands.program import isolate_program
from stillweb.harness.commands.show import show_run
from stillweb.harness.console import make_search_ready, print_json, say
from stillweb.snapshots.shapes import convert
from stillweb.snapshots.words import pluralize

if TYPE_CHECKING:
    from stillweb.api import Run
    from stillweb.harness.runs.display import Display
    from stillweb.proxy.replay.faults import Faults


@click.command("run")
@click.option(
    "--tasks",
    "source",
    metavar="SET",
    help="A task set: a file, a folder, or hub:OWNER/NAME (docs/tasks.md).",
)
@click.option(
    "--agent",
    metavar="AGENT",
    help="openai:MODEL, anthropic:MODEL, gemini:MODEL, command:PROGRAM, script:FILE, FILE.yaml or module:object (docs/runs.md).",
)
@click.option(
    "--snapshot",
    "snapshots",
    multiple=True,
    type=SNAPSHOT,
    metavar="SNAPSHOT",
    help="The frozen web; may be given several times, the last on top. Without one there are no tools.",
)
@click.option("-o", "--out", type=OUT, help="The run's directory; an unfinished run in it is continued.")
@click.option(
    "--file",
    "run_file",
    type=FILE,
    help="SGI-Bench's run file, which names models, sets and directory, instead of --tasks, --agent and -o.",
)
@click.option(
    "--data",
    type=FOLDER,
    cls=OptionFor,
    needs="--file",
    help="the folder of the sets (deep_research/test.jsonl …); data/sgibench, else the hub, by default.",
)
@click.option(
    "--contract",
    "contracts",
    multiple=True,
    default=("fetch",),
    show_default=True,
    metavar="CONTRACT",
    help="Tools that the agent gets, as for `stillweb mcp`; may be given several times; or `none`.",
)
@click.option(
    "--uploads",
    type=FOLDER,
    help="A folder of files that the agent may give to pages; each attempt gets copies. By default it has none.",
)
@click.option(
    "--rubrics",
    type=LocalPath(exists=True),
    help="Rules for scoring tables, from `stillweb rubric compile`; compiled on the spot by default.",
)
@click.option(
    "--grader-template",
    type=FILE,
    help="The prompt of the graders of judge and browsecomp, a text with {question}, {response} and {correct_answer}.",
)
@click.option("--split", help="The split of a folder or of a set on the hub: goal, constraint, test, ….")
@click.option("--only", metavar="IDS", multiple=True, callback=several, help="Task ids, separated by commas.")
@click.option("--limit", type=click.IntRange(1), help="The first N tasks.")
@click.option(
    "--epochs", default=1, show_default=True, type=click.IntRange(1, 10_000), help="Attempts at each task."
)
@click.option(
    "--parallel", type=click.IntRange(1), help="Attempts at once. [default: two for each core, at most 16]"
)
@accept_option
@min_confidence_option
@max_expected_wrong_option
@synthetic_search_option
@click.option(
    "--tape",
    type=click.Choice(["record", "replay", "auto", "none"]),
    default="auto",
    show_default=True,
    help="Model calls: auto asks only for what is not on the tape, record begins anew, replay never asks, none keeps nothing.",
)
@click.option("--tape-path", type=OUT, help="The directory of recorded model calls; OUT/tape by default.")
@click.option(
    "--max-steps",
    type=click.IntRange(1),
    default=50,
    show_default=True,
    help="Most model calls of an attempt.",
)
@click.option(
    "--max-calls",
    type=click.IntRange(0),
    default=200,
    show_default=True,
    help="Most tool calls of an attempt.",
)
@click.option("--max-tokens", type=click.IntRange(1), help="Most tokens of an attempt.")
@click.option("--max-cost", type=FiniteRange(0), help="Most money of an attempt; needs --prices.")
@click.option(
    "--prices", type=FILE, help="YAML: model: {input: …, output: …, cached: …}, per million tokens."
)
@click.option(
    "--timeout",
    type=FiniteRange(0),
    default=1800,
    show_default=True,
    help="Most seconds of an attempt; 0 for no limit.",
)
@click.option(
    "--mode",
    type=click.Choice(["faithful", "fixed"]),
    default="faithful",
    show_default=True,
    help="Scoring of SGI-Bench: as its authors do, quirks included, or repaired.",
)
@click.option("--ignore-case", is_flag=True, help="Ignore capitals when table cells are compared.")
@click.option(
    "--otlp",
    metavar="URL",
    help="Send each attempt, as it ends, to an OTLP collector (HTTP, JSON), as spans named as OpenInference does.",
)
@engine_option("Run")
@click.option(
    "--retry-failed",
    is_flag=True,
    help="Make attempts that ended in an error, or whose scoring failed, again.",
)
@at_option
@faults_option
@timing_option
@click.option(
    "--drill",
    type=LocalPath(exists=True, dir_okay=False),
    metavar="FILE",
    help="Run without and with the faults of FILE, into OUT/plain and OUT/faults, and compare (docs/drills.md).",
)
@click.option("--isolate", is_flag=True, help="Run in a network namespace that has only loopback.")
@click.option(
    "--allow-unconfined",
    is_flag=True,
    help="Start programs and model-written code also where this machine can't confine them; the certificate says so.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Print a line for each attempt, and its scores.")
def command(
    source: str | None,
    agent: str | None,
    snapshots: tuple[Path | str, ...],
    out: Path | None,
    run_file: Path | None,
    data: Path | None,
    contracts: tuple[str, ...],
    only: list[str] | None,
    max_expected_wrong: float | None,
    max_steps: int,
    max_calls: int,
    max_tokens: int | None,
    max_cost: float | None,
    prices: Path | None,
    timeout: float,
    otlp: str | None,
    at: str,
    faults: str | None,
    drill: str | None,
    isolate: bool,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Run AGENT on the tasks of SET against frozen snapshots. The same command continues an unfinished run.

    \b
    stillweb run --tasks goal.jsonl --agent openai:gpt-5 --snapshot site.wacz -o run1 --contract fetch
    stillweb run --tasks tasks.jsonl --agent script:agent.yaml --snapshot site.wacz -o run1 --isolate
    stillweb run --file sgibench.yaml                             each model on each set of SGI-Bench's run file
    """
    if run_file is not None:
        if source or agent or out or snapshots:
            raise click.UsageError(
                "--file names tasks, agents and directory; leave --tasks, --agent, --snapshot and -o out"
            )
        kept = ("mode", "retry_failed", "allow_unconfined")
        _run_file(run_file, data, as_json, {name: options[name] for name in kept})
        return
    if source is None or agent is None or out is None:
        name = "--tasks" if source is None else "--agent" if agent is None else "--out"
        raise click.UsageError(f"Missing option '{name}'.")
    if faults and drill:
        raise click.UsageError("--drill runs with and without its faults; --faults does not go with it")
    from stillweb.harness.agents import local_endpoints

    if isolate:
        inside = local_endpoints(agent)
        snapshots = local_copies(snapshots)
        isolate_program(inside)
    from stillweb.api import run as run_tasks
    from stillweb.harness.agents.attempt import Limits
    from stillweb.harness.drills import read_faults
    from stillweb.harness.runs.display import make_display
    from stillweb.snapshots import Snapshot
    from stillweb.snapshots.errors import GateFailed

    if options["synthetic_search"] and snapshots:
        with Snapshot.open(*snapshots, at=at) as snapshot:
            make_search_ready(snapshot)

    disturbing = read_faults(drill or faults)  # before a model is paid for the attempts without faults

    def made_in(path: Path, disturbed: Faults | None) -> Run:
        display: Display = make_display(each=verbose)
        if otlp is not None:
            from stillweb.harness.export.openinference import SendingDisplay

            display = SendingDisplay(display, path, otlp, say)
        return run_tasks(
            tasks=source,
            agent=agent,
            snapshot=snapshots,
            out=path,
            contracts=() if contracts == ("none",) else contracts,
            only=only or (),
            limits=Limits(max_steps, max_calls, max_tokens, timeout or None, max_cost),
            prices=_prices(prices, max_cost),
            faults=disturbed,
            at=at,
            display=display,
            note=say,
            **options,
        )

    if drill:
        _drill(made_in(out / "plain", None), made_in(out / "faults", disturbing), as_json)
        return
    run = made_in(out, disturbing)
    summary, wrong = show_run(run, as_json, each=verbose)
    if summary.failed:  # an endpoint that is down must not look like a run that is done
        raise GateFailed(
            f"{out}: {wrong}; "
            f"'stillweb report {out}' shows all of it, the same command with --retry-failed makes them again"
        )
    if max_expected_wrong is not None and summary.expected_wrong > max_expected_wrong:
        raise GateFailed(
            f"{out}: {summary.expected_wrong:.2f} answers are expected to be wrong, more than "
            f"--max-expected-wrong {max_expected_wrong:g}; record what was presumed, or raise --min-confidence"
        )
    if wrong:
        raise GateFailed(f"{out}: {wrong}; correct the set, and run it into another directory")


def _drill(plain: Run, faulted: Run, as_json: bool) -> None:
    """Print what became of each attempt of a drill, and the certificates of both runs.

    Raise GateFailed if an attempt failed without faults.
    """
    from stillweb.harness.drills import drill
    from stillweb.snapshots.errors import GateFailed

    certificates = {run.path.name: run.certificate["hash"] for run in (plain, faulted)}
    found = drill(plain.path, faulted.path)
    if as_json:
        print_json({**found.to_json(), "certificates": certificates})
    else:
        click.echo(str(found))
        for name, certificate in certificates.items():
            click.echo(f"certificate of {name}: {certificate}")
        click.echo(f"compare in full: stillweb compare {plain.path} {faulted.path}")
    if failed := len(plain.summary.failed):
        raise GateFailed(
            f"{plain.path}: {pluralize(failed, 'attempt')} failed without any fault, which says nothing about faults; "
            f"'stillweb report {plain.path}' shows why"
        )


def _run_file(path: Path, data: Path | None, as_json: bool, options: dict[str, Any]) -> None:
    """Run each model of SGI-Bench's run file on each of its sets, in `output_dir/MODEL/SET-SPLIT`."""
    from stillweb.api import run as run_tasks
    from stillweb.harness.agents.attempt import Limits
    from stillweb.harness.benchmarks.sgi.run_file import load_run_file
    from stillweb.harness.runs.display import make_display
    from stillweb.snapshots.errors import GateFailed

    file = load_run_file(path)
    found = []
    for folder, agent, source, split in list(file.runs(data)):
        say(f"{folder}: {agent['model']} on {source}")
        folder.mkdir(parents=True, exist_ok=True)
        spec = folder.absolute() / "agent.yaml"
        spec.write_text(yaml.safe_dump(agent, sort_keys=False), encoding="utf-8")
        run = run_tasks(
            tasks=source,
            agent=str(spec),
            out=folder / "run",
            split=split,
            limit=file.limit,
            parallel=file.run.concurrency,
            limits=Limits(seconds=None),
            display=make_display(),
            note=say,
            **options,
        )
        if wrong := show_run(run, as_json)[1]:
            found.append(f"{run.path}: {wrong}")
    if found:
        raise GateFailed(f"{found[0]}; the same command with --retry-failed makes them again")


Price = Annotated[float, msgspec.Meta(ge=0)]


def _prices(path: Path | None, limit: float | None) -> dict[str, dict[str, float]]:
    """Return the prices by model. Raise UsageError for a wrong file, or for a limit of money without prices."""
    from stillweb.harness._parsing import read_yaml
    from stillweb.snapshots.errors import UsageError

    if path is None:
        if limit is not None:
            raise UsageError("--max-cost needs --prices: without them no call costs anything")
        return {}
    prices = read_yaml(path)
    try:
        found = convert(prices, dict[str, dict[Literal["input", "output", "cached"], Price]])
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None
    for model, price in found.items():
        if not {"input", "output"} <= price.keys():
            raise UsageError(f"{path}: {model}: must hold input and output, and may hold cached")
    return {model: {str(name): amount for name, amount in price.items()} for model, price in found.items()}
