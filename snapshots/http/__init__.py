"""What HTTP says, without a snapshot: bodies and their encodings, field values with weights, languages, ranges."""
