"""Statements that look at the database as a whole, for its operator; they change nothing.

Not here: what is made of it (`relayer.monitoring.readiness`, `relayer.monitoring.exposition`).

- A database that cannot be looked at is `Unavailable`, whatever it says; so is one without tables.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final

import asyncpg

from relayer.database.episodes import LATELY, Failures
from relayer.database.pool import Database, Row
from relayer.errors import Unavailable

# Whether a write would be taken now, and the schema's number.
_STATE: Final = """
SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off' AS writable,
       (SELECT max(version_num) FROM alembic_version) AS revision
"""
# Jobs by kind and state, with the age of the oldest.
_JOBS: Final = """
SELECT entrypoint AS kind, status::text AS state, count(*) AS number,
       extract(epoch FROM now() - min(created))::float8 AS oldest_s
FROM pgqueuer GROUP BY entrypoint, status
"""
# What an outside store has still to delete, and what webhooks are to be told beside receipts.
_WAITING: Final = """
SELECT (SELECT count(*) FROM blob_outbox WHERE due_at <= now()) AS deletions,
       (SELECT count(*) FROM webhook_events) AS webhook_events
"""
# What `episodes.failures` tells of one account, of all of them.
_FAILURES: Final = """
SELECT state = 'pending' AS waits, failure, count(*) AS number, max(created_at) AS last_at
FROM episodes
WHERE (state = 'pending' OR failure IS NOT NULL) AND (state = 'pending' OR created_at > $1)
GROUP BY state = 'pending', failure
"""


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except asyncpg.PostgresError:
        said = "The database cannot be looked at."
        raise Unavailable(said, code="database.unavailable") from None


async def state(database: Database) -> tuple[bool, str | None]:
    """Return whether the database takes writes now, and its schema's number."""
    with _translate_errors():
        row = await database.fetchrow(_STATE)
    assert row is not None
    return bool(row["writable"]), row["revision"]


async def jobs(database: Database) -> list[Row]:
    """Return (kind, state, number, oldest_s) of the jobs; `oldest_s` is an age in seconds."""
    with _translate_errors():
        return await database.fetch(_JOBS)


async def count_waiting(database: Database) -> dict[str, int]:
    """Count the deletions that are due outside, and the events noted for webhooks."""
    with _translate_errors():
        row = await database.fetchrow(_WAITING)
    assert row is not None
    return dict(row)


async def failures(database: Database, now: datetime) -> Failures:
    """Count the waiting episodes of all accounts, and the model's failures in the last day."""
    with _translate_errors():
        return Failures.of(await database.fetch(_FAILURES, now - LATELY))
