"""What a start finds: foreign processes, damage, another version, lost passwords, long paths."""

import asyncio
import json
import os
import stat
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from relayer.postgres.embedded import EmbeddedPostgres, PostgresError, check_versions
from relayer.postgres.programs import Account, find_binaries, run_program
from tests.postgres.servers import (
    NOBODY_ACCOUNT,
    ROOT,
    User,
    as_other,
    copy_cluster,
    fetch,
    server_of,
    start_user,
)

SOCKET_LOCK = ".s.PGSQL.5432.lock"


async def test_pid_file_of_another_process_is_no_obstacle(data_dir: Path) -> None:
    pid_file = data_dir / "postgres" / "cluster" / "postmaster.pid"
    pid_file.write_text(f"{os.getpid()}\n{pid_file.parent}\n1\n5432\n{data_dir}\n\n1 1\nready\n")
    async with EmbeddedPostgres(data_dir=data_dir) as postgres:
        assert await fetch(postgres, "SELECT 1") == 1


@pytest.mark.parametrize(
    "left", ["", "\0" * 64, "99999999\n", "{other}\n", "0\n", "9" * 20 + "\n", "\udcff\n"]
)
async def test_nor_are_locks_that_a_power_loss_left(
    data_dir: Path, shared: EmbeddedPostgres, left: str
) -> None:
    """Empty, of zeros or anything else, or with a number that a server of another cluster has."""
    async with EmbeddedPostgres(data_dir=data_dir) as postgres:
        folder = Path(postgres.connect_args["host"])
    owner = (data_dir / "postgres" / "cluster").stat()
    folder.mkdir(mode=0o700, exist_ok=True)
    os.chown(folder, owner.st_uid, owner.st_gid)
    other = server_of(shared.log_path.parent.parent).pid()
    for lock in (data_dir / "postgres" / "cluster" / "postmaster.pid", folder / SOCKET_LOCK):
        lock.write_bytes(left.format(other=other).encode(errors="surrogateescape"))
        os.chown(lock, owner.st_uid, owner.st_gid)
    async with EmbeddedPostgres(data_dir=data_dir) as postgres:
        assert await fetch(postgres, "SELECT 1") == 1


# Without children PostgreSQL runs for users with a name alone.
@pytest.mark.parametrize("alone", [False] if ROOT else [False, True])
async def test_a_server_that_was_started_by_hand_keeps_its_lock(spoilt: Path, alone: bool) -> None:
    """It holds no lock of ours, and would end without the file; `alone`, it has no children."""
    folder = spoilt / "postgres" / "cluster"
    owner = folder.stat()
    place = ["-D", f"{folder}/"]
    command = [str(find_binaries() / "postgres"), *place, "-k", str(spoilt), "-p", "5433"]
    if alone:
        command = [command[0], "--single", *place, "postgres"]
    if ROOT:
        command = as_other(command, Account(uid=owner.st_uid, gid=owner.st_gid))
    spoilt.chmod(0o777)
    hand = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    pid_file = folder / "postmaster.pid"
    try:
        async with asyncio.timeout(60):
            while not (pid_file.exists() and len(pid_file.read_text().splitlines()) >= 7):
                await asyncio.sleep(0.01)
        before = pid_file.read_text().splitlines()[:3]
        with pytest.raises(PostgresError, match="lock file" if alone else "end the server"):
            await EmbeddedPostgres(data_dir=spoilt, start_timeout_s=2).start()
        assert pid_file.read_text().splitlines()[:3] == before
        assert hand.returncode is None
    finally:
        hand.terminate()
        await hand.wait()


async def test_nor_is_a_lock_of_the_socket_that_a_killed_server_left(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir=data_dir) as postgres:
        folder = Path(postgres.connect_args["host"])
    owner = (data_dir / "postgres" / "cluster").stat()
    folder.mkdir(mode=0o700, exist_ok=True)
    os.chown(folder, owner.st_uid, owner.st_gid)
    lock = folder / SOCKET_LOCK
    other = await asyncio.create_subprocess_exec("sleep", "1000", user=owner.st_uid)
    lock.write_text(f"{other.pid}\n{data_dir}\n1\n5432\n{folder}\n")
    os.chown(lock, owner.st_uid, owner.st_gid)
    try:
        async with EmbeddedPostgres(data_dir=data_dir) as postgres:
            assert await fetch(postgres, "SELECT 1") == 1
    finally:
        other.kill()
        await other.wait()


async def test_only_this_cluster_s_server_is_recognised(
    spoilt: Path, shared: EmbeddedPostgres
) -> None:
    other = server_of(shared.log_path.parent.parent).pid()
    pid_file = spoilt / "postgres" / "cluster" / "postmaster.pid"
    for pid in (other, os.getpid(), 1, -1):
        pid_file.write_text(f"{pid}\n")
        assert server_of(spoilt).pid() is None
    pid_file.unlink()


async def test_failed_start_tells_the_server_s_reason(spoilt: Path) -> None:
    configuration = spoilt / "postgres" / "cluster" / "postgresql.conf"
    sane = configuration.read_text()
    configuration.write_text(sane + "nonsense = 1\n")
    postgres = EmbeddedPostgres(data_dir=spoilt)
    with pytest.raises(PostgresError, match=r"FATAL.*contains errors.*postgres\.log"):
        await postgres.start()
    configuration.write_text(sane)
    async with postgres:
        assert await fetch(postgres, "SELECT 1") == 1


async def test_failed_creation_tells_the_cause_and_not_what_was_tidied_up(folder: Path) -> None:
    """As on a full disk, the server that `initdb` calls fails, and `initdb` speaks after it."""
    target = folder / "cluster"
    folder.chmod(0o777)
    command = [str(find_binaries() / "initdb"), f"--pgdata={target}", "--set=nonsense=1"]
    account = NOBODY_ACCOUNT if ROOT else None
    with pytest.raises(PostgresError, match=r"^initdb failed: .*FATAL: .* contains errors$"):
        await run_program(command, account=account, paths=(folder,), timeout_s=60)
    assert not target.exists()


async def test_log_is_never_written_through_a_link(spoilt: Path) -> None:
    log = spoilt / "postgres" / "postgres.log"
    log.unlink()
    (spoilt / "target").touch()
    log.symlink_to(spoilt / "target")
    with pytest.raises(PostgresError, match="cannot use"):
        await EmbeddedPostgres(data_dir=spoilt).start()
    assert (spoilt / "target").read_text() == ""


@pytest.mark.parametrize("lock", ["transition", "users"])
async def test_a_lock_that_cannot_be_opened_is_told(spoilt: Path, lock: str) -> None:
    """As where the disk can only be read."""
    path = spoilt / "postgres" / f"{lock}.lock"
    path.unlink(missing_ok=True)
    path.mkdir()
    with pytest.raises(PostgresError, match=r"cannot use .*/postgres: Is a directory"):
        await EmbeddedPostgres(data_dir=spoilt).start()


async def test_cluster_of_another_version_is_refused(spoilt: Path) -> None:
    (spoilt / "postgres" / "cluster" / "PG_VERSION").write_text("17\n")
    with pytest.raises(PostgresError, match="made by PostgreSQL 17"):
        await EmbeddedPostgres(data_dir=spoilt).start()


@pytest.mark.parametrize("content", [None, "", "[]", '{"postgres": "x"}'])
async def test_lost_passwords_are_explained(spoilt: Path, content: str | None) -> None:
    passwords = spoilt / "postgres" / "passwords.json"
    passwords.unlink()
    if content is not None:
        passwords.write_text(content)
    with pytest.raises(PostgresError, match=r"passwords\.json is missing or damaged"):
        await EmbeddedPostgres(data_dir=spoilt).start()


async def test_passwords_of_another_cluster_are_refused(spoilt: Path) -> None:
    passwords = spoilt / "postgres" / "passwords.json"
    passwords.write_text(json.dumps({"postgres": "00", "memrelay": "00"}))
    with pytest.raises(PostgresError, match="refuses the password"):
        await EmbeddedPostgres(data_dir=spoilt).start()
    assert server_of(spoilt).is_gone()


async def test_interrupted_creation_is_begun_again(folder: Path) -> None:
    leftover = folder / "postgres" / "init-abc" / "cluster"
    leftover.mkdir(parents=True)
    (leftover / "PG_VERSION").write_text("18\n")
    async with EmbeddedPostgres(data_dir=folder) as postgres:
        assert await fetch(postgres, "SELECT 1") == 1
    assert not leftover.parent.exists()


@pytest.mark.parametrize("taken_by", ["nothing", "open folder", "link", "file"])
async def test_long_path_takes_a_private_socket_folder_elsewhere(
    folder: Path, pristine: Path, users: list[User], taken_by: str
) -> None:
    long = folder / ("d" * 100)
    long.mkdir()
    copy_cluster(pristine, long)
    runtime_dir = folder / "r"
    runtime_dir.mkdir()
    postgres = EmbeddedPostgres(data_dir=long, runtime_dir=runtime_dir)
    async with postgres:
        expected = Path(postgres.connect_args["host"])
        assert expected.parent == runtime_dir
    assert not expected.exists()
    trap = folder / "trap"
    trap.mkdir(mode=0o777)
    match taken_by:
        case "open folder":
            expected.mkdir()
            expected.chmod(0o777)
        case "link":
            expected.symlink_to(trap)
        case "file":
            expected.touch()
    async with postgres:
        used = Path(postgres.connect_args["host"])
        assert (used == expected) == (taken_by == "nothing")
        assert stat.S_IMODE(used.lstat().st_mode) == 0o700
        assert list(trap.iterdir()) == []
        # A process with another runtime folder finds the same socket.
        other = start_user(users, long, runtime_dir=trap)
        await other.ready()
        await other.leave()
    assert not used.exists() or taken_by != "nothing"


async def test_opened_socket_folder_is_not_trusted(data_dir: Path, users: list[User]) -> None:
    user = start_user(users, data_dir)
    await user.ready()
    (data_dir / "postgres" / "socket").chmod(0o777)
    with pytest.raises(PostgresError, match="open to others"):
        await EmbeddedPostgres(data_dir=data_dir).start()
    (data_dir / "postgres" / "socket").chmod(0o700)
    await user.leave()


@pytest.mark.parametrize(
    ("server", "available", "installed", "message"),
    [
        (140_011, "0.8.0", "0.8.0", "is PostgreSQL 14"),
        (150_000, None, None, "no pgvector"),
        (150_000, "0.7.4", None, r"has pgvector 0\.7\.4"),
        (180_004, "0.8.5", "0.7.4", "ALTER EXTENSION vector UPDATE"),
    ],
)
def test_old_servers_are_refused(
    server: int, available: str | None, installed: str | None, message: str
) -> None:
    with pytest.raises(PostgresError, match=message):
        check_versions(
            server_version_num=server, pgvector_available=available, pgvector_installed=installed
        )


@pytest.mark.parametrize("installed", [None, "0.8.0", "0.10.0", "1.0"])
def test_recent_servers_are_accepted(installed: str | None) -> None:
    check_versions(
        server_version_num=150_000, pgvector_available="0.10", pgvector_installed=installed
    )
