"""The command `memrelay mcp`: the memory for MCP clients, over stdio or loopback HTTP.

It does not own the server (`mcp/`) or exit codes (`cli.py`).
"""

import logging
import sys

from memrelay.async_client import MemoryClient
from memrelay.commands.parsers import Adder
from memrelay.commands.shell import Shell
from memrelay.commands.streams import warn
from memrelay.config import Settings
from memrelay.errors import ConfigError
from memrelay.gateway.profiles import LiveProfile
from memrelay.process import pause_collection

PORT = 8722
_ATTEMPTS_MAX = 2  # a model waits for the answer


def register(add: Adder) -> None:
    """Add the command `mcp`."""
    parser = add("mcp", mcp)
    parser.add_argument(
        "--http", action="store_true", help="streamable HTTP on 127.0.0.1 instead of stdio"
    )
    parser.add_argument("--port", type=int, metavar="N", help=f"with --http: {PORT}, 0 for any")


def mcp(shell: Shell) -> None:
    """Offer the memory to an MCP client, which starts this command."""
    args = shell.args
    if args.port is not None and not args.http:
        raise ConfigError("--port goes with --http.")
    profile = LiveProfile.load(shell.profile_path(), shell.settings, connect=_client)
    try:
        with pause_collection():
            from memrelay.mcp.serve import own_token, serve_http, serve_stdio  # noqa: PLC0415
            from memrelay.mcp.server import build  # noqa: PLC0415
    except ImportError as error:
        if (error.name or "memrelay").partition(".")[0] == "memrelay":
            raise  # ours is broken, and installing the extra would not mend it
        raise ConfigError(
            'MCP needs an extra; in a checkout: pip install "./client[mcp]"'
        ) from None
    # The libraries' log lines quote what they were sent; ours do not.
    logging.basicConfig(level=logging.CRITICAL, format="memrelay: %(message)s")
    logging.getLogger("memrelay").setLevel(logging.WARNING)
    server = build(profile)
    if not args.http:
        return serve_stdio(server)
    path = shell.profile_path()
    token_path = path.with_name(f"{path.stem}.mcp-token")
    token = own_token(token_path)

    def ready(url: str) -> None:
        if args.json:
            shell.show({"url": url, "token_file": str(token_path)}, ())
            sys.stdout.flush()
        else:
            warn(f"MCP is at {url}; its bearer token is in {token_path}")

    serve_http(server, port=PORT if args.port is None else args.port, token=token, ready=ready)


def _client(settings: Settings) -> MemoryClient:
    return MemoryClient.from_settings(settings, attempts_max=_ATTEMPTS_MAX)
