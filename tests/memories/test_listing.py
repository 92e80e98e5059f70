"""Seeing what is stored: lists with filters and pages, and how much there is."""

import asyncio
from datetime import timedelta
from typing import Any, get_args

import pytest

from relayer.database import listing
from relayer.errors import NotAllowed
from relayer.memories.opener import Caller
from relayer.record import Kind
from relayer.sealed.keys import Namespace
from tests.editing import CUSTODIES, edit, writer
from tests.services import OTHER, TEAM, Bench
from tests.talking import change


async def texts(bench: Bench, caller: Caller, *namespaces: Namespace, **filters: Any) -> list[Any]:
    filters = {"limit": 50} | filters
    page = await bench.services.memory.newest(caller, namespaces or [TEAM], **filters)
    return [memory.text for memory in page]


@CUSTODIES
async def test_each_filter(bench: Bench, custody: str) -> None:
    caller = await writer(bench, custody)
    moment = bench.clock()
    await bench.remember(caller, "one", tags=("a", "b"), source="mail", kind="event")
    await bench.remember(caller, "two", tags=("a",), source="chat", event_time=moment)
    await bench.remember(caller, "three", event_time=moment - timedelta(days=9))
    await bench.remember(caller, "other", namespace=OTHER, tags=("a",))
    for filters, expected in (
        ({}, ["three", "two", "one"]),
        ({"kind": "event"}, ["one"]),
        ({"tags": ["a"]}, ["two", "one"]),
        ({"tags": ["a", "b"]}, ["one"]),
        ({"tags": ["c"]}, []),
        ({"source": "chat"}, ["two"]),
        ({"source": "chat", "tags": ["b"]}, []),
        ({"source": "a"}, []),  # a tag is no source
        ({"after": moment}, ["two", "one"]),
        ({"before": moment}, ["three"]),
        ({"writers": [caller.access.key]}, ["three", "two", "one"]),
        ({"writers": [bytes(32)]}, []),
        ({"pinned": False}, ["three", "two", "one"]),
        ({"pinned": True}, []),
    ):
        assert await texts(bench, caller, **filters) == expected, filters
    both = await texts(bench, caller, TEAM, OTHER, tags=["a"])
    assert both == ["other", "two", "one"]


async def test_each_state(bench: Bench) -> None:
    caller = await writer(bench)
    stored = {
        text: (await bench.remember(caller, text))[0].id
        for text in ("active", "pinned", "old", "waits", "rejected", "doubted", "edited")
    }
    await change(bench, caller, stored["pinned"], pinned=True)
    await change(bench, caller, stored["old"], superseded_by=stored["active"])
    await change(bench, caller, stored["waits"], review="pending")
    await change(bench, caller, stored["rejected"], review="rejected")
    await change(bench, caller, stored["doubted"], review="contradiction")
    await edit(bench, caller, stored["edited"], text="edited twice")
    for state, expected in (
        ("active", ["edited twice", "doubted", "pinned", "active"]),
        ("superseded", ["old"]),
        ("pending_review", ["waits"]),
        ("rejected", ["rejected"]),
        (
            "all",
            ["edited twice", "doubted", "rejected", "waits", "old", "pinned", "active"],
        ),
    ):
        assert await texts(bench, caller, state=state) == expected, state
        shown = await bench.services.memory.newest(caller, [TEAM], limit=9, state=state)
        assert state == "all" or {m.state.name for m in shown} == {state}
    assert await texts(bench, caller, pinned=True) == ["pinned"]
    aside = await listing.count_set_aside(bench.storage.database, caller.access.account, None)
    assert list(aside.values()) == [
        listing.SetAside(revisions=1, superseded=1, pending=1, rejected=1)
    ]


async def test_pages_stay_the_same_under_writes(bench: Bench) -> None:
    """What is edited, stored or erased meanwhile neither doubles nor hides another."""
    caller = await writer(bench)
    stored = await bench.remember(caller, *(f"note {n}" for n in range(12)))
    seen, before = [], 2**62
    while page := await bench.services.memory.newest(caller, [TEAM], before_seq=before, limit=3):
        seen += [memory.id for memory in page]
        before = page[-1].seq
        await edit(bench, caller, stored[11].id, text=f"edited {before}")
        await edit(bench, caller, stored[0].id, text=f"edited later {before}")
        await bench.remember(caller, f"new {before}")
    assert seen == [item.id for item in reversed(stored)]


async def test_what_has_expired_is_in_no_list(bench: Bench) -> None:
    caller = await writer(bench)
    until = bench.clock() + timedelta(seconds=9)
    [stored] = await bench.remember(caller, "one", expires_at=until, tags=("a",))
    await change(bench, caller, stored.id, review="pending", pinned=True)
    bench.clock.advance(9)
    for state in ("active", "superseded", "pending_review", "rejected", "all"):
        assert await texts(bench, caller, state=state, tags=["a"]) == []
    reviewer = bench.services.reviewer
    assert await reviewer.list_doubtful(caller, [TEAM], before_seq=9, limit=9) == []


async def test_a_namespace_that_may_not_be_read(bench: Bench) -> None:
    founder = await bench.account("sealed")
    await bench.remember(await bench.unlocked(founder, TEAM), "one")
    other = await bench.unlocked(await bench.key(founder, OTHER), OTHER)
    with pytest.raises(NotAllowed):
        await texts(bench, other, OTHER, TEAM)
    with pytest.raises(NotAllowed) as caught:
        await texts(bench, await bench.caller(founder), TEAM)
    assert caught.value.code == "unlock_required"
    stranger = await bench.unlocked(await bench.account("sealed"), TEAM)
    assert await texts(bench, stranger) == []


async def test_one_that_is_lost_is_listed_as_that(bench: Bench) -> None:
    caller = await writer(bench)
    await bench.remember(caller, "one", "two")
    await bench.sql(
        "DELETE FROM blobs b USING memories m WHERE m.blob_id = b.blob_id AND m.seq = 1"
    )
    page = await bench.services.memory.newest(caller, [TEAM], limit=9)
    assert [(m.text, m.status) for m in page] == [("two", "done"), (None, "failed")]


async def test_a_page_reads_the_index_in_its_order(bench: Bench) -> None:
    caller = await writer(bench)
    await asyncio.gather(*(bench.remember(caller, f"note {n}", tags=("a",)) for n in range(40)))
    await bench.sql("ANALYZE memories")
    async with bench.storage.database.connection() as connection:
        await connection.execute("SET enable_seqscan = off")
        plan = await connection.fetch(
            "EXPLAIN " + listing._NEWEST["active"],
            *(
                caller.access.account,
                [1],
                2**62,
                10,
                bench.clock(),
                None,
                None,
                None,
                None,
                None,
                False,
            ),
        )
        await connection.execute("RESET enable_seqscan")
    text = "\n".join(row[0] for row in plan)
    assert "memories_newest" in text or "memories_sequence" in text, text
    assert "Seq Scan on memories" not in text


@pytest.mark.parametrize("kind", get_args(Kind))
async def test_kinds_and_tiers(bench: Bench, kind: str) -> None:
    """capability 3.1: working, episodic, semantic and procedural memories are told apart by kind.
    capability 3.4: an episodic memory has its time, tags, participants and confidence.
    """
    caller = await writer(bench)
    moment = bench.clock() - timedelta(days=3)
    people = {"participants": "Anna, Ben"}
    [stored] = await bench.remember(
        caller,
        "Anna and Ben chose the venue.",
        kind=kind,
        tags=("venue",),
        event_time=moment,
        metadata=people,
        confidence="medium",
    )
    await bench.remember(caller, "Something else.", kind="decision" if kind == "fact" else "fact")
    [memory] = await bench.services.memory.newest(caller, [TEAM], limit=9, kind=kind)
    assert (memory.id, memory.kind, list(memory.tags)) == (stored.id, kind, ["venue"])
    assert (memory.event_time, dict(memory.metadata)) == (moment, people)
    assert memory.confidence == "medium"
    assert await bench.texts(caller, "venue", kinds=[kind]) == ["Anna and Ben chose the venue."]
