"""Run the command line: `python -m stillweb`."""

from stillweb.harness.cli import run

if __name__ == "__main__":
    run()
