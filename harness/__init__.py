"""Evaluation of agents on snapshots: run tasks, score answers, and prove that a run repeats.

Basics       task.py, benchmark.py, trace.py (trace.schema.json), console.py (output shared by all commands), _parsing.py (strict
             readers of files that people wrote)
Entry points cli.py (`stillweb`), pytest_plugin.py, inspecting.py (for inspect_ai)

From the top down, each folder imports only the folders below it:
commands/    one module for each command
demo/        a site to record, tasks on it, and the script that goes the whole way
testing/     support for tests marked `snapshot`
view/        pages of snapshots, runs and their differences, served or exported
curation/    checks of task sets and rubrics against snapshots, before a model is paid
review/      judgements by people of why an answer was wrong, and their agreement
export/      a run in the formats of other viewers
compare/     two runs compared task by task, and gates on the comparison
results/     summaries of a run, and its certificate
runs/        attempts in parallel, and the files of a run
servers/     servers of the tools: MCP, and search services at their real addresses
agents/      an attempt, and its agent: a script, a model, a program
benchmarks/  SGI-Bench, SGR-Bench, BrowseComp: their records, scorers and prompts
datasets/    task sets, read by the benchmark that recognises them, or as questions
scoring/     scorers: from an answer to its score
rubric/      scoring rules in side-cars, and the cells and tables that they read
sandbox/     confined programs: agents, and code that a model wrote
models/      model endpoints, and the tape
tools/       the tools that agents call, answered from a snapshot
"""
