"""How much of a namespace is read into memory, and that no recall fails where that fails."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, Final

import numpy as np
import pytest
import pytest_asyncio

from relayer.database import memory_index as rows
from relayer.database.index_steps import note_change, note_step
from relayer.memory_index import index as resident_index
from relayer.memory_index import namespace, reading
from relayer.memory_index.index import MemoryIndex
from relayer.memory_index.namespace import update
from relayer.sealed.keys import Namespace
from tests.services import OTHER, TEAM
from tests.twins import (
    Twins,
    calls_of,
    content_of,
    held_by,
    held_now,
    index_of,
    number_of,
    read_anew,
    twins,
)

__all__ = ["twins"]  # a fixture

DIM: Final = 64
ROOM: Final = 100_000
MUCH: Final = 2 * ROOM // DIM  # vectors that take more


async def long_memories(twins: Twins, count: int, parts: int) -> None:
    """Memories of so many passages each, as another relayer would embed them."""
    caller = await twins.caller(twins.plain)
    account = caller.access.account
    items = await twins.plain.remember(caller, *[f"Book {n} of {parts}." for n in range(count)])
    async with twins.plain.storage.database.transaction() as connection:
        await note_change(connection, account)
        changed = await connection.fetch(
            "UPDATE memories SET embedding_model = 'long' WHERE account_id = $1"
            " AND memory_id = ANY ($2) RETURNING namespace_id, seq",
            account, [item.id for item in items],
        )  # fmt: skip
        await connection.execute(
            """
            INSERT INTO vectors (account_id, memory_id, part, namespace_id, epoch, model, embedding)
            SELECT $1, m.memory_id, part, m.namespace_id, m.epoch, 'long',
                   (SELECT array_agg(sin(m.seq + part * n)) FROM generate_series(1, $4::int) n
                   )::real[]::halfvec
            FROM memories m, generate_series(1, $3::int) part
            WHERE m.account_id = $1 AND m.memory_id = ANY ($2)
            """,
            account, [item.id for item in items], parts, DIM,
        )  # fmt: skip
        await note_step(connection, account, [(r["namespace_id"], r["seq"]) for r in changed])


async def found_by(twins: Twins, index: MemoryIndex) -> Any:
    """What a request of now finds in an index, and what it reads has been read."""
    access, number = (await twins.caller(twins.held)).access, await number_of(twins, TEAM)
    found = await index.find(access, [number])
    await asyncio.gather(*index.reading)
    return found


class TestRoom:
    async def test_what_memories_take_is_told_before_they_are_read(self, twins: Twins) -> None:
        await long_memories(twins, 3, 40)
        held, number = await held_now(twins), await number_of(twins, TEAM)
        async with twins.held.storage.database.snapshot() as connection:
            seqs = held.memories.seq.tolist()
            extent = await rows.extent(connection, twins.founder.account, number, [*seqs, 10**9])
        assert extent.seqs.tolist() == seqs
        vectors = np.zeros(len(seqs), np.int64)
        for its in held.passages.values():
            vectors += np.bincount(its.at, minlength=len(seqs))
        assert extent.vectors.tolist() == vectors.tolist()
        told, rooms = int(namespace.estimate_sizes(extent).sum()), held.passages.values()
        spare = sum(its.rows.nbytes // its.rows.room * (its.rows.room - its.end) for its in rooms)
        assert held.size_bytes - spare <= told <= held.size_bytes

    async def test_what_has_none_is_not_read(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However few memories there are: a long one has thousands of vectors."""
        await long_memories(twins, 1, MUCH)
        small, pages = index_of(twins.held, ROOM), calls_of(monkeypatch, "page")
        for _ in range(4):
            assert await found_by(twins, small) is None
        assert (small.size_bytes, pages) == (0, [])

    async def test_what_has_grown_beyond_it_is_not_read(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        small = index_of(twins.held, ROOM)
        await held_by(twins, small, TEAM)
        assert small.size_bytes > 0
        await long_memories(twins, 1, MUCH)
        monkeypatch.setattr(resident_index, "CATCH_UP_BYTES_MAX", ROOM)
        pages = calls_of(monkeypatch, "page")
        for _ in range(4):
            assert await found_by(twins, small) is None
        assert (small.size_bytes, pages) == (0, [])

    async def test_no_recall_waits_for_much(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is read beside it, as many changes are."""
        await twins.hold(TEAM)
        await long_memories(twins, 1, 50)
        monkeypatch.setattr(resident_index, "CATCH_UP_BYTES_MAX", 50 * DIM)
        assert await twins.residents(TEAM) is None
        await twins.check_alike()

    async def test_pages_take_little_or_have_one_memory(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await long_memories(twins, 6, 30)
        await long_memories(twins, 1, 200)
        many = " ".join(f"word{n}" for n in range(200))
        await twins.plain.remember(await twins.caller(twins.plain), many)
        monkeypatch.setattr(reading, "PAGE_BYTES", 80 * DIM)
        monkeypatch.setattr(rows, "VECTORS_EACH", 0)
        pages = calls_of(monkeypatch, "page")
        paged = await held_now(twins)
        assert sorted(seq for *_, seqs in pages for seq in seqs) == paged.memories.seq.tolist()
        has = paged.memories.seq[paged.passages[1, "long"].at]
        vectors = np.bincount(has, minlength=int(paged.memories.seq[-1]) + 1)
        lengths = [(len(seqs), int(vectors[seqs].sum())) for *_, seqs in pages]
        assert all(number == 1 or its <= 80 for number, its in lengths)
        assert (1, 200) in lengths
        assert len(pages) <= 6
        monkeypatch.undo()
        pages = calls_of(monkeypatch, "page")
        together = await read_anew(twins)
        assert content_of(paged) == content_of(together)
        [(*_, apart)] = pages  # whose words are rows elsewhere
        [at] = np.flatnonzero(np.isin(together.memories.seq, apart))
        assert sum(np.count_nonzero(part.at == at) for part in together.postings) >= 200

    @pytest.mark.parametrize("aside", [True, False])
    async def test_what_is_large_is_copied_in_a_thread(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch, aside: bool
    ) -> None:
        """However few memories it is of; what is small is not worth one."""
        await twins.hold(TEAM)
        bound = reading.COPIED_BYTES_AT_ONCE_MAX
        if aside:
            bound = (await held_now(twins)).size_bytes + 60 * 2 * DIM
        monkeypatch.setattr(reading, "COPIED_BYTES_AT_ONCE_MAX", bound)
        threads: list[threading.Thread] = []

        def noting(*arguments: Any) -> Any:
            threads.append(threading.current_thread())
            return update(*arguments)

        monkeypatch.setattr(reading, "update", noting)
        await long_memories(twins, 1, 60)
        await held_now(twins)
        assert [thread is threading.main_thread() for thread in threads] == [not aside]


class TestSharing:
    """Two namespaces of which only one has room at a time."""

    @pytest_asyncio.fixture
    async def index(self, twins: Twins) -> AsyncIterator[MemoryIndex]:
        """Has room for the larger one, and for half of the other."""
        await twins.hold(TEAM)
        one = twins.held.services.memory_index.size_bytes
        await twins.hold(OTHER)
        sizes = one, twins.held.services.memory_index.size_bytes - one
        index = index_of(twins.held, max(sizes) + min(sizes) // 2)
        yield index
        await index.close()

    async def asked(self, twins: Twins, index: MemoryIndex, *namespaces: Namespace) -> bool:
        """Whether a request of now finds them; afterwards, what it reads has been read."""
        access = (await twins.caller(twins.held)).access
        found = await index.find(access, [await number_of(twins, n) for n in namespaces])
        await asyncio.gather(*index.reading)
        return found is not None

    async def test_of_two_that_are_asked_together_one_stays(
        self, twins: Twins, index: MemoryIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await held_by(twins, index, OTHER)
        pages = calls_of(monkeypatch, "newest")
        for _ in range(40):
            assert not await self.asked(twins, index, TEAM, OTHER)
        assert len(pages) <= 1
        assert await self.asked(twins, index, OTHER)

    async def test_two_that_are_asked_in_turn_do_not_go_on_displacing_each_other(
        self, twins: Twins, index: MemoryIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reads = calls_of(monkeypatch, "newest")
        found = [
            [await self.asked(twins, index, namespace) for namespace in (TEAM, OTHER)]
            for _ in range(40)
        ]
        assert len(reads) <= 2
        assert sum(map(sum, found)) >= 35

    async def test_what_is_asked_while_another_is_read_stays(
        self, twins: Twins, index: MemoryIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await held_by(twins, index, OTHER)
        newest, seen = rows.newest, []

        async def late(*arguments: Any) -> Any:
            access, number = (await twins.caller(twins.held)).access, await number_of(twins, OTHER)
            seen.append(await index.find(access, [number]))
            return await newest(*arguments)

        monkeypatch.setattr(rows, "newest", late)
        for _ in range(4):
            assert not await self.asked(twins, index, TEAM)
        assert len(seen) == 1
        assert await self.asked(twins, index, OTHER)

    async def test_another_has_room_once_the_first_is_not_asked(
        self, twins: Twins, index: MemoryIndex, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await held_by(twins, index, OTHER)
        for _ in range(4):
            assert not await self.asked(twins, index, TEAM, OTHER)
        await held_by(twins, index, TEAM)
        assert not await self.asked(twins, index, OTHER)


AWAY: Final = "ALTER TABLE index_steps RENAME TO index_steps_away"
BACK: Final = "ALTER TABLE index_steps_away RENAME TO index_steps"
WAITING: Final = (
    "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@asynccontextmanager
async def held_up(twins: Twins, table: str) -> AsyncIterator[None]:
    """Whoever looks at a table waits meanwhile."""
    async with twins.plain.storage.database.transaction() as connection:
        await connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


async def cut_off(twins: Twins, work: Awaitable[Any]) -> Any:
    """What some work gives whose connection ends while it waits for a table."""
    task = asyncio.ensure_future(work)
    await twins.plain.until(f"SELECT count(*) {WAITING}", 1)
    await twins.plain.sql(f"SELECT pg_terminate_backend(pid) {WAITING}")
    return await task


class TestFailing:
    """The database searches then, and is not asked for the same again and again."""

    async def changed(self, twins: Twins) -> None:
        """What is held has to be brought up to date by the next recall."""
        await twins.hold(TEAM)
        await twins.plain.remember(await twins.caller(twins.plain), "Carla drinks tea, too.")

    async def check_let_go(self, twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing is held or read for a while; then it is."""
        index = twins.held.services.memory_index
        reads = [calls_of(monkeypatch, name) for name in ("count", "versions", "read_changes")]
        for _ in range(5):
            assert await found_by(twins, index) is None
        assert (index.size_bytes, reads) == (0, [[], [], []])
        await twins.check_alike()

    async def test_a_connection_that_ends_fails_no_recall(self, twins: Twins) -> None:
        """What is held is not read anew because the database was away once."""
        await self.changed(twins)
        size = twins.held.services.memory_index.size_bytes
        async with held_up(twins, "index_steps"):
            recalled = await cut_off(twins, twins.recall(twins.held, text="Carla tea"))
        assert "Carla drinks tea, too." in [found.memory.text for found in recalled.found]
        assert twins.held.services.memory_index.size_bytes >= size
        assert await twins.residents(TEAM) is not None
        await twins.check_alike()

    async def test_connections_that_go_on_ending_let_go_of_it(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await self.changed(twins)
        for _ in range(resident_index.MISSED_MAX):
            assert twins.held.services.memory_index.size_bytes
            async with held_up(twins, "index_steps"):
                await cut_off(twins, twins.recall(twins.held, text="Carla tea"))
        await self.check_let_go(twins, monkeypatch)

    async def test_only_what_fails_in_a_row_is_counted(self, twins: Twins) -> None:
        await twins.hold(TEAM)
        for n in range(resident_index.MISSED_MAX + 1):
            await twins.plain.remember(await twins.caller(twins.plain), f"Carla drinks {n} teas.")
            async with held_up(twins, "index_steps"):
                await cut_off(twins, twins.recall(twins.held, text="Carla tea"))
            assert await twins.residents(TEAM) is not None

    async def test_those_who_waited_find_the_database_away_with_the_first(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await self.changed(twins)
        reads = calls_of(monkeypatch, "read_changes")
        access, number = (await twins.caller(twins.held)).access, await number_of(twins, TEAM)
        index = twins.held.services.memory_index
        async with held_up(twins, "index_steps"):
            finding = asyncio.gather(*(index.find(access, [number]) for _ in range(3)))
            assert await cut_off(twins, finding) == [None, None, None]
        assert len(reads) == 1

    async def test_what_the_database_refuses_fails_no_recall(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await self.changed(twins)
        await twins.plain.sql(AWAY)
        recalled = await twins.recall(twins.held, text="Carla tea")
        await twins.plain.sql(BACK)
        assert "Carla drinks tea, too." in [found.memory.text for found in recalled.found]
        await self.check_let_go(twins, monkeypatch)

    async def test_those_who_waited_for_it_do_not_try_again(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await self.changed(twins)
        reads = calls_of(monkeypatch, "read_changes")
        await twins.plain.sql(AWAY)
        access, number = (await twins.caller(twins.held)).access, await number_of(twins, TEAM)
        index = twins.held.services.memory_index
        found = await asyncio.gather(*(index.find(access, [number]) for _ in range(3)))
        await twins.plain.sql(BACK)
        assert found == [None, None, None]
        assert len(reads) == 1

    async def test_a_value_of_a_later_release_fails_no_recall(self, twins: Twins) -> None:
        await self.changed(twins)
        await twins.plain.sql("UPDATE memories SET kind = 'later' WHERE seq = 11")
        recalled = await twins.recall(twins.held, text="Carla tea")
        assert "Carla drinks tea, too." in [found.memory.text for found in recalled.found]
        assert twins.held.services.memory_index.size_bytes == 0

    async def test_a_reading_that_was_cut_off_is_not_begun_again_at_once(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        index = twins.held.services.memory_index
        assert await twins.residents(TEAM) is None
        access, number = (await twins.caller(twins.held)).access, await number_of(twins, TEAM)
        async with held_up(twins, "vectors"):
            assert await index.find(access, [number]) is None
            assert len(index.reading) == 1
            await cut_off(twins, asyncio.gather(*index.reading))
        await self.check_let_go(twins, monkeypatch)

    async def test_a_recall_that_is_cancelled_lets_go_of_nothing(self, twins: Twins) -> None:
        await self.changed(twins)
        size = twins.held.services.memory_index.size_bytes
        async with held_up(twins, "index_steps"):
            task = asyncio.create_task(twins.recall(twins.held, text="Carla tea"))
            await twins.plain.until(f"SELECT count(*) {WAITING}", 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert twins.held.services.memory_index.size_bytes == size
        assert await twins.residents(TEAM) is not None
