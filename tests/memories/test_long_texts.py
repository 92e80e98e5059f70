"""Texts of many different words: what is stored of them, and who waits meanwhile."""

import asyncio
import random

import pytest

from relayer.memories.writer import WORDS_FEW
from relayer.record import Draft
from tests.editing import writer
from tests.services import TEAM, Bench

WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()"
# Whether whoever waits has written to this table.
WRITTEN = """
SELECT count(*) FROM pg_locks w JOIN pg_locks h USING (pid)
WHERE NOT w.granted AND h.granted AND h.relation = 'postings'::regclass
  AND h.mode = 'RowExclusiveLock'
"""
DIFFERENT = """
SELECT count(*) FROM memories m
WHERE CASE WHEN m.frequencies IS NULL THEN m.tokens ELSE '{}' END IS DISTINCT FROM
      ARRAY(SELECT p.token FROM postings p WHERE p.memory_id = m.memory_id ORDER BY p.token)
"""


def chinese(characters: int, seed: int = 1) -> str:
    """A text of hardly any pair of characters twice."""
    drawn = random.Random(seed)
    return "".join(chr(0x4E00 + drawn.randrange(20_000)) for _ in range(characters))


@pytest.mark.parametrize("long", [True, False])
async def test_many_words_are_stored_before_the_account_is_locked(bench: Bench, long: bool) -> None:
    caller = await writer(bench)
    await bench.remember(caller, "Anna likes tea.")
    async with bench.storage.database.transaction() as other:
        await other.execute("SELECT 1 FROM accounts FOR UPDATE")
        text = chinese(WORDS_FEW) if long else "Ben likes coffee."
        writing = asyncio.ensure_future(bench.remember(caller, text))
        while not await bench.value(WAITING):
            await asyncio.sleep(0.01)
        assert await bench.value(WRITTEN) == int(long)
    await writing
    assert (await bench.texts(caller, text[:40]))[0] == text


async def test_each_memory_of_a_request_has_its_own_words(bench: Bench) -> None:
    caller = await writer(bench)
    texts = ["Anna likes tea.", chinese(WORDS_FEW), "…", "Ben likes coffee.", chinese(WORDS_FEW, 2)]
    stored = await bench.stored(caller, [Draft(text=text, namespace=TEAM) for text in texts])
    counts = [
        await bench.value("SELECT cardinality(tokens) FROM memories WHERE memory_id = $1", item.id)
        for item in stored.items
    ]
    assert (counts[0], counts[2], counts[3]) == (3, 0, 3)
    assert min(counts[1], counts[4]) > WORDS_FEW
    assert await bench.value(DIFFERENT) == 0
    assert (await bench.texts(caller, texts[4][:40]))[0] == texts[4]


async def test_words_of_a_long_text_come_in_the_order_of_their_index(bench: Bench) -> None:
    """An index that is filled in any order touches all its pages again and again."""
    caller = await writer(bench)
    await bench.remember(caller, chinese(WORDS_FEW))
    found = [row["token"] for row in await bench.sql("SELECT token FROM postings ORDER BY ctid")]
    assert found == sorted(found)
    assert len(found) > WORDS_FEW


async def test_a_long_text_that_was_stored_meanwhile_leaves_no_words(bench: Bench) -> None:
    caller, text = await writer(bench), chinese(WORDS_FEW)
    await bench.remember(caller, "Anna likes tea.")
    both = await asyncio.gather(*(bench.remember(caller, text) for _ in range(2)))
    assert len({item.id for items in both for item in items}) == 1
    assert await bench.value("SELECT count(DISTINCT memory_id) FROM postings") == 1
    assert await bench.value(DIFFERENT) == 0
