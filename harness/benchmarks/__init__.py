"""Stillweb's own benchmarks, each a `stillweb.harness.benchmark.Benchmark`."""
