"""A namespace with a sealed index leaves and arrives as it is: its records are no one else's."""

import numpy as np
import pytest

from tests.moving import founded, here, packed, there
from tests.services import OTHER, TEAM, Bench

__all__ = ["here", "there"]  # fixtures

RECORDS = """
SELECT memory_id, revision, index_record, source, embedding_model, embedding_version, index_version
FROM memories ORDER BY seq
"""
NAMESPACES = "SELECT name, sealed_index, memory_count, word_count, index_bytes FROM namespaces"
BESIDE = "SELECT (SELECT count(*) FROM postings) + (SELECT count(*) FROM vectors) AS there"


@pytest.mark.parametrize("custody", ["sealed", "managed"])
async def test_records_arrive_as_they_were(here: Bench, there: Bench, custody: str) -> None:
    founder = await here.account(custody)
    caller = await here.unlocked(founder, TEAM, OTHER)
    first = await here.remember(caller, "Anna prefers tea.", source="chat:7", tags=("a", "b"))
    await here.remember(caller, "Elsewhere.", namespace=OTHER)
    await here.services.index_chooser.choose(caller.access, TEAM, sealed=True)
    caller = await here.unlocked(founder, TEAM, OTHER)
    assert await here.services.index_mover.work(founder.account, caller.keys, lambda: True)
    stored = await here.remember(caller, "Ben sells cups.", kind="decision")
    await here.embed(caller, [*first, *stored])
    vector = np.array([0.5, 0.25, -0.125], np.float32)
    await here.services.manual.remember(caller, TEAM, b"foreign" * 9, vector)
    arrival = await packed(here, caller)
    new = await founded(here, there, founder)
    done = await there.services.importer.take_in(new.access, arrival)
    assert {status for _, status in done.results} == {"imported"}
    assert await there.sql(RECORDS) == await here.sql(RECORDS)
    counted = [sorted(await bench.sql(NAMESPACES)) for bench in (here, there)]
    assert counted[0] == counted[1]
    assert await there.value(BESIDE) == await here.value(BESIDE)
    for query in ("Anna's tea", "cups"):
        for mode in ("hybrid", "keyword", "vector"):
            reader = await there.unlocked(founder, TEAM)
            assert await there.texts(reader, query, mode=mode) == await here.texts(
                caller, query, mode=mode
            )
    reader = await there.unlocked(founder, TEAM)
    [(_, distance), *_] = await there.services.manual.recall(reader, TEAM, vector, 3)
    assert distance == pytest.approx(0, abs=1e-3)
