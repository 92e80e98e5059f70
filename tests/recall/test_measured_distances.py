"""Where memory holds a few bits of each number, answers are those of the database all the same.

Not here: which of many are measured (`test_estimated_vectors.py`).
"""

from typing import Any

import numpy as np
import pytest

from relayer.database import distances as rows
from relayer.database import recall as search
from relayer.memory_index import evidence, namespace, vector_rows
from relayer.sealed.primitives import to_base64url
from tests import twins as twins_module
from tests.recall import test_memory_index as whole
from tests.sealed_index import check_alike, talk
from tests.services import OTHER, TEAM, Bench
from tests.twins import DIGITS, Twins, held_now, twins

__all__ = ["twins"]  # a fixture

ALTER = """
UPDATE memories SET index_record = set_byte(index_record, 60, get_byte(index_record, 60) # 1)
WHERE seq = $1
"""


@pytest.fixture(autouse=True)
def few_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were many vectors. The mean of all is that of estimates, which scores look at."""
    monkeypatch.setattr(vector_rows, "CODED_MIN", 1)
    monkeypatch.setattr(namespace, "NAMED_MAX", 2)
    monkeypatch.setattr(twins_module, "DIGITS", 0.01)


class TestFinding(whole.TestFinding):
    async def test_what_is_shown_has_its_exact_distance(self, twins: Twins) -> None:
        assert all(its.is_coded for its in (await held_now(twins)).passages.values())
        for text in ("What does Anna drink?", "Hamburg database tea cellar Ben"):
            ours = await twins.recall(twins.held, text=text, limit=100)
            theirs = await twins.recall(twins.plain, text=text, limit=100)
            assert ours.estimated
            exact = {f.hit.seq: f.hit.cosine for f in theirs.found}
            assert {f.hit.seq for f in ours.found} == set(exact)
            for found in ours.found:
                assert found.hit.cosine == pytest.approx(exact[found.hit.seq], abs=1e-6)

    async def test_what_moves_into_records_before_it_is_measured_is_found(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A namespace is given a sealed index in the middle of a search."""
        await twins.hold(TEAM)
        asked: dict[str, Any] = {"text": "What does Anna drink?", "mode": "vector"}
        before = await twins.recall(twins.held, **asked)
        gather, moved = evidence.gather_aside, list[bool]()

        async def gathered(*arguments: Any) -> Any:
            found = await gather(*arguments)
            if not moved:
                moved.append(await _seal_index(twins))
            return found

        monkeypatch.setattr(evidence, "gather_aside", gathered)
        ours = await twins.recall(twins.held, **asked)
        assert moved == [True]
        assert {f.hit.seq for f in ours.found} == {f.hit.seq for f in before.found}
        for found, other in zip(ours.found, before.found, strict=True):
            assert found.hit.cosine == pytest.approx(other.hit.cosine, abs=DIGITS)

    async def test_an_upload_that_moves_into_a_record_before_it_is_measured_is_found(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        caller, bench = await twins.caller(twins.held), twins.held
        vector = np.random.default_rng(1).normal(size=8).astype(np.float32)
        _, name = await bench.services.manual.remember(caller, TEAM, b"there" * 9, vector)
        await twins.hold(TEAM)
        measure, moved = rows.measure, list[bool]()

        async def measured(*arguments: Any) -> Any:
            if not moved:
                moved.append(await _seal_index(twins))
            return await measure(*arguments)

        monkeypatch.setattr(rows, "measure", measured)
        found = await bench.services.manual.recall(await twins.caller(bench), TEAM, vector, 3)
        assert moved == [True]
        assert [its for its, _ in found] == [name]

    async def test_an_upload_that_is_erased_meanwhile_is_not_named(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of many memories the database names those that are found."""
        caller, bench = await twins.caller(twins.held), twins.held
        vectors = np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32)
        names = [
            (await bench.services.manual.remember(caller, TEAM, bytes([7, n] * 40), vector))[1]
            for n, vector in enumerate(vectors)
        ]
        await twins.hold(TEAM)
        assert set((await held_now(twins)).memories.blob_id.tolist()) == {bytes(32)}
        read = search.blob_ids

        async def later(*arguments: Any) -> dict[int, bytes]:
            found = await read(*arguments)
            return {seq: its for seq, its in found.items() if to_base64url(its) != names[1]}

        monkeypatch.setattr(search, "blob_ids", later)
        found = await bench.services.manual.recall(await twins.caller(bench), TEAM, vectors[1], 3)
        assert {name for name, _ in found} == {names[0], names[2]}


async def _seal_index(twins: Twins) -> bool:
    """Give a namespace a sealed index, and move what is there into records."""
    caller, services = await twins.caller(twins.plain), twins.plain.services
    await services.index_chooser.choose(caller.access, TEAM, sealed=True)
    moved: bool = await services.index_mover.work(caller.access.account, caller.keys, lambda: True)
    return moved


async def test_a_sealed_index_answers_alike(hybrid: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are opened to measure them; an altered one has no distance, and is not shown so."""
    choice = await talk(hybrid)
    monkeypatch.setattr("tests.sealed_index.CLOSE", 0.01)
    before = await choice.answers()
    await choice.choose(sealed=True, namespaces=(TEAM, OTHER))
    opened: list[int] = []
    read = rows.records

    async def counting(*arguments: Any) -> Any:
        found = await read(*arguments)
        opened.extend(row["seq"] for row in found if row["index_record"])
        return found

    async def shown(*arguments: Any) -> Any:
        raise AssertionError("the database was shown a query")

    monkeypatch.setattr(rows, "records", counting)
    monkeypatch.setattr(rows, "measure", shown)
    for ours, theirs in zip(await choice.answers(), before, strict=True):
        check_alike(ours, theirs)
    assert opened
    asked: dict[str, Any] = {"text": "What does Anna drink?", "mode": "vector"}
    first = (await choice.recall(**asked)).found[0]
    await hybrid.sql(ALTER, first.hit.seq)
    assert first.hit.seq not in [f.hit.seq for f in (await choice.recall(**asked)).found]
    await hybrid.services.memory_index.close()
