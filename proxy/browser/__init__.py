"""Pages in a browser: time held still (`freeze`), steps, the content of a page, and stored views."""
