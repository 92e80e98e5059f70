"""What the database says it cannot do now is a 503 to come back from; everything else is a bug."""

import asyncpg
import pytest

from relayer.database.pool import Database
from relayer.errors import Unavailable

RAISE = "DO $$ BEGIN RAISE EXCEPTION 'no matter what' USING ERRCODE = '{}'; END $$"
NOT_NOW = {
    "disk_full": "53100",
    "out_of_memory": "53200",
    "too_many_connections": "53300",
    "query_canceled": "57014",
    "admin_shutdown": "57P01",
    "crash_shutdown": "57P02",
    "cannot_connect_now": "57P03",
    "serialization_failure": "40001",
    "deadlock_detected": "40P01",
    "connection_failure": "08006",
}
BUGS = {"division_by_zero": "22012", "undefined_table": "42P01", "check_violation": "23514"}


@pytest.mark.parametrize("name", NOT_NOW)
async def test_a_database_that_cannot_now_is_away(database: Database, name: str) -> None:
    with pytest.raises(Unavailable, match=r"^The database is away\.$"):
        await database.execute(RAISE.format(NOT_NOW[name]))


@pytest.mark.parametrize("name", BUGS)
async def test_a_bug_is_not_taken_for_an_outage(database: Database, name: str) -> None:
    with pytest.raises(asyncpg.PostgresError):
        await database.execute(RAISE.format(BUGS[name]))
