"""What has expired is out of every answer at once, and erased soon after."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from relayer.errors import BadRequest, NotAllowed, NotFound
from relayer.journal.states import Change
from relayer.memories.opener import Caller
from relayer.memories.recognition import Stored
from relayer.memories.revisions import Edit
from relayer.routes.memories import MemoryFields, draft_of
from relayer.sealed.keys import Namespace
from relayer.sealed.receipts import open_receipt
from relayer.settings import Limits
from relayer.upkeep import check
from tests.chains import assert_chain_holds, chain_of
from tests.erasing import LEFT, living
from tests.racing import race
from tests.services import OTHER, TEAM, Bench

HOUR = 3600
EXPIRES = "SELECT expires_at FROM memories WHERE memory_id = $1"


async def ends(bench: Bench, stored: Any) -> float | None:
    """Seconds until a memory expires, None for never."""
    at = await bench.value(EXPIRES, stored.id)
    return None if at is None else (at - bench.clock()).total_seconds()


async def owner_of(bench: Bench, custody: str = "managed") -> Caller:
    return await bench.unlocked(await bench.account(custody), TEAM, OTHER)


async def edited(bench: Bench, caller: Caller, stored: Stored, text: str) -> None:
    await bench.services.reviser.edit(caller, stored.id, Edit(changes={"text": text}))


async def pinned(bench: Bench, caller: Caller, stored: Stored, is_so: bool) -> None:
    await bench.services.state_changer.set_state(caller.access, stored.id, Change(pinned=is_so))


async def kept_for_an_hour(bench: Bench) -> tuple[Caller, Stored]:
    """An owner, and what is stored in a namespace that keeps it for an hour."""
    caller = await owner_of(bench)
    await bench.remember(caller, "Ben sells cups.")
    await bench.services.expiry.keep(caller.access, TEAM, HOUR)
    [stored] = await bench.remember(caller, "Anna prefers tea.")
    return caller, stored


class TestErasing:
    @pytest.mark.parametrize("custody", ["managed", "sealed"])
    async def test_needs_no_key_and_leaves_a_receipt(self, bench: Bench, custody: str) -> None:
        caller = await owner_of(bench, custody)
        soon = bench.clock() + timedelta(minutes=5)
        [doomed] = await bench.remember(caller, "Anna prefers tea.", expires_at=soon)
        [kept] = await bench.remember(caller, "Ben sells cups.")
        bench.clock.advance(299)
        await bench.another().services.expiry.expire()
        assert await bench.texts(caller, "tea") == ["Anna prefers tea."]
        bench.clock.advance(1)
        assert await bench.texts(caller, "tea") == []
        with pytest.raises(NotFound):
            await bench.services.memory.get(caller, doomed.id)
        assert await living(bench) == {doomed.id, kept.id}
        await bench.another().services.expiry.expire()
        assert await living(bench) == {kept.id}
        relayer = bench.storage.identity.public_key
        receipt = open_receipt((await chain_of(bench, caller.access.account))[-1], relayer)
        assert (receipt.op, receipt.actor) == ("expire", relayer)
        assert [i.memory for i in receipt.items] == [doomed.id]
        assert await bench.value("SELECT memory_id FROM tombstones") == doomed.id
        assert (await check.check(bench.storage)).problems == []

    async def test_of_many_accounts_in_pages(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("relayer.memories.expiry.PAGE", 7)
        soon = bench.clock() + timedelta(minutes=5)
        callers = [await owner_of(bench) for _ in range(3)]
        for caller in callers:
            await bench.remember(caller, *(f"Note {n}." for n in range(20)), expires_at=soon)
        bench.clock.advance(301)
        await bench.services.expiry.expire()
        assert await bench.value(LEFT) == 0
        for caller in callers:
            await assert_chain_holds(bench, caller.access.account)

    async def test_a_round_is_bounded_and_the_next_goes_on(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("relayer.memories.expiry.PAGE", 5)
        monkeypatch.setattr("relayer.memories.expiry.PAGES_MAX", 2)
        caller = await owner_of(bench)
        soon = bench.clock() + timedelta(minutes=5)
        await bench.remember(caller, *(f"Note {n}." for n in range(20)), expires_at=soon)
        bench.clock.advance(301)
        for left in (10, 0, 0):
            await bench.services.expiry.expire()
            assert len(await living(bench)) == left

    async def test_the_worker_does_it(self, bench: Bench) -> None:
        caller = await owner_of(bench)
        soon = bench.clock() + timedelta(minutes=5)
        await bench.remember(caller, "Anna prefers tea.", expires_at=soon)
        bench.clock.advance(301)
        async with bench.working():
            await bench.until("SELECT count(*) FROM tombstones", 1)

    async def test_two_replicas_at_once_leave_one_receipt_each(self, bench: Bench) -> None:
        caller = await owner_of(bench)
        soon = bench.clock() + timedelta(minutes=5)
        await bench.remember(caller, *(f"Note {n}." for n in range(20)), expires_at=soon)
        bench.clock.advance(301)
        await asyncio.gather(*(bench.another().services.expiry.expire() for _ in range(3)))
        relayer = bench.storage.identity.public_key
        receipts = [open_receipt(r, relayer) for r in await chain_of(bench, caller.access.account)]
        items = [i.memory for r in receipts if r.op == "expire" for i in r.items]
        assert len(items) == len(set(items)) == 20
        await assert_chain_holds(bench, caller.access.account)


class TestMeanwhile:
    """What begins before a memory's time is over, and ends after it."""

    async def begun(self, bench: Bench) -> tuple[Caller, Stored]:
        caller = await bench.caller(await bench.account())
        [stored] = await bench.remember(
            caller, "Anna prefers tea.", expires_at=bench.clock() + timedelta(minutes=1)
        )
        return caller, stored

    async def test_what_is_said_again_is_kept(self, bench: Bench) -> None:
        caller, stored = await self.begun(bench)

        async def said_before() -> list[Stored]:
            bench.clock.advance(-60)
            return await bench.remember(caller, "Anna prefers tea.")

        async def time_goes_on() -> None:
            bench.clock.advance(60)
            await bench.services.expiry.expire()

        bench.clock.advance(60)
        expire = bench.services.expiry.expire()
        _, [again], _ = await race(
            bench, caller.access.account, expire, said_before(), time_goes_on()
        )
        assert (again.id != stored.id, again.duplicate) == (True, False)
        assert await bench.value("SELECT memory_id FROM memories") == again.id
        assert await bench.texts(caller, "tea", mode="keyword") == ["Anna prefers tea."]

    @pytest.mark.parametrize(
        ("changes", "left"),
        [
            ({"text": "Anna prefers coffee."}, {"Anna prefers coffee.", "Anna prefers tea."}),
            ({"tags": ["drinks"]}, {"Anna prefers tea."}),
        ],
    )
    async def test_what_is_edited_is_kept(
        self, bench: Bench, changes: dict[str, Any], left: set[str]
    ) -> None:
        caller, stored = await self.begun(bench)

        async def said_after() -> list[Stored]:
            bench.clock.advance(60)
            return await bench.remember(caller, "Anna prefers tea.")

        edit = Edit(changes={**changes, "expires_at": None})
        edited, _ = await race(
            bench,
            caller.access.account,
            bench.services.reviser.edit(caller, stored.id, edit),
            said_after(),
        )
        assert edited.revision == 2
        assert (await bench.services.memory.get(caller, stored.id)).revision == 2
        assert set(await bench.texts(caller, "Anna prefers", mode="keyword")) == left


class TestNamespaceLife:
    async def test_counts_for_what_comes_and_for_what_is_there(self, bench: Bench) -> None:
        caller = await owner_of(bench)
        [before] = await bench.remember(caller, "Anna prefers tea.")
        [elsewhere] = await bench.remember(caller, "Elsewhere.", namespace=OTHER)
        bench.clock.advance(600)
        kept = await bench.services.expiry.keep(caller.access, TEAM, HOUR)
        assert (kept.changed, kept.more) == (1, False)
        [after] = await bench.remember(caller, "Ben sells cups.")
        assert await ends(bench, before) == HOUR - 600
        assert await ends(bench, after) == HOUR
        assert await ends(bench, elsewhere) is None
        assert (await bench.services.expiry.keep(caller.access, TEAM, HOUR)).changed == 0

    async def test_what_ends_earlier_by_itself_does(self, bench: Bench) -> None:
        caller = await owner_of(bench)
        minute, day = (bench.clock() + timedelta(seconds=s) for s in (60, 86_400))
        [short] = await bench.remember(caller, "Anna prefers tea.", expires_at=minute)
        [long] = await bench.remember(caller, "Ben sells cups.", expires_at=day)
        await bench.services.expiry.keep(caller.access, TEAM, HOUR)
        assert (await ends(bench, short), await ends(bench, long)) == (60, HOUR)
        await bench.services.expiry.keep(caller.access, TEAM, None)
        assert (await ends(bench, short), await ends(bench, long)) == (60, 86_400)

    async def test_what_is_pinned_stays(self, bench: Bench) -> None:
        caller = await owner_of(bench)
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        await bench.sql("UPDATE memories SET pinned = true")
        await bench.services.expiry.keep(caller.access, TEAM, HOUR)
        assert await ends(bench, stored) is None
        bench.clock.advance(2 * HOUR)
        await bench.services.expiry.expire()
        assert await living(bench) == {stored.id}

    @pytest.mark.parametrize("edited_after", [False, True])
    async def test_what_is_pinned_stays_with_what_it_said_before(
        self, bench: Bench, edited_after: bool
    ) -> None:
        caller, stored = await kept_for_an_hour(bench)
        then = bench.clock()
        bench.clock.advance(60)
        await edited(bench, caller, stored, "Anna prefers coffee.")
        await pinned(bench, caller, stored, True)
        if edited_after:
            await edited(bench, caller, stored, "Anna prefers cocoa.")
        bench.clock.advance(2 * HOUR)
        await bench.services.expiry.expire()
        assert await bench.texts(caller, "Anna", as_of=then) == ["Anna prefers tea."]

    @pytest.mark.parametrize("edited_after", [False, True])
    async def test_what_is_no_longer_pinned_goes_with_what_it_said_before(
        self, bench: Bench, edited_after: bool
    ) -> None:
        caller, stored = await kept_for_an_hour(bench)
        await pinned(bench, caller, stored, True)
        then = bench.clock()
        bench.clock.advance(60)
        await edited(bench, caller, stored, "Anna prefers coffee.")
        await pinned(bench, caller, stored, False)
        if edited_after:
            await edited(bench, caller, stored, "Anna prefers cocoa.")
        bench.clock.advance(HOUR)
        assert await bench.texts(caller, "Anna") == []
        assert await bench.texts(caller, "Anna", as_of=then) == []

    async def test_another_replica_knows_at_once(self, bench: Bench) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        replica = bench.another()
        elsewhere = await replica.caller(founder)
        await replica.remember(elsewhere, "Anna prefers tea.")
        await bench.services.expiry.keep(caller.access, TEAM, HOUR)
        [stored] = await replica.remember(elsewhere, "Ben sells cups.")
        assert await ends(bench, stored) == HOUR

    async def test_what_has_expired_does_not_return(self, bench: Bench) -> None:
        caller = await owner_of(bench)
        await bench.remember(caller, "Anna prefers tea.")
        await bench.services.expiry.keep(caller.access, TEAM, HOUR)
        bench.clock.advance(HOUR)
        assert (await bench.services.expiry.keep(caller.access, TEAM, None)).changed == 0
        assert await bench.texts(caller, "tea") == []

    async def test_more_than_one_request_may_change(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("relayer.memories.expiry.APPLIED_AT_ONCE", 5)
        monkeypatch.setattr("relayer.memories.expiry.APPLIED_MAX", 10)
        caller = await owner_of(bench)
        await bench.remember(caller, *(f"Note {n}." for n in range(18)))
        for changed, more in ((10, True), (8, False), (0, False)):
            kept = await bench.services.expiry.keep(caller.access, TEAM, HOUR)
            assert (kept.changed, kept.more) == (changed, more)

    async def test_only_owners_and_only_of_what_is_there(self, bench: Bench) -> None:
        founder = await bench.account()
        owner = await bench.caller(founder)
        await bench.remember(owner, "Anna prefers tea.")
        for key in (await bench.key(founder, TEAM), await bench.key(founder, role="writer")):
            with pytest.raises(NotAllowed):
                await bench.services.expiry.keep((await bench.caller(key)).access, TEAM, HOUR)
        await bench.remember(owner, "Elsewhere.", namespace=OTHER)
        await bench.services.deletion.forget_namespace(owner.access, OTHER)
        for gone in (OTHER, Namespace("never")):
            with pytest.raises(NotFound):
                await bench.services.expiry.keep(owner.access, gone, HOUR)
        assert await bench.value("SELECT count(*) FROM namespaces") == 2
        assert await bench.value("SELECT count(ttl_s) FROM namespaces") == 0


class TestWorking:
    def draft(self, bench: Bench, **members: Any) -> Any:
        body = MemoryFields(text="The build is red.", **members)
        return draft_of(body, bytes_max=1000, now=bench.clock())

    def test_expires_by_default(self, bench: Bench) -> None:
        until = bench.clock() + timedelta(seconds=Limits.working_life_s)
        assert self.draft(bench, kind="working").expires_at == until

    def test_unless_it_says_when(self, bench: Bench) -> None:
        day = bench.clock() + timedelta(days=9)
        assert self.draft(bench, kind="working", expires_at=day).expires_at == day

    @pytest.mark.parametrize("kind", ["fact", "episodic", "semantic", "procedural", "summary"])
    def test_other_kinds_stay(self, bench: Bench, kind: str) -> None:
        assert self.draft(bench, kind=kind).expires_at is None

    def test_no_time_in_the_past(self, bench: Bench) -> None:
        with pytest.raises(BadRequest):
            self.draft(bench, kind="working", expires_at=bench.clock())


async def test_earlier_revisions_that_come_back_are_over_with_their_memory(bench: Bench) -> None:
    """Whatever they were given themselves: one was to be kept for ever."""
    caller = await owner_of(bench)
    [stored] = await bench.remember(caller, "Anna prefers tea.")
    then = bench.clock()
    bench.clock.advance(60)
    soon = bench.clock() + timedelta(minutes=5)
    changes = {"text": "Anna prefers cups.", "expires_at": soon}
    await bench.services.reviser.edit(caller, stored.id, Edit(changes=changes))
    await bench.sql("DELETE FROM memories")
    assert (await bench.services.restore.restore(caller, TEAM, 100)).restored == 2
    assert await bench.texts(caller, "tea", mode="keyword", as_of=then) == ["Anna prefers tea."]
    bench.clock.advance(301)
    assert await bench.texts(caller, "tea", mode="keyword", as_of=then) == []
