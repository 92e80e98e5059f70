"""Bringing a database to the current schema: the numbered revisions, then the job queue's tables.

Not here: the revisions (`migrations/`), how they are applied (`upgrade`), and which table lies
where in a cluster (`distribution`).

- A database that has the last revision is told by its number alone. Most starts find it so, and do
  without alembic and SQLAlchemy.
"""

import asyncio
import os
import re
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import asyncpg

import relayer
from relayer.database import distribution, queue
from relayer.database.pool import translate_errors
from relayer.errors import Unavailable
from relayer.postgres.embedded import PostgresError, check_server

LOCK: Final = 7236411


_HAS_ACCOUNTS: Final = "SELECT EXISTS (SELECT 1 FROM accounts)"
_PLACE: Final = re.compile(r"[\w.,/:\[\]-]+")
_REVISION: Final = re.compile("[0-9]{4}")
# What the driver says of a URL and quotes nothing of it that may be a password.
_HARMLESS: Final = re.compile("root certificate file|`sslmode` parameter")
_TLS_FILES: Final = ("sslrootcert", "sslcert", "sslkey", "sslcrl")
# A backup that is being restored: since it was loaded, in the same transaction, until what follows.
_RESTORED: Final = "SELECT obj_description(to_regclass('accounts'), 'pg_class')"
_RESTORING: Final = "memrelay: being restored from the backup "
_BACKEND: Final = "SELECT pg_backend_pid()"
# Whether anybody has made a table, view or sequence; those of extensions do not count.
_HAS_TABLES: Final = """
SELECT EXISTS (
  SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
    AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
    AND NOT EXISTS (
      SELECT 1 FROM pg_depend d
      WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'))
"""


async def migrate(connect_args: dict[str, Any]) -> None:
    """Apply what is missing; processes that start together take turns.

    Raises:
        Unavailable: nobody answers.
        PostgresError: it does not let us in, is not fit for memrelay, is half distributed or a
            cluster's worker, or a later release has migrated it.
    """
    async with _in_turn(connect_args) as connection:
        await distribution.check_layout(connection)
        await _bring_up(connection, connect_args)


async def distribute(connect_args: dict[str, Any]) -> list[str]:
    """Apply what is missing and lay the tables out over a cluster; those that were not yet.

    Raises:
        Unavailable: nobody answers, or the database went away.
        PostgresError: as for `migrate`, it is no coordinator of a cluster that can take the
            tables, or relayers are connected.
    """
    async with _in_turn(connect_args) as connection:
        await distribution.check_cluster(connection)
        found = await distribution.layout(connection)
        # What was begun is finished first: a revision would lay out all that is left by itself, in
        # its own short time.
        begun = found is not None and found.is_partial
        moved = await distribution.distribute(connection) if begun else []
        await _bring_up(connection, connect_args)
        return moved + await distribution.distribute(connection)


@asynccontextmanager
async def _in_turn(connect_args: dict[str, Any]) -> AsyncIterator[asyncpg.Connection]:
    """Yield a connection to a server that is fit, while nobody else migrates its database."""
    async with _connect(connect_args) as connection:
        await check_server(connection)
        for name in ("statement_timeout", "lock_timeout"):  # another's migration may take longer
            await connection.execute(f"SET {name} = 0")
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK)
        yield connection


async def _bring_up(connection: asyncpg.Connection, connect_args: dict[str, Any]) -> None:
    present = await _revision_of(connection)
    if present is not None and present > head():
        raise PostgresError(
            f"the database's schema is {present}, this release knows {head()}: install the newer "
            "release"
        )
    if present != head():
        from relayer.database.upgrade import upgrade  # noqa: PLC0415  # brings alembic

        # Whoever is cancelled waits for it: it goes on, and nobody else may begin meanwhile.
        work = asyncio.ensure_future(asyncio.to_thread(upgrade, connect_args, folder=folder()))
        try:
            await asyncio.shield(work)
        finally:
            await asyncio.wait({work})
    await queue.install(connection)


async def refuse_pooler(connect_args: dict[str, Any]) -> None:
    """Return if these arguments lead to the server itself.

    A pooler gives each transaction another connection: who waits for notices by it, or holds a
    lock of a session, does so by chance.

    Raises:
        Unavailable: nobody answers.
        PostgresError: it does not let us in, or is a pooler.
    """
    async with _connect(connect_args) as connection:
        if await connection.fetchval(_BACKEND) != connection.get_server_pid():
            raise PostgresError(
                "RELAYER_DATABASE_URL leads to a connection pooler: name the server itself, or a "
                "pooler of whole sessions, in RELAYER_DATABASE_DIRECT_URL as well"
            )


async def refuse_two(direct_args: dict[str, Any], pooled_args: dict[str, Any]) -> None:
    """Return if both arguments lead to one database.

    Of another one, jobs would be noted where nobody takes them. A lock tells it to any user.

    Raises:
        Unavailable: nobody answers.
        PostgresError: one does not let us in, or they are two.
    """
    key = secrets.randbits(63)
    nothing_kept = {"statement_cache_size": 0}  # in a session that is lent
    async with _connect(direct_args) as direct, _connect(pooled_args | nothing_kept) as pooled:
        await direct.execute("SELECT pg_advisory_lock($1)", key)
        async with pooled.transaction():
            alone = await pooled.fetchval("SELECT pg_try_advisory_xact_lock($1)", key)
        if alone:
            raise PostgresError(
                "RELAYER_DATABASE_URL and RELAYER_DATABASE_DIRECT_URL lead to two databases: both"
                " have to name the same one"
            )


@asynccontextmanager
async def _connect(connect_args: dict[str, Any]) -> AsyncIterator[asyncpg.Connection]:
    """Yield a connection of one's own, closed at the end.

    Raises:
        Unavailable: nobody answers; the message says where.
        PostgresError: waiting will not help: its URL is malformed, its certificate does not hold,
            or it lets this user in nowhere, or not into that database.
    """
    connection = await _connection(connect_args)
    try:
        with translate_errors(), _explain_refusal():
            yield connection
    finally:
        await connection.close()


@contextmanager
def _explain_refusal() -> Iterator[None]:
    """Turn what a database refuses to somebody who starts or migrates into what to do about it."""
    try:
        yield
    except asyncpg.InsufficientPrivilegeError as error:
        raise PostgresError(
            f"the database refuses us: {_words(error)}. Its user has to own the database, or the"
            " tables and GRANT CREATE ON SCHEMA public; a superuser types CREATE EXTENSION vector"
            " in it (deploy/README.md)"
        ) from None
    except (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError) as error:
        raise PostgresError(
            f"the database was waited for in vain: {_words(error)}. Another session, such as a dump"
            " or a long query, keeps a table; nothing was changed: start again when it has ended"
        ) from None
    except (asyncpg.DuplicateTableError, asyncpg.DuplicateObjectError) as error:
        raise PostgresError(
            f"the database holds what no relayer has put there: {_words(error)}. Nothing was"
            " changed: name a database of the relayer's own"
        ) from None


def _place(connect_args: dict[str, Any]) -> str:
    """Return the place of a database, without a user and a password."""
    dsn = connect_args.get("dsn", "")
    netloc, query = urlsplit(dsn).netloc, dict(parse_qsl(urlsplit(dsn).query))
    hosts = netloc.rpartition("@")[2] or query.get("host", "")
    # What is no place may be a password with a sign in it that ends the place.
    known = _PLACE.fullmatch(hosts) and ("@" in netloc or "@" not in dsn)
    return f" at {hosts}" if known else ""


async def _connection(connect_args: dict[str, Any]) -> asyncpg.Connection:
    """Return a new connection; tell why there is none to whoever starts or runs a relayer."""
    place = _place(connect_args)
    try:
        with translate_errors():
            return await _open_connection(connect_args, place)
    except Unavailable as error:
        why = _why_away(error.__context__)
        message = f"The database{place} is away{why and f': {why}'}."
        raise Unavailable(message, code=error.code) from None


async def _open_connection(connect_args: dict[str, Any], place: str) -> asyncpg.Connection:
    try:
        return await asyncpg.connect(**connect_args)
    except ssl.CertificateError as error:
        raise PostgresError(f"the database's certificate: {error.verify_message}") from None
    except (
        asyncpg.InvalidAuthorizationSpecificationError,
        asyncpg.InvalidCatalogNameError,
    ) as error:
        raise PostgresError(f"the database{place} refuses us: {_words(error)}") from None
    except (asyncpg.SyntaxOrAccessError, asyncpg.DataError) as error:  # the driver passes it on
        raise PostgresError(
            f"the database{place} does not take what stands behind the ? of its URL:"
            f" {_words(error)}: leave that out"
        ) from None
    except (ValueError, OverflowError) as error:
        raise PostgresError(_describe_malformed(error)) from None
    except OSError:
        if unread := _find_unreadable_file(connect_args):
            raise PostgresError(unread) from None
        raise


def _describe_malformed(error: Exception) -> str:
    """Return the fault of a URL, without the part it could not read, which may be a password."""
    said = str(error).partition("\n")[0]
    if not _HARMLESS.match(said):
        return (
            "RELAYER_DATABASE_URL is malformed: postgresql://USER:PASSWORD@HOST:PORT/NAME; write"
            " signs in a password as %XX"
        )
    # PostgreSQL's programs read the file of the home folder, too; a service has none.
    file = "" if "sslmode" in said else ": &sslrootcert=PATH names one (deploy/README.md)"
    return f"RELAYER_DATABASE_URL: {said}{file}"


def _find_unreadable_file(connect_args: dict[str, Any]) -> str:
    """Return a message on a file for TLS that a URL names and nobody can read; "" for none."""
    query = dict(parse_qsl(urlsplit(connect_args.get("dsn", "")).query))
    for name in _TLS_FILES:
        if (path := query.get(name)) and not os.access(path, os.R_OK):
            return f"RELAYER_DATABASE_URL: {name} names a file that cannot be read: {path}"
    return ""


def _why_away(error: BaseException | None) -> str:
    """Return why nobody answers, without an address, which may be a password with a sign in it."""
    if isinstance(error, asyncpg.PostgresError):
        return _words(error)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror | ssl.SSLError):
        return error.strerror or ""
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return "it has no TLS" if "rejected SSL" in str(error) else ""


def _words(error: asyncpg.PostgresError) -> str:
    """Return a server's message, without its details and hints."""
    return str(error.args[0]).partition("\n")[0]


async def revision(connect_args: dict[str, Any]) -> str | None:
    """Return the number of the last revision that a database has; None before the first.

    Raises:
        Unavailable: nobody answers.
        PostgresError: it does not let us in.
    """
    async with _connect(connect_args) as connection:
        return await _revision_of(connection)


async def has_tables(connect_args: dict[str, Any]) -> bool:
    """Return true if a database holds anything of anybody's, a relayer or not.

    Raises:
        Unavailable: nobody answers.
        PostgresError: it does not let us in.
    """
    async with _connect(connect_args) as connection:
        return bool(await connection.fetchval(_HAS_TABLES))


async def has_accounts(connect_args: dict[str, Any]) -> bool:
    """Return true if a database holds an account, even an erased one or an older release's.

    Raises:
        Unavailable: nobody answers.
        PostgresError: it does not let us in.
    """
    async with _connect(connect_args) as connection:
        if await connection.fetchval("SELECT to_regclass('accounts')") is None:
            return False
        return bool(await connection.fetchval(_HAS_ACCOUNTS))


async def find_restore(connect_args: dict[str, Any]) -> str | None:
    """Return the digest of the backup that is being restored into a database; None if none is.

    Raises:
        Unavailable: nobody answers.
        PostgresError: it does not let us in.
    """
    async with _connect(connect_args) as connection:
        found = str(await connection.fetchval(_RESTORED))
    return found.removeprefix(_RESTORING) if found.startswith(_RESTORING) else None


def restore_statement(digest: str) -> str:
    """Return the statement that notes a restore from a backup with this digest in hex."""
    return f"COMMENT ON TABLE accounts IS '{_RESTORING}{digest}';"


async def end_restore(connect_args: dict[str, Any]) -> None:
    """Take the note back.

    Raises:
        Unavailable: nobody answers.
        PostgresError: it does not let us in.
    """
    async with _connect(connect_args) as connection:
        await connection.execute("COMMENT ON TABLE accounts IS NULL")


async def _revision_of(connection: asyncpg.Connection) -> str | None:
    if await connection.fetchval("SELECT to_regclass('alembic_version')") is None:
        return None
    found: str | None = await connection.fetchval("SELECT version_num FROM alembic_version")
    if found is not None and _REVISION.fullmatch(found) is None:
        raise PostgresError(
            f"the database has the schema of another application, {found}: name a database of the"
            " relayer's own"
        )
    return found


def head() -> str:
    """Return the number of the last revision that this release knows: their files begin with it."""
    return max(path.name.partition("_")[0] for path in (folder() / "versions").glob("[0-9]*.py"))


def folder() -> Path:
    """Return the revisions: inside the installed package, or beside it in a checkout."""
    package = Path(relayer.__file__).parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent / "migrations"
