"""Measure an index, searchable and sealed: bytes in the database and in memory, time to load.

Not here: recalls as a namespace grows (`recall.py`), what a thief learns (`tests/security`).

- The same sentences are stored three times: with either index, and as text, halfvec and tsvector in
  a plain table with its indexes. Bytes are those of tables and indexes that hold nothing dead.
- Receipts and jobs are left out, as everywhere where the suite fills namespaces itself.
- A first recall is the first one that a relayer gets of a namespace after its start; later ones
  follow it. Before it comes a recall in another namespace, a second before or just before, or a
  list of this one, whose request lends the namespace's key.
- Memories are loaded by real time, and by the processor time of the process that loads them.
"""

import asyncio
import statistics
import time
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.figures import Bounds, Figure, Report, compared
from bench.filling import Filled, Filler
from bench.recall import median_ms
from bench.running import Account, Scale, Site
from bench.sentences import Questions, sentence
from memrelay import MemoryClient
from relayer.database.pool import halfvec
from relayer.memory_index.index import MemoryIndex
from relayer.sealed.index_record import quantise

MEMORIES: Final = 10_000
FIRST_OF: Final = 1_000  # memories of the smaller namespace
LATER: Final = 30  # recalls that a first one is compared with
NEAREST: Final = 10
ASKED: Final = 200  # memories whose neighbours are looked for
SEALED_BYTES: Final = Bounds(must=1.6, aim=1.2)
SEARCHABLE_BYTES: Final = Bounds(must=2.5, aim=1.8)
IN_MEMORY: Final = Bounds(must=250.0, aim=120.0)
NEIGHBOURS: Final = Bounds(must=0.98, aim=0.99, at_least=True)
LOADED: Final = Bounds(must=100_000.0, aim=200_000.0, at_least=True)
BEFORE_S: Final = 1.0  # that a client's first request lies before its first recall
JUST: Final = "just after its client's first request"
LENT: Final = "a second after one that lent its key"
BEGUN: Final = (JUST, "a second after it", LENT)
FIRST_SMALL: Final = Bounds(must=1.5, aim=1.2)
FIRST_LARGE: Final = Bounds(must=3.0, aim=2.0)
TABLES: Final = ("memories", "postings", "vectors", "blobs")
_PLAIN: Final = (
    """
    CREATE TABLE plain_memories (
        id bigint PRIMARY KEY, text text NOT NULL, embedding halfvec NOT NULL,
        words tsvector GENERATED ALWAYS AS (to_tsvector('english', text)) STORED
    )
    """,
    "CREATE INDEX plain_memories_words ON plain_memories USING gin (words)",
)
_TABLE_BYTES: Final = "SELECT pg_total_relation_size($1::text::regclass)"
_INSERT_PLAIN: Final = """
INSERT INTO plain_memories (id, text, embedding)
SELECT id, text, embedding FROM unnest($1::bigint[], $2::text[], $3::halfvec[])
    AS p (id, text, embedding)
"""


async def measure(site: Site, scale: Scale) -> Report:
    """The part's report."""
    count = 200 if scale.quick else min(MEMORIES, scale.largest)
    report = Report()
    filler = Filler(site)
    filled, sizes = dict[str, Filled](), dict[str, float]()
    for name, sealed in (("searchable", False), ("sealed", True)):
        account = await site.new_account()
        filled[name] = await filler.fill(account, name, count, sealed=sealed)
        sizes[name] = await _account_bytes(site, account) / count
    plain = await _plain_bytes(site, filled["searchable"], count)
    for name, bounds in (("sealed", SEALED_BYTES), ("searchable", SEARCHABLE_BYTES)):
        figure = f"database bytes a memory, {name}"
        against = "text, halfvec and tsvector"
        report.figures.append(compared(figure, "B", [sizes[name]], against, [plain], bounds))
    for name in filled:
        report.figures += await _loaded(site, filled[name], name)
    recall = _share_kept(filled["searchable"].vectors)
    name = f"neighbours among {NEAREST} that 8 bits a number keep"
    report.figures.append(Figure(name=name, value=recall, unit="", bounds=NEIGHBOURS))
    small = 50 if scale.quick else FIRST_OF
    for name in filled:
        account = await site.new_account()
        few = await filler.fill(account, "few", small, sealed=name == "sealed")
        for one, bounds in ((few, FIRST_SMALL), (filled[name], FIRST_LARGE)):
            for begun in BEGUN if name == "sealed" else BEGUN[:2]:
                report.figures.append(await _first(site, scale, one, name, begun, bounds))
    return report


async def _account_bytes(site: Site, account: Account) -> int:
    """The bytes of an account's rows with their indexes, in copies that hold nothing else."""
    size = 0
    async with site.connection() as connection:
        for table in TABLES:
            await connection.execute(f"CREATE TABLE copied (LIKE {table} INCLUDING ALL)")
            of_account = f"SELECT * FROM {table} WHERE account_id = $1"  # noqa: S608  # our own name
            await connection.execute(f"INSERT INTO copied {of_account}", account.id)
            size += await connection.fetchval(_TABLE_BYTES, "copied")
            await connection.execute("DROP TABLE copied")
    return size


async def _plain_bytes(site: Site, filled: Filled, count: int) -> float:
    async with site.connection() as connection:
        for statement in _PLAIN:
            await connection.execute(statement)
        vectors = [halfvec(vector) for vector in filled.vectors]
        texts = [sentence(n) for n in range(count)]
        await connection.execute(_INSERT_PLAIN, list(range(count)), texts, vectors)
        size: int = await connection.fetchval(_TABLE_BYTES, "plain_memories")
        await connection.execute("DROP TABLE plain_memories")
    return size / count


async def _loaded(site: Site, filled: Filled, name: str) -> list[Figure]:
    """Return what the namespace takes in memory, and how fast it comes there."""
    index = MemoryIndex(database=site.storage.database, bytes_max=2**30)
    began, spent = time.perf_counter(), time.process_time()
    loaded = await index.sealed.load_one(filled.account.id, filled.namespace_id, [filled.key])
    while loaded.is_loading:
        loaded = await index.sealed.load_one(filled.account.id, filled.namespace_id, [filled.key])
    spent_s, processor_s = time.perf_counter() - began, time.process_time() - spent
    count = len(filled.ids)
    await index.close()
    return [
        Figure(
            name=f"process bytes a memory, {name}",
            value=loaded.size_bytes / count,
            unit="B",
            bounds=IN_MEMORY,
        ),
        Figure(
            name=f"memories loaded a second, {name}",
            value=count / spent_s,
            unit="1/s",
            bounds=LOADED,
        ),
        Figure(
            name=f"memories loaded a second of the relayer's processor time, {name}",
            value=count / processor_s,
            unit="1/s",
            bounds=LOADED,
        ),
    ]


def _share_kept(vectors: npt.NDArray[np.float16]) -> float:
    """The share of the nearest by whole vectors that are the nearest by quantised ones, too."""
    whole = vectors.astype(np.float32)
    coded = quantise(whole).astype(np.float32)
    coded /= np.linalg.norm(coded, axis=1, keepdims=True)
    asked = np.random.default_rng(1).choice(len(whole), min(ASKED, len(whole)), replace=False)
    kept = []
    for one in asked:
        true = np.argpartition(-(whole @ whole[one]), NEAREST)[:NEAREST]
        found = np.argpartition(-(coded @ whole[one]), NEAREST)[:NEAREST]
        kept.append(len(set(true.tolist()) & set(found.tolist())) / NEAREST)
    return statistics.mean(kept)


async def _first(
    site: Site, scale: Scale, filled: Filled, kind: str, begun: str, bounds: Bounds
) -> Figure:
    """The time of a first recall of a namespace, against that of later ones."""
    first, later = [], []
    questions = Questions()
    for _ in range(scale.rounds):
        async with site.relayer() as process, site.client(process, filled.account) as client:
            await _warm(client)
            if begun == LENT:
                await client.list(namespace=filled.namespace, limit=1)
            if begun != JUST:
                await asyncio.sleep(BEFORE_S)
            first.append(await median_ms(client, filled.namespace, questions, 1))
            later.append(await median_ms(client, filled.namespace, questions, LATER))
    name = f"first recall of {len(filled.ids)} {kind} memories, {begun}"
    return compared(name, "ms", first, "later ones", later, bounds)


async def _warm(client: MemoryClient) -> None:
    """Let the client know the relayer, and the relayer its model."""
    await client.namespaces()
    await client.recall("What is there?", namespace="elsewhere")
