"""Archive files: records (`warc`), gzip members, reading from front to back (`scan`), HTTP in records, a directory of files."""
