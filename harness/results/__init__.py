"""Results of a run: summary, remarks on what it leaves out, and certificate."""
