"""Archive files: WARC records, gzip members, sequential scans, HTTP messages in records, directories."""
