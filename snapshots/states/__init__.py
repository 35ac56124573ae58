"""What a server was told before: what an exchange may change, what a recording proves of it, and the state of a capture."""
