"""What a run comes to: the sums of its traces, what they leave out, and the certificate."""
