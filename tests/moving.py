"""Two relayers of their own keys, and what leaves one for the other."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from relayer.archives.exporter import Exporter, Part
from relayer.archives.importer import Arrival
from relayer.database.pool import Database
from relayer.embedding.embedders import Embedder
from relayer.memories.opener import Caller
from relayer.portable import Moved
from relayer.postgres.embedded import EmbeddedPostgres
from relayer.settings import Settings
from relayer.upkeep import provision
from tests.conftest import BenchMaker, database_copy
from tests.services import Bench, bench_on
from tests.stored_words import WORDS

POSTINGS = f"""
SELECT token, memory_id, frequency, word_count FROM {WORDS} w ORDER BY memory_id, token
"""
VECTORS = "SELECT memory_id, part, model, embedding::text FROM vectors ORDER BY memory_id, part"

EMPTY = Arrival(account=None, grants=[], namespaces=[], tombstones=[], memories=[], episodes=[])
ROWS = """
SELECT memory_id, seq, revision, revision_of, kind, writer, created_at, stored_at, superseded_at,
       superseded_by, pinned, review, stale, blob_id, word_count, source, fingerprint,
       embedding_model, (SELECT array_agg(t ORDER BY t) FROM unnest(tokens) t) AS tokens
FROM memories ORDER BY seq
"""


@pytest.fixture
def here(make_bench: BenchMaker, embedder: Embedder) -> Bench:
    return make_bench(embedder=embedder)


@pytest_asyncio.fixture
async def there(
    settings: Settings, postgres: EmbeddedPostgres, template: str, embedder: Embedder, here: Bench
) -> AsyncIterator[Bench]:
    async with database_copy(postgres, template) as copy:
        database = await Database.connect(copy.connect_args, connections=5)
        yield bench_on(settings, copy.connect_args, database, embedder=embedder, clock=here.clock)
        await database.close()


def leaving(bench: Bench) -> Exporter:
    storage = bench.storage
    return Exporter(
        database=storage.database,
        blobs=storage.blobs,
        identity=storage.identity,
        succession=storage.succession,
    )


async def everything(bench: Bench, caller: Caller, part: Part) -> list[Any]:
    found: list[Moved] = []
    cursor: str | None = ""
    while cursor is not None:
        page, cursor = await leaving(bench).page(caller.access, part, cursor)
        found += page
    # As it travels: every record survives its way through JSON.
    return [msgspec.json.decode(msgspec.json.encode(one), type=type(one)) for one in found]


async def packed(bench: Bench, caller: Caller) -> Arrival:
    parts = {
        part: await everything(bench, caller, part)
        for part in ("account", "grants", "namespaces", "tombstones", "memories", "episodes")
    }
    return Arrival(account=parts.pop("account")[0], **parts)


async def founded(here: Bench, there: Bench, founder: provision.NewKey) -> Caller:
    """The founder's caller at the other relayer, where its account has nothing but itself."""
    chain = await here.storage.accounts.chain(founder.account)
    first = chain.grants[founder.identity.public_key][0].signed
    await there.storage.granting.create(
        founder=founder.identity.public_key, grants=[first], label="anna"
    )
    there.root[founder.account] = here.root[founder.account]
    return await there.caller(founder)


async def moved(here: Bench, there: Bench, founder: provision.NewKey) -> Arrival:
    arrival = await packed(here, await here.caller(founder))
    caller = await founded(here, there, founder)
    await there.services.importer.take_in(caller.access, arrival)
    return arrival
