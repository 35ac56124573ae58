"""Agents on a frozen web: tasks asked, answers scored, and proof that the same comes out again.

Words        task.py, trace.py (trace.schema.json), console.py (what every command shows alike), _parsing.py (files that
             people wrote, read strictly)
Entries      cli.py (`stillweb`), pytest_plugin.py, inspecting.py (for inspect_ai)

From the top down, each folder imports only those below it:
commands/    one module for each command
demo/        a site to record, tasks on it, and the script that goes the whole way
testing/     what a test marked `snapshot` is given
curation/    task sets and rubrics held against snapshots, before anyone is paid
review/      what went wrong in an attempt, said by people: their page, and how far they agree
report/      a run, and two beside each other, as one HTML file
export/      a run in the formats of other people's viewers
compare/     two runs, task by task, and gates on that
results/     the sums of a run, and its certificate
runs/        attempts in parallel, and the files they leave
servers/     tools on the wire: MCP, and search services at their addresses
agents/      an attempt, and who makes it: a script, a model, a program
prompts/     long-context prompts, built from frozen texts
datasets/    task sets: SGR-Bench, BrowseComp Long Context, SGI-Bench, one's own
scoring/     from an answer to its score
rubric/      scoring rules that a program follows: cells and tables read by them
sandbox/     confined programs: agents, and code that a model wrote
models/      model endpoints, and the tape
tools/       the tools that agents call, answered from a snapshot
"""
