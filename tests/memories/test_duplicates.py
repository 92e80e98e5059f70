"""The same memory or the same request once more, also at once: one memory, and one answer."""

import asyncio
from datetime import timedelta

import pytest

from relayer.errors import Conflict, NotFound
from relayer.record import Draft
from tests.chains import assert_chain_holds
from tests.services import COUNT, OTHER, TEAM, Bench
from tests.talking import change


class TestDuplicates:
    async def test_exact_duplicate_is_stored_once(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        [first] = await bench.remember(caller, "Anna prefers tea.")
        [again] = await bench.remember(caller, "  Anna  prefers\ntea. ")
        assert (again.id, again.duplicate) == (first.id, True)
        assert await bench.value(COUNT) == 1

    async def test_case_makes_another_memory(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "The file is README.", "The file is Readme.")
        assert await bench.value(COUNT) == 2

    async def test_one_bulk_stores_equal_items_once_and_in_order(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        texts = ["one apple", "two pears", "one apple", "three plums", "two pears"]
        items = await bench.remember(caller, *texts)
        assert [i.duplicate for i in items] == [False, False, True, False, True]
        assert (items[0].id, items[1].id) == (items[2].id, items[4].id)
        newest = await bench.services.memory.newest(caller, [TEAM], limit=10)
        assert [(m.text, m.seq) for m in newest] == [
            ("three plums", 3),
            ("two pears", 2),
            ("one apple", 1),
        ]

    async def test_ten_parallel_writers_store_one_memory(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        results = await asyncio.gather(
            *(bench.remember(caller, "Anna prefers tea.") for _ in range(10))
        )
        assert len({items[0].id for items in results}) == 1
        assert sum(not items[0].duplicate for items in results) == 1
        assert await bench.value(COUNT) == 1
        await assert_chain_holds(bench, caller.access.account)

    async def test_scope_kind_and_event_time_make_other_memories(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        text = "Anna prefers tea."
        now = bench.clock()
        await bench.remember(caller, text)
        for members in (
            {"namespace": OTHER},
            {"kind": "preference"},
            {"event_time": now},
            {"event_time": now + timedelta(seconds=1)},
        ):
            [item] = await bench.remember(caller, text, **members)
            assert not item.duplicate
        assert await bench.value(COUNT) == 5

    async def test_equal_texts_of_two_accounts_are_two_lives(self, bench: Bench) -> None:
        one = await bench.caller(await bench.account())
        two = await bench.caller(await bench.account())
        [mine] = await bench.remember(one, "Anna prefers tea.")
        [theirs] = await bench.remember(two, "Anna prefers tea.")
        assert (mine.id != theirs.id, theirs.duplicate) == (True, False)
        assert await bench.value("SELECT count(DISTINCT fingerprint) FROM memories") == 2
        await bench.services.memory.forget(one.access, mine.id)
        assert (await bench.services.memory.get(two, theirs.id)).text == "Anna prefers tea."

    async def test_said_again_for_longer_it_lives_longer(self, bench: Bench) -> None:
        """An acknowledged write must not vanish with an equal one that was to be short-lived."""
        caller = await bench.caller(await bench.account())
        until = bench.clock() + timedelta(hours=1)
        [short] = await bench.remember(caller, "Anna prefers tea.", expires_at=until)
        [longer] = await bench.remember(caller, "Anna prefers tea.")
        assert (longer.id, longer.duplicate) == (short.id, True)
        [shorter] = await bench.remember(caller, "Anna prefers tea.", expires_at=until)
        assert (shorter.id, shorter.duplicate) == (longer.id, True)
        bench.clock.advance(7200)
        assert await bench.texts(caller, "tea") == ["Anna prefers tea."]
        assert await bench.value("SELECT count(*) FROM tombstones") == 0
        await assert_chain_holds(bench, caller.access.account)

    async def test_said_twice_in_one_bulk_it_lives_as_long_as_the_longer(
        self, bench: Bench
    ) -> None:
        caller = await bench.caller(await bench.account())
        soon, later = (bench.clock() + timedelta(minutes=n) for n in (1, 9))
        for text, ends, wanted in (
            ("Anna prefers tea.", [soon, later], later),
            ("Anna prefers cocoa.", [soon, later, None, soon], None),
            ("Anna prefers milk.", [None, soon], None),
        ):
            drafts = [Draft(text=text, namespace=TEAM, expires_at=end) for end in ends]
            done = await bench.stored(caller, drafts)
            [memory_id] = {item.id for item in done.items}
            assert [item.duplicate for item in done.items] == [n > 0 for n in range(len(ends))]
            assert (await bench.services.memory.get(caller, memory_id)).expires_at == wanted

    async def test_an_expired_memory_said_again_is_a_new_one(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        soon = bench.clock() + timedelta(hours=1)
        [first] = await bench.remember(caller, "The code is 4471.", expires_at=soon)
        bench.clock.advance(3600)
        assert await bench.texts(caller, "4471") == []
        [again] = await bench.remember(caller, "The code is 4471.")
        assert (again.duplicate, again.id != first.id) == (False, True)
        assert await bench.texts(caller, "4471") == ["The code is 4471."]
        await assert_chain_holds(bench, caller.access.account)

    async def test_a_superseded_memory_said_again_is_a_new_one(self, bench: Bench) -> None:
        """Who went back to Berlin says so in the words of before; what was stays history."""
        caller = await bench.caller(await bench.account())
        [old, new] = await bench.remember(caller, "Anna lives in Berlin.", "Anna lives in Rome.")
        await change(bench, caller, old.id, superseded_by=new.id)
        assert await bench.texts(caller, "Anna lives") == ["Anna lives in Rome."]
        [again] = await bench.remember(caller, "Anna lives in Berlin.")
        assert (again.duplicate, again.id != old.id) == (False, True)
        assert set(await bench.texts(caller, "Anna lives")) == {
            "Anna lives in Berlin.",
            "Anna lives in Rome.",
        }
        assert (await bench.services.memory.get(caller, old.id)).state.superseded_by == new.id
        with pytest.raises(Conflict) as refused:
            await change(bench, caller, old.id, superseded_by=None)
        assert refused.value.code == "memory.duplicate"
        [once_more] = await bench.remember(caller, "Anna lives in Berlin.")
        assert (once_more.id, once_more.duplicate) == (again.id, True)
        await assert_chain_holds(bench, caller.access.account)


class TestIdempotency:
    async def test_same_key_again_answers_the_same_memory(self, bench: Bench) -> None:
        """capability 1.23: one idempotency key stores one memory."""
        caller = await bench.caller(await bench.account())
        [first] = await bench.remember(caller, "Anna prefers tea.", idempotency_key="k")
        [again] = await bench.remember(caller, "Anna prefers tea.", idempotency_key="k")
        assert (again.id, again.duplicate, again.status) == (first.id, True, "uploaded")
        assert await bench.value("SELECT count(*) FROM idempotency") == 1

    async def test_same_key_with_another_text_conflicts(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "Anna prefers tea.", idempotency_key="k")
        with pytest.raises(Conflict) as caught:
            await bench.remember(caller, "Anna prefers coffee.", idempotency_key="k")
        assert caught.value.code == "idempotency.conflict"
        assert await bench.value(COUNT) == 1

    async def test_ten_parallel_requests_with_one_key_store_one(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        results = await asyncio.gather(
            *(bench.remember(caller, "Anna prefers tea.", idempotency_key="k") for _ in range(10))
        )
        assert len({items[0].id for items in results}) == 1
        assert await bench.value(COUNT) == 1

    async def test_parallel_texts_under_one_key_leave_one_winner(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        results = await asyncio.gather(
            *(bench.remember(caller, f"Text {n}.", idempotency_key="k") for n in range(6)),
            return_exceptions=True,
        )
        assert sum(isinstance(r, Conflict) for r in results) == 5
        assert await bench.value(COUNT) == 1

    async def test_key_counts_per_writer_route_and_namespace(self, bench: Bench) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        agent = await bench.caller(await bench.key(founder, TEAM))
        await bench.remember(caller, "one apple", idempotency_key="k")
        await bench.remember(agent, "two pears", idempotency_key="k")
        await bench.remember(caller, "three plums", idempotency_key="k", namespace=OTHER)
        draft = Draft(text="four figs", namespace=TEAM, idempotency_key="k")
        await bench.services.intake.remember(caller, [draft], route="another")
        assert await bench.value(COUNT) == 4

    async def test_key_of_a_known_fact_is_kept_too(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        [first] = await bench.remember(caller, "Anna prefers tea.")
        [second] = await bench.remember(caller, "Anna prefers tea.", idempotency_key="k")
        assert second.id == first.id
        with pytest.raises(Conflict):
            await bench.remember(caller, "Anna prefers milk.", idempotency_key="k")

    async def test_late_retry_after_erasure_does_not_resurrect(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        [first] = await bench.remember(caller, "Anna prefers tea.", idempotency_key="k")
        await bench.services.memory.forget(caller.access, first.id)
        [again] = await bench.remember(caller, "Anna prefers tea.", idempotency_key="k")
        assert (again.id, again.duplicate) == (first.id, True)
        assert await bench.value(COUNT) == 0
        with pytest.raises(NotFound):
            await bench.services.memory.get(caller, again.id)
