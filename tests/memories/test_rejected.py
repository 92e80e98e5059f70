"""What somebody rejected is said once more, by an agent that goes on believing it."""

import pytest

from relayer.record import Draft
from tests.editing import writer
from tests.services import TEAM, Bench
from tests.talking import change, state

VEGAN = "The user is vegan."


@pytest.mark.parametrize("kind", ["fact", "preference", "working"])
async def test_it_stays_rejected(bench: Bench, kind: str) -> None:
    caller = await writer(bench)
    [memory] = await bench.remember(caller, VEGAN, importance="vital")
    await change(bench, caller, memory.id, review="rejected")
    [again] = await bench.remember(caller, VEGAN, kind=kind, importance="trivial")
    assert (again.id, again.duplicate, again.review) == (memory.id, True, "rejected")
    assert (again.kind, again.importance) == ("fact", "vital")
    assert (await state(bench, caller, memory.id)).name == "rejected"
    assert await bench.texts(caller, "vegan") == []
    await change(bench, caller, memory.id, review=None)
    assert await bench.texts(caller, "vegan") == [VEGAN]


async def test_as_another_kind_only_what_was_rejected_is_the_same(bench: Bench) -> None:
    caller = await writer(bench)
    [memory] = await bench.remember(caller, VEGAN)
    [other] = await bench.remember(caller, VEGAN, kind="preference")
    assert (other.duplicate, other.id != memory.id) == (False, True)
    await change(bench, caller, memory.id, review="rejected")
    [again] = await bench.remember(caller, VEGAN, kind="preference")
    assert (again.id, again.review) == (other.id, None)


@pytest.mark.parametrize("known", ["fact", "working"])
async def test_nor_is_it_where_one_request_says_it_as_both(bench: Bench, known: str) -> None:
    caller = await writer(bench)
    await bench.remember(caller, VEGAN, kind=known)
    drafts = [Draft(text=VEGAN, namespace=TEAM, kind=kind) for kind in ("working", "fact")]
    stored = (await bench.stored(caller, drafts)).items
    assert [(item.kind, item.duplicate) for item in stored] == [
        (kind, kind == known) for kind in ("working", "fact")
    ]


async def test_what_waits_is_approved(bench: Bench) -> None:
    caller = await writer(bench)
    [memory] = await bench.remember(caller, VEGAN)
    await change(bench, caller, memory.id, review="pending")
    [again] = await bench.remember(caller, VEGAN)
    assert (again.id, again.review) == (memory.id, None)
    assert await bench.texts(caller, "vegan") == [VEGAN]


async def test_a_duplicate_is_answered_as_it_is_stored(bench: Bench) -> None:
    caller = await writer(bench)
    await bench.remember(caller, VEGAN, importance="trivial", confidence="low", idempotency_key="k")
    said = {"importance": "vital", "confidence": "high"}
    for key in ("k", "other"):
        [again] = await bench.remember(caller, VEGAN, **said, idempotency_key=key)
        assert (again.duplicate, again.importance, again.confidence) == (True, "trivial", "low")
    [first, _] = await bench.remember(caller, "Ben is 5.", " Ben is 5.", importance="vital")
    assert first.importance == "vital"
