"""Steps between two states of an account's index: they tell all that changed, or nothing."""

import importlib
import inspect
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from relayer import database as statements
from relayer.database import expiry, index_choice, index_steps, rebuild, reseal, word_moves
from relayer.database import memory_index as rows
from relayer.database import namespaces as namespace_rows
from relayer.database import vectors as vector_rows
from relayer.database.index_steps import IndexMark
from relayer.journal.states import Change
from relayer.memories.revisions import Edit
from tests.services import OTHER, TEAM
from tests.twins import Twins, calls_of, content_of, held_now, number_of, read_anew, twins

__all__ = ["twins"]  # a fixture


class TestSteps:
    """What is held is brought up to date by what steps tell, without looking at other rows."""

    async def test_tell_what_writes_change(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await twins.hold(TEAM)
        looked, read = calls_of(monkeypatch, "versions"), calls_of(monkeypatch, "page")
        caller = await twins.caller(twins.plain)
        items = await twins.plain.remember(caller, "Carla drinks tea with Anna.")
        await twins.check_alike()
        await twins.plain.embed(caller, items)
        await twins.check_alike()
        await twins.plain.remember(caller, "Carla drinks tea with Anna.")  # said again
        await twins.check_alike()
        change: Change = {"review": "rejected"}
        await twins.plain.services.state_changer.set_state(caller.access, items[0].id, change)
        await twins.check_alike()
        await twins.plain.remember(caller, "Dora drinks coffee.")
        await twins.check_alike()
        team = await number_of(twins, TEAM)
        assert [len(seqs) for _, _, number, seqs in read if number == team] == [1, 1, 1, 1, 1]
        assert [number for _, _, number in looked if number == team] == []
        assert content_of(await held_now(twins)) == content_of(await read_anew(twins))

    async def test_tell_how_long_a_memory_lives(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A pin sets that of its earlier revisions, too."""
        caller = await twins.caller(twins.plain)
        [item] = await twins.plain.remember(caller, "Carla drinks tea with Anna.")
        reviser, state_changer = twins.plain.services.reviser, twins.plain.services.state_changer
        await reviser.edit(caller, item.id, Edit(changes={"text": "Carla drinks coffee."}))
        await twins.plain.services.expiry.keep(caller.access, TEAM, 3600)
        await twins.hold(TEAM)
        looked, read = calls_of(monkeypatch, "versions"), calls_of(monkeypatch, "page")
        changes: list[Change] = [{"pinned": True}, {"pinned": False}]
        for change in changes:
            await state_changer.set_state(caller.access, item.id, change)
            await twins.check_alike()
        team = await number_of(twins, TEAM)
        assert [len(seqs) for _, _, number, seqs in read if number == team] == [2, 2]
        assert [number for _, _, number in looked if number == team] == []
        assert content_of(await held_now(twins)) == content_of(await read_anew(twins))

    async def test_of_another_namespace_cost_no_reading(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await twins.hold(TEAM)
        looked, read = calls_of(monkeypatch, "versions"), calls_of(monkeypatch, "page")
        before = await held_now(twins)
        caller = await twins.caller(twins.plain)
        await twins.plain.remember(caller, "Elsewhere it rains.", namespace=OTHER)
        after = await held_now(twins)
        assert (looked, read) == ([], [])
        assert after.memories is before.memories

    async def test_an_erasure_is_looked_for(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It leaves a gap, whatever steps come behind it."""
        await twins.hold(TEAM)
        looked = calls_of(monkeypatch, "versions")
        caller = await twins.caller(twins.plain)
        [first, *_] = (await twins.recall(twins.plain, text="Anna tea sugar")).found
        await twins.plain.services.memory.forget(caller.access, first.memory.id)
        await twins.plain.remember(caller, "Carla drinks tea with Anna.")
        await twins.check_alike()
        assert await number_of(twins, TEAM) in [number for _, _, number in looked]
        assert first.hit.seq not in (await held_now(twins)).memories.seq

    @pytest.mark.parametrize("lost", [[0, 1, 2], [0], [1], [2]], ids=str)
    async def test_where_some_are_lost_all_rows_tell(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch, lost: list[int]
    ) -> None:
        """A crash empties their table; others may begin behind it."""
        await twins.hold(TEAM)
        caller = await twins.caller(twins.plain)
        mark = caller.access.index_mark
        assert mark is not None
        for n in range(3):
            await twins.plain.remember(caller, f"Carla has {n} cats.")
        deleted = await twins.plain.sql(
            "DELETE FROM index_steps WHERE account_id = $1 AND earlier = ANY ($2) RETURNING number",
            twins.founder.account,
            [mark.number + n for n in lost],
        )
        assert len(deleted) == len(lost)
        looked = calls_of(monkeypatch, "versions")
        await twins.check_alike()
        assert looked
        assert content_of(await held_now(twins)) == content_of(await read_anew(twins))

    async def test_of_a_database_that_was_set_back_count_for_nothing(self, twins: Twins) -> None:
        """It has come as far again by now, with other receipts."""
        account, number = twins.founder.account, await number_of(twins, TEAM)
        caller = await twins.caller(twins.plain)
        mark = caller.access.index_mark
        assert mark is not None
        for since, known in ((mark, True), (IndexMark(bytes(32), mark.number), False)):
            async with twins.held.storage.database.snapshot() as connection:
                found = await rows.read_changes(connection, account, number, since)
            assert (found is not None) is known
        await twins.plain.remember(caller, "Carla drinks tea with Anna.")
        ahead = IndexMark(mark.head, mark.number + 9)
        other = IndexMark(bytes(32), mark.number)
        for since, seqs in ((mark, 1), (other, None), (ahead, None)):
            async with twins.held.storage.database.snapshot() as connection:
                found = await rows.read_changes(connection, account, number, since)
            assert (None if found is None else len(found.seqs)) == seqs

    async def test_too_many_are_not_followed(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rows, "STEPS_MAX", 3)
        account, number = twins.founder.account, await number_of(twins, TEAM)
        caller = await twins.caller(twins.plain)
        mark = caller.access.index_mark
        assert mark is not None
        for n, followed in ((3, True), (1, False)):
            for i in range(n):
                await twins.plain.remember(caller, f"Carla has {n} cats and {i} dogs.")
            async with twins.held.storage.database.snapshot() as connection:
                found = await rows.read_changes(connection, account, number, mark)
            assert (found is not None) is followed

    async def test_go_when_they_are_old(self, twins: Twins) -> None:
        count = "SELECT count(*) FROM index_steps"
        assert await twins.plain.value(count) > 1
        await twins.plain.sql(
            "UPDATE index_steps SET created_at = created_at - $1::interval"
            " WHERE number > (SELECT min(number) FROM index_steps)",
            index_steps.KEPT,
        )
        async with twins.plain.working():  # whose worker keeps house
            await twins.plain.until(count, 1)

    async def test_of_a_closed_account_there_are_none(
        self, twins: Twins, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also when what was begun before stores its vectors after it was emptied."""
        caller = await twins.caller(twins.plain)
        items = await twins.plain.remember(caller, "Carla drinks tea with Anna.")
        store, closing = vector_rows.store, twins.plain.services.closing

        async def late(*arguments: Any, **named: Any) -> bool:
            await closing.close(caller.access)
            for _ in range(30):
                await closing.purge()
            return await store(*arguments, **named)

        monkeypatch.setattr(vector_rows, "store", late)
        await twins.plain.embed(caller, items)
        purged = "SELECT purged_at IS NOT NULL FROM accounts WHERE account_id = $1"
        assert await twins.plain.value(purged, twins.founder.account)
        steps = "SELECT count(*) FROM index_steps WHERE account_id = $1"
        assert await twins.plain.value(steps, twins.founder.account) == 0


class TestStatements:
    """Whoever changes what memories are found by, or what is shown of them, moves the mark."""

    # Says itself, or in its function, which memories its transaction's step is of: all that it
    # changes of them, and of no others.
    STEPS: Final = {
        "memories._SEEN", "revisions._SET_LIFE", "states._SET_STATES", "write_statement._WRITE",
        "write_statement._WRITE_MEMORIES", "write_statement._INSERT_WORDS",
        "vectors.DELETE_VECTORS", "vectors._INSERT_VECTORS", "vectors._GIVE_UP",
        "vectors._MARK_MISSING", "vectors.DELETE_POSTINGS", "vectors._INSERT_POSTINGS",
        "vectors._SET_RECORDS", "index_choice._SET_RECORDS", "index_choice._SET_ROWS",
        "index_choice.DELETE_POSTINGS", "index_choice.DELETE_VECTORS",
        "word_moves._SET", "word_moves.DELETE_POSTINGS",
    }  # fmt: skip
    # Leaves a gap: its function notes a change, or stores a receipt, of which no step tells.
    GAPS: Final = {
        "imports._ARRIVE", "consolidation._COUNT_MERGED", "erasure._ERASE", "expiry._APPLY_TTL",
        "rebuild._DROP", "reseal._MARK_LOST", "revisions._ARCHIVE", "revisions._COPY_VECTORS",
        "revisions._DELETE_VECTORS", "revisions._MOVE_POSTINGS", "revisions._REVISE",
        "revisions._SHARE", "revisions._VACATE", "states._PART",
    }  # fmt: skip
    # Beside one that leaves a gap, in the same transaction.
    BESIDE: Final = {
        "imports._INSERT_VECTORS", "reseal.DELETE_POSTINGS", "reseal._MOVE_MEMORIES",
    }  # fmt: skip
    # Nothing that a recall looks at; or of an account that is closed.
    UNSEEN: Final = {
        "vectors._FORGET_VERSIONS", "rebuild._SET_STATE_BLOBS", "closing._EMPTY_MEMORIES",
        "closing._EMPTY_POSTINGS", "states._GIVE_UP_WORDS", "index_size._COUNT",
    }  # fmt: skip

    def test_every_statement_is_known(self) -> None:
        """A new one has to be put where it belongs."""
        assert set(_changing()) == self.STEPS | self.GAPS | self.BESIDE | self.UNSEEN

    def test_what_no_step_tells_of_leaves_a_gap(self) -> None:
        """Else a copy would take the steps beside it for everything."""
        checked = set()
        for module in _statement_modules():
            texts = {n: v for n, v in vars(module).items() if isinstance(v, str)}
            gaps = {n for n, v in texts.items() if "receipt_seq = " in v and "step AS" not in v}
            for name, function in inspect.getmembers(module, inspect.iscoroutinefunction):
                source = inspect.getsource(function)
                used = set(re.findall(r"\b_[A-Z_]+\b", source))
                mine = {f"{_short(module)}.{statement}" for statement in used} & self.GAPS
                if mine and function.__module__ == module.__name__:
                    assert used & gaps or "note_change(" in source, name
                    checked |= mine
        assert checked == self.GAPS

    def test_all_that_notes_its_change_does_it_first(self) -> None:
        changing: Sequence[Callable[..., Any]] = (
            vector_rows.store,
            index_choice.move,
            word_moves._move_page,
            expiry.apply_ttl,
            rebuild.drop,
            reseal.mark_altered,
            namespace_rows.recount,
        )
        for function in changing:
            source = inspect.getsource(function)
            if "connection" in inspect.signature(function).parameters:  # of a change of an account
                assert re.findall(r"await (\w+)", source)[0] == "note_change", function
            else:
                first = r"transaction\(\) as connection:\n(\s+#.*\n)*\s+await note_change"
                assert re.search(first, source), function


def _statement_modules() -> list[ModuleType]:
    paths = sorted(Path(statements.__path__[0]).glob("*.py"))
    return [importlib.import_module(f"relayer.database.{path.stem}") for path in paths]


def _short(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def _changing() -> list[str]:
    """The statements that write memories, vectors or postings."""
    wanted = re.compile(r"(INSERT INTO|UPDATE|DELETE FROM) (memories|vectors|postings)\b")
    return [
        f"{_short(module)}.{name}"
        for module in _statement_modules()
        for name, value in vars(module).items()
        if isinstance(value, str) and wanted.search(value)
    ]
