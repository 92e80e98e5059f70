"""What an archive or the relayer that it comes from may say, and what harms nobody here."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from os import urandom
from typing import Any, Literal

import msgspec
import numpy as np
import pytest

from relayer.archives.importer import Arrival
from relayer.archives.row_importer import PLACES_MAX
from relayer.embedding.published import ENGLISH
from relayer.errors import QuotaExceeded, TooLarge
from relayer.memories.opener import Caller
from relayer.portable import SERIALS_MAX, MovedAccount, MovedLink, MovedMemory, MovedTombstone
from relayer.preferences import HOURS_MAX
from relayer.record import new_id
from relayer.sealed.envelope import blob_id
from relayer.settings import Limits
from relayer.tenants.accounts import Access
from tests.erasing import keep_turn
from tests.moving import EMPTY, POSTINGS, ROWS, VECTORS, everything, founded, here, packed, there
from tests.reindex_scene import models_of
from tests.services import OTHER, TEAM, Bench

__all__ = ["here", "there"]  # fixtures

Relation = Literal["contradicts", "source", "turn", "merged"]


@pytest.mark.parametrize("hours", [-1, HOURS_MAX + 1, 2**40])
async def test_settings_come_within_their_bounds(bench: Bench, hours: int) -> None:
    caller = await bench.caller(await bench.account())
    [account] = await everything(bench, caller, "account")
    said: dict[str, Any] = msgspec.to_builtins(account)
    assert msgspec.convert(said, MovedAccount) == account
    said["settings"]["consolidate_every_h"] = hours
    with pytest.raises(msgspec.ValidationError, match=r"settings\.consolidate_every_h"):
        msgspec.convert(said, MovedAccount)


async def scene(here: Bench, there: Bench) -> tuple[Arrival, Caller]:
    """Three memories on their way, their namespace there already, and the owner there."""
    founder = await here.account()
    caller = await here.caller(founder)
    texts = ("Anna prefers tea.", "Ben sells cups.", "Carl likes harbours.")
    await here.embed(caller, await here.remember(caller, *texts))
    arrival = await packed(here, caller)
    owner = await founded(here, there, founder)
    await there.services.importer.take_in(owner.access, replace(arrival, memories=[]))
    return arrival, await there.unlocked(founder, TEAM)


async def brought(
    there: Bench, owner: Caller, memories: Sequence[MovedMemory], **changes: Any
) -> list[str]:
    """What becomes of the memories, the first of them with these changes."""
    first = msgspec.structs.replace(memories[0], **changes)
    arrival = replace(EMPTY, memories=[first, *memories[1:]])
    done = await there.services.importer.take_in(owner.access, arrival)
    return [status for _, status in done.results]


FIRST = datetime(1, 1, 1, tzinfo=UTC)
FIRST_EAST = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))
LAST = datetime(9999, 12, 31, tzinfo=UTC)
LAST_WEST = datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=12)))
NO_PLACE_FOR_A_LIFE = datetime(9995, 1, 1, tzinfo=UTC)


class TestRows:
    """A row that would spoil what is here is refused; those beside it come."""

    @pytest.mark.parametrize(
        "changes",
        [
            *({"event_time": moment} for moment in (FIRST, FIRST_EAST, LAST, LAST_WEST)),
            *({"expires_at": moment} for moment in (FIRST_EAST, LAST, LAST_WEST)),
            *({"created_at": moment} for moment in (FIRST, LAST, NO_PLACE_FOR_A_LIFE)),
            {"stored_at": LAST_WEST},
            {"given_expires_at": LAST_WEST},
            {"superseded_at": FIRST},
            {"last_seen_at": LAST_WEST},
            {"links": [MovedLink(relation="turn", other_id=new_id(), created_at=LAST_WEST)]},
            {"vectors": [b"\x3c\x00" * 3]},
            {"vectors": [b"\x3c\x00" * (ENGLISH.dim - 1)]},
            {"vectors": [b"\x3c\x00" * ENGLISH.dim, b"\x3c\x00" * 3]},
            {"vectors": [b"\x3c\x00" * 3], "embedding_model": "other/4"},
            {"vectors": [b"\x7e\x00" * ENGLISH.dim]},
            {"vectors": [b"\x7c\x00" * ENGLISH.dim]},
        ],
    )
    async def test_out_of_bounds(self, here: Bench, there: Bench, changes: dict[str, Any]) -> None:
        arrival, owner = await scene(here, there)
        statuses = await brought(there, owner, arrival.memories, **changes)
        assert statuses == ["refused", "imported", "imported"]

    async def test_moments_far_off_can_be_shown_and_leave_again(
        self, here: Bench, there: Bench
    ) -> None:
        arrival, owner = await scene(here, there)
        late = datetime(9988, 1, 1, tzinfo=UTC)
        changes = {"event_time": datetime(2, 1, 1, tzinfo=FIRST_EAST.tzinfo), "created_at": late}
        assert await brought(there, owner, arrival.memories, **changes) == ["imported"] * 3
        await there.services.expiry.keep(owner.access, TEAM, Limits.ttl_s_max)
        assert len((await packed(there, owner)).memories) == 3

    async def test_a_turn_from_a_year_that_is_none(self, here: Bench, there: Bench) -> None:
        founder = await here.account()
        caller = await here.caller(founder)
        await here.remember(caller, "Anna prefers tea.")
        await keep_turn(here, caller, "I like tea.")
        arrival = await packed(here, caller)
        turns = [msgspec.structs.replace(one, created_at=LAST_WEST) for one in arrival.episodes]
        owner = await founded(here, there, founder)
        arrival = replace(arrival, episodes=turns)
        done = await there.services.importer.take_in(owner.access, arrival)
        assert dict(done.results)[turns[0].id] == "refused"

    @pytest.mark.parametrize("model", ["odd", "other/3", "manual/3", "sent/3"])
    async def test_vectors_of_a_model_that_nobody_uses_here_are_made_anew(
        self, here: Bench, there: Bench, model: str
    ) -> None:
        """Whatever version they are said to have: queries would be embedded by that model."""
        arrival, owner = await scene(here, there)
        said = {"embedding_model": model, "vectors": [b"\x3c\x00" * 3]}
        current = there.services.indexer.versions.embedding
        statuses = await brought(there, owner, arrival.memories, embedding_version=current, **said)
        assert statuses == ["imported"] * 3
        assert await models_of(there) == {ENGLISH.model_id: 2}
        [row] = await there.sql("SELECT memory_id FROM memories WHERE embedding_model IS NULL")
        assert row["memory_id"] == arrival.memories[0].id
        account = owner.access.account
        assert await there.services.indexer.waits(account)
        await there.services.indexer.embed(account, owner.keys, [row["memory_id"]])
        assert await models_of(there) == {ENGLISH.model_id: 3}
        assert not await there.services.indexer.waits(account)

    @pytest.mark.parametrize("custody", ["managed", "sealed"])
    async def test_an_uploads_vector_comes_as_it_was(
        self, here: Bench, there: Bench, custody: str
    ) -> None:
        founder = await here.account(custody)
        caller = await here.unlocked(founder, TEAM)
        for n in range(2):
            vector = np.array([1, 2, n], np.float64)
            await here.services.manual.remember(caller, TEAM, b"x" * (500 + n), vector)
        uploads = await here.sql(VECTORS)
        arrival = await packed(here, caller)
        odd = msgspec.structs.replace(arrival.memories[1], embedding_model="other/3")
        owner = await founded(here, there, founder)
        arrival = replace(arrival, memories=[arrival.memories[0], odd])
        done = await there.services.importer.take_in(owner.access, arrival)
        assert [status for _, status in done.results] == ["imported"] * 2
        kept = [row for row in uploads if row["memory_id"] != odd.id]
        assert await there.sql(VECTORS) == kept
        assert len(kept) == 1

    async def test_a_count_at_its_end_stays_there(self, here: Bench, there: Bench) -> None:
        arrival, owner = await scene(here, there)
        statuses = await brought(there, owner, arrival.memories, seen_count=SERIALS_MAX)
        assert statuses == ["imported"] * 3
        await there.remember(owner, "Anna prefers tea.")
        assert await there.value("SELECT max(seen_count) FROM memories") == SERIALS_MAX

    @pytest.mark.parametrize("through", [PLACES_MAX, 2**53])
    async def test_a_place_at_the_end_leaves_room_for_more(
        self, here: Bench, there: Bench, through: int
    ) -> None:
        arrival, owner = await scene(here, there)
        assert arrival.account is not None
        account = msgspec.structs.replace(arrival.account, memory_seq=through)
        await there.services.importer.take_in(owner.access, replace(EMPTY, account=account))
        assert await brought(there, owner, arrival.memories, seq=through) == ["imported"] * 3
        await there.remember(owner, "Something new.")
        again = await packed(there, owner)
        assert len(again.memories) == 4
        assert max(m.seq for m in again.memories) <= PLACES_MAX + 4

    async def test_an_erasure_counts_whenever_it_is_said_to_have_been(
        self, here: Bench, there: Bench
    ) -> None:
        arrival, owner = await scene(here, there)
        name = arrival.memories[0].blob_id
        for moment in (FIRST_EAST, LAST_WEST):
            stone = MovedTombstone(id=new_id(), namespace=TEAM, blob_ids=[name], erased_at=moment)
            await there.services.importer.take_in(owner.access, replace(EMPTY, tombstones=[stone]))
        assert {s.erased_at for s in (await packed(there, owner)).tombstones} == {there.clock()}


@pytest.mark.parametrize("name", ["import_postings_max", "import_vectors_max"])
async def test_as_many_words_and_vectors_as_one_request_can_store(
    here: Bench, there: Bench, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    arrival, owner = await scene(here, there)
    postings = sum(len(m.postings or b"") // 9 for m in arrival.memories)
    there_are = {"import_postings_max": postings, "import_vectors_max": 3}[name]
    monkeypatch.setattr(Limits, name, there_are - 1)
    with pytest.raises(TooLarge):
        await brought(there, owner, arrival.memories)
    assert await there.sql(ROWS) == []
    monkeypatch.setattr(Limits, name, there_are)
    assert await brought(there, owner, arrival.memories) == ["imported"] * 3
    for statement in (ROWS, POSTINGS, VECTORS):
        assert await there.sql(statement) == await here.sql(statement)


class TestErasures:
    """What was erased elsewhere counts for no quota, so that its number has a bound of its own."""

    def stones(self, bench: Bench, blobs: Sequence[int]) -> list[MovedTombstone]:
        return [
            MovedTombstone(
                id=new_id(),
                namespace=TEAM,
                blob_ids=[blob_id(urandom(8)) for _ in range(count)],
                erased_at=bench.clock(),
            )
            for count in blobs
        ]

    async def test_no_more_than_so_many(
        self, here: Bench, there: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Limits, "erased_blobs_max", 6)
        _, owner = await scene(here, there)
        first = replace(EMPTY, tombstones=self.stones(there, (3, 1)))
        await there.services.importer.take_in(owner.access, first)
        for more in ((3,), (2, 1), (1, 1, 1)):
            too_many = replace(EMPTY, tombstones=self.stones(there, more))
            with pytest.raises(QuotaExceeded):
                await there.services.importer.take_in(owner.access, too_many)
        again = replace(EMPTY, tombstones=[*first.tombstones, *self.stones(there, (1, 1))])
        for _ in range(2):  # what is remembered already takes no room
            await there.services.importer.take_in(owner.access, again)
        assert await there.value("SELECT count(*) FROM tombstones") == 4


class TestLinks:
    """What is in one namespace reaches into no other, whatever an archive says of it."""

    async def linked(
        self, here: Bench, there: Bench, relation: Relation
    ) -> tuple[Arrival, Caller, Access]:
        """A memory in each of two namespaces, the second linked to the first and back; the owner
        and a writer of the first."""
        founder = await here.account()
        caller = await here.caller(founder)
        [first] = await here.remember(caller, "Anna prefers tea.")
        [second] = await here.remember(caller, "Ben sells cups.", namespace=OTHER)
        arrival = await packed(here, caller)
        other = {first.id: second.id, second.id: first.id}
        memories = [
            msgspec.structs.replace(
                m,
                links=[MovedLink(relation=relation, other_id=other[m.id], created_at=m.created_at)],
            )
            for m in arrival.memories
        ]
        owner = await founded(here, there, founder)
        agent = await there.key(founder, TEAM)
        access = await there.storage.accounts.access(agent.account, agent.identity.public_key)
        assert access is not None
        return replace(arrival, grants=[], memories=memories), owner, access

    @pytest.mark.parametrize("relation", ["source", "turn", "merged", "contradicts"])
    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    async def test_one_between_namespaces_is_cut(
        self, here: Bench, there: Bench, relation: Relation, order: tuple[int, int]
    ) -> None:
        arrival, owner, _ = await self.linked(here, there, relation)
        for number in order:  # each time its target is here by the second request
            part = replace(arrival, memories=[arrival.memories[number]])
            await there.services.importer.take_in(owner.access, part)
        assert await there.sql("SELECT * FROM links") == []

    @pytest.mark.parametrize("relation", ["source", "turn", "merged"])
    async def test_forgetting_one_reaches_no_other_namespace(
        self, here: Bench, there: Bench, relation: Relation
    ) -> None:
        arrival, owner, agent = await self.linked(here, there, relation)
        mine, other = arrival.memories
        replaced = {"superseded_by": mine.id, "superseded_at": mine.created_at}
        other = msgspec.structs.replace(other, **(replaced if relation == "merged" else {}))
        arrival = replace(arrival, memories=[mine, other])
        await there.services.importer.take_in(owner.access, arrival)
        # As a relayer of before may have taken it in.
        for m in arrival.memories:
            await there.sql(
                "INSERT INTO links VALUES ($1, $2, $3, $4, $5)",
                owner.access.account, m.id, relation, m.links[0].other_id, m.created_at,
            )  # fmt: skip
        done = await there.services.deletion.forget(agent, mine.id)
        assert done.ids == [mine.id]
        assert await there.value("SELECT memory_id FROM memories") == other.id
