"""What is counted for memories, beside what the database really takes for them."""

import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relayer.database import index_size
from relayer.database.index_size import index_bytes, vector_bytes
from relayer.database.postings import IN_ROW_MAX
from relayer.errors import QuotaExceeded, TooLarge
from relayer.memories.opener import Caller
from relayer.memories.recognition import Stored
from relayer.settings import Limits
from tests.conftest import BenchMaker
from tests.editing import edit
from tests.erasing import holds
from tests.services import OTHER, TEAM, Bench

SPEC = Path(index_size.__file__).parents[2] / "SPEC.md"
# All that a memory leaves in the database while it is there.
GROWN = """
SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(ARRAY[
    'memories', 'postings', 'vectors', 'links', 'blobs', 'receipts', 'idempotency']) AS t (name)
"""
COUNTED = "SELECT storage_bytes + index_bytes FROM accounts"
PARTS = """
SELECT (SELECT sum(index_bytes) FROM accounts), (SELECT sum(index_bytes) FROM namespaces),
       (SELECT coalesce(sum(index_bytes), 0) FROM memories)
"""
DRAWN = random.Random(34)
VOCABULARY = [DRAWN.randbytes(4).hex() for _ in range(20_000)]


def text(words: int) -> str:
    """So many words; nearly every one is another, as in a language that has many."""
    return " ".join(DRAWN.choices(VOCABULARY, k=words))


async def counted(bench: Bench) -> int:
    """What is counted for what all memories are found by, once it is alike in all three places."""
    [(account, namespaces, memories)] = await bench.sql(PARTS)
    assert account == namespaces == memories
    return int(memories)


async def add(bench: Bench, caller: Caller, texts: list[str], *, at_once: int) -> None:
    for first in range(0, len(texts), at_once):
        await bench.embed(caller, await bench.remember(caller, *texts[first : first + at_once]))


def test_the_specification_says_what_is_counted() -> None:
    said = " ".join(SPEC.read_text().split())
    share = 8_192 // (8_168 // 124)  # of a page, of a vector without numbers
    assert f"A revision counts {index_size.MEMORY_BYTES:,} bytes" in said
    assert f"{index_size.ROW_WORD_BYTES} where there are at most {IN_ROW_MAX}" in said
    assert f"otherwise {index_size.WORD_BYTES}." in said
    assert f"A vector of d dimensions counts {vector_bytes(0) - share} bytes" in said


@pytest.mark.parametrize(
    ("number", "words", "at_once"),
    [(700, 8, 20), (300, 12, 1), (200, 50, 5), (100, 150, 5), (3, 20_000, 1)],
    ids=["short", "one by one", "paragraphs", "longer paragraphs", "whole books"],
)
async def test_the_count_is_what_the_database_grows_by(
    make_bench: BenchMaker, number: int, words: int, at_once: int
) -> None:
    bench = make_bench()
    caller = await bench.caller(await bench.account())
    await add(bench, caller, [text(words) for _ in range(max(1, number // 10))], at_once=at_once)
    grown, used = await bench.value(GROWN), await bench.value(COUNTED)
    await add(bench, caller, [text(words) for _ in range(number)], at_once=at_once)
    grown, used = await bench.value(GROWN) - grown, await bench.value(COUNTED) - used
    assert 0.85 < used / grown < 1.15, (used, grown)


async def test_vectors_count_by_what_they_take(hybrid: Bench) -> None:
    """A row is written anew with its vectors; the room of the earlier one is used again."""
    caller = await hybrid.caller(await hybrid.account())

    async def fill(number: int) -> None:
        for _ in range(number // 10):
            await add(hybrid, caller, [text(8) for _ in range(10)], at_once=10)
            await hybrid.sql("VACUUM memories")

    await fill(30)
    grown, used = await hybrid.value(GROWN), await hybrid.value(COUNTED)
    await fill(300)
    grown, used = await hybrid.value(GROWN) - grown, await hybrid.value(COUNTED) - used
    assert 0.85 < used / grown < 1.15, (used, grown)


@pytest.mark.parametrize("dim", [64, 384, 1_024, 1_536, 3_072, Limits.embedding_dim_max])
async def test_a_vector_of_any_length(bench: Bench, dim: int) -> None:
    """Pages hold whole rows: one of 1,536 dimensions takes half of one, of 3,072 a whole one."""
    caller = await bench.caller(await bench.account())

    async def upload(number: int) -> None:
        for n in range(number):
            vector = np.full(dim, 1 + n, np.float32)
            await bench.services.manual.remember(caller, TEAM, DRAWN.randbytes(40), vector)

    size = "SELECT pg_total_relation_size('vectors')"
    await upload(20)
    grown = await bench.value(size)
    await upload(300)
    grown = await bench.value(size) - grown
    assert 0.85 < 300 * vector_bytes(dim) / grown < 1.15
    assert await counted(bench) == 320 * (index_bytes(0) + vector_bytes(dim))


Step = Callable[[Bench, Caller, Stored], Awaitable[Any]]


async def revise(bench: Bench, caller: Caller, stored: Stored) -> None:
    await edit(bench, caller, stored.id, text="Anna prefers green tea, and coffee on Sundays.")


async def retag(bench: Bench, caller: Caller, stored: Stored) -> None:
    """The new revision keeps the vectors, of which there are two copies then."""
    await edit(bench, caller, stored.id, tags=["drinks"])


async def revise_and_embed(bench: Bench, caller: Caller, stored: Stored) -> None:
    await revise(bench, caller, stored)
    await bench.embed(caller, [stored])


async def count_words_anew(bench: Bench, caller: Caller, stored: Stored) -> None:
    await bench.sql("UPDATE memories SET index_version = 1")
    await bench.embed(caller, [stored])


async def lose_its_blob(bench: Bench, caller: Caller, stored: Stored) -> None:
    """It is altered, and so loses its vectors."""
    await bench.sql("UPDATE blobs SET bytes = set_byte(bytes, 300, get_byte(bytes, 300) # 1)")
    await bench.sql("UPDATE memories SET embedding_version = ''")
    await bench.embed(caller, [stored])


async def forget_rows(bench: Bench, caller: Caller, stored: Stored) -> None:
    """A row that was lost comes back from its blob."""
    await bench.sql("DELETE FROM memories WHERE memory_id = $1", stored.id)
    await bench.services.restore.restore(caller, TEAM, 10)


async def expire(bench: Bench, caller: Caller, stored: Stored) -> None:
    await edit(bench, caller, stored.id, expires_at=bench.clock() + timedelta(hours=1))
    bench.clock.advance(3601)
    await bench.services.eraser.expire(caller.access.account, [stored.id])


async def forget(bench: Bench, caller: Caller, stored: Stored) -> None:
    await bench.services.memory.forget(caller.access, stored.id)


@pytest.mark.parametrize(
    "steps",
    [
        [revise], [retag], [revise_and_embed], [revise_and_embed, retag, retag],
        [count_words_anew], [lose_its_blob], [forget_rows], [revise, expire],
        [revise_and_embed, forget],
    ],
    ids=lambda steps: "+".join(step.__name__ for step in steps),
)  # fmt: skip
async def test_whatever_becomes_of_a_memory_is_counted(hybrid: Bench, steps: list[Step]) -> None:
    caller = await hybrid.caller(await hybrid.account())
    stored, other = await hybrid.remember(caller, "Anna prefers tea.", "Ben sells cups.")
    await hybrid.embed(caller, [stored, other])
    for step in steps:
        await step(hybrid, caller, stored)
        await counted(hybrid)
    if lose_its_blob not in steps:
        await holds(hybrid, caller)  # each count is that of the rows


async def test_what_is_erased_gives_its_room_back(hybrid: Bench) -> None:
    caller = await hybrid.caller(await hybrid.account())
    stored = await hybrid.remember(caller, "Anna prefers tea.")
    await hybrid.embed(caller, stored)
    before = await counted(hybrid)
    more = await hybrid.remember(caller, text(3_000), text(20))
    more += await hybrid.remember(caller, "Elsewhere.", namespace=OTHER)
    await hybrid.embed(caller, more)
    await edit(hybrid, caller, more[0].id, text=text(2_500))
    assert await counted(hybrid) > before + 5_000 * 200
    for one in more:
        await forget(hybrid, caller, one)
    assert await counted(hybrid) == before


async def test_words_fill_an_account(make_bench: BenchMaker) -> None:
    """Long before its texts alone would."""
    bench = make_bench(storage_bytes_max=2_000_000)
    caller = await bench.caller(await bench.account())
    sealed = "SELECT storage_bytes FROM accounts"

    async def fill() -> None:
        for _ in range(100):
            await bench.remember(caller, text(2_000))

    with pytest.raises(QuotaExceeded):
        await fill()
    assert 0 < await bench.value(sealed) < 300_000
    assert 1_300_000 < await bench.value(COUNTED) <= 2_000_000


class TestDifferentWords:
    async def test_one_more_than_a_memory_may_have(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Limits, "memory_words_max", 50)
        caller = await bench.caller(await bench.account())
        fitting, longer = (" ".join(VOCABULARY[:n]) for n in (8, 60))
        [stored] = await bench.remember(caller, fitting)
        for refused in (
            bench.remember(caller, longer),
            edit(bench, caller, stored.id, text=longer),
            bench.remember(caller, "few", metadata={f"key{n}": "v" for n in range(51)}),
        ):
            with pytest.raises(TooLarge, match=r"\d+ different words, a memory may have 50"):
                await refused
        assert await bench.value("SELECT count(*) FROM memories") == 1
        await bench.remember(caller, "tea " * 5_000)  # long, of few words

    async def test_what_is_stored_with_more_comes_back(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of an earlier release."""
        caller = await bench.caller(await bench.account())
        [stored] = await bench.remember(caller, text(60))
        monkeypatch.setattr(Limits, "memory_words_max", 50)
        await forget_rows(bench, caller, stored)
        assert await bench.value("SELECT count(*) FROM memories") == 1
