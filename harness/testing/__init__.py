"""What a test marked `snapshot` is given: answers in this process, and no network."""
