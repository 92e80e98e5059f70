"""A rebuild loses what SPEC §17.3 says and nothing else: each column of each table is compared."""

import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from relayer.database.postings import IN_ROW_MAX
from relayer.events.webhooks import Wanted
from relayer.journal.states import Change
from relayer.memories.conversations import Conversation
from relayer.memories.opener import Caller
from relayer.memories.revisions import Edit
from relayer.upkeep.provision import NewKey
from relayer.upkeep.rebuild import REBUILT
from tests.consolidating import TEA, TEA_AGAIN, consolidated
from tests.rebuilding import Lose, bench, completed, embed_all, lose, rebuilt
from tests.services import OTHER, TEAM, Bench
from tests.talking import choose

__all__ = ["bench", "lose"]  # fixtures

SPEC = Path(__file__).parents[2] / "SPEC.md"
# Table → what tells its rows apart.
KEYS = {
    "accounts": ["account_id"],
    "grants": ["serial"],
    "namespaces": ["name"],
    "namespace_keys": ["namespace_id", "epoch"],
    "memories": ["memory_id"],
    "postings": ["namespace_id", "token", "memory_id"],
    "vectors": ["memory_id", "part"],
    "episodes": ["episode_id"],
    "links": ["memory_id", "relation", "other_id"],
    "tombstones": ["memory_id"],
    "key_owner": ["public_key"],
    "receipts": ["seq"],
    "idempotency": ["mark"],
    "key_uses": ["public_key"],
    "memory_recalls": ["memory_id"],
    "webhooks": ["webhook_id"],
    "consolidations": ["run_id"],
    "consolidation_actions": ["action_id"],
}
# For a process or a job; the blobs themselves are what an account is rebuilt from.
PASSING = {
    "blobs", "blob_outbox", "request_windows", "webhook_events", "index_steps", "lasting_objects",
}  # fmt: skip
COUNTED = {
    "accounts.index_changes",  # for processes that hold the index in memory
    "accounts.changed_at",  # for hosts whose clocks differ
}
# What SPEC §17.3 says → what it means in the database.
LOST = {
    "labels": {"accounts.label", "grants.label"},
    "settings": {"accounts.settings"},
    "who named the keys of namespaces": {"namespace_keys.named_by"},
    "life spans of namespaces": {"namespaces.ttl_s", "memories.expires_at"},
    "which of them are to be sealed anew": {"namespaces.reseal_below"},
    "webhooks": {"webhooks"},
    "runs of consolidation": {"consolidations", "consolidation_actions"},
    "manual uploads": {
        "memories opaque", "vectors", "accounts.memory_count", "accounts.storage_bytes",
        "accounts.index_bytes", "namespaces.memory_count", "namespaces.storage_bytes",
        "namespaces.index_bytes",
    },
    "`seen_count`, `last_seen_at`": {"memories.seen_count", "memories.last_seen_at"},
    "who found an episode's facts": {"episodes.extractor"},
    "how many episodes gave any": {"accounts.turns_with_facts"},
    "idempotency marks": {"idempotency"},
    "when keys last asked": {"key_uses"},
    "how often memories were recalled": {"memory_recalls", "accounts.recalls_since"},
    "when links were made": {"links.created_at"},
    "every receipt but those of erasures": {
        "receipts", "accounts.receipt_seq", "accounts.receipt_head",
        "namespaces.updated_at",
    },
    "Sequence numbers": {"memories.seq", "accounts.memory_seq"},
    "Keys but the founder's": {"key_owner"},
}  # fmt: skip


async def lived(bench: Bench) -> NewKey:
    """An account with something of everything that a database has of one."""
    founder = await bench.account(label="anna")
    await bench.key(founder, TEAM, label="agent")
    caller = await choose(bench, await bench.caller(founder), keep_turns=True, count_recalls=True)
    await memories(bench, caller)
    await bench.services.expiry.keep(caller.access, TEAM, 3600 * 24 * 365)
    bench.storage.key_uses.note(founder.account, founder.identity.public_key, bench.clock())
    await bench.storage.key_uses.store()
    [one, *_] = await bench.sql("SELECT memory_id FROM memories WHERE revision_of IS NULL")
    bench.storage.recall_counts.note(caller.access, [one["memory_id"]])
    await bench.storage.recall_counts.store()
    hook = Wanted("https://hook.example/", ["memory.written"], None, True, False)
    await bench.services.webhooks.put(caller.access, uuid.UUID(int=1), hook)
    await bench.services.rotations.rotate(caller.access, revocations=[], grants=[], reseal=[TEAM])
    return founder


async def memories(bench: Bench, caller: Caller) -> None:
    soon = bench.clock() + timedelta(days=9)
    one, two, three, gone = await bench.remember(
        caller, "One apple.", "Two pears.", "Three plums.", "Four figs.", expires_at=soon
    )
    await bench.remember(caller, "Five limes.", idempotency_key="once", tags=("fruit",))
    bench.clock.advance(60)
    await bench.remember(caller, "One apple.")  # is counted
    set_state = bench.services.state_changer.set_state
    await set_state(caller.access, two.id, Change(pinned=True, review="contradiction"))
    await set_state(caller.access, three.id, Change(superseded_by=one.id))
    await bench.services.reviser.edit(caller, one.id, Edit(changes={"text": "Six dates."}))
    await bench.services.deletion.forget(caller.access, gone.id)
    asked = Conversation(text="1. user: I prefer window seats on trains.", namespace=TEAM)
    await bench.services.analysis.analyze(caller, asked)
    long = " ".join(f"fruit{number}" for number in range(IN_ROW_MAX + 1))
    await bench.remember(caller, TEA, TEA_AGAIN, long)
    await embed_all(bench, caller)
    await consolidated(bench, caller)
    await bench.services.manual.remember(caller, OTHER, b"ciphertext", np.ones(6, np.float32))


async def everything(bench: Bench) -> dict[str, dict[tuple[Any, ...], dict[str, Any]]]:
    """Table → key of a row → its columns, namespaces by their names."""
    names = {
        row["namespace_id"]: row["name"]
        for row in await bench.sql("SELECT namespace_id, name FROM namespaces")
    }
    found = {}
    for table, keys in KEYS.items():
        rows = [dict(row) for row in await bench.sql(f"SELECT * FROM {table}")]
        for row in rows:
            if "namespace_id" in row:
                row["namespace_id"] = names.get(row["namespace_id"])
        found[table] = {tuple(row[key] for key in keys): row for row in rows}
    return found


async def missing(bench: Bench, lost: Bench) -> set[str]:
    """`table.column` of what differs after the loss, or `table`, with what sort of row is gone."""
    after, found = await everything(lost), set()
    for table, rows in (await everything(bench)).items():
        assert rows, f"the account has nothing in {table}"
        for key, row in rows.items():
            if (other := after[table].get(key)) is None:
                sort = row.get("relation") or row.get("format")
                found.add(f"{table} {sort}" if sort else table)
            else:
                found |= {f"{table}.{name}" for name in row if row[name] != other[name]}
    return found


async def test_nothing_else_is_lost(bench: Bench, lose: Lose) -> None:
    founder = await lived(bench)
    lost = await lose(bench)
    lost.clock.advance(60)
    assert await rebuilt(lost, bench) == [REBUILT]
    await completed(lost, founder)
    await embed_all(lost, await lost.caller(founder))
    told = {name for names in LOST.values() for name in names}
    assert await missing(bench, lost) - COUNTED == told
    tables = await bench.sql(
        "SELECT table_name FROM information_schema.columns"
        " WHERE column_name IN ('account_id', 'whole_id') AND table_schema = 'public'"
    )
    assert {row["table_name"] for row in tables} == KEYS.keys() | PASSING


def test_the_specification_names_what_is_lost() -> None:
    section = SPEC.read_text().split("### 17.3 ")[1].split("### 17.4 ")[0]
    told = " ".join(section.split("Not in the store, and lost:")[1].split())
    assert [phrase for phrase in LOST if phrase not in told] == []
