"""Identity of requests: the lossless key, rules that join requests, sites, irrelevant requests."""
