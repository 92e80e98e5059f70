"""A sealed index: it answers as the searchable one does, and no row tells what it finds."""

import asyncio
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from relayer.database import memory_index as rows
from relayer.database import vectors as vector_rows
from relayer.errors import NotAllowed, Unavailable
from relayer.memories.deletion import Filter
from relayer.memories.revisions import Edit
from relayer.memory_index import sealed as sealed_index
from relayer.query.query import Query
from relayer.sealed.envelope import blob_id
from tests.conftest import BenchMaker
from tests.consolidating import TEA, TEA_AGAIN, said
from tests.optional import unwrap
from tests.rotator import Rotator
from tests.sealed_index import RECORDS, UNSEALED, Choice, check_alike, talk
from tests.services import OTHER, TEAM, Bench
from tests.twins import TALK

BOTH = (TEAM, OTHER)


@pytest.fixture
async def choice(hybrid: Bench) -> Any:
    made = await talk(hybrid)
    yield made
    await hybrid.services.memory_index.close()


class TestMoving:
    async def test_answers_alike_there_and_back(self, choice: Choice) -> None:
        before = await choice.answers()
        await choice.choose(sealed=True, namespaces=BOTH)
        assert await choice.bench.value(UNSEALED) == 0
        for ours, theirs in zip(await choice.answers(), before, strict=True):
            check_alike(ours, theirs)
        await choice.choose(sealed=False, namespaces=BOTH)
        assert await choice.bench.value(RECORDS) == 0
        for ours, theirs in zip(await choice.answers(), before, strict=True):
            check_alike(ours, theirs)

    async def test_stopped_halfway_it_answers_and_goes_on(
        self, choice: Choice, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("relayer.memories.index_choice.PAGE", 2)
        before = await choice.answers()
        caller = await choice.caller()
        services, account = choice.bench.services, caller.access.account
        for sealed in (True, False):
            for namespace in BOTH:
                await services.index_chooser.choose(
                    (await choice.caller()).access, namespace, sealed=sealed
                )
            for _ in range(4):
                assert not await services.index_mover.work(account, caller.keys, lambda: False)
                for ours, theirs in zip(await choice.answers(), before, strict=True):
                    check_alike(ours, theirs)
            await choice.move()
            assert await choice.bench.value(RECORDS) == (len(TALK) if sealed else 0)
        assert not await services.index_mover.waits(account)

    async def test_one_sealed_and_one_searchable_are_asked_together(self, choice: Choice) -> None:
        query: dict[str, Any] = {
            "text": "Hamburg database tea cellar Ben",
            "namespaces": [TEAM, OTHER],
        }
        before = await choice.recall(**query)
        await choice.choose(sealed=True, namespaces=(OTHER,))
        check_alike(await choice.recall(**query), before)

    async def test_its_own_job_moves_it(self, choice: Choice) -> None:
        caller = await choice.caller()
        await choice.bench.services.index_chooser.choose(caller.access, TEAM, sealed=True)
        async with choice.bench.working():
            await choice.bench.until(RECORDS, 7)

    async def test_only_an_owner_chooses(self, choice: Choice) -> None:
        writer = await choice.bench.key(choice.founder, TEAM)
        access = (await choice.bench.caller(writer)).access
        with pytest.raises(NotAllowed):
            await choice.bench.services.index_chooser.choose(access, TEAM, sealed=True)


class TestWriting:
    async def test_what_is_acknowledged_is_found_by_every_relayer(
        self, choice: Choice, make_bench: BenchMaker, embedder: Any
    ) -> None:
        await choice.choose(sealed=True, namespaces=BOTH)
        other = make_bench(
            embedder=embedder, identity=choice.bench.storage.identity, clock=choice.bench.clock
        )
        other.root = choice.bench.root
        for bench in (choice.bench, other):
            assert "Zelda" not in str(await choice.texts(bench, text="Zelda"))
        caller = await choice.caller()
        [item] = await choice.bench.remember(caller, "Zelda keeps zebras.", source="zoo")
        for bench in (other, choice.bench):
            assert (await choice.texts(bench, text="Zelda"))[0] == "Zelda keeps zebras."
        await choice.bench.embed(caller, [item])
        [near, *_] = (await choice.recall(other, text="striped animals", mode="vector")).found
        assert near.memory.text == "Zelda keeps zebras."
        edit = Edit(changes={"text": "Zelda keeps lions."})
        await choice.bench.services.reviser.edit(await choice.caller(), item.id, edit)
        found = await choice.texts(other, text="Zelda")
        assert found[0] == "Zelda keeps lions."
        assert "Zelda keeps zebras." not in found
        await choice.bench.services.memory.forget(caller.access, item.id)
        assert "Zelda" not in str(await choice.texts(other, text="Zelda"))
        assert await choice.bench.value(UNSEALED) == 0
        await other.services.memory_index.close()

    async def test_another_relayer_notices_the_choice(
        self, choice: Choice, make_bench: BenchMaker
    ) -> None:
        other = make_bench(identity=choice.bench.storage.identity, clock=choice.bench.clock)
        other.root = choice.bench.root
        await other.remember(await choice.caller(other), "It knows the namespace.")
        await choice.choose(sealed=True, namespaces=BOTH)
        await other.remember(await choice.caller(other), "It seals what finds this.")
        assert await choice.bench.value(UNSEALED) == 0
        assert (await choice.texts(text="seals"))[0] == "It seals what finds this."

    async def test_a_write_that_was_overtaken_by_a_choice_is_found_and_moved(
        self, choice: Choice
    ) -> None:
        late = await choice.caller()
        entry = await choice.bench.storage.namespaces.find_now(late.access, TEAM)
        await choice.choose(sealed=True, namespaces=BOTH)
        known = choice.bench.storage.namespaces._known
        known[late.access.account, TEAM] = unwrap(
            entry
        )  # as a process has it that is about to store
        await choice.bench.remember(late, "Nobody had told it.")
        assert (await choice.texts(text="told"))[0] == "Nobody had told it."
        assert await choice.bench.value(UNSEALED) > 0
        await choice.move()
        assert await choice.bench.value(UNSEALED) == 0

    async def test_the_past_is_asked_of_the_records(self, choice: Choice) -> None:
        await choice.choose(sealed=True, namespaces=BOTH)
        now = choice.bench.clock()
        choice.bench.clock.advance(60)
        caller = await choice.caller()
        [first, *_] = (await choice.recall(text="Anna tea sugar")).found
        edit = Edit(changes={"text": "Anna prefers coffee."})
        await choice.bench.services.reviser.edit(caller, first.memory.id, edit)
        assert TALK[0] in await choice.texts(text="Anna tea sugar", as_of=now)
        assert TALK[0] not in await choice.texts(text="Anna tea sugar")
        late = now + timedelta(seconds=90)
        choice.bench.clock.advance(60)
        assert TALK[0] not in await choice.texts(text="Anna tea sugar", as_of=late)

    async def test_words_and_vectors_are_made_again(self, choice: Choice) -> None:
        """As another model or release has it made, in the record alone."""
        before = await choice.answers()
        await choice.choose(sealed=True, namespaces=BOTH)
        caller = await choice.caller()
        bench, account = choice.bench, caller.access.account
        await bench.sql("UPDATE memories SET index_version = 1 WHERE account_id = $1", account)
        found = await bench.sql("SELECT memory_id FROM memories")
        ids = [row["memory_id"] for row in found]
        await bench.services.indexer.embed(account, caller.keys, ids)
        await vector_rows.forget_versions(bench.storage.database, account=account)
        await bench.services.indexer.embed(account, caller.keys, ids)
        assert not await bench.services.indexer.waits(account)
        assert await bench.value(UNSEALED) == 0
        for ours, theirs in zip(await choice.answers(), before, strict=True):
            check_alike(ours, theirs)

    async def test_a_rotation_seals_records_anew(self, choice: Choice) -> None:
        before = await choice.answers()
        await choice.choose(sealed=True, namespaces=BOTH)
        records = await choice.bench.sql("SELECT index_record FROM memories")
        choice.rotator = owner = Rotator(choice.bench, choice.founder)
        await owner.rotate(reseal="all")
        for ours, theirs in zip(await choice.answers(), before, strict=True):
            check_alike(ours, theirs)
        assert await owner.reseal(*BOTH)
        again = await choice.bench.sql("SELECT index_record FROM memories")
        assert not {r["index_record"] for r in records} & {r["index_record"] for r in again}
        assert await choice.bench.value(UNSEALED) == 0
        for ours, theirs in zip(await choice.answers(), before, strict=True):
            check_alike(ours, theirs)

    async def test_a_lost_row_comes_back_with_a_record(self, choice: Choice) -> None:
        await choice.choose(sealed=True, namespaces=BOTH)
        await choice.bench.sql("DELETE FROM memories WHERE seq = 1")
        caller, services = await choice.caller(), choice.bench.services
        assert (await services.restore.restore(caller, TEAM, 100)).restored == 1
        assert await choice.bench.value(UNSEALED) == 0
        assert TALK[0] in await choice.texts(text="Anna tea sugar")

    async def test_said_again_in_one_conversation_counts_once(self, choice: Choice) -> None:
        """A source is masked in its row, and still known."""
        await choice.choose(sealed=True, namespaces=BOTH)
        caller = await choice.caller()
        for source in ("mail", "mail", "chat"):
            await choice.bench.remember(caller, "Otto sails.", source=source)
        counts = await choice.bench.sql("SELECT seen_count, source FROM memories ORDER BY seq DESC")
        assert counts[0]["seen_count"] == 2
        [found, *_] = (await choice.recall(text="Otto", source="mail")).found
        assert found.memory.text == "Otto sails."

    async def test_an_upload_is_found_by_its_vector(self, choice: Choice) -> None:
        await choice.choose(sealed=True, namespaces=BOTH)
        manual, caller = choice.bench.services.manual, await choice.caller()
        vectors = np.random.default_rng(1).normal(size=(9, 8)).astype(np.float32)
        for n, vector in enumerate(vectors):
            await manual.remember(caller, TEAM, bytes([7, n] * 40), vector)
        assert await choice.bench.value(UNSEALED) == 0
        for n, vector in enumerate(vectors):
            [(name, distance), *_] = await manual.recall(await choice.caller(), TEAM, vector, 3)
            assert name == blob_id(bytes([7, n] * 40))
            assert distance == pytest.approx(0, abs=1e-3)


class TestFiltering:
    async def test_lists_and_forgets_by_tag_and_source(self, choice: Choice) -> None:
        await choice.choose(sealed=True, namespaces=BOTH)
        caller, memory = await choice.caller(), choice.bench.services.memory
        assert [m.text for m in await memory.newest(caller, [TEAM], limit=9, tags=["house"])] == [
            TALK[6]
        ]
        listed = await memory.newest(caller, [TEAM, OTHER], limit=9, source="chat")
        assert [m.text for m in listed] == [TALK[7]]
        assert not await memory.newest(caller, [TEAM], limit=9, tags=["house", "garden"])

    async def test_forgets_what_a_filter_finds(self, choice: Choice) -> None:
        await choice.choose(sealed=True, namespaces=BOTH)
        deletion, caller = choice.bench.services.deletion, await choice.caller()
        chosen = Filter(namespace=TEAM, tags=["house"])
        assert (await deletion.forget_matching(caller, chosen, dry_run=True)).matched == 1
        assert (await deletion.forget_matching(caller, chosen)).erased == 1
        assert TALK[6] not in await choice.texts(text=TALK[6])

    async def test_copies_are_found_to_be_merged(self, choice: Choice) -> None:
        await choice.choose(sealed=True, namespaces=BOTH)
        caller = await choice.caller()
        await said(choice.bench, caller, TEA)
        await said(choice.bench, caller, TEA_AGAIN)
        planned = await choice.bench.services.planner.plan(caller, TEAM)
        assert [action.action for action in planned.actions] == ["merge"]


class TestHolding:
    async def test_lets_go_with_the_key(self, choice: Choice) -> None:
        await choice.choose(sealed=True, namespaces=BOTH)
        held = choice.bench.services.memory_index
        await choice.texts(text="tea", namespaces=[TEAM, OTHER])
        whole = held.sealed.size_bytes
        await choice.bench.services.worker.keep_house_once()
        assert held.sealed.size_bytes == whole > 0
        choice.bench.clock.advance(301)
        await choice.bench.services.worker.keep_house_once()
        assert held.sealed.size_bytes == 0
        assert TALK[0] in await choice.texts(text="Anna tea sugar")

    async def test_a_large_one_is_answered_by_its_newest_until_it_is_loaded(
        self, choice: Choice, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await choice.choose(sealed=True, namespaces=BOTH)
        monkeypatch.setattr(sealed_index, "FIRST", 2)
        monkeypatch.setattr(sealed_index, "WAIT_S", 0.0)
        go_on, newest, read = asyncio.Event(), rows.newest, list[int]()

        async def slow(*arguments: Any) -> Any:
            read.append(1)
            if len(read) == 2:  # the first page is there by then
                await go_on.wait()
            return await newest(*arguments)

        monkeypatch.setattr(rows, "newest", slow)
        begun = await choice.recall(text="Anna tea sugar")
        assert begun.degraded
        while len(read) < 2:
            await asyncio.sleep(0.01)
        some = await choice.recall(text="cellar Anna tea sugar")
        assert some.degraded
        assert some.found
        assert TALK[0] not in [found.memory.text for found in some.found]
        go_on.set()
        monkeypatch.setattr(sealed_index, "WAIT_S", 60.0)
        whole = await choice.recall(text="Anna tea sugar")
        assert not whole.degraded
        assert TALK[0] in [found.memory.text for found in whole.found]

    async def test_what_has_no_room_stays_out_and_is_said(
        self, choice: Choice, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await choice.choose(sealed=True, namespaces=BOTH)
        monkeypatch.setattr(sealed_index, "FIRST", 2)
        monkeypatch.setattr(sealed_index, "MOST", 2)
        monkeypatch.setattr(sealed_index, "WAITING_MAX", 1)
        held = choice.bench.services.memory_index.sealed
        monkeypatch.setattr(held, "_bytes_max", 26_000)
        some = await choice.recall(text="Anna tea sugar Hamburg Ben MW-4711 cellar", limit=50)
        assert some.degraded
        assert 0 < len(some.found) < 7
        assert held.size_bytes <= 26_000
        caller = await choice.caller()
        with pytest.raises(Unavailable):
            await choice.bench.services.deletion.forget_matching(
                caller, Filter(namespace=TEAM, tags=["house"])
            )

    async def test_a_large_record_is_read_apart(
        self, choice: Choice, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await choice.choose(sealed=True, namespaces=BOTH)
        words = " ".join(f"word{n}" for n in range(600))
        await choice.bench.remember(await choice.caller(), words)
        page, apart = rows.page, []

        async def noted(*arguments: Any) -> Any:
            apart.append(arguments[-1])
            return await page(*arguments)

        monkeypatch.setattr(rows, "page", noted)
        for word in ("word0", "word599"):
            assert words in await choice.texts(text=word, mode="keyword")
        assert [len(seqs) for seqs in apart] == [1]

    async def test_a_key_of_an_older_epoch_opens_what_was_closed(self, choice: Choice) -> None:
        await choice.choose(sealed=True, namespaces=BOTH)
        choice.rotator = owner = Rotator(choice.bench, choice.founder)
        await owner.rotate(reseal="none")
        newest = choice.bench.unlock(choice.founder, [owner.keys(TEAM)[-1]])
        caller = await choice.bench.caller(choice.founder, newest)
        await choice.bench.remember(caller, "Anna says something new.")
        asked = Query(text="Anna", namespaces=[TEAM])
        recalled = await choice.bench.services.recaller.recall(caller, asked)
        assert [f.memory.text for f in recalled.found] == ["Anna says something new."]
        assert {TALK[0], "Anna says something new."} <= {*await choice.texts(text="Anna")}

    async def test_an_altered_record_hides_its_own_memory_alone(
        self, choice: Choice, caplog: pytest.LogCaptureFixture
    ) -> None:
        await choice.choose(sealed=True, namespaces=BOTH)
        await choice.bench.sql(
            "UPDATE memories SET index_record = set_byte(index_record, 40,"
            " 255 - get_byte(index_record, 40)) WHERE seq = 1"
        )
        found = await choice.texts(text="Anna tea sugar Hamburg", mode="keyword")
        assert TALK[0] not in found
        assert TALK[1] in found
        assert any(getattr(r, "event", "") == "resident.altered" for r in caplog.records)
        caplog.clear()

    async def test_another_rows_record_does_not_open(self, choice: Choice) -> None:
        await choice.choose(sealed=True, namespaces=BOTH)
        await choice.bench.sql(
            "UPDATE memories m SET index_record = o.index_record FROM memories o"
            " WHERE m.seq = 1 AND o.seq = 2"
        )
        assert await choice.texts(text="sugar", mode="keyword") == []
        assert TALK[0] not in await choice.texts(text="Hamburg office March", mode="keyword")
