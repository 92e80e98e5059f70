"""The command `memrelay mcp`: the memory for MCP clients, over stdio or loopback HTTP.

It does not own the server (`mcp/`) or exit codes (`cli.py`).
"""

import json
import logging
from argparse import ArgumentParser

from memrelay.async_client import MemoryClient
from memrelay.commands.parsers import Adder
from memrelay.commands.shell import Shell
from memrelay.commands.streams import ascii_only, warn
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
    _add_tools(parser, "all")
    actions = Adder(parser.add_subparsers(metavar="ACTION"))
    installing = actions("install", install, namespace=False)
    _add_choice(installing)
    installing.add_argument(
        "--list", action="store_true", help="show the clients and what they have"
    )
    installing.add_argument(
        "--shared", action="append", metavar="NAMESPACE", help="the keys hold it, too; repeatable"
    )
    _add_tools(installing, "core")
    uninstalling = actions("uninstall", uninstall, namespace=False, agent=False)
    _add_choice(uninstalling)
    uninstalling.add_argument(
        "--revoke", action="store_true", help="and revoke the keys that the clients had"
    )


def _add_choice(parser: ArgumentParser) -> None:
    parser.add_argument("client", nargs="*", help="clients, as `install --list` names them")
    parser.add_argument("--all", action="store_true", help="all that are found here")
    parser.add_argument("--dry-run", action="store_true", help="only show what would change")
    parser.add_argument(
        "--project",
        nargs="?",
        const=".",
        metavar="FOLDER",
        help="the files of a project (of the current folder) instead of the user's",
    )


def _add_tools(parser: ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--tools",
        choices=("all", "core", "read"),
        help="the most used (core) and those that read take less of a model's context; "
        f"{default} unless said",
    )


def install(shell: Shell) -> None:
    """Set MCP clients up, each with a key of its own."""
    from memrelay.commands import mcp_install  # noqa: PLC0415 - a server does without it

    mcp_install.install(shell)


def uninstall(shell: Shell) -> None:
    """Take back what install did, byte for byte where nobody changed the file since."""
    from memrelay.commands import mcp_install  # noqa: PLC0415 - a server does without it

    mcp_install.uninstall(shell)


def mcp(shell: Shell) -> None:
    """Offer the memory to an MCP client.

    The client starts this command.
    """
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
    server = build(profile, tools=args.tools or "all")
    if not args.http:
        return serve_stdio(server)
    path = shell.profile_path()
    token_path = path.with_name(f"{path.stem}.mcp-token")
    token = own_token(token_path)

    def ready(url: str) -> None:
        if args.json:
            # On one line: a program waits for it, and this one goes on.
            value = {"url": url, "token_file": str(token_path)}
            shell.say(json.dumps(value, ensure_ascii=ascii_only()))
        else:
            warn(f"MCP is at {url}; its bearer token is in {token_path}")

    serve_http(server, port=PORT if args.port is None else args.port, token=token, ready=ready)


def _client(settings: Settings) -> MemoryClient:
    return MemoryClient.from_settings(settings, attempts_max=_ATTEMPTS_MAX)
