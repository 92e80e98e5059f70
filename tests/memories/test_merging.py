"""What says the same becomes one memory, and what does not stays apart."""

import uuid
from datetime import timedelta
from typing import Any

import pytest

from relayer.journal.states import Change
from relayer.memories import consolidation_plan
from relayer.memories.consolidation import Consolidator
from relayer.memories.duplicates import Candidate, merge_of, merges_of
from relayer.memories.opener import Caller
from relayer.memories.revisions import Edit
from relayer.record import Draft
from tests.consolidating import (
    CUSTODIES,
    STATES,
    TEA,
    TEA_AGAIN,
    caller_of,
    consolidated,
    holds,
    listed,
    ops,
    said,
)
from tests.rotator import rotator
from tests.services import OTHER, START, TEAM, Bench


@pytest.fixture
async def caller(hybrid: Bench) -> Caller:
    return await hybrid.caller(await hybrid.account())


def candidate(text: str, **members: Any) -> Candidate:
    row: dict[str, Any] = {"pinned": False, "seen_count": 1, "seq": 1, "expires_at": None}
    row["created_at"] = START
    row |= {name: members.pop(name) for name in list(members) if name in row}
    draft = Draft(text=text, namespace=TEAM, **members)
    return Candidate(id=uuid.uuid4(), blob_id=b"", draft=draft, **row)


class TestMergeRule:
    def test_the_better_one_is_kept(self) -> None:
        plain, longer = candidate(TEA), candidate(TEA_AGAIN)
        assert (found := merge_of(plain, longer))
        assert found.kept is longer
        for better in (candidate(TEA, pinned=True), candidate(TEA, seen_count=2)):
            assert (found := merge_of(better, longer))
            assert found.kept is better
        newer = candidate(TEA, seq=2)
        assert (found := merge_of(newer, plain))
        assert found.kept is newer

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("The rent is 900 euros a month.", "The rent is 950 euros a month."),
            ("Anna eats meat on Sundays.", "Anna never eats meat on Sundays."),
            ("Anna does not eat meat.", "Anna does eat meat."),
            ("Bob reports to Anna.", "Anna reports to Bob."),
            ("Anna lives in Berlin now.", "Anna lived in Berlin now."),
            ("The grade was an A+ in maths.", "The grade was an A- in maths."),
            ("Anna might move to Paris.", "Anna will move to Paris."),
            (TEA, "Anna prefers black tea in the morning."),
        ],
    )
    def test_what_may_be_the_point_is_kept_apart(self, one: str, other: str) -> None:
        assert merge_of(candidate(one), candidate(other)) is None

    def test_nothing_that_only_one_has_is_lost(self) -> None:
        kept = {"seen_count": 5}
        assert merge_of(candidate(TEA, **kept), candidate(TEA, tags=["a"])) is None
        assert merge_of(candidate(TEA, tags=["a"], **kept), candidate(TEA, tags=["a"]))
        assert merge_of(candidate(TEA, **kept), candidate(TEA, metadata={"a": "b"})) is None
        soon = START + timedelta(days=1)
        assert merge_of(candidate(TEA, expires_at=soon, **kept), candidate(TEA)) is None
        assert merge_of(candidate(TEA, **kept), candidate(TEA, expires_at=soon))
        assert (
            merge_of(candidate(TEA, source="chat", **kept), candidate(TEA, source="doctor")) is None
        )
        assert merge_of(candidate(TEA, **kept), candidate(TEA, source="doctor")) is None
        assert merge_of(candidate(TEA, source="doctor", **kept), candidate(TEA))

    @pytest.mark.parametrize(
        ("name", "more", "less"),
        [
            ("importance", "vital", "standard"),
            ("importance", "standard", "trivial"),
            ("confidence", "high", "medium"),
        ],
    )
    def test_nothing_becomes_less_important_or_certain(
        self, name: str, more: str, less: str
    ) -> None:
        kept = {"seen_count": 5}
        assert (
            merge_of(candidate(TEA, **kept, **{name: less}), candidate(TEA, **{name: more})) is None
        )
        assert merge_of(candidate(TEA, **kept, **{name: more}), candidate(TEA, **{name: less}))

    def test_other_kinds_and_days_are_kept_apart(self) -> None:
        assert merge_of(candidate(TEA), candidate(TEA, kind="preference")) is None
        day, later = START, START + timedelta(days=1)
        for kind in ("fact", "event", "episodic"):
            one = candidate(TEA, kind=kind, event_time=day)
            assert merge_of(one, candidate(TEA, kind=kind, event_time=later)) is None
            assert merge_of(one, candidate(TEA, kind=kind, event_time=day + timedelta(hours=1)))
        assert merge_of(candidate(TEA, event_time=day), candidate(TEA))
        dated = candidate(TEA, kind="event", event_time=day)
        assert merge_of(dated, candidate(TEA, kind="event")) is None

    def test_what_is_pinned_is_never_merged(self) -> None:
        assert merge_of(candidate(TEA, pinned=True), candidate(TEA_AGAIN, pinned=True)) is None

    def test_nobody_is_merged_twice_or_kept_then(self) -> None:
        a, b, c = (candidate(TEA, seq=n) for n in (1, 2, 3))
        merges = merges_of([(a, b), (b, c), (c, a)])
        assert [(m.kept, m.merged) for m in merges] == [(b, a)]
        merges = merges_of([(c, a), (c, b), (a, b)])
        assert [(m.kept, m.merged) for m in merges] == [(c, a), (c, b)]


@pytest.mark.parametrize("custody", CUSTODIES)
class TestMerging:
    async def test_near_duplicates_become_one(self, hybrid: Bench, custody: str) -> None:
        """capability 3.16: what is said twice in nearly the same words becomes one memory."""
        caller = await caller_of(hybrid, custody)
        [one] = await said(hybrid, caller, TEA, source="monday")
        [two] = await said(hybrid, caller, TEA_AGAIN, source="monday")
        await said(hybrid, caller, "Bob flies to Lisbon.")
        run, done = await consolidated(hybrid, caller)
        assert (run["state"], run["merged"], run["stale"], run["summaries"]) == ("done", 1, 0, 0)
        [action] = done
        assert (action["memory_id"], action["other_ids"]) == (two.id, [one.id])
        assert await hybrid.texts(caller, "tea", mode="keyword") == [TEA_AGAIN]
        [kept] = await hybrid.sql("SELECT seen_count FROM memories WHERE memory_id = $1", two.id)
        assert kept["seen_count"] == 2
        history = await hybrid.services.histories.history(caller, two.id)
        assert [(k.relation, k.other_id) for k in history.links] == [("merged", one.id)]
        assert (await ops(hybrid, caller)).count("state") == 1
        await holds(hybrid, caller)

    async def test_undoing_brings_everything_back(self, hybrid: Bench, custody: str) -> None:
        caller = await caller_of(hybrid, custody)
        await said(hybrid, caller, TEA)
        await said(hybrid, caller, TEA_AGAIN)
        before = [tuple(r) for r in await hybrid.sql(STATES)]
        run, _ = await consolidated(hybrid, caller)
        assert [tuple(r) for r in await hybrid.sql(STATES)] != before
        undone = await hybrid.services.runs.undo(caller.access, run["run_id"])
        assert (undone.undone, undone.skipped, undone.more) == (1, 0, False)
        assert undone.run["state"] == "undone"
        assert [tuple(r) for r in await hybrid.sql(STATES)] == before
        assert await hybrid.value("SELECT count(*) FROM links") == 0
        receipts = await ops(hybrid, caller)
        again = await hybrid.services.runs.undo(caller.access, run["run_id"])
        assert (again.undone, again.skipped, again.receipts) == (0, 0, [])
        assert await ops(hybrid, caller) == receipts
        await holds(hybrid, caller)

    async def test_what_was_undone_is_not_done_again(self, hybrid: Bench, custody: str) -> None:
        caller = await caller_of(hybrid, custody)
        await said(hybrid, caller, TEA)
        await said(hybrid, caller, TEA_AGAIN)
        run, _ = await consolidated(hybrid, caller)
        await hybrid.services.runs.undo(caller.access, run["run_id"])
        run, done = await consolidated(hybrid, caller)
        assert (run["merged"], done) == (0, [])


class TestMergingWithCare:
    async def test_others_are_left_alone(self, hybrid: Bench, caller: Caller) -> None:
        for text in (
            TEA,
            "Anna does not prefer green tea in the morning.",
            "Anna prefers green tea in the morning at 9.",
            "Bob prefers green tea in the morning.",
        ):
            await said(hybrid, caller, text)
        [pinned] = await said(hybrid, caller, TEA_AGAIN, kind="preference")
        await said(hybrid, caller, TEA_AGAIN, namespace=OTHER)
        run, done = await consolidated(hybrid, caller)
        assert (run["merged"], done) == (0, [])
        superseded = "SELECT count(*) FROM memories WHERE superseded_at IS NOT NULL"
        assert await hybrid.value(superseded) == 0
        assert pinned

    async def test_held_back_and_doubted_ones_are_left_alone(
        self, hybrid: Bench, caller: Caller
    ) -> None:
        [one] = await said(hybrid, caller, TEA)
        await said(hybrid, caller, TEA_AGAIN)
        await hybrid.services.state_changer.set_state(
            caller.access, one.id, Change(review="rejected")
        )
        run, _ = await consolidated(hybrid, caller)
        assert run["merged"] == 0

    async def test_a_pin_between_reading_and_merging_holds(
        self, hybrid: Bench, caller: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [one] = await said(hybrid, caller, TEA)
        [two] = await said(hybrid, caller, TEA_AGAIN)
        apply = Consolidator._apply

        async def late(self: Consolidator, work: Any, merges: Any) -> int:
            await hybrid.services.state_changer.set_state(
                caller.access, one.id, Change(pinned=True)
            )
            return await apply(self, work, merges)

        monkeypatch.setattr(Consolidator, "_apply", late)
        run, _ = await consolidated(hybrid, caller)
        assert run["merged"] == 0
        assert await hybrid.texts(caller, "tea", mode="keyword") != []
        monkeypatch.undo()
        hybrid.clock.advance(1)
        run, [action] = await consolidated(hybrid, caller)
        assert (action["memory_id"], action["other_ids"]) == (one.id, [two.id]), "kept by its pin"

    @pytest.mark.parametrize("what", ["edit", "forget"])
    async def test_what_changes_meanwhile_stays(
        self, hybrid: Bench, caller: Caller, what: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        [one] = await said(hybrid, caller, TEA)
        [two] = await said(hybrid, caller, TEA_AGAIN)
        apply = Consolidator._apply

        async def late(self: Consolidator, work: Any, merges: Any) -> int:
            if what == "edit":
                edit = Edit(changes={"text": "Anna prefers coffee."})
                await hybrid.services.reviser.edit(caller, two.id, edit)
            else:
                await hybrid.services.deletion.forget(caller.access, two.id)
            return await apply(self, work, merges)

        monkeypatch.setattr(Consolidator, "_apply", late)
        run, done = await consolidated(hybrid, caller)
        assert (run["state"], done) == ("done", [])
        assert TEA in await hybrid.texts(caller, "tea", mode="keyword")
        await holds(hybrid, caller)
        assert one

    async def test_several_copies_become_one(self, hybrid: Bench, caller: Caller) -> None:
        fillers = ("really", "just", "simply", "actually", "indeed", "also", "very")
        ids = {
            (await said(hybrid, caller, f"Anna {word} prefers green tea in the morning."))[0].id
            for word in fillers
        }
        run, _ = await consolidated(hybrid, caller)
        assert run["merged"] == len(ids) - 1
        living = "SELECT count(*) FROM memories WHERE superseded_at IS NULL"
        assert await hybrid.value(living) == 1
        assert await hybrid.value(living.replace("count(*)", "seen_count")) == len(ids)
        undone = await hybrid.services.runs.undo(caller.access, run["run_id"])
        assert undone.undone == len(ids) - 1
        assert await hybrid.value(living) == len(ids)
        assert await hybrid.value("SELECT max(seen_count) FROM memories") == 1

    async def test_forgetting_the_kept_one_takes_the_merged_one(
        self, hybrid: Bench, caller: Caller
    ) -> None:
        await said(hybrid, caller, TEA)
        [two] = await said(hybrid, caller, TEA_AGAIN)
        run, _ = await consolidated(hybrid, caller)
        await hybrid.services.deletion.forget(caller.access, two.id)
        assert await hybrid.value("SELECT count(*) FROM memories") == 0
        undone = await hybrid.services.runs.undo(caller.access, run["run_id"])
        assert (undone.undone, undone.skipped) == (0, 1)
        _, [action] = await listed(hybrid, caller, run["run_id"])
        assert action["undone"] == "skipped"

    async def test_undoing_leaves_what_was_edited_since(
        self, hybrid: Bench, caller: Caller
    ) -> None:
        await said(hybrid, caller, TEA)
        [two] = await said(hybrid, caller, TEA_AGAIN)
        run, _ = await consolidated(hybrid, caller)
        hybrid.clock.advance(1)
        edit = Edit(changes={"text": "Anna prefers coffee."})
        await hybrid.services.reviser.edit(caller, two.id, edit)
        undone = await hybrid.services.runs.undo(caller.access, run["run_id"])
        assert (undone.undone, undone.skipped) == (0, 1)
        assert await hybrid.texts(caller, "green", mode="keyword") == []

    @pytest.mark.parametrize("how", ["rejected", "superseded"])
    async def test_undoing_brings_nothing_back_that_holds_no_more(
        self, hybrid: Bench, caller: Caller, how: str
    ) -> None:
        await said(hybrid, caller, TEA)
        [kept] = await said(hybrid, caller, TEA_AGAIN)
        run, _ = await consolidated(hybrid, caller)
        [coffee] = await said(hybrid, caller, "Anna drinks coffee in the morning.")
        change = Change(review="rejected")
        if how == "superseded":
            change = Change(superseded_at=hybrid.clock(), superseded_by=coffee.id)
        await hybrid.services.state_changer.set_state(caller.access, kept.id, change)
        undone = await hybrid.services.runs.undo(caller.access, run["run_id"])
        assert (undone.undone, undone.skipped) == (0, 1)
        assert await hybrid.texts(caller, "tea", mode="keyword") == []
        await holds(hybrid, caller)

    async def _merged_twice(
        self, bench: Bench, caller: Caller
    ) -> tuple[list[uuid.UUID], list[uuid.UUID]]:
        """Two runs, and three memories of which each was merged into the next one."""
        runs, ids = [], []
        for text in (TEA, TEA_AGAIN, "Anna just prefers green tea in the morning"):
            [one] = await said(bench, caller, text)
            ids.append(one.id)
            if len(ids) > 1:
                change = Change(pinned=True)
                await bench.services.state_changer.set_state(caller.access, one.id, change)
                run, [action] = await consolidated(bench, caller)
                assert (action["memory_id"], action["other_ids"]) == (ids[-1], [ids[-2]])
                runs.append(run["run_id"])
                await bench.services.state_changer.set_state(
                    caller.access, one.id, Change(pinned=False)
                )
                bench.clock.advance(1)
        return runs, ids

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    async def test_runs_are_undone_in_any_order(
        self, hybrid: Bench, caller: Caller, order: tuple[int, int]
    ) -> None:
        runs, ids = await self._merged_twice(hybrid, caller)
        counts = "SELECT seen_count FROM memories ORDER BY seq"
        assert [r["seen_count"] for r in await hybrid.sql(counts)] == [1, 2, 3]
        seen = []
        for n in order:
            undone = await hybrid.services.runs.undo(caller.access, runs[n])
            assert (undone.undone, undone.skipped) == (1, 0)
            seen.append([r["seen_count"] for r in await hybrid.sql(counts)])
        assert seen == [[1, 1, 2] if order[0] == 0 else [1, 2, 1], [1, 1, 1]]
        states = await hybrid.sql(STATES)
        assert [r["superseded_by"] for r in states] == [None] * len(ids)
        await holds(hybrid, caller)

    @pytest.mark.parametrize("how", ["rejected", "edited"])
    async def test_undoing_looks_at_what_all_of_it_was_merged_into(
        self, hybrid: Bench, caller: Caller, how: str
    ) -> None:
        [first, _], [merged, _, last] = await self._merged_twice(hybrid, caller)
        reviser, state_changer = hybrid.services.reviser, hybrid.services.state_changer
        if how == "edited":
            await reviser.edit(caller, last, Edit(changes={"text": "Anna prefers coffee."}))
        else:
            await state_changer.set_state(caller.access, last, Change(review="rejected"))
        undone = await hybrid.services.runs.undo(caller.access, first)
        assert (undone.undone, undone.skipped) == (0, 1)
        assert await hybrid.texts(caller, "tea", mode="keyword") == []
        back = Change(superseded_by=None, superseded_at=None)
        await state_changer.set_state(caller.access, merged, back)
        assert await hybrid.texts(caller, "tea", mode="keyword") == [TEA], "by hand it may"
        await holds(hybrid, caller)

    async def test_forgetting_leaves_what_was_brought_back(
        self, hybrid: Bench, caller: Caller
    ) -> None:
        await said(hybrid, caller, TEA, TEA_AGAIN)
        run, [action] = await consolidated(hybrid, caller)
        [merged] = action["other_ids"]
        back = Change(superseded_by=None)
        await hybrid.services.state_changer.set_state(caller.access, merged, back)
        assert await hybrid.value("SELECT max(seen_count) FROM memories") == 1, "nor counted twice"
        lisbon = Edit(changes={"text": "Anna lives in Lisbon with her brother."})
        await hybrid.services.reviser.edit(caller, merged, lisbon)
        history = await hybrid.services.histories.history(caller, merged)
        assert list(history.links) == []
        undone = await hybrid.services.runs.undo(caller.access, run["run_id"])
        assert (undone.undone, undone.skipped) == (0, 1)
        await hybrid.services.memory.forget(caller.access, action["memory_id"])
        assert (await hybrid.services.memory.get(caller, merged)).text == lisbon.changes["text"]
        await holds(hybrid, caller)

    async def test_forgetting_leaves_what_another_memory_supersedes_now(
        self, hybrid: Bench, caller: Caller
    ) -> None:
        """Its link to the one it was merged into may be there still, as in an older database."""
        await said(hybrid, caller, TEA, TEA_AGAIN)
        _, [action] = await consolidated(hybrid, caller)
        [merged] = action["other_ids"]
        await hybrid.sql(
            "UPDATE memories SET superseded_by = NULL, superseded_at = NULL WHERE memory_id = $1",
            merged,
        )
        await hybrid.services.memory.forget(caller.access, action["memory_id"])
        assert (await hybrid.services.memory.get(caller, merged)).id == merged

    async def test_undoing_skips_what_another_memory_says_now(
        self, hybrid: Bench, caller: Caller
    ) -> None:
        await said(hybrid, caller, TEA)
        await said(hybrid, caller, TEA_AGAIN)
        run, _ = await consolidated(hybrid, caller)
        await said(hybrid, caller, TEA)
        undone = await hybrid.services.runs.undo(caller.access, run["run_id"])
        assert (undone.undone, undone.skipped) == (0, 1)
        await holds(hybrid, caller)

    async def test_a_pin_does_not_make_it_the_longer_living(
        self, hybrid: Bench, caller: Caller
    ) -> None:
        """Its namespace keeps memories for 30 days, and it may be pinned no longer by then."""
        day = 86_400
        await said(hybrid, caller, "Bob sells cups.")
        await hybrid.services.expiry.keep(caller.access, TEAM, 30 * day)
        [pinned] = await said(hybrid, caller, TEA)
        await hybrid.services.state_changer.set_state(caller.access, pinned.id, Change(pinned=True))
        hybrid.clock.advance(20 * day)
        await said(hybrid, caller, TEA_AGAIN)
        await consolidated(hybrid, caller)
        hybrid.clock.advance(5 * day)
        await hybrid.services.state_changer.set_state(
            caller.access, pinned.id, Change(pinned=False)
        )
        hybrid.clock.advance(6 * day)
        await hybrid.services.expiry.expire()
        assert await hybrid.texts(caller, "tea", mode="keyword") == [TEA_AGAIN]

    async def test_no_vector_is_needed(self, hybrid: Bench, caller: Caller) -> None:
        await hybrid.remember(caller, TEA)
        hybrid.clock.advance(3 * 86400)
        assert (await consolidated(hybrid, caller))[0]["merged"] == 0
        await hybrid.remember(caller, TEA_AGAIN)
        assert (await consolidated(hybrid, caller))[0]["merged"] == 1

    @pytest.mark.parametrize("custody", CUSTODIES)
    async def test_of_another_epoch(self, bench: Bench, custody: str) -> None:
        owner = await rotator(bench, custody)
        [one] = await bench.remember(await owner.caller(), TEA)
        await owner.rotate()
        [two] = await bench.remember(await owner.caller(), TEA_AGAIN)
        assert await bench.value("SELECT count(DISTINCT epoch) FROM memories") == 2
        _, [action] = await consolidated(bench, await owner.caller())
        assert (action["memory_id"], action["other_ids"]) == (two.id, [one.id])

    async def test_only_so_many_with_the_rarest_word_are_looked_at(
        self, hybrid: Bench, caller: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What one memory costs does not grow with the namespace."""
        monkeypatch.setattr(consolidation_plan, "LOOKED_AT_MAX", 3)
        common, rare = "Anna met Bob on the bus.", "Anna met Zoe on the bus."
        [one, _] = await hybrid.remember(caller, rare, common)
        await hybrid.remember(caller, "Anna really met Bob on the bus.")
        await hybrid.remember(caller, *(f"Anna met Bob on bus {n}." for n in range(5)))
        [two] = await hybrid.remember(caller, "Anna really met Zoe on the bus.")
        _, [action] = await consolidated(hybrid, caller)
        assert (action["memory_id"], action["other_ids"]) == (two.id, [one.id])

    async def test_an_older_one_that_was_edited_is_looked_at_again(
        self, hybrid: Bench, caller: Caller
    ) -> None:
        [one] = await said(hybrid, caller, "Anna drinks juice.")
        await said(hybrid, caller, TEA_AGAIN)
        hybrid.clock.advance(3 * 86400)
        assert (await consolidated(hybrid, caller))[0]["merged"] == 0
        hybrid.clock.advance(3 * 86400)
        await hybrid.services.reviser.edit(caller, one.id, Edit(changes={"text": TEA}))
        await hybrid.embed(caller, [one])
        assert (await consolidated(hybrid, caller))[0]["merged"] == 1
