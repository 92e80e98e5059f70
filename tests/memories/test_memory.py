"""Remembering, reading and forgetting, over a real database.

Not here: the same once more (`test_duplicates.py`, `test_said_again.py`), vectors
that are made (`test_vectors.py`) or sent (`test_manual.py`).
"""

import asyncio
import uuid
from datetime import timedelta

import pytest

from relayer.errors import BadRequest, NotAllowed, NotFound, QuotaExceeded
from relayer.record import Draft
from relayer.sealed.keys import Namespace
from relayer.sealed.receipts import open_receipt
from relayer.settings import Limits
from tests.chains import assert_chain_holds
from tests.conftest import BenchMaker
from tests.embeddings_server import EmbeddingsServer, embedder_of
from tests.services import COUNT, OTHER, TEAM, Bench, random_text


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
        bench = make_bench(storage_bytes_max=10_000)
        caller = await bench.caller(await bench.account())
        [first] = await bench.remember(caller, random_text())
        with pytest.raises(QuotaExceeded):
            await bench.remember(caller, "x" * 9000)
        assert await bench.value(COUNT) == 1
        await bench.sql("UPDATE accounts SET storage_bytes = 20000")
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
        text = " ".join(f"word{n}" for n in range(60_000))[: Limits.text_bytes_max // 4]
        [stored] = await bench.remember(caller, text)
        assert (await bench.services.memory.get(caller, stored.id)).text == text
        assert await bench.texts(caller, "word21415") == [text]


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
