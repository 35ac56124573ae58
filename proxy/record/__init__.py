"""Recording: mitmproxy in this process (`recorder`), from its flows to the archive."""
