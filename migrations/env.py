"""Runs the revisions on one asyncpg connection, one transaction each.

Not here: where the database is and who may migrate it now (`relayer.database.migrate` hands in
asyncpg's arguments and holds the lock).
"""

import asyncio

from alembic import context
from sqlalchemy import Connection, pool
from sqlalchemy.ext.asyncio import create_async_engine


def _run(connection: Connection) -> None:
    context.configure(connection=connection, transaction_per_migration=True)
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
