"""What one request makes the process do, counted: it grows with what was asked, and has an end.

Times are not measured: calls of functions are counted, which are the same on every machine.
"""

import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from relayer.database.recall import Filters, Scope, Search
from relayer.memories.memory import LAST_SEQ
from relayer.memories.opener import PAGE_BYTES_MAX, Caller
from relayer.memories.recall import ANSWER_BYTES_MAX
from relayer.memory_index.evidence import gather_aside
from relayer.memory_index.namespace import LoadedNamespace, Memories, empty
from relayer.memory_index.postings import NO_POSTINGS, pack
from relayer.query.query import Query
from relayer.query.rank import Copies
from relayer.query.terms import query_terms
from relayer.sealed.keys import Root
from relayer.settings import Limits
from relayer.tenants.custody import RootKeys
from tests.services import TEAM, Bench

GROWING = "\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}"  # eighteen characters in NFKC


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """How often this thread calls which function, by its name; all of Python's own are `c`."""
    count = Counter[str]()

    def counted(frame: Any, event: str, _arg: object) -> None:
        if event in ("call", "c_call"):
            count[frame.f_code.co_qualname if event == "call" else "c"] += 1

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        yield count
    finally:
        sys.setprofile(before)


def living(count: int) -> Memories:
    """So many memories that may all be found."""
    columns = {
        each.name: np.zeros(count, getattr(empty(1).memories, each.name).dtype)
        for each in fields(Memories)
    }
    columns["seq"] = np.arange(count)
    columns |= dict.fromkeys(("expires", "superseded"), np.full(count, np.inf))
    return Memories(**columns | dict.fromkeys(("sealed", "kept"), np.ones(count, bool)))


def calls(work: Callable[[], object]) -> int:
    """How many functions some work calls."""
    with counting() as count:
        work()
    return count.total()


def test_aliases_take_no_more_work_than_short_ones() -> None:
    """Words that the query has add nothing, so that a bound of what is added is none of the work.

    As many as there may be, as long as they may be, cost what as many characters cost anywhere.
    """
    names = [f"ab{n:02}" for n in range(Limits.aliases_max)]
    for text in (f"{GROWING} ", "1.1.1.1 ", "aB ", "a's "):
        alias = (text * Limits.alias_characters_max)[: Limits.alias_characters_max]
        others = [alias] * Limits.alias_words_max
        query = " ".join([text, *names])
        few = calls(partial(query_terms, query, aliases={names[0]: others}))
        most = calls(partial(query_terms, query, aliases=dict.fromkeys(names, others)))
        assert most < 6 * few, text


def test_a_query_is_taken_apart_as_far_as_its_words_count() -> None:
    """What grows counts with its beginning, what comes again is known, and words have an end."""
    longest = Limits.query_bytes_max
    most = 4 * calls(lambda: query_terms(("Where did Anna put the keys? " * longest)[:longest]))
    for text in (GROWING, f"{GROWING} ", "1 ", "aB ", "a's "):
        query = (text * longest).encode()[:longest].decode(errors="ignore")
        assert calls(partial(query_terms, query)) < most, text
    several, many = (" ".join(f"aB{n}" for n in range(count)) for count in (1_000, 2_000))
    # Not the very same: what is looked up the first time is compiled then.
    assert calls(lambda: query_terms(many)) < 1.1 * calls(lambda: query_terms(several))


def test_copies_are_looked_for_among_what_is_new() -> None:
    """A page more compares its own memories: what was kept is compared with nothing again."""
    chosen, words = random.Random(7), [f"{a}{b}" for a in "abcdefghijklmnopqrst" for b in "uvwxyz"]
    texts = [" ".join([*chosen.sample(words, 100), f"{n}"]) for n in range(100)]
    read: list[str] = []

    def text(item: str) -> str:
        read.append(item)
        return item

    def kept(page: int) -> Copies[str]:
        found = Copies(text)
        for at in range(0, len(texts), page):
            found.add(texts[at : at + page])
        return found

    at_once, paged = calls(lambda: kept(len(texts))), calls(lambda: kept(1))
    assert paged < at_once + 10 * len(texts)
    assert read == texts * 2
    assert kept(10).kept == texts


async def test_many_words_of_many_epochs_are_hashed_aside(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, "Tea.")
    assert isinstance(caller.keys, RootKeys)
    account, roots = caller.access.account, list(caller.keys.roots)
    for epoch in range(2, 65):
        roots.append(Root(epoch, os.urandom(32)))
        key_id = roots[-1].namespace_key(account, TEAM).key_id
        await bench.storage.namespaces.create(caller.access, TEAM, epoch, key_id, by=None)
    rotated = Caller(caller.access, RootKeys(account, tuple(roots)))
    words = " ".join(f"{a}{b}" for a in "bcdfghjklmnpqrst" for b in "aeiouyäöüéàèêíóú")
    for text, aside in ((words, True), ("Tea?", False)):
        with counting() as count:
            recalled = await bench.services.recaller.recall(
                rotated, Query(text=text, namespaces=[TEAM])
            )
        assert (count["_words"] == 0) == aside
        assert count["macs"] < 1_000
        assert [found.memory.text for found in recalled.found] == ["Tea."] * (not aside)


async def test_what_is_searched_aside_is_told_by_what_is_found() -> None:
    """Few memories that share many words are more than many that share one."""
    scope = Scope(1, 1, words=[(word, word, 1.0) for word in range(Limits.query_words_max)])

    def sharing(memories: int, words: int) -> LoadedNamespace:
        at = np.tile(np.arange(memories), words)
        postings = pack(
            np.repeat(np.arange(words), memories), at, *2 * [np.ones(len(at), np.int64)]
        )
        its = replace(living(memories), words=np.full(memories, words, np.int16))
        return LoadedNamespace(1, memories, words, its, {}, (postings, NO_POSTINGS))

    for memories, words, aside in ((9_999, 256, True), (9_999, 2, False), (20, 256, False)):
        with counting() as count:
            wanted = Search(
                scopes=[scope],
                query_words=len(scope.words),
                filters=Filters(datetime.now(UTC)),
                limit=10,
                neighbours=True,
            )
            evidence = await gather_aside([sharing(memories, words)], wanted)
        assert (count["gather"] == 0) == aside
        assert len(evidence.found)


async def test_large_memories_are_opened_aside_and_as_many_as_fit(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    texts = [f"needle {n} {'x' * 1_000_000}" for n in range(18)]
    for text in texts:
        await bench.remember(caller, text)
    query = Query(text="needle", namespaces=[TEAM], limit=100)
    with counting() as count:
        recalled = await bench.services.recaller.recall(caller, query)
    assert count["_open_row"] == 0
    sealed = await bench.value("SELECT max(size_bytes) FROM memories")
    assert len(recalled.found) == ANSWER_BYTES_MAX // sealed
    assert recalled.dropped == 0
    listed, before = list[str | None](), LAST_SEQ
    while True:
        page = await bench.services.memory.newest(caller, [TEAM], before_seq=before, limit=6)
        assert len(page) <= PAGE_BYTES_MAX // sealed
        listed += [memory.text for memory in page]
        if page.cursor is None:
            break
        before = page.cursor
    assert listed == texts[::-1]


async def test_small_memories_are_opened_at_once(bench: Bench) -> None:
    caller = await bench.caller(await bench.account())
    await bench.remember(caller, *(f"needle {n} {'a few words ' * 15}" for n in range(10)))
    with counting() as count:
        await bench.services.recaller.recall(caller, Query(text="needle", namespaces=[TEAM]))
    assert count["_open_row"] == 10
