"""Running code that a model wrote: `running` starts and ends it, `launcher` is the inside of its process."""
