"""Servers of a toolset: MCP over stdio and streamable HTTP."""
