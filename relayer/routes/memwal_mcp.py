"""MemWal's MCP endpoints, which this relayer refuses with the reason.

Not here: the MCP server, which is the client's (`memrelay mcp`) and signs beside its agent.

- MemWal's bridge sends the agent's private key with every session, and its relayer signs in the
  agent's name. Whoever has that key has all of its grants, on a sealed account as well: no relayer
  of ours may see it.
"""

from typing import Final, NoReturn

from litestar import route

from relayer.errors import NotConfigured
from relayer.http.checks import PUBLIC

PATHS: Final = ("/api/mcp", "/api/mcp/messages", "/api/mcp/sse")


@route(list(PATHS), http_method=["GET", "POST", "DELETE"], status_code=501, opt={PUBLIC: True})
async def refuse_mcp() -> NoReturn:
    """Refuse to be an MCP server, and name the one that there is."""
    raise NotConfigured(
        "No relayer should see a private key, as MemWal's MCP bridge sends it: run `memrelay mcp`.",
        code="mcp.not_offered",
    )


HANDLERS: Final = (refuse_mcp,)
