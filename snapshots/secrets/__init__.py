"""Secrets: what one is, how it is found, and what stands in its place."""
