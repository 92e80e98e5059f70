"""Accepting connections by a socket that several processes listen by.

Not here: what a connection may take (`connections.py`), who makes the socket (`workers`).

- Connections live long. Whoever woke first would take all that wait, and with them all of their
  requests: so a process takes one at a time, and waits the longer the more it has already.
- Whoever waited as long as any and still finds as many as it takes, takes twice as many the next
  time: others have had their turns, and those who come and ask for nothing must not keep anybody
  out. A process that has few takes some in between.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

BACKLOG: Final = 2048
STEP_S: Final = 0.0005  # for each connection that it has
WAIT_S_MAX: Final = 0.01  # nobody may be there who has fewer
AT_ONCE_MAX: Final = 64
FULL_S: Final = 0.5  # until files may be had again


class Acceptor:
    """Lets connections in by one shared socket, until it is closed."""

    def __init__(
        self,
        shared: socket.socket,
        *,
        protocol: Callable[[], asyncio.Protocol],
        inside: Callable[[], int],
    ) -> None:
        self._shared = shared
        self._protocol = protocol
        self._inside = inside
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.TimerHandle | None = None
        self._at_once = 1
        self._entering: set[asyncio.Task[None]] = set()
        shared.setblocking(False)
        shared.listen(BACKLOG)
        self._watch()

    async def close(self) -> None:
        """Let nobody in any more; return when those that are accepted are inside.

        The descriptor goes at once: the last one of a socket keeps its port taken.
        """
        self._loop.remove_reader(self._shared.fileno())
        self._shared.close()
        if self._waiting is not None:
            self._waiting.cancel()
        if self._entering:
            await asyncio.wait(self._entering)

    def _watch(self) -> None:
        self._loop.add_reader(self._shared.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        self._loop.remove_reader(self._shared.fileno())
        wait_s = min(self._inside() * STEP_S, WAIT_S_MAX)
        if wait_s < WAIT_S_MAX:
            self._at_once = 1
        self._waiting = self._loop.call_later(wait_s, self._take)

    def _take(self) -> None:
        for _ in range(self._at_once):
            try:
                connection, _ = self._shared.accept()
            except ConnectionAbortedError:
                continue  # it is gone
            except (BlockingIOError, InterruptedError):
                self._at_once = 1  # other processes have the rest
                break
            except OSError:
                self._waiting = self._loop.call_later(FULL_S, self._take)
                return
            task = self._loop.create_task(self._enter(connection))
            self._entering.add(task)
            task.add_done_callback(self._entering.discard)
        else:
            self._at_once = min(2 * self._at_once, AT_ONCE_MAX)
        self._watch()

    async def _enter(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it is gone
            connection.setblocking(False)
            if connection.family != socket.AF_UNIX:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(self._protocol, connection)
            return
        connection.close()
