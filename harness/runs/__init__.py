"""Runs: their files, preflight checks, parallel attempts (local or on a cluster) and progress display."""
