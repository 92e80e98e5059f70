"""The command gateway: the local process that remembers for agents which hold no keys.

It does not own what the process answers (`gateway/serve.py`).
"""

import asyncio
import logging
import signal
import sys
from argparse import ArgumentParser
from pathlib import Path

from memrelay.commands.parsers import Adder
from memrelay.commands.shell import Shell
from memrelay.config import spool_folder
from memrelay.errors import TransportError
from memrelay.gateway.endpoint import Endpoint, default_socket, endpoint_path, prepare_socket
from memrelay.gateway.hooks import Gateway
from memrelay.gateway.roster import Roster
from memrelay.gateway.serve import Server
from memrelay.gateway.settings import GatewaySettings, settings_table
from memrelay.secure_files import lock_file

_SOURCE = "openclaw"


def register(add: Adder) -> None:
    """Add the command gateway."""
    _add_options(add("gateway", gateway, namespace=False, agent=False))


def _add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=("run", "status"),
        default="run",
        help="run in the foreground, or show what is running",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--socket", metavar="PATH", help="where to listen")
    where.add_argument(
        "--port", type=int, metavar="N", help="listen on 127.0.0.1 instead; 0: any port"
    )
    parser.add_argument(
        "--settings", metavar="FILE", help="TOML instead of gateway.toml beside the profile"
    )


def gateway(shell: Shell) -> None:
    """Run the local gateway, which remembers for the agents here.

    It holds the agents' keys, and answers their hooks and tools.
    """
    if shell.args.action == "status":
        _status(shell)
    else:
        found = endpoint_path(shell.args.profile, shell.environ)
        running = "A gateway is running already; see `memrelay gateway status`."
        with lock_file(found.with_name(f".{found.name}.lock"), otherwise=running):
            asyncio.run(_run(shell, found))


async def _run(shell: Shell, found: Path) -> None:
    args, environ = shell.args, shell.environ
    socket = prepare_socket(Path(args.socket)) if args.socket else None
    if socket is None and args.port is None:
        socket = default_socket(args.profile, environ)
    base = settings_table(args.settings, args.profile, environ)
    roster = Roster.load(args.profile, environ=environ)
    _log_to_stderr()
    spool = spool_folder(args.profile, environ)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def ready(endpoint: Endpoint) -> None:
        where = {"socket": endpoint.socket, "port": endpoint.port}
        place = endpoint.socket or f"127.0.0.1:{endpoint.port}"
        shell.show(where, [f"memrelay gateway: ready at {place}"])
        sys.stdout.flush()

    settings = GatewaySettings.of(base)
    async with Gateway(roster, settings, source=_SOURCE, spool_path=spool) as hooks:
        server = Server(hooks, roster, base=base)
        await server.run(found, socket=socket, port=args.port, ready=ready, stop=stop)


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log = logging.getLogger("memrelay")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def _status(shell: Shell) -> None:
    endpoint = Endpoint.read(endpoint_path(shell.args.profile, shell.environ))
    if endpoint is None:
        raise TransportError("No gateway is running; start one with `memrelay gateway`.")
    value = endpoint.ask("status")
    lines = [
        f"memrelay {value['version']}, process {value['pid']}, up {value['uptime_s']} s, "
        f"{value['connections'] - 1} connections",
        *(
            f"key {key['key']}  {key['namespace']}  {key['url']}  {key['state']}"
            for key in value["keys"]
        ),
    ]
    shell.show(value, lines)
