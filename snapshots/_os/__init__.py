"""The local machine: files and other random-access bytes (`places`), the cache, locks, worker processes."""
