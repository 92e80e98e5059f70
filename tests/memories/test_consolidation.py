"""Consolidation runs: what they flag, when they come, who may what, and being stopped anywhere."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relayer.clock import to_ms
from relayer.database import runs as run_rows
from relayer.errors import NotAllowed, NotFound
from relayer.extraction.old_memories import OldMemory
from relayer.extraction.procedure import Procedure, ProcedureFinder
from relayer.journal.states import Change
from relayer.memories.consolidation import Consolidator
from relayer.memories.consolidation_plan import UNSEEN
from relayer.memories.derivation import Deriver
from relayer.memories.opener import Caller
from relayer.memories.runs import Runs, Undone
from relayer.preferences import AccountSettings
from relayer.sealed.grants import issue_grant, sign_join
from relayer.upkeep.provision import NewKey
from tests.conftest import BenchMaker
from tests.consolidating import (
    MEETINGS,
    RELEASE,
    STATES,
    TEA,
    TEA_AGAIN,
    always,
    caller_of,
    consolidated,
    happened,
    holds,
    listed,
    ops,
    said,
    week,
)
from tests.services import OTHER, TEAM, Bench


async def let_read(bench: Bench, founder: NewKey, key: NewKey) -> None:
    """Grant a key that the account had before no more than to read."""
    accounts, account, issuer = bench.storage.accounts, founder.account, founder.identity
    signed = issue_grant(
        issuer,
        account=account,
        serial=(await accounts.chain(account)).serial + 1,
        recipient=key.identity.public_key,
        role="reader",
        keys=[bench.namespace_key(account, TEAM)],
        created_ms=to_ms(bench.clock()),
    )
    join = sign_join(
        key.identity,
        account=account,
        issuer=issuer.public_key,
        relayer=bench.storage.identity.public_key,
    )
    actor = issuer.public_key
    await bench.storage.granting.grant(
        account=account, actor=actor, signed=signed, join=join, label=""
    )


@pytest.fixture
async def caller(hybrid: Bench) -> Caller:
    return await hybrid.caller(await hybrid.account())


class TestStale:
    async def test_what_is_trivial_and_long_unseen(self, hybrid: Bench, caller: Caller) -> None:
        [trivial] = await said(
            hybrid, caller, "The printer was out of paper.", importance="trivial"
        )
        await said(hybrid, caller, "Bob is allergic to nuts.")
        [pinned] = await said(hybrid, caller, "Bob likes red socks.", importance="trivial")
        await hybrid.services.state_changer.set_state(caller.access, pinned.id, Change(pinned=True))
        assert (await consolidated(hybrid, caller))[0]["stale"] == 0
        hybrid.clock.advance(UNSEEN.total_seconds() + 1)
        run, [action] = await consolidated(hybrid, caller)
        assert (run["stale"], action["memory_id"], action["other_ids"]) == (1, trivial.id, [])
        recalled = await hybrid.texts(caller, "printer paper", mode="keyword")
        assert recalled == ["The printer was out of paper."], "it is still recalled"
        memory = await hybrid.services.memory.get(caller, trivial.id)
        assert memory.state.stale
        assert (await consolidated(hybrid, caller))[0]["stale"] == 0
        hybrid.clock.advance(1)
        await hybrid.services.runs.undo(caller.access, run["run_id"])
        assert not (await hybrid.services.memory.get(caller, trivial.id)).state.stale
        assert (await consolidated(hybrid, caller))[0]["stale"] == 0, "somebody decided"
        await holds(hybrid, caller)

    async def test_what_was_for_the_work_at_hand(self, hybrid: Bench, caller: Caller) -> None:
        far = hybrid.clock() + timedelta(days=365)
        await said(
            hybrid, caller, "The branch to merge is fix-login.", kind="working", expires_at=far
        )
        past = hybrid.clock() - timedelta(days=40)
        await said(
            hybrid,
            caller,
            "The lift was broken.",
            kind="event",
            importance="trivial",
            event_time=past,
        )
        await said(hybrid, caller, "The house was sold.", kind="event", event_time=past)
        assert (await consolidated(hybrid, caller))[0]["stale"] == 1
        hybrid.clock.advance(8 * 86400)
        assert (await consolidated(hybrid, caller))[0]["stale"] == 1

    async def test_undoing_leaves_what_somebody_decided_since(
        self, hybrid: Bench, caller: Caller
    ) -> None:
        [one] = await said(hybrid, caller, "The printer was out of paper.", importance="trivial")
        hybrid.clock.advance(UNSEEN.total_seconds() + 1)
        run, _ = await consolidated(hybrid, caller)
        await hybrid.services.state_changer.set_state(caller.access, one.id, Change(stale=False))
        undone = await hybrid.services.runs.undo(caller.access, run["run_id"])
        assert (undone.undone, undone.skipped) == (0, 1)

    @pytest.mark.parametrize("how", ["said again", "flagged"])
    async def test_what_changes_between_reading_and_flagging_is_left_alone(
        self, hybrid: Bench, caller: Caller, how: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        text = "The printer was out of paper."
        [trivial] = await said(hybrid, caller, text, importance="trivial")
        hybrid.clock.advance(UNSEEN.total_seconds() + 1)
        flagged = Consolidator._flagged

        async def late(self: Consolidator, work: Any, found: Any) -> int:
            if how == "flagged":
                await hybrid.services.state_changer.set_state(
                    caller.access, trivial.id, Change(stale=True)
                )
            else:
                await said(hybrid, caller, text, importance="trivial")
            return await flagged(self, work, found)

        monkeypatch.setattr(Consolidator, "_flagged", late)
        assert await consolidated(hybrid, caller) is not None
        run, done = await consolidated(hybrid, caller)
        assert (run["stale"], done) == (0, [])
        assert await hybrid.value("SELECT count(*) FROM consolidation_actions") == 0
        memory = await hybrid.services.memory.get(caller, trivial.id)
        assert memory.state.stale == (how == "flagged")


class TestRuns:
    async def test_one_at_a_time_and_the_same_for_all(self, hybrid: Bench, caller: Caller) -> None:
        await said(hybrid, caller, TEA)
        started = await asyncio.gather(
            *(hybrid.services.runs.start(caller, TEAM) for _ in range(4))
        )
        assert len({run["run_id"] for run in started}) == 1
        assert started[0]["state"] == "queued"

    async def test_a_slice_ends_and_the_next_goes_on(self, hybrid: Bench, caller: Caller) -> None:
        await said(hybrid, caller, TEA)
        await said(hybrid, caller, TEA_AGAIN)
        await happened(hybrid, caller, *MEETINGS, day=week(hybrid))
        await happened(hybrid, caller, *MEETINGS, day=week(hybrid, 12))
        run = await hybrid.services.runs.start(caller, TEAM)
        account, slices = caller.access.account, 1
        while not await hybrid.services.consolidator.work(
            account, caller.keys, run["run_id"], lambda: False
        ):
            slices += 1
        run, done = await listed(hybrid, caller, run["run_id"])
        assert slices > 2
        assert (run["merged"], run["summaries"], len(done)) == (1, 2, 3)
        await holds(hybrid, caller)

    async def test_killed_in_the_middle_it_does_nothing_twice(
        self, hybrid: Bench, caller: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await said(hybrid, caller, TEA)
        await said(hybrid, caller, TEA_AGAIN)
        await happened(hybrid, caller, *MEETINGS, day=week(hybrid))
        await happened(hybrid, caller, *MEETINGS, day=week(hybrid, 12))
        run = await hybrid.services.runs.start(caller, TEAM)
        store, calls = Deriver._store, 0

        async def killed(self: Deriver, *arguments: Any) -> None:
            nonlocal calls
            calls += 1
            await store(self, *arguments)
            raise asyncio.CancelledError

        monkeypatch.setattr(Deriver, "_store", killed)
        work = hybrid.services.consolidator.work
        for _ in range(2):
            with pytest.raises(asyncio.CancelledError):
                await work(caller.access.account, caller.keys, run["run_id"], always)
        assert await work(caller.access.account, caller.keys, run["run_id"], always)
        run, done = await listed(hybrid, caller, run["run_id"])
        assert (calls, run["merged"], run["summaries"], len(done)) == (2, 1, 2, 3)
        await holds(hybrid, caller)

    async def test_a_plan_changes_nothing(self, hybrid: Bench, caller: Caller) -> None:
        await said(hybrid, caller, TEA)
        await said(hybrid, caller, TEA_AGAIN)
        await happened(hybrid, caller, *MEETINGS, day=week(hybrid))
        texts = [f"Release {n}. {RELEASE}" for n in "ABC"]
        await happened(hybrid, caller, *texts, day=hybrid.clock() - timedelta(days=9))
        before = await hybrid.sql(STATES), await ops(hybrid, caller)
        plan = await hybrid.services.planner.plan(caller, TEAM)
        assert sorted(a.action for a in plan.actions) == ["merge", "procedure", "summary"]
        assert not plan.more
        assert (await hybrid.sql(STATES), await ops(hybrid, caller)) == before
        assert await hybrid.value("SELECT count(*) FROM consolidations") == 0
        _, done = await consolidated(hybrid, caller)
        assert sorted(a["action"] for a in done) == sorted(a.action for a in plan.actions)

    async def test_a_plan_says_that_there_is_more(
        self, hybrid: Bench, caller: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("relayer.memories.consolidation_plan.FLAGGED_AT_ONCE", 2)
        past = hybrid.clock() - timedelta(days=40)
        members: dict[str, Any] = {"kind": "event", "importance": "trivial", "event_time": past}
        plan = hybrid.services.planner.plan
        await hybrid.remember(caller, "The lift was broken.", **members)
        assert not (await plan(caller, TEAM)).more
        await hybrid.remember(caller, "The door was open.", "The roof leaked.", **members)
        planned = await plan(caller, TEAM)
        assert ([a.action for a in planned.actions], planned.more) == (["stale"] * 2, True)

    async def test_a_plan_says_that_there_are_more_weeks(
        self, hybrid: Bench, caller: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("relayer.memories.consolidation_plan.GROUPS_AT_ONCE", 1)
        for ago in (9, 8):
            when = week(hybrid, ago)
            await hybrid.remember(caller, *MEETINGS, kind="episodic", event_time=when)
        planned = await hybrid.services.planner.plan(caller, TEAM)
        assert ([a.action for a in planned.actions], planned.more) == (["summary"], True)

    async def test_two_that_undo_it_at_once_count_each_action_once(
        self, hybrid: Bench, caller: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await said(hybrid, caller, TEA)
        await said(hybrid, caller, TEA_AGAIN)
        run, _ = await consolidated(hybrid, caller)
        undo, undo_one, faster = hybrid.services.runs.undo, Runs._undo, list[Undone]()

        async def late(self: Runs, *arguments: Any) -> Any:
            monkeypatch.undo()
            faster.append(await undo(caller.access, run["run_id"]))
            return await undo_one(self, *arguments)

        monkeypatch.setattr(Runs, "_undo", late)
        slower = await undo(caller.access, run["run_id"])
        counted = [(one.undone, one.skipped) for one in (*faster, slower)]
        assert counted == [(1, 0), (0, 0)]
        _, [action] = await listed(hybrid, caller, run["run_id"])
        assert action["undone"] == "undone"
        await holds(hybrid, caller)

    async def test_who_may_what(self, hybrid: Bench) -> None:
        founder = await hybrid.account()
        owner = await hybrid.caller(founder)
        reader = await hybrid.caller(await hybrid.key(founder, TEAM, role="reader"))
        stranger = await hybrid.caller(await hybrid.key(founder, OTHER))
        foreign = await hybrid.caller(await hybrid.account())
        await said(hybrid, owner, TEA)
        await said(hybrid, owner, TEA_AGAIN)
        runs = hybrid.services.runs
        for caller in (reader, stranger):
            with pytest.raises(NotAllowed):
                await runs.start(caller, TEAM)
        with pytest.raises(NotFound):
            await runs.start(foreign, TEAM)
        run, _ = await consolidated(hybrid, owner)
        seen = await runs.newest(reader.access, None, before=None, limit=9)
        assert [r["run_id"] for r in seen] == [run["run_id"]]
        for caller in (stranger, foreign):
            assert await runs.newest(caller.access, None, before=None, limit=9) == []
            with pytest.raises(NotFound):
                await runs.get(caller.access, run["run_id"])
            with pytest.raises(NotFound):
                await runs.undo(caller.access, run["run_id"])
        with pytest.raises(NotAllowed):
            await runs.newest(stranger.access, TEAM, before=None, limit=9)
        with pytest.raises(NotAllowed):
            await runs.undo(reader.access, run["run_id"])
        with pytest.raises(NotAllowed):
            await hybrid.services.planner.plan(stranger, TEAM)
        assert (await listed(hybrid, owner, run["run_id"]))[0]["state"] == "done"

    async def test_a_revoked_key_s_run_does_nothing(self, hybrid: Bench) -> None:
        founder = await hybrid.account()
        key = await hybrid.key(founder, TEAM)
        caller = await hybrid.caller(key)
        await said(hybrid, caller, TEA)
        await said(hybrid, caller, TEA_AGAIN)
        run = await hybrid.services.runs.start(caller, TEAM)
        await hybrid.revoke(founder, key.identity.public_key)
        owner = await hybrid.caller(founder)
        work = hybrid.services.consolidator.work
        assert await work(owner.access.account, owner.keys, run["run_id"], always)
        run, done = await listed(hybrid, owner, run["run_id"])
        assert (run["state"], done) == ("refused", [])
        assert (await consolidated(hybrid, owner))[0]["merged"] == 1

    async def test_a_run_of_a_key_that_only_reads_by_now_does_nothing(self, hybrid: Bench) -> None:
        founder = await hybrid.account()
        key = await hybrid.key(founder, TEAM)
        caller = await hybrid.caller(key)
        await said(hybrid, caller, TEA)
        await said(hybrid, caller, TEA_AGAIN)
        run = await hybrid.services.runs.start(caller, TEAM)
        await hybrid.revoke(founder, key.identity.public_key)
        await let_read(hybrid, founder, key)
        assert (await hybrid.caller(key)).access.strength(TEAM) == 1
        owner = await hybrid.caller(founder)
        work = hybrid.services.consolidator.work
        assert await work(owner.access.account, owner.keys, run["run_id"], always)
        run, done = await listed(hybrid, owner, run["run_id"])
        assert (run["state"], done) == ("refused", [])

    async def test_a_refused_run_hides_nothing(self, hybrid: Bench) -> None:
        founder = await hybrid.account()
        owner = await hybrid.caller(founder)
        await said(hybrid, owner, TEA)
        await said(hybrid, owner, TEA_AGAIN)
        hybrid.clock.advance(3 * 86400)
        key = await hybrid.key(founder, TEAM)
        run = await hybrid.services.runs.start(await hybrid.caller(key), TEAM)
        await hybrid.revoke(founder, key.identity.public_key)
        work = hybrid.services.consolidator.work
        assert await work(owner.access.account, owner.keys, run["run_id"], always)
        owner = await hybrid.caller(founder)
        assert (await consolidated(hybrid, owner))[0]["merged"] == 1

    @pytest.mark.parametrize("state", ["queued", "waiting", "running"])
    async def test_an_unfinished_one_is_undone(
        self, hybrid: Bench, caller: Caller, state: str
    ) -> None:
        await said(hybrid, caller, TEA)
        await said(hybrid, caller, TEA_AGAIN)
        before = await hybrid.sql(STATES)
        run = await hybrid.services.runs.start(caller, TEAM)
        account, work = caller.access.account, hybrid.services.consolidator.work
        if state != "queued":
            assert not await work(account, caller.keys, run["run_id"], lambda: False)
        await hybrid.sql("UPDATE consolidations SET state = $1", state)
        undone = await hybrid.services.runs.undo(caller.access, run["run_id"])
        assert (undone.run["state"], undone.undone) == ("undone", int(state != "queued"))
        assert await hybrid.sql(STATES) == before
        assert await work(account, caller.keys, run["run_id"], always), "nothing is left to do"
        run, _ = await consolidated(hybrid, caller)
        assert (run["state"], run["merged"]) == ("done", int(state == "queued"))
        await holds(hybrid, caller)

    async def test_one_at_work_does_nothing_more_once_undone(
        self, hybrid: Bench, caller: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await said(hybrid, caller, TEA)
        await said(hybrid, caller, TEA_AGAIN)
        before = await hybrid.sql(STATES)
        run = await hybrid.services.runs.start(caller, TEAM)
        apply = Consolidator._apply

        async def late(self: Consolidator, work: Any, merges: Any) -> int:
            await hybrid.services.runs.undo(caller.access, run["run_id"])
            return await apply(self, work, merges)

        monkeypatch.setattr(Consolidator, "_apply", late)
        work = hybrid.services.consolidator.work
        assert await work(caller.access.account, caller.keys, run["run_id"], always)
        ended, done = await listed(hybrid, caller, run["run_id"])
        assert (ended["state"], done) == ("undone", [])
        assert await hybrid.sql(STATES) == before
        await holds(hybrid, caller)

    async def test_without_its_key_a_sealed_namespace_is_left_alone(self, hybrid: Bench) -> None:
        founder = await hybrid.account("sealed")
        await said(hybrid, await hybrid.unlocked(founder, TEAM), TEA)
        locked = await hybrid.caller(founder)
        with pytest.raises(NotAllowed):
            await hybrid.services.runs.start(locked, TEAM)
        with pytest.raises(NotAllowed):
            await hybrid.services.planner.plan(locked, TEAM)


class TestSchedule:
    async def wish(self, bench: Bench, caller: Caller, hours: int) -> None:
        await bench.storage.accounts.choose(
            caller.access, AccountSettings(consolidate_every_h=hours)
        )

    async def test_a_managed_account_s_runs_come_by_themselves(self, hybrid: Bench) -> None:
        caller = await caller_of(hybrid, "managed")
        silent = await caller_of(hybrid, "managed")
        for one in (caller, silent):
            await said(hybrid, one, TEA)
            await said(hybrid, one, TEA_AGAIN)
        await self.wish(hybrid, caller, 24)
        done = "SELECT count(*) FROM consolidations WHERE state = 'done'"
        async with hybrid.working():
            await hybrid.services.sweeper.sweep()
            await hybrid.until(done, 1)
            await hybrid.services.sweeper.sweep()
            assert await hybrid.value("SELECT count(*) FROM consolidations") == 1
            hybrid.clock.advance(24 * 3600 + 1)
            await hybrid.services.sweeper.sweep()
            await hybrid.until(done, 2)
        runs = await hybrid.services.runs.newest(caller.access, None, before=None, limit=9)
        assert [r["merged"] for r in runs] == [0, 1]
        assert {r["actor"] for r in runs} == {hybrid.storage.identity.public_key}
        assert await hybrid.services.runs.newest(silent.access, None, before=None, limit=9) == []
        await holds(hybrid, caller)

    async def test_one_account_s_odd_wish_holds_up_nobody(self, hybrid: Bench) -> None:
        odd, caller = await caller_of(hybrid, "managed"), await caller_of(hybrid, "managed")
        for one in (odd, caller):
            await said(hybrid, one, TEA)
            await self.wish(hybrid, one, 24)
        for hours in (2**40, 2**31 - 1, -(2**40)):
            await hybrid.sql(
                """
                UPDATE accounts SET settings = jsonb_build_object(
                    'consolidate_every_h', $2::bigint, 'low_confidence', 'review')
                WHERE account_id = $1
                """,
                odd.access.account,
                hours,
            )
            due = await run_rows.due(
                hybrid.storage.database,
                now=hybrid.clock(),
                account=None,
                after=run_rows.START,
                limit=9,
            )
            assert [r["whole_id"] for r in due] == [caller.access.account]
            # What it has chosen beside that counts.
            chosen = await hybrid.storage.accounts.settings(odd.access.account)
            assert chosen == AccountSettings(low_confidence="review")

    async def test_a_sealed_account_s_come_with_its_keys(self, hybrid: Bench) -> None:
        founder = await hybrid.account("sealed")
        caller = await hybrid.unlocked(founder, TEAM, OTHER)
        await said(hybrid, caller, TEA)
        await said(hybrid, caller, TEA_AGAIN)
        await said(hybrid, caller, TEA, namespace=OTHER)
        await self.wish(hybrid, caller, 24)
        async with hybrid.working():
            await hybrid.services.sweeper.sweep()
            assert await hybrid.value("SELECT count(*) FROM consolidations") == 0
            await hybrid.unlocked(founder, TEAM, hold_s=120)
            await hybrid.until("SELECT count(*) FROM consolidations WHERE state = 'done'", 1)
        [run] = await hybrid.services.runs.newest(caller.access, None, before=None, limit=9)
        assert (run["namespace"], run["merged"]) == (TEAM, 1)

    async def test_what_has_no_keys_here_holds_up_nobody(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However much of it there is: nothing is due once it has begun, and this stays due."""
        monkeypatch.setattr("relayer.memories.runs.DUE_PAGE", 1)
        callers = [await caller_of(bench, "sealed", TEAM, OTHER) for _ in range(3)]
        callers += [await caller_of(bench, "managed") for _ in range(2)]
        for one in callers:
            for namespace in (TEAM, OTHER):
                await bench.remember(one, TEA, namespace=namespace)
            await self.wish(bench, one, 24)
        queued = "SELECT count(*) FROM pgqueuer WHERE entrypoint = 'consolidate'"
        await bench.services.sweeper.sweep()
        assert await bench.value("SELECT count(*) FROM consolidations") == 4
        assert await bench.value(queued) == 4
        for one in callers[:3]:
            await bench.services.runs.start(one, TEAM)
        await bench.sql("DELETE FROM pgqueuer")  # their processes ended
        await bench.services.sweeper.sweep()
        assert await bench.value(queued) == 4

    async def test_a_run_whose_job_was_lost_goes_on(self, hybrid: Bench, caller: Caller) -> None:
        await said(hybrid, caller, TEA)
        await said(hybrid, caller, TEA_AGAIN)
        run = await hybrid.services.runs.start(caller, TEAM)
        await hybrid.sql("DELETE FROM pgqueuer")
        async with hybrid.working():
            await hybrid.services.sweeper.sweep()
            await hybrid.until("SELECT count(*) FROM consolidations WHERE state = 'done'", 1)
        assert (await listed(hybrid, caller, run["run_id"]))[0]["merged"] == 1

    async def test_runs_that_did_nothing_are_forgotten(self, hybrid: Bench, caller: Caller) -> None:
        await said(hybrid, caller, TEA)
        await consolidated(hybrid, caller)
        hybrid.clock.advance(8 * 86400)
        await said(hybrid, caller, TEA_AGAIN)
        await consolidated(hybrid, caller)
        hybrid.clock.advance(8 * 86400)
        await consolidated(hybrid, caller)
        runs = await hybrid.services.runs.newest(caller.access, None, before=None, limit=9)
        assert [r["merged"] for r in runs] == [0, 1]

    async def test_not_the_last_that_looked_at_everything(
        self, hybrid: Bench, caller: Caller, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It says from when on there is anything new to look at, and to ask a model about."""
        asked: list[int] = []
        find = ProcedureFinder.find

        async def counted(self: ProcedureFinder, shown: Sequence[OldMemory]) -> list[Procedure]:
            asked.append(len(shown))
            return await find(self, shown)

        monkeypatch.setattr(ProcedureFinder, "find", counted)
        await said(hybrid, caller, "Anna left for Rome.", kind="episodic")
        hybrid.clock.advance(2 * 86400)
        for _ in range(4):
            await consolidated(hybrid, caller)
            undone = await hybrid.services.runs.start(caller, TEAM)
            await hybrid.services.runs.undo(caller.access, undone["run_id"])
            hybrid.clock.advance(8 * 86400)
        assert asked == [1]
        runs = await hybrid.services.runs.newest(caller.access, None, before=None, limit=9)
        assert [r["state"] for r in runs] == ["undone", "done"]


class TestNothingElseHappens:
    async def test_no_plaintext_lies_about(self, hybrid: Bench, caller: Caller) -> None:
        await happened(hybrid, caller, *MEETINGS, day=week(hybrid))
        await consolidated(hybrid, caller)
        for table in ("consolidations", "consolidation_actions", "links", "receipts", "pgqueuer"):
            for row in await hybrid.sql(f"SELECT t::text FROM {table} t"):
                assert "landlord" not in row[0]
                assert b"landlord".hex() not in row[0]

    async def test_closing_the_account_takes_runs_along(
        self, hybrid: Bench, caller: Caller
    ) -> None:
        await said(hybrid, caller, TEA)
        await said(hybrid, caller, TEA_AGAIN)
        await consolidated(hybrid, caller)
        await hybrid.services.closing.close(caller.access)
        await hybrid.services.closing.purge()
        for table in ("consolidations", "consolidation_actions"):
            assert await hybrid.value(f"SELECT count(*) FROM {table}") == 0

    async def test_every_namespace_but_one_is_untouched(self, make_bench: BenchMaker) -> None:
        bench = make_bench()
        caller = await bench.caller(await bench.account())
        day = datetime(2031, 1, 6, tzinfo=UTC)
        await bench.remember(caller, *MEETINGS, kind="episodic", event_time=day, namespace=OTHER)
        await bench.remember(caller, TEA)
        before = await bench.sql(STATES)
        run, done = await consolidated(bench, caller)
        assert (done, await bench.sql(STATES)) == ([], before)
        assert run["namespace"] == TEAM
