"""Words that an earlier release stored apart from their memories are moved into their rows."""

import pytest

from relayer.database import word_moves
from relayer.database.index_size import ROW_WORD_BYTES, WORD_BYTES
from relayer.database.postings import IN_ROW_MAX
from relayer.memories.opener import Caller
from tests.erasing import holds
from tests.services import OTHER, TEAM, Bench
from tests.stored_words import WORDS, make_rows

LONG = " ".join(f"room{n}" for n in range(IN_ROW_MAX + 1))
SIZES = ("memories", "namespaces", "accounts")
STORED = f"SELECT memory_id, token, frequency, word_count FROM {WORDS} w ORDER BY 1, 2"
APART = "SELECT count(*) FROM postings"
LEFT = (
    f"SELECT max(cardinality(tokens)) FROM memories HAVING max(cardinality(tokens)) > {IN_ROW_MAX}"
)


async def fill(bench: Bench) -> Caller:
    """An account of an earlier release, with a long text among others."""
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "Anna likes tea, and tea likes Anna.", "Ben sells cups.", LONG)
    await bench.remember(caller, "Cleo likes milk.", namespace=OTHER)
    await make_rows(bench)
    for table in SIZES:
        await bench.sql(f"UPDATE {table} SET index_bytes = 0")
    return caller


async def test_they_are_the_same_and_found_alike(bench: Bench) -> None:
    caller = await fill(bench)
    stored = await bench.sql(STORED)
    found = await bench.texts(caller, "Anna's tea", mode="keyword")
    assert found == ["Anna likes tea, and tea likes Anna."]
    await word_moves.move_words(bench.storage.database)
    assert await bench.sql(STORED) == stored
    assert await bench.value(APART) == await bench.value(LEFT)  # those of the long text stay
    assert await bench.texts(caller, "Anna's tea", mode="keyword") == found
    assert await bench.texts(caller, "room7", mode="keyword", namespaces=[TEAM]) == [LONG]


async def test_a_part_at_a_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_moves, "PAGE", 1)
    monkeypatch.setattr(word_moves, "PAGES_MAX", 2)
    caller = await fill(bench)
    stored, left = await bench.sql(STORED), [await bench.value(APART)]
    for _ in range(3):
        await word_moves.move_words(bench.storage.database)
        assert await bench.sql(STORED) == stored
        left.append(await bench.value(APART))
    assert left[0] > left[1] > left[2] == left[3] == await bench.value(LEFT)
    assert (await bench.texts(caller, "cups", mode="keyword")) == ["Ben sells cups."]


async def test_what_holds_the_index_in_memory_is_told(bench: Bench) -> None:
    caller = await fill(bench)
    number = "SELECT receipt_seq + index_changes FROM accounts"
    before = await bench.value(number)
    await word_moves.move_words(bench.storage.database)
    assert await bench.value(number) > before
    assert (await bench.texts(caller, "milk", namespaces=[OTHER])) == ["Cleo likes milk."]


async def test_sizes_are_those_of_the_new_place(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "Anna likes tea.", LONG)
    counted = await bench.value("SELECT index_bytes FROM accounts")
    await make_rows(bench)
    more = f"{WORD_BYTES - ROW_WORD_BYTES} * cardinality(tokens)"  # of a word that is a row
    await bench.sql(f"UPDATE memories SET index_bytes = index_bytes + {more} WHERE seq = 1")
    for table in ("namespaces", "accounts"):
        await bench.sql(f"UPDATE {table} SET index_bytes = (SELECT sum(index_bytes) FROM memories)")
    await holds(bench, caller)
    await bench.services.worker.keep_house_once()
    assert await bench.value("SELECT index_bytes FROM accounts") == counted
    await holds(bench, caller)
