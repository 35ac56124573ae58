"""The local machine: files and other random-access bytes (`random_access`), the cache, locks, worker processes."""
