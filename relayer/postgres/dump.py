"""A database as one file: written from a running server, and put into an empty database.

Not here: what a backup is made of (`backup.py`).

- A dump is one snapshot of a moment, however long it takes, and nobody waits for it.
- A password stands in the environment of the program, never in its command line, which every user
  of the machine can read.
"""

import asyncio
import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from relayer.postgres.programs import PostgresError, find_binaries


async def dump(connect_args: dict[str, Any], file: Path) -> None:
    """Write what the database holds into a new file, which only its owner may read.

    Raises:
        PostgresError: it cannot be written, or the server does not give it.
    """
    try:
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise PostgresError(f"cannot write {file}: {error.strerror}") from None
    # Comments on an extension are its owner's to make, who is no user of ours.
    options = ("--format=custom", "--no-owner", "--no-privileges", "--no-comments")
    await _run("pg_dump", connect_args, *options, f"--file={file}")
    await asyncio.to_thread(_sync, file)


async def load(connect_args: dict[str, Any], file: Path) -> None:
    """Bring all of a dump into an empty database, or nothing.

    Raises:
        PostgresError: the file is no dump, or the server refuses it.
    """
    options = ("--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction")
    await _run("pg_restore", connect_args, *options, str(file))


async def _run(program: str, connect_args: dict[str, Any], *arguments: str) -> None:
    url, password = without_password(connect_args)
    process = await asyncio.create_subprocess_exec(
        find_binaries() / program,
        f"--dbname={url}",
        "--no-password",
        *arguments,
        env=os.environ | ({"PGPASSWORD": password} if password else {}),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, told = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode != 0:
        # The first line says what went wrong; those behind it may quote a statement.
        reason = (told.decode(errors="replace").strip().splitlines() or ["no message"])[0]
        raise PostgresError(f"{program} failed: {reason.removeprefix(f'{program}: ')}")


def without_password(connect_args: dict[str, Any]) -> tuple[str, str]:
    """The URL that reaches the database but for its password, and that; of asyncpg's arguments."""
    if "dsn" not in connect_args:
        user, host = quote(connect_args["user"]), quote(connect_args["host"], safe="")
        place = f"{quote(connect_args['database'])}?host={host}&port={connect_args['port']}"
        return f"postgresql://{user}@/{place}", str(connect_args["password"])
    parts = urlsplit(connect_args["dsn"])
    login, at, hosts = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    password = unquote(password) or query.pop("password", "")
    plain = parts._replace(netloc=f"{user}{at}{hosts}", query=urlencode(query))
    return plain.geturl(), password


def _sync(file: Path) -> None:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
