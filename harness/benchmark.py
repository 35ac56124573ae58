"""Benchmarks: task sets with scorers of their own, each a package that registers a `Benchmark`.

Those of Stillweb lie in harness/benchmarks. A distribution adds its own by the entry point group
`stillweb.benchmarks`, which names a `Benchmark` (`name = "package.module:BENCHMARK"`). Its module imports no other
module of Stillweb than this one, since it is loaded with the scorers; the functions that it names are imported when
they are first used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

from stillweb.snapshots.errors import UsageError

GROUP = "stillweb.benchmarks"
PACKAGED = ("sgr", "browsecomp", "sgi")  # named as entry points, too; a checkout's metadata may be older


@dataclass(frozen=True, slots=True)
class ScorerInfo:
    """A scorer: its `function` (`module:function`), and its `metrics`, the first of which ranks runs.

    `best` is the highest value of its metrics; `measured` are those that differ between machines. `judged`: it asks
    a judge. `text`: it compares an answer as a whole with a reference text. `embeds` is the variable that names its
    embedder. `settings` are the scoring settings that its scores depend on; None for all.
    """

    function: str
    metrics: tuple[str, ...]
    best: float = 1.0
    measured: tuple[str, ...] = ()
    judged: bool = False
    text: bool = False
    embeds: str = ""
    settings: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Parts that a benchmark adds. Places are `module:function`; "" for nothing.

    `kinds` maps a kind of task set to its module, which has FIELDS, `recognise(data) -> bool` and `build(record)
    -> Task`. `variables` is the prefix of the benchmark's documented variables, which count as settings
    of a run. `wording(scorer)` gives the packaged prompts of a judge (with a `version`). `judges(scorers, env,
    default)` gives judge model (None: all others) -> endpoint for these scorers; by default one endpoint serves all.
    `check(tasks, env, allow_unconfined)` raises an error for what the machine lacks for these tasks.
    """

    kinds: Mapping[str, str] = field(default_factory=dict)
    scorers: Mapping[str, ScorerInfo] = field(default_factory=dict)
    variables: str = ""
    wording: str = ""
    judges: str = ""
    check: str = ""


@cache
def benchmarks() -> dict[str, Benchmark]:
    """Return the benchmarks by name: Stillweb's, then those of other distributions, in the order of their names.

    Raise UsageError for one that can't be loaded, or that takes a name which is another's.
    """
    from importlib.metadata import entry_points

    places = {name: f"stillweb.harness.benchmarks.{name}:BENCHMARK" for name in PACKAGED}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        if places.setdefault(entry.name, entry.value) != entry.value:
            raise UsageError(
                f"{GROUP}: {entry.value} takes the name {entry.name!r} of {places[entry.name]}. Rename one"
            )
    found: dict[str, Benchmark] = {}
    owner: dict[str, str] = {}
    for name, place in places.items():
        benchmark = _loaded(name, place)
        for own in (*benchmark.kinds, *benchmark.scorers):
            if owner.setdefault(own, name) != name:
                raise UsageError(
                    f"{GROUP}: {place}: {own!r} is a name of the benchmark {owner[own]!r}. Rename one"
                )
        found[name] = benchmark
    return found


def _loaded(name: str, place: str) -> Benchmark:
    try:
        benchmark = function_at(place)
    # other people's code, whatever it raises: the sentence says whose it is
    except Exception as error:
        raise UsageError(
            f"{GROUP}: {name} = {place}: {type(error).__name__}: {error}. Mend or uninstall the distribution"
        ) from error
    if not isinstance(benchmark, Benchmark):
        raise UsageError(f"{GROUP}: {name} = {place}: is not a Benchmark. Mend or uninstall the distribution")
    return benchmark


def benchmark_of(scorer: str) -> Benchmark | None:
    """Return the benchmark of a scorer, None for a scorer of no benchmark."""
    return next((one for one in benchmarks().values() if scorer in one.scorers), None)


def function_at(place: str) -> Any:
    """Return the object at `module:name`."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
