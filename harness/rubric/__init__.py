"""Rubric side-cars: a benchmark's scoring rules in a form that a program can follow.

compile_rubric(task) -> Rubric      by rule, from the English of the task's rubric
load_rubrics / save_rubrics         the file that a person edits

Cells and tables are read by it: `tables`, `normalise`, and the spellings that are one.
"""

from stillweb.harness.rubric.rules import compile_rubric, compile_rubrics
from stillweb.harness.rubric.sidecar import FieldRule, Rubric, load_rubrics, save_rubrics

__all__ = ["FieldRule", "Rubric", "compile_rubric", "compile_rubrics", "load_rubrics", "save_rubrics"]
