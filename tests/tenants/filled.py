"""An account with something of everything, and what is left of one."""

from relayer.memories.opener import Caller
from relayer.upkeep.provision import NewKey
from tests.erasing import keep_turn, link
from tests.services import OTHER, TEAM, Bench
from tests.statements import tenant_tables
from tests.talking import choose


async def filled(bench: Bench, founder: NewKey) -> Caller:
    """An account with something of everything."""
    caller = await bench.caller(founder)
    await bench.key(founder, TEAM)
    stored = await bench.remember(
        caller, *(f"Note {n}." for n in range(30)), idempotency_key=None, tags=("a",)
    )
    await bench.remember(caller, "Elsewhere.", namespace=OTHER, idempotency_key="once")
    await bench.embed(caller, stored[:3])
    turn = await keep_turn(bench, caller, "Anna: tea, please.")
    await link(bench, caller, stored[0].id, "turn", turn)
    caller = await choose(bench, caller, count_recalls=True)
    bench.storage.recall_counts.note(caller.access, [one.id for one in stored])
    await bench.storage.recall_counts.store()
    await bench.services.deletion.forget(caller.access, stored[1].id)
    return caller


async def left_of(bench: Bench, account: bytes) -> dict[str, int]:
    """Table → rows of the account, of every table there is."""
    counts = {}
    for table in (await tenant_tables(bench.storage.database)).values():
        count = f'SELECT count(*) FROM "{table}" WHERE account_id = $1'
        counts[table] = await bench.value(count, account)
    counts["key_owner"] = await bench.value(
        "SELECT count(*) FROM key_owner WHERE whole_id = $1", account
    )
    return {table: n for table, n in counts.items() if n}
