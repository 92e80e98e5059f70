"""The serving process: settings in, one ready line out, a clean end on SIGINT and SIGTERM.

Not here: the application (`app.py`) and the command line (`__main__.py`).
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Iterator
from typing import Final

import uvicorn

from relayer.app import build_app
from relayer.connections import Bounds, bounded
from relayer.process import forbid_core_files
from relayer.running import announced
from relayer.settings import Limits, Settings
from relayer.storage import opened

log = logging.getLogger("relayer")

KEEP_ALIVE_S: Final = 75
GRACE_S: Final = 10


class _Server(uvicorn.Server):
    """uvicorn without its signal handling, which would end the process before the database."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `serve`."""
        yield


async def serve(settings: Settings, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; calls `ready` with the URL once requests are accepted."""
    forbid_core_files()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with opened(settings) as storage:
        server = _Server(
            uvicorn.Config(
                build_app(storage, settings, stopping=stop),
                host=settings.host,
                port=settings.port,
                http=bounded(bounds_of(settings)),
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
                lifespan="on",
            )
        )
        task = asyncio.create_task(server.serve())
        ended = asyncio.create_task(stop.wait())
        try:
            await _until_started(server, task)
            url = _url(settings.host, server)
            with announced(settings.data_dir, url):
                ready(url)
                await asyncio.wait({task, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            server.should_exit = True
            ended.cancel()
            await task


def bounds_of(settings: Settings) -> Bounds:
    """What connections of this process may take."""
    return Bounds(
        head_s=settings.request_timeout_s,
        taking_s=KEEP_ALIVE_S,
        head_bytes_max=Limits.head_bytes_max,
        connections_max=Limits.connections_max,
    )


async def _until_started(server: uvicorn.Server, task: "asyncio.Task[None]") -> None:
    while not server.started:
        if task.done():
            task.result()
            raise SystemExit(1)
        await asyncio.sleep(0.01)


def _url(host: str, server: uvicorn.Server) -> str:
    port = server.servers[0].sockets[0].getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"
