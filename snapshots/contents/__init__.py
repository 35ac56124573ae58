"""Contents of a snapshot: its records as they are written, the list of its files, its frozen texts."""
