"""A database as one file: written from a running server, and put into an empty database.

Not here: what a backup is made of (`upkeep/backup.py`).

- A dump is one snapshot of a moment, however long it takes, and nobody waits for it.
- A password stands in the environment of the program, never in its command line, which every user
  of the machine can read.
- `psql` puts a dump in, not `pg_restore`, which would set what servers before 17 do not know. What
  it is given is one transaction, which commits at the very end: one that breaks off leaves nothing.
"""

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from relayer.durable import sync
from relayer.postgres.programs import PostgresError, find_binaries

_CHUNK_BYTES: Final = 2**16
_SETS: Final = b"SET transaction_timeout = 0;\n"
_SETS_WHERE_KNOWN: Final = (
    b"SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings"
    b" WHERE name = 'transaction_timeout';\n"
)
# What PostgreSQL's programs know of asyncpg's URLs; the rest is about the relayer's sessions.
_PARAMETERS: Final = frozenset(
    "application_name dbname gsslib host krbsrvname options passfile port service"
    " ssl_max_protocol_version ssl_min_protocol_version sslcert sslcrl sslkey sslmode"
    " sslnegotiation sslrootcert target_session_attrs user".split()
)


async def dump(connect_args: dict[str, Any], file: Path) -> None:
    """Write what the database holds into a new file, which only its owner may read.

    Raises:
        PostgresError: it cannot be written, or the server does not give it.
    """
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise PostgresError(f"cannot write {file}: {error.strerror}") from None
    url, password = without_password(connect_args)
    # Comments on an extension are its owner's to make, who is no user of ours.
    options = ("--format=custom", "--no-owner", "--no-privileges", "--no-comments")
    place = (f"--dbname={url}", "--no-password", f"--file={file}")
    async with _start("pg_dump", *options, *place, password=password) as process:
        await _require_success("pg_dump", process)
    await asyncio.to_thread(sync, file)


async def load(connect_args: dict[str, Any], file: Path, *, then: str = "") -> None:
    """Bring all of a dump into an empty database, or nothing; with it comes what `then` does.

    Raises:
        PostgresError: the file is no dump, or the server refuses it.
    """
    url, password = without_password(connect_args)
    options = ("--no-owner", "--no-privileges", "--file=-")
    place = (f"--dbname={url}", "--no-password", "--no-psqlrc", "--set=ON_ERROR_STOP=1")
    async with (
        _start("psql", *place, password=password, stdin=PIPE) as server,
        _start("pg_restore", *options, str(file), stdout=PIPE) as script,
    ):
        assert script.stdout is not None
        assert server.stdin is not None
        with suppress(ConnectionError):  # psql has ended, and says why
            server.stdin.write(b"BEGIN;\n")  # not `pg_restore`'s, which would commit before `then`
            await _pass_on(script.stdout, server.stdin)
            await _require_success("pg_restore", script)
            server.stdin.write(f"{_path_again(connect_args)}\n{then}\nCOMMIT;\n".encode())
        server.stdin.close()
        await _require_success("psql", server)


async def _pass_on(script: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
    """Give the server the script, with the one setting that not every release knows asked for."""
    try:
        settings = await script.readuntil(_SETS)
    except asyncio.IncompleteReadError as error:
        settings = error.partial
    server.write(settings.replace(_SETS, _SETS_WHERE_KNOWN))
    while chunk := await script.read(_CHUNK_BYTES):
        server.write(chunk)
        await server.drain()


def _path_again(connect_args: dict[str, Any]) -> str:
    """Return the statement that restores a session's search path, which a dump's script clears."""
    query = dict(parse_qsl(urlsplit(connect_args.get("dsn", "")).query))
    if "search_path" not in query:  # which PostgreSQL's programs know of no URL
        return "RESET search_path;"
    path = query["search_path"].replace("'", "''")
    return f"SELECT pg_catalog.set_config('search_path', '{path}', false);"


@asynccontextmanager
async def _start(
    program: str, *arguments: str, password: str = "", stdin: int = DEVNULL, stdout: int = DEVNULL
) -> AsyncIterator[Process]:
    """Yield one of PostgreSQL's programs, which is not there any more afterwards."""
    process = await asyncio.create_subprocess_exec(
        find_binaries() / program,
        *arguments,
        env=os.environ | ({"PGPASSWORD": password} if password else {}),
        stdin=stdin,
        stdout=stdout,
        stderr=PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.communicate()  # a pipe that is left full would keep it


async def _require_success(program: str, process: Process) -> None:
    _, told = await process.communicate()
    if process.returncode != 0:
        # The first line says what went wrong; those behind it may quote a statement.
        reason = (told.decode(errors="replace").strip().splitlines() or ["no message"])[0]
        raise PostgresError(f"{program} failed: {reason.removeprefix(f'{program}: ')}")


def without_password(connect_args: dict[str, Any]) -> tuple[str, str]:
    """Return the URL that reaches the database without its password, and the password.

    They are taken from asyncpg's arguments.

    Raises:
        PostgresError: the key of a client's certificate has a password, for which there is no
            other way than the command line.
    """
    if "dsn" not in connect_args:
        user, host = quote(connect_args["user"]), quote(connect_args["host"], safe="")
        place = f"{quote(connect_args['database'])}?host={host}&port={connect_args['port']}"
        return f"postgresql://{user}@/{place}", str(connect_args["password"])
    parts = urlsplit(connect_args["dsn"])
    login, at, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    query = dict(parse_qsl(parts.query))
    if "sslpassword" in query:
        raise PostgresError(
            "pg_dump takes sslpassword in its command line only, which everybody can read: name a "
            "key without a password in sslkey, in a file that only its owner may read"
        )
    if "database" in query:
        query["dbname"] = query["database"]
    password = unquote(password) or query.get("password", "")
    known = urlencode({k: v for k, v in query.items() if k in _PARAMETERS}, quote_via=quote)
    plain = parts._replace(netloc=f"{user}{at}{hosts}", query=known)
    return plain.geturl(), password
