"""What holds of a memory beside what it says: pins, reviews, being superseded."""

import asyncio
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from relayer.errors import NotAllowed
from relayer.record import State
from relayer.sealed.keys import Identity
from relayer.sealed.objects import sign_object
from relayer.sealed.primitives import CryptoError
from relayer.sealed.receipts import open_receipt
from relayer.sealed.states import open_state, sign_state
from relayer.upkeep.check import check
from tests.chains import assert_chain_holds
from tests.editing import CUSTODIES, edit, refused, writer
from tests.services import OTHER, TEAM, Bench
from tests.talking import BERLIN, MUNICH, OSLO, analyze, change, state, waiting

RELAYER = Identity(bytes(range(32)))


class TestObject:
    """What a `state` object has to hold; its envelope is the vectors' concern."""

    STATE: Final = {
        "pinned": True,
        "review": None,
        "stale": False,
        "superseded_at": None,
        "superseded_by": None,
        "merged": False,
    }

    def signed(self, state: object, by: Identity = RELAYER) -> bytes:
        members = {"account": "0x" + "01" * 32, "memory": str(uuid.UUID(int=1)), "revision": 1}
        members |= {"seq": 1, "time": 1, "expires_at": None}
        return sign_object(by, "state", {"relayer": by.public_key.hex(), **members, "state": state})

    def test_is_read_by_any_key_of_its_relayer(self) -> None:
        other = Identity(bytes(32))
        said = open_state(self.signed(self.STATE), other.public_key, RELAYER.public_key)
        assert (said.pinned, said.stale, said.expires_ms) == (True, False, None)
        with pytest.raises(CryptoError, match="another relayer"):
            open_state(self.signed(self.STATE, other), RELAYER.public_key)

    @pytest.mark.parametrize("has_default_life", [False, True])
    def test_a_default_life_is_named_where_there_is_one(self, has_default_life: bool) -> None:
        said = replace(
            open_state(self.signed(self.STATE), RELAYER.public_key),
            has_default_life=has_default_life,
        )
        signed = sign_state(RELAYER, said)
        assert open_state(signed, RELAYER.public_key) == said
        assert (b"default_life" in signed) == has_default_life

    @pytest.mark.parametrize(
        "state",
        [
            None,
            [],
            "pinned",
            {},
            {**STATE, "kind": "fact"},
            {**STATE, "pinned": 1},
            {**STATE, "stale": None},
            {**STATE, "merged": 1},
            {**STATE, "default_life": 1},
            {**STATE, "review": True},
            {**STATE, "superseded_at": "1"},
            {**STATE, "superseded_at": -1},
            {**STATE, "superseded_by": "1"},
        ],
    )
    def test_anything_else_is_refused(self, state: object) -> None:
        with pytest.raises(CryptoError):
            open_state(self.signed(state), RELAYER.public_key)


class TestStates:
    @CUSTODIES
    async def test_a_change_has_a_receipt_and_an_object_in_the_journal(
        self, bench: Bench, custody: str
    ) -> None:
        """Neither needs a namespace's key."""
        founder = await bench.account(custody)
        caller = await bench.unlocked(founder, TEAM)
        [stored] = await bench.remember(caller, BERLIN)
        now, receipt = await change(bench, await bench.caller(founder), stored.id, pinned=True)
        assert now == State(pinned=True) == await state(bench, caller, stored.id)
        assert receipt is not None
        relayer = bench.storage.identity.public_key
        opened = open_receipt(receipt, relayer)
        assert (opened.op, opened.namespace, opened.actor) == ("state", TEAM, caller.access.key)
        [item] = opened.items
        assert (item.memory, item.revision) == (stored.id, 1)
        blobs = await bench.storage.blobs.get_many(founder.account, [item.blob_id])
        signed = blobs[item.blob_id]
        assert isinstance(signed, bytes)
        said = open_state(signed, relayer)
        assert (said.memory, said.revision, said.seq) == (stored.id, 1, opened.seq)
        assert (said.pinned, said.review, said.stale) == (True, None, False)
        assert (said.superseded_ms, said.superseded_by) == (None, None)
        await assert_chain_holds(bench, founder.account)
        assert (await check(bench.storage)).problems == []

    async def test_what_is_so_already_gives_no_receipt(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, BERLIN)
        await change(bench, caller, stored.id, pinned=True, stale=True)
        for again in ({"pinned": True}, {"stale": True}, {"review": None, "superseded_by": None}):
            now, receipt = await change(bench, caller, stored.id, **again)
            assert (now, receipt) == (State(pinned=True, stale=True), None)
        await assert_chain_holds(bench, caller.access.account)

    async def test_only_the_newest_object_stays(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, BERLIN)
        before = await bench.value("SELECT count(*) FROM blobs")
        for n in range(4):
            await change(bench, caller, stored.id, pinned=n % 2 == 0)
        assert await bench.value("SELECT count(*) FROM blobs") == before + 1

    async def test_a_stale_memory_is_recalled_and_an_edit_makes_it_fresh(
        self, bench: Bench
    ) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, BERLIN)
        await change(bench, caller, stored.id, stale=True, pinned=True)
        assert await bench.texts(caller, "Berlin") == [BERLIN]
        await edit(bench, caller, stored.id, text=MUNICH)
        assert await state(bench, caller, stored.id) == State(pinned=True)

    async def test_a_pin_outlives_its_namespace_but_not_its_own_expiry(self, bench: Bench) -> None:
        caller = await writer(bench)
        given = bench.clock() + timedelta(days=9)
        stored = [
            *(await bench.remember(caller, BERLIN)),
            *(await bench.remember(caller, MUNICH, expires_at=given)),
        ]
        await bench.sql("UPDATE namespaces SET ttl_s = 3600")
        bounded = bench.clock() + timedelta(hours=1)
        for pinned, expected in ((True, [None, given]), (False, [bounded, bounded])):
            for item in stored:
                await change(bench, caller, item.id, pinned=pinned)
            memories = [await bench.services.memory.get(caller, item.id) for item in stored]
            assert [m.expires_at for m in memories] == expected
        await edit(bench, caller, stored[1].id, text="Anna prefers tea.")
        edited = await bench.services.memory.get(caller, stored[1].id)
        assert edited.expires_at == bounded

    async def test_rejected_is_out_of_recall_and_still_known(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, BERLIN)
        await change(bench, caller, stored.id, review="rejected")
        assert await bench.texts(caller, "Berlin") == []
        assert (await bench.services.memory.get(caller, stored.id)).text == BERLIN
        analyzed = await analyze(bench, caller, f"1. Remember that {BERLIN}")
        assert await bench.texts(caller, "Berlin lives in") in (
            [],
            [f.text for f in analyzed.facts],
        )
        await change(bench, caller, stored.id, review=None)
        assert BERLIN in await bench.texts(caller, "Berlin")

    async def test_a_review_is_of_what_it_said_before_too(self, bench: Bench) -> None:
        """A recall of an earlier time shows nothing of what somebody rejected since."""
        caller = await writer(bench)
        [stored] = await bench.remember(caller, BERLIN)
        then = bench.clock()
        bench.clock.advance(60)
        await edit(bench, caller, stored.id, text=MUNICH)
        for review, found in (("rejected", []), ("pending", []), (None, [BERLIN])):
            await change(bench, caller, stored.id, review=review)
            assert await bench.texts(caller, "Anna lives", as_of=then) == found

    @pytest.mark.parametrize(("review", "approved"), [("pending", True), ("rejected", False)])
    async def test_saying_it_outright_approves_what_waits_for_that(
        self, bench: Bench, review: str, approved: bool
    ) -> None:
        """What a person rejected no agent approves."""
        caller = await writer(bench)
        [stored] = await bench.remember(caller, BERLIN)
        await change(bench, caller, stored.id, review=review)
        done = await bench.services.intake.remember(caller, [_draft(BERLIN)], route="remember")
        assert (done.items[0].id, done.items[0].duplicate) == (stored.id, True)
        assert (list(done.receipts), len(done.others)) == ([], int(approved))
        assert await bench.texts(caller, "Berlin") == [BERLIN] * approved
        await assert_chain_holds(bench, caller.access.account)

    async def test_a_retry_approves_nothing(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, BERLIN, idempotency_key="k")
        await change(bench, caller, stored.id, review="rejected")
        await bench.remember(caller, BERLIN, idempotency_key="k")
        assert await bench.texts(caller, "Berlin") == []

    async def test_superseded_and_brought_back(self, bench: Bench) -> None:
        caller = await writer(bench)
        [old, new] = await bench.remember(caller, BERLIN, MUNICH)
        then = bench.clock()
        bench.clock.advance(60)
        now, _ = await change(bench, caller, old.id, superseded_by=new.id)
        assert now == State(superseded_at=bench.clock(), superseded_by=new.id)
        assert await bench.texts(caller, "user lives") == [MUNICH]
        assert sorted(await bench.texts(caller, "user lives", as_of=then)) == [BERLIN, MUNICH]
        now, _ = await change(bench, caller, old.id, superseded_by=None)
        assert now == State()
        assert sorted(await bench.texts(caller, "user lives")) == [BERLIN, MUNICH]

    async def test_it_cannot_come_back_beside_its_like(self, bench: Bench) -> None:
        caller = await writer(bench)
        [old, new] = await bench.remember(caller, BERLIN, MUNICH)
        await change(bench, caller, old.id, superseded_by=new.id)
        [again] = await bench.remember(caller, BERLIN)
        assert again.id != old.id
        await refused("memory.duplicate", change(bench, caller, old.id, superseded_by=None))
        await assert_chain_holds(bench, caller.access.account)

    async def test_only_by_what_is_in_force_there(self, bench: Bench) -> None:
        caller = await writer(bench)
        [old, new, gone] = await bench.remember(caller, BERLIN, MUNICH, "one apple")
        [elsewhere] = await bench.remember(caller, MUNICH, namespace=OTHER)
        await bench.services.memory.forget(caller.access, gone.id)
        for by in (gone.id, elsewhere.id, uuid.uuid4()):
            await refused("not_found", change(bench, caller, old.id, superseded_by=by))
        await refused("memory.superseded", change(bench, caller, old.id, superseded_by=old.id))
        await change(bench, caller, old.id, superseded_by=new.id)
        await refused("memory.superseded", change(bench, caller, new.id, superseded_by=old.id))

    async def test_strangers_and_readers(self, bench: Bench) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        [stored] = await bench.remember(caller, BERLIN)
        reader = await bench.caller(await bench.key(founder, TEAM, role="reader"))
        other = await bench.caller(await bench.key(founder, OTHER))
        stranger = await bench.caller(await bench.account())
        with pytest.raises(NotAllowed):
            await change(bench, reader, stored.id, pinned=True)
        for who in (other, stranger):
            await refused("not_found", change(bench, who, stored.id, pinned=True))
        await change(bench, caller, stored.id, review="pending")
        with pytest.raises(NotAllowed):
            await waiting(bench, other)
        assert await waiting(bench, stranger) == []
        await change(bench, caller, stored.id, review=None)
        assert await state(bench, caller, stored.id) == State()

    async def test_expired_and_erased_ones(self, bench: Bench) -> None:
        caller = await writer(bench)
        until = bench.clock() + timedelta(seconds=9)
        [over] = await bench.remember(caller, BERLIN, expires_at=until)
        [gone] = await bench.remember(caller, MUNICH)
        await bench.services.memory.forget(caller.access, gone.id)
        bench.clock.advance(9)
        for memory in (over, gone):
            await refused("not_found", change(bench, caller, memory.id, pinned=True))

    async def test_changes_and_erasure_at_once(self, bench: Bench) -> None:
        caller = await writer(bench)
        for n in range(5):
            [stored] = await bench.remember(caller, f"Anna prefers tea number {n}.")
            await asyncio.gather(
                change(bench, caller, stored.id, pinned=True),
                change(bench, caller, stored.id, stale=True),
                bench.services.memory.forget(caller.access, stored.id),
                return_exceptions=True,
            )
        await assert_chain_holds(bench, caller.access.account)
        assert (await check(bench.storage)).problems == []


def _draft(text: str) -> Any:
    from relayer.record import Draft

    return Draft(text=text, namespace=TEAM)


class TestSuperseding:
    @pytest.mark.parametrize("review", ["rejected", "pending"])
    async def test_not_by_what_is_held_back(self, bench: Bench, review: str) -> None:
        caller = await writer(bench)
        [old, new] = await bench.remember(caller, BERLIN, MUNICH)
        await change(bench, caller, new.id, review=review)
        await refused("memory.superseded", change(bench, caller, old.id, superseded_by=new.id))
        assert await bench.texts(caller, "user lives") == [BERLIN]

    async def test_not_by_what_has_expired(self, bench: Bench) -> None:
        caller = await writer(bench)
        soon = bench.clock() + timedelta(seconds=5)
        [old] = await bench.remember(caller, BERLIN)
        [new] = await bench.remember(caller, MUNICH, expires_at=soon)
        bench.clock.advance(5)
        await refused("not_found", change(bench, caller, old.id, superseded_by=new.id))

    async def test_by_one_at_a_time(self, bench: Bench) -> None:
        caller = await writer(bench)
        [old, new, third] = await bench.remember(caller, BERLIN, MUNICH, OSLO)
        await change(bench, caller, old.id, superseded_by=new.id)
        await refused("memory.superseded", change(bench, caller, old.id, superseded_by=third.id))
        _, receipt = await change(bench, caller, old.id, superseded_by=new.id)
        assert receipt is None
        assert (await state(bench, caller, old.id)).superseded_by == new.id

    async def test_by_another_once_that_one_has_expired(self, bench: Bench) -> None:
        """Before housekeeping erases it, too: nobody may be told of it."""
        caller = await writer(bench)
        soon = bench.clock() + timedelta(seconds=5)
        [old, third] = await bench.remember(caller, BERLIN, OSLO)
        [new] = await bench.remember(caller, MUNICH, expires_at=soon)
        await change(bench, caller, old.id, superseded_by=new.id)
        bench.clock.advance(5)
        now, _ = await change(bench, caller, old.id, superseded_by=third.id)
        assert now.superseded_by == third.id
        await assert_chain_holds(bench, caller.access.account)

    async def test_what_was_superseded_stays_so_without_its_successor(self, bench: Bench) -> None:
        caller = await writer(bench)
        [old, new, third] = await bench.remember(caller, BERLIN, MUNICH, OSLO)
        await change(bench, caller, old.id, superseded_by=new.id)
        await bench.services.memory.forget(caller.access, new.id)
        assert await bench.texts(caller, "user lives") == [OSLO]
        assert (await check(bench.storage)).problems == []
        await change(bench, caller, old.id, superseded_by=third.id)
        await change(bench, caller, old.id, superseded_by=None)
        assert sorted(await bench.texts(caller, "user lives")) == [BERLIN, OSLO]

    async def test_brought_back_beside_an_equal_one_that_expired(self, bench: Bench) -> None:
        caller = await writer(bench)
        [old, new] = await bench.remember(caller, BERLIN, MUNICH)
        await change(bench, caller, old.id, superseded_by=new.id)
        soon = bench.clock() + timedelta(seconds=5)
        [equal] = await bench.remember(caller, BERLIN, expires_at=soon)
        await refused("memory.duplicate", change(bench, caller, old.id, superseded_by=None))
        bench.clock.advance(5)
        await change(bench, caller, old.id, superseded_by=None)
        assert sorted(await bench.texts(caller, "user lives")) == [BERLIN, MUNICH]
        [stone] = await bench.sql("SELECT memory_id FROM tombstones")
        assert stone["memory_id"] == equal.id
        await assert_chain_holds(bench, caller.access.account)
        assert (await check(bench.storage)).problems == []
