"""Namespaces that are loaded before anybody asks for them: never without a key, nor for long."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from relayer.database import memory_index as rows
from relayer.memory_index import ahead as ahead_loader
from relayer.memory_index import records
from relayer.memory_index import sealed as sealed_index
from relayer.memory_index.ahead import AheadLoader
from relayer.tenants.accounts import Access
from tests.conftest import BenchMaker
from tests.life import WAIT_S_MAX
from tests.sealed_index import Choice, talk
from tests.services import OTHER, TEAM, Bench, access_of, lasting
from tests.twins import TALK, Twins, calls_of, twins

__all__ = ["twins"]  # a fixture

BOTH = (TEAM, OTHER)


@pytest_asyncio.fixture
async def choice(hybrid: Bench) -> AsyncIterator[Choice]:
    """Two sealed namespaces, of which this relayer has no key any more."""
    made = await talk(hybrid)
    await made.choose(sealed=True, namespaces=BOTH)
    hybrid.clock.advance(301)
    await hybrid.services.worker.keep_house_once()
    yield made
    await hybrid.services.ahead_loader.close()
    await hybrid.services.memory_index.close()


async def access_without_keys(choice: Choice) -> Access:
    """Return the access that a request has which lends no keys."""
    access = await access_of(choice.bench, choice.founder)
    assert access is not None
    return lasting(access, choice.bench.clock)


def noted_openings(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The openings of records from now on."""
    call, calls = records.open_pages, list[Any]()

    def noting(*arguments: Any) -> Any:
        calls.append(arguments)
        return call(*arguments)

    monkeypatch.setattr(sealed_index, "open_pages", noting)
    return calls


async def load(loader: AheadLoader, access: Access, *, has_lent: bool = False) -> None:
    loader.note(access, has_lent=has_lent)
    async with asyncio.timeout(WAIT_S_MAX):
        await loader.settle()


class TestSealed:
    async def test_is_read_and_not_opened_before_a_key_is_lent(
        self, choice: Choice, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = choice.bench.services
        opened, read = noted_openings(monkeypatch), calls_of(monkeypatch, "newest")
        await load(services.ahead_loader, await access_without_keys(choice))
        held = services.memory_index.sealed.size_bytes
        assert (len(opened), len(read), held > 0) == (0, 2, True)
        recalled = await choice.recall(text="Anna tea sugar")
        assert TALK[0] in [found.memory.text for found in recalled.found]
        assert not recalled.degraded
        assert (len(opened), len(read)) == (1, 2)  # of the one that was asked

    async def test_is_opened_with_a_key_that_is_lent_and_let_go_of_with_it(
        self, choice: Choice, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services, opened = choice.bench.services, noted_openings(monkeypatch)
        await load(services.ahead_loader, await access_without_keys(choice))
        caller = await choice.caller()
        await load(services.ahead_loader, caller.access, has_lent=True)
        async with asyncio.timeout(WAIT_S_MAX):
            while len(opened) < 2:
                await asyncio.sleep(0.01)
        before = len(opened)
        assert TALK[0] in await choice.texts(text="Anna tea sugar")
        assert len(opened) == before
        choice.bench.clock.advance(301)
        await services.worker.keep_house_once()
        assert services.memory_index.sealed.size_bytes == 0

    async def test_no_other_key_opens_it(
        self, choice: Choice, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One that the account does not know would make all of it count as altered."""
        services, opened = choice.bench.services, noted_openings(monkeypatch)
        namespaces = choice.bench.storage.namespaces
        caller, find = await choice.caller(), namespaces.find_now

        async def renamed(*arguments: Any) -> Any:
            entry = await find(*arguments)
            assert entry is not None
            entry.key_ids.update(dict.fromkeys(entry.key_ids, bytes(32)))
            return entry

        monkeypatch.setattr(namespaces, "find_now", renamed)
        await load(services.ahead_loader, caller.access)
        assert services.memory_index.sealed.size_bytes > 0
        assert opened == []

    async def test_what_nobody_asks_for_goes(
        self, choice: Choice, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        services = choice.bench.services
        await load(services.ahead_loader, await access_without_keys(choice))
        await services.worker.keep_house_once()
        assert services.memory_index.sealed.size_bytes > 0
        monkeypatch.setattr(sealed_index, "UNASKED_S", 0.0)
        await services.worker.keep_house_once()
        assert services.memory_index.sealed.size_bytes == 0

    async def test_takes_free_room_alone_and_who_asks_reads_the_rest(
        self, choice: Choice, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sealed_index, "FIRST", 2)
        monkeypatch.setattr(sealed_index, "MOST", 2)
        services = choice.bench.services
        held = services.memory_index.sealed
        monkeypatch.setattr(held, "_free", lambda: 4_000 - held.size_bytes)
        await load(services.ahead_loader, await access_without_keys(choice))
        assert 0 < held.size_bytes <= 4_000
        whole = await choice.recall(text="Anna tea sugar", limit=50)
        assert not whole.degraded
        assert TALK[0] in [found.memory.text for found in whole.found]
        assert held.size_bytes > 4_000

    async def test_what_changes_meanwhile_is_found(self, choice: Choice) -> None:
        services = choice.bench.services
        await load(services.ahead_loader, await access_without_keys(choice))
        await choice.bench.remember(await choice.caller(), "Zelda keeps zebras.")
        found = await choice.texts(text="Zelda zebras Anna sugar", mode="keyword")
        assert {"Zelda keeps zebras.", TALK[0]} <= {*found}

    async def test_a_key_of_one_namespace_loads_no_other(self, choice: Choice) -> None:
        services = choice.bench.services
        reader = await choice.bench.key(choice.founder, OTHER)
        access = await access_of(choice.bench, reader)
        assert access is not None
        await load(services.ahead_loader, lasting(access, choice.bench.clock))
        number = await choice.bench.storage.namespaces.numbers(access.account, [TEAM])
        assert services.memory_index.sealed.size_bytes > 0
        assert not services.memory_index.sealed.knows(access.account, number[0])

    async def test_closing_stops_it(self, choice: Choice, monkeypatch: pytest.MonkeyPatch) -> None:
        services, begun = choice.bench.services, asyncio.Event()

        async def never(*_: Any) -> Any:
            begun.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(rows, "newest", never)
        services.ahead_loader.note(await access_without_keys(choice))
        async with asyncio.timeout(WAIT_S_MAX):
            await begun.wait()
            await services.ahead_loader.close()
            await services.memory_index.close()
        services.ahead_loader.note(await access_without_keys(choice), has_lent=True)
        await services.ahead_loader.settle()
        assert services.memory_index.sealed.size_bytes == 0

    async def test_a_failure_is_said_without_its_words(
        self, choice: Choice, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def fail(*_: Any) -> Any:
            raise ValueError("Zelda")

        monkeypatch.setattr(ahead_loader, "find_latest", fail)
        loader = choice.bench.services.ahead_loader
        await load(loader, await access_without_keys(choice))
        assert [r.getMessage() for r in caplog.records if r.levelname == "ERROR"] == [
            "nothing is loaded ahead"
        ]
        assert "Zelda" not in caplog.text


class TestSearchable:
    async def test_answers_the_first_recall(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        loader, index = twins.held.services.ahead_loader, twins.held.services.memory_index
        await load(loader, (await twins.caller(twins.held)).access)
        assert index.size_bytes > 0
        reads = [calls_of(monkeypatch, name) for name in ("newest", "versions")]
        await twins.check_query(text="Anna tea sugar")
        assert await twins.residents(*BOTH) is not None
        assert reads == [[], []]

    async def test_once_for_an_account(self, twins: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
        loader = twins.held.services.ahead_loader
        access = (await twins.caller(twins.held)).access
        await load(loader, access)
        reads = calls_of(monkeypatch, "count")
        await load(loader, access)
        await load(loader, access, has_lent=True)  # what is there is not read again
        assert reads == []

    async def test_displaces_nothing(self, twins: Twins, make_bench: BenchMaker) -> None:
        """Not what was asked; and what is asked displaces it."""
        index = twins.held.services.memory_index
        await twins.hold(TEAM)
        one = index.size_bytes
        index._whole_bytes_max = one + 1
        await load(twins.held.services.ahead_loader, (await twins.caller(twins.held)).access)
        assert index.size_bytes == one
        assert await twins.residents(TEAM) is not None

    async def test_without_room_for_an_index_nothing_is_read(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reads = [calls_of(monkeypatch, name) for name in ("newest", "count")]
        loader = twins.plain.services.ahead_loader
        await load(loader, (await twins.caller(twins.plain)).access)
        assert reads == [[], []]
