"""What holds of a memory beside what it says: pins, reviews, contradictions, being said again."""

import asyncio
import json
import threading
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from relayer.errors import Corrupted, NotAllowed, RelayerError, Unavailable
from relayer.extraction.facts import say_the_same
from relayer.memories.conversations import Analyzed
from relayer.memories.opening import Caller
from relayer.record import State
from relayer.sealed.keys import Identity
from relayer.sealed.objects import sign_object
from relayer.sealed.primitives import CryptoError
from relayer.sealed.receipts import open_receipt
from relayer.sealed.states import open_state
from relayer.upkeep.check import check
from tests.chains import assert_chain_holds
from tests.editing import CUSTODIES, edit, refused, writer
from tests.openai_server import OpenAIServer, Step
from tests.services import OTHER, TEAM, Bench
from tests.talking import AWAY, BERLIN, MUNICH, OSLO, analyze, change, choose, facts, state, waiting
from tests.thinking import model, server, thinking

__all__ = ["model", "server", "thinking"]  # fixtures

RELAYER = Identity(bytes(range(32)))


class TestObject:
    """What a `state` object has to hold; its envelope is the vectors' concern."""

    STATE: Final = {
        "pinned": True,
        "review": None,
        "stale": False,
        "superseded_at": None,
        "superseded_by": None,
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

    async def test_saying_it_outright_approves_it(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, BERLIN)
        for review in ("rejected", "pending"):
            await change(bench, caller, stored.id, review=review)
            done = await bench.services.memory.remember(caller, [_draft(BERLIN)], route="remember")
            assert (done.items[0].id, done.items[0].duplicate) == (stored.id, True)
            assert (list(done.receipts), len(done.others)) == ([], 1)
            assert await bench.texts(caller, "Berlin") == [BERLIN]
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


class TestContradictions:
    async def contradict(
        self, bench: Bench, caller: Caller, server: OpenAIServer, **members: Any
    ) -> Analyzed:
        server.script(facts(MUNICH, contradicts=1, **members))
        return await analyze(bench, caller, "1. user: Berlin is history, I moved to Munich.")

    async def test_the_newer_wins(self, thinking: Bench, server: OpenAIServer) -> None:
        """capability 3.18: what a newer fact contradicts is superseded by it, never overwritten."""
        caller = await writer(thinking)
        [old] = await thinking.remember(caller, BERLIN)
        then = thinking.clock()
        thinking.clock.advance(60)
        analyzed = await self.contradict(thinking, caller, server)
        [fact] = analyzed.facts
        assert (list(fact.contradicts), list(fact.superseded), fact.review) == (
            [old.id],
            [old.id],
            None,
        )
        assert (len(analyzed.receipts), len(analyzed.others)) == (1, 1)
        assert await thinking.texts(caller, "user lives") == [MUNICH]
        assert await thinking.texts(caller, "user lives", as_of=then) == [BERLIN]
        assert await state(thinking, caller, old.id) == State(
            superseded_at=thinking.clock(), superseded_by=fact.id
        )
        history = await thinking.services.reviser.history(caller, old.id)
        assert [(one.memory_id, one.relation, one.other_id) for one in history.links] == [
            (fact.id, "contradicts", old.id)
        ]
        assert await waiting(thinking, caller) == []
        await assert_chain_holds(thinking, caller.access.account)
        assert (await check(thinking.storage)).problems == []

    async def test_both_stay_until_somebody_looked(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """capability 3.18: a contradiction can be kept, flagged, for review."""
        caller = await choose(thinking, await writer(thinking), contradictions="review")
        [old] = await thinking.remember(caller, BERLIN)
        analyzed = await self.contradict(thinking, caller, server)
        [fact] = analyzed.facts
        assert (fact.review, list(fact.superseded)) == ("contradiction", [])
        assert sorted(await thinking.texts(caller, "user lives")) == [BERLIN, MUNICH]
        [found] = await waiting(thinking, caller)
        assert (found.memory.id, found.reason) == (fact.id, "contradiction")
        assert [m.id for m in found.others] == [old.id]
        await change(thinking, caller, fact.id, review=None)
        assert await waiting(thinking, caller) == []
        assert sorted(await thinking.texts(caller, "user lives")) == [BERLIN, MUNICH]

    async def test_what_was_superseded_since_is_not_among_the_others(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await choose(thinking, await writer(thinking), contradictions="review")
        [old] = await thinking.remember(caller, BERLIN)
        await self.contradict(thinking, caller, server)
        [third] = await thinking.remember(caller, OSLO)
        await change(thinking, caller, old.id, superseded_by=third.id)
        [found] = await waiting(thinking, caller)
        assert list(found.others) == []

    async def test_no_rule_supersedes_what_is_pinned(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await writer(thinking)
        [old] = await thinking.remember(caller, BERLIN)
        await change(thinking, caller, old.id, pinned=True)
        [fact] = (await self.contradict(thinking, caller, server)).facts
        assert (fact.review, list(fact.superseded)) == ("contradiction", [])
        assert sorted(await thinking.texts(caller, "user lives")) == [BERLIN, MUNICH]

    @pytest.mark.parametrize("doubt", [{"confidence": "low"}, {"said_by": "other"}])
    async def test_what_is_second_hand_supersedes_nothing(
        self, thinking: Bench, server: OpenAIServer, doubt: dict[str, str]
    ) -> None:
        """A quoted stranger says what he likes."""
        caller = await writer(thinking)
        [old] = await thinking.remember(caller, BERLIN, importance="vital")
        [fact] = (await self.contradict(thinking, caller, server, **doubt)).facts
        assert (fact.review, list(fact.superseded)) == ("contradiction", [])
        assert sorted(await thinking.texts(caller, "user lives")) == [BERLIN, MUNICH]
        [found] = await waiting(thinking, caller)
        assert [m.id for m in found.others] == [old.id]

    async def test_what_waits_for_approval_supersedes_nothing(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await choose(thinking, await writer(thinking), low_confidence="review")
        [old] = await thinking.remember(caller, BERLIN)
        [fact] = (await self.contradict(thinking, caller, server, confidence="low")).facts
        assert (fact.review, list(fact.superseded)) == ("pending", [])
        assert await thinking.texts(caller, "user lives") == [BERLIN]
        [found] = await waiting(thinking, caller)
        assert [m.id for m in found.others] == [old.id]

    async def test_what_is_gone_meanwhile_is_not_named(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await writer(thinking)
        [old] = await thinking.remember(caller, BERLIN)

        async def forget() -> None:
            await thinking.services.memory.forget(caller.access, old.id)

        [fact] = (await self.meanwhile(thinking, caller, server, forget, contradicts=1)).facts
        assert (fact.review, list(fact.superseded)) == (None, [])
        assert await thinking.texts(caller, "user lives") == [MUNICH]
        assert (await check(thinking.storage)).problems == []

    @pytest.mark.parametrize("meanwhile", ["said", "said again", "edited"])
    async def test_what_was_said_since_a_turn_waits_stands(
        self, thinking: Bench, server: OpenAIServer, meanwhile: str
    ) -> None:
        """The model was away: what it finds late is older than what was said meanwhile."""
        caller = await writer(thinking)
        old = [] if meanwhile == "said" else await thinking.remember(caller, OSLO)
        server.script(AWAY)
        kept = await analyze(thinking, caller, "1. user: I moved to Munich.")
        thinking.clock.advance(60)
        if meanwhile == "edited":
            await edit(thinking, caller, old[0].id, text=BERLIN)
        else:
            await thinking.remember(caller, OSLO if old else BERLIN)
        server.script(facts(MUNICH, contradicts=1))
        assert kept.episode is not None
        await thinking.services.analysis.extract_episode(
            caller.access.account, caller.keys, kept.episode
        )
        [found] = await waiting(thinking, caller)
        stands = OSLO if meanwhile == "said again" else BERLIN
        assert (found.reason, [m.text for m in found.others]) == ("contradiction", [stands])
        assert sorted(await thinking.texts(caller, "user lives")) == sorted([stands, MUNICH])

    async def test_turns_that_waited_follow_each_other(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """What a fact was said at is kept: both are stored after both were said."""
        caller = await writer(thinking)
        server.script(AWAY, AWAY)
        turns = []
        for said in ("1. user: I moved to Berlin.", "1. user: I moved to Munich."):
            turns.append((await analyze(thinking, caller, said)).episode)
            thinking.clock.advance(60)
        server.script(facts(BERLIN), facts(MUNICH, contradicts=1))
        for turn in turns:
            assert turn is not None
            thinking.clock.advance(60)
            await thinking.services.analysis.extract_episode(
                caller.access.account, caller.keys, turn
            )
        assert await thinking.texts(caller, "user lives") == [MUNICH]
        assert await waiting(thinking, caller) == []

    async def test_an_old_conversation_supersedes_older_things_only(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """Old conversations that are brought in, in order, and one from between them."""
        caller = await writer(thinking)
        now = thinking.clock()
        server.script(facts(BERLIN), facts(MUNICH, contradicts=1), facts(OSLO, contradicts=1))
        for text, days in (("Berlin", 300), ("Munich", 100), ("Oslo", 200)):
            said = now - timedelta(days=days)
            await analyze(thinking, caller, f"1. user: I moved to {text}.", occurred_at=said)
            thinking.clock.advance(60)
        assert sorted(await thinking.texts(caller, "user lives")) == [MUNICH, OSLO]
        [found] = await waiting(thinking, caller)
        assert (found.memory.text, [m.text for m in found.others]) == (OSLO, [MUNICH])

    async def test_what_is_edited_meanwhile_stands(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """The model compared with what it said before."""
        caller = await writer(thinking)
        [old] = await thinking.remember(caller, OSLO)

        async def correct() -> None:
            await edit(thinking, caller, old.id, text=BERLIN)

        [fact] = (await self.meanwhile(thinking, caller, server, correct, contradicts=1)).facts
        assert (fact.review, list(fact.superseded)) == ("contradiction", [])
        assert sorted(await thinking.texts(caller, "user lives")) == [BERLIN, MUNICH]

    @pytest.mark.parametrize("change_to", ["edited", "superseded"])
    async def test_what_is_changed_meanwhile_does_not_say_the_same(
        self, thinking: Bench, server: OpenAIServer, change_to: str
    ) -> None:
        """A fact is not taken for known by a memory that no longer says it."""
        caller = await writer(thinking)
        [known, other] = await thinking.remember(caller, "User lives in Munich now!", OSLO)

        async def correct() -> None:
            if change_to == "edited":
                await edit(thinking, caller, known.id, text=BERLIN)
            else:
                await change(thinking, caller, known.id, superseded_by=other.id)

        analyzed = await self.meanwhile(thinking, caller, server, correct)
        assert [fact.text for fact in analyzed.facts] == [MUNICH]
        assert list(analyzed.reinforced) == []
        assert MUNICH in await thinking.texts(caller, "user lives")

    async def meanwhile(
        self,
        bench: Bench,
        caller: Caller,
        server: OpenAIServer,
        happens: Callable[[], Awaitable[None]],
        **members: Any,
    ) -> Analyzed:
        """What comes of it when something happens while the model thinks."""
        answered = threading.Event()
        server.script(replace(facts(MUNICH, **members), held=answered))
        asked = len(server.received)
        task = asyncio.create_task(analyze(bench, caller, "1. user: I moved to Munich."))
        while len(server.received) == asked:
            await asyncio.sleep(0.01)
        await happens()
        answered.set()
        return await task

    async def test_of_a_turn_that_had_to_wait(self, thinking: Bench, server: OpenAIServer) -> None:
        """The account's choice counts for its late extraction, too."""
        caller = await choose(thinking, await writer(thinking), contradictions="review")
        [old] = await thinking.remember(caller, BERLIN)
        server.script(AWAY)
        kept = await analyze(thinking, caller, "1. user: I moved to Munich.")
        assert kept.episode is not None
        server.script(facts(MUNICH, contradicts=1))
        await thinking.services.analysis.extract_episode(
            caller.access.account, caller.keys, kept.episode
        )
        [found] = await waiting(thinking, caller)
        assert (found.reason, [m.id for m in found.others]) == ("contradiction", [old.id])

    async def test_what_says_the_same_is_none(self, thinking: Bench, server: OpenAIServer) -> None:
        """A model may say so; the memory would lose its tags to a copy."""
        caller = await writer(thinking)
        [old] = await thinking.remember(caller, BERLIN, tags=["home"])
        server.script(facts(BERLIN.replace("lives", "really lives"), contradicts=1))
        analyzed = await analyze(thinking, caller, "1. user: I really live in Berlin.")
        assert (list(analyzed.facts), list(analyzed.reinforced)) == ([], [old.id])
        [memory] = await thinking.services.memory.newest(caller, [TEAM], limit=9)
        assert (memory.id, memory.tags, memory.seen_count) == (old.id, ["home"], 2)

    async def test_of_another_time_it_is_one(self, thinking: Bench, server: OpenAIServer) -> None:
        caller = await writer(thinking)
        [old] = await thinking.remember(caller, "The launch party is at the lake.", kind="event")
        moved = facts(
            "The launch party is at the lake.",
            kind="event",
            event_time="2031-05-09",
            contradicts=1,
        )
        server.script(moved)
        [fact] = (await analyze(thinking, caller, "1. user: The party is on 2031-05-09.")).facts
        assert list(fact.superseded) == [old.id]

    @pytest.mark.parametrize("again", [False, True])
    async def test_what_came_after_the_turn_is_newer_than_its_facts(
        self, thinking: Bench, server: OpenAIServer, again: bool
    ) -> None:
        """Whether it had to wait, or is analyzed once more."""
        caller = await choose(thinking, await writer(thinking), keep_turns=True)
        server.script(facts() if again else AWAY)
        kept = await analyze(thinking, caller, "1. user: I live in Berlin.")
        turn = kept.kept or kept.episode
        assert turn is not None
        thinking.clock.advance(86400)
        [newer] = await thinking.remember(caller, MUNICH)
        server.script(facts(BERLIN, contradicts=1))
        if again:
            await thinking.services.analysis.again(caller, turn)
        else:
            await thinking.services.analysis.extract_episode(
                caller.access.account, caller.keys, turn
            )
        assert sorted(await thinking.texts(caller, "user lives")) == [BERLIN, MUNICH]
        [found] = await waiting(thinking, caller)
        assert (found.memory.text, found.reason) == (BERLIN, "contradiction")
        assert [m.id for m in found.others] == [newer.id]


class TestConfidence:
    async def test_low_confidence_waits_if_the_account_wants_it(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """capability 3.17: facts of low confidence wait to be approved or rejected."""
        caller = await choose(thinking, await writer(thinking), low_confidence="review")
        doubt = [facts("Anna may like jazz.", confidence="low")]
        server.script(*doubt, facts("Anna plays the violin."))
        [first] = (await analyze(thinking, caller, "1. user: perhaps jazz?")).facts
        [second] = (await analyze(thinking, caller, "1. user: I play the violin.")).facts
        assert (first.review, second.review) == ("pending", None)
        assert await thinking.texts(caller, "Anna") == ["Anna plays the violin."]
        listed = await thinking.services.memory.newest(caller, [TEAM], limit=9)
        assert [m.id for m in listed] == [second.id]
        [found] = await waiting(thinking, caller)
        assert (found.memory.id, found.reason, list(found.others)) == (first.id, "pending", [])
        await change(thinking, caller, first.id, review=None)
        assert sorted(await thinking.texts(caller, "Anna")) == [
            "Anna may like jazz.",
            "Anna plays the violin.",
        ]
        assert await waiting(thinking, caller) == []
        assert (await check(thinking.storage)).problems == []

    async def test_it_is_kept_at_once_otherwise(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        """capability 3.17: each fact says high, medium or low."""
        caller = await writer(thinking)
        server.script(facts("Anna may like jazz.", confidence="low"))
        [fact] = (await analyze(thinking, caller, "1. user: perhaps jazz?")).facts
        assert (fact.review, fact.confidence) == (None, "low")
        assert await thinking.texts(caller, "jazz") == ["Anna may like jazz."]

    async def test_a_rejected_fact_does_not_come_back(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await choose(thinking, await writer(thinking), low_confidence="review")
        server.script(*[facts("Anna may like jazz.", confidence="low")] * 2)
        [fact] = (await analyze(thinking, caller, "1. user: perhaps jazz?")).facts
        await change(thinking, caller, fact.id, review="rejected")
        again = await analyze(thinking, caller, "1. user: jazz, perhaps?")
        assert (list(again.facts), list(again.reinforced)) == ([], [fact.id])
        assert await thinking.texts(caller, "jazz") == []
        assert await waiting(thinking, caller) == []


class TestSaidAgain:
    async def seen(self, bench: Bench, caller: Caller, memory: uuid.UUID) -> int:
        return (await bench.services.memory.get(caller, memory)).seen_count

    @CUSTODIES
    async def test_the_same_words_are_counted(self, bench: Bench, custody: str) -> None:
        caller = await writer(bench, custody)
        [stored] = await bench.remember(caller, BERLIN)
        assert (await bench.services.memory.get(caller, stored.id)).last_seen_at is None
        bench.clock.advance(60)
        await bench.remember(caller, BERLIN)
        memory = await bench.services.memory.get(caller, stored.id)
        assert (memory.seen_count, memory.last_seen_at) == (2, bench.clock())
        assert await bench.value("SELECT count(*) FROM memories") == 1

    async def test_a_retry_is_not(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, BERLIN, idempotency_key="k")
        await bench.remember(caller, BERLIN, idempotency_key="k")
        assert await self.seen(bench, caller, stored.id) == 1

    async def test_nearly_the_same_words_are_not_stored_once_more(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await writer(thinking)
        [stored] = await thinking.remember(caller, "The user prefers window seats on trains.")
        server.script(facts("User really prefers window seats on the train"))
        analyzed = await analyze(thinking, caller, "1. user: window seats, please.")
        assert (list(analyzed.facts), list(analyzed.reinforced)) == ([], [stored.id])
        assert await self.seen(thinking, caller, stored.id) == 2
        assert await thinking.value("SELECT count(*) FROM memories") == 1

    async def test_without_a_model(self, bench: Bench) -> None:
        caller = await writer(bench)
        talk = "1. I prefer window seats on trains."
        [fact] = (await analyze(bench, caller, talk)).facts
        again = await analyze(bench, caller, talk)
        assert (list(again.facts), list(again.reinforced)) == ([], [fact.id])
        assert await self.seen(bench, caller, fact.id) == 2

    async def test_windows_of_one_conversation_say_it_once(self, bench: Bench) -> None:
        caller = await writer(bench)
        talk = "1. I prefer window seats on trains."
        [fact] = (await analyze(bench, caller, talk, source="chat/9")).facts
        await analyze(bench, caller, talk + "\n\n2. ok thanks", source="chat/9")
        assert await self.seen(bench, caller, fact.id) == 1
        await analyze(bench, caller, talk, source="chat/10")
        assert await self.seen(bench, caller, fact.id) == 2

    async def test_a_retried_conversation_is_not_counted(self, bench: Bench) -> None:
        caller = await writer(bench)
        talk = "1. I prefer window seats on trains."
        [fact] = (await analyze(bench, caller, talk)).facts
        for _ in range(2):
            await analyze(bench, caller, talk, idempotency_key="k")
        assert await self.seen(bench, caller, fact.id) == 2

    async def test_in_one_conversation_it_is_stored_once_for_each_time(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await writer(thinking)
        said = [
            {"text": text, "kind": "event", "said_by": "user", "event_time": day}
            for text, day in (
                ("Anna has an appointment with Dr Weiss.", "2031-05-09"),
                ("Anna really has an appointment with Dr Weiss", "2031-05-09"),
                ("Anna has an appointment with Dr Weiss.", "2031-05-16"),
            )
        ]
        server.script(Step(content=json.dumps({"facts": said})))
        analyzed = await analyze(thinking, caller, "1. user: Dr Weiss on 2031-05-09 and a week on.")
        memories = [await thinking.services.memory.get(caller, f.id) for f in analyzed.facts]
        assert [m.event_time.day for m in memories if m.event_time] == [9, 16]

    async def test_another_time_is_another_fact(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await writer(thinking)
        when = thinking.clock()
        [stored] = await thinking.remember(caller, "The user met Anna.", event_time=when)
        later = (when + timedelta(days=1)).isoformat()
        server.script(facts("The user met Anna.", event_time=later))
        text = f"1. user: I met Anna, on {later[:10]}."
        analyzed = await analyze(thinking, caller, text, occurred_at=when)
        assert len(analyzed.facts) + len(analyzed.reinforced) <= 1
        assert stored.id not in analyzed.reinforced


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The user prefers tea.", "User prefers tea"),
        ("Anna takes the train.", "Anna takes an train!"),
        ("Anna likes dogs", "Anna really likes dogs."),
        ("Der Kunde zahlt per Rechnung.", "Kunde zahlt per Rechnung"),
    ],
)
def test_the_same_in_nearly_the_same_words(one: str, other: str) -> None:
    assert say_the_same(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The room has 4 seats.", "The room has 5 seats."),
        ("The room is free.", "The room is not free."),
        ("Anna called Ben.", "Ben called Anna."),
        ("Anna lives in Berlin.", "Anna lived in Berlin."),
        ("Anna prefers green tea.", "Anna prefers black tea."),
        ("My blood type is A+.", "My blood type is A-."),
        ("The lift is left of the door.", "The lift is right of the door."),
        ("Anna always pays.", "Anna never pays."),
        ("Kein Kunde zahlt.", "Ein Kunde zahlt."),
        ("It costs -5 euros.", "It costs 5 euros."),
    ],
)
def test_what_one_word_tells_apart(one: str, other: str) -> None:
    assert not say_the_same(one, other)


class TestKeptTurns:
    TALK = "1. user: I prefer window seats on trains."

    @CUSTODIES
    async def test_a_turn_is_kept_beside_its_facts(self, bench: Bench, custody: str) -> None:
        """capability 3.19: what was said is kept sealed, opt-in, and each fact names its turn.
        capability 3.4: an episode has its time, source and text, and its facts their confidence.
        """
        caller = await choose(bench, await writer(bench, custody), keep_turns=True)
        when = bench.clock() - timedelta(days=1)
        analyzed = await analyze(bench, caller, self.TALK, source="chat/9", occurred_at=when)
        [fact] = analyzed.facts
        assert (analyzed.episode, analyzed.kept is not None) == (None, True)
        [turn] = await bench.services.turns.newest(caller, [TEAM], before=None, limit=9)
        assert (turn.id, turn.state, turn.namespace) == (analyzed.kept, "kept", TEAM)
        assert (turn.occurred_at, turn.source, list(turn.fact_ids)) == (when, "chat/9", [fact.id])
        assert (await bench.services.turns.get(caller, turn.id)).text == self.TALK
        for row in await bench.sql("SELECT bytes FROM blobs"):
            assert b"window" not in row["bytes"]
        await assert_chain_holds(bench, caller.access.account)
        assert (await check(bench.storage)).problems == []

    async def test_not_unless_the_account_wants_it(self, bench: Bench) -> None:
        caller = await writer(bench)
        analyzed = await analyze(bench, caller, self.TALK)
        assert (analyzed.kept, await bench.value("SELECT count(*) FROM episodes")) == (None, 0)
        assert await bench.value("SELECT count(*) FROM links") == 0

    async def test_the_same_turn_is_kept_once(self, bench: Bench) -> None:
        caller = await choose(bench, await writer(bench), keep_turns=True)
        first, *more = await asyncio.gather(*(analyze(bench, caller, self.TALK) for _ in range(3)))
        assert {m.kept for m in more} == {first.kept}
        assert await bench.value("SELECT count(*) FROM episodes") == 1
        assert (await check(bench.storage)).problems == []

    async def test_a_turn_without_facts_is_kept_as_well(self, bench: Bench) -> None:
        caller = await choose(bench, await writer(bench), keep_turns=True)
        analyzed = await analyze(bench, caller, "1. hm?\n\n2. ok thanks")
        assert (list(analyzed.facts), len(analyzed.receipts)) == ([], 1)
        [turn] = await bench.services.turns.newest(caller, [TEAM], before=None, limit=9)
        assert (turn.id, list(turn.fact_ids)) == (analyzed.kept, [])

    async def test_a_turn_that_had_to_wait_is_kept_then(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await choose(thinking, await writer(thinking), keep_turns=True)
        server.script(AWAY)
        waits = await analyze(thinking, caller, self.TALK)
        assert waits.episode is not None
        server.script(facts("The user prefers window seats."))
        await thinking.services.analysis.extract_episode(
            caller.access.account, caller.keys, waits.episode
        )
        turn = await thinking.services.turns.get(caller, waits.episode)
        assert (turn.state, turn.text, len(turn.fact_ids)) == ("kept", self.TALK, 1)
        assert (await check(thinking.storage)).problems == []

    async def test_it_is_analyzed_again(self, thinking: Bench, server: OpenAIServer) -> None:
        """capability 3.19: a kept turn gives new facts to another extraction."""
        caller = await choose(thinking, await writer(thinking), keep_turns=True)
        server.script(facts("The user prefers window seats."))
        first = await analyze(thinking, caller, self.TALK, source="chat/9")
        assert first.kept is not None
        server.script(facts("User prefers window seats", "The user takes trains."))
        again = await thinking.services.analysis.again(caller, first.kept)
        assert [f.text for f in again.facts] == ["The user takes trains."]
        assert list(again.reinforced) == [first.facts[0].id]
        turn = await thinking.services.turns.get(caller, first.kept)
        assert set(turn.fact_ids) == {first.facts[0].id, again.facts[0].id}
        assert await thinking.value("SELECT count(*) FROM episodes") == 1

    async def test_again_while_the_model_is_away(
        self, thinking: Bench, server: OpenAIServer
    ) -> None:
        caller = await choose(thinking, await writer(thinking), keep_turns=True)
        server.script(facts("The user prefers window seats."), AWAY)
        first = await analyze(thinking, caller, self.TALK)
        assert first.kept is not None
        with pytest.raises(Unavailable):
            await thinking.services.analysis.again(caller, first.kept)
        assert (await thinking.services.turns.get(caller, first.kept)).state == "kept"

    async def test_it_goes_with_what_came_from_it(self, bench: Bench) -> None:
        caller = await choose(bench, await writer(bench), keep_turns=True)
        analyzed = await analyze(bench, caller, self.TALK)
        await bench.services.memory.forget(caller.access, analyzed.facts[0].id)
        assert await bench.services.turns.newest(caller, [TEAM], before=None, limit=9) == []
        assert await bench.value("SELECT count(*) FROM episodes WHERE state = 'kept'") == 0
        assert await bench.value("SELECT storage_bytes FROM accounts") == 0
        assert (await check(bench.storage)).problems == []

    async def test_pages_newest_first(self, bench: Bench) -> None:
        caller = await choose(bench, await writer(bench), keep_turns=True)
        made = []
        for n in range(5):
            made.append((await analyze(bench, caller, f"1. Talk number {n}, ok.")).kept)
            bench.clock.advance(n % 2)
        first = await bench.services.turns.newest(caller, [TEAM], before=None, limit=2)
        place = (first[-1].created_at, first[-1].id)
        rest = await bench.services.turns.newest(caller, [TEAM], before=place, limit=9)
        assert {t.id for t in (*first, *rest)} == set(made)
        assert len(first) + len(rest) == 5

    async def test_strangers_readers_and_the_keyless(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        caller = await choose(bench, await bench.unlocked(founder, TEAM), keep_turns=True)
        kept = (await analyze(bench, caller, self.TALK)).kept
        assert kept is not None
        reader = await bench.unlocked(await bench.key(founder, TEAM, role="reader"), TEAM)
        other = await bench.unlocked(await bench.key(founder, OTHER), OTHER)
        stranger = await bench.unlocked(await bench.account("sealed"), TEAM)
        keyless = await bench.caller(founder)
        turns, again = bench.services.turns, bench.services.analysis.again
        assert (await turns.get(reader, kept)).text == self.TALK
        await refused("auth.not_allowed", again(reader, kept))
        for who in (other, stranger):
            await refused("not_found", turns.get(who, kept))
            await refused("not_found", again(who, kept))
        await refused("unlock_required", turns.get(keyless, kept))
        with pytest.raises(RelayerError) as caught:
            await again(keyless, kept)
        assert caught.value.code == "unlock_required"
        await refused("not_found", again(caller, uuid.uuid4()))

    async def test_an_altered_turn(self, bench: Bench) -> None:
        caller = await choose(bench, await writer(bench), keep_turns=True)
        kept = (await analyze(bench, caller, "1. hm?")).kept
        assert kept is not None
        await bench.sql(
            "UPDATE blobs SET bytes = set_byte(bytes, 300, get_byte(bytes, 300) # 1)"
            " WHERE blob_id = (SELECT blob_id FROM episodes)"
        )
        [turn] = await bench.services.turns.newest(caller, [TEAM], before=None, limit=9)
        assert (turn.id, turn.text) == (kept, None)
        with pytest.raises(Corrupted):
            await bench.services.turns.get(caller, kept)
