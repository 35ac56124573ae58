"""SGR-Bench: tables to be compiled from sites. Its scorer is `table`, which any task set may use."""

from stillweb.harness.benchmark import Benchmark

BENCHMARK = Benchmark(kinds={"sgr": "stillweb.harness.benchmarks.sgr.dataset"})
