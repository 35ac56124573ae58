"""Models behind OpenAI-compatible endpoints: client, transport to the endpoint, and tape."""
