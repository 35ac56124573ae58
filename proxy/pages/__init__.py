"""Pages in a browser: time held still (`freeze`), steps, what a page shows, and views stored."""
