"""`relayer doctor`: what the operator learns of a key that was refused, and of two relayers."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from relayer import doctor, provision
from relayer.clock import utc_now
from relayer.sealed.keys import account_text, parse_namespace
from relayer.settings import Settings
from relayer.storage import Storage, opened

ADD = "memrelay keys add --namespace NAME"


async def finding(settings: Settings, check: str, key: str = "") -> dict[str, Any]:
    """One finding of an examination."""
    found = {f["check"]: f for f in await doctor.examine(settings, key)}
    return found[check]


async def add_key(
    storage: Storage, managed: provision.NewKey, *, ended: bool = False
) -> provision.NewKey:
    """A reader of `team`; with `ended`, one whose grant ended yesterday."""
    now = utc_now()
    return await provision.add_key(
        storage,
        account=managed.account,
        namespaces=[parse_namespace("team")],
        role="reader",
        label="agent",
        expires_at=now - timedelta(days=1) if ended else None,
        owner=managed.identity,
        clock=lambda: now - timedelta(days=2) if ended else now,
    )


async def test_without_a_key_none_is_looked_up(settings: Settings) -> None:
    assert "key" not in {f["check"] for f in await doctor.examine(settings)}


async def test_a_valid_key_is_told_with_its_account_role_and_namespaces(
    settings: Settings, storage: Storage, managed: provision.NewKey
) -> None:
    key = (await add_key(storage, managed)).identity.public_key.hex()
    expected = f"valid: reader of team in account {account_text(managed.account)}"
    for text in (key, key[:8], key.upper()):
        found = await finding(settings, "key", text)
        assert (found["ok"], found["detail"], found["do"]) == (True, expected, "")


async def test_a_founder_holds_the_whole_account(
    settings: Settings, managed: provision.NewKey
) -> None:
    found = await finding(settings, "key", managed.identity.public_key.hex())
    assert found["detail"].startswith("valid: owner of the whole account in account 0x")


async def test_a_revoked_key_is_told(
    settings: Settings, storage: Storage, managed: provision.NewKey
) -> None:
    key = await add_key(storage, managed)
    await provision.revoke_key(
        storage,
        account=managed.account,
        key=key.identity.public_key,
        owner=managed.identity,
        clock=utc_now,
    )
    found = await finding(settings, "key", key.identity.public_key.hex())
    assert (found["ok"], found["do"]) == (False, ADD)
    assert found["detail"].startswith("revoked: reader of team")


async def test_an_expired_key_is_told_with_its_end(
    settings: Settings, storage: Storage, managed: provision.NewKey
) -> None:
    key = await add_key(storage, managed, ended=True)
    found = await finding(settings, "key", key.identity.public_key.hex())
    assert (found["ok"], found["do"]) == (False, ADD)
    assert found["detail"].startswith("expired: reader of team until 2")


@pytest.mark.parametrize("key", ["ab" * 32, "0badc0de", "no hex at all", "%", "_"])
async def test_an_unknown_key_is_told(
    settings: Settings, managed: provision.NewKey, key: str
) -> None:
    found = await finding(settings, "key", key)
    assert (found["ok"], found["do"]) == (False, ADD)
    assert found["detail"].startswith("unknown")


async def test_a_beginning_of_several_keys_is_not_enough(
    settings: Settings, storage: Storage, managed: provision.NewKey
) -> None:
    for last in (b"\1", b"\2"):
        await storage.database.execute(
            "INSERT INTO key_owner (public_key, account_id) VALUES ($1, $2)",
            bytes(31) + last,
            managed.account,
        )
    found = await finding(settings, "key", "0" * 62)
    assert (found["ok"], found["detail"]) == (False, "several begin so")


async def test_the_clock_is_compared_with_the_databases(settings: Settings) -> None:
    found = await finding(settings, "clock")
    assert found["ok"]
    assert found["detail"].endswith("Z, 0 s off the database's")


async def test_the_relayers_own_key_is_told(settings: Settings) -> None:
    async with opened(settings) as storage:
        own = storage.identity.public_key.hex()
        await provision.create_account(storage, label="", custody="sealed", clock=utc_now)
    found = await finding(settings, "identity")
    assert (found["ok"], found["detail"]) == (True, own)


async def test_another_relayer_on_the_same_database_is_told(
    settings: Settings, managed: provision.NewKey
) -> None:
    """The fixture's account was written with a key that is not in this data folder."""
    found = await finding(settings, "identity")
    assert not found["ok"]
    assert "1 of 1 accounts were last written by another key" in found["detail"]
    assert found["do"].startswith("put the old key file back")


async def test_a_database_that_is_away_hides_the_rest(settings: Settings) -> None:
    away = replace(settings, database_url="postgresql://nobody@127.0.0.1:9/none")
    found = {f["check"]: f for f in await doctor.examine(away, "ab" * 32)}
    assert not found["database"]["ok"]
    assert not {"clock", "identity", "key"} & set(found)
