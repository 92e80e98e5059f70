"""A key that loses its right while its request is worked on: what that writes is not committed.

A `Caller` here is a request that was checked before. Not here: what comes after or waits for its
turn (`routes/test_checks.py`), what waits for a model (`memories/test_lost_while_thinking.py`),
background work with lent keys (`test_custody.py`).
"""

import ast
import dataclasses
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relayer
from relayer.database import accounts as statements
from relayer.errors import Corrupted, Misdirected, NotAllowed, NotAuthenticated
from relayer.events.webhooks import Wanted
from relayer.journal.states import Change
from relayer.memories.deletion import Filter
from relayer.memories.opener import Caller
from relayer.portable import MovedTombstone
from relayer.preferences import AccountSettings
from relayer.record import Draft
from relayer.sealed.grants import Role
from relayer.sealed.keys import AccountId, Namespace
from relayer.upkeep.provision import NewKey
from tests.chains import assert_chain_holds
from tests.consolidating import TEA, TEA_AGAIN, always
from tests.editing import edit
from tests.granting import issue, post
from tests.moving import EMPTY, packed
from tests.racing import race
from tests.rotator import rotator
from tests.services import OTHER, TEAM, Bench
from tests.talking import analyze

NEW = Namespace("new")
MOVED = "1. user: I moved to Munich."
OPAQUE = b"{somebody else's ciphertext}"
HOOK, STRANGE = uuid.UUID(int=1), uuid.UUID(int=2)
# Everything that a write of a scene may change; receipts are counted without those of grants.
STORED = """
WITH a AS (SELECT * FROM accounts WHERE account_id = $1)
SELECT (SELECT count(*) FROM episodes JOIN a USING (account_id)),
       (SELECT count(*) FROM idempotency JOIN a USING (account_id)),
       (SELECT count(*) FROM tombstones JOIN a USING (account_id)),
       (SELECT count(*) FROM webhooks JOIN a USING (account_id)),
       (SELECT array_agg((name, ttl_s, reseal_below) ORDER BY name)
        FROM namespaces JOIN a USING (account_id)),
       (SELECT array_agg((memory_id, revision, pinned, seen_count) ORDER BY memory_id)
        FROM memories JOIN a USING (account_id)),
       (SELECT array_agg(state) FROM consolidations JOIN a USING (account_id)),
       (SELECT array_agg(undone) FROM consolidation_actions JOIN a USING (account_id)),
       (SELECT (receipt_seq - grant_serial, settings, closed_at) FROM a)
"""


@dataclass(frozen=True)
class Scene:
    """An account with something in it, and a key of two of its namespaces or of all."""

    bench: Bench
    founder: NewKey
    key: NewKey
    caller: Caller  # of a request of that key, which was checked before anything happened
    memory: uuid.UUID
    run: uuid.UUID

    async def revoke(self) -> None:
        await self.bench.revoke(self.founder, self.key.identity.public_key)

    async def grant(self, *namespaces: Namespace, role: Role = "writer") -> None:
        bench, account = self.bench, self.founder.account
        keys = [bench.namespace_key(account, name) for name in namespaces]
        signed = await issue(bench, self.founder, self.key.identity, keys, role=role)
        await post(bench, self.founder, self.key.identity, signed)

    async def stored(self) -> tuple[Any, ...]:
        [row] = await self.bench.sql(STORED, self.founder.account)
        return tuple(row)

    def at(self, bench: Bench) -> "Scene":
        """The same request, at another replica."""
        return dataclasses.replace(self, bench=bench)


async def scene(bench: Bench, custody: str = "managed", role: Role = "writer") -> Scene:
    founder = await bench.account(custody)
    names = [] if role == "owner" else [TEAM, OTHER, NEW]
    key = await bench.key(founder, *names, role=role)
    caller = await bench.unlocked(key, TEAM, OTHER, NEW)
    await bench.remember(caller, TEA, TEA_AGAIN)
    [kept] = await bench.remember(caller, "Ben sells cups.")
    runs, work = bench.services.runs, bench.services.consolidator.work
    run = (await runs.start(caller, TEAM))["run_id"]
    assert await work(founder.account, caller.keys, run, always)
    assert (await runs.get(caller.access, run))["merged"] == 1
    return Scene(bench, founder, key, caller, kept.id, run)


Write = Callable[[Scene], Awaitable[Any]]


async def remember(at: Scene) -> None:
    texts = ("Cleo plays chess.", "Dora bakes.")
    drafts = [Draft(text=text, namespace=TEAM, idempotency_key=text[0]) for text in texts]
    await at.bench.stored(at.caller, drafts)


async def keep_a_turn(at: Scene) -> None:
    settings = AccountSettings(keep_turns=True)
    access = dataclasses.replace(at.caller.access, settings=settings)
    await analyze(at.bench, Caller(access, at.caller.keys), MOVED)


async def edits(at: Scene) -> None:
    await edit(at.bench, at.caller, at.memory, text="Ben sells mugs.")


async def pin(at: Scene) -> None:
    change = Change(pinned=True)
    await at.bench.services.state_changer.set_state(at.caller.access, at.memory, change)


async def forget(at: Scene) -> None:
    await at.bench.services.deletion.forget_ids(at.caller.access, [at.memory])


async def forget_what_fits(at: Scene) -> None:
    await at.bench.services.deletion.forget_matching(at.caller, Filter(namespace=TEAM))


async def forget_all(at: Scene) -> None:
    await at.bench.services.deletion.forget_namespace(at.caller.access, TEAM)


async def consolidate(at: Scene) -> None:
    await at.bench.services.runs.start(at.caller, TEAM)


async def undo(at: Scene) -> None:
    await at.bench.services.runs.undo(at.caller.access, at.run)


async def upload(at: Scene) -> None:
    await at.bench.services.manual.remember(at.caller, TEAM, OPAQUE, np.ones(6))


FORGETS = [forget, forget_what_fits, forget_all]
WRITES = [remember, keep_a_turn, edits, pin, *FORGETS, consolidate, undo, upload]


async def choose(at: Scene) -> None:
    await at.bench.storage.accounts.choose(at.caller.access, AccountSettings(keep_turns=True))


async def keep_for_a_day(at: Scene) -> None:
    await at.bench.services.expiry.keep(at.caller.access, TEAM, 86_400)


async def be_told(at: Scene) -> None:
    wanted = Wanted("https://example.com/", ["remembered"], None, True, False)
    await at.bench.services.webhooks.put(at.caller.access, HOOK, wanted)


async def bring_an_erasure(at: Scene) -> None:
    stone = MovedTombstone(STRANGE, TEAM, ["A" * 43], at.bench.clock())
    arrival = dataclasses.replace(EMPTY, tombstones=[stone])
    await at.bench.services.importer.take_in(at.caller.access, arrival)


async def seal_anew(at: Scene) -> None:
    rotate = at.bench.services.rotations.rotate
    await rotate(at.caller.access, revocations=[], grants=[], reseal=[TEAM])


async def close(at: Scene) -> None:
    await at.bench.services.closing.close(at.caller.access)


OWNERS = [choose, keep_for_a_day, be_told, bring_an_erasure, seal_anew, close]


@pytest.mark.parametrize("custody", ["managed", "sealed"])
@pytest.mark.parametrize("write", WRITES)
async def test_a_write_counts_only_while_its_key_may_write_there(
    bench: Bench, custody: str, write: Write
) -> None:
    """The refusals are those of the key's next request. What it loses and gains elsewhere stops
    nothing, here and where nobody has read of it yet."""
    at = await scene(bench, custody)
    await at.revoke()
    before = await at.stored()
    with pytest.raises(NotAuthenticated) as revoked:
        await write(at)
    assert revoked.value.cause == "grant"
    held: list[tuple[Namespace, Role]] = [(OTHER, "writer"), (TEAM, "reader")]
    for namespace, role in held:
        await at.grant(namespace, role=role)
        with pytest.raises(NotAllowed) as refused:
            await write(at)
        assert refused.value.code == "auth.not_allowed"
    assert await at.stored() == before
    await at.revoke()
    await at.grant(TEAM)
    await bench.key(at.founder, OTHER)
    await write(at.at(bench.another()))
    assert await at.stored() != before
    await assert_chain_holds(bench, at.founder.account)


@pytest.mark.parametrize("write", OWNERS)
async def test_an_owner_s_change_counts_only_while_its_key_owns_the_account(
    bench: Bench, write: Write
) -> None:
    at, same = await scene(bench, role="owner"), await scene(bench, role="owner")
    await at.revoke()
    before = await at.stored()
    with pytest.raises(NotAuthenticated):
        await write(at)
    await at.grant(TEAM)
    with pytest.raises(NotAllowed):
        await write(at)
    assert await at.stored() == before
    other = await bench.key(same.founder, TEAM)
    await bench.revoke(same.founder, other.identity.public_key)
    before = await same.stored()
    await write(same)
    assert await same.stored() != before


async def test_no_webhook_is_removed_by_an_owner_who_was_revoked(bench: Bench) -> None:
    at = await scene(bench, role="owner")
    await be_told(at)
    await at.revoke()
    with pytest.raises(NotAuthenticated):
        await bench.services.webhooks.remove(at.caller.access, HOOK)
    owner = await bench.caller(at.founder)
    assert await bench.services.webhooks.remove(owner.access, HOOK)


async def test_an_owner_s_archive_is_taken_in_no_further(bench: Bench) -> None:
    at = await scene(bench, role="owner")
    brought = dataclasses.replace(await packed(bench, at.caller), account=None, grants=[])
    for table in ("memories", "postings"):
        await bench.sql(f"DELETE FROM {table} WHERE memory_id = $1", at.memory)
    await at.revoke()
    before = await at.stored()
    with pytest.raises(NotAuthenticated):
        await bench.services.importer.take_in(at.caller.access, brought)
    assert await at.stored() == before
    owner = await bench.caller(at.founder)
    arrived = await bench.services.importer.take_in(owner.access, brought)
    assert dict(arrived.results)[at.memory] == "imported"


async def test_a_grant_that_ran_out_meanwhile(bench: Bench) -> None:
    """Nothing is stored when a grant ends: the serial tells nothing of it."""
    founder = await bench.account()
    ends = bench.clock() + timedelta(seconds=20)
    key = await bench.key(founder, TEAM, expires_at=ends)
    caller = await bench.caller(key)
    bench.clock.advance(19)
    await bench.remember(caller, TEA)
    bench.clock.advance(1)
    with pytest.raises(NotAuthenticated):
        await bench.remember(caller, "Ben sells cups.")
    assert await bench.texts(await bench.caller(founder), "cups tea") == [TEA]


async def test_whoever_locks_the_account_first_counts(bench: Bench) -> None:
    """The write waits behind the revocation, for the row that both of them lock."""
    at = await scene(bench)
    before = await at.stored()
    revoked, written = await race(bench, at.founder.account, at.revoke(), edits(at))
    assert revoked is None
    assert isinstance(written, NotAuthenticated)
    assert await at.stored() == before


async def test_no_namespace_begins_for_a_key_that_was_revoked(bench: Bench) -> None:
    """What names its key for good is a write of its own, before what is stored there."""
    at = await scene(bench)
    await at.revoke()
    with pytest.raises(NotAuthenticated):
        await bench.remember(at.caller, "Cleo plays chess.", namespace=NEW)
    assert await bench.value("SELECT count(*) FROM namespaces WHERE name = $1", NEW) == 0


async def test_no_row_comes_back_for_a_key_that_was_revoked(bench: Bench) -> None:
    at = await scene(bench)
    await bench.sql("DELETE FROM memories WHERE memory_id = $1", at.memory)
    await at.revoke()
    before = await at.stored()
    with pytest.raises(NotAuthenticated):
        await bench.services.restore.restore(at.caller, TEAM, 10)
    assert await at.stored() == before
    owner = await bench.unlocked(at.founder, TEAM)
    assert (await bench.services.restore.restore(owner, TEAM, 10)).restored == 1


async def test_a_rotation_tells_its_keys_from_those_it_left_out(bench: Bench) -> None:
    """Who goes on has to seal under the new epoch; who was revoked has to do nothing any more."""
    owner = await rotator(bench, "managed")
    lost, kept = [await bench.key(owner.owner, TEAM) for _ in range(2)]
    callers = [await bench.caller(key) for key in (lost, kept)]
    await owner.rotate(revoke=[lost.identity.public_key])
    for caller, refusal in zip(callers, (NotAuthenticated, Misdirected), strict=True):
        with pytest.raises(refusal):
            await bench.remember(caller, TEA)
    assert await bench.value("SELECT count(*) FROM memories") == 0


async def test_a_database_that_was_set_back_is_not_believed(bench: Bench) -> None:
    at = await scene(bench)
    await bench.key(at.founder, OTHER)
    caller = await bench.caller(at.key)
    await bench.sql("UPDATE accounts SET grant_serial = grant_serial - 1")
    for one in (bench, bench.another()):
        with pytest.raises(Corrupted, match="went backwards"):
            await one.remember(caller, "Cleo plays chess.")


async def test_a_chain_that_lacks_something_may_lack_a_revocation(bench: Bench) -> None:
    at = await scene(bench)
    await bench.sql("UPDATE accounts SET grant_serial_due = grant_serial + 1")
    with pytest.raises(Corrupted, match="are incomplete"):
        await remember(at)


async def test_grants_are_read_once_for_all_that_were_under_way(bench: Bench) -> None:
    """A chain that was continued under the lock is kept; without a change nothing is read."""
    at = await scene(bench)
    replica = bench.another()
    await replica.caller(at.key)
    with reading() as read:
        await replica.remember(at.caller, "Cleo plays chess.")
    assert read == []
    for _ in range(3):
        await bench.key(at.founder, OTHER)
    with reading() as read:
        await replica.remember(at.caller, "Dora bakes.")
        await replica.remember(at.caller, "Emil rides a bicycle.")
    assert read == [at.caller.access.serial]


@contextmanager
def reading() -> Iterator[list[int]]:
    """From which serials on grants are read meanwhile."""
    read: list[int] = []
    grants_after = statements.grants_after

    async def noted(source: Any, account: AccountId, serial: int) -> Any:
        read.append(serial)
        return await grants_after(source, account, serial)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statements, "grants_after", noted)
        yield read


# Where an account is locked but in a `Ledger.change`, and how often.
LOCKS = {
    "database/accounts.py": 1,  # how everybody does
    "database/collection.py": 1,  # what nothing refers to
    "journal/changes.py": 1,  # once more, behind the first time
    "journal/outbox.py": 2,  # blobs on their way, of writes that ask afterwards
    "tenants/accounts.py": 2,  # what the ledger asks; a key that is claimed
}
# Where a change is made, or something is read, for nobody who asks, and how often.
UNASKED = {
    "memories/analysis.py": 1,  # a turn that was accepted before
    "memories/consolidation.py": 1,  # as the schedule says
    "memories/eraser.py": 2,  # what has expired; what a journal says was erased
    "memories/reseal.py": 2,  # as an owner wanted it
    "memories/runs.py": 1,  # as the schedule says
    "recovery/account_replay.py": 2,  # what a journal says
    "recovery/restore.py": 1,  # what was stored before
    "tenants/accounts.py": 1,  # what the account has chosen, for work that was accepted
    "tenants/closing.py": 1,  # for the operator, or as a journal says
    "tenants/granting.py": 4,  # what is signed, and judged by the chain
    "tenants/ledger.py": 1,  # the relayer's own
    "tenants/namespaces.py": 1,  # a key that takes another's place, by the grants of that moment
}


def test_nobody_else_changes_an_account_without_asking_who_writes() -> None:
    """A write that is new takes `Ledger.change`, or says here why it needs no right."""
    assert named("lock_account", "lock_heads") == LOCKS
    assert named("unasked") == UNASKED


def named(*names: str) -> dict[str, int]:
    """File of the relayer → how often it uses one of these names."""
    found: Counter[str] = Counter()
    folder = Path(relayer.__file__).parent
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            found[str(file.relative_to(folder))] += name in names
    return {file: count for file, count in found.items() if count}
