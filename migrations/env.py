"""Runs the revisions on one asyncpg connection, one transaction each.

Not here: where the database is and who may migrate it now (`relayer.database.migrate` hands in
asyncpg's arguments and holds the lock).

- In a database that is distributed already, the tables that a revision makes are laid out in the
  revision's own transaction; a revision knows nothing of it.
"""

import asyncio
from typing import Any

from alembic import context
from sqlalchemy import Connection, pool
from sqlalchemy.ext.asyncio import create_async_engine

from relayer.database import distribution


def _distribute(ctx: Any, step: Any, heads: Any, run_args: Any) -> None:
    ctx.connection.connection.dbapi_connection.run_async(distribution.distribute_new)


def _run(connection: Connection) -> None:
    connection.exec_driver_sql(distribution.SEQUENTIAL)
    connection.commit()  # else alembic would take all revisions for one transaction
    context.configure(
        connection=connection, transaction_per_migration=True, on_version_apply=_distribute
    )
    with context.begin_transaction():
        context.run_migrations()


async def _main() -> None:
    # A URL would have to say asyncpg's options, those of TLS among them, in SQLAlchemy's words.
    connect_args = context.config.attributes["connect_args"]
    engine = create_async_engine(
        "postgresql+asyncpg://", poolclass=pool.NullPool, connect_args=connect_args
    )
    try:
        async with engine.connect() as connection:
            await connection.run_sync(_run)
            await connection.commit()
    finally:
        await engine.dispose()


asyncio.run(_main())
