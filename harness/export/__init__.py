"""A run in other people's formats, so that their viewers open it.

    openinference.py    a trace as OTLP/JSON spans with OpenInference's attribute names
    attempts_csv.py     a row an attempt, for a spreadsheet
    inspect_log.py      one inspect log of all attempts

Times are those of the run where the trace has them, else counted from 0, so that an export is a function of the run's
files alone.
"""
