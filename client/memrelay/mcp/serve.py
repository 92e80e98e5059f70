"""Serves the MCP server over stdio, or over streamable HTTP on this machine alone.

It does not own what the server offers (`server.py`).

- Over stdio, standard output belongs to the protocol; nothing else is ever written there.
- HTTP is on 127.0.0.1 only, and answers nothing without the bearer token: another user of the
  machine can connect, but cannot read the token's file.
- A Host other than its own is refused, against DNS rebinding; so is every Origin, since no web
  page has any business here.
"""

import hmac
import secrets
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import anyio
import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from memrelay.errors import ConfigError
from memrelay.secure_files import read_private, write_private_text

_LOOPBACK = "127.0.0.1"
_PATH = "/mcp"
_SESSIONS_MAX = 64
_TOKEN_CHARS_MIN = 32
_SHUTDOWN_S = 2  # clients hold streams open for as long as they live


def serve_stdio(server: MCPServer[None]) -> None:
    """Serve the client that started this process, until it closes standard input."""
    # The thread that waits for input cannot be interrupted; Ctrl-C has to end the process itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        anyio.run(server.run_stdio_async)
    except* BrokenPipeError:
        pass  # The client went without waiting for its answer.


def serve_http(
    server: MCPServer[None], *, port: int, token: str, ready: Callable[[str], None]
) -> None:
    """Serve until a signal comes; `ready` is called with the URL once connections are accepted.

    Raises:
        ConfigError: the port is taken, or is none.
    """
    with _open_socket(port) as listener:
        port = listener.getsockname()[1]
        app = server.streamable_http_app(
            streamable_http_path=_PATH,
            max_sessions=_SESSIONS_MAX,
            transport_security=TransportSecuritySettings(
                allowed_hosts=[f"{_LOOPBACK}:{port}", f"localhost:{port}"], allowed_origins=[]
            ),
        )
        config = uvicorn.Config(
            _Gate(app, token),
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_SHUTDOWN_S,
        )
        ready(f"http://{_LOOPBACK}:{port}{_PATH}")
        uvicorn.Server(config).run(sockets=[listener])


def _open_socket(port: int) -> socket.socket:
    if not 0 <= port <= 65_535:
        raise ConfigError("A port is from 0 to 65535.")
    try:
        return socket.create_server((_LOOPBACK, port))
    except OSError as error:
        raise ConfigError(f"Port {port} cannot be had: {error.strerror}.") from error


def own_token(path: Path) -> str:
    """Return the token in a file that only this user may read; the file is made when missing.

    Raises:
        ConfigError: others may read the file, or it cannot be written or holds no token.
    """
    data = read_private(path)
    if data is None:
        write_private_text(path, f"{secrets.token_urlsafe(32)}\n")
        data = read_private(path)
    token = (data or b"").decode("ascii", "replace").strip()
    if len(token) < _TOKEN_CHARS_MIN or not (token.isascii() and token.isprintable()):
        raise ConfigError(f"{path} holds no token; remove it, and a new one is made.")
    return token


class _Gate:
    """Lets only requests with the token through; everything else learns nothing."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = [value for name, value in scope.get("headers", ()) if name == b"authorization"]
        scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        welcome = scheme.lower() == b"bearer" and hmac.compare_digest(token, self._expected)
        if welcome or scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        refusal = PlainTextResponse(
            "The bearer token is missing or wrong.\n", 401, {"WWW-Authenticate": "Bearer"}
        )
        await refusal(scope, receive, send)
