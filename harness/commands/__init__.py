"""Commands of the command line: one module for each, with a click command named `command`, and shared helpers."""
