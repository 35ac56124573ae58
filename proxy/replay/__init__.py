"""Replay: the gateway, its connections, the answers that it serves, and the ledger."""
