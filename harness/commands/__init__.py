"""One module for each command of the command line, with a click command named `command`; beside them, what some of them share."""
