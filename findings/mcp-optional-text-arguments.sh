#!/usr/bin/env bash
# A tool of the MCP package that takes a text or nothing does not get every text.
#
# Version: mcp 2.3.0. Seen on CPython 3.11.
# Behaviour: an argument annotated `str` is handed over as it came. One annotated `str | None` is read
# as JSON first where it is a string: "null" becomes None, and a text that is a JSON object becomes an
# object, which the annotation then refuses. A memory, note or search for such a text fails, or counts
# as absent, for the one tool whose argument is optional, and works in the next.
# Output seen:
#   required: 'null' -> 'null', '{"theme": "dark"}' -> '{"theme": "dark"}'
#   optional: 'null' -> None, '{"theme": "dark"}' -> refused
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check mcp==2.3.0
"$folder/venv/bin/python" - <<'PYTHON'
import asyncio

from mcp.server import MCPServer

server = MCPServer("notes")
got = []


@server.tool()
def required(text: str) -> str:
    """Note a text."""
    got.append(text)
    return "noted"


@server.tool()
def optional(text: str | None = None) -> str:
    """Note a text, if there is one."""
    got.append(text)
    return "noted"


async def ask(tool: str, text: str) -> object:
    got.clear()
    try:
        await server.call_tool(tool, {"text": text})
    except Exception:
        return "refused"
    return repr(got[0]) if got else "refused"


async def main() -> None:
    seen = {}
    for tool in ("required", "optional"):
        seen[tool] = [await ask(tool, text) for text in ("null", '{"theme": "dark"}')]
        print(f"{tool}: 'null' -> {seen[tool][0]}, '{{\"theme\": \"dark\"}}' -> {seen[tool][1]}")
    assert seen["required"] == ["'null'", "'{\"theme\": \"dark\"}'"]
    assert seen["optional"] == ["None", "refused"]


asyncio.run(main())
PYTHON
