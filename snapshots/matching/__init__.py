"""Which capture answers a request: the ladder of verdicts, the choice among several, and why there is none."""
