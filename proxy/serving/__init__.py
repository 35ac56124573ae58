"""Replay: the gateway, its connections and processes, what is served, and the ledger."""
