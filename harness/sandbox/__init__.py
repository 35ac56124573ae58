"""Confined programs: `running` starts and ends them, `launcher` is the inside of their process, `seccomp` its filter."""
