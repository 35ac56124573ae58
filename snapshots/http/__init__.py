"""HTTP without a snapshot: bodies, content encodings, weighted field values, languages, byte ranges."""
