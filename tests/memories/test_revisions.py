"""Editing: what a memory says from now on, what it said before, and who may change it."""

import asyncio
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from relayer.database import vectors as vector_rows
from relayer.errors import (
    Conflict,
    Corrupted,
    NotFound,
    QuotaExceeded,
)
from relayer.journal.states import Change
from relayer.memories.revisions import Edited
from relayer.memory_index.index import MemoryIndex
from relayer.record import decode, first_stored_at, revision_row_id
from relayer.sealed import envelope
from relayer.sealed.receipts import open_receipt
from relayer.settings import Limits
from relayer.upkeep.check import check
from tests.chains import assert_chain_holds
from tests.conftest import BenchMaker
from tests.editing import COFFEE, CUSTODIES, TEA, edit, refused, writer
from tests.racing import WAITING, race
from tests.services import OTHER, TEAM, Bench


class TestEdit:
    @CUSTODIES
    async def test_what_it_said_leaves_recall_and_stays_history(
        self, hybrid: Bench, custody: str
    ) -> None:
        caller = await writer(hybrid, custody)
        [stored] = await hybrid.remember(caller, TEA)
        await hybrid.embed(caller, [stored])
        between = hybrid.clock.now + timedelta(minutes=1)
        hybrid.clock.advance(120)
        done = await edit(hybrid, caller, stored.id, text=COFFEE)
        assert (done.id, done.revision, done.status) == (stored.id, 2, "uploaded")
        await hybrid.embed(caller, [stored])
        for mode in ("keyword", "vector", "hybrid"):
            found = await hybrid.texts(caller, "What does Anna prefer to drink?", mode=mode)
            assert found == [COFFEE], mode
            then = await hybrid.texts(
                caller, "What does Anna prefer to drink?", mode=mode, as_of=between
            )
            assert then == [TEA], mode
        history = await hybrid.services.histories.history(caller, stored.id)
        assert [(m.id, m.revision, m.text) for m in history.revisions] == [
            (stored.id, 2, COFFEE),
            (stored.id, 1, TEA),
        ]
        now, before = history.revisions
        assert (before.state.superseded_at, before.state.superseded_by) == (now.stored_at, None)
        assert now.created_at == before.created_at == before.stored_at < now.stored_at
        assert now.seq == stored_seq(before, now)
        await assert_chain_holds(hybrid, caller.access.account)

    @CUSTODIES
    async def test_every_member_and_only_what_is_named(self, bench: Bench, custody: str) -> None:
        caller = await writer(bench, custody)
        [stored] = await bench.remember(
            caller, TEA, tags=("drink",), source="mail/1", metadata={"room": "4"}
        )
        moment = bench.clock() - timedelta(days=2)
        await edit(
            bench,
            caller,
            stored.id,
            kind="preference",
            tags=["warm"],
            source=None,
            event_time=moment,
            metadata={"room": "5"},
            importance="vital",
            confidence="low",
        )
        m = await bench.services.memory.get(caller, stored.id)
        assert (m.text, m.kind, list(m.tags), m.source) == (TEA, "preference", ["warm"], None)
        assert (m.event_time, dict(m.metadata)) == (moment, {"room": "5"})
        assert (m.importance, m.confidence, m.revision) == ("vital", "low", 2)
        assert await bench.texts(caller, "tea", tags=["warm"]) == [TEA]
        assert await bench.texts(caller, "tea", tags=["drink"]) == []
        assert await bench.texts(caller, "tea", source="mail/1") == []

    async def test_its_receipt_names_the_new_revision_and_the_record_its_age(
        self, bench: Bench
    ) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        created = bench.clock()
        bench.clock.advance(60)
        done = await edit(bench, caller, stored.id, text=COFFEE)
        assert done.receipt is not None
        receipt = open_receipt(done.receipt, bench.storage.identity.public_key)
        memory = await bench.services.memory.get(caller, stored.id)
        assert (receipt.op, receipt.actor, receipt.namespace) == ("edit", caller.access.key, TEAM)
        assert [(i.memory, i.revision, i.blob_id) for i in receipt.items] == [
            (stored.id, 2, memory.blob_id)
        ]
        blobs = await bench.storage.blobs.get_many(caller.access.account, [memory.blob_id])
        blob = blobs[memory.blob_id]
        assert isinstance(blob, bytes)
        address = envelope.Address(envelope.MEMORY, caller.access.account, stored.id, 2)
        record = envelope.open_envelope(caller.keys.of(TEAM)[0], address, blob)
        assert decode(record)[0].text == COFFEE
        assert first_stored_at(record) == created
        assert (memory.created_at, memory.stored_at) == (created, bench.clock())

    async def test_whoever_edits_is_the_writer_of_that_revision(self, bench: Bench) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        [stored] = await bench.remember(caller, TEA)
        agent = await bench.caller(await bench.key(founder, TEAM))
        await edit(bench, agent, stored.id, text=COFFEE)
        history = await bench.services.histories.history(caller, stored.id)
        assert [m.writer for m in history.revisions] == [agent.access.key, caller.access.key]

    async def test_the_same_again_changes_nothing(self, bench: Bench) -> None:
        caller = await writer(bench)
        expires = bench.clock() + timedelta(days=3)
        [stored] = await bench.remember(caller, TEA, tags=("drink",), expires_at=expires)
        before = await bench.sql("SELECT * FROM memories")
        done = await edit(bench, caller, stored.id, text=TEA, tags=["drink"], expires_at=expires)
        assert (done.revision, done.receipt) == (1, None)
        assert await bench.sql("SELECT * FROM memories") == before
        await assert_chain_holds(bench, caller.access.account)

    async def test_a_secret_is_taken_out_unless_the_account_wants_it(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        secret = "ghp_" + "a1B2" * 9
        done = await edit(bench, caller, stored.id, text=f"The token is {secret} today.")
        assert done.redacted == {"github-token": 1}
        memory = await bench.services.memory.get(caller, stored.id)
        assert secret not in (memory.text or "")

    async def test_what_it_said_may_be_said_again(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        await edit(bench, caller, stored.id, text=COFFEE)
        [again] = await bench.remember(caller, TEA)
        assert (again.duplicate, again.id != stored.id) == (False, True)
        assert sorted(await bench.texts(caller, "Anna prefers")) == sorted([TEA, COFFEE])

    async def test_editing_back_is_a_third_revision(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        await edit(bench, caller, stored.id, text=COFFEE)
        assert (await edit(bench, caller, stored.id, text=TEA)).revision == 3
        assert await bench.texts(caller, "Anna prefers") == [TEA]

    async def test_a_memory_has_one_life(self, bench: Bench) -> None:
        """The text of before expires with the memory, and lives on with it."""
        caller = await writer(bench)
        soon, later = (bench.clock() + timedelta(hours=n) for n in (1, 3))
        [stored] = await bench.remember(caller, TEA, expires_at=soon)
        then = bench.clock()
        bench.clock.advance(60)
        await edit(bench, caller, stored.id, text=COFFEE, expires_at=later)
        bench.clock.advance(2 * 3600)
        assert await bench.texts(caller, "Anna prefers", as_of=then) == [TEA]
        assert (await bench.services.histories.revision(caller, stored.id, 1)).text == TEA
        bench.clock.advance(2 * 3600)
        assert await bench.texts(caller, "Anna prefers", as_of=then) == []
        for asked in (
            bench.services.histories.revision(caller, stored.id, 1),
            bench.services.histories.history(caller, stored.id),
            edit(bench, caller, stored.id, text=TEA),
        ):
            await refused("not_found", asked)

    @CUSTODIES
    async def test_everything_is_counted_and_holds(self, hybrid: Bench, custody: str) -> None:
        caller = await writer(hybrid, custody)
        stored = await hybrid.remember(caller, TEA, "Ben sells cups.")
        await hybrid.embed(caller, stored)
        for text in (COFFEE, "Anna drinks water."):
            await edit(hybrid, caller, stored[0].id, text=text)
        await hybrid.embed(caller, stored)
        report = await check(hybrid.storage)
        assert report.problems == []
        assert report.checked["memories"] == 4

    async def test_in_an_outside_store(self, make_bench: BenchMaker, tmp_path: Path) -> None:
        bench = make_bench(blob_store=f"file:{tmp_path / 'blobs'}")
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        await edit(bench, caller, stored.id, text=COFFEE)
        await bench.storage.outbox.empty()
        bench.clock.advance(3600)
        await bench.storage.outbox.empty()
        history = await bench.services.histories.history(caller, stored.id)
        assert [m.text for m in history.revisions] == [COFFEE, TEA]
        assert await bench.value("SELECT count(*) FROM blob_outbox") == 0


def stored_seq(before: Any, now: Any) -> int:
    """The memory keeps its place; what it was takes a new one."""
    assert before.seq > now.seq
    return int(now.seq)


class TestRefusals:
    async def test_another_revision_than_the_editor_saw(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        await edit(bench, caller, stored.id, text=COFFEE, revision=1)
        for revision in (1, 3):
            await refused(
                "memory.revision", edit(bench, caller, stored.id, text="x y", revision=revision)
            )
        assert await bench.texts(caller, "Anna prefers") == [COFFEE]

    async def test_what_another_memory_says(self, bench: Bench) -> None:
        caller = await writer(bench)
        [tea, coffee] = await bench.remember(caller, TEA, COFFEE)
        with pytest.raises(Conflict, match=str(coffee.id)) as caught:
            await edit(bench, caller, tea.id, text=COFFEE)
        assert caught.value.code == "memory.duplicate"
        assert await bench.value("SELECT count(*) FROM memories") == 2
        # Another kind or namespace is another fact.
        await edit(bench, caller, tea.id, text=COFFEE, kind="preference")

    async def test_what_another_memory_said_until_it_expired(self, bench: Bench) -> None:
        caller = await writer(bench)
        soon = bench.clock() + timedelta(seconds=5)
        [over] = await bench.remember(caller, COFFEE, expires_at=soon)
        [tea] = await bench.remember(caller, TEA)
        await refused("memory.duplicate", edit(bench, caller, tea.id, text=COFFEE))
        bench.clock.advance(5)
        await edit(bench, caller, tea.id, text=COFFEE)
        assert await bench.texts(caller, "Anna prefers") == [COFFEE]
        [stone] = await bench.sql("SELECT memory_id FROM tombstones")
        assert stone["memory_id"] == over.id
        await assert_chain_holds(bench, caller.access.account)

    async def test_strangers_readers_and_the_keyless(self, bench: Bench) -> None:
        founder = await bench.account("sealed")
        caller = await bench.unlocked(founder, TEAM)
        [stored] = await bench.remember(caller, TEA)
        reader = await bench.unlocked(await bench.key(founder, TEAM, role="reader"), TEAM)
        other = await bench.unlocked(await bench.key(founder, OTHER), OTHER)
        stranger = await bench.unlocked(await bench.account("sealed"), TEAM)
        await refused("auth.not_allowed", edit(bench, reader, stored.id, text=COFFEE))
        await refused("not_found", edit(bench, other, stored.id, text=COFFEE))
        await refused("not_found", edit(bench, stranger, stored.id, text=COFFEE))
        await refused("not_found", edit(bench, caller, uuid.uuid4(), text=COFFEE))
        keyless = await bench.caller(founder)
        await refused("unlock_required", edit(bench, keyless, stored.id, text=COFFEE))
        for who in (other, stranger):
            await refused("not_found", bench.services.histories.history(who, stored.id))
            await refused("not_found", bench.services.histories.revision(who, stored.id, 1))
        await refused("unlock_required", bench.services.histories.history(keyless, stored.id))
        assert len((await bench.services.histories.history(reader, stored.id)).revisions) == 1

    async def test_expired_erased_and_superseded_ones(self, bench: Bench) -> None:
        caller = await writer(bench)
        [gone, over, old, new] = await bench.remember(
            caller, "one apple", "two pears", "three plums", "four figs"
        )
        await bench.services.memory.forget(caller.access, gone.id)
        await bench.services.state_changer.set_state(
            caller.access, old.id, {"superseded_by": new.id}
        )
        await edit(bench, caller, over.id, expires_at=bench.clock() + timedelta(seconds=5))
        bench.clock.advance(5)
        for memory, code in ((gone, "not_found"), (over, "not_found"), (old, "memory.superseded")):
            await refused(code, edit(bench, caller, memory.id, text="five dates"))

    async def test_an_earlier_revision_is_no_memory_of_its_own(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        await edit(bench, caller, stored.id, text=COFFEE)
        row = await bench.value("SELECT memory_id FROM memories WHERE revision_of IS NOT NULL")
        assert row == revision_row_id(stored.id, 1)
        await refused("not_found", edit(bench, caller, row, text="x y"))
        await refused("not_found", bench.services.memory.get(caller, row))
        await refused("not_found", bench.services.histories.history(caller, row))
        await refused(
            "not_found",
            bench.services.state_changer.set_state(caller.access, row, {"pinned": True}),
        )
        assert await bench.services.memory.states(caller.access, [row]) == {}
        await refused("not_found", bench.services.histories.revision(caller, stored.id, 3))

    async def test_foreign_ciphertext(self, bench: Bench) -> None:
        caller = await writer(bench)
        import numpy as np

        memory, _ = await bench.services.manual.remember(
            caller, TEAM, b"anything", np.ones(8, np.float32)
        )
        await refused("memory.opaque", edit(bench, caller, memory, text=COFFEE))

    async def test_an_altered_blob(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        await bench.sql("UPDATE blobs SET bytes = set_byte(bytes, 200, get_byte(bytes, 200) # 1)")
        with pytest.raises(Corrupted):
            await edit(bench, caller, stored.id, text=COFFEE)

    async def test_more_than_the_quota(self, make_bench: BenchMaker) -> None:
        """Earlier revisions count, too."""
        bench = make_bench(storage_bytes_max=5_000)
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        used = await bench.value("SELECT storage_bytes + index_bytes FROM accounts")
        with pytest.raises(QuotaExceeded):
            await edit(bench, caller, stored.id, text="long " * 200)
        assert await bench.value("SELECT storage_bytes + index_bytes FROM accounts") == used
        assert await bench.texts(caller, "Anna") == [TEA]

    async def test_more_revisions_than_a_memory_may_have(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        await bench.sql("UPDATE memories SET revision = $1", Limits.revisions_max)
        await refused("memory.revisions", edit(bench, caller, stored.id, text=COFFEE))


class TestRetries:
    async def test_the_same_key_edits_once(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        first = await edit(bench, caller, stored.id, text=COFFEE, revision=1, idempotency_key="k")
        again = await edit(bench, caller, stored.id, text=COFFEE, revision=1, idempotency_key="k")
        assert (first.revision, again.revision, again.receipt) == (2, 2, None)
        await edit(bench, caller, stored.id, text=TEA)
        late = await edit(bench, caller, stored.id, text=COFFEE, revision=1, idempotency_key="k")
        assert (late.revision, late.receipt) == (3, None)
        assert await bench.texts(caller, "Anna prefers") == [TEA]

    async def test_metadata_in_another_order_say_the_same(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        for metadata in ({"a": "1", "b": "2"}, {"b": "2", "a": "1"}):
            done = await edit(bench, caller, stored.id, metadata=metadata, idempotency_key="k")
            assert done.revision == 2

    async def test_the_same_key_for_something_else_is_refused(self, bench: Bench) -> None:
        caller = await writer(bench)
        [one, two] = await bench.remember(caller, TEA, "Ben sells cups.")
        await edit(bench, caller, one.id, text=COFFEE, idempotency_key="k")
        for memory, change in ((one, {"text": "x y"}), (one, {"kind": "event"}), (two, {})):
            members = {"text": COFFEE, **change}
            await refused(
                "idempotency.conflict",
                edit(bench, caller, memory.id, **members, idempotency_key="k"),
            )

    @pytest.mark.parametrize("said", [(None, "None"), ("None", None)], ids=str)
    async def test_no_source_is_not_a_source_of_that_name(
        self, bench: Bench, said: tuple[str | None, str | None]
    ) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA, source="chat")
        await edit(bench, caller, stored.id, source=said[0], idempotency_key="k")
        await refused(
            "idempotency.conflict",
            edit(bench, caller, stored.id, source=said[1], idempotency_key="k"),
        )

    async def test_a_key_that_changed_nothing_counts_as_well(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        await edit(bench, caller, stored.id, text=TEA, idempotency_key="k")
        await edit(bench, caller, stored.id, text=COFFEE)
        assert (await edit(bench, caller, stored.id, text=TEA, idempotency_key="k")).revision == 2
        assert await bench.texts(caller, "Anna prefers") == [COFFEE]


class TestRaces:
    async def test_of_two_who_saw_the_same_one_wins(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        results = await asyncio.gather(
            *(edit(bench, caller, stored.id, text=f"version {n}", revision=1) for n in range(4)),
            return_exceptions=True,
        )
        lost = [r for r in results if isinstance(r, Conflict)]
        assert ([r.code for r in lost], len(results) - len(lost)) == (["memory.revision"] * 3, 1)
        assert await bench.value("SELECT count(*) FROM memories") == 2
        await assert_chain_holds(bench, caller.access.account)

    async def test_what_is_said_for_longer_while_it_is_edited_lives_longer(
        self, bench: Bench
    ) -> None:
        caller = await writer(bench)
        until = bench.clock() + timedelta(days=3)
        [stored] = await bench.remember(caller, TEA, expires_at=until)
        again, edited = await race(
            bench,
            caller.access.account,
            bench.remember(caller, TEA),
            edit(bench, caller, stored.id, tags=["drink"]),
        )
        assert ([item.id for item in again], edited.revision) == ([stored.id], 2)
        assert (await bench.services.memory.get(caller, stored.id)).expires_at is None
        await assert_chain_holds(bench, caller.access.account)

    async def test_changes_of_different_members_both_stay(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        await asyncio.gather(
            edit(bench, caller, stored.id, text=COFFEE),
            edit(bench, caller, stored.id, tags=["drink"]),
        )
        memory = await bench.services.memory.get(caller, stored.id)
        assert (memory.text, list(memory.tags), memory.revision) == (COFFEE, ["drink"], 3)

    async def test_of_two_who_give_it_a_successor_one_wins(self, bench: Bench) -> None:
        caller = await writer(bench)
        old, *others = await bench.remember(caller, TEA, COFFEE, "Anna prefers cocoa.")
        first, second = await race(
            bench,
            caller.access.account,
            *(
                bench.another().services.state_changer.set_state(
                    caller.access, old.id, Change(superseded_by=other.id)
                )
                for other in others
            ),
        )
        assert (first[0].superseded_by, second.code) == (others[0].id, "memory.superseded")
        memory = await bench.services.memory.get(caller, old.id)
        assert memory.state.superseded_by == others[0].id

    async def test_between_finding_and_reading_what_it_said(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        then = bench.clock()
        bench.clock.advance(60)
        reading, edits = MemoryIndex.rows, [{"text": COFFEE}]

        async def read_late(index: MemoryIndex, *asked: Any) -> Any:
            while edits:
                await edit(bench, caller, stored.id, **edits.pop())
            return await reading(index, *asked)

        monkeypatch.setattr(MemoryIndex, "rows", read_late)
        assert await bench.texts(caller, "Anna prefers", as_of=then) == [TEA]
        assert await bench.texts(caller, "Anna prefers") == [COFFEE]

    async def test_an_old_vector_never_comes_under_a_new_text(self, hybrid: Bench) -> None:
        """The embedding was under way when the text changed."""
        caller = await writer(hybrid)
        account, indexer = caller.access.account, hybrid.services.indexer
        [stored] = await hybrid.remember(caller, TEA)
        [row] = await vector_rows.due_of(
            hybrid.storage.database,
            account=account,
            memory_ids=[stored.id],
            versions=indexer.versions,
        )
        await edit(hybrid, caller, stored.id, text=COFFEE)
        await indexer._index(account, caller.keys, [row])
        assert await hybrid.value("SELECT count(*) FROM vectors") == 0
        ids = [revision_row_id(stored.id, 1), stored.id]
        await indexer.embed(account, caller.keys, ids)
        assert await hybrid.texts(caller, "coffee", mode="vector") == [COFFEE]
        assert (await check(hybrid.storage)).problems == []

    async def test_the_job_of_an_edit_runs_though_another_waits(self, hybrid: Bench) -> None:
        caller = await writer(hybrid)
        [stored] = await hybrid.remember(caller, TEA)
        await edit(hybrid, caller, stored.id, text=COFFEE)
        async with hybrid.working():
            await hybrid.until("SELECT count(*) FROM vectors", 2)
        assert await hybrid.texts(caller, "hot drinks", mode="vector") == [COFFEE]

    async def test_a_vector_is_kept_where_the_text_is(self, hybrid: Bench) -> None:
        caller = await writer(hybrid)
        [stored] = await hybrid.remember(caller, TEA)
        await hybrid.embed(caller, [stored])
        await edit(hybrid, caller, stored.id, tags=["drink"])
        assert await hybrid.texts(caller, "hot drinks", mode="vector") == [TEA]
        assert (await check(hybrid.storage)).problems == []

    @pytest.mark.parametrize("what", ["edit", "get", "revision"])
    async def test_erased_between_its_row_and_its_blob(self, bench: Bench, what: str) -> None:
        """It is gone, and nothing is said to be damaged."""
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        async with bench.storage.database.transaction() as connection:
            await connection.execute("LOCK TABLE blobs")
            works = {
                "edit": lambda: edit(bench, caller, stored.id, text=COFFEE),
                "get": lambda: bench.services.memory.get(caller, stored.id),
                "revision": lambda: bench.services.histories.revision(caller, stored.id, 1),
            }
            begun = asyncio.ensure_future(works[what]())
            await bench.until(WAITING, 1)
            for table in ("blobs", "postings", "memories"):
                await connection.execute(
                    f"DELETE FROM {table} WHERE account_id = $1", caller.access.account
                )
        with pytest.raises(NotFound):
            await begun

    async def test_erased_meanwhile(self, bench: Bench) -> None:
        caller = await writer(bench)
        for n in range(6):
            [stored] = await bench.remember(caller, f"Anna prefers tea number {n}.")
            done = await asyncio.gather(
                edit(bench, caller, stored.id, text=f"Anna prefers coffee number {n}."),
                bench.services.memory.forget(caller.access, stored.id),
                return_exceptions=True,
            )
            assert isinstance(done[0], Edited | NotFound)
            assert not isinstance(done[1], BaseException)
            assert await bench.texts(caller, "Anna prefers") == []
        assert await bench.value("SELECT count(*) FROM memories") == 0
        assert (await check(bench.storage)).problems == []

    async def test_said_elsewhere_meanwhile(self, bench: Bench) -> None:
        caller = await writer(bench)
        for n in range(4):
            text = f"Anna prefers coffee number {n}."
            [stored] = await bench.remember(caller, f"Anna prefers tea number {n}.")
            done = await asyncio.gather(
                edit(bench, caller, stored.id, text=text),
                bench.remember(caller, text),
                return_exceptions=True,
            )
            assert [e.code for e in done if isinstance(e, Conflict)] in ([], ["memory.duplicate"])
            assert await bench.texts(caller, text, limit=1) == [text]
        assert (await check(bench.storage)).problems == []


class TestIndex:
    async def test_earlier_revisions_are_embedded_anew(self, hybrid: Bench) -> None:
        caller = await writer(hybrid)
        account, indexer = caller.access.account, hybrid.services.indexer
        [stored] = await hybrid.remember(caller, TEA)
        await hybrid.embed(caller, [stored])
        then = hybrid.clock()
        hybrid.clock.advance(60)
        await edit(hybrid, caller, stored.id, text=COFFEE)
        await hybrid.sql("DELETE FROM vectors")
        await vector_rows.forget_versions(hybrid.storage.database, account=account)
        await hybrid.sql("UPDATE memories SET index_version = 0")
        at = vector_rows.START
        while page := await indexer.next_page(account, caller.keys, at, None):
            at = page.after
        assert await hybrid.texts(caller, "hot drinks", mode="vector") == [COFFEE]
        assert await hybrid.texts(caller, "hot drinks", mode="vector", as_of=then) == [TEA]
        assert await hybrid.texts(caller, "green", as_of=then) == [TEA]
        assert (await check(hybrid.storage)).problems == []


class TestHistory:
    async def test_comes_in_pages_where_it_is_long(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, "note 1 " + "x" * 900_000)
        for n in range(2, 9):
            await edit(bench, caller, stored.id, text=f"note {n} " + "x" * 900_000)
        first = await bench.services.histories.history(caller, stored.id)
        assert first.cursor is not None
        rest = await bench.services.histories.history(caller, stored.id, before=first.cursor)
        assert rest.cursor is None
        revisions = [m.revision for m in (*first.revisions, *rest.revisions)]
        assert revisions == list(range(8, 0, -1))

    async def test_shows_a_lost_revision_as_lost(self, bench: Bench) -> None:
        caller = await writer(bench)
        [stored] = await bench.remember(caller, TEA)
        await edit(bench, caller, stored.id, text=COFFEE)
        await bench.sql(
            "DELETE FROM blobs b USING memories m WHERE m.blob_id = b.blob_id AND m.revision = 1"
        )
        history = await bench.services.histories.history(caller, stored.id)
        assert [(m.text, m.status) for m in history.revisions] == [
            (COFFEE, "done"),
            (None, "failed"),
        ]
        with pytest.raises(Corrupted):
            await bench.services.histories.revision(caller, stored.id, 1)


def test_the_row_of_a_revision_has_an_id_that_anybody_can_compute() -> None:
    memory = uuid.UUID("01890a5d-ac96-774b-bcce-b302099a8057")
    first = revision_row_id(memory, 1)
    assert first == revision_row_id(memory, 1)
    assert (first.version, first.variant) == (8, uuid.RFC_4122)
    assert len({first, revision_row_id(memory, 2), revision_row_id(uuid.UUID(int=1), 1)}) == 3
