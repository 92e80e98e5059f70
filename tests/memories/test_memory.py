"""Remembering, reading and forgetting, over a real database."""

import asyncio
import uuid
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from relayer.errors import BadRequest, Conflict, NotAllowed, NotFound, QuotaExceeded, Unavailable
from relayer.memories.recall import Query
from relayer.record import Draft
from relayer.sealed import envelope
from relayer.sealed.grants import issue_revocation
from relayer.sealed.keys import Namespace
from relayer.sealed.receipts import open_receipt
from relayer.settings import Limits
from tests.chains import assert_chain_holds
from tests.conftest import BenchMaker
from tests.embeddings_server import EmbeddingsServer, embedder_of
from tests.services import COUNT, OTHER, TEAM, Bench, new_identity, random_text


class TestRemember:
    async def test_is_found_by_keyword_before_it_has_a_vector(self, hybrid: Bench) -> None:
        """capability 2.27: a write can be read at once.
        capability 4.24: indexing that lags behind never makes a recall stale.
        """
        caller = await hybrid.caller(await hybrid.account())
        [stored] = await hybrid.remember(caller, "The harbour gate opens with code H-7741.")
        assert (stored.status, stored.duplicate) == ("uploaded", False)
        assert await hybrid.value("SELECT count(*) FROM vectors") == 0
        assert await hybrid.texts(caller, "h-7741") == ["The harbour gate opens with code H-7741."]

    async def test_vector_follows_from_the_job(self, hybrid: Bench) -> None:
        """capability 2.19: indexing runs in the background."""
        caller = await hybrid.caller(await hybrid.account())
        async with hybrid.working():
            [stored] = await hybrid.remember(caller, "Anna prefers tea.")
            await hybrid.until("SELECT count(*) FROM vectors", 1)
        states = await hybrid.services.memory.states(caller.access, [stored.id])
        assert states[stored.id]["state"] == "done"
        assert await hybrid.texts(caller, "beverages", mode="vector") == ["Anna prefers tea."]

    async def test_nothing_is_acknowledged_before_it_is_committed(self, bench: Bench) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        replica = bench.another()
        memory = await replica.services.memory.get(await replica.caller(founder), stored.id)
        assert (memory.text, memory.namespace, memory.seq) == ("Anna prefers tea.", "team", 1)
        assert memory.writer == caller.access.key

    async def test_keeps_every_member(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        draft = Draft(
            text="The vote is on Friday.",
            namespace=TEAM,
            kind="event",
            tags=("vote", "Ärger"),
            source="mail/17",
            event_time=bench.clock() + timedelta(days=3),
            metadata={"room": "4.12"},
            importance="vital",
            confidence="low",
            expires_at=bench.clock() + timedelta(days=9),
        )
        [stored] = (await bench.stored(caller, [draft])).items
        m = await bench.services.memory.get(caller, stored.id)
        assert (m.text, m.kind, tuple(m.tags), m.source) == (
            draft.text,
            draft.kind,
            draft.tags,
            draft.source,
        )
        assert (m.event_time, dict(m.metadata)) == (draft.event_time, draft.metadata)
        assert (m.importance, m.confidence, m.expires_at) == ("vital", "low", draft.expires_at)
        assert (m.created_at, m.revision, m.status) == (bench.clock(), 1, "done")

    async def test_secrets_are_redacted_before_sealing(self, bench: Bench) -> None:
        """capability 4.26: secrets are taken out before a text is embedded or stored."""
        caller = await bench.caller(await bench.account())
        secret = "AKIA" + "ABCDEFGH23456777"
        [stored] = await bench.remember(caller, f"The build uses {secret} for uploads.")
        assert stored.redacted == {"aws-key": 1}
        memory = await bench.services.memory.get(caller, stored.id)
        assert memory.text == "The build uses [redacted:aws-key] for uploads."
        # A query is redacted, too, and finds what else was.
        assert await bench.texts(caller, secret) == [memory.text]

    async def test_no_table_holds_a_readable_word(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        members = {"tags": ("zanzibar",), "source": "xylophone", "metadata": {"quokka": "narwhal"}}
        stored = await hybrid.remember(
            caller, "Ocelots like marzipan.", idempotency_key="wombat", **members
        )
        await hybrid.embed(caller, stored)
        tables = await hybrid.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        for table in [r["tablename"] for r in tables]:
            dump = str([tuple(r) for r in await hybrid.sql(f'SELECT t::text FROM "{table}" t')])
            for word in (
                "ocelot",
                "marzipan",
                "zanzibar",
                "xylophone",
                "quokka",
                "narwhal",
                "wombat",
            ):
                assert word not in dump.lower(), table
                assert word.encode().hex() not in dump, table

    async def test_needs_a_writer(self, bench: Bench) -> None:
        founder = await bench.account()
        reader = await bench.caller(await bench.key(founder, TEAM, role="reader"))
        with pytest.raises(NotAllowed):
            await bench.remember(reader, "Anna prefers tea.")
        writer = await bench.caller(await bench.key(founder, OTHER))
        with pytest.raises(NotAllowed):
            await bench.stored(
                writer, [Draft(text="a b", namespace=OTHER), Draft(text="a b", namespace=TEAM)]
            )
        assert await bench.value(COUNT) == 0

    async def test_full_account_takes_nothing_more_and_still_forgets(
        self, make_bench: BenchMaker
    ) -> None:
        bench = make_bench(storage_bytes_max=1000)
        caller = await bench.caller(await bench.account())
        [first] = await bench.remember(caller, random_text())
        with pytest.raises(QuotaExceeded):
            await bench.remember(caller, "x" * 2000)
        assert await bench.value(COUNT) == 1
        await bench.sql("UPDATE accounts SET storage_bytes = 2000")
        await bench.services.memory.forget(caller.access, first.id)
        assert await bench.value(COUNT) == 0

    async def test_storage_is_counted_and_given_back(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        [one, two] = await bench.remember(caller, random_text(), random_text())
        sizes = "SELECT sum(size_bytes) FROM memories"
        used = "SELECT storage_bytes FROM accounts"
        assert await bench.value(used) == await bench.value(sizes)
        await bench.services.memory.forget(caller.access, one.id)
        assert await bench.value(used) == await bench.value(sizes)
        await bench.services.memory.forget(caller.access, two.id)
        assert await bench.value(used) == 0
        assert await bench.value("SELECT word_count FROM namespaces") == 0

    async def test_a_long_text_is_kept_whole(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        text = " ".join(f"word{n}" for n in range(60_000))[: Limits.text_bytes_max // 2]
        [stored] = await bench.remember(caller, text)
        assert (await bench.services.memory.get(caller, stored.id)).text == text
        assert await bench.texts(caller, "word31415") == [text]


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
        await bench.services.memory.remember(caller, [draft], route="another")
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


class TestNamespaces:
    async def test_twenty_first_writers_at_once(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await asyncio.gather(*(bench.remember(caller, random_text()) for _ in range(20)))
        assert await bench.value("SELECT count(*) FROM namespaces") == 1
        assert await bench.value("SELECT namespace_count FROM accounts") == 1
        assert await bench.value("SELECT memory_count FROM namespaces") == 20
        await assert_chain_holds(bench, caller.access.account)

    async def test_twenty_namespaces_at_once(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await asyncio.gather(
            *(
                bench.remember(caller, "Anna prefers tea.", namespace=Namespace(f"n{i}"))
                for i in range(20)
            )
        )
        numbers = await bench.sql("SELECT namespace_id FROM namespaces ORDER BY 1")
        assert [r[0] for r in numbers] == list(range(1, 21))

    async def test_their_number_is_limited(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "Anna prefers tea.")
        await bench.sql("UPDATE accounts SET namespace_count = $1", Limits.namespaces_max)
        await bench.remember(caller, "Known namespaces still work.")
        with pytest.raises(BadRequest) as caught:
            await bench.remember(caller, "Anna prefers tea.", namespace=OTHER)
        assert caught.value.code == "namespace.too_many"


class TestRead:
    async def test_newest_in_pages(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, *(f"note {n}" for n in range(7)))
        await bench.remember(caller, "elsewhere", namespace=OTHER)
        page = await bench.services.memory.newest(caller, [TEAM], limit=3)
        assert [m.text for m in page] == ["note 6", "note 5", "note 4"]
        page = await bench.services.memory.newest(caller, [TEAM], before_seq=page[-1].seq, limit=9)
        assert [m.text for m in page] == ["note 3", "note 2", "note 1", "note 0"]
        both = await bench.services.memory.newest(caller, [TEAM, OTHER], limit=1)
        assert [m.text for m in both] == ["elsewhere"]

    async def test_newest_by_kind_and_unexpired(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        await bench.remember(caller, "one", kind="decision")
        await bench.remember(caller, "two", expires_at=bench.clock() + timedelta(minutes=1))
        await bench.remember(caller, "three")
        memory = bench.services.memory
        assert [m.text for m in await memory.newest(caller, [TEAM], kind="decision", limit=9)] == [
            "one"
        ]
        bench.clock.advance(60)
        assert [m.text for m in await memory.newest(caller, [TEAM], limit=9)] == ["three", "one"]
        assert await memory.newest(caller, [Namespace("empty")], limit=9) == []

    async def test_an_expired_memory_has_no_state(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        soon = bench.clock() + timedelta(minutes=1)
        [stored] = await bench.remember(caller, "Anna prefers tea.", expires_at=soon)
        [kept] = await bench.remember(caller, "Ben sells cups.")
        ids = [stored.id, kept.id]
        assert set(await bench.services.memory.states(caller.access, ids)) == set(ids)
        bench.clock.advance(60)
        assert set(await bench.services.memory.states(caller.access, ids)) == {kept.id}

    async def test_get_tells_nothing_about_others(self, bench: Bench) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        stranger = await bench.caller(await bench.account())
        colleague = await bench.caller(await bench.key(founder, OTHER))
        for other in (stranger, colleague):
            for wanted in (stored.id, uuid.uuid4()):
                with pytest.raises(NotFound) as caught:
                    await bench.services.memory.get(other, wanted)
                assert caught.value.message == "No such memory."
            assert await bench.services.memory.states(other.access, [stored.id]) == {}
            with pytest.raises(NotFound):
                await bench.services.memory.forget(other.access, stored.id)


class TestForget:
    async def test_everything_goes_but_the_tombstone(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        stored = await hybrid.remember(caller, "Anna prefers tea.", tags=("drinks",))
        await hybrid.embed(caller, stored)
        receipt, pending = await hybrid.services.memory.forget(caller.access, stored[0].id)
        for table in ("memories", "postings", "vectors"):
            assert await hybrid.value(f"SELECT count(*) FROM {table}") == 0, table
        left = await hybrid.sql("SELECT bytes FROM blobs")
        assert all(r["bytes"].startswith(b"{") for r in left)  # grants and receipts
        assert await hybrid.value("SELECT memory_id FROM tombstones") == stored[0].id
        opened = open_receipt(receipt, hybrid.storage.identity.public_key)
        assert (opened.op, opened.items[0].memory, pending) == ("forget", stored[0].id, False)
        await assert_chain_holds(hybrid, caller.access.account)
        with pytest.raises(NotFound):
            await hybrid.services.memory.forget(caller.access, stored[0].id)

    async def test_saying_it_again_is_a_new_memory(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        [first] = await bench.remember(caller, "Anna prefers tea.")
        await bench.services.memory.forget(caller.access, first.id)
        [again] = await bench.remember(caller, "Anna prefers tea.")
        assert (again.duplicate, again.id != first.id) == (False, True)
        assert await bench.texts(caller, "tea") == ["Anna prefers tea."]

    async def test_reader_may_not(self, bench: Bench) -> None:
        founder = await bench.account()
        [stored] = await bench.remember(await bench.caller(founder), "Anna prefers tea.")
        reader = await bench.caller(await bench.key(founder, TEAM, role="reader"))
        with pytest.raises(NotAllowed):
            await bench.services.memory.forget(reader.access, stored.id)
        with pytest.raises(NotAllowed):
            await bench.services.memory.forget_namespace(reader.access, TEAM)

    async def test_an_expired_memory_can_be_erased(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        soon = bench.clock() + timedelta(minutes=1)
        [stored] = await bench.remember(caller, "The code is 4471.", expires_at=soon)
        bench.clock.advance(60)
        await bench.services.memory.forget(caller.access, stored.id)
        assert await bench.value(COUNT) == 0

    async def test_two_erasers_one_receipt(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        results = await asyncio.gather(
            *(bench.services.memory.forget(caller.access, stored.id) for _ in range(5)),
            return_exceptions=True,
        )
        assert sum(isinstance(r, NotFound) for r in results) == 4
        await assert_chain_holds(bench, caller.access.account)

    async def test_a_running_job_gives_no_vector_to_the_erased(
        self, make_bench: BenchMaker
    ) -> None:
        async with EmbeddingsServer() as server:
            bench = make_bench(embedder=embedder_of(server))
            caller = await bench.caller(await bench.account())
            doomed, kept = await bench.remember(caller, "Anna prefers tea.", "Ben prefers milk.")
            server.hold.clear()
            job = asyncio.create_task(bench.embed(caller, [doomed, kept]))
            await server.asked.wait()
            await bench.services.memory.forget(caller.access, doomed.id)
            server.hold.set()
            await job
            assert server.complaints == []
        rows = await bench.sql("SELECT memory_id FROM vectors")
        assert [r["memory_id"] for r in rows] == [kept.id]

    async def test_namespace_at_once(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        stored = await hybrid.remember(caller, *(f"note {n}" for n in range(5)))
        await hybrid.embed(caller, stored)
        await hybrid.remember(caller, "note 0", namespace=OTHER)
        assert await hybrid.services.memory.forget_namespace(caller.access, TEAM) == 5
        assert await hybrid.services.memory.forget_namespace(caller.access, Namespace("no")) == 0
        assert await hybrid.value(COUNT) == 1
        assert await hybrid.value("SELECT count(*) FROM vectors") == 0
        await assert_chain_holds(hybrid, caller.access.account)


class TestManual:
    CIPHERTEXT = b"\x01\x01\x01\x00 foreign bytes that look like an envelope " * 12

    async def test_is_found_by_its_vector_alone(self, bench: Bench) -> None:
        for custody in ("managed", "sealed"):
            founder = await bench.account(custody)
            caller = await bench.unlocked(founder, TEAM)
            near, far = np.eye(6, dtype=np.float32)[:2]
            manual = bench.services.manual
            _, name = await manual.remember(caller, TEAM, self.CIPHERTEXT, near)
            _, other = await manual.remember(caller, TEAM, b"something else", far)
            hits = await manual.recall(caller, TEAM, near * 7, 5)
            assert [h[0] for h in hits] == [name, other]
            assert [h[1] for h in hits] == [pytest.approx(0, abs=1e-3), pytest.approx(1, abs=1e-3)]
            assert (
                await manual.recall(caller, OTHER, near, 5) == [] if custody == "managed" else True
            )
            recalled = await bench.services.recaller.recall(
                caller, Query(text="foreign", namespaces=[TEAM])
            )
            assert recalled.found == []
            stored = await bench.value(
                "SELECT v.embedding::text FROM vectors v"
                " JOIN memories m USING (account_id, memory_id)"
                " WHERE v.account_id = $1 AND m.seq = 1",
                caller.access.account,
            )
            assert (stored == "[1,0,0,0,0,0]") == (custody == "sealed")

    async def test_an_object_of_ours_is_no_upload(self, bench: Bench) -> None:
        """It would have the name of one in the journal, or stop the account's rebuilding."""
        founder = await bench.account()
        writer, gone = await bench.key(founder, TEAM), await bench.key(founder, TEAM)
        await bench.revoke(founder, gone.identity.public_key)
        caller = await bench.caller(writer)
        [stored] = await bench.remember(caller, "Anna prefers tea.")
        done = await bench.services.forgetting.forget(caller.access, stored.id)
        revoked = await bench.value("SELECT object FROM grants ORDER BY serial DESC LIMIT 1")
        forged = issue_revocation(
            new_identity(),
            account=founder.account,
            serial=1_000_000,
            recipient=founder.identity.public_key,
            created_ms=1,
        )
        key = replace(caller.keys.of(TEAM)[0], key=bytes(32))
        address = envelope.Address(envelope.MEMORY, founder.account, stored.id, 1)
        sealed = envelope.seal(key, address, b"{}", created_ms=1)
        vector = np.ones(6, np.float32)
        for ours in (revoked, forged, done.receipts[0], sealed):
            with pytest.raises(BadRequest) as caught:
                await bench.services.manual.remember(caller, TEAM, ours, vector)
            assert caught.value.code == "upload.reserved"
        assert await bench.value("SELECT count(*) FROM memories") == 0

    async def test_equal_uploads_share_bytes_until_the_last_is_erased(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        vector = np.ones(6, np.float32)
        one, name = await bench.services.manual.remember(caller, TEAM, self.CIPHERTEXT, vector)
        two, same = await bench.services.manual.remember(caller, TEAM, self.CIPHERTEXT, vector)
        assert (name, one != two) == (same, True)
        await bench.services.memory.forget(caller.access, one)
        assert (await bench.services.memory.get(caller, two)).text is None
        found = await bench.storage.blobs.get_many(caller.access.account, [name])
        assert found == {name: self.CIPHERTEXT}
        await bench.services.memory.forget(caller.access, two)
        assert await bench.storage.blobs.get_many(caller.access.account, [name]) == {}

    async def test_roles_count(self, bench: Bench) -> None:
        founder = await bench.account()
        reader = await bench.caller(await bench.key(founder, TEAM, role="reader"))
        with pytest.raises(NotAllowed):
            await bench.services.manual.remember(reader, TEAM, b"bytes", np.ones(6, np.float32))
        with pytest.raises(NotAllowed):
            await bench.services.manual.recall(reader, OTHER, np.ones(6, np.float32), 5)

    @pytest.mark.parametrize("component", [0.0, np.inf, -np.inf, np.nan])
    async def test_a_vector_without_direction_leaves_nothing(
        self, bench: Bench, component: float
    ) -> None:
        caller, manual = await bench.caller(await bench.account()), bench.services.manual
        vector = np.array([0.0, component, 0.0])
        with pytest.raises(BadRequest):
            await manual.remember(caller, TEAM, b"bytes", vector)
        with pytest.raises(BadRequest):
            await manual.recall(caller, TEAM, vector, 5)
        assert await bench.value("SELECT count(*) FROM namespaces") == 0


class TestReceipts:
    async def test_chain_holds_from_the_first_write(self, bench: Bench) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        stored = await bench.stored(
            caller,
            [Draft(text="one apple", namespace=TEAM), Draft(text="two pears", namespace=OTHER)],
        )
        opened = [open_receipt(r, bench.storage.identity.public_key) for r in stored.receipts]
        assert [(r.seq, r.op, r.namespace) for r in opened] == [
            (3, "remember", "team"),
            (4, "remember", "other"),
        ]
        assert opened[0].items[0].memory == stored.items[0].id
        assert opened[0].actor == founder.identity.public_key
        assert await assert_chain_holds(bench, founder.account) == 4
        again = await bench.stored(caller, [Draft(text="one apple", namespace=TEAM)])
        assert again.receipts == []

    async def test_concurrent_writers_and_erasers_leave_no_gap(self, bench: Bench) -> None:
        founder = await bench.account()
        caller = await bench.caller(founder)
        doomed = await bench.remember(caller, *(random_text() for _ in range(5)))
        await asyncio.gather(
            *(bench.remember(caller, random_text()) for _ in range(10)),
            *(bench.services.memory.forget(caller.access, item.id) for item in doomed),
            bench.key(founder, TEAM),
        )
        assert await assert_chain_holds(bench, founder.account) == 2 + 1 + 10 + 5 + 1
        seqs = await bench.sql("SELECT seq FROM memories ORDER BY seq")
        assert [r["seq"] for r in seqs] == list(range(6, 16))


class TestEmbed:
    async def test_long_text_gets_several_vectors(self, hybrid: Bench) -> None:
        """capability 4.15: long texts are split by the model's own tokenizer.
        capability 4.25: no passage is longer than the model's limit in tokens.
        """
        caller = await hybrid.caller(await hybrid.account())
        filler = "The committee met again and nothing was decided about the roof. " * 120
        stored = await hybrid.remember(caller, filler + "The vault is opened by a tuning fork.")
        await hybrid.embed(caller, stored)
        assert await hybrid.value("SELECT count(*) FROM vectors") > 3
        query = Query(text="a tuning fork opens the vault", namespaces=[TEAM], mode="vector")
        [found] = (await hybrid.services.recaller.recall(caller, query)).found
        assert found.hit.cosine is not None
        assert found.hit.cosine > 0.4
        assert (found.hit.relevance, found.hit.distance) == (0, pytest.approx(1 - found.hit.cosine))

    async def test_again_changes_nothing(self, hybrid: Bench) -> None:
        """capability 2.21: what has its vector is not embedded again."""
        caller = await hybrid.caller(await hybrid.account())
        stored = await hybrid.remember(caller, "Anna prefers tea.")
        await hybrid.embed(caller, stored)
        before = await hybrid.sql("SELECT embedding::text, model FROM vectors")
        await asyncio.gather(*(hybrid.embed(caller, stored) for _ in range(3)))
        assert await hybrid.sql("SELECT embedding::text, model FROM vectors") == before
        assert len(before) == 1

    async def test_without_an_embedder_nothing_is_queued(self, bench: Bench) -> None:
        caller = await bench.caller(await bench.account())
        stored = await bench.remember(caller, "Anna prefers tea.")
        assert await bench.value("SELECT count(*) FROM pgqueuer") == 0
        await bench.embed(caller, stored)
        states = await bench.services.memory.states(caller.access, [stored[0].id])
        assert states[stored[0].id]["state"] == "done"

    async def test_one_altered_blob_does_not_hold_up_its_batch(self, hybrid: Bench) -> None:
        caller = await hybrid.caller(await hybrid.account())
        stored = await hybrid.remember(caller, "one apple", "two pears", "three plums")
        await hybrid.sql(
            "UPDATE blobs SET bytes = set_byte(bytes, 200, get_byte(bytes, 200) # 1)"
            " WHERE blob_id = (SELECT blob_id FROM memories WHERE seq = 2)"
        )
        await hybrid.sql(
            "DELETE FROM blobs WHERE blob_id = (SELECT blob_id FROM memories WHERE seq = 3)"
        )
        await hybrid.embed(caller, stored)
        rows = await hybrid.sql("SELECT memory_id FROM vectors")
        assert [r["memory_id"] for r in rows] == [stored[0].id]

    async def test_a_refused_text_does_not_hold_up_its_batch(self, make_bench: BenchMaker) -> None:
        async with EmbeddingsServer(refuse="pears") as server:
            bench = make_bench(embedder=embedder_of(server))
            caller = await bench.caller(await bench.account())
            stored = await bench.remember(caller, "one apple", "two pears", "three plums")
            await bench.embed(caller, stored)
            assert server.complaints == []
        rows = await bench.sql("SELECT memory_id FROM vectors")
        assert {r["memory_id"] for r in rows} == {stored[0].id, stored[2].id}

    async def test_embedder_away_is_the_callers_to_retry(self, make_bench: BenchMaker) -> None:
        async with EmbeddingsServer() as server:
            server.always = "503"
            bench = make_bench(embedder=embedder_of(server))
            caller = await bench.caller(await bench.account())
            stored = await bench.remember(caller, "one apple")
            with pytest.raises(Unavailable):
                await bench.embed(caller, stored)

    async def test_needs_the_key(self, hybrid: Bench) -> None:
        founder = await hybrid.account("sealed")
        stored = await hybrid.remember(await hybrid.unlocked(founder, TEAM), "one apple")
        with pytest.raises(NotAllowed) as caught:
            await hybrid.embed(await hybrid.caller(founder), stored)
        assert caught.value.code == "unlock_required"
