"""Checks of task sets against snapshots before a run: rubric lint, answer audit and coverage."""
