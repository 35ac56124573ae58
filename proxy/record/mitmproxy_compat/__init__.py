"""Changes to mitmproxy that recording needs.

`_patch` holds the table of all changes. Each is a subclass that overrides a few methods of one class of mitmproxy:
`dispatch` has what makes these subclasses, and answers hooks; `http1`, `http2` and `websocket` have the protocols,
`lifetime` has how exchanges and connections end.
"""
