"""Finding the states of a page by itself, and the graph of what was found."""
