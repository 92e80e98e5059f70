"""The process that several serving ones come from: `relayer serve --workers N`.

Not here: what each of them does (`worker.py`), what is said between them (`lines.py`).

- It binds the sockets, and all workers listen by them: what a worker that dies has not accepted
  another one does, and while none is there clients wait instead of being refused.
- It makes the unlock keys, and hands them to its workers in memory: a client of a sealed account
  may reach another worker with every request.
- It is a user of the embedded database itself, so that no end of a worker ends that.
- On SIGHUP workers are replaced one by one, each leaving only when its successor answers: a
  release that does not start takes nothing away.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relayer.clock import Clock, to_ms, utc_now
from relayer.database.check import connections_max
from relayer.errors import Unavailable
from relayer.installation import make_folder, open_storage
from relayer.process import forbid_core_files, lock_memory
from relayer.run_file import alone, write_run_file
from relayer.serve import GRACE_S, LEAVE_S, bind, end_on_signals, unless_ended, url_of
from relayer.settings import Settings, SettingsError
from relayer.storage import Storage
from relayer.telemetry.dead_workers import add_dead_workers, make_lock
from relayer.telemetry.preallocation import COUNTS_FOLDER
from relayer.tenants.unlock_key_pairs import MadeKeys
from relayer.upkeep.rebuild import rebuild_lost
from relayer.workers.lines import CHANNELS, LEAVE, READY, keys_line, present_line, settings_line

log = logging.getLogger("relayer.workers")

PROGRAM: Final = ("-P", "-m", "relayer.workers")  # a worker's, as Python's arguments
PAUSE_S: Final = 0.5  # before a worker that ended has a successor; twice as long each time
PAUSE_S_MAX: Final = 30.0
STEADY_S: Final = 60.0  # a worker that lived for so long did not end over its start
START_S: Final = 900.0  # one that has not begun by then hangs; a new release may migrate first
KEYS_S: Final = 60.0  # unlock keys overlap by ten times as much
END_S: Final = LEAVE_S + GRACE_S + 10.0  # a worker that has not ended by then is killed
COUNT_TRIES: Final = 50  # while others read the counts of a worker that has ended
COUNT_POLL_S: Final = 0.02
SPARE_CONNECTIONS: Final = 12  # for the supervisor and commands beside it


class NotReady(Unavailable):
    """A worker ended before it answered requests, and said why, or took too long."""


@dataclass(frozen=True, eq=False)
class _Worker:
    process: asyncio.subprocess.Process
    line: asyncio.StreamWriter
    began_s: float

    def tell(self, line: bytes) -> None:
        """Say something, if it is still there to hear it."""
        if not self.line.is_closing():
            self.line.write(line)

    async def began(self, reader: asyncio.StreamReader) -> bool:
        """Wait until it answers requests, and return true; kill it when that takes too long."""
        try:
            async with asyncio.timeout(START_S):
                return await reader.readline() == READY
        except TimeoutError:
            log.error("a worker hangs", extra={"event": "workers.hangs"})
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        except OSError:
            pass  # it is gone
        return False

    async def wait_ended(self, *, within_s: float) -> None:
        """Return when it has ended; it is killed when that takes longer."""
        try:
            async with asyncio.timeout(within_s):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
        self.line.close()


async def supervise(settings: Settings, ready: Callable[[str], None]) -> None:
    """Keep `settings.workers` processes serving until SIGINT or SIGTERM; SIGHUP replaces them.

    Calls `ready` with the URL once all of them accept requests.

    Raises:
        SettingsError: nobody can listen there, or the database has too few connections.
        Conflict: another relayer serves this data folder.
        NotReady: a worker did not start.
    """
    forbid_core_files()
    lock_memory()
    stop = asyncio.Event()
    end_on_signals(stop.set)
    make_folder(settings)
    with alone(settings.data_dir), bind(settings) as sockets:
        crew = Crew(settings, sockets, utc_now)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, crew.renew)
        begun = asyncio.Event()

        async def work() -> None:
            async with open_storage(settings) as storage:
                await refuse_too_many(storage, settings)
                await rebuild_lost(storage, utc_now, only_if_empty=True)
                begun.set()
                try:
                    url = url_of(settings, sockets)
                    await _serve_until(stop, crew, settings, lambda: ready(url))
                finally:
                    for one in sockets:
                        one.close()
                    await crew.end()

        await unless_ended(stop, begun, work())


async def _serve_until(
    stop: asyncio.Event, crew: "Crew", settings: Settings, ready: Callable[[], None]
) -> None:
    """Have the crew at work until stopped; its failures are this process's."""
    url = url_of(settings, crew.sockets)
    stopped = asyncio.create_task(stop.wait())
    working = asyncio.create_task(crew.begin())
    try:
        await asyncio.wait({stopped, working}, return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            return
        working.result()
        with write_run_file(settings.data_dir, url, workers=settings.workers):
            ready()
            working = asyncio.create_task(crew.work())
            await asyncio.wait({stopped, working}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
    finally:
        stopped.cancel()
        working.cancel()
        await asyncio.wait({working})


async def refuse_too_many(storage: Storage, settings: Settings) -> None:
    """Return if the database has connections for all workers, and one more that replaces another.

    Raises:
        SettingsError: it has not.
    """
    # Each listens for jobs by one besides its pool.
    each = 1 if settings.database_direct_url else settings.database_connections + 1
    needed = (settings.workers + 1) * each + SPARE_CONNECTIONS
    there = await connections_max(storage.database)
    if needed > there:
        raise SettingsError(
            f"RELAYER_WORKERS and RELAYER_DATABASE_CONNECTIONS: {settings.workers} workers may "
            f"take {needed} connections, the database has {there}"
        )


class Crew:
    """The workers: as many as there shall be, each in a place that is filled again."""

    def __init__(self, settings: Settings, sockets: Sequence[socket.socket], clock: Clock) -> None:
        self.sockets = sockets
        self._settings = settings
        self._clock = clock
        self._keys = MadeKeys()
        self._workers: list[_Worker] = []
        self._alive: set[_Worker] = set()  # also those that begin, and those that leave
        self._uncounted: set[int] = set()  # that have ended, and whose counts are not added up yet
        self._locks = [asyncio.Lock() for _ in range(settings.workers)]
        self._present = set[int]()  # places at which a worker answers
        # By these they hand each other connections: what comes to a place waits for its worker.
        self._channels = [socket.socketpair(type=socket.SOCK_SEQPACKET) for _ in self._locks]
        self._renewing = asyncio.Event()
        self._asked_s = 0.0

    def renew(self) -> None:
        """Replace every worker, one after the other; asked meanwhile, it is done once more."""
        self._asked_s = time.monotonic()
        self._renewing.set()

    async def begin(self) -> None:
        """Fill every place for the first time.

        Raises:
            NotReady: a worker did not start.
        """
        _empty(self._metrics)
        beginning = [asyncio.create_task(self._new_worker(n)) for n in range(len(self._locks))]
        try:
            self._workers = list(await asyncio.gather(*beginning))
        finally:
            for task in beginning:
                task.cancel()
            await asyncio.wait(beginning)

    async def work(self) -> None:
        """Keep every place filled until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._hand_keys())
            group.create_task(self._renew())
            for place in range(len(self._workers)):
                group.create_task(self._keep(place))

    async def end(self) -> None:
        """End every worker; what they are answering they still answer."""
        for worker in self._alive:
            with contextlib.suppress(ProcessLookupError):
                worker.process.terminate()
        await asyncio.gather(*map(self._wait_gone, self._alive))
        for pair in self._channels:
            for one in pair:
                one.close()

    @property
    def _metrics(self) -> Path:
        return self._settings.data_dir / "metrics"

    async def _keep(self, place: int) -> None:
        """Give a worker that ended a successor, ever later while those end at once or fail."""
        pause_s = PAUSE_S
        while True:
            worker = self._workers[place]
            await worker.process.wait()
            if self._workers[place] is not worker:
                continue
            self._tell_present(self._present - {place})
            await self._wait_gone(worker)
            code = worker.process.returncode
            log.warning("a worker ended", extra={"event": "workers.ended", "status": code})
            steady = time.monotonic() - worker.began_s > STEADY_S
            pause_s = PAUSE_S if steady else _longer(pause_s)
            while not await self._has_successor(place, worker, pause_s):
                pause_s = _longer(pause_s)

    async def _has_successor(self, place: int, worker: _Worker, pause_s: float) -> bool:
        """Pause and try once to begin a worker's successor; true if there is one."""
        log.info("a worker is begun soon", extra={"event": "workers.pause", "pause_s": pause_s})
        await asyncio.sleep(pause_s)
        try:
            async with self._locks[place]:
                if self._workers[place] is worker:  # else somebody else was faster
                    self._workers[place] = await self._new_worker(place)
        except NotReady:
            return False
        return True

    async def _renew(self) -> None:
        while True:
            await self._renewing.wait()
            self._renewing.clear()
            asked_s = self._asked_s
            try:
                for place in range(len(self._workers)):
                    await self._renew_one(place, asked_s)
            except NotReady:
                log.error("the old workers stay", extra={"event": "workers.not_renewed"})
            else:
                log.info("all workers are new", extra={"event": "workers.renewed"})

    async def _renew_one(self, place: int, asked_s: float) -> None:
        """Have a place filled by a worker that began after it was asked for.

        Raises:
            NotReady: there is none; the old one stays.
        """
        async with self._locks[place]:
            worker = self._workers[place]
            if worker.began_s > asked_s:
                return
            self._workers[place] = await self._new_worker(place)
        worker.tell(LEAVE)
        await self._wait_gone(worker, within_s=END_S + self._settings.request_timeout_s)

    def _tell_present(self, places: set[int]) -> None:
        """Tell all workers at which places one answers."""
        self._present = places
        for worker in self._alive:
            worker.tell(present_line(places))

    async def _new_worker(self, place: int) -> _Worker:
        """Return a worker that answers requests, at a place.

        Raises:
            NotReady: it ended first, or took too long.
        """
        try:
            reader, worker = await self._start(place)
        except OSError:  # no process, or no file, can be had
            raise NotReady("A worker did not start.") from None
        self._alive.add(worker)
        worker.tell(settings_line(self._settings) + self._keys_line())
        if await worker.began(reader):
            log.info("a worker began", extra={"event": "workers.began"})
            self._tell_present(self._present | {place})
            return worker
        await self._wait_gone(worker)
        raise NotReady("A worker did not start.")

    async def _wait_gone(self, worker: _Worker, *, within_s: float = END_S) -> None:
        """Return when a worker that is to end has ended."""
        await worker.wait_ended(within_s=within_s)
        self._alive.discard(worker)
        self._uncounted.add(worker.process.pid)
        with contextlib.suppress(OSError):  # nobody ends over counts
            for _ in range(COUNT_TRIES):  # then with the next that ends
                if add_dead_workers(self._metrics, self._uncounted):
                    return
                await asyncio.sleep(COUNT_POLL_S)

    async def _start(self, place: int) -> tuple[asyncio.StreamReader, _Worker]:
        began_s = time.monotonic()  # what it is made of is as old as that at most
        ours, theirs = socket.socketpair()
        with theirs:
            numbers = [theirs.fileno(), *(one.fileno() for one in self.sockets)]
            channels = [self._channels[place][0], *(pair[1] for pair in self._channels)]
            handing = [one.fileno() for one in channels]
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *(f"-W{option}" for option in sys.warnoptions),
                *PROGRAM,
                *map(str, [*numbers, CHANNELS, place, *handing]),
                pass_fds=[*numbers, *handing],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # a terminal's Ctrl-C reaches the supervisor alone
                env=os.environ | {COUNTS_FOLDER: str(self._metrics)},
            )
        # The system may give a number anew: then that one's counts go on.
        self._uncounted.discard(process.pid)
        reader, line = await asyncio.open_unix_connection(sock=ours)
        return reader, _Worker(process, line, began_s)

    async def _hand_keys(self) -> None:
        """Tell every worker of a new unlock key before the old one ends.

        They are told anew each time: a key may have been made for a worker that began in between.
        """
        while True:
            await asyncio.sleep(KEYS_S)
            line = self._keys_line()
            for worker in self._alive:
                worker.tell(line)

    def _keys_line(self) -> bytes:
        return keys_line(self._keys.live(to_ms(self._clock())).values())


def _longer(pause_s: float) -> float:
    return min(2 * pause_s, PAUSE_S_MAX)


def _empty(folder: Path) -> None:
    """Make an empty folder for the counts of all workers."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    make_lock(folder)
