"""Models behind OpenAI-compatible endpoints: the client, the way to the endpoint, and the tape."""
