"""Seeing, correcting and forgetting with the client library, against a real relayer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memrelay import MemoryClient, Settings, SyncMemoryClient
from memrelay.errors import (
    BadRequest,
    ConfigError,
    Conflict,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    UntrustedRelayer,
)
from memrelay.outcomes import ForgottenMany
from tests.client.gateway_scene import agent_settings, founded
from tests.processes import RunningRelayer

UNKNOWN = "00000000-0000-7000-8000-000000000000"
GREEN, BLACK = "Anna prefers green tea.", "Anna prefers black tea."


@pytest.fixture(params=["sealed", "managed"])
async def owner(request: pytest.FixtureRequest, shared_relayer: RunningRelayer) -> Settings:
    return await founded(shared_relayer.url, request.param)


@pytest.fixture
async def sealed(shared_relayer: RunningRelayer) -> Settings:
    return await founded(shared_relayer.url)


@contextmanager
def memory_of(settings: Settings) -> Iterator[SyncMemoryClient]:
    with SyncMemoryClient.from_settings(settings) as memory:
        yield memory


def texts(memory: SyncMemoryClient, **filters: Any) -> list[str | None]:
    return [found.text for found in memory.memories(**filters)]


class TestSeeing:
    async def test_pages_bring_all_once_newest_first(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            said = [f"The fact number {n} of the list." for n in range(7)]
            for text in said:
                memory.remember(text)
            first = memory.list(limit=3)
            memory.remember("Something said between two pages.")
            second = memory.list(limit=3, cursor=first.next_cursor)
            third = memory.list(limit=3, cursor=second.next_cursor)
        shown = [m.text for page in (first, second, third) for m in page.memories]
        assert shown == said[::-1]
        assert third.next_cursor is None

    async def test_filters_narrow_what_is_listed(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            memory.remember("A: all of it.", kind="event", tags=["a", "b"], source="x")
            memory.remember("B: one tag.", tags=["a"])
            pinned = memory.remember("C: no tag.")
            memory.pin(pinned.id)
            memory.remember("D: elsewhere.", namespace="other", tags=["a", "b"])
            soon = datetime.now(UTC) + timedelta(hours=1)
            assert texts(memory, tags=["a", "b"]) == ["A: all of it."]
            assert texts(memory, tags=["a"]) == ["B: one tag.", "A: all of it."]
            assert texts(memory, kind="event", source="x") == ["A: all of it."]
            assert texts(memory, source="y") == []
            assert texts(memory, pinned=True) == ["C: no tag."]
            assert len(texts(memory, pinned=False)) == 2
            assert texts(memory, after=soon) == []
            assert len(texts(memory, before=soon)) == 3
            assert len(texts(memory, writer=owner.public_key)) == 3
            assert texts(memory, writer="ab" * 32) == []
            assert texts(memory, state="superseded") == []

    async def test_the_awaiting_client_walks_the_pages_too(self, owner: Settings) -> None:
        async with MemoryClient.from_settings(owner) as memory:
            await memory.remember_many([f"The fact number {n} of many." for n in range(3)])
            found = [one async for one in memory.memories(kind="fact")]
            assert [one.text for one in found] == [
                f"The fact number {n} of many." for n in (2, 1, 0)
            ]
            assert [one async for one in memory.memories(kind="event")] == []

    async def test_who_wrote_a_memory_is_told(self, sealed: Settings) -> None:
        coder = await agent_settings(sealed, "coder")
        with memory_of(coder) as memory:
            memory.remember(GREEN)
        with memory_of(sealed) as memory:
            [found] = memory.list(namespace="coder").memories
        assert (found.writer, found.writer_label) == (coder.public_key, "coder")

    async def test_namespaces_and_usage_count(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            memory.remember(GREEN, namespace="Team/red")
            [info] = memory.namespaces()
            assert (info.name, info.memory_count, info.ttl_s) == ("Team/red", 1, None)
            assert info.storage_bytes > 0
            assert info.updated_at is not None
            assert memory.usage().memory_count == 1


class TestCorrecting:
    async def test_an_edit_is_a_new_revision_and_the_old_one_stays(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            kept = memory.remember(GREEN, tags=["drinks"], source="chat")
            edited = memory.edit(kept.id, text=BLACK)
            assert (edited.id, edited.revision, edited.unchanged) == (kept.id, 2, False)
            now = memory.get(kept.id)
            assert (now.text, now.revision, now.tags, now.source) == (
                BLACK,
                2,
                ("drinks",),
                "chat",
            )
            assert memory.get(kept.id, revision=1).text == GREEN
            assert [m.text for m in memory.history(kept.id).revisions] == [BLACK, GREEN]
            assert texts(memory) == [BLACK]
            assert [m.text for m in memory.recall("tea", mode="keyword").results] == [BLACK]
            assert not memory.recall("green", mode="keyword").results
            used = memory.usage()
            assert (used.memory_count, used.revision_count) == (1, 1)
            assert memory.stats().memory_count == 1

    async def test_what_is_cleared_is_gone(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            kept = memory.remember(GREEN, tags=["a"], source="x", metadata={"k": "v"})
            memory.edit(kept.id, clear=["tags", "source", "metadata"])
            found = memory.get(kept.id)
            assert (found.tags, found.source, found.metadata) == ((), None, {})
            assert texts(memory, tags=["a"]) == []
            with pytest.raises(ValueError, match="can be cleared"):
                memory.edit(kept.id, clear=["text"])

    async def test_saying_the_same_changes_nothing(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            kept = memory.remember(GREEN)
            same = memory.edit(kept.id, text=GREEN)
            assert (same.unchanged, same.revision, same.receipt) == (True, 1, None)
            memory.pin(kept.id)
            assert memory.pin(kept.id).receipt is None

    async def test_nobody_overwrites_what_he_did_not_see(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            kept = memory.remember(GREEN)
            memory.edit(kept.id, text=BLACK, revision=1)
            with pytest.raises(Conflict) as refused:
                memory.edit(kept.id, text="Anna prefers water.", revision=1)
            assert refused.value.code == "memory.revision"
            assert memory.get(kept.id).text == BLACK

    async def test_two_memories_never_say_the_same(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            green, black = memory.remember(GREEN), memory.remember(BLACK)
            with pytest.raises(Conflict) as refused:
                memory.edit(black.id, text=GREEN)
            assert refused.value.code == "memory.duplicate"
            assert memory.get(green.id).revision == 1

    @pytest.mark.parametrize("change", ["edit", "pin", "reject", "history", "supersede"])
    async def test_what_is_not_there_cannot_be_changed(
        self, sealed: Settings, change: str, shared_relayer: RunningRelayer
    ) -> None:
        with memory_of(await founded(shared_relayer.url)) as memory:
            foreign = memory.remember(GREEN).id
        calls: dict[str, Callable[[SyncMemoryClient, str], object]] = {
            "edit": lambda memory, one: memory.edit(one, text=BLACK),
            "pin": lambda memory, one: memory.pin(one),
            "reject": lambda memory, one: memory.reject(one),
            "history": lambda memory, one: memory.history(one),
            "supersede": lambda memory, one: memory.supersede(one, by=own),
        }
        with memory_of(sealed) as memory:
            own = memory.remember(BLACK).id
            for absent in (UNKNOWN, foreign):
                with pytest.raises(NotFound):
                    calls[change](memory, absent)
            with pytest.raises(ValueError, match="letters, digits"):
                calls[change](memory, "../keys")

    async def test_a_reader_changes_nothing(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            kept = memory.remember(GREEN)
            key = memory.add_key(namespaces=["default"], role="reader")
        with memory_of(replace(owner, private_key=key.private_key)) as reader:
            assert reader.history(kept.id).revisions[0].text == GREEN
            for change in (
                lambda: reader.edit(kept.id, text=BLACK),
                lambda: reader.pin(kept.id),
                lambda: reader.forget(kept.id),
                lambda: reader.forget_many([kept.id]),
                lambda: reader.forget_matching(kind="fact"),
                lambda: reader.forget_namespace("default"),
                lambda: reader.set_ttl("default", 3600),
                lambda: reader.change_settings(redact=False),
                reader.close_account,
            ):
                with pytest.raises(NotAllowed):
                    change()
            assert reader.get(kept.id).revision == 1

    async def test_a_superseded_memory_comes_back(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            old, new = memory.remember(GREEN), memory.remember(BLACK)
            done = memory.supersede(old.id, by=new.id)
            assert (done.superseded_by, done.receipt is None) == (new.id, False)
            assert texts(memory) == [BLACK]
            assert texts(memory, state="superseded") == [GREEN]
            assert memory.get(old.id).state == "superseded"
            assert memory.reinstate(old.id).superseded_at is None
            assert texts(memory) == [BLACK, GREEN]

    async def test_what_is_rejected_is_not_recalled(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            kept = memory.remember(GREEN)
            assert memory.reject(kept.id).review == "rejected"
            assert texts(memory) == []
            assert not memory.recall("tea").results
            assert texts(memory, state="rejected") == [GREEN]
            assert memory.approve(kept.id).review is None
            assert texts(memory) == [GREEN]

    async def test_the_account_chooses(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            assert memory.account_settings().contradictions == "newer_wins"
            assert memory.change_settings(contradictions="review").contradictions == "review"
            assert memory.account_settings().redact
            with pytest.raises(BadRequest):
                memory.change_settings(contradictions="older_wins")


class TestForgetting:
    async def test_a_memory_goes_with_its_history(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            kept = memory.remember(GREEN)
            memory.edit(kept.id, text=BLACK)
            gone = memory.forget(kept.id)
            assert gone.erased
            for read in (memory.get, memory.history, memory.pin):
                with pytest.raises(NotFound):
                    read(kept.id)
            assert memory.forget(kept.id).receipt is None, "it is told to be erased already"
            again = memory.remember(GREEN)
            assert again.id != kept.id
            assert not again.duplicate

    async def test_several_ids_each_have_their_fate(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            ids = [memory.remember(f"The fact {n} of some.").id for n in range(3)]
            memory.forget(ids[0])
            tried = memory.forget_many(ids, dry_run=True)
            assert (tried.matched, tried.erased, tried.receipts) == (2, 0, ())
            assert len(texts(memory)) == 2
            done = memory.forget_many([*ids[:2], UNKNOWN])
            assert done.results is not None
            assert [one.status for one in done.results] == [
                "already_erased",
                "erased",
                "not_found",
            ]
            assert done.erased == 1
            assert texts(memory) == ["The fact 2 of some."]

    async def test_more_than_a_request_takes_is_forgotten_in_several(self, owner: Settings) -> None:
        told: list[int] = []
        with memory_of(owner) as memory:
            kept = memory.remember_many([f"The fact {n} of many." for n in range(130)])
            done = memory.forget_many((one.id for one in kept), progress=told.append)
        assert (done.matched, done.erased, len(done.receipts)) == (130, 130, 2)
        assert told == [100, 130]

    async def test_what_fits_is_forgotten_and_nothing_else(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            memory.remember("An old note.", tags=["old"])
            memory.remember("An old event.", tags=["old"], kind="event")
            memory.remember("A new note.")
            memory.remember("A note elsewhere.", tags=["old"], namespace="other")
            assert memory.forget_matching(tags=["old"], dry_run=True).matched == 2
            assert len(texts(memory)) == 3
            assert memory.forget_matching(tags=["old"], kind="event").erased == 1
            assert memory.forget_matching(tags=["old"]).erased == 1
            assert memory.forget_matching(tags=["old"]).erased == 0
            assert texts(memory) == ["A new note."]
            assert texts(memory, namespace="other") == ["A note elsewhere."]
            with pytest.raises(ConfigError):
                memory.forget_matching()
            for kind in (None, "event"):
                with pytest.raises(ConfigError):
                    memory.forget_matching(tags=[], kind=kind)

    async def test_a_filter_without_words_needs_no_key(self, sealed: Settings) -> None:
        with memory_of(sealed) as memory:
            memory.remember(GREEN, kind="event")
        with memory_of(replace(sealed, custody="managed")) as keyless:
            with pytest.raises(NotAllowed):
                keyless.list()
            assert keyless.forget_matching(kind="event").erased == 1

    async def test_a_namespace_goes_and_may_come_again(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            memory.remember(GREEN, namespace="Team/red")
            rejected = memory.remember(BLACK, namespace="Team/red")
            memory.reject(rejected.id)
            memory.remember(GREEN)
            assert memory.forgettable(namespace="Team/red").matched == 2
            done = memory.forget_namespace("Team/red")
            assert (done.matched, done.erased, done.more) == (2, 2, False)
            assert [info.name for info in memory.namespaces()] == ["default"]
            assert memory.forget_namespace("Team/red").erased == 0
            assert not memory.remember(GREEN, namespace="Team/red").duplicate

    async def test_a_namespace_keeps_so_long(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            kept = memory.remember(GREEN, namespace="Team/red")
            changed = memory.set_ttl("Team/red", 3600)
            assert changed.ttl_s == 3600
            [info] = memory.namespaces()
            assert info.ttl_s == 3600
            found = memory.get(kept.id)
            assert found.created_at is not None
            assert found.expires_at == found.created_at + timedelta(hours=1)
            assert memory.set_ttl("Team/red", None).ttl_s is None
            with pytest.raises(BadRequest):
                memory.set_ttl("Team/red", 1)
            with pytest.raises(NotFound):
                memory.set_ttl("nowhere", 3600)

    async def test_a_closed_account_answers_nobody(self, owner: Settings) -> None:
        with memory_of(owner) as memory:
            memory.remember(GREEN)
            memory.close_account()
            with pytest.raises(NotAuthenticated):
                memory.list()

    async def test_an_erasure_without_its_receipt_is_not_believed(self, sealed: Settings) -> None:
        with memory_of(sealed) as memory:
            kept = memory.remember(GREEN)
            check = memory._operations._check_erased(
                ForgottenMany(matched=1, erased=1, ids=(kept.id,)),
                False,
                memory._operations.session.note_request(),
            )
            with pytest.raises(UntrustedRelayer):
                memory.run(check)
