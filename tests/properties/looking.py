"""What the random walk looks at after each move: everything that is shown, beside the dictionary.

Not here: the moves (`walk.py`), what must be so (`dictionary.py`).
"""

import asyncio
import uuid
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
import pytest

from relayer.database import accounts as account_rows
from relayer.database import listing
from relayer.database.index_size import MEMORY_BYTES, ROW_WORD_BYTES, WORD_BYTES
from relayer.database.states import ALL, CONTRADICTS, MERGED, SOURCE
from relayer.errors import NotFound
from relayer.memories.opener import Caller
from relayer.query.query import Query
from relayer.sealed.keys import Namespace
from relayer.sealed.primitives import to_base64url
from tests.properties.dictionary import TAGS, WHAT, WHO, canonical
from tests.services import OTHER, TEAM

if TYPE_CHECKING:
    from tests.properties.walk import Walk

LINKED = (SOURCE, MERGED, CONTRADICTS)
# What each namespace and account says that its index takes, what its memories say, and what they
# take by their words and vectors as they are.
SUMS = f"""
WITH memory AS (
    SELECT m.account_id, m.namespace_id, m.index_bytes AS said,
           {MEMORY_BYTES} + cardinality(m.tokens)
               * CASE WHEN m.frequencies IS NULL THEN {WORD_BYTES}::bigint
                      ELSE {ROW_WORD_BYTES} END + coalesce(
               (SELECT sum(8192 / greatest(8168 / (2 * vector_dims(v.embedding) + 124), 1) + 90)
                FROM vectors v
                WHERE v.account_id = m.account_id AND v.memory_id = m.memory_id), 0) AS there
    FROM memories m
)
SELECT n.index_bytes::bigint, coalesce(sum(m.said), 0)::bigint, coalesce(sum(m.there), 0)::bigint
FROM namespaces n LEFT JOIN memory m USING (account_id, namespace_id)
GROUP BY n.account_id, n.namespace_id, n.index_bytes
UNION ALL
SELECT a.index_bytes::bigint, coalesce(sum(m.said), 0)::bigint, coalesce(sum(m.there), 0)::bigint
FROM accounts a LEFT JOIN memory m USING (account_id)
GROUP BY a.account_id, a.index_bytes
UNION ALL
SELECT a.storage_bytes, s.bytes, s.bytes FROM accounts a CROSS JOIN LATERAL (
    SELECT coalesce((SELECT sum(size_bytes) FROM memories m
                     WHERE m.account_id = a.account_id), 0)::bigint
         + coalesce((SELECT sum(size_bytes) FROM episodes e
                     WHERE e.account_id = a.account_id AND state <> 'done'), 0)::bigint AS bytes) s
"""


async def look(walk: "Walk") -> None:
    """Everything is as the dictionary says."""
    caller = await walk.caller()
    await _look_at_sums(walk)
    await _embed_all(walk, caller)
    await _look_at_sums(walk)
    for namespace in (TEAM, OTHER):
        walk.by_any()
        caller = await _asking(walk)
        await _look_at_list(walk, caller, namespace)
        await _look_at_uploads(walk, caller, namespace)
        await _look_by_vector(walk, caller, namespace)
        await _look_at_turns(walk, caller, namespace)
        for as_of in (None, walk.chance.choice(walk.moments)):
            for mode in ("keyword", "vector"):
                await _look_at_recall(walk, caller, namespace, as_of, mode)
    await _look_at_counts(walk, caller)
    for memory_id in walk.must.memories:
        await _look_at_history(walk, caller, memory_id)
    for memory_id in walk.chance.sample(sorted(walk.must.erased), min(3, len(walk.must.erased))):
        with pytest.raises(NotFound):
            await walk.bench.services.memory.get(caller, memory_id)


async def _asking(walk: "Walk") -> Caller:
    """Who asks now: of two in three, the index may be held in memory."""
    caller = await walk.caller()
    await asyncio.gather(*walk.bench.services.memory_index.reading)
    if walk.chance.random() < 1 / 3:
        return caller
    account, key = caller.access.account, caller.access.key
    access = await walk.bench.storage.accounts.access(account, key)
    assert access is not None
    return Caller(access, caller.keys)


async def _embed_all(walk: "Walk", caller: Caller) -> None:
    """What the background does, at once."""
    due = "SELECT memory_id FROM memories WHERE format = 'sealed' AND embedding_version = ''"
    ids = [row["memory_id"] for row in await walk.bench.sql(due)]
    await walk.bench.services.indexer.embed(caller.access.account, caller.keys, ids)


async def _look_at_list(walk: "Walk", caller: Caller, namespace: Namespace) -> None:
    found = await walk.bench.services.memory.newest(caller, [namespace], limit=200, state=ALL)
    assert {
        m.id: (m.text, tuple(m.tags), m.revision, m.state.name, m.state.pinned,
               m.state.stale, m.state.review, m.state.superseded_by, m.expires_at, m.seen_count)
        for m in found
    } == {
        i: (k.now.text, k.now.tags, len(k.revisions), k.state, k.pinned,
            k.stale, k.review, k.superseded_by, walk.must.end(k), k.seen)
        for i, k in walk.must.memories.items() if k.namespace == namespace and not k.over
    }  # fmt: skip
    assert len({m.id for m in found}) == len(found)
    tag = walk.chance.choice(TAGS)
    tagged = await walk.bench.services.memory.newest(
        caller, [namespace], limit=200, tags=[tag], state="active"
    )
    assert {m.id for m in tagged} == {
        i
        for i, k in walk.must.memories.items()
        if k.namespace == namespace and k.in_force and tag in k.now.tags
    }


async def _look_at_recall(
    walk: "Walk", caller: Caller, namespace: Namespace, as_of: datetime | None, mode: str
) -> None:
    """By a word, those that have it; by meaning, everything that has one."""
    word = walk.chance.choice(WHO + WHAT)
    query = Query(text=word, namespaces=[namespace], limit=50, mode=mode, as_of=as_of)
    recalled = await walk.bench.services.recaller.recall(caller, query)
    found = [(f.memory.id, f.memory.text) for f in recalled.found]
    moment = as_of or walk.bench.clock()
    then = {
        (i, said.text)
        for i, kept in walk.must.memories.items()
        if kept.namespace == namespace and not kept.over
        and (said := kept.at(moment)) is not None
        and said.text is not None and (mode == "vector" or word in canonical(said.text))
    }  # fmt: skip
    assert (set(found), len(found), recalled.dropped) == (then, len(then), 0)


async def _look_at_uploads(walk: "Walk", caller: Caller, namespace: Namespace) -> None:
    asked = np.array([walk.chance.gauss() for _ in range(4)])
    found = await walk.bench.services.manual.recall(caller, namespace, asked, 100)
    assert sorted(name for name, _ in found) == sorted(
        kept.upload
        for kept in walk.must.memories.values()
        if kept.namespace == namespace and kept.in_force and kept.upload is not None
    )


async def _look_by_vector(walk: "Walk", caller: Caller, namespace: Namespace) -> None:
    """A vector of the relayer's model finds what is in force, of whom the relayer has the keys."""
    embedder = walk.bench.services.embedders.current
    assert embedder is not None
    [asked] = await embedder.embed([walk.chance.choice(WHAT)])
    found = await walk.bench.services.manual.recall(
        caller, namespace, asked.astype(np.float64), 100
    )
    blobs = {
        row["memory_id"]: to_base64url(row["blob_id"])
        for row in await walk.bench.sql("SELECT memory_id, blob_id FROM memories")
    }
    assert sorted(name for name, _ in found) == sorted(
        blobs[i]
        for i, kept in walk.must.memories.items()
        if kept.namespace == namespace and kept.in_force and kept.upload is None
        and caller.access.custody == "managed"
    )  # fmt: skip


async def _look_at_turns(walk: "Walk", caller: Caller, namespace: Namespace) -> None:
    found = await walk.bench.services.episodes.newest(caller, [namespace], limit=100)
    assert {t.id: (t.text, t.state, t.created_at, {*t.fact_ids}) for t in found} == {
        i: (turn.text, "kept", turn.since, turn.facts)
        for i, turn in walk.must.turns.items()
        if turn.namespace == namespace and not turn.over
    }


async def _look_at_counts(walk: "Walk", caller: Caller) -> None:
    """Counts are of rows: what is over counts until it is erased."""
    account = caller.access.account
    row = await account_rows.find_account(walk.bench.storage.database, account)
    aside = await listing.count_set_aside(walk.bench.storage.database, account, None)
    counted = sum(aside.values(), start=listing.SetAside())
    kept = list(walk.must.memories.values())
    assert row is not None
    assert (row["memory_count"], counted.revisions, counted.superseded) == (
        len(kept),
        sum(len(k.revisions) - 1 for k in kept),
        sum(k.superseded_at is not None for k in kept),
    )


async def _look_at_sums(walk: "Walk") -> None:
    """What counts for the quota is the sum over rows, and a row's count what its index takes."""
    rows = [tuple(row) for row in await walk.bench.sql(SUMS)]
    assert [(said, of_rows, there) for said, of_rows, there in rows if said != of_rows] == []
    assert all(of_rows == there and said >= 0 for said, of_rows, there in rows)


async def _look_at_history(walk: "Walk", caller: Caller, memory_id: uuid.UUID) -> None:
    kept = walk.must.memories[memory_id]
    if kept.over:
        with pytest.raises(NotFound):
            await walk.bench.services.histories.history(caller, memory_id)
        return
    history = await walk.bench.services.histories.history(caller, memory_id)
    assert [(r.text, tuple(r.tags), r.stored_at) for r in history.revisions] == [
        (said.text, said.tags, said.since) for said in reversed(kept.revisions)
    ]
    linked = {(one.memory_id, one.other_id) for one in history.links if one.relation in LINKED}
    assert linked == {pair for pair in walk.must.linked() if memory_id in pair}
