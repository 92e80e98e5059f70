"""Numbers that stand for accounts in rows: taken from their ids, and nobody else's."""

from dataclasses import replace

import asyncpg
import pytest

from relayer.database import accounts as rows
from relayer.database.pool import Database
from relayer.errors import Conflict, NotFound
from relayer.sealed.grants import issue_grant
from relayer.sealed.keys import AccountId, Root, account_id
from relayer.sealed.primitives import random_key
from tests.services import Bench, new_identity


def beside(account: AccountId) -> AccountId:
    """Another account with the same number."""
    return AccountId(account[:8] + bytes(24))


@pytest.mark.parametrize(
    ("first", "number"),
    [("00", 0), ("01", 2**56), ("7f", 2**63 - 2**56), ("80", -(2**63)), ("ff", -(2**56))],
)
async def test_a_number_is_the_beginning_of_an_id(
    database: Database, first: str, number: int
) -> None:
    """What a statement takes for a number is one, alone and in a list; else it is the whole id."""
    account = AccountId(bytes.fromhex(first) + bytes(31))
    [row] = await database.fetch(
        "SELECT $1::bigint AS one, $2::bigint[] AS several, $3::bytea AS whole",
        account, [account], account,
    )  # fmt: skip
    assert tuple(row) == (number, [number], bytes(account))
    assert int(account) == number


async def test_bytes_are_no_number(database: Database) -> None:
    """Who forgets what an account is gets an error, not another's rows."""
    with pytest.raises(asyncpg.DataError):
        await database.fetch("SELECT $1::bigint", bytes(32))


async def test_a_row_has_the_number_of_its_id(bench: Bench) -> None:
    founder = await bench.account()
    with pytest.raises(asyncpg.CheckViolationError):
        await bench.sql("UPDATE accounts SET account_id = account_id + 1")
    with pytest.raises(asyncpg.CheckViolationError):
        await bench.sql("UPDATE accounts SET whole_id = $1", bytes(32))
    assert await bench.value("SELECT account_id FROM accounts") == int(founder.account)


class TestTwoWithOneNumber:
    async def test_the_second_is_not_founded(self, bench: Bench) -> None:
        """It is told what it would be told of itself, and its key stays nobody's."""
        founder = new_identity()
        account = account_id(founder.public_key)
        database = bench.storage.database
        async with database.transaction() as connection:
            await rows.insert_account(
                connection, account=beside(account), label="", now=bench.clock()
            )
        grant = issue_grant(
            founder,
            account=account,
            serial=1,
            recipient=founder.public_key,
            role="owner",
            keys=[Root(1, random_key())],
            created_ms=round(bench.clock().timestamp() * 1000),
        )
        with pytest.raises(Conflict) as refused:
            await bench.storage.granting.create(
                founder=founder.public_key, grants=[grant], label=""
            )
        assert refused.value.code == "account.exists"
        assert await bench.value("SELECT count(*) FROM key_owner") == 0
        assert await bench.value("SELECT whole_id FROM accounts") == beside(account)

    async def test_nobody_is_answered_for_the_other(self, bench: Bench) -> None:
        founder = await bench.account()
        key, other = founder.identity.public_key, beside(founder.account)
        storage = bench.storage
        assert await rows.find_account(storage.database, other) is None
        assert await rows.find_accounts(storage.database, [other, founder.account]) == [
            None,
            await rows.find_account(storage.database, founder.account),
        ]
        for asked in (storage.accounts.chain(other), storage.accounts.access(other, key)):
            with pytest.raises(NotFound):
                await asked
        assert not await storage.accounts.claim(other, key)
        caller = await bench.caller(founder)
        with pytest.raises(NotFound):
            async with storage.ledger.change(replace(caller.access, account=other)):
                pytest.fail("it is changed")
