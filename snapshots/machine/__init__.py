"""This machine: bytes at any offset (`places`), what is kept for another time, locks, processes for many jobs."""
