"""The serving process: settings in, one ready line out, a clean end on SIGINT and SIGTERM.

Not here: the application (`app.py`), the command line (`__main__.py`), several of it (`workers`).

- Asked to end before it answers anybody, as while a rebuild lasts, a process leaves that: the next
  start goes on with it.
- A process that leaves answers what still arrives by its connections, and tells each of them so:
  a client that hears it connects anew, to whoever listens by then, and no request is lost.
"""

import asyncio
import contextlib
import functools
import logging
import os
import signal
import socket
import stat
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import uvicorn

from relayer.affinity import ALONE, Affinity
from relayer.app import build_app
from relayer.clock import utc_now
from relayer.errors import Unavailable
from relayer.http.acceptor import Acceptor
from relayer.http.connections import Bounds, bind_limits
from relayer.idleness import Activity, has_work, wait_until_idle
from relayer.installation import make_folder, open_storage
from relayer.process import pause_collection, prepare_to_serve
from relayer.run_file import alone, socket_url, write_run_file
from relayer.settings import Limits, Settings, SettingsError
from relayer.storage import Storage
from relayer.telemetry import tracing
from relayer.tenants.unlock_key_pairs import UnlockKeys
from relayer.upkeep.rebuild import rebuild_lost

log = logging.getLogger("relayer")

KEEP_ALIVE_S: Final = 75
GRACE_S: Final = 10
LEAVE_S: Final = 10  # until a connection that nobody uses is closed all the same
_POLL_S: Final = 0.05


@dataclass
class Ending:
    """The events that ask a process to end: at once, or when its connections have been told."""

    now: asyncio.Event = field(default_factory=asyncio.Event)
    leaving: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self) -> None:
        """Answer what is under way, and nothing more."""
        self.leaving.set()
        self.now.set()

    def leave(self) -> None:
        """Take no new connections, and end when those there are were told."""
        self.leaving.set()


class _Server(uvicorn.Server):
    """uvicorn without its signal handling, which would end the process before the database.

    With `shared` sockets it takes its share of the connections only, and those that it is handed.
    """

    def __init__(self, config: uvicorn.Config, *, shared: bool, affinity: Affinity) -> None:
        super().__init__(config)
        self._shared = shared
        self._affinity = affinity
        self._acceptors: list[Acceptor] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin, and let connections in."""
        await super().startup([] if self._shared else sockets)
        if self._shared:
            self._acceptors = [
                Acceptor(one, protocol=self._connection, inside=lambda: len(self._connections))
                for one in sockets or []
            ]
            self._affinity.receive(self._connection)

    @property
    def _connections(self) -> set[Any]:
        return self.server_state.connections

    def _connection(self, handed: bytes = b"") -> asyncio.Protocol:
        made: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = made(
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            handed=handed,
        )
        return protocol

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `serve`."""
        yield

    async def part(self, now: asyncio.Event, *, request_s: float) -> None:
        """Take no new connections; return when the others are gone, or have had their time.

        Requests have as long as they have at any time, `request_s` at most.
        """
        for server in self.servers:
            server.close()
        for acceptor in self._acceptors:
            await acceptor.close()
        await self._affinity.close()
        await self._wait_empty(now, within_s=LEAVE_S)
        for connection in list(self._connections):
            connection.shutdown()  # at once, or behind the answer
        await self._wait_empty(now, within_s=request_s)

    async def _wait_empty(self, now: asyncio.Event, *, within_s: float) -> None:
        """Return when there are no connections, or when asked to end."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while self._connections and not now.is_set() and loop.time() < deadline:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(now.wait(), _POLL_S)


async def serve(settings: Settings, ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; calls `ready` with the URL once requests are accepted.

    Raises:
        SettingsError: nobody can listen there.
        Conflict: another relayer serves this data folder.
    """
    prepare_to_serve()
    ending = Ending()
    end_on_signals(ending.end)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _stay)
    make_folder(settings)
    with alone(settings.data_dir), bind(settings) as sockets:
        begun = asyncio.Event()
        await unless_ended(ending.leaving, begun, _serve(settings, sockets, ending, begun, ready))


async def _serve(
    settings: Settings,
    sockets: Sequence[socket.socket],
    ending: Ending,
    begun: asyncio.Event,
    ready: Callable[[str], None],
) -> None:
    url = url_of(settings, sockets)
    async with complete_recovery(settings) as storage:
        begun.set()
        with contextlib.ExitStack() as told:

            def answers() -> None:
                told.enter_context(write_run_file(settings.data_dir, url))
                ready(url)

            await attend(storage, settings, sockets, ending, answers)


@contextlib.asynccontextmanager
async def complete_recovery(
    settings: Settings, *, unlock_keys: UnlockKeys | None = None
) -> AsyncIterator[Storage]:
    """Yield storage whose accounts are founded again, if all of them were lost.

    Raises:
        RelayerError, SettingsError, IdentityError: as for `opened`.
    """
    async with open_storage(settings, unlock_keys=unlock_keys) as storage:
        await rebuild_lost(storage, utc_now, only_if_empty=True)
        yield storage


async def unless_ended(
    asked: asyncio.Event, begun: asyncio.Event, work: Coroutine[Any, Any, None]
) -> None:
    """Do work that heeds `asked` by itself once it has `begun`; before that, cancel it then."""
    working = asyncio.create_task(work)
    heard = [asyncio.create_task(event.wait()) for event in (asked, begun)]
    try:
        await asyncio.wait({working, *heard}, return_when=asyncio.FIRST_COMPLETED)
        if begun.is_set():
            await asyncio.wait({working})
    finally:
        for task in (working, *heard):
            task.cancel()
        await asyncio.wait({working, *heard})
    if not working.cancelled():
        working.result()


def _stay() -> None:
    # Whoever reloads a service expects that it goes on.
    log.warning(
        "SIGHUP: one worker has nobody to take its place; restart it to upgrade, or start it with"
        " --workers 2 for workers that are replaced",
        extra={"event": "serve.not_renewed"},
    )


async def attend(
    storage: Storage,
    settings: Settings,
    sockets: Sequence[socket.socket],
    ending: Ending,
    ready: Callable[[], None],
    *,
    shared: bool = False,
    affinity: Affinity = ALONE,
) -> None:
    """Answer what comes in by these sockets until asked to end; calls `ready` when it does.

    With `shared` other processes listen by them as well, to which `affinity` hands connections.

    Raises:
        Unavailable: it could not begin.
    """
    with pause_collection():
        app: Any = build_app(storage, settings, stopping=ending.leaving, affinity=affinity)
    asked: list[asyncio.Task[Any]] = [asyncio.create_task(ending.leaving.wait())]
    if settings.idle_exit_s:
        app = Activity(app)
        working = functools.partial(has_work, storage.database, settings)
        asked.append(asyncio.create_task(wait_until_idle(app, settings.idle_exit_s, working)))
    server = _Server(server_config(app, settings, affinity), shared=shared, affinity=affinity)
    serving = asyncio.create_task(server.serve(sockets=list(sockets)))
    async with tracing.as_environment_says():
        try:
            await _until_started(server, serving)
            if not ending.leaving.is_set():
                ready()
            await asyncio.wait({serving, *asked}, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                ending.leave()
                await server.part(ending.now, request_s=settings.request_timeout_s)
        finally:
            server.should_exit = True
            for task in asked:
                task.cancel()
            await serving


def end_on_signals(end: Callable[[], None]) -> None:
    """Call this on SIGINT and SIGTERM."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)


@contextlib.contextmanager
def bind(settings: Settings) -> Iterator[list[socket.socket]]:
    """Yield sockets of every address of the host, on one port, or the one that is named.

    Nobody is heard by them yet.

    Raises:
        SettingsError: an address is not this machine's, or taken.
    """
    if settings.socket:
        with _bound_at(Path(settings.socket).absolute()) as one:
            yield [one]
        return
    port = settings.port
    with contextlib.ExitStack() as held:
        sockets = []
        try:
            for family, kind, protocol, _, address in socket.getaddrinfo(
                settings.host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            ):
                one = held.enter_context(socket.socket(family, kind, protocol))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                one.bind((address[0], port, *address[2:]))
                port = one.getsockname()[1]
                sockets.append(one)
        except OSError as error:
            where = f"{settings.host or 'any address'}, port {port}"
            reason = error.strerror or type(error).__name__
            raise SettingsError(
                f"RELAYER_HOST and RELAYER_PORT: cannot listen at {where}: {reason}"
            ) from None
        yield sockets


@contextlib.contextmanager
def _bound_at(path: Path) -> Iterator[socket.socket]:
    """Yield a Unix socket that this user alone may connect to; it is removed at the end.

    Raises:
        SettingsError: another program listens there, or the folder is not ours to write.
    """
    try:
        _remove_left_socket(path)
        with socket.socket(socket.AF_UNIX) as one:
            mask = os.umask(0o177)  # no moment in which others could connect
            try:
                one.bind(os.fspath(path))
            finally:
                os.umask(mask)
            made = path.stat().st_ino
            try:
                yield one
            finally:
                with contextlib.suppress(OSError):
                    if path.stat().st_ino == made:
                        path.unlink()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SettingsError(f"RELAYER_SOCKET: cannot listen at {path}: {reason}") from None


def _remove_left_socket(path: Path) -> None:
    """Remove a socket by which nobody listens any more, as a killed server leaves one.

    Raises:
        SettingsError: somebody listens, or it is something else than a socket.
    """
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise SettingsError(f"RELAYER_SOCKET: {path} is no socket; move it away")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(os.fspath(path))
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
        return
    raise SettingsError(f"RELAYER_SOCKET: another program listens at {path}")


def url_of(settings: Settings, sockets: Sequence[socket.socket]) -> str:
    """Return the URL where clients on this machine, or of its network, find it."""
    if settings.socket:
        return socket_url(Path(settings.socket))
    port = sockets[0].getsockname()[1]
    host = settings.host
    if not host:  # every address of this machine
        families = {one.family for one in sockets}
        host = "127.0.0.1" if socket.AF_INET in families else "::1"
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def bounds_of(settings: Settings) -> Bounds:
    """Return the limits of this process's connections."""
    return Bounds(
        head_s=settings.request_timeout_s,
        taking_s=KEEP_ALIVE_S,
        head_bytes_max=Limits.head_bytes_max,
        connections_max=Limits.connections_max,
    )


def server_config(app: Any, settings: Settings, affinity: Affinity = ALONE) -> uvicorn.Config:
    """Return uvicorn's configuration: with bounded connections, and without logs of its own."""
    return uvicorn.Config(
        app,
        http=bind_limits(bounds_of(settings), affinity),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
        lifespan="on",
    )


async def _until_started(server: uvicorn.Server, task: "asyncio.Task[None]") -> None:
    while not server.started:
        if task.done():
            task.result()
            raise Unavailable("The relayer could not begin.")  # the log says why
        await asyncio.sleep(0.01)
