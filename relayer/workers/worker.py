"""One of several serving processes, which gets a line to its supervisor and sockets, by number.

Not here: its first step (`__main__.py`), who starts it (`supervisor.py`).

- It ends when its supervisor does, however that one ends: the kernel closes the line between them.
  A thread of its own hears that, so a process whose loop is stuck ends as well.
"""

import asyncio
import contextlib
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import uvloop

from relayer.affinity import ALONE, Affinity
from relayer.errors import RelayerError
from relayer.identity import IdentityError
from relayer.logs import configure
from relayer.postgres.embedded import PostgresError
from relayer.process import prepare_to_serve
from relayer.serve import GRACE_S, Ending, attend, complete_recovery, end_on_signals, unless_ended
from relayer.settings import Settings, SettingsError
from relayer.telemetry.preallocation import COUNTS_FOLDER
from relayer.tenants.unlock_key_pairs import HandedKeys
from relayer.workers.lines import (
    CHANNELS,
    LEAVE,
    PRESENT,
    READY,
    read_keys,
    read_lines,
    read_present,
    read_settings,
)

log = logging.getLogger("relayer.workers")

END_S: Final = 2 * GRACE_S  # a process that has not ended by then will not by itself


def main() -> None:
    """Serve until told to leave, to end, or left alone."""
    prepare_to_serve()
    with contextlib.ExitStack() as held:
        numbers, _, places = " ".join(sys.argv[1:]).partition(CHANNELS)
        line, *sockets = (_held(held, number) for number in numbers.split())
        affinity = ALONE  # as of a supervisor from before there was another
        if places:
            place, *its = places.split()
            own, *channels = (_held(held, number) for number in its)
            affinity = Affinity(int(place), channels, own)
        told = read_lines(line)
        settings = read_settings(next(told))
        keys = HandedKeys(read_keys(next(told)))
        configure(settings.log_level)
        if COUNTS_FOLDER not in os.environ:
            log.warning("no room to share counts", extra={"event": "workers.counts_alone"})
        listener = _Listener(line, told, keys, affinity)
        held.callback(listener.end)
        try:
            uvloop.run(_work(settings, keys, sockets, listener, affinity))
        except (RelayerError, SettingsError, IdentityError, PostgresError) as error:
            raise SystemExit(f"worker: {error}") from None


def _held(held: contextlib.ExitStack, number: str) -> socket.socket:
    return held.enter_context(socket.socket(fileno=int(number)))


async def _work(
    settings: Settings,
    keys: HandedKeys,
    sockets: Sequence[socket.socket],
    listener: "_Listener",
    affinity: Affinity,
) -> None:
    ending = Ending()
    end_on_signals(ending.end)
    listener.begin(ending)
    begun = asyncio.Event()

    async def serve() -> None:
        async with complete_recovery(settings, unlock_keys=keys) as storage:
            begun.set()
            await attend(
                storage,
                settings,
                sockets,
                ending,
                listener.ready,
                shared=True,
                affinity=affinity,
            )

    await unless_ended(ending.leaving, begun, serve())


class _Listener:
    """Hears the supervisor, on a thread of its own."""

    def __init__(
        self, line: socket.socket, told: Iterator[bytes], keys: HandedKeys, affinity: Affinity
    ) -> None:
        self._line = line
        self._told = told
        self._keys = keys
        self._affinity = affinity
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, ending: Ending) -> None:
        """Hear from now on."""
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._hear, args=(loop, ending), daemon=True)
        self._thread.start()

    def ready(self) -> None:
        """Say that requests are answered."""
        with contextlib.suppress(OSError):  # it has gone; the thread hears that as well
            self._line.sendall(READY)

    def end(self) -> None:
        """Hear nothing more."""
        self._over.set()
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join()

    def _hear(self, loop: asyncio.AbstractEventLoop, ending: Ending) -> None:
        with contextlib.suppress(OSError):  # it was killed with something unread
            for line in self._told:
                if line == LEAVE:
                    _soon(loop, ending.leave)
                elif line.startswith(PRESENT):
                    _soon(loop, partial(self._affinity.set_present, read_present(line)))
                else:
                    _soon(loop, partial(self._keys.take, read_keys(line)))
        _soon(loop, ending.end)
        if not self._over.wait(END_S):
            os._exit(1)


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(call)
