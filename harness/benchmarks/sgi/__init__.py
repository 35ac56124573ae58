"""SGI-Bench: deep research, idea generation, dry and wet experiments."""

from stillweb.harness.benchmark import Benchmark, ScorerInfo

_HERE = "stillweb.harness.benchmarks.sgi"

BENCHMARK = Benchmark(
    kinds={"sgi": f"{_HERE}.dataset"},
    scorers={
        "sgi-deep-research": ScorerInfo(
            f"{_HERE}.deep_research:score_deep_research", ("em", "step_accuracy"), judged=True
        ),
        "sgi-idea-generation": ScorerInfo(
            f"{_HERE}.idea:score_idea",
            ("final", "effectiveness", "novelty", "detailedness", "feasibility"),
            best=100.0,
            judged=True,
            embeds="SGI_EMBEDDING_MODEL",
        ),
        "sgi-dry-experiment": ScorerInfo(
            f"{_HERE}.dry:score_dry",
            ("passall5", "passall3", "passall1", "ser", "aet"),
            measured=("aet",),
            judged=True,
        ),
        "sgi-wet-experiment": ScorerInfo(
            f"{_HERE}.wet:score_wet",
            ("final", "sequence_similarity", "parameter_accuracy"),
            settings=("mode",),
        ),
    },
    variables="SGI_",
    wording=f"{_HERE}.common:wording",
    judges=f"{_HERE}.common:judge_endpoints",
    check=f"{_HERE}.dry:check",
)
