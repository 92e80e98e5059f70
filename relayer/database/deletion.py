"""Statements that find what is to be forgotten, and that close an emptied namespace.

Not here: erasing (`erasure`), who may (`relayer.memories.deletion`).
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from relayer.database.conditions import within
from relayer.database.pool import Connection, Database
from relayer.database.postings import few_with
from relayer.database.states import ALL, IN_STATE
from relayer.sealed.keys import AccountId, PublicKey

# In which namespaces these memories and episodes are.
_PLACES: Final = """
SELECT m.memory_id AS id, ns.name AS namespace FROM memories m
JOIN namespaces ns ON ns.account_id = m.account_id AND ns.namespace_id = m.namespace_id
WHERE m.account_id = $1 AND m.memory_id = ANY ($2) AND m.revision_of IS NULL
UNION ALL
SELECT e.episode_id, ns.name FROM episodes e
JOIN namespaces ns ON ns.account_id = e.account_id AND ns.namespace_id = e.namespace_id
WHERE e.account_id = $1 AND e.episode_id = ANY ($2) AND e.state <> 'done'
"""

_FILTER: Final = f"""
    m.account_id = $1 AND m.namespace_id = $2 AND m.revision_of IS NULL
  AND ($3::text IS NULL OR m.kind = $3) AND ($4::bytea IS NULL OR m.writer = $4)
  AND {within("$5", "$6")}
  AND ($7::boolean IS NULL OR m.pinned = $7)
"""
# Those of them with all of these tokens of an epoch; and where they are among a few that are known.
_TAGGED: Final = "AND m.epoch = $8 AND m.tokens @> $9::bigint[]"
_FEW: Final = f"{_TAGGED} AND m.memory_id = ANY ($10)"
_NUMBERED: Final = "AND m.seq = ANY ($8::bigint[])"  # as sealed records tell


def _of_each_state(found: str, further: str) -> dict[str, str]:
    return {
        state: f"SELECT {found} FROM memories m WHERE {_FILTER} AND {holds} {further}"
        for state, holds in IN_STATE.items()
    }


# The oldest memories of a namespace that fit, and how many there are.
_MATCHING: Final = _of_each_state("m.memory_id", "ORDER BY m.seq LIMIT $8")
_MATCHING_TAGGED: Final = _of_each_state("m.memory_id", f"{_TAGGED} ORDER BY m.seq LIMIT $10")
_MATCHING_FEW: Final = _of_each_state("m.memory_id", f"{_FEW} ORDER BY m.seq LIMIT $11")
_MATCHING_NUMBERED: Final = _of_each_state("m.memory_id", f"{_NUMBERED} ORDER BY m.seq LIMIT $9")
_COUNT_MATCHING: Final = _of_each_state("count(*)", "")
_COUNT_TAGGED: Final = _of_each_state("count(*)", _TAGGED)
_COUNT_FEW: Final = _of_each_state("count(*)", _FEW)
_COUNT_NUMBERED: Final = _of_each_state("count(*)", _NUMBERED)
_Statements = tuple[Mapping[str, str], ...]  # bare, tagged, among few, numbered

# Whether a namespace has memories of other epochs than these, each of which has its key. A planner
# that is asked for the epoch itself expects every memory to be of it, and reads them all where
# none is.
_OTHER_EPOCHS: Final = """
SELECT EXISTS (SELECT 1 FROM namespace_keys k
               WHERE k.account_id = $1 AND k.namespace_id = $2 AND NOT k.epoch = ANY ($3)
                 AND EXISTS (SELECT 1 FROM memories m
                             WHERE m.account_id = $1 AND m.namespace_id = $2
                               AND m.epoch BETWEEN k.epoch AND k.epoch))
"""

# Everything in a namespace, and how much that is.
_CONTENTS: Final = """
SELECT memory_id FROM memories WHERE account_id = $1 AND namespace_id = $2 AND revision_of IS NULL
UNION ALL
SELECT episode_id FROM episodes WHERE account_id = $1 AND namespace_id = $2 AND state <> 'done'
LIMIT $3
"""
_COUNT_CONTENTS: Final = """
SELECT (SELECT count(*) FROM memories
        WHERE account_id = $1 AND namespace_id = $2 AND revision_of IS NULL)
     + (SELECT count(*) FROM episodes
        WHERE account_id = $1 AND namespace_id = $2 AND state <> 'done')
"""
# Take an empty namespace off the lists, with its expiry and the marks of episodes that were done:
# tombstones are left of those, as far as their names do not tell what was said.
_CLOSE_NAMESPACE: Final = """
WITH done AS (
    DELETE FROM episodes WHERE account_id = $1 AND namespace_id = $2 AND state = 'done'
    RETURNING episode_id, blob_id
), stone AS (
    INSERT INTO tombstones (account_id, memory_id, namespace_id, blob_ids, erased_at)
    SELECT $1, episode_id, $2, ARRAY[blob_id], $3 FROM done
    WHERE substr(episode_id::text, 15, 1) <> '8'
    ON CONFLICT DO NOTHING
)
UPDATE namespaces SET erased_at = $3, ttl_s = NULL
WHERE account_id = $1 AND namespace_id = $2 AND memory_count = 0
  AND NOT EXISTS (SELECT 1 FROM episodes
                  WHERE account_id = $1 AND namespace_id = $2 AND state <> 'done')
"""


@dataclass(frozen=True, kw_only=True)
class Match:
    """Conditions on memories; None is any value.

    Attributes:
        epoch: the epoch that `tokens` were made in; without these it does not count.
        tokens: keyed hashes of tags and a source, all of which they have.
        seqs: the only memories to look at, in place of tokens.
        after, before: of their event time, else of when they were stored.
        state: one of `IN_STATE`.
    """

    epoch: int | None = None
    tokens: Sequence[int] = ()
    seqs: Sequence[int] | None = None
    kind: str | None = None
    writer: PublicKey | None = None
    after: datetime | None = None
    before: datetime | None = None
    pinned: bool | None = None
    state: str = ALL


async def places(
    database: Database, *, account: AccountId, ids: Sequence[uuid.UUID]
) -> dict[uuid.UUID, str]:
    """Return living memory or episode → the name of its namespace."""
    return {r["id"]: r["namespace"] for r in await database.fetch(_PLACES, account, ids)}


async def find_matching(
    database: Database, *, account: AccountId, namespace_id: int, match: Match, limit: int
) -> list[uuid.UUID]:
    """Return the oldest memories that fit."""
    statements = (_MATCHING, _MATCHING_TAGGED, _MATCHING_FEW, _MATCHING_NUMBERED)
    statement, arguments = await _build_query(database, statements, account, namespace_id, match)
    rows = await database.fetch(statement, *arguments, limit)
    return [r["memory_id"] for r in rows]


async def count_matching(
    database: Database, *, account: AccountId, namespace_id: int, match: Match
) -> int:
    """Count the memories that fit."""
    statements = (_COUNT_MATCHING, _COUNT_TAGGED, _COUNT_FEW, _COUNT_NUMBERED)
    statement, arguments = await _build_query(database, statements, account, namespace_id, match)
    row = await database.fetchrow(statement, *arguments)
    assert row is not None
    return int(row[0])


async def _build_query(
    database: Database,
    statements: _Statements,
    account: AccountId,
    namespace_id: int,
    match: Match,
) -> tuple[str, tuple[object, ...]]:
    """Return the statement to ask, without tokens, with them or among few, and its arguments."""
    bare, tagged, among_few, numbered = (of_state[match.state] for of_state in statements)
    asked = (
        account, namespace_id, match.kind, match.writer, match.after, match.before, match.pinned,
    )  # fmt: skip
    if match.seqs is not None:
        return numbered, (*asked, match.seqs)
    if not match.tokens:
        return bare, asked
    tokens = [(namespace_id, n, token) for n, token in enumerate(match.tokens)]
    few = await few_with(database, account, tokens)
    if few is None:
        return tagged, (*asked, match.epoch, match.tokens)
    return among_few, (*asked, match.epoch, match.tokens, few)


async def has_other_epochs(
    database: Database, *, account: AccountId, namespace_id: int, epochs: Sequence[int]
) -> bool:
    """Return true if a namespace has memories of other epochs than these."""
    row = await database.fetchrow(_OTHER_EPOCHS, account, namespace_id, epochs)
    assert row is not None
    return bool(row[0])


async def contents(
    database: Database, *, account: AccountId, namespace_id: int, limit: int
) -> list[uuid.UUID]:
    """Return memories and episodes of a namespace, in no order."""
    rows = await database.fetch(_CONTENTS, account, namespace_id, limit)
    return [r["memory_id"] for r in rows]


async def count_contents(database: Database, *, account: AccountId, namespace_id: int) -> int:
    """Count the memories and episodes of a namespace."""
    row = await database.fetchrow(_COUNT_CONTENTS, account, namespace_id)
    assert row is not None
    return int(row[0])


async def close_namespace(
    connection: Connection, *, account: AccountId, namespace_id: int, now: datetime
) -> None:
    """Take a namespace off the lists, unless something was stored there meanwhile."""
    await connection.execute(_CLOSE_NAMESPACE, account, namespace_id, now)
