"""Servers of the embedded PostgreSQL, and other processes that use them."""

import asyncio
import fcntl
import json
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg

from relayer.postgres import launch as postgres_launch
from relayer.postgres.cluster import Cluster
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.postgres.programs import Account, first_closed
from relayer.postgres.server import Server
from tests.optional import unwrap

ROOT = os.geteuid() == 0
REPOSITORY = Path(__file__).resolve().parents[2]
NOBODY = pwd.getpwnam("nobody")
NOBODY_ACCOUNT = Account(uid=NOBODY.pw_uid, gid=NOBODY.pw_gid)


# Uses the server until it reads a line, as one command of the relayer would.
USER = """
import asyncio, signal, sys
from pathlib import Path
from relayer.postgres.embedded import EmbeddedPostgres, PostgresError

async def main():
    postgres = EmbeddedPostgres(data_dir=Path(sys.argv[1]), runtime_dir=Path(sys.argv[2]))
    try:
        await postgres.start()
    except PostgresError as error:
        print("error", error, flush=True)
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: print("interrupted", flush=True))
    print("ready", postgres.dsn, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await postgres.stop()
    print("stopped", flush=True)

asyncio.run(main())
"""


KEEP = "DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT 7 AS v"


class User:
    """Another process that uses the server."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self._input, self._output = unwrap(process.stdin), unwrap(process.stdout)

    def _read(self, word: str) -> str:
        line = self._output.readline()
        assert line.startswith(word), line + unwrap(self.process.stderr).read()
        return line.removeprefix(word).strip()

    async def ready(self) -> str:
        return await asyncio.to_thread(self._read, "ready")

    async def failed(self) -> str:
        return await asyncio.to_thread(self._read, "error")

    async def interrupted(self) -> str:
        return await asyncio.to_thread(self._read, "interrupted")

    async def leave(self) -> None:
        self._input.write("\n")
        self._input.flush()
        await asyncio.to_thread(self._read, "stopped")
        await asyncio.to_thread(self.process.wait)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def end_servers(top: Path) -> None:
    """Ends every server below the folder and returns when the last of its processes is gone."""
    for home in top.rglob("postgres"):
        if (home / "cluster").is_dir():
            pid = server_of(home.parent).pid()
            if pid is not None:
                os.kill(pid, signal.SIGQUIT)
            held = os.open(home / "server.lock", os.O_RDWR | os.O_CREAT)
            fcntl.flock(held, fcntl.LOCK_EX)
            os.close(held)


def copy_cluster(source: Path, data_dir: Path) -> None:
    # The write-ahead log is mostly zeros.
    subprocess.run(["cp", "-a", "--sparse=always", source / "postgres", data_dir], check=True)


def server_of(data_dir: Path) -> Server:
    return Server(cluster=Cluster(data_dir=data_dir, runtime_dir=data_dir))


def start_user(
    users: list[User],
    data_dir: Path,
    *,
    runtime_dir: Path | None = None,
    prefix: tuple[str, ...] = (),
    path: tuple[Path, ...] = (),
) -> User:
    folders = [*map(str, (*path, REPOSITORY)), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", USER, str(data_dir), str(runtime_dir or data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))},
    )
    users.append(User(process))
    return users[-1]


def as_other(command: list[str], account: Account) -> list[str]:
    """Runs `command` as the account, even from a checkout that only root may enter."""
    needed = [Path(sys.executable).resolve(), Path(asyncpg.__file__), REPOSITORY / "relayer"]
    order = {
        "command": command,
        "environment": {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, sys.path)])},
        "uid": account.uid,
        "gid": account.gid,
        "keep_read_search": first_closed(needed, account) is not None,
        "log": None,
    }
    return [sys.executable, "-I", "-S", postgres_launch.__file__, json.dumps(order)]


async def fetch(postgres: EmbeddedPostgres | str, query: str, **overrides: object) -> object:
    if isinstance(postgres, str):
        connection = await asyncpg.connect(postgres)
    else:
        connection = await asyncpg.connect(**{**postgres.connect_args, **overrides})
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def run(dsn: str, script: str) -> None:
    connection = await asyncpg.connect(dsn)
    await connection.execute(script)
    await connection.close()


async def ends(pid: int) -> None:
    """Returns when no running process has the number; zombies do not run."""
    while Path(f"/proc/{pid}").exists():
        if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX":
            return
        await asyncio.sleep(0.01)


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
