"""Which account the server runs as, and which folders that one can enter."""

# The event loop serves nothing but the test itself, so blocking calls in it harm nobody.
# ruff: noqa: ASYNC221

import errno
import json
import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from relayer.postgres import launch as postgres_launch
from relayer.postgres.embedded import EmbeddedPostgres, PostgresError
from relayer.postgres.programs import choose_account
from tests.optional import unwrap
from tests.postgres.servers import (
    NOBODY,
    NOBODY_ACCOUNT,
    ROOT,
    USER,
    User,
    as_other,
    fetch,
    server_of,
    start_user,
    status_of,
)

if ROOT:
    # What only root can try. Run by an ordinary user, the other modules cover that user instead.

    def test_private_account_is_nobody_s() -> None:
        account = choose_account()
        assert account.uid not in {entry.pw_uid for entry in pwd.getpwall()}
        assert account.uid > 60_000

    async def test_ordinary_user_runs_the_server_as_itself(folder: Path, users: list[User]) -> None:
        home = folder / "user"
        home.mkdir(mode=0o700)
        os.chown(home, NOBODY.pw_uid, NOBODY.pw_gid)
        prefix = as_other([sys.executable, "-c", USER, str(home), str(home)], NOBODY_ACCOUNT)
        user = start_user(users, home, prefix=tuple(prefix))
        dsn = await user.ready()
        assert await fetch(dsn, "SELECT current_user") == "memrelay"
        pid = int((home / "postgres" / "cluster" / "postmaster.pid").read_text().split()[0])
        assert status_of(pid)["Uid"].split()[0] == str(NOBODY.pw_uid)
        for path in (home / "postgres").rglob("*"):
            assert path.lstat().st_uid == NOBODY.pw_uid
            assert stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0
        with pytest.raises(PostgresError, match="run it as the owner"):
            await EmbeddedPostgres(data_dir=home).start()
        await user.leave()

    CONNECT = "print(socket.socket(socket.AF_UNIX).connect_ex(sys.argv[1]))"
    DROP = f"os.setgroups([]); os.setgid({NOBODY.pw_gid}); os.setuid({NOBODY.pw_uid})"

    @pytest.mark.parametrize("may_walk_anywhere", [False, True])
    async def test_other_accounts_cannot_connect(data_dir: Path, may_walk_anywhere: bool) -> None:
        async with EmbeddedPostgres(data_dir=data_dir) as postgres:
            path = Path(postgres.connect_args["host"]) / ".s.PGSQL.5432"
            assert path.is_socket()
            command = [sys.executable, "-I", "-c", f"import socket, sys; {CONNECT}", str(path)]
            if may_walk_anywhere:
                order = {
                    "command": command,
                    "environment": {},
                    "uid": NOBODY.pw_uid,
                    "gid": NOBODY.pw_gid,
                    "keep_read_search": True,
                    "log": None,
                }
                launcher = postgres_launch.__file__
                command = [sys.executable, "-I", "-S", launcher, json.dumps(order)]
            else:
                command[3] = f"import os, socket, sys; {DROP}; {CONNECT}"
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            assert int(done.stdout) == errno.EACCES

    @pytest.mark.parametrize("closed", ["nothing", "data", "programs", "both"])
    async def test_folders_only_root_may_enter(
        folder: Path, programs: Path, users: list[User], closed: str
    ) -> None:
        data = folder / "closed"
        data.mkdir()
        programs.chmod(0o700 if closed in ("programs", "both") else 0o755)
        data.chmod(0o700 if closed in ("data", "both") else 0o755)
        user = start_user(users, data / "new", path=(programs,))
        dsn = await user.ready()
        assert await fetch(dsn, "SELECT '[1]'::vector::text") == "[1]"
        pid = unwrap(server_of(data / "new").pid())
        status = status_of(pid)
        mask = 0 if closed == "nothing" else 1 << postgres_launch.CAP_DAC_READ_SEARCH
        for name in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
            assert int(status[name], 16) == mask
        assert status["Uid"].split()[0] not in ("0", str(NOBODY.pw_uid))
        assert status["Groups"] == ""
        assert status["NoNewPrivs"] == "1"
        assert os.readlink(f"/proc/{pid}/exe").startswith(str(programs))
        await user.leave()

    async def test_missing_capability_is_explained(
        folder: Path, programs: Path, users: list[User]
    ) -> None:
        programs.chmod(0o755)
        closed = folder / "closed"
        closed.mkdir(mode=0o700)
        drop = (
            "import ctypes, os, sys; assert ctypes.CDLL(None).prctl(24, 2, 0, 0, 0) == 0;"
            "os.execv(sys.argv[1], sys.argv[1:])"
        )
        prefix = (sys.executable, "-c", drop)
        user = start_user(users, closed, prefix=prefix, path=(programs,))
        message = await user.failed()
        assert f"cannot enter {closed}" in message
        assert "CAP_DAC_READ_SEARCH" in message
        user = start_user(users, folder / "open", prefix=prefix, path=(programs,))
        await user.ready()
        await user.leave()

    async def test_nameless_user_is_told_why(folder: Path, users: list[User]) -> None:
        nameless = choose_account()
        home = folder / "nameless"
        home.mkdir(mode=0o700)
        os.chown(home, nameless.uid, nameless.gid)
        command = as_other([sys.executable, "-c", USER, str(home), str(home)], nameless)
        message = await start_user(users, home, prefix=tuple(command)).failed()
        assert f"give uid {nameless.uid} an entry" in message

    async def test_restored_cluster_gets_an_account_again(spoilt: Path) -> None:
        cluster = spoilt / "postgres" / "cluster"
        subprocess.run(["chown", "-R", "0:0", spoilt], check=True)
        async with EmbeddedPostgres(data_dir=spoilt) as postgres:
            assert await fetch(postgres, "SELECT 1") == 1
            assert cluster.stat().st_uid > 60_000

    async def test_cluster_of_another_user_is_refused(spoilt: Path) -> None:
        os.chown(spoilt / "postgres", NOBODY.pw_uid, NOBODY.pw_gid)
        with pytest.raises(PostgresError, match="run it as the owner"):
            await EmbeddedPostgres(data_dir=spoilt).start()
