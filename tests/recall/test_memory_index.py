"""Namespaces held in memory: what they find, that they are never old, and how much they take."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import numpy as np
import pytest

from relayer.database import memories as memory_rows
from relayer.database import memory_index as rows
from relayer.database import namespaces as namespace_rows
from relayer.database import vectors as vector_rows
from relayer.database.accounts import lock_account
from relayer.database.recall import Evidence, rows_of
from relayer.journal.states import Change
from relayer.memories.opener import Caller
from relayer.memories.recognition import Stored
from relayer.memories.revisions import Edit
from relayer.memory_index import evidence
from relayer.memory_index import index as resident_index
from relayer.memory_index import rows as resident_rows
from relayer.memory_index.rows import RecentRows
from relayer.query import fusion
from relayer.query.query import Query
from relayer.query.rank import Weights
from relayer.sealed.envelope import blob_id
from relayer.sealed.keys import AccountId, Namespace
from tests.consolidating import TEA, TEA_AGAIN, consolidated, said
from tests.rotator import Rotator
from tests.services import OTHER, TEAM
from tests.twins import (
    DIGITS,
    TALK,
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
    await twins.plain.services.state_changer.set_state(caller.access, first.memory.id, change)


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


async def _lives_longer(twins: Twins, caller: Caller) -> None:
    soon = twins.plain.clock() + timedelta(hours=1)
    await twins.plain.remember(caller, "Carla is in town.", expires_at=soon)
    await twins.check_alike()
    await twins.plain.remember(caller, "Carla is in town.", expires_at=soon + timedelta(days=1))
    twins.held.clock.advance(2 * 3600)


async def _merges(twins: Twins, caller: Caller) -> None:
    await said(twins.plain, caller, TEA)
    await said(twins.plain, caller, TEA_AGAIN)
    run, _ = await consolidated(twins.plain, caller)
    await twins.check_alike()
    await twins.plain.services.runs.undo(caller.access, run["run_id"])


CHANGES: Final[list[Change_]] = [
    _remembers, _embeds, _edits, _forgets, _holds_back, _limits_life, _rotates, _says_again,
    _indexes_anew, _lives_longer, _merges,
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
        assert content_of(await held_now(twins)) == content_of(await read_anew(twins))

    async def test_a_reading_is_of_one_moment(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A memory whose successor comes between two statements of a reading is still found."""
        await twins.hold(TEAM)
        caller = await twins.caller(twins.plain)
        [old] = await twins.plain.remember(caller, "Zelda keeps zebras in Zanzibar.")
        request = await twins.caller(twins.held)
        page, done = rows.page, list[str]()

        async def supersede() -> None:
            [new] = await twins.plain.remember(caller, "Zelda keeps zebras in Zambia.")
            change: Change = {"superseded_by": new.id}
            await twins.plain.services.state_changer.set_state(caller.access, old.id, change)

        async def late(*arguments: Any) -> Any:
            if not done:
                done.append("superseded")
                await asyncio.create_task(supersede())  # as another process would
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
        fused = fusion.fuse

        def noting(evidence: Evidence, *arguments: Any, **named: Any) -> Any:
            pairs = evidence.seqs[evidence.pairs]
            rows = np.column_stack([pairs, evidence.steps]).tolist()
            beside.append({tuple(row) for row in rows})
            return fused(evidence, *arguments, **named)

        monkeypatch.setattr(fusion, "fuse", noting)
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
        number = await number_of(twins, TEAM)
        assert await twins.held.services.memory_index.find(access, [number]) is None

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

    @pytest.mark.parametrize("mode", ["hybrid", "vector"])
    async def test_what_is_edited_before_it_is_opened_is_searched_again(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch, mode: str
    ) -> None:
        """As things are by then: what it said at a time has another number."""
        await twins.hold(TEAM)
        now = twins.held.clock()
        twins.held.clock.advance(60)
        gather, edited = evidence.gather_aside, list[str]()

        async def gathered(*arguments: Any) -> Evidence:
            found = await gather(*arguments)
            if not edited:
                edited.append("Anna")
                await _edits(twins, await twins.caller(twins.plain))
            return found

        monkeypatch.setattr(evidence, "gather_aside", gathered)
        asked: dict[str, Any] = {"text": "Anna tea sugar", "as_of": now, "mode": mode}
        ours = await twins.recall(twins.held, **asked)
        theirs = await twins.recall(twins.plain, **asked)
        assert edited
        assert [f.memory.text for f in ours.found] == [f.memory.text for f in theirs.found]
        assert ours.found[0].memory.text == TALK[0]

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
            distances = [[distance for _, distance in one] for one in found]
            assert distances[0] == pytest.approx(distances[1], abs=5e-3)  # of 8 numbers
            first = [[name for name, _ in one[:1]] for one in found]
            assert first[0] == first[1]

    @pytest.mark.parametrize("namespace", [TEAM, OTHER])
    async def test_what_was_remembered_is_found_beside_uploads_alike(
        self, twins: Twins, namespace: Namespace
    ) -> None:
        """By a vector of the relayer's model; a text of several passages comes once."""
        embedder = twins.held.services.embedders.current
        assert embedder is not None
        vectors = (await embedder.embed([*TALK, "a hot drink"])).astype(np.float64)
        for place, number in ((TEAM, 0), (OTHER, 9)):
            # Between two texts: of one that is as near as a text, the last digit would decide.
            between = vectors[number] + vectors[number + 1]
            await twins.held.services.manual.remember(
                await twins.caller(twins.held), place, place.encode() * 9, between
            )
        await twins.hold(namespace)
        here = len(TALK) - 3 if namespace == TEAM else 3
        recent = Weights(recency=1.0, semantic=0.0, recency_half_life_days=0.01)
        for weights in (Weights(), recent, Weights(importance=3.0)):
            for vector in vectors:
                ours, theirs = [
                    await bench.services.manual.recall(
                        await twins.caller(bench), namespace, vector, 100, weights
                    )
                    for bench in (twins.held, twins.plain)
                ]
                names = [name for name, _ in ours]
                exact = dict(theirs)
                assert sorted(names) == sorted(exact)
                # What is as near but for the last digits may change places.
                in_order = [exact[name] for name in names]
                assert in_order == pytest.approx([d for _, d in theirs], abs=DIGITS)
                assert len(names) == len(set(names)) == here + 1
                assert blob_id(namespace.encode() * 9) in names
                distances = [distance for _, distance in ours]
                assert distances == pytest.approx(in_order, abs=DIGITS)
                assert weights != Weights() or distances == sorted(distances)

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
        await twins.plain.services.state_changer.set_state(caller.access, held_back, change)
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


class TestHolding:
    async def test_counts_every_array(self, twins: Twins) -> None:
        held = await held_now(twins)
        passages = [array for p in held.passages.values() for array in (p.at, *p.rows.arrays)]
        postings = [array for p in held.postings for array in p.arrays]
        arrays = [*held.memories.columns, *passages, *postings]
        owners = [array if array.base is None else array.base for array in arrays]
        assert held.size_bytes == sum(owner.nbytes for owner in owners)
        shared = [owner for owner, array in zip(owners, arrays, strict=True) if owner is not array]
        assert shared
        assert all(owner.size == 1 for owner in shared)

    async def test_the_first_recall_reads_nothing(self, twins: Twins) -> None:
        resident = twins.held.services.memory_index
        await twins.recall(twins.held, text="tea")
        assert (resident.reading, resident.size_bytes) == ([], 0)
        await twins.recall(twins.held, text="tea")
        await asyncio.gather(*resident.reading)
        assert resident.size_bytes > 0

    async def test_holds_nothing_without_room(self, twins: Twins) -> None:
        for _ in range(5):
            await twins.recall(twins.plain, text="tea")
        assert not twins.plain.services.memory_index.reading
        assert twins.plain.services.memory_index.size_bytes == 0

    async def test_lets_go_of_what_was_asked_longest_ago(self, twins: Twins) -> None:
        await twins.hold(TEAM)
        one = twins.held.services.memory_index.size_bytes
        await twins.hold(OTHER)
        both = twins.held.services.memory_index.size_bytes
        small = index_of(twins.held, max(one, both - one))
        await held_by(twins, small, TEAM)
        await held_by(twins, small, OTHER)
        assert 0 < small.size_bytes <= max(one, both - one)
        await small.close()

    async def test_lets_go_of_what_has_grown_too_large(self, twins: Twins) -> None:
        await twins.hold(TEAM)
        small = index_of(twins.held, twins.held.services.memory_index.size_bytes + 500)
        await held_by(twins, small, TEAM)
        caller = await twins.caller(twins.plain)
        await twins.plain.remember(caller, *[f"Person {n} has {n} cups." for n in range(20)])
        access, number = (await twins.caller(twins.held)).access, await number_of(twins, TEAM)
        assert await small.find(access, [number]) is None
        assert small.size_bytes == 0

    async def test_does_not_read_again_and_again_what_has_grown_too_large(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await twins.hold(TEAM)
        small = index_of(twins.held, twins.held.services.memory_index.size_bytes + 500)
        await held_by(twins, small, TEAM)
        monkeypatch.setattr(resident_index, "CATCH_UP_MAX", 1)
        caller = await twins.caller(twins.plain)
        await twins.plain.remember(caller, *[f"Person {n} has {n} cups." for n in range(30)])
        reads = calls_of(monkeypatch, "versions")
        access, number = (await twins.caller(twins.held)).access, await number_of(twins, TEAM)
        for _ in range(10):
            assert await small.find(access, [number]) is None
            await asyncio.gather(*small.reading)
        assert small.size_bytes == 0
        assert len(reads) <= 2

    async def test_requests_that_overtake_one_another_turn_nothing_back(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await twins.hold(TEAM)
        requests = []
        for n in range(7):
            caller = await twins.caller(twins.plain)
            await twins.plain.remember(caller, f"Elsewhere it rains, {n}.", namespace=OTHER)
            requests.append((await twins.caller(twins.held)).access)
        reads = calls_of(monkeypatch, "read_changes")
        number = await number_of(twins, TEAM)
        for _ in range(5):
            for access in requests:
                assert await twins.held.services.memory_index.find(access, [number]) is not None
        assert len(reads) <= len(requests)

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
        small = index_of(twins.held, 2_000)
        access, number = (await twins.caller(twins.held)).access, await number_of(twins, TEAM)
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
        number = await number_of(twins, TEAM)
        assert await twins.held.services.memory_index.find(access, [number]) is None

    async def test_ends_while_it_reads(self, twins: Twins) -> None:
        await twins.residents(TEAM)
        await twins.residents(TEAM)
        await twins.held.services.memory_index.close()
        assert not twins.held.services.memory_index.reading


class TestRows:
    """What was found is read once, as long as it stays what it was."""

    async def test_what_was_shown_is_not_read_again(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await twins.check_alike()
        kept, missed = twins.held.services.memory_index._rows, list[int]()
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
        await twins.plain.services.state_changer.set_state(
            caller.access, first.memory.id, {"pinned": True}
        )
        await twins.check_alike()
        assert set(missed) == {first.hit.seq}

    async def test_a_row_of_another_moment_is_not_kept(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What changes between the search and the reading is shown, and forgotten again."""
        await twins.hold(TEAM)
        changed: list[uuid.UUID] = []
        [first, *_] = (await twins.recall(twins.plain, text="Anna tea sugar")).found

        async def late(database: Any, *, account: Any, seqs: Sequence[int]) -> Any:
            if not changed:
                changed.append(first.memory.id)
                caller = await twins.caller(twins.plain)
                await twins.plain.services.state_changer.set_state(
                    caller.access, first.memory.id, {"pinned": True}
                )
            return await rows_of(database, account=account, seqs=seqs)

        monkeypatch.setattr(resident_index, "rows_of", late)
        await twins.recall(twins.held, text="Anna tea sugar")
        listed = (await twins.residents(TEAM) or [])[0].versions_of([first.hit.seq])
        kept = twins.held.services.memory_index._rows.find(twins.founder.account, listed)
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
        kept = twins.held.services.memory_index._rows
        async with asyncio.timeout(60):
            while kept.size_bytes:
                await asyncio.sleep(0.01)
        await twins.check_alike()
