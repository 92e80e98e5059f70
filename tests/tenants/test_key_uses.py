"""When keys last asked: noted by requests, stored behind them, and gone with the account."""

from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from relayer.errors import Unavailable
from relayer.sealed.keys import PublicKey
from relayer.tenants import key_uses
from relayer.tenants.key_uses import KeyUses
from relayer.tenants.regular_storing import store_quietly
from relayer.upkeep.provision import NewKey
from tests.services import Bench

HOUR = "2031-05-04T09:00:00.000Z"


@pytest_asyncio.fixture
async def founder(bench: Bench) -> NewKey:
    return await bench.account(label="anna")


async def stored(bench: Bench) -> list[Any]:
    return [row["used_at"] for row in await bench.sql("SELECT used_at FROM key_uses")]


async def listed(bench: Bench, founder: NewKey) -> str | None:
    keys = await bench.storage.accounts.all_keys(founder.account)
    [own] = [one for one in keys if one["public_key"] == founder.identity.public_key.hex()]
    return own["last_used_at"]


async def test_the_hour_is_listed_before_and_after_it_is_stored(
    bench: Bench, founder: NewKey
) -> None:
    uses, key = bench.storage.key_uses, founder.identity.public_key
    assert await listed(bench, founder) is None
    uses.note(founder.account, key, bench.clock())
    assert (await listed(bench, founder), await stored(bench)) == (HOUR, [])
    await uses.store()
    assert (await listed(bench, founder), len(await stored(bench))) == (HOUR, 1)


async def test_a_key_that_asks_all_the_time_is_written_once_an_hour(
    bench: Bench, founder: NewKey
) -> None:
    uses, key = bench.storage.key_uses, founder.identity.public_key
    written = "SELECT xmin::text FROM key_uses"
    uses.note(founder.account, key, bench.clock())
    await uses.store()
    before = await bench.sql(written)
    bench.clock.advance(60)
    uses.note(founder.account, key, bench.clock())
    await uses.store()
    assert await bench.sql(written) == before
    bench.clock.advance(3600)
    uses.note(founder.account, key, bench.clock())
    await uses.store()
    assert await bench.sql(written) != before
    assert await listed(bench, founder) == "2031-05-04T10:00:00.000Z"


async def test_another_process_with_an_earlier_hour_changes_nothing(
    bench: Bench, founder: NewKey
) -> None:
    uses, key = bench.storage.key_uses, founder.identity.public_key
    uses.note(founder.account, key, bench.clock())
    await uses.store()
    late = KeyUses(database=bench.storage.database)
    late.note(founder.account, key, bench.clock() - timedelta(hours=3))
    await late.store()
    assert await listed(bench, founder) == HOUR


async def test_what_could_not_be_stored_is_stored_later(
    bench: Bench, founder: NewKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise Unavailable("The database is away.")

    uses = bench.storage.key_uses
    uses.note(founder.account, founder.identity.public_key, bench.clock())
    with monkeypatch.context() as away:
        away.setattr("relayer.database.key_uses.note_uses", fail)
        await store_quietly(uses.store, key_uses.log, "later", "keys.uses")
    assert await stored(bench) == []
    await uses.store()
    assert len(await stored(bench)) == 1


async def test_of_a_closed_account_nothing_is_stored_or_left(bench: Bench, founder: NewKey) -> None:
    uses, key = bench.storage.key_uses, founder.identity.public_key
    uses.note(founder.account, key, bench.clock())
    await uses.store()
    caller = await bench.caller(founder)
    await bench.services.closing.close(caller.access)
    await bench.services.closing.purge()
    assert await stored(bench) == []
    bench.clock.advance(3600)
    uses.note(founder.account, key, bench.clock())
    await uses.store()
    assert await stored(bench) == []


async def test_what_is_noted_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_uses, "KEYS_MAX", 2)
    accounts = [await bench.account() for _ in range(3)]
    uses = bench.storage.key_uses
    for one in accounts:
        uses.note(one.account, PublicKey(one.identity.public_key), bench.clock())
    await uses.store()
    assert len(await stored(bench)) == 2
    uses.note(accounts[2].account, accounts[2].identity.public_key, bench.clock())
    await uses.store()
    assert len(await stored(bench)) == 3
