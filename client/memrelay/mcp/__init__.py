"""The memory as an MCP server; needs the extra `memrelay[mcp]`.

It does not own any rule about texts (`gateway/`).
"""
