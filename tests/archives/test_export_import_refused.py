"""What an arriving account is refused for, and what then is as it was."""

import uuid
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from relayer.archives.exporter import Part
from relayer.archives.importer import Arrival
from relayer.clock import MOMENT_MS_MAX
from relayer.errors import BadRequest, Conflict, NotAllowed, QuotaExceeded
from relayer.memories.opener import Caller
from relayer.memories.revisions import Edit
from relayer.portable import MovedGrant, Name
from relayer.sealed.envelope import MEMORY, Address, blob_id, seal
from relayer.sealed.grants import issue_grant, parse_any
from relayer.sealed.keys import Root
from relayer.sealed.primitives import random_key
from relayer.settings import Settings
from relayer.tenants.new_grants import STORED_EPOCH_MAX
from relayer.upkeep import provision
from relayer.upkeep.check import check
from tests.granting import issue
from tests.moving import (
    EMPTY,
    ROWS,
    founded,
    here,
    leaving,
    moved,
    packed,
    there,
)
from tests.services import OTHER, TEAM, Bench, bench_on, new_identity

__all__ = ["here", "there"]  # fixtures


def test_a_name_that_no_column_holds() -> None:
    """One with a control character: a zero byte is in no text of the database."""
    for name in ("a\0b", "\0", "", "a\n", "a\x7f"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(msgspec.json.encode(name), type=Name)
    assert msgspec.json.decode(b'"caf\xc3\xa9 1"', type=Name) == "café 1"


def limited(bench: Bench, settings: Settings, **bounds: Any) -> Bench:
    """The same relayer, where an account may have less."""
    storage = bench.storage
    return bench_on(
        settings,
        storage.connect_args,
        storage.database,
        identity=storage.identity,
        clock=bench.clock,
        **bounds,
    )


async def plant(there: Bench, founder: provision.NewKey, **members: Any) -> None:
    """Import a next grant, a new reader's unless `members` say otherwise."""
    chain = await there.storage.accounts.chain(founder.account)
    due: dict[str, Any] = {
        "account": founder.account,
        "serial": chain.serial + 1,
        "recipient": new_identity().public_key,
        "role": "reader",
        "keys": [there.root[founder.account]],
        "created_ms": round(there.clock().timestamp() * 1000),
    }
    issuer = members.pop("issuer", founder.identity)
    signed = issue_grant(issuer, **due | members)
    grant = MovedGrant(serial=chain.serial + 1, label="", object=signed)
    access = (await there.caller(founder)).access
    await there.services.importer.take_in(access, replace(EMPTY, grants=[grant]))


class TestRefused:
    @pytest_asyncio.fixture
    async def scene(self, here: Bench, there: Bench) -> tuple[Arrival, Caller]:
        founder = await here.account()
        self.founders = [founder]
        await here.remember(await here.caller(founder), "Anna prefers tea.", "Ben sells cups.")
        arrival = await packed(here, await here.caller(founder))
        caller = await founded(here, there, founder)
        first = replace(arrival, memories=[], episodes=[])
        await there.services.importer.take_in(caller.access, first)
        return arrival, caller

    @pytest.mark.parametrize(
        "change",
        [
            {"revision": 2},
            {"epoch": 2},
            {"id": uuid.UUID(int=1)},
            {"revision_of": uuid.UUID(int=2)},
            {"type": 3},
            {"namespace": "other"},
            {"blob": b"x" * 500},
            {"blob": None},
            {"blob_id": "A" * 43},
            {"postings": b"12345678"},
            {"postings": b"123456789" * 2},
            {"vectors": [b"12"], "embedding_model": None},
            {"vectors": [b"12", b"1234"], "embedding_model": "m/2"},
            {"vectors": [b"123"], "embedding_model": "m/2"},
        ],
        ids=str,
    )
    async def test_a_row_that_contradicts_its_blob(
        self, there: Bench, scene: tuple[Arrival, Caller], change: dict[str, Any]
    ) -> None:
        arrival, caller = scene
        [bad, good] = arrival.memories
        bad = msgspec.structs.replace(bad, **change)
        done = await there.services.importer.take_in(
            caller.access, replace(EMPTY, memories=[bad, good])
        )
        assert [status for _, status in done.results] == ["refused", "imported"]
        assert [r["memory_id"] for r in await there.sql(ROWS)] == [good.id]

    async def test_a_revision_without_its_memory(self, here: Bench, there: Bench) -> None:
        """Nobody could erase it; it comes with its memory, or later."""
        founder = await here.account()
        caller = await here.caller(founder)
        [stored] = await here.remember(caller, "One apple.")
        await here.services.reviser.edit(caller, stored.id, Edit(changes={"text": "Two pears."}))
        arrival = await packed(here, caller)
        access = (await founded(here, there, founder)).access
        [current] = [row for row in arrival.memories if row.revision_of is None]
        [earlier] = [row for row in arrival.memories if row.revision_of is not None]
        blank = msgspec.structs.replace(current, blob=None)
        older = msgspec.structs.replace(current, revision=1)
        for memories in ([blank, earlier], [older, earlier], [earlier]):
            done = await there.services.importer.take_in(
                access, replace(arrival, memories=memories)
            )
            assert {status for _, status in done.results} == {"refused"}
        assert await there.sql(ROWS) == []
        for row in (current, earlier):
            done = await there.services.importer.take_in(access, replace(EMPTY, memories=[row]))
            assert [status for _, status in done.results] == ["imported"]
        assert (await check(there.storage)).problems == []

    async def test_another_accounts_rows(
        self, there: Bench, here: Bench, scene: tuple[Arrival, Caller]
    ) -> None:
        arrival, _ = scene
        stranger = await here.account()
        await here.remember(await here.caller(stranger), "Mine.")
        foreign = await packed(here, await here.caller(stranger))
        await moved(here, there, stranger)
        caller = await there.caller(stranger)
        done = await there.services.importer.take_in(
            caller.access, replace(EMPTY, memories=arrival.memories)
        )
        assert {status for _, status in done.results} == {"refused"}
        with pytest.raises((BadRequest, Conflict)):
            await there.services.importer.take_in(
                caller.access, replace(EMPTY, grants=arrival.grants)
            )
        assert len(await there.sql(ROWS)) == len(foreign.memories)

    async def test_an_id_that_stands_there_twice(
        self, there: Bench, scene: tuple[Arrival, Caller]
    ) -> None:
        arrival, caller = scene
        twice = [arrival.memories[0], arrival.memories[0]]
        with pytest.raises(BadRequest):
            await there.services.importer.take_in(caller.access, replace(EMPTY, memories=twice))

    async def test_another_key_for_a_namespace(
        self, there: Bench, scene: tuple[Arrival, Caller]
    ) -> None:
        arrival, caller = scene
        key = msgspec.structs.replace(arrival.namespaces[0].keys[0], key_id="ab" * 32)
        other = msgspec.structs.replace(arrival.namespaces[0], keys=[key])
        with pytest.raises(Conflict):
            await there.services.importer.take_in(caller.access, replace(EMPTY, namespaces=[other]))

    async def test_a_chain_that_went_another_way(
        self, there: Bench, here: Bench, scene: tuple[Arrival, Caller]
    ) -> None:
        """The same serial, signed by the founder, too, and another object."""
        arrival, caller = scene
        first = parse_any(arrival.grants[0].object)
        founder = next(f for f in self.founders if f.account == first.account)
        roots = [here.root[founder.account]]
        signed = await issue(here, founder, founder.identity, roots, serial=2, role="owner")
        forked = [msgspec.structs.replace(arrival.grants[1], object=signed)]
        with pytest.raises(Conflict):
            await there.services.importer.take_in(caller.access, replace(EMPTY, grants=forked))

    async def test_only_owners(self, there: Bench, here: Bench) -> None:
        founder = await here.account()
        writer = await here.key(founder, TEAM)
        caller = await here.caller(writer)
        with pytest.raises(NotAllowed):
            await leaving(here).page(caller.access, "account", "")
        with pytest.raises(NotAllowed):
            await leaving(here).memories(caller.access, [], "")
        with pytest.raises(NotAllowed):
            await here.services.importer.take_in(caller.access, EMPTY)

    async def test_a_full_account(
        self, here: Bench, there: Bench, settings: Settings, scene: tuple[Arrival, Caller]
    ) -> None:
        arrival, caller = scene
        small = limited(there, settings, storage_bytes_max=500)
        with pytest.raises(QuotaExceeded):
            await small.services.importer.take_in(
                caller.access, replace(EMPTY, memories=arrival.memories)
            )
        assert await there.sql(ROWS) == []

    async def test_a_full_chain(self, here: Bench, there: Bench, settings: Settings) -> None:
        founder = await here.account("sealed")
        await here.key(founder, TEAM)
        await here.key(founder, OTHER)
        arrival = await packed(here, await here.caller(founder))
        caller = await founded(here, there, founder)
        small = limited(there, settings, account_grants_max=2)
        with pytest.raises(QuotaExceeded):
            await small.services.importer.take_in(caller.access, arrival)
        assert (await there.storage.accounts.chain(founder.account)).serial == 1

    @pytest.mark.parametrize("cursor", ["x", "-1", "9" * 19, "٣"])
    async def test_cursors(self, here: Bench, cursor: str) -> None:
        caller = await here.caller(await here.account())
        parts: tuple[Part, ...] = ("memories", "episodes", "tombstones", "receipts")
        for part in parts:
            with pytest.raises(BadRequest):
                await leaving(here).page(caller.access, part, cursor)

    @pytest.mark.parametrize("role", ["owner", "writer", "reader"])
    async def test_a_grant_that_makes_the_relayer_more_than_a_custodian(
        self, here: Bench, there: Bench, role: str
    ) -> None:
        """Else an owner far from the founder could keep it from handing custody over."""
        founder = await here.account()
        await founded(here, there, founder)
        key = there.storage.identity.public_key
        with pytest.raises(BadRequest, match="custodian and nothing else"):
            await plant(there, founder, recipient=key, role=role)
        await plant(there, founder, recipient=key, role="custodian")
        assert (await there.caller(founder)).access.custody == "managed"

    @pytest.mark.parametrize("member", ["created_ms", "expires_ms"])
    async def test_a_grant_of_a_time_that_no_clock_shows(
        self, here: Bench, there: Bench, member: str
    ) -> None:
        founder = await here.account("sealed")
        await founded(here, there, founder)
        with pytest.raises(BadRequest, match="a time is out of range"):
            await plant(there, founder, **{member: MOMENT_MS_MAX + 1})
        await plant(there, founder, **{member: MOMENT_MS_MAX})
        *_, key = await there.storage.accounts.all_keys(founder.account)
        shown: Mapping[str, Any] = key
        assert shown[member.replace("_ms", "_at")].startswith("9999-12-31T23:59:59.")

    async def test_an_epoch_that_no_column_holds(self, here: Bench, there: Bench) -> None:
        founder = await here.account("sealed")
        await founded(here, there, founder)
        with pytest.raises(BadRequest, match="an epoch is out of range"):
            await plant(there, founder, keys=[Root(STORED_EPOCH_MAX + 1, random_key())])
        await plant(there, founder, keys=[Root(STORED_EPOCH_MAX, random_key())])
        assert (await there.storage.accounts.chain(founder.account)).epoch == STORED_EPOCH_MAX

    async def test_a_time_that_no_clock_shows(
        self, here: Bench, there: Bench, scene: tuple[Arrival, Caller]
    ) -> None:
        arrival, caller = scene
        account, [row, _] = caller.access.account, arrival.memories
        key = here.namespace_key(account, TEAM)
        place = Address(MEMORY, account, row.id, 1)
        outcomes = []
        for created_ms in (MOMENT_MS_MAX + 1, MOMENT_MS_MAX):
            blob = seal(key, place, b"{}", created_ms=created_ms)
            changed = msgspec.structs.replace(row, blob=blob, blob_id=blob_id(blob))
            done = await there.services.importer.take_in(
                caller.access, replace(EMPTY, memories=[changed])
            )
            outcomes += [status for _, status in done.results]
        assert outcomes == ["refused", "imported"]
