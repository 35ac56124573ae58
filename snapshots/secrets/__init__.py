"""Secrets: their detection in messages, and the pseudonyms that replace them."""
