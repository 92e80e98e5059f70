"""Namespaces held in memory: what they find, that they are never old, and how much they take."""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import pytest_asyncio

from relayer import database as statements
from relayer.database import expiry, rebuild, reseal
from relayer.database import memories as memory_rows
from relayer.database import namespaces as namespace_rows
from relayer.database import resident as rows
from relayer.database import vectors as vector_rows
from relayer.database.accounts import lock_account
from relayer.database.recall import Evidence
from relayer.opening import Caller
from relayer.provision import NewKey
from relayer.query import fusion
from relayer.recall import Query, Recalled
from relayer.recognition import Stored
from relayer.resident import index as resident_index
from relayer.resident import rows as resident_rows
from relayer.resident.index import ResidentIndex
from relayer.resident.namespace import Resident
from relayer.resident.rows import RecentRows
from relayer.revising import Edit
from relayer.sealed.envelope import blob_id
from relayer.sealed.keys import AccountId, Namespace
from relayer.states import Change
from tests.conftest import BenchMaker
from tests.rotator import Rotator
from tests.services import OTHER, TEAM, Bench

PLENTY: Final = 2**30
TALK: Final = [
    "Anna Kowalski prefers tea without sugar.",
    "Anna moved to the Hamburg office in March.",
    "The deploy pipeline broke on 14 March 2031.",
    "Ben sells cups in Rotterdam.",
    "Ticket MW-4711 waits for Ben.",
    "The red door leads to the cellar.",
    "Tea is served at four in the cellar.",
    "Grandfather restarts the database every Sunday.",
    "The database lives in Hamburg.",
    "Ben prefers coffee. " + "He tells of the harbour and of ships that never came. " * 30,
]
QUERIES: Final = [
    {"text": "What does Anna drink?"},
    {"text": "Hamburg database tea cellar Ben", "limit": 3},
    {"text": "MW-4711", "mode": "keyword"},
    {"text": "hot beverages", "mode": "vector"},
    {"text": "Who is in Rotterdam?", "goal": "Buy cups for the office."},
    {"text": "tea", "namespaces": [TEAM, OTHER]},
    {"text": "tea", "namespaces": [OTHER, TEAM], "kinds": ["semantic"]},
    {"text": "What about the door?", "tags": ["house"]},
    {"text": "Who was late in March 2031?", "source": "chat"},
    {"text": "tea in the cellar", "metadata": {"room": "cellar"}},
    {"text": "nothing of all this, zzyzx"},
]


@dataclass
class Twins:
    """Two relayers on one database: one answers from memory, the other by statements alone."""

    held: Bench
    plain: Bench
    founder: NewKey

    async def caller(self, bench: Bench) -> Caller:
        """What a request of now is."""
        caller = await self.held.caller(self.founder)
        key = self.founder
        access = await bench.storage.accounts.access(key.account, key.identity.public_key)
        assert access is not None
        return Caller(access, caller.keys)

    async def recall(self, bench: Bench, **query: Any) -> Recalled:
        asked = Query(**{"namespaces": [TEAM], **query})
        return await bench.services.recaller.recall(await self.caller(bench), asked)

    async def residents(self, *namespaces: Namespace) -> list[Resident] | None:
        """What a request of now would find in memory."""
        caller = await self.caller(self.held)
        entries = [
            await self.held.storage.namespaces.find(self.founder.account, n) for n in namespaces
        ]
        numbers = [entry.namespace_id for entry in entries if entry is not None]
        return await self.held.services.resident.find(caller.access, numbers)

    async def hold(self, *namespaces: Namespace) -> None:
        """Wait until these are answered from memory."""
        async with asyncio.timeout(60):
            while await self.residents(*namespaces) is None:
                await asyncio.sleep(0.01)

    async def check_alike(self) -> None:
        """Return when both answer every query alike, and the one does it from memory."""
        await self.hold(TEAM, OTHER)
        for query in QUERIES:
            ours = await self.recall(self.held, **query)
            theirs = await self.recall(self.plain, **query)
            assert [_exactly(f) for f in ours.found] == [_exactly(f) for f in theirs.found], query
            assert [f.memory for f in ours.found] == [f.memory for f in theirs.found], query
            for one, other in zip(ours.found, theirs.found, strict=True):
                assert _about(one) == pytest.approx(_about(other), abs=1e-5), query
            assert (ours.dropped, ours.degraded) == (theirs.dropped, theirs.degraded)


def _exactly(found: Any) -> tuple[Any, ...]:
    return found.memory.text, found.hit.seq, tuple(sorted(found.hit.matched))


def _about(found: Any) -> list[float]:
    hit = found.hit
    named = (hit.score, hit.relevance, hit.meaning, hit.words, hit.neighbours, hit.period)
    return [*named, hit.distance, 9.0 if hit.cosine is None else hit.cosine]


@pytest_asyncio.fixture
async def twins(make_bench: BenchMaker, embedder: Any) -> AsyncIterator[Twins]:
    held = make_bench(embedder=embedder, index_memory_bytes=PLENTY)
    plain = make_bench(
        embedder=embedder,
        index_memory_bytes=0,
        identity=held.storage.identity,
        clock=held.clock,
    )
    twins = Twins(held, plain, await held.account())
    caller = await held.caller(twins.founder)
    items = await held.remember(caller, *TALK[:6])
    items += await held.remember(caller, TALK[6], kind="semantic", tags=("house",))
    items += await held.remember(
        caller, TALK[7], source="chat", metadata={"room": "cellar"}, namespace=OTHER
    )
    items += await held.remember(caller, *TALK[8:], namespace=OTHER)
    await held.embed(caller, items)
    yield twins
    await held.services.resident.close()


Change_ = Callable[[Twins, Caller], Awaitable[None]]


async def _remembers(twins: Twins, caller: Caller) -> None:
    await twins.plain.remember(caller, "Carla drinks tea with Anna.")


async def _embeds(twins: Twins, caller: Caller) -> None:
    items = await twins.plain.remember(caller, "Carla drinks tea with Anna.", "The cups are red.")
    await twins.check_alike()  # found by words at once, by meaning later
    await twins.plain.embed(caller, items)


async def _edits(twins: Twins, caller: Caller) -> None:
    [first, *_] = (await twins.recall(twins.plain, text="Anna tea sugar")).found
    edit = Edit(changes={"text": "Anna prefers coffee from Hamburg."})
    await twins.plain.services.reviser.edit(caller, first.memory.id, edit)


async def _forgets(twins: Twins, caller: Caller) -> None:
    [first, *_] = (await twins.recall(twins.plain, text="Anna tea sugar")).found
    await twins.plain.services.memory.forget(caller.access, first.memory.id)


async def _holds_back(twins: Twins, caller: Caller) -> None:
    [first, *_] = (await twins.recall(twins.plain, text="Hamburg")).found
    change: Change = {"review": "rejected"}
    await twins.plain.services.reviser.set_state(caller.access, first.memory.id, change)


async def _limits_life(twins: Twins, caller: Caller) -> None:
    await twins.plain.services.expiry.keep(caller.access, TEAM, 3600)
    await twins.check_alike()
    twins.held.clock.advance(3700)


async def _rotates(twins: Twins, caller: Caller) -> None:
    owner = Rotator(twins.held, twins.founder)
    await owner.rotate(reseal="all")
    await twins.check_alike()
    assert await owner.reseal()


async def _says_again(twins: Twins, caller: Caller) -> None:
    [first, *_] = (await twins.recall(twins.plain, text="Anna tea sugar")).found
    async with twins.plain.storage.database.transaction() as connection:
        await lock_account(connection, caller.access.account)
        await memory_rows.count_seen(
            connection,
            account=caller.access.account,
            ids=[first.memory.id],
            now=twins.plain.clock(),
        )
    [again, *_] = (await twins.recall(twins.plain, text="Anna tea sugar")).found
    assert again.memory.seen_count == first.memory.seen_count + 1


async def _indexes_anew(twins: Twins, caller: Caller) -> None:
    account = caller.access.account
    await vector_rows.forget_versions(twins.plain.storage.database, account=account)
    await twins.plain.sql("UPDATE memories SET index_version = 1 WHERE account_id = $1", account)
    rows = await twins.plain.sql("SELECT memory_id FROM memories WHERE account_id = $1", account)
    await twins.plain.services.indexer.embed(account, caller.keys, [r["memory_id"] for r in rows])


CHANGES: Final[list[Change_]] = [
    _remembers, _embeds, _edits, _forgets, _holds_back, _limits_life, _rotates, _says_again,
    _indexes_anew,
]  # fmt: skip


class TestFinding:
    async def test_finds_what_statements_find(self, twins: Twins) -> None:
        await twins.check_alike()

    @pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
    async def test_is_never_older_than_the_request(self, twins: Twins, change: Change_) -> None:
        """Whatever another relayer changes is seen by the next request, from memory."""
        await twins.check_alike()
        before = await twins.residents(TEAM)
        await change(twins, await twins.caller(twins.plain))
        after = await twins.residents(TEAM)
        assert before is not None
        assert after is None or after[0] is not before[0]
        await twins.check_alike()
        assert _content(await _held(twins)) == _content(await _read_anew(twins))

    async def test_a_reading_is_of_one_moment(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A memory whose successor comes between two statements of a reading is still found."""
        await twins.hold(TEAM)
        caller = await twins.caller(twins.plain)
        [old] = await twins.plain.remember(caller, "Zelda keeps zebras in Zanzibar.")
        request = await twins.caller(twins.held)
        page, done = rows.page, []

        async def late(*arguments: Any) -> Any:
            if not done:
                done.append("superseded")
                [new] = await twins.plain.remember(caller, "Zelda keeps zebras in Zambia.")
                change: Change = {"superseded_by": new.id}
                await twins.plain.services.reviser.set_state(caller.access, old.id, change)
            return await page(*arguments)

        monkeypatch.setattr(rows, "page", late)
        asked = Query(text="Zelda zebras", namespaces=[TEAM])
        recalled = await twins.held.services.recaller.recall(request, asked)
        assert done
        assert any("Zelda" in (found.memory.text or "") for found in recalled.found)

    async def test_the_same_stand_beside(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of one writer, one source and one quarter of an hour, whatever came in between."""
        founder = await twins.held.caller(twins.founder)
        agent = await twins.held.caller(await twins.held.key(twins.founder, TEAM))
        numbered: list[Stored] = []
        for n in range(24):
            caller = agent if n % 3 == 0 else founder
            source = (None, "chat", "mail")[n % 5 % 3]
            numbered += await twins.held.remember(caller, f"Cup {n} is cracked.", source=source)
            twins.held.clock.advance(700 if n % 7 == 0 else 70)
        for item in numbered[9:13]:  # now those around them are next to one another
            await twins.held.services.memory.forget(founder.access, item.id)
        beside: list[set[tuple[int, ...]]] = []
        fused = fusion.fused

        def noting(evidence: Evidence, *arguments: Any, **named: Any) -> Any:
            pairs = evidence.seqs[evidence.pairs]
            rows = np.column_stack([pairs, evidence.steps]).tolist()
            beside.append({tuple(row) for row in rows})
            return fused(evidence, *arguments, **named)

        monkeypatch.setattr(fusion, "fused", noting)
        await twins.hold(TEAM)
        for bench in (twins.held, twins.plain):
            await twins.recall(bench, text="Which cups are cracked?", limit=30)
        assert beside[0] == beside[1]
        assert len(beside[0]) > 20

    async def test_another_accounts_namespace_is_not_found(self, twins: Twins) -> None:
        """Numbers of namespaces are an account's own."""
        await twins.hold(TEAM)
        stranger = await twins.held.account()
        access = await twins.held.storage.accounts.access(
            stranger.account, stranger.identity.public_key
        )
        assert access is not None
        number = await _number(twins, TEAM)
        assert await twins.held.services.resident.find(access, [number]) is None

    async def test_another_time_is_asked_of_the_database(self, twins: Twins) -> None:
        await twins.hold(TEAM)
        now = twins.held.clock()
        twins.held.clock.advance(60)
        caller = await twins.caller(twins.held)
        [first, *_] = (await twins.recall(twins.plain, text="Anna tea sugar")).found
        await twins.plain.services.memory.forget(caller.access, first.memory.id)
        old = [f.memory.text for f in (await twins.recall(twins.held, text="tea", as_of=now)).found]
        assert old == [
            f.memory.text for f in (await twins.recall(twins.plain, text="tea", as_of=now)).found
        ]

    async def test_uploads_are_found_alike(self, twins: Twins) -> None:
        caller = await twins.caller(twins.held)
        for n in range(30):
            vector = _vector(n)
            await twins.held.services.manual.remember(caller, TEAM, bytes([7, n] * 40), vector)
        await twins.hold(TEAM)
        for asked in (_vector(3), _vector(100), _vector(3)[:4]):
            found = [
                await bench.services.manual.recall(await twins.caller(bench), TEAM, asked, 5)
                for bench in (twins.held, twins.plain)
            ]
            assert [name for name, _ in found[0]] == [name for name, _ in found[1]]
            distances = [[distance for _, distance in one] for one in found]
            assert distances[0] == pytest.approx(distances[1], abs=1e-5)

    async def test_of_equal_uploads_the_newest_come_first(self, twins: Twins) -> None:
        """However many there are: a product adds up the last vectors in another way."""
        caller = await twins.caller(twins.held)
        vector = np.random.default_rng(1).normal(size=384)
        names = []
        for n in range(70):
            manual = twins.held.services.manual
            names += [(await manual.remember(caller, TEAM, bytes([7, n] * 40), vector))[1]]
            if n % 10 < 6:
                continue
            await twins.hold(TEAM)
            for asked in (vector, np.random.default_rng(2).normal(size=384)):
                found = await manual.recall(await twins.caller(twins.held), TEAM, asked, 5)
                assert [name for name, _ in found] == names[:-6:-1]

    async def test_uploads_that_are_over_are_not_found(self, twins: Twins) -> None:
        caller, manual = await twins.caller(twins.held), twins.held.services.manual
        held_back, _ = await manual.remember(caller, TEAM, b"held back" * 9, _vector(1))
        await manual.remember(caller, TEAM, b"there" * 9, _vector(1))
        change: Change = {"review": "rejected"}
        await twins.plain.services.reviser.set_state(caller.access, held_back, change)
        await twins.hold(TEAM)
        now = await twins.caller(twins.held)
        [(name, _)] = await manual.recall(now, TEAM, _vector(1), 5)
        assert name == blob_id(b"there" * 9)
        await twins.plain.services.expiry.keep(caller.access, TEAM, 3600)
        await twins.hold(TEAM)
        assert len(await manual.recall(await twins.caller(twins.held), TEAM, _vector(1), 5)) == 1
        twins.held.clock.advance(3700)
        assert await manual.recall(await twins.caller(twins.held), TEAM, _vector(1), 5) == []


def _vector(seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=8).astype(np.float32)


async def _held(twins: Twins) -> Resident:
    """The namespace as it is held now."""
    await twins.hold(TEAM)
    found = await twins.residents(TEAM)
    assert found is not None
    return found[0]


async def _read_anew(twins: Twins) -> Resident:
    """The namespace as somebody reads it who has held nothing before."""
    index = _index_of(twins.held, PLENTY)
    await _held_by(twins, index, TEAM)
    access, number = (await twins.caller(twins.held)).access, await _number(twins, TEAM)
    found = await index.find(access, [number])
    assert found is not None
    await index.close()
    return found[0]


def _content(resident: Resident) -> list[Any]:
    """All that a namespace holds, in an order of its own."""
    vectors = {
        scope: sorted(zip(its.at.tolist(), its.units.T.tolist(), strict=True))
        for scope, its in resident.passages.items()
    }
    postings = sorted(
        pair
        for part in resident.postings
        for pair in zip(part.tokens.tolist(), part.entries.tolist(), strict=True)
    )
    columns = [column.tolist() for column in resident.memories.columns]
    return [resident.documents, resident.words, columns, vectors, postings]


class TestHolding:
    async def test_counts_every_array(self, twins: Twins) -> None:
        held = await _held(twins)
        passages = [array for p in held.passages.values() for array in (p.at, p.columns.whole)]
        postings = [array for p in held.postings for array in (p.tokens, p.entries)]
        arrays = [*held.memories.columns, *passages, *postings]
        assert all(array.base is None or array.base.size == array.size for array in arrays)
        assert held.size_bytes == sum(array.nbytes for array in arrays)

    async def test_the_first_recall_reads_nothing(self, twins: Twins) -> None:
        resident = twins.held.services.resident
        await twins.recall(twins.held, text="tea")
        assert (resident.reading, resident.size_bytes) == ([], 0)
        await twins.recall(twins.held, text="tea")
        await asyncio.gather(*resident.reading)
        assert resident.size_bytes > 0

    async def test_holds_nothing_without_room(self, twins: Twins) -> None:
        for _ in range(5):
            await twins.recall(twins.plain, text="tea")
        assert not twins.plain.services.resident.reading
        assert twins.plain.services.resident.size_bytes == 0

    async def test_lets_go_of_what_was_asked_longest_ago(self, twins: Twins) -> None:
        await twins.hold(TEAM)
        one = twins.held.services.resident.size_bytes
        await twins.hold(OTHER)
        both = twins.held.services.resident.size_bytes
        small = _index_of(twins.held, max(one, both - one))
        await _held_by(twins, small, TEAM)
        await _held_by(twins, small, OTHER)
        assert 0 < small.size_bytes <= max(one, both - one)
        await small.close()

    async def test_lets_go_of_what_has_grown_too_large(self, twins: Twins) -> None:
        await twins.hold(TEAM)
        small = _index_of(twins.held, twins.held.services.resident.size_bytes + 500)
        await _held_by(twins, small, TEAM)
        caller = await twins.caller(twins.plain)
        await twins.plain.remember(caller, *[f"Person {n} has {n} cups." for n in range(20)])
        access, number = (await twins.caller(twins.held)).access, await _number(twins, TEAM)
        assert await small.find(access, [number]) is None
        assert small.size_bytes == 0

    async def test_does_not_read_again_and_again_what_has_grown_too_large(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await twins.hold(TEAM)
        small = _index_of(twins.held, twins.held.services.resident.size_bytes + 500)
        await _held_by(twins, small, TEAM)
        monkeypatch.setattr(resident_index, "CATCH_UP_MAX", 1)
        caller = await twins.caller(twins.plain)
        await twins.plain.remember(caller, *[f"Person {n} has {n} cups." for n in range(30)])
        reads = _counted(monkeypatch, "versions")
        access, number = (await twins.caller(twins.held)).access, await _number(twins, TEAM)
        for _ in range(10):
            assert await small.find(access, [number]) is None
            await asyncio.gather(*small.reading)
        assert small.size_bytes == 0
        assert len(reads) <= 2

    async def test_requests_that_overtake_one_another_turn_nothing_back(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await twins.hold(TEAM)
        old = (await twins.caller(twins.held)).access
        await twins.plain.remember(
            await twins.caller(twins.plain), "Elsewhere it rains.", namespace=OTHER
        )
        new = (await twins.caller(twins.held)).access
        reads = _counted(monkeypatch, "versions")
        number = await _number(twins, TEAM)
        for _ in range(5):
            assert await twins.held.services.resident.find(new, [number]) is not None
            assert await twins.held.services.resident.find(old, [number]) is not None
        assert len(reads) <= 2

    async def test_an_epoch_that_a_namespace_lacks_is_looked_for_once(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await Rotator(twins.held, twins.founder).rotate(reseal="none")
        find, loads = namespace_rows.find_namespaces, []

        async def counted(*arguments: Any) -> Any:
            loads.append(arguments)
            return await find(*arguments)

        monkeypatch.setattr(namespace_rows, "find_namespaces", counted)
        for _ in range(5):
            await twins.recall(twins.held, text="tea")
        assert len(loads) <= 2

    async def test_leaves_out_what_has_no_room(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        small = _index_of(twins.held, 2_000)
        access, number = (await twins.caller(twins.held)).access, await _number(twins, TEAM)
        for _ in range(4):
            assert await small.find(access, [number]) is None
            await asyncio.gather(*small.reading)
        assert small.size_bytes == 0

    async def test_many_changes_are_read_aside(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await twins.hold(TEAM)
        monkeypatch.setattr(resident_index, "CATCH_UP_MAX", 1)
        caller = await twins.caller(twins.plain)
        await twins.plain.remember(caller, "Carla is here.", "Dora is there.", "Emil is away.")
        assert await twins.residents(TEAM) is None
        await twins.hold(TEAM)
        await twins.check_alike()

    async def test_an_account_without_a_mark_is_asked_of_the_database(self, twins: Twins) -> None:
        await twins.hold(TEAM)
        access = replace((await twins.caller(twins.held)).access, index_mark=None)
        number = await _number(twins, TEAM)
        assert await twins.held.services.resident.find(access, [number]) is None

    async def test_ends_while_it_reads(self, twins: Twins) -> None:
        await twins.residents(TEAM)
        await twins.residents(TEAM)
        await twins.held.services.resident.close()
        assert not twins.held.services.resident.reading


def _counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """Calls of a statement from now on."""
    call, calls = getattr(rows, name), []

    async def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return await call(*arguments)

    monkeypatch.setattr(rows, name, counted)
    return calls


def _index_of(bench: Bench, bytes_max: int) -> ResidentIndex:
    """One that has room for so much of namespaces, and some more for rows."""
    share = resident_index.ROWS_SHARE
    whole = -(-bytes_max * share // (share - 1))
    return ResidentIndex(database=bench.storage.database, bytes_max=whole)


async def _number(twins: Twins, namespace: Namespace) -> int:
    entry = await twins.held.storage.namespaces.find(twins.founder.account, namespace)
    assert entry is not None
    return entry.namespace_id


async def _held_by(twins: Twins, index: ResidentIndex, namespace: Namespace) -> None:
    access, number = (await twins.caller(twins.held)).access, await _number(twins, namespace)
    async with asyncio.timeout(60):
        while await index.find(access, [number]) is None:
            await asyncio.gather(*index.reading)


class TestRows:
    """What was found is read once, as long as it stays what it was."""

    async def test_what_was_shown_is_not_read_again(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await twins.check_alike()
        kept, missed = twins.held.services.resident._rows, list[int]()
        find = kept.find

        def counted(account: AccountId, listed: Mapping[int, int]) -> dict[int, Any]:
            found = find(account, listed)
            missed.extend(listed.keys() - found.keys())
            return found

        monkeypatch.setattr(kept, "find", counted)
        await twins.check_alike()
        assert missed == []
        caller = await twins.caller(twins.plain)
        [first, *_] = (await twins.recall(twins.plain, text="Anna tea sugar")).found
        await twins.plain.services.reviser.set_state(
            caller.access, first.memory.id, {"pinned": True}
        )
        await twins.check_alike()
        assert set(missed) == {first.hit.seq}

    async def test_a_row_of_another_moment_is_not_kept(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What changes between the search and the reading is shown, and forgotten again."""
        await twins.hold(TEAM)
        rows_of, changed = resident_index.rows_of, []
        [first, *_] = (await twins.recall(twins.plain, text="Anna tea sugar")).found

        async def late(database: Any, *, account: Any, seqs: Sequence[int]) -> Any:
            if not changed:
                changed.append(first.memory.id)
                caller = await twins.caller(twins.plain)
                await twins.plain.services.reviser.set_state(
                    caller.access, first.memory.id, {"pinned": True}
                )
            return await rows_of(database, account=account, seqs=seqs)

        monkeypatch.setattr(resident_index, "rows_of", late)
        await twins.recall(twins.held, text="Anna tea sugar")
        listed = (await twins.residents(TEAM) or [])[0].listed([first.hit.seq])
        kept = twins.held.services.resident._rows.find(twins.founder.account, listed)
        assert changed
        assert kept == {}
        await twins.check_alike()

    async def test_keeps_no_more_than_it_has_room_for(self, twins: Twins) -> None:
        rows = await twins.plain.sql(
            "SELECT m.*, xmin::text::bigint AS version, repeat('x', 500)::bytea AS blob"
            " FROM memories m ORDER BY seq"
        )
        account, kept = twins.founder.account, RecentRows(bytes_max=20_000)
        listed = {row["seq"]: row["version"] for row in rows}
        kept.keep(account, rows)
        assert 0 < kept.size_bytes <= 20_000
        assert list(kept.find(account, listed)) == list(listed)[-3:]
        kept.keep(account, rows[-3:])
        assert list(kept.find(account, listed)) == list(listed)[-3:], "none counts twice"
        assert kept.find(AccountId(bytes(32)), listed) == {}
        assert kept.find(account, dict.fromkeys(listed, 1)) == {}, "versions that nobody has"
        kept.clear()
        assert (kept.size_bytes, kept.find(account, listed)) == (0, {})

    async def test_altered_bytes_are_looked_at_each_time(self, twins: Twins) -> None:
        """They may be mended, which no row tells of."""
        await twins.hold(TEAM)
        asked = {"text": "Anna tea sugar", "limit": 1}
        [row] = await twins.plain.sql(
            "SELECT b.blob_id, b.bytes FROM memories m JOIN blobs b USING (account_id, blob_id)"
            " WHERE m.seq = $1",
            (await twins.recall(twins.plain, **asked)).found[0].hit.seq,
        )
        change = "UPDATE blobs SET bytes = $2 WHERE blob_id = $1"
        await twins.plain.sql(change, row["blob_id"], b"altered")
        assert (await twins.recall(twins.held, **asked)).dropped == 1
        await twins.plain.sql(change, row["blob_id"], row["bytes"])
        assert (await twins.recall(twins.held, **asked)).dropped == 0

    async def test_lets_go_of_everything_in_time(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(resident_rows, "LIFE_S", 0.01)
        await twins.hold(TEAM)
        await twins.recall(twins.held, text="Anna tea sugar")
        kept = twins.held.services.resident._rows
        async with asyncio.timeout(60):
            while kept.size_bytes:
                await asyncio.sleep(0.01)
        await twins.check_alike()


class TestMarks:
    """Whoever changes what memories are found by, or what is shown of them, moves the mark."""

    # With a receipt, whose head is half of the mark; or with `note_change`, in its transaction.
    RECEIPTED: Final = {
        "memories._WRITE", "arriving._ARRIVE", "arriving._INSERT_VECTORS", "erasure._ERASE",
        "revisions._ARCHIVE", "revisions._MOVE_POSTINGS", "revisions._COPY_VECTORS",
        "revisions._VACATE", "revisions._DELETE_VECTORS", "revisions._REVISE",
        "revisions._SET_LIFE", "revisions._SHARE_LIFE", "reseal._DELETE_POSTINGS",
        "reseal._MOVE_MEMORIES", "states._SET_STATES", "states._PART", "closing._EMPTY_MEMORIES",
        "closing._EMPTY_POSTINGS", "consolidation._COUNT_MERGED",
    }  # fmt: skip
    NOTED: Final = {
        "vectors._DELETE_VECTORS", "vectors._INSERT_VECTORS", "vectors._GIVE_UP",
        "vectors._MARK_MISSING", "vectors._DELETE_POSTINGS", "vectors._INSERT_POSTINGS",
        "expiry._APPLY_TTL", "rebuild._DROP", "reseal._MARK_LOST", "memories._SEEN",
    }  # fmt: skip
    # Nothing that a recall looks at.
    UNSEEN: Final = {
        "vectors._FORGET_VERSIONS", "rebuild._SET_STATE_BLOBS",
    }  # fmt: skip

    def test_every_statement_is_known(self) -> None:
        """A new one has to be put where it belongs."""
        assert _changing() == self.RECEIPTED | self.NOTED | self.UNSEEN

    def test_all_that_notes_its_change_does_it_first(self) -> None:
        changing: Sequence[Callable[..., Any]] = (
            vector_rows.store,
            expiry.apply_ttl,
            rebuild.drop,
            reseal.mark_altered,
            namespace_rows.recount,
        )
        for function in changing:
            first = r"transaction\(\) as connection:\n(\s+#.*\n)*\s+await note_change"
            assert re.search(first, inspect.getsource(function)), function


def _changing() -> set[str]:
    """The statements that write memories, vectors or postings."""
    found = set()
    for path in sorted(Path(statements.__path__[0]).glob("*.py")):
        module = __import__(f"relayer.database.{path.stem}", fromlist=["_"])
        for name, value in inspect.getmembers(module, lambda member: isinstance(member, str)):
            if re.search(r"(INSERT INTO|UPDATE|DELETE FROM) (memories|vectors|postings)\b", value):
                found.add(f"{path.stem}.{name}")
    return found
