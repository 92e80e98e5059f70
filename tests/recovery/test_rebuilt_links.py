"""What memories were made of is known again after a rebuild: what is erased takes it along."""

import uuid
from datetime import timedelta
from typing import Any

import pytest

from relayer.journal.states import Change
from relayer.memories.opener import Caller
from relayer.memories.revisions import Edit
from relayer.upkeep import check, provision
from relayer.upkeep.rebuild import REBUILT
from tests.consolidating import (
    CUSTODIES,
    MEETINGS,
    RELEASE,
    TEA,
    TEA_AGAIN,
    consolidated,
    happened,
    said,
    week,
)
from tests.moving import moved
from tests.rebuilding import Leave, Lose, bench, completed, elsewhere, lose, rebuilt
from tests.services import TEAM, Bench

__all__ = ["bench", "elsewhere", "lose"]  # fixtures

LINKS = "SELECT memory_id, relation, other_id FROM links ORDER BY memory_id, relation, other_id"
LIVING = "SELECT memory_id FROM memories WHERE revision_of IS NULL"

pytestmark = pytest.mark.parametrize("custody", CUSTODIES)


async def begun(bench: Bench, custody: str) -> tuple[provision.NewKey, Caller]:
    founder = await bench.account(custody)
    return founder, await bench.unlocked(founder, TEAM)


async def after_the_loss(bench: Bench, lose: Lose, founder: provision.NewKey) -> tuple[Bench, Any]:
    """The relayer on an empty database, once everything has come back, and a caller there."""
    lost = await lose(bench)
    assert await rebuilt(lost, bench) == [REBUILT]
    caller = await lost.unlocked(founder, TEAM, hold_s=300)
    await completed(lost, founder)
    return lost, caller


async def living(bench: Bench) -> set[uuid.UUID]:
    return {row["memory_id"] for row in await bench.sql(LIVING)}


async def test_a_forgotten_source_takes_its_summary_along_and_the_next_run_makes_another(
    bench: Bench, lose: Lose, custody: str
) -> None:
    founder, caller = await begun(bench, custody)
    texts = (*MEETINGS, "Anna met the landlord about the windows.")
    first, *others = await happened(bench, caller, *texts, day=week(bench))
    _, [made] = await consolidated(bench, caller)
    before = await bench.sql(LINKS)
    assert len(before) == len(texts)
    lost, again = await after_the_loss(bench, lose, founder)
    assert await lost.sql(LINKS) == before
    await lost.services.deletion.forget(again.access, first.id)
    assert await living(lost) == {other.id for other in others}
    _, [next_one] = await consolidated(lost, again)
    assert set(next_one["other_ids"]) == {other.id for other in others}
    assert next_one["memory_id"] != made["memory_id"]
    assert (await check.check(lost.storage)).problems == []


async def test_an_edit_does_not_hide_what_a_summary_was_made_of(
    bench: Bench, lose: Lose, custody: str
) -> None:
    """The newest revision says nothing of its sources any more; the first one did."""
    founder, caller = await begun(bench, custody)
    first, *others = await happened(bench, caller, *MEETINGS, day=week(bench))
    _, [made] = await consolidated(bench, caller)
    bench.clock.advance(60)
    edits: list[dict[str, Any]] = [
        {"metadata": {}}, {"text": "Anna saw the landlord five times."},
    ]  # fmt: skip
    for changes in edits:
        await bench.services.reviser.edit(caller, made["memory_id"], Edit(changes=changes))
    before = await bench.sql(LINKS)
    lost, again = await after_the_loss(bench, lose, founder)
    assert await lost.sql(LINKS) == before
    await lost.services.deletion.forget(again.access, first.id)
    assert await living(lost) == {other.id for other in others}


async def test_a_procedure_that_became_something_else_still_goes_with_its_episodes(
    bench: Bench, lose: Lose, custody: str
) -> None:
    founder, caller = await begun(bench, custody)
    texts = [f"Release {n}. {RELEASE}" for n in "ABC"]
    day = bench.clock() - timedelta(days=20)
    first, *others = await happened(bench, caller, *texts, day=day, apart_days=3)
    _, [made] = await consolidated(bench, caller)
    assert made["action"] == "procedure"
    bench.clock.advance(60)
    await bench.services.state_changer.set_state(
        caller.access, made["memory_id"], Change(review="approved")
    )
    edit = Edit(changes={"kind": "fact", "metadata": {}})
    await bench.services.reviser.edit(caller, made["memory_id"], edit)
    before = await bench.sql(LINKS)
    lost, again = await after_the_loss(bench, lose, founder)
    assert await lost.sql(LINKS) == before
    await lost.services.deletion.forget(again.access, first.id)
    assert await living(lost) == {other.id for other in others}


async def merged(bench: Bench, caller: Caller) -> tuple[uuid.UUID, uuid.UUID]:
    """A memory and the one that says the same, which was merged into it."""
    [longer], [shorter] = [await said(bench, caller, text) for text in (TEA_AGAIN, TEA)]
    _, [action] = await consolidated(bench, caller)
    kept, [other] = action["memory_id"], action["other_ids"]
    assert {kept, other} == {longer.id, shorter.id}
    assert await bench.sql(LINKS) == [(kept, "merged", other)]
    return kept, other


async def test_a_forgotten_memory_takes_along_what_was_merged_into_it(
    bench: Bench, lose: Lose, custody: str
) -> None:
    founder, caller = await begun(bench, custody)
    kept, other = await merged(bench, caller)
    # Whatever is said of it later, and whichever of two comes back first.
    await bench.services.state_changer.set_state(caller.access, other, Change(pinned=True))
    await bench.storage.outbox.empty()
    before = await bench.sql(LINKS)
    lost, again = await after_the_loss(bench, lose, founder)
    assert await lost.sql(LINKS) == before
    await lost.services.deletion.forget(again.access, kept)
    assert await living(lost) == set()
    await lost.storage.outbox.empty()
    assert (await check.check(lost.storage)).problems == []


async def test_what_was_brought_back_since_and_superseded_by_another_goes_with_neither(
    bench: Bench, lose: Lose, custody: str
) -> None:
    founder, caller = await begun(bench, custody)
    kept, other = await merged(bench, caller)
    [third] = await bench.remember(caller, "Anna prefers coffee.")
    for by in (None, third.id):
        await bench.services.state_changer.set_state(caller.access, other, Change(superseded_by=by))
    lost, again = await after_the_loss(bench, lose, founder)
    assert await lost.sql(LINKS) == []
    await lost.services.deletion.forget(again.access, kept)
    await lost.services.deletion.forget(again.access, third.id)
    assert await living(lost) == {other}


async def test_what_was_merged_is_known_also_where_the_account_has_moved_since(
    bench: Bench, elsewhere: Leave, lose: Lose, custody: str
) -> None:
    founder, caller = await begun(bench, custody)
    kept, other = await merged(bench, caller)
    there = await elsewhere(bench)
    await moved(bench, there, founder)
    before = await there.sql(LINKS)
    assert before == [(kept, "merged", other)]
    lost, again = await after_the_loss(there, lose, founder)
    assert await lost.sql(LINKS) == before
    await lost.services.deletion.forget(again.access, kept)
    assert await living(lost) == set()


async def test_ids_that_somebody_wrote_beside_a_fact_mean_nothing(
    bench: Bench, lose: Lose, custody: str
) -> None:
    founder, caller = await begun(bench, custody)
    [source] = await bench.remember(caller, "Anna prefers tea.")
    named = {"metadata": {"sources": str(source.id)}}
    [other] = await bench.remember(caller, "Ben sells cups.", **named)
    lost, again = await after_the_loss(bench, lose, founder)
    assert await lost.sql(LINKS) == []
    await lost.services.deletion.forget(again.access, source.id)
    assert await living(lost) == {other.id}
