"""Support for tests marked `snapshot`: answers from a snapshot in this process, and a blocked network."""
