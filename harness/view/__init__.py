"""Pages of `stillweb view`: snapshots, runs and their differences, in one local web application.

    with ViewServer(Site(snapshots=[path], runs=[path])) as server: print(server.url)

run_table.py        attempts of a run as rows, kept in the cache: filters, sorting, roll-up by task
snapshot_pool.py    open snapshots, and lists of their captures
library.py          runs and snapshots that are open, and the making of pages from them
snapshot_pages.py   pages on snapshots
site.py             an address to a page, and the pages on runs; used by the server and by exports alike
server.py           the web server, its checks and forms
step_page.py        the page at a step of an attempt, made again by replaying its calls
figures.py          figures of a run as a whole
comparison_pages.py pages on differences: runs, attempts, snapshots
export.py           the pages as a folder, or as one file
replayer.py         a view replayed in a browser
frozen_page.py      the recorded DOM of a page, on another origin, without scripts and network
templates/, static/ the layout, and htmx (0BSD)
"""
