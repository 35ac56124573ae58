"""Automatic exploration of the states of a page, and the graph of the states found."""
