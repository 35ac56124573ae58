"""Exports of a run in formats that other tools' viewers open.

    openinference.py    a trace as OTLP/JSON spans with OpenInference's attribute names
    attempts_csv.py     one row per attempt, for a spreadsheet
    inspect_log.py      one inspect log of all attempts
    published.py        a run as it may be published, encrypted where its task set is

Times are those of the run if the trace has them, else counted from 0, so that an export depends on the run's
files alone.
"""
