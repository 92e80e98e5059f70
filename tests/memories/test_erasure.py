"""What is forgotten is gone with everything that still says it, and nothing brings it back."""

import asyncio
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relayer.errors import NotAllowed, NotFound
from relayer.journal.states import Change
from relayer.memories.deletion import Filter
from relayer.memories.eraser import EXPIRE, Erasure
from relayer.memories.opener import Caller
from relayer.memories.revisions import Edit
from relayer.record import Draft
from relayer.sealed import envelope
from relayer.sealed.keys import Namespace
from relayer.sealed.receipts import open_receipt
from tests.conftest import BenchMaker
from tests.erasing import LEFT, holds, keep_turn, link, living
from tests.services import OTHER, TEAM, Bench

ABSENT = uuid.uuid4()


async def caller_of(bench: Bench, custody: str, *namespaces: Namespace) -> Caller:
    founder = await bench.account(custody)
    return await bench.unlocked(founder, *(namespaces or (TEAM,)))


class TestOne:
    async def test_nothing_is_left_of_it(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        stored = await hybrid.remember(caller, "Anna prefers tea.", tags=("drinks",), source="chat")
        await hybrid.embed(caller, stored)
        [blob] = await hybrid.sql("SELECT blob_id FROM memories")
        assert await hybrid.value(LEFT) > 0
        done = await hybrid.services.deletion.forget(caller.access, stored[0].id)
        assert (done.erased, done.pending, done.ids) == (1, False, [stored[0].id])
        assert await hybrid.value(LEFT) == 0
        assert await hybrid.sql("SELECT 1 FROM blobs WHERE blob_id = $1", blob["blob_id"]) == []
        [stone] = await hybrid.sql("SELECT memory_id, blob_ids, namespace_id FROM tombstones")
        assert tuple(stone) == (stored[0].id, [blob["blob_id"]], 1)
        await holds(hybrid, caller)

    async def test_its_turn_goes_too_and_other_memories_of_that_turn_stay(
        self, bench: Bench
    ) -> None:
        caller = await bench.caller(await bench.account())
        one, two = await bench.remember(caller, "Anna prefers tea.", "Ben prefers milk.")
        turn = await keep_turn(bench, caller, "Anna: tea, please. Ben: milk for me.")
        for memory in (one, two):
            await link(bench, caller, memory.id, "turn", turn)
        done = await bench.services.deletion.forget(caller.access, one.id)
        assert set(done.ids) == {one.id, turn}
        assert await bench.value("SELECT count(*) FROM episodes") == 0
        assert await bench.value("SELECT count(*) FROM links") == 0
        assert await living(bench) == {two.id}
        stones = {r["memory_id"] for r in await bench.sql("SELECT memory_id FROM tombstones")}
        assert stones == {one.id, turn}
        await holds(bench, caller)

    async def test_summaries_of_it_go_too_and_their_summaries(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        source, other = await bench.remember(caller, "Anna prefers tea.", "Ben sells cups.")
        summary, whole = await bench.remember(
            caller, "Anna: tea. Ben: cups.", "Both.", kind="summary"
        )
        await link(bench, caller, summary.id, "source", source.id)
        await link(bench, caller, summary.id, "source", other.id)
        await link(bench, caller, whole.id, "source", summary.id)
        done = await bench.services.deletion.forget(caller.access, source.id)
        assert set(done.ids) == {source.id, summary.id, whole.id}
        assert await living(bench) == {other.id}
        await holds(bench, caller)

    async def test_forgetting_a_summary_leaves_its_sources(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        source, summary = await bench.remember(caller, "Anna prefers tea.", "Anna: tea.")
        await link(bench, caller, summary.id, "source", source.id)
        await bench.services.deletion.forget(caller.access, summary.id)
        assert await living(bench) == {source.id}

    async def test_what_was_merged_into_it_goes_and_what_it_contradicts_stays(
        self, bench: Bench
    ) -> None:
        caller = await bench.caller(await bench.account())
        kept, merged, older = await bench.remember(
            caller, "Anna prefers tea.", "Anna does prefer tea.", "Anna prefers milk."
        )
        await link(bench, caller, kept.id, "merged", merged.id)
        await link(bench, caller, kept.id, "contradicts", older.id)
        superseded = Change(superseded_by=kept.id)
        await bench.services.state_changer.set_state(caller.access, merged.id, superseded)
        await bench.services.deletion.forget(caller.access, kept.id)
        assert await living(bench) == {older.id}
        await holds(bench, caller)

    async def test_twice_is_no_failure_and_no_second_receipt(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        first = await bench.services.deletion.forget(caller.access, stored.id)
        again = await bench.services.deletion.forget(caller.access, stored.id)
        assert (first.fates, again.fates) == (["erased"], ["already_erased"])
        assert again.receipts == []
        await holds(bench, caller)

    async def test_who_may_not_write_is_told_no_more_than_of_living_ones(
        self, bench: Bench
    ) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        elsewhere = await bench.caller(await bench.key(founder, OTHER))
        reader = await bench.caller(await bench.key(founder, TEAM, role="reader"))
        stranger = await bench.caller(await bench.account())
        gone, there = await bench.remember(caller, "Anna prefers tea.", "Ben sells cups.")
        await bench.services.deletion.forget(caller.access, gone.id)
        for memory in (gone, there):
            for nobody in (elsewhere, stranger):
                with pytest.raises(NotFound):
                    await bench.services.deletion.forget(nobody.access, memory.id)
            with pytest.raises(NotAllowed):
                await bench.services.deletion.forget(reader.access, memory.id)
        with pytest.raises(NotFound):
            await bench.services.deletion.forget(caller.access, ABSENT)
        assert await living(bench) == {there.id}

    async def test_two_at_once_erase_it_once(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        both = await asyncio.gather(
            *(bench.services.deletion.forget(caller.access, stored.id) for _ in range(2))
        )
        assert sorted(str(done.fates) for done in both) == ["['already_erased']", "['erased']"]
        assert sum(len(done.receipts) for done in both) == 1
        await holds(bench, caller)

    async def test_more_revisions_than_one_receipt_holds(self, bench: Bench) -> None:
        """A receipt is bounded; each names what it erased."""
        caller = await bench.caller(await bench.account())
        for n in range(30):
            await bench.remember(caller, *(f"Note {n}.{i} of many." for i in range(20)))
        ids = sorted(await living(bench))
        done: Erasure = await bench.services.eraser.erase(caller.access, [TEAM], ids)
        assert len(done.ids) == 600
        named = [open_receipt(r, bench.storage.identity.public_key) for r in done.receipts]
        assert sorted(len(r.items) for r in named) == [100, 500]
        assert {i.memory for r in named for i in r.items} == set(ids)
        assert await bench.value(LEFT) == 0
        await holds(bench, caller)


class TestIds:
    async def test_each_has_its_own_fate(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        stranger = await bench.caller(await bench.account())
        one, two = await bench.remember(caller, "Anna prefers tea.", "Ben sells cups.")
        [foreign] = await bench.remember(stranger, "Anna prefers tea.")
        await bench.services.deletion.forget(caller.access, two.id)
        ids = [one.id, ABSENT, two.id, foreign.id, one.id]
        dry = await bench.services.deletion.forget_ids(caller.access, ids, dry_run=True)
        assert dry.fates == ["matched", "not_found", "already_erased", "not_found", "matched"]
        assert (dry.matched, dry.erased) == (1, 0)
        done = await bench.services.deletion.forget_ids(caller.access, ids)
        assert done.fates == ["erased", "not_found", "already_erased", "not_found", "erased"]
        assert (done.matched, done.erased, len(done.receipts)) == (1, 1, 1)
        assert await living(bench) == {foreign.id}

    async def test_what_was_erased_elsewhere_was_never_there(self, bench: Bench) -> None:
        """A key without rights in a namespace learns of nothing that was in it."""
        founder = await bench.account()
        caller = await bench.caller(founder)
        [erased] = await bench.remember(caller, "Anna prefers tea.", namespace=OTHER)
        [living] = await bench.remember(caller, "Ben sells cups.", namespace=OTHER)
        await bench.services.deletion.forget(caller.access, erased.id)
        agent = await bench.caller(await bench.key(founder, TEAM))
        for memory_id in (erased.id, living.id, ABSENT):
            done = await bench.services.deletion.forget_ids(agent.access, [memory_id])
            assert done.fates == ["not_found"]
        reader = await bench.caller(await bench.key(founder, OTHER, role="reader"))
        with pytest.raises(NotAllowed):
            await bench.services.deletion.forget_ids(reader.access, [erased.id])

    async def test_one_that_may_only_be_read_keeps_all(self, bench: Bench) -> None:
        founder = await bench.account()
        owner = await bench.caller(founder)
        agent = await bench.key(founder, TEAM)
        caller = await bench.caller(agent)
        [own] = await bench.remember(caller, "Anna prefers tea.")
        [other] = await bench.remember(owner, "Ben sells cups.", namespace=OTHER)
        readers = await bench.caller(await bench.key(founder, TEAM, OTHER, role="reader"))
        with pytest.raises(NotAllowed):
            await bench.services.deletion.forget_ids(readers.access, [own.id, other.id])
        done = await bench.services.deletion.forget_ids(caller.access, [own.id, other.id])
        assert done.fates == ["erased", "not_found"]
        assert await living(bench) == {other.id}


FILTERS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "all": ({"state": "all"}, {"tea", "cups", "roof", "gone", "wait", "no"}),
    "active": ({}, {"tea", "cups", "roof"}),
    "kind": ({"kind": "preference"}, {"tea"}),
    "another kind": ({"kind": "event"}, set()),
    "tags": ({"tags": ["drinks"]}, {"tea", "cups"}),
    "all of the tags": ({"tags": ["drinks", "trade"]}, {"cups"}),
    "no such tag": ({"tags": ["drink"]}, set()),
    "source": ({"source": "chat"}, {"tea", "roof"}),
    "source and tag": ({"source": "chat", "tags": ["drinks"]}, {"tea"}),
    "a tag's name as a source": ({"source": "drinks"}, set()),
    "after": ({"after": 1}, {"roof"}),
    "before": ({"before": 1}, {"tea", "cups"}),
    "pinned": ({"pinned": True}, {"cups"}),
    "not pinned": ({"pinned": False}, {"tea", "roof"}),
    "superseded": ({"state": "superseded"}, {"gone"}),
    "waiting": ({"state": "pending_review"}, {"wait"}),
    "rejected": ({"state": "rejected"}, {"no"}),
    "another writer": ({"writer": bytes(32)}, set()),
}


class TestFilter:
    async def fill(self, bench: Bench, caller: Caller) -> dict[str, uuid.UUID]:
        """One memory of everything a filter tells apart."""
        day = bench.clock() + timedelta(days=1)
        said = {
            "tea": {"kind": "preference", "tags": ("drinks",), "source": "chat"},
            "cups": {"tags": ("drinks", "trade")},
            "roof": {"source": "chat", "event_time": day},
            "gone": {}, "wait": {}, "no": {},
        }  # fmt: skip
        ids = {}
        for name, members in said.items():
            [stored] = await bench.remember(caller, f"About {name}.", **members)  # type: ignore[arg-type]
            ids[name] = stored.id
        for name, change in {
            "cups": "pinned = true", "gone": "superseded_at = now()", "wait": "review = 'pending'",
            "no": "review = 'rejected'",
        }.items():  # fmt: skip
            await bench.sql(f"UPDATE memories SET {change} WHERE memory_id = $1", ids[name])
        return ids

    @pytest.mark.parametrize("custody", ["managed", "sealed"])
    async def test_what_fits_is_erased(self, bench: Bench, custody: str) -> None:
        """Counted first by a dry run, which erases nothing."""
        caller = await caller_of(bench, custody, TEAM, OTHER)
        for name, (narrowing, wanted) in FILTERS.items():
            ids = await self.fill(bench, caller)
            [elsewhere] = await bench.remember(caller, "About tea.", namespace=OTHER)
            times: dict[str, Any] = {
                k: bench.clock() + timedelta(hours=v) if k in ("after", "before") else v
                for k, v in narrowing.items()
            }
            chosen = Filter(namespace=TEAM, **times)
            dry = await bench.services.deletion.forget_matching(caller, chosen, dry_run=True)
            assert {n for n, i in ids.items() if i in dry.ids} == wanted, name
            assert (dry.matched, dry.erased) == (len(wanted), 0), name
            assert await living(bench) == {*ids.values(), elsewhere.id}, name
            done = await bench.services.deletion.forget_matching(caller, chosen)
            assert (done.matched, done.erased, done.more) == (len(wanted), len(wanted), False), name
            left = {i for n, i in ids.items() if n not in wanted}
            assert await living(bench) == {*left, elsewhere.id}, name
            assert len(done.receipts) == bool(wanted), name
            await bench.services.deletion.forget_namespace(caller.access, TEAM)
            await bench.services.deletion.forget_namespace(caller.access, OTHER)
        await holds(bench, caller)

    async def test_words_are_looked_for_with_keys_only(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        caller = await bench.unlocked(founder, TEAM)
        await bench.remember(caller, "Anna prefers tea.", tags=("drinks",), kind="preference")
        bare = await bench.caller(founder)
        by_tag = Filter(namespace=TEAM, tags=("drinks",))
        for narrowed in (by_tag, Filter(namespace=TEAM, source="chat")):
            with pytest.raises(NotAllowed) as caught:
                await bench.services.deletion.forget_matching(bare, narrowed)
            assert caught.value.code == "unlock_required"
        chosen = Filter(namespace=TEAM, kind="preference")
        assert (await bench.services.deletion.forget_matching(bare, chosen)).erased == 1

    async def test_a_key_of_an_epoch_that_is_missing_hides_nothing(self, bench: Bench) -> None:
        caller = await caller_of(bench, "sealed")
        await bench.remember(caller, "Anna prefers tea.", tags=("drinks",))
        await bench.sql("UPDATE memories SET epoch = 2")
        await bench.sql("UPDATE namespace_keys SET epoch = 2")
        with pytest.raises(NotAllowed) as caught:
            await bench.services.deletion.forget_matching(
                caller, Filter(namespace=TEAM, tags=("drinks",))
            )
        assert caught.value.code == "unlock_required"

    async def test_readers_and_strangers_erase_nothing(self, bench: Bench) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        reader = await bench.caller(await bench.key(founder, TEAM, role="reader"))
        other = await bench.caller(await bench.key(founder, OTHER))
        for who in (reader, other):
            with pytest.raises(NotAllowed):
                await bench.services.deletion.forget_matching(who, Filter(namespace=TEAM))
            with pytest.raises(NotAllowed):
                await bench.services.deletion.forget_namespace(who.access, TEAM)
        stranger = await bench.caller(await bench.account())
        done = await bench.services.deletion.forget_matching(stranger, Filter(namespace=TEAM))
        assert done.matched == done.erased == 0
        assert await living(bench) == {stored.id}

    async def test_a_request_erases_so_many_and_says_there_is_more(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("relayer.memories.deletion.ERASED_MAX", 30)
        monkeypatch.setattr("relayer.memories.deletion.PAGE", 20)
        caller = await bench.caller(await bench.account())
        for n in range(4):
            await bench.remember(caller, *(f"Note {n}.{i} of many." for i in range(20)))
        counts = []
        for more in (True, True, False):
            done = await bench.services.deletion.forget_matching(caller, Filter(namespace=TEAM))
            assert done.more == more
            counts.append((done.matched, done.erased))
        assert counts == [(80, 30), (50, 30), (20, 20)]
        await holds(bench, caller)


class TestNamespace:
    async def test_is_emptied_of_everything_and_unlisted(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        one, _ = await bench.remember(caller, "Anna prefers tea.", "Ben sells cups.")
        [kept] = await bench.remember(caller, "Elsewhere.", namespace=OTHER)
        await keep_turn(bench, caller, "Anna: tea, please.")
        await keep_turn(bench, caller, "Ben: milk.", "pending")
        await bench.sql("UPDATE memories SET superseded_at = now() WHERE memory_id = $1", one.id)
        await bench.services.expiry.keep(caller.access, TEAM, 3600)
        done = await bench.services.deletion.forget_namespace(caller.access, TEAM)
        assert (done.matched, done.erased, done.more) == (4, 4, False)
        assert await living(bench) == {kept.id}
        [row] = await bench.sql("SELECT erased_at, ttl_s FROM namespaces WHERE name = 'team'")
        assert row["erased_at"] is not None
        assert row["ttl_s"] is None
        await holds(bench, caller)
        again = await bench.services.deletion.forget_namespace(caller.access, TEAM)
        assert (again.matched, again.erased, again.receipts) == (0, 0, [])

    async def test_is_founded_anew_by_the_next_write_on_any_replica(self, bench: Bench) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        await bench.remember(caller, "Anna prefers tea.")
        replica = bench.another()
        elsewhere = await replica.caller(founder)
        await replica.texts(elsewhere, "tea")  # its caches know the namespace
        await bench.services.deletion.forget_namespace(caller.access, TEAM)
        assert await replica.texts(elsewhere, "tea") == []
        await replica.remember(elsewhere, "Anna prefers tea.")
        assert await bench.texts(caller, "tea") == ["Anna prefers tea."]
        assert await bench.value("SELECT memory_count FROM namespaces") == 1
        await holds(bench, caller)

    async def test_a_write_at_the_same_time_is_kept_whole_or_gone(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, *(f"Note {n} of many." for n in range(20)))

        async def write() -> None:
            for n in range(10):
                await bench.remember(caller, f"Late note {n}.")

        await asyncio.gather(write(), bench.services.deletion.forget_namespace(caller.access, TEAM))
        left = len(await living(bench))
        assert await bench.value("SELECT memory_count FROM namespaces") == left
        await holds(bench, caller)

    async def test_one_that_never_was_is_empty(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        assert (await bench.services.deletion.forget_namespace(caller.access, TEAM)).matched == 0


async def edit(bench: Bench, caller: Caller, memory: uuid.UUID, text: str) -> None:
    await bench.services.reviser.edit(caller, memory, Edit(changes={"text": text}))


class TestRevisions:
    @pytest.mark.parametrize("custody", ["managed", "sealed"])
    async def test_all_of_them_go(
        self, make_bench: BenchMaker, custody: str, embedder: Any
    ) -> None:
        bench = make_bench(embedder=embedder)
        caller = await caller_of(bench, custody)
        [stored] = await bench.remember(caller, "Anna prefers tea.", tags=("drinks",))
        for text in ("Anna prefers milk.", "Anna prefers water."):
            await bench.embed(caller, [stored])
            bench.clock.advance(60)
            await edit(bench, caller, stored.id, text)
        blobs = {r["blob_id"] for r in await bench.sql("SELECT blob_id FROM memories")}
        assert len(blobs) == 3
        assert await bench.value("SELECT memory_count FROM accounts") == 1
        done = await bench.services.deletion.forget(caller.access, stored.id)
        assert (done.erased, done.ids) == (1, [stored.id])
        assert await bench.value(LEFT) == 0
        [receipt] = [open_receipt(r, bench.storage.identity.public_key) for r in done.receipts]
        assert sorted((i.memory, i.revision) for i in receipt.items) == [
            (stored.id, revision) for revision in (1, 2, 3)
        ]
        assert {envelope.blob_hash(i.blob_id) for i in receipt.items} == blobs
        [stone] = await bench.sql("SELECT memory_id, blob_ids FROM tombstones")
        assert (stone["memory_id"], set(stone["blob_ids"])) == (stored.id, blobs)
        await holds(bench, caller)

    async def test_an_earlier_one_has_no_id_to_forget(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        await edit(bench, caller, stored.id, "Anna prefers milk.")
        row = await bench.value("SELECT memory_id FROM memories WHERE revision_of IS NOT NULL")
        with pytest.raises(NotFound):
            await bench.services.deletion.forget(caller.access, row)
        assert await bench.value("SELECT count(*) FROM memories") == 2

    async def test_an_edit_at_the_same_time(self, bench: Bench) -> None:
        """Either comes first; nothing is left either way."""
        caller = await bench.caller(await bench.account())
        for n in range(6):
            [stored] = await bench.remember(caller, f"Note {n}.")
            edited, forgotten = await asyncio.gather(
                edit(bench, caller, stored.id, f"Edited note {n}."),
                bench.services.deletion.forget(caller.access, stored.id),
                return_exceptions=True,
            )
            assert edited is None or isinstance(edited, NotFound)
            assert not isinstance(forgotten, BaseException)
        assert await bench.value(LEFT) == 0
        await holds(bench, caller)

    async def test_what_was_edited_away_may_be_said_again(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        await edit(bench, caller, stored.id, "Anna prefers milk.")
        await bench.services.deletion.forget(caller.access, stored.id)
        [tea] = await bench.remember(caller, "Anna prefers tea.")
        assert tea.id != stored.id
        await edit(bench, caller, tea.id, "Anna prefers milk.")
        await holds(bench, caller)

    async def test_they_expire_together(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        before = bench.clock()
        bench.clock.advance(60)
        await edit(bench, caller, stored.id, "Anna prefers milk.")
        bench.clock.advance(60)
        assert await bench.texts(caller, "tea", as_of=before) == ["Anna prefers tea."]
        await bench.services.expiry.keep(caller.access, TEAM, 3600)
        bench.clock.advance(3600)
        assert await bench.texts(caller, "tea milk") == []
        assert await bench.texts(caller, "tea", as_of=before) == []
        await bench.services.expiry.expire()
        assert await bench.value(LEFT) == 0
        await holds(bench, caller)

    async def test_a_pin_keeps_them_all(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        await bench.services.expiry.keep(caller.access, TEAM, 3600)
        await edit(bench, caller, stored.id, "Anna prefers milk.")
        await bench.services.state_changer.set_state(caller.access, stored.id, {"pinned": True})
        bench.clock.advance(7200)
        await bench.services.expiry.expire()
        assert await bench.texts(caller, "milk") == ["Anna prefers milk."]
        assert await bench.value("SELECT count(*) FROM memories") == 2
        await bench.services.state_changer.set_state(caller.access, stored.id, {"pinned": False})
        assert await bench.texts(caller, "milk") == []
        await bench.services.expiry.expire()
        assert await bench.value(LEFT) == 0


class TestNothingComesBack:
    async def test_a_late_vector(self, hybrid: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """The embedding begins before, and is stored after."""
        caller = await hybrid.caller(await hybrid.account())
        [stored] = await hybrid.remember(caller, "Anna prefers tea.")
        embedder = hybrid.services.indexer._embedder
        assert embedder is not None
        inner, begun, go = embedder.embed, asyncio.Event(), asyncio.Event()

        async def slow(*arguments: Any, **named: Any) -> Any:
            begun.set()
            await go.wait()
            return await inner(*arguments, **named)

        with monkeypatch.context() as patch:
            patch.setattr(embedder, "embed", slow)
            late = asyncio.create_task(hybrid.embed(caller, [stored]))
            await begun.wait()
            await hybrid.services.deletion.forget(caller.access, stored.id)
            go.set()
            await late
        assert await hybrid.value(LEFT) == 0

    async def test_a_retried_request(self, bench: Bench) -> None:
        """Its idempotency key outlives the memory; it is not stored a second time."""
        caller = await bench.caller(await bench.account())
        [stored] = await bench.remember(caller, "Anna prefers tea.", idempotency_key="once")
        await bench.services.deletion.forget(caller.access, stored.id)
        [retried] = await bench.remember(caller, "Anna prefers tea.", idempotency_key="once")
        assert (retried.id, retried.duplicate) == (stored.id, True)
        assert await living(bench) == set()

    async def test_saying_it_again_is_a_new_memory(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        await bench.services.deletion.forget(caller.access, stored.id)
        [again] = await bench.remember(caller, "Anna prefers tea.")
        assert again.id != stored.id
        assert not again.duplicate
        assert await bench.texts(caller, "tea") == ["Anna prefers tea."]
        await holds(bench, caller)

    async def test_equal_bytes_of_another_account_stay(self, bench: Bench) -> None:
        one = await bench.caller(await bench.account())
        two = await bench.caller(await bench.account())
        upload = np.ones(6, np.float32)
        for caller in (one, two):
            await bench.services.manual.remember(caller, TEAM, b"the same bytes", upload)
        [mine] = await bench.sql(
            "SELECT memory_id FROM memories WHERE account_id = $1", one.access.account
        )
        await bench.services.deletion.forget(one.access, mine["memory_id"])
        [(_, distance)] = await bench.services.manual.recall(two, TEAM, upload, 5)
        assert distance < 0.01
        await holds(bench, two)

    async def test_an_expiry_that_was_put_off_in_time(self, bench: Bench) -> None:
        """The job looked before, and erases after."""
        caller = await bench.caller(await bench.account())
        until = bench.clock() + timedelta(minutes=1)
        [stored] = await bench.remember(caller, "Anna prefers tea.", expires_at=until)
        bench.clock.advance(120)
        await bench.sql("UPDATE memories SET expires_at = $1", bench.clock() + timedelta(days=1))
        relayer = bench.storage.ledger.unasked(caller.access.account)
        done = await bench.services.eraser.erase(relayer, (), [stored.id], op=EXPIRE)
        assert done.ids == []
        assert await living(bench) == {stored.id}

    async def test_outside_the_store_confirms(self, make_bench: BenchMaker, tmp_path: Path) -> None:
        bench = make_bench(blob_store=f"file:{tmp_path / 'blobs'}")
        caller = await bench.caller(await bench.account())
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        [row] = await bench.sql("SELECT blob_id FROM memories")
        name = next(p for p in (tmp_path / "blobs").rglob("*") if p.name[:2] and _is(p, row))
        done = await bench.services.deletion.forget(caller.access, stored.id)
        assert done.pending
        again = await bench.services.deletion.forget(caller.access, stored.id)
        assert again.pending  # the retry knows as much
        await bench.storage.outbox.empty()
        assert not name.exists()
        assert not (await bench.services.deletion.forget(caller.access, stored.id)).pending
        await holds(bench, caller)


def _is(path: Path, row: Any) -> bool:
    return (
        path.is_file()
        and envelope.blob_id(path.read_bytes()) == path.name
        and (envelope.blob_hash(path.name) == row["blob_id"])
    )


async def test_a_draft_of_another_namespace_is_untouched(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    await bench.stored(caller, [Draft(text="Anna prefers tea.", namespace=TEAM)])
    await bench.stored(caller, [Draft(text="Anna prefers tea.", namespace=OTHER)])
    await bench.services.deletion.forget_namespace(caller.access, OTHER)
    assert await bench.texts(caller, "tea") == ["Anna prefers tea."]
