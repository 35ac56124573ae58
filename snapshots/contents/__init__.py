"""What a snapshot holds beside captures' bytes: records as they are written, the list of its files, frozen texts."""
