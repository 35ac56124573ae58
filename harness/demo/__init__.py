"""The demo: a site to record, tasks to run on it, and the script that does every step.

`data/` holds three small open data sets. `site.py` is our own site with what Datasette lacks: a filter kept
in a server-side session, a table drawn from a JSON POST, tabs, PDFs. `origin.py` starts both servers over
TLS. `tasks.jsonl` and `agent.yaml` are four tasks and a scripted agent. `walk.py` is `stillweb demo`.
"""
