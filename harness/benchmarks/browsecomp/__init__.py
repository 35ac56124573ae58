"""BrowseComp, and BrowseComp Long Context with its prompts of pages."""

from stillweb.harness.benchmark import Benchmark, ScorerInfo

BENCHMARK = Benchmark(
    kinds={
        "browsecomp-lc": "stillweb.harness.benchmarks.browsecomp.dataset",
        "prompts": "stillweb.harness.benchmarks.browsecomp.built_prompts",
    },
    scorers={
        "browsecomp": ScorerInfo(
            "stillweb.harness.benchmarks.browsecomp.scorer:score_browsecomp",
            ("correct",),
            judged=True,
            text=True,
            settings=("GRADER_MODEL",),
        )
    },
    wording="stillweb.harness.benchmarks.browsecomp.scorer:wording",
)
