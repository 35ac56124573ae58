"""Runs: a run's files, what it needs, attempts played in parallel here or on a cluster, and what is shown meanwhile."""
