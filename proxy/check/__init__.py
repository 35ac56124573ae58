"""Replay of every view, comparison with the recording, and the report page."""
