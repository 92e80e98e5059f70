"""How long a server lives: from its first user to its last, through kills of users and of it."""

import asyncio
import errno
import fcntl
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from relayer.locks import try_lock
from relayer.postgres import embedded
from relayer.postgres.embedded import EmbeddedPostgres, PostgresError
from tests.life import WAIT_S_MAX
from tests.optional import unwrap
from tests.postgres.servers import KEEP, User, ends, fetch, run, server_of, start_user


async def test_restart_keeps_data_and_passwords(data_dir: Path) -> None:
    postgres = EmbeddedPostgres(data_dir=data_dir)
    async with postgres:
        before = postgres.connect_args
        await run(postgres.dsn, KEEP)
    assert not postgres.is_running()
    async with postgres:
        assert postgres.connect_args == before
        assert await fetch(postgres, "SELECT v FROM kept") == 7
    await postgres.stop()  # a second stop has nothing to do


async def test_arguments_are_refused_before_the_start(data_dir: Path) -> None:
    with pytest.raises(PostgresError, match="not started"):
        _ = EmbeddedPostgres(data_dir=data_dir).connect_args


async def test_two_first_starts_at_once_share_one_server(folder: Path, users: list[User]) -> None:
    pair = [start_user(users, folder / "new") for _ in range(2)]
    first, second = await asyncio.gather(*(user.ready() for user in pair))
    started = "SELECT pg_postmaster_start_time()"
    assert await fetch(first, started) == await fetch(second, started)
    await asyncio.gather(*(user.leave() for user in pair))
    assert server_of(folder / "new").pid() is None


@pytest.mark.parametrize("leaves_first", ["starter", "joiner"])
async def test_last_user_stops_the_server(
    data_dir: Path, users: list[User], leaves_first: str
) -> None:
    starter = start_user(users, data_dir)
    await starter.ready()
    joiner = start_user(users, data_dir)
    dsn = await joiner.ready()
    pid = unwrap(server_of(data_dir).pid())
    first, last = (starter, joiner) if leaves_first == "starter" else (joiner, starter)
    await first.leave()
    assert server_of(data_dir).pid() == pid
    assert await fetch(dsn, "SELECT 1") == 1
    await last.leave()
    assert server_of(data_dir).pid() is None
    assert server_of(data_dir).is_gone()


async def test_many_overlapping_users_always_have_a_server(data_dir: Path) -> None:
    async def use(delay_s: float) -> object:
        await asyncio.sleep(delay_s)
        async with EmbeddedPostgres(data_dir=data_dir) as postgres:
            return await fetch(postgres, "SELECT 1")

    delays_s = [index * 0.017 for index in range(30)]
    assert await asyncio.gather(*map(use, delays_s)) == [1] * 30
    assert server_of(data_dir).pid() is None


async def test_killed_user_leaves_a_server_that_the_next_one_takes_over(
    data_dir: Path, users: list[User]
) -> None:
    killed = start_user(users, data_dir)
    await killed.ready()
    pid = unwrap(server_of(data_dir).pid())
    killed.kill()
    async with EmbeddedPostgres(data_dir=data_dir) as postgres:
        assert server_of(data_dir).pid() == pid
        assert await fetch(postgres, "SELECT 1") == 1
    assert server_of(data_dir).pid() is None


async def test_killed_user_does_not_keep_the_server_alive(
    data_dir: Path, users: list[User]
) -> None:
    killed, other = start_user(users, data_dir), start_user(users, data_dir)
    await asyncio.gather(killed.ready(), other.ready())
    killed.kill()
    await other.leave()
    assert server_of(data_dir).pid() is None


@pytest.mark.parametrize("user_dies_too", [False, True])
async def test_killed_server_recovers_what_was_committed(
    data_dir: Path, users: list[User], user_dies_too: bool
) -> None:
    user = start_user(users, data_dir)
    await run(await user.ready(), KEEP)
    old = unwrap(server_of(data_dir).pid())
    os.kill(old, signal.SIGKILL)
    if user_dies_too:
        user.kill()
    await ends(old)
    assert server_of(data_dir).pid() is None
    async with EmbeddedPostgres(data_dir=data_dir) as postgres:
        assert await fetch(postgres, "SELECT v FROM kept") == 7
        assert server_of(data_dir).pid() != old


async def test_killed_server_is_brought_back_under_its_user(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "relayer.postgres")
    async with EmbeddedPostgres(data_dir=data_dir) as postgres:
        watch = asyncio.create_task(postgres.keep_up())
        for _ in range(2):
            await run(postgres.dsn, KEEP)
            old = unwrap(server_of(data_dir).pid())
            os.kill(old, signal.SIGKILL)
            await ends(old)
            async with asyncio.timeout(60):
                while server_of(data_dir).pid() in {None, old}:
                    await asyncio.sleep(0.05)
                while (kept := await fetched(postgres)) is None:
                    await asyncio.sleep(0.05)
            assert kept == 7
            await run(postgres.dsn, "DROP TABLE kept")
        async with asyncio.timeout(60):
            while (told := [vars(line)["event"] for line in caplog.records])[3:] == []:
                await asyncio.sleep(0.05)
        watch.cancel()
    assert told == ["postgres.gone", "postgres.back"] * 2
    assert server_of(data_dir).pid() is None


async def test_a_process_short_of_files_goes_on_looking_after_its_server(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EmbeddedPostgres(data_dir=data_dir) as postgres:
        await run(postgres.dsn, KEEP)
        monkeypatch.setattr("relayer.postgres.embedded._WATCH_S", 0.05)
        failed, read_text = asyncio.Event(), Path.read_text

        def too_many(path: Path, **how: Any) -> str:
            if path.name == "postmaster.pid" and not failed.is_set():
                failed.set()
                raise OSError(errno.EMFILE, "Too many open files")
            return read_text(path, **how)

        monkeypatch.setattr(Path, "read_text", too_many)
        watch = asyncio.create_task(postgres.keep_up())
        await failed.wait()
        old = unwrap(server_of(data_dir).pid())
        os.kill(old, signal.SIGKILL)
        await ends(old)
        async with asyncio.timeout(60):
            while await fetched(postgres) is None:
                await asyncio.sleep(0.05)
        watch.cancel()


async def fetched(postgres: EmbeddedPostgres) -> int | None:
    """What was kept, or nothing while the server is on its way up."""
    try:
        kept: Any = await fetch(postgres, "SELECT v FROM kept")
        return int(kept)
    except (OSError, asyncpg.PostgresError):
        return None


async def test_stop_after_the_server_was_killed(data_dir: Path) -> None:
    postgres = EmbeddedPostgres(data_dir=data_dir)
    async with postgres:
        assert postgres.is_running()
        pid = unwrap(server_of(data_dir).pid())
        os.kill(pid, signal.SIGKILL)
        await ends(pid)
        assert not postgres.is_running()
    async with postgres:
        assert await fetch(postgres, "SELECT 1") == 1


async def frozen_backend(postgres: EmbeddedPostgres) -> int:
    """Kills the server while one of its processes is stopped and holds the shared memory."""
    connection = await asyncpg.connect(**postgres.connect_args)
    backend = await connection.fetchval("SELECT pg_backend_pid()")
    pid = int((postgres.log_path.parent / "cluster" / "postmaster.pid").read_text().split()[0])
    os.kill(backend, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    await ends(pid)
    connection.terminate()
    return backend


async def waits_for_backend(
    monkeypatch: pytest.MonkeyPatch, data_dir: Path, backend: int, *, message: str, launches: bool
) -> None:
    """Checks that nobody gets a server before the stopped process of the killed one has ended.

    The time of who waits in vain is over once it knows why: from a launch, where it `launches` one.
    """
    postgres, impatient = (EmbeddedPostgres(data_dir=data_dir) for _ in range(2))
    admit, tried, ahead_s = impatient._admit, asyncio.Event(), 0.0

    async def admit_and_tell() -> None:
        tried.set()
        await admit()

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead_s)
    monkeypatch.setattr(embedded, "time", clock)
    monkeypatch.setattr(impatient, "_admit", admit_and_tell)
    try:
        in_vain = asyncio.create_task(impatient.start())
        await asyncio.wait_for(tried.wait(), WAIT_S_MAX)
        while launches and impatient._failure is None and not in_vain.done():
            await asyncio.sleep(0.01)
        ahead_s = 3_600.0
        with pytest.raises(PostgresError, match=message):
            await in_vain
        waiting = asyncio.create_task(postgres.start())
        await asyncio.sleep(0.7)
        assert not waiting.done()
    finally:
        os.kill(backend, signal.SIGCONT)
    await waiting
    assert await fetch(postgres, "SELECT 1") == 1
    await postgres.stop()


async def test_start_waits_for_the_processes_of_a_killed_server(
    monkeypatch: pytest.MonkeyPatch, data_dir: Path
) -> None:
    async with EmbeddedPostgres(data_dir=data_dir) as postgres:
        backend = await frozen_backend(postgres)
        message = r"earlier PostgreSQL server.*postgres\.log"
        await waits_for_backend(monkeypatch, data_dir, backend, message=message, launches=False)


def _is_published(data_dir: Path) -> bool:
    try:
        server_of(data_dir).socket_folder()
    except FileNotFoundError:
        return False
    return True


async def test_start_waits_for_shared_memory_that_no_lock_tells_of(
    monkeypatch: pytest.MonkeyPatch, data_dir: Path
) -> None:
    foreign = unwrap(try_lock(data_dir / "foreign.lock", fcntl.LOCK_EX))
    await server_of(data_dir).launch(foreign, timeout_s=10)
    os.close(foreign)
    until = time.monotonic() + WAIT_S_MAX
    while not _is_published(data_dir):  # before, nobody can tell that a server is there
        assert time.monotonic() < until
        await asyncio.sleep(0.05)
    async with EmbeddedPostgres(data_dir=data_dir) as postgres:
        backend = await frozen_backend(postgres)
        message = r"shared memory block.*postgres\.log"
        await waits_for_backend(monkeypatch, data_dir, backend, message=message, launches=True)


async def test_stop_of_a_stuck_server_ends_it_the_hard_way(data_dir: Path) -> None:
    postgres = EmbeddedPostgres(data_dir=data_dir, stop_timeout_s=0.3)
    await postgres.start()
    connection = await asyncpg.connect(**postgres.connect_args)
    backend = await connection.fetchval("SELECT pg_backend_pid()")
    os.kill(backend, signal.SIGSTOP)
    await postgres.stop()
    connection.terminate()
    assert server_of(data_dir).is_gone()
    assert not Path(f"/proc/{backend}").exists()


async def test_cancelled_start_leaves_no_server(data_dir: Path) -> None:
    postgres = EmbeddedPostgres(data_dir=data_dir)
    start = asyncio.create_task(postgres.start())
    while not postgres.log_path.exists() or b"starting" not in postgres.log_path.read_bytes():
        await asyncio.sleep(0)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert server_of(data_dir).is_gone()


async def test_terminal_interrupt_does_not_reach_the_server(
    data_dir: Path, users: list[User]
) -> None:
    user = start_user(users, data_dir)
    dsn = await user.ready()
    os.killpg(user.process.pid, signal.SIGINT)
    await user.interrupted()
    assert await fetch(dsn, "SELECT 1") == 1
    await user.leave()
