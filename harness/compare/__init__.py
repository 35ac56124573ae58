"""Comparison of two runs task by task, statistics, and gates for builds."""
